"""`costguard add`: enter a cost by hand that no provider lists, such as storage, Colab, power or egress.

Examples:
  costguard add "S3 checkpoints" 41.20 --month 2026-10 --owner vision
  costguard add "Colab Pro" 49.99 --month 2026-10 --owner ada --provider colab --team vision
  costguard add --from costs.csv              # columns: what, amount, month; owner, provider, project, team, currency, corrects
  costguard add --corrects E3 39.10           # the right amount; 0 takes it back

An entry is never changed: a correction is an entry of its own, which holds the difference. Of a file all lines are entered, or
none. The entry counts on the first day of its month. A hard cap stops no machine for what was entered by hand.
"""

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    what: Annotated[o.Text, Argument(metavar="WHAT", help="What it is for (of a correction, the amount).")] = None,
    amount: Annotated[o.Text, Argument(metavar="AMOUNT", help="The amount, such as 41.20.")] = None,
    month: Annotated[o.Text, Option(metavar="YYYY-MM", help="The month that it is for.")] = None,
    owner: Annotated[o.Text, Option(metavar="NAME", help="Whose it is.")] = None,
    provider: Annotated[o.Text, Option(metavar="NAME", help="Who bills it (default: by-hand).")] = None,
    team: Annotated[o.Text, Option(metavar="NAME", help="The label team.")] = None,
    project: Annotated[o.Text, Option(metavar="NAME", help="The label project.")] = None,
    currency: Annotated[o.Text, Option(metavar="CODE", help="Its currency (default: USD).")] = None,
    corrects: Annotated[o.Text, Option(metavar="ENTRY", help="The entry that it corrects, such as E3.")] = None,
    file: Annotated[o.Text, Option("--from", metavar="FILE", help="Enter every line of a CSV file.")] = None,
) -> CommandAnswer:
    """Enter a cost."""
    from costguard.services.report.cost_entries import add_costs

    if corrects is not None and amount is None:
        what, amount = None, what
    options = {"what": what, "amount": amount, "month": month, "owner": owner, "provider": provider, "team": team}
    options |= {"project": project, "currency": currency, "corrects": corrects}
    return add_costs(options, file=file, config=ctx.obj.config)
