"""`costguard busy`: mark a machine busy, overriding metrics.

Examples:
  costguard busy --for 2h                # this machine, through its agent
  costguard busy --id train-1 --for 2h

The mark ends after the given time or when the machine restarts. Hard caps still apply.
"""

from typing import Annotated

from typer import Context, Exit, Option

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    id: Annotated[o.Text, Option("--id", metavar="ID", help="Machine (default: this one, through its agent).")] = None,  # noqa: A002 - the option's name
    length: o.Length = None,
) -> CommandAnswer:
    """Record that the machine is busy."""
    from costguard.cli.agent import forward_to_agent, has_agent

    if id is None and length is not None and has_agent():
        raise Exit(forward_to_agent(["busy", "--for", length]))
    from costguard.services.guarding import overrides

    return overrides.declare_phase("busy", reference=id, length=length, config=ctx.obj.config)
