"""`costguard stop`: stop one machine now and verify it, or plan its stop.

Examples:
  costguard stop train-1
  costguard stop runpod/default/global/k3v9x2m0000000 --yes --why "the run is over"
  costguard stop train-1 --at 22:00

costguard checks the machine, shows what is lost and what is still billed, and asks. It refuses a machine that is protected,
kept or frozen. It sends one request only. With --after or --at it notifies the owner, and the watchdog stops the machine at
that time, unless somebody keeps or restarts the machine before.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.services import CommandAnswer
from costguard.values.checks import require


def command(
    ctx: Context,
    id: o.Machine,  # noqa: A002 - as it is shown
    after: Annotated[o.Text, Option("--after", metavar="TIME", help="Stop after this time: 45m, 6h, 2d.")] = None,
    at: Annotated[o.Text, Option("--at", metavar="TIME", help="Stop at this time: 22:00, or 2026-12-01T08:00.")] = None,
    cancel: Annotated[bool, Option("--cancel", help="Cancel the planned stop.")] = False,
    yes: o.Yes = False,
    why: o.Why = None,
) -> CommandAnswer:
    """Stop one machine, now or later."""
    from costguard.cli.confirm import find_asker
    from costguard.services.guarding import overrides
    from costguard.services.guarding.act.by_hand import act_on_resource

    config, later = ctx.obj.config, after is not None or at is not None
    if cancel:
        require(not later, "--cancel", "cannot be given with --after or --at", "leave one of them out")
        return overrides.cancel_timed_stop(id, config=config)
    due_at = overrides.parse_stop_time(after, at, config=config) if later else None
    return act_on_resource(id, "stop", yes=yes, why=why or "", ask=find_asker(), config=config, due_at=due_at)
