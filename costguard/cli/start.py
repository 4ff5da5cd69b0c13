"""`costguard start`: start one stopped machine and verify it.

Examples:
  costguard start train-1
  costguard start runpod/default/global/k3v9x2m0000000 --yes --why "the next run"

costguard checks the machine, shows its current price per hour, and asks. It refuses a machine that is protected or frozen, or
that its provider cannot start. It sends one request only.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    id: o.Machine,  # noqa: A002 - as it is shown
    yes: o.Yes = False,
    why: Annotated[o.Text, Option("--why", "--reason", metavar="TEXT", help="Reason, shown to other users.")] = None,
) -> CommandAnswer:
    """Start one stopped machine."""
    from costguard.cli.confirm import find_asker
    from costguard.services.guarding.act.by_hand import act_on_resource

    return act_on_resource(id, "start", yes=yes, why=why or "", ask=find_asker(), config=ctx.obj.config)
