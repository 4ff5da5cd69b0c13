"""`costguard audit`: show or verify the tamper-evident log, or adopt a ledger."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer
from costguard.cli.options import Names, Text
from costguard.errors import InputError
from costguard.values.checks import require_one_of

ACTIONS = ("verify", "show", "adopt")
EXAMPLES = """Examples:

\b
  costguard audit verify                                  # exits 3 if the log does not verify
  costguard audit verify --anchor 1234:9f86d081884c7d65   # anchor from a message or from status --json
  costguard audit show --since 24h
  costguard audit adopt --why "the disk died, this is the backup"    # continue with an older ledger
"""


@add_output_options
def command(
    ctx: Context,
    action: Annotated[str, Argument(metavar="ACTION", help=" | ".join(ACTIONS))],
    anchor: Annotated[
        Names,
        Option(
            metavar="ROW:HASH", help="An anchor (row and hash) saved elsewhere: verify checks that the log still contains it."
        ),
    ] = None,
    since: Annotated[Text, Option(metavar="WHEN", help="Show rows since this time: 24h, 7d, 2026-11-21.")] = None,
    rows: Annotated[bool, Option("--rows", help="For show: also the rows that record what polls wrote.")] = False,
    why: Annotated[Text, Option(metavar="TEXT", help="For adopt: why the older ledger should be used.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Perform the action and print its result."""
    require_one_of(action, ACTIONS, "ACTION")
    if action != "verify" and anchor:
        raise InputError(f"{action} takes no --anchor", field="--anchor", hint=f"costguard audit verify --anchor {anchor[0]}")
    if action == "verify" and since is not None:
        raise InputError("verify always checks every row", field="--since", hint="costguard audit verify")
    if action != "show" and since is not None:
        raise InputError(f"{action} shows no rows", field="--since", hint=f"costguard audit show --since {since}")
    if action != "show" and rows:
        raise InputError(f"{action} shows no rows", field="--rows", hint="costguard audit show --rows")
    if action != "adopt" and why is not None:
        raise InputError(f"{action} changes nothing", field="--why", hint=f"costguard audit {action}")
    from costguard.services import audit

    config = ctx.obj.config
    answers = {
        "verify": lambda: audit.verify_audit(anchor or (), config=config),
        "show": lambda: audit.show_audit(since=since, rows=rows, config=config),
        "adopt": lambda: audit.adopt_ledger(why=why, config=config),
    }
    write_answer(answers[action](), ctx)
