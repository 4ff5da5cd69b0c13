"""`costguard run`: run a command with a quote, a budget hold and tracking.

Examples:
  costguard run --job job.toml -- python train.py
  costguard run --job job.toml --id train-1 --then stop -- torchrun --nproc-per-node 8 train.py
  costguard run --job job.toml --on H100:8 --rate 23.92 --yes --id-of-job llama-7 -- ./train.sh

costguard writes its own messages to standard error. Exit codes: the command's (128 + N after signal N); 2 wrong input, the
command was not started; 3 refused by a budget, a cap or a person; 126, 127 the command cannot be run. The first Ctrl-C goes
to the job, the second sends SIGTERM, the third SIGKILL.

The command reports its steps with two lines of Python:

  import costguard_agent
  costguard_agent.progress(step)
"""

from typing import Annotated

from typer import Argument, Context, Exit, Option

from costguard.cli import options as o
from costguard.cli.commands import VerbatimCommand, add_options
from costguard.sizing.job_flags import parse_number

COMMAND = add_options(VerbatimCommand, {}, ("command", "job", "name", "owner", "on", "id", "rate", "max_usd", "yes", "then"))


def command(
    ctx: Context,
    command: Annotated[o.Names, Argument(metavar="-- COMMAND", help="The command and its arguments.")] = None,
    job: Annotated[o.Text, Option("--job", metavar="FILE", help="Job file: model, tokens and limits.")] = None,
    on: o.On = None,
    id: Annotated[o.Text, Option("--id", metavar="ID", help="This machine's id or name in the ledger.")] = None,  # noqa: A002 - as it is shown
    rate: Annotated[o.Text, Option(metavar="USD", help="Price in $ per hour, if costguard does not know it: 2.49.")] = None,
    max_usd: Annotated[o.Text, Option("--max-usd", metavar="USD", help="Refuse the run if the quote is higher.")] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    name: Annotated[o.Text, Option("--id-of-job", metavar="NAME", help="Name of the job, shared by its attempts.")] = None,
    record: Annotated[o.Text, Option(metavar="FILE", help="File for the job's record; keep it with the checkpoints.")] = None,
    owner: Annotated[o.Text, Option(metavar="NAME", help="Owner to charge (default: only budgets for everybody).")] = None,
    tokens_per_step: Annotated[
        o.Text, Option(metavar="N", help="Tokens per reported step (default: the global batch).")
    ] = None,
    notices: Annotated[str, Option(metavar="NAME", help="Source of spot notices: auto | aws | gcp | none.")] = "auto",
    on_notice: Annotated[
        o.Text,
        Option(metavar="COMMAND", help="Command to run before the machine is reclaimed, such as saving a checkpoint."),
    ] = None,
    signal_on_notice: Annotated[
        o.Text, Option(metavar="NAME", help="Signal to send to the job at a spot notice: USR1 or TERM.")
    ] = None,
    then: Annotated[
        str, Option(metavar="ACT", help="Act on this machine after the job: nothing | stop | terminate.")
    ] = "nothing",
    then_always: Annotated[bool, Option("--then-always", help="Do --then after any exit code, not only after 0.")] = False,
    yes_then: Annotated[bool, Option("--yes-then", help="Do --then even without a terminal.")] = False,
    outlive: Annotated[bool, Option("--outlive", help="Let the job continue if costguard is killed (SIGKILL).")] = False,
    result: Annotated[o.Text, Option(metavar="FILE", help="File for the result, as JSON (costguard.run/1).")] = None,
    market: o.Market = None,
    calibration: o.Calibration = None,
) -> None:
    """Run the job and exit with its exit code."""
    from costguard.services.run_jobs import job_run
    from costguard.services.run_jobs.machine_shutdown import EndAction
    from costguard.services.run_jobs.terms import RunRequest
    from costguard.values import checks

    per_step = None if tokens_per_step is None else parse_number(tokens_per_step, "tokens_per_step")
    run_options = job_run.RunOptions(
        command=tuple(command or ()),
        asked=RunRequest(
            job_file=job,
            flags={"limits": {"max_usd": max_usd}} if max_usd is not None else {},
            on=on,
            id=id,
            rate=rate,
            owner=owner,
            tokens_per_step=None if per_step is None else checks.require_whole_number(per_step, "--tokens-per-step"),
            market=market,
            calibration=calibration,
            config=ctx.obj.config,
        ),
        yes=yes,
        job=name,
        record=record,
        on_notice=on_notice,
        signal_on_notice=signal_on_notice,
        notices=notices,
        after=EndAction(act=then, always=then_always, yes=yes_then),
        result=result,
        outlive=outlive,
    )
    raise Exit(job_run.run_job(run_options))
