"""`costguard quote`: what will this run cost, how long will it take, and where?"""

from __future__ import annotations

from typing import Annotated

import typer

from costguard.cli import options as o
from costguard.cli.answer import write
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard quote --model llama-3.1-8b --method qlora --tokens 50e6
  costguard quote job.toml --max-usd 200 --provider aws --provider runpod
  costguard quote --model mistral-7b --method full --tokens 1B --on H100:8
  costguard quote --gpu H100 --count 8 --hours 12
"""


def command(  # noqa: PLR0917 - typer reads options off the signature
    ctx: typer.Context,
    job: o.JobFile = None,
    model: o.Model = None,  # noqa: ARG001 - every option below is read from ctx.params, by the one table in cli/options.py
    method: o.Method = None,  # noqa: ARG001
    tokens: Annotated[Text, typer.Option(metavar="N", help="Tokens to train on (epochs counted), or to generate: 50e6, 1.5B.")] = None,  # noqa: ARG001
    precision: o.Precision = None,  # noqa: ARG001
    quant: o.Quant = None,  # noqa: ARG001
    optimizer: o.Optimizer = None,  # noqa: ARG001
    seq_len: o.SeqLen = None,  # noqa: ARG001
    micro_batch: o.MicroBatch = None,  # noqa: ARG001
    global_batch_tokens: o.GlobalBatch = None,  # noqa: ARG001
    checkpointing: o.Checkpointing = None,  # noqa: ARG001
    attention: o.Attention = None,  # noqa: ARG001
    lora_rank: o.LoraRank = None,  # noqa: ARG001
    lora_targets: o.LoraTargets = None,  # noqa: ARG001
    zero: o.Zero = None,  # noqa: ARG001
    fsdp: o.Fsdp = None,  # noqa: ARG001
    tp: o.Tp = None,  # noqa: ARG001
    pp: o.Pp = None,  # noqa: ARG001
    cp: o.Cp = None,  # noqa: ARG001
    ep: o.Ep = None,  # noqa: ARG001
    offload: o.Offload = None,  # noqa: ARG001
    on: o.On = None,
    gpu: o.GpuName = None,  # noqa: ARG001
    count: Annotated[Text, typer.Option(metavar="N", help="GPUs of an instance.")] = None,
    hours: Annotated[Text, typer.Option(metavar="N", help="Without a model: rent --count of --gpu for so long.")] = None,
    provider: o.Provider = None,  # noqa: ARG001
    region: o.Region = None,  # noqa: ARG001
    tier: o.Tier = None,  # noqa: ARG001
    max_usd: Annotated[Text, typer.Option(metavar="USD", help="Refuse what is expected to cost more.")] = None,  # noqa: ARG001
    max_hours: Annotated[Text, typer.Option(metavar="N", help="Refuse what is expected to take longer.")] = None,  # noqa: ARG001
    max_gpus: Annotated[Text, typer.Option(metavar="N", help="Most GPUs over all nodes (64).")] = None,  # noqa: ARG001
    disk_gb: Annotated[Text, typer.Option(metavar="N", help="Disk of the run in GB (default: worked out).")] = None,  # noqa: ARG001
    checkpoint_every_hours: Annotated[Text, typer.Option(metavar="N", help="Between checkpoints, for spot (1).")] = None,  # noqa: ARG001
    top: Annotated[Text, typer.Option(metavar="N", help="Rows to show (default: ten, and each provider's best).")] = None,
    sort: Annotated[Text, typer.Option(metavar="NAME", help="usd | hours | usd_per_hour | provider")] = None,
    market: o.Market = None,
    explain: o.Explain = False,
    json: o.Json = False,  # noqa: ARG001
    csv: o.Csv = False,  # noqa: ARG001
    markdown: o.Markdown = False,  # noqa: ARG001
) -> None:
    """Read the flags and print the quote."""
    from costguard import app

    answer = app.quote(
        job_file=job,
        flags=o.table_from(ctx.params),
        on=on,
        count=None if count is None else o.number_from(count, "count"),
        hours=None if hours is None else o.number_from(hours, "hours"),
        top=None if top is None else o.number_from(top, "top"),
        sort=sort or "usd",
        market=market,
        explain=explain,
        config=ctx.obj.config,
    )
    write(answer, ctx)
