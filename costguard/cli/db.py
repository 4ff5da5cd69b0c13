"""`costguard db`: path, backup, check and upgrade of the ledger."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text
from costguard.errors import InputError
from costguard.values.checks import require_one_of

ACTIONS = ("path", "backup", "check", "upgrade")
EXAMPLES = """Examples:

\b
  costguard db path
  costguard db backup ledger-2026-11-21.db
  costguard db check               # exit 1 where something does not add up
  costguard db upgrade             # runs by itself at the first write, too

\b
  sqlite3 -readonly "$(costguard db path)" "SELECT * FROM v_daily"
"""


def command(
    ctx: Context,
    action: Annotated[str, Argument(metavar="ACTION", help=" | ".join(ACTIONS))],
    file: Annotated[Text, Argument(metavar="FILE", help="Path of the backup; the file must not exist.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Perform the action and print its result."""
    require_one_of(action, ACTIONS, "ACTION")
    if action == "backup" and not file:
        raise InputError("backup needs a file name", field="FILE", hint="costguard db backup FILE")
    if action != "backup" and file:
        raise InputError(f"{action} takes no file", field="FILE", hint=f"costguard db {action}")
    from costguard.services import database

    config = ctx.obj.config
    if file:
        write_answer(database.answer_db_backup(file, config=config), ctx)
    elif action == "path":
        write_answer(database.answer_db_path(config=config), ctx)
    elif action == "check":
        write_answer(database.answer_db_check(config=config), ctx)
    else:
        write_answer(database.answer_db_upgrade(config=config), ctx)
