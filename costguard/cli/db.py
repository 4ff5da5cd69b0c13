"""`costguard db`: path, backup, check and upgrade of the ledger, and the import of an older one.

Examples:
  costguard db path
  costguard db backup ledger-2026-11-21.db
  costguard db check               # exit 1 if the ledger is inconsistent
  costguard db upgrade             # also runs automatically at the first write
  costguard db import old.db       # copy an older version's ledger into the new one of [ledger] url

  sqlite3 -readonly "$(costguard db path)" "SELECT * FROM v_daily"
"""

from typing import Annotated

from typer import Argument, Context

from costguard.cli.commands import AnswerCommand, build_group
from costguard.services import CommandAnswer

app = build_group()


@app.command("path", cls=AnswerCommand)
def show_path(ctx: Context) -> CommandAnswer:
    """Print the location of the ledger."""
    from costguard.services.poll import database

    return database.answer_db_path(config=ctx.obj.config)


@app.command(cls=AnswerCommand)
def backup(
    ctx: Context, file: Annotated[str, Argument(metavar="FILE", help="Path of the backup; the file must not exist.")]
) -> CommandAnswer:
    """Write a copy of the ledger to a new file."""
    from costguard.services.poll import database

    return database.answer_db_backup(file, config=ctx.obj.config)


@app.command(cls=AnswerCommand)
def check(ctx: Context) -> CommandAnswer:
    """Check the ledger; exit 1 if it is inconsistent."""
    from costguard.services.poll import database

    return database.answer_db_check(config=ctx.obj.config)


@app.command(cls=AnswerCommand)
def upgrade(ctx: Context) -> CommandAnswer:
    """Upgrade the ledger to this version's schema, or create it."""
    from costguard.services.poll import database

    return database.answer_db_upgrade(config=ctx.obj.config)


@app.command("import", cls=AnswerCommand)
def import_older(
    ctx: Context, source: Annotated[str, Argument(metavar="FROM", help="Path or URL of the older ledger (only read).")]
) -> CommandAnswer:
    """Copy an older version's ledger into the new one of [ledger] url."""
    from costguard.services.guarding import audit

    return audit.answer_db_import(source, config=ctx.obj.config)
