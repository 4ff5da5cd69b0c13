"""`costguard audit`: show or verify the tamper-evident log, or adopt a ledger.

Examples:
  costguard audit verify                                  # exits 3 if the log does not verify
  costguard audit verify --anchor 1234:9f86d081884c7d65   # anchor from a message or from status --json
  costguard audit show --since 24h
  costguard audit adopt --why "the disk died, this is the backup"    # continue with an older ledger
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FileCommand, build_group
from costguard.services import CommandAnswer

app = build_group()


@app.command(cls=FileCommand)
def verify(
    ctx: Context,
    anchor: Annotated[
        o.Names, Option(metavar="ROW:HASH", help="Anchor (row and hash) saved elsewhere; the log must contain it.")
    ] = None,
) -> CommandAnswer:
    """Verify every row of the log; exit 3 if one is wrong."""
    from costguard.services.guarding import audit

    return audit.verify_audit(anchor or (), config=ctx.obj.config)


@app.command(cls=FileCommand)
def show(
    ctx: Context,
    since: Annotated[o.Text, Option(metavar="WHEN", help="Show rows since this time: 24h, 7d, 2026-11-21.")] = None,
    rows: Annotated[bool, Option("--rows", help="Also show the rows that record polls.")] = False,
) -> CommandAnswer:
    """Show the rows of the log."""
    from costguard.services.guarding import audit

    return audit.show_audit(since=since, rows=rows, config=ctx.obj.config)


@app.command(cls=FileCommand)
def adopt(
    ctx: Context, why: Annotated[o.Text, Option(metavar="TEXT", help="Reason for using the older ledger.")] = None
) -> CommandAnswer:
    """Continue with an older ledger."""
    from costguard.services.guarding import audit

    return audit.adopt_ledger(why=why, config=ctx.obj.config)
