"""`costguard db`: path, backup, check and upgrade of the ledger, and the import of an older one."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context

from costguard.cli.answer import add_format_options, write_answer
from costguard.cli.commands import CostguardCommand, build_group

EXAMPLES = """Examples:

\b
  costguard db path
  costguard db backup ledger-2026-11-21.db
  costguard db check               # exit 1 where something does not add up
  costguard db upgrade             # runs by itself at the first write, too
  costguard db import old.db       # a ledger of before this version, into the new one of [ledger] url

\b
  sqlite3 -readonly "$(costguard db path)" "SELECT * FROM v_daily"
"""
app = build_group()


@app.command("path", cls=CostguardCommand)
@add_format_options
def show_path(ctx: Context) -> None:
    """Print where the ledger is."""
    from costguard.services.poll import database

    write_answer(database.answer_db_path(config=ctx.obj.config), ctx)


@app.command(cls=CostguardCommand)
@add_format_options
def backup(
    ctx: Context, file: Annotated[str, Argument(metavar="FILE", help="Path of the backup; the file must not exist.")]
) -> None:
    """Write a copy of the ledger to a new file."""
    from costguard.services.poll import database

    write_answer(database.answer_db_backup(file, config=ctx.obj.config), ctx)


@app.command(cls=CostguardCommand)
@add_format_options
def check(ctx: Context) -> None:
    """Check the ledger: exit 1 where something does not add up."""
    from costguard.services.poll import database

    write_answer(database.answer_db_check(config=ctx.obj.config), ctx)


@app.command(cls=CostguardCommand)
@add_format_options
def upgrade(ctx: Context) -> None:
    """Upgrade the ledger to this version's schema, or make it."""
    from costguard.services.poll import database

    write_answer(database.answer_db_upgrade(config=ctx.obj.config), ctx)


@app.command("import", cls=CostguardCommand)
@add_format_options
def import_older(
    ctx: Context, source: Annotated[str, Argument(metavar="FROM", help="Path or URL of the older ledger, which is only read.")]
) -> None:
    """Copy a ledger of an older costguard into the ledger of [ledger] url, which must be new."""
    from costguard.services.guarding import audit

    write_answer(audit.answer_db_import(source, config=ctx.obj.config), ctx)
