"""`costguard freeze`: prevent all acts until the freeze is lifted.

Examples:
  costguard freeze --why "the provider's metrics are wrong today"
  costguard freeze --lift

The freeze applies to every watchdog of this ledger from its next run. Hard caps do not act either. Polls and messages
continue.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    why: o.Why = None,
    lift: Annotated[bool, Option("--lift", help="Lift the freeze.")] = False,
) -> CommandAnswer:
    """Record a freeze, or lift it."""
    from costguard.services.guarding import overrides

    return overrides.freeze_actions(why=why, lift=lift, config=ctx.obj.config)
