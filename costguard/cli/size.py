"""`costguard size`: the GPU memory that a job needs, and the GPUs it fits on."""

from __future__ import annotations

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer

EXAMPLES = """Examples:

\b
  costguard size --model llama-2-7b --method full --checkpointing full
  costguard size --model llama-3.1-70b --method qlora --on H100:1 --explain
  costguard size --model ./config.json --method inference --seq-len 8192
  costguard size --model gpt2 --method full --precision bf16-amp --exact
"""


@add_output_options
def command(
    ctx: Context,
    job: o.JobFiles = None,
    template: o.Template = None,
    model: o.Model = None,
    method: o.Method = None,
    preference: o.Preference = None,
    precision: o.Precision = None,
    quant: o.Quant = None,
    optimizer: o.Optimizer = None,
    seq_len: o.SeqLen = None,
    decoder_len: o.DecoderLen = None,
    kv_cache: o.KvCache = None,
    micro_batch: o.MicroBatch = None,
    checkpointing: o.Checkpointing = None,
    attention: o.Attention = None,
    lora_rank: o.LoraRank = None,
    lora_targets: o.LoraTargets = None,
    zero: o.Zero = None,
    fsdp: o.Fsdp = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    cp: o.Cp = None,
    ep: o.Ep = None,
    offload: o.Offload = None,
    on: o.On = None,
    calibration: o.Calibration = None,
    explain: o.Explain = False,
    strict: o.Strict = False,
    exact: Annotated[
        bool, Option("--exact", help="Also run one step on tensors without data (pip install 'gpu-costguard[exact]').")
    ] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Read the options and print the memory estimate."""
    from costguard.services.quote import quote_commands

    answer = quote_commands.answer_size(
        job_file=job,
        flags=o.build_job_table(ctx.params),
        on=on,
        explain=explain,
        strict=strict,
        exact=exact,
        calibration=calibration,
        config=ctx.obj.config,
    )
    write_answer(answer, ctx)
