"""`costguard focus`: check whether a FOCUS export, costguard's or a cloud's, conforms to the standard."""

from __future__ import annotations

from typing import Annotated

from click import Context

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer
from costguard.cli.commands import Argument, Option, Text
from costguard.values.checks import require_one_of

ACTIONS = ("check",)
EXAMPLES = """Examples:

\b
  costguard report --month 2026-10 --format focus --output october.csv
  costguard focus check october.csv                        # exits 3 if the file has errors
  costguard focus check export.csv.gz --focus-version 1.2 --json
  costguard focus check export.parquet --errors-only

It exits 3 if the file has errors (a MUST of the standard). Warnings (a SHOULD, or improbable) and rounding do not change the
exit code. It needs no settings and no ledger.
"""


@add_output_options
def command(
    ctx: Context,
    action: Annotated[str, Argument(metavar="ACTION", help=" | ".join(ACTIONS))],
    file: Annotated[str, Argument(metavar="FILE", help="CSV, gzipped CSV, or Parquet.")],
    held_against: Annotated[
        Text, Option("--focus-version", metavar="N", help="1.0 to 1.4 (default: detected from its columns).")
    ] = None,
    errors_only: Annotated[bool, Option("--errors-only", help="Show errors only; warnings and rounding are counted.")] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Check a file against FOCUS and print its errors, warnings and rounding."""
    require_one_of(action, ACTIONS, "ACTION")
    from costguard.services import bill_files

    write_answer(bill_files.answer_focus_check(file, version=held_against, errors_only=errors_only), ctx)
