"""`costguard simulate`: replay policies over recorded history, and show which machines would have been stopped.

Examples:
  costguard simulate
  costguard simulate --since 7d --policy idle-gpu
  costguard --config stricter.toml simulate --from 2026-10-01 --to 2026-11-01 --json

Every policy is replayed as if it were armed for all of its steps. No cloud is contacted and nothing is written. A stop of
a machine that worked again within the hour is a suspected false stop.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FormatCommand
from costguard.cli.completion import complete_names
from costguard.services import CommandAnswer

COMMAND = FormatCommand


def command(
    ctx: Context,
    since: Annotated[o.Text, Option(metavar="TIME", help="Length of the history, such as 7d or 36h (default: 30d).")] = None,
    start: Annotated[o.Text, Option("--from", metavar="WHEN", help="Start of the period: a day or a time.")] = None,
    end: Annotated[o.Text, Option("--to", metavar="WHEN", help="End: a time or the day after the last (default: now).")] = None,
    policy: Annotated[
        o.Names,
        Option("--policy", metavar="NAME", help="Only this policy (repeatable).", autocompletion=complete_names("policy")),
    ] = None,
) -> CommandAnswer:
    """Print what the policies would have done."""
    from costguard.services.guarding import simulate

    return simulate.answer_simulate(since=since, start=start, end=end, policies=policy or [], config=ctx.obj.config)
