"""`costguard calibrate`: observed runs adjust the estimates for jobs of the same family.

Examples:
  costguard calibrate runs.csv
  costguard calibrate runs.csv --show      # show the effect; write nothing
  costguard calibrate --reset

Each row states a job (model, method, seq_len, micro_batch ..., as in a job file; also lora_rank, zero, tp ...), the hardware
(gpu, gpu_count, nodes) and measurements: tokens_per_s (all GPUs), tokens_per_s_per_gpu, or hours and tokens; for one GPU
peak_gib or peak_gb (allocated), reserved_gib or reserved_gb (nvidia-smi). Optional: name, note, source, at.
"""

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FileCommand
from costguard.services import CommandAnswer

COMMAND = FileCommand


def command(
    ctx: Context,
    runs: Annotated[o.Text, Argument(metavar="RUNS", help="Observed runs: a CSV file, or [[runs]] in TOML or JSON.")] = None,
    show: Annotated[
        bool, Option("--show", help="Show the current calibration, including RUNS if given; write nothing.")
    ] = False,
    reset: Annotated[bool, Option("--reset", help="Delete the stored runs.")] = False,
    calibration: o.Calibration = None,
) -> CommandAnswer:
    """Store the runs and print what they change."""
    from costguard.services.quote import quote_commands

    return quote_commands.answer_calibrate(runs=runs, show=show, reset=reset, calibration=calibration, config=ctx.obj.config)
