"""`costguard submit`: admit a run, then start its launcher.

Examples:
  costguard submit --gpu H100 --count 8 --hours 12 -- sky launch task.yaml
  costguard submit --job job.toml --owner ada --label team=vision -- sbatch train.sbatch
  costguard submit --wait --usd 50 --hours 12 -- ./launch-and-wait.sh

Without --job and flags, costguard reads the job from the launcher's own file, if the command names one. If the launcher
fails, the hold is released. Exit codes: 3 refused, the launcher was not started; otherwise the launcher's.
"""

from typing import Annotated

from typer import Argument, Context, Exit, Option

from costguard.cli import options as o
from costguard.cli.admission_options import list_admission_options, read_admit_request
from costguard.cli.commands import VerbatimCommand, add_options

COMMAND = add_options(VerbatimCommand, list_admission_options())


def command(
    ctx: Context,
    command: Annotated[o.Names, Argument(metavar="-- LAUNCHER", help="The launcher and its arguments.")] = None,
    job: Annotated[o.Text, Option("--job", metavar="FILE", help="Job file, as for costguard quote.")] = None,
    wait: Annotated[bool, Option("--wait", help="The launcher returns when the run ends; end the hold then.")] = False,
) -> None:
    """Admit the run, start the launcher, and exit with its exit code."""
    from costguard.services.run_jobs.submit import SubmitOptions, launch_admitted_run

    request = read_admit_request(ctx.params, job, ctx.obj.config)
    raise Exit(launch_admitted_run(SubmitOptions(command=tuple(command or ()), request=request, waits=wait)))
