"""`costguard keep`: record a lease.

The machine is not stopped until it ends, and the answer states what that costs.
"""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard keep i-0a1b2c3d --for 4h --why "evaluation runs until tonight"
  costguard keep train-1 --for 90m --why "in a meeting"
  costguard keep train-1 --lift

ID is the provider's id, a name, the beginning of either, or provider/account/region/id. The policies limit the length of a
lease and the number of renewals. A lease does not stop a hard cap.
"""


def command(
    ctx: Context,
    id: Annotated[str, Argument(metavar="ID", help="The machine: an id, a name, or the beginning of either.")],  # noqa: A002 - as it is shown
    length: Annotated[Text, Option("--for", metavar="TIME", help="Duration: 45m, 4h, 2h30m, 1d.")] = None,
    why: Annotated[Text, Option("--why", metavar="TEXT", help="The reason; it is shown to others.")] = None,
    lift: Annotated[bool, Option("--lift", help="Lift the lease.")] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Record a lease."""
    from costguard.services.guarding import overrides

    write_answer(overrides.keep_resource(id, length=length, why=why, lift=lift, config=ctx.obj.config), ctx)
