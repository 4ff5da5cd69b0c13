"""`costguard approve`: approve one act for which a policy asked.

Examples:
  costguard approve old-box terminate --why "its checkpoints are in the bucket"
  costguard approve i-0a1b2c3d stop

An approval is valid for one day and only for the machine's current run. Without an approval the machine keeps running.
"""

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    id: o.Machine,  # noqa: A002 - as it is shown
    act: Annotated[str, Argument(metavar="ACT", help="stop | terminate")],
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask to confirm which machine is meant.")] = False,
    why: o.Why = None,
) -> CommandAnswer:
    """Record an approval."""
    from costguard.cli.confirm import find_asker
    from costguard.services.guarding import overrides

    ask = None if yes else find_asker()
    return overrides.approve_action(id, act, why=why, ask=ask, config=ctx.obj.config)
