"""`costguard doctor`: check that everything works, and print how to fix what does not."""

from __future__ import annotations

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer

EXAMPLES = """Examples:

\b
  costguard doctor
  costguard doctor --provider runpod
  costguard doctor --json | jq '.providers[].checks[] | select(.outcome == "bad")'

It changes, starts and stops nothing, and shows only the last four characters of a key. It exits 3 if a check fails, or if
there is no provider to check.
"""


@add_output_options
def command(
    ctx: Context,
    provider: o.Provider = None,
    all_checks: Annotated[bool, Option("--all", help="A row for each check, good ones as well.")] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Check every provider and the ledger, and print the results."""
    from costguard.services.watch_loop import setup

    only = tuple(provider) if provider else None
    write_answer(setup.answer_doctor(only=only, all_checks=all_checks, offline=ctx.obj.offline, config=ctx.obj.config), ctx)
