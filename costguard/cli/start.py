"""`costguard start`: start one stopped machine by hand, and prove it.

Examples:
  costguard start train-1
  costguard start runpod/default/global/k3v9x2m0000000 --yes --why "the next run"

It looks at the machine, says what it costs an hour at its provider's price of now, and asks. Nothing is sent to a machine that
is protected or frozen, to one that its provider cannot start, or twice.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    id: o.Machine,  # noqa: A002 - as it is shown
    yes: o.Yes = False,
    why: Annotated[o.Text, Option("--why", "--reason", metavar="TEXT", help="The reason; it is shown to others.")] = None,
) -> CommandAnswer:
    """Start one stopped machine."""
    from costguard.cli.confirm import find_asker
    from costguard.services.guarding.act.by_hand import act_on_resource

    return act_on_resource(id, "start", yes=yes, why=why or "", ask=find_asker(), config=ctx.obj.config)
