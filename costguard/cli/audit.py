"""`costguard audit`: does what was recorded of wishes and acts still hold, and what does it tell?"""

from __future__ import annotations

from typing import Annotated

import typer

from costguard.cli import options as o
from costguard.cli.answer import write
from costguard.cli.options import Text
from costguard.core.checks import one_of
from costguard.errors import InputError

ACTIONS = ("verify", "show")
EXAMPLES = """Examples:

\b
  costguard audit verify                                  # exit 3 where something does not fit
  costguard audit verify --anchor 1234:9f86d081884c7d65   # from a message, or from status --json
  costguard audit show --since 24h
"""


def command(
    ctx: typer.Context,
    action: Annotated[str, typer.Argument(metavar="ACTION", help=" | ".join(ACTIONS))],
    anchor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROW:HASH", help="A head that was noted elsewhere: verify says whether the audit passes through it."
        ),
    ] = None,
    since: Annotated[Text, typer.Option(metavar="WHEN", help="Show the rows since then: 24h, 7d, 2026-11-21.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Do one of the two and print what came of it."""
    one_of(action, ACTIONS, "ACTION")
    if action == "show" and anchor:
        raise InputError("show takes no head", field="--anchor", hint=f"costguard audit verify --anchor {anchor[0]}")
    if action == "verify" and since is not None:
        raise InputError("verify looks at every row", field="--since", hint="costguard audit verify")
    from costguard.app import auditing

    config = ctx.obj.config
    write(
        auditing.verify(anchor or (), config=config) if action == "verify" else auditing.show(since=since, config=config), ctx
    )
