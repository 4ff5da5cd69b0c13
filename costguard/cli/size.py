"""`costguard size`: how much GPU memory a job needs, and which GPUs hold it."""

from __future__ import annotations

import typer

from costguard.cli import options as o
from costguard.cli.answer import write

EXAMPLES = """Examples:

\b
  costguard size --model llama-2-7b --method full --checkpointing full
  costguard size --model llama-3.1-70b --method qlora --on H100:1 --explain
  costguard size --model ./config.json --method inference --seq-len 8192
"""


def command(  # noqa: PLR0917 - typer reads options off the signature
    ctx: typer.Context,
    job: o.JobFile = None,
    model: o.Model = None,  # noqa: ARG001 - every option below is read from ctx.params, by the one table in cli/options.py
    method: o.Method = None,  # noqa: ARG001
    precision: o.Precision = None,  # noqa: ARG001
    quant: o.Quant = None,  # noqa: ARG001
    optimizer: o.Optimizer = None,  # noqa: ARG001
    seq_len: o.SeqLen = None,  # noqa: ARG001
    micro_batch: o.MicroBatch = None,  # noqa: ARG001
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
    explain: o.Explain = False,
    json: o.Json = False,  # noqa: ARG001
    csv: o.Csv = False,  # noqa: ARG001
    markdown: o.Markdown = False,  # noqa: ARG001
) -> None:
    """Read the flags and print the footprint."""
    from costguard import app

    write(app.size(job_file=job, flags=o.table_from(ctx.params), on=on, explain=explain), ctx)
