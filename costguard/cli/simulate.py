"""`costguard simulate`: replay policies over recorded history, and show which machines would have been stopped."""

from __future__ import annotations

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer
from costguard.cli.options import Names, Text

EXAMPLES = """Examples:

\b
  costguard simulate
  costguard simulate --since 7d --policy idle-gpu
  costguard --config stricter.toml simulate --from 2026-10-01 --to 2026-11-01 --json

Every policy is replayed as if it were armed for all of its steps. No cloud is contacted and nothing is written. A stop of
a machine that worked again within the hour is a suspected false stop.
"""


@add_output_options
def command(
    ctx: Context,
    since: Annotated[Text, Option(metavar="TIME", help="Length of the history, such as 7d or 36h (default: 30d).")] = None,
    start: Annotated[Text, Option("--from", metavar="WHEN", help="Start of the period: a day or a time.")] = None,
    end: Annotated[Text, Option("--to", metavar="WHEN", help="End of the period, exclusive (default: now).")] = None,
    policy: Annotated[Names, Option("--policy", metavar="NAME", help="Only this policy (repeatable).")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
    format: o.Format = None,  # noqa: A002 - the option's name
) -> None:
    """Print what the policies would have done."""
    from costguard.services.guarding import simulate

    write_answer(simulate.answer_simulate(since=since, start=start, end=end, policies=policy or [], config=ctx.obj.config), ctx)
