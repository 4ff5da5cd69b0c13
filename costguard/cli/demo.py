"""`costguard demo`: the main job on real input, with no account and no network."""

from __future__ import annotations

import sys

import typer

from costguard.cli import options as o
from costguard.cli.answer import write

EXAMPLES = ""
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
    ctx: typer.Context,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Print the quote of a QLoRA fine-tune over the whole shipped market."""
    from costguard import app

    sys.stderr.write(f"$ {AS_TYPED}\n")
    every = o.format_from(ctx.params) in ("json", "csv")
    write(app.quote(flags=FLAGS, every=every, config=ctx.obj.config), ctx)
