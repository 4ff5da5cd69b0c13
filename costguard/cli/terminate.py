"""`costguard terminate`: terminate one machine by hand, and prove it."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard terminate train-1
  costguard terminate runpod/default/global/k3v9x2m0000000 --yes --why "the run is over"

It looks at the machine, says what is lost and what goes on billing, and asks. Nothing is sent to a machine that is protected,
kept by somebody, or frozen, and nothing is sent twice.
"""


def command(
    ctx: Context,
    id: Annotated[str, Argument(metavar="ID", help="The machine: an id, a name, or the beginning of either.")],  # noqa: A002 - as it is shown
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    why: Annotated[Text, Option("--why", metavar="TEXT", help="The reason; it is shown to others.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Terminate one machine."""
    from costguard.cli.confirm import find_asker
    from costguard.services.guarding.act.by_hand import act_on_resource

    write_answer(act_on_resource(id, "terminate", yes=yes, why=why or "", ask=find_asker(), config=ctx.obj.config), ctx)
