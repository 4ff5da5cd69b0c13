"""`costguard plan`: show each policy's current verdict, the acts it would perform and when, and what blocks them."""

from __future__ import annotations

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard plan
  costguard plan --json | jq '.rows[] | select(.finding == "holds")'
  costguard plan --accept 3f9ac1d2

It changes nothing and sends nothing. If the first run of new settings would act on more machines than [rails] allows, the
watchdog waits until you accept the plan by its hash.
"""


@add_output_options
def command(
    ctx: Context,
    accept: Annotated[Text, Option("--accept", metavar="HASH", help="Accept the plan with this hash.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
    format: o.Format = None,  # noqa: A002 - the option's name
) -> None:
    """Print the plan."""
    from costguard.services.guarding.plan import answer_plan

    write_answer(answer_plan(config=ctx.obj.config, accept=accept), ctx)
