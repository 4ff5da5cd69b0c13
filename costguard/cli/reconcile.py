"""`costguard reconcile`: compare the providers' bills with the recorded charges.

Examples:
  costguard reconcile
  costguard reconcile --month 2026-10 --provider runpod --tolerance 2%
  costguard reconcile --file focus-2026-10.csv.gz --json
  costguard reconcile --file exports/2026-10/ --whole                        # a complete redelivery
  costguard reconcile --file billing.json --account default

Bills count amortised: what a commitment covers counts in the hour of its use. Of files, the amount as invoiced is shown too.

Exit code 3: a bill differs from the charges by more than the tolerance. AWS charges $0.01 for each page of Cost Explorer,
which the settings can enable.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FormatCommand
from costguard.services import CommandAnswer

COMMAND = FormatCommand


def command(
    ctx: Context,
    month: Annotated[o.Text, Option(metavar="YYYY-MM", help="Month, in UTC (default: the current month).")] = None,
    provider: o.Provider = None,
    file: Annotated[
        o.Names,
        Option(
            metavar="BILL",
            help="Read bills from a file or folder: FOCUS, CUR, Google, RunPod, Vast or Lambda; CSV, JSON or Parquet.",
        ),
    ] = None,
    tolerance: Annotated[o.Text, Option(metavar="T", help='Allowed difference: 2%, 0.50 or "1%, 0.10" (default).')] = None,
    account: Annotated[o.Text, Option(metavar="NAME", help="Account of a file that does not state one.")] = None,
    whole: Annotated[
        bool, Option("--whole", help="Each --file is a complete bill: remove its other lines from the ledger.")
    ] = False,
    strict: Annotated[bool, Option("--strict", help="Exit 4 if a bill could not be fetched or compared.")] = False,
) -> CommandAnswer:
    """Compare the bills of a month with its charges."""
    from costguard.services.report import reconcile_command

    return reconcile_command.answer_reconcile(
        month=month,
        only=tuple(provider or ()),
        files=tuple(file or ()),
        tolerance=tolerance,
        account=account,
        complete=whole,
        strict=strict,
        offline=ctx.obj.offline,
        config=ctx.obj.config,
    )
