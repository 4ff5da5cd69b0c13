"""`costguard size`: the GPU memory that a job needs, and the GPUs it fits on.

Examples:
  costguard size --model llama-2-7b --method full --checkpointing full
  costguard size --model llama-3.1-70b --method qlora --on H100:1 --explain
  costguard size --model ./config.json --method inference --seq-len 8192
  costguard size --model qwen3-8b --method lora --gpu H100 --count 8 --fused-loss --framework hf-2024
  costguard size --model gpt2 --method full --precision bf16-amp --exact
  pip install '.[exact]'                      # in a clone of costguard: required by --exact
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FileCommand, add_options
from costguard.services import CommandAnswer
from costguard.sizing.job_flags import build_job_table, parse_number

FIELDS = (
    *("template", "model", "params", "method", "preference", "precision", "quant", "optimizer", "seq_len", "decoder_len"),
    *("micro_batch", "checkpointing", "attention", "lora_rank", "lora_targets", "zero", "fsdp", "tp", "pp", "cp", "ep"),
    *("kv_cache", "offload", "framework", "fused_loss", "compile", "global_batch_tokens", "gpu", "fit"),
)
"""What decides how much memory a job needs."""
SHORT = (
    *("job", "template", "model", "method", "precision", "quant", "optimizer", "seq_len", "micro_batch", "checkpointing"),
    *("lora_rank", "zero", "fsdp", "tp", "on", "gpu", "count", "explain", "json"),
)
COMMAND = add_options(FileCommand, o.list_job_options(*FIELDS), SHORT)


def command(
    ctx: Context,
    job: o.JobFiles = None,
    on: o.On = None,
    count: o.Count = None,
    calibration: o.Calibration = None,
    explain: o.Explain = False,
    strict: o.Strict = False,
    exact: Annotated[bool, Option("--exact", help="Also run one training step on fake tensors.")] = False,
) -> CommandAnswer:
    """Read the options and return the memory estimate."""
    from costguard.services.quote import quote_commands

    return quote_commands.answer_size(
        job_file=job,
        flags=build_job_table(ctx.params),
        on=on,
        count=None if count is None else parse_number(count, "count"),
        explain=explain,
        strict=strict,
        exact=exact,
        calibration=calibration,
        config=ctx.obj.config,
    )
