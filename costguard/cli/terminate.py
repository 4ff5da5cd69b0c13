"""`costguard terminate`: terminate one machine and verify it.

Examples:
  costguard terminate train-1
  costguard terminate runpod/default/global/k3v9x2m0000000 --yes --why "the run is over"

costguard checks the machine, shows what is lost and what is still billed, and asks. It refuses a machine that is protected,
kept or frozen. It sends one request only.
"""

from typer import Context

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    id: o.Machine,  # noqa: A002 - as it is shown
    yes: o.Yes = False,
    why: o.Why = None,
) -> CommandAnswer:
    """Terminate one machine."""
    from costguard.cli.confirm import find_asker
    from costguard.services.guarding.act.by_hand import act_on_resource

    return act_on_resource(id, "terminate", yes=yes, why=why or "", ask=find_asker(), config=ctx.obj.config)
