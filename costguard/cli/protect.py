"""`costguard protect`: never act on a machine until the protection is lifted.

Examples:
  costguard protect prod-api --why "serves customers"
  costguard protect prod-api --lift

A hard cap does not stop a protected machine either; the watchdog sends a page instead. The label costguard=never and the
provider's own termination protection have the same effect; costguard cannot lift these.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    id: o.Machine,  # noqa: A002 - as it is shown
    why: o.Why = None,
    lift: Annotated[bool, Option("--lift", help="Lift the protection.")] = False,
) -> CommandAnswer:
    """Record a protection, or lift it."""
    from costguard.services.guarding import overrides

    return overrides.protect_resource(id, why=why, lift=lift, config=ctx.obj.config)
