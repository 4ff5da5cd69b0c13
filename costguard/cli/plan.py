"""`costguard plan`: show each policy's current verdict, the acts it would perform and when, and what blocks them.

Examples:
  costguard plan
  costguard plan --json | jq '.rows[] | select(.finding == "holds")'
  costguard plan --accept 3f9ac1d2

plan changes nothing and sends nothing. If the first run with new settings would act on more machines than [rails] allows, the
watchdog waits until you accept the plan by its hash.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FormatCommand
from costguard.services import CommandAnswer

COMMAND = FormatCommand


def command(
    ctx: Context,
    accept: Annotated[o.Text, Option("--accept", metavar="HASH", help="Accept the plan with this hash.")] = None,
) -> CommandAnswer:
    """Print the plan."""
    from costguard.services.guarding.plan import answer_plan

    return answer_plan(config=ctx.obj.config, accept=accept)
