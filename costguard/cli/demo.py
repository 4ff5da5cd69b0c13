"""`costguard demo`: a quote, a guarded simulated weekend, and two simulated weeks with their bill.

The demo needs no account and no network.

Examples:
  costguard demo
  costguard demo --serve              # serve the weekend as web pages, and print the link
  costguard demo --keep sample        # then, in that folder: status, report, reconcile, plan, watch ...
  costguard demo --ledger demo.db     # then: COSTGUARD_LEDGER__URL=sqlite:///demo.db costguard report
"""

import sys
from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.services import CommandAnswer
from costguard.system.progress import clear_progress, report_progress

FLAGS: dict[str, object] = {
    "model": "llama-3.1-8b",
    "method": "qlora",
    "tokens": 50_000_000,
    "seq_len": 2048,
    "micro_batch": 2,
    "checkpointing": "full",
    "precision": "bf16",
    "optimizer": "adamw",
}
AS_TYPED = (
    "costguard quote --model llama-3.1-8b --method qlora --tokens 50e6 --seq-len 2048 --micro-batch 2"
    " --checkpointing full --precision bf16 --optimizer adamw"
)


def command(
    ctx: Context,
    ledger: Annotated[o.Text, Option(metavar="FILE", help="Keep the simulated ledger in this file.")] = None,
    keep: Annotated[
        o.Text, Option("--keep", metavar="DIR", help="Only write sample settings and a ledger of a month into a new folder.")
    ] = None,
    serve: Annotated[bool, Option("--serve", help="Serve the simulated weekend as web pages until Ctrl-C.")] = False,
) -> CommandAnswer | None:
    """Print a QLoRA quote on the shipped market, a guarded simulated weekend, and two simulated weeks with their bill."""
    if serve:
        from costguard.web.demo_server import serve_weekend

        serve_weekend(config=ctx.obj.config)
        return None
    if keep is not None:
        from costguard.testing.demo import keep_demo

        return keep_demo(keep)
    from dataclasses import replace

    from costguard.services.quote import quote_commands
    from costguard.testing import demo
    from costguard.testing.weekend import play_weekend

    if ledger is not None:
        demo.prepare_demo_ledger(ledger)
    sys.stderr.write(f"$ {AS_TYPED}\n")
    every = o.choose_format(ctx.params) in ("json", "csv")
    quote = quote_commands.answer_quote(flags=FLAGS, every=every, config=ctx.obj.config)
    if not every:
        write_answer(quote, ctx)
    clear_progress()
    sys.stderr.write("\nsimulating a weekend with watchdog and report ...\n")
    report_progress("simulating a weekend with watchdog and report")
    guarded = play_weekend(config=ctx.obj.config)
    if not every:
        write_answer(guarded, ctx)
    clear_progress()
    sys.stderr.write("\nsimulating two weeks of five clouds ...\n")
    played = demo.play_fortnight(ledger=ledger)
    if ctx.params["json"]:
        data = {**quote.document.data, "schema": "costguard.demo/2", "weekend": guarded.document.data}
        data["fortnight"] = played.document.data
        refusal = guarded.refusal or played.refusal
        played = replace(played, document=replace(played.document, data=data), refusal=refusal)
    return played
