"""`costguard admit`: reserve a run's cost in its budgets before launch, or end such a hold.

Examples:
  costguard admit job.toml --owner ada --label team=vision
  costguard admit --gpu H100 --count 8 --hours 12 --provider runpod
  costguard admit --usd 50 --hours 12 --name nightly --json
  costguard admit --ended hold-3f2a9c0b17de          # the run has ended; its cost is in the ledger
  costguard admit --release hold-3f2a9c0b17de        # the run was never launched

Exit codes: 0 held; 3 not held, because a budget refused it or no price is known. costguard submit admits a run and starts it.
"""

from typing import Annotated, ClassVar

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.admission_options import list_admission_options, read_admit_request
from costguard.cli.commands import CostguardCommand, add_options
from costguard.errors import InputError
from costguard.services import CommandAnswer


class AdmitCommand(CostguardCommand):
    """A command whose answer may have any installed format."""

    answer_options: ClassVar[o.Options] = {**o.FORMATS, **o.NAMED_FORMAT}


COMMAND = add_options(AdmitCommand, list_admission_options())


def command(
    ctx: Context,
    job: o.JobFiles = None,
    release: Annotated[o.Text, Option(metavar="HOLD", help="Release this hold; its run was never launched.")] = None,
    ended: Annotated[o.Text, Option(metavar="HOLD", help="End this hold; its run has ended.")] = None,
    spent: Annotated[o.Text, Option(metavar="USD", help="With --ended: cost of the run, if no provider lists it.")] = None,
) -> CommandAnswer:
    """Read the options, and admit the run or end the hold."""
    from costguard.services.run_jobs import admit
    from costguard.values.money import Money

    if spent is not None and ended is None:
        raise InputError("belongs to --ended", field="--spent", hint="costguard admit --ended HOLD --spent 12.30")
    if release is None and ended is None:
        return admit.answer_admit(read_admit_request(ctx.params, job, ctx.obj.config))
    if release is not None and ended is not None:
        raise InputError("cannot be given together", field="--release and --ended", hint="leave one of them out")
    money = None if spent is None else Money.parse(spent, field="--spent")
    return admit.answer_hold_end(release or ended or "", started=release is None, spent=money, config=ctx.obj.config)
