"""`costguard focus`: check whether a FOCUS export, costguard's or a cloud's, conforms to the standard."""

from __future__ import annotations

from typing import Annotated

import typer

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer
from costguard.cli.options import Text
from costguard.values.checks import require_one_of

ACTIONS = ("check",)
EXAMPLES = """Examples:

\b
  costguard report --month 2026-10 --format focus --output october.csv
  costguard focus check october.csv                        # exits 3 if the file has errors
  costguard focus check export.csv.gz --focus-version 1.2 --json
"""


@add_output_options
def command(
    ctx: typer.Context,
    action: Annotated[str, typer.Argument(metavar="ACTION", help=" | ".join(ACTIONS))],
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV, gzipped CSV, or Parquet.")],
    held_against: Annotated[
        Text, typer.Option("--focus-version", metavar="N", help="1.2 | 1.3 | 1.4 (default: detected from its columns).")
    ] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Check a file against FOCUS and print its errors."""
    require_one_of(action, ACTIONS, "ACTION")
    from costguard.services import bill_files

    write_answer(bill_files.answer_focus_check(file, version=held_against), ctx)
