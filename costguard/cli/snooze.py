"""`costguard snooze`: send no messages about a machine or a policy for a limited time.

Examples:
  costguard snooze train-1 --for 2h
  costguard snooze train-1 --lift
  costguard snooze idle-gpu --for 7d --why "moving to the new cluster"

The policy still acts: use costguard keep or costguard freeze to prevent acts.
"""

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    target: Annotated[str, Argument(metavar="TARGET", help="A policy's name, or a machine's id or name.")],
    length: o.Length = None,
    why: o.Why = None,
    lift: Annotated[bool, Option("--lift", help="Lift the snooze.")] = False,
) -> CommandAnswer:
    """Record a snooze."""
    from costguard.services.guarding import overrides

    return overrides.snooze_alerts(target, length=length, why=why, lift=lift, config=ctx.obj.config)
