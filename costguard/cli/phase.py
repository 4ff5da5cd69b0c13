"""`costguard phase`: count a machine as active for a limited time, although its metrics do not show it.

Examples:
  costguard phase download --id train-1 --for 3h
  costguard phase compile --id i-0a1b2c3d --for 40m
  costguard phase evaluate --for 2h      # this machine, if it has an agent

The phase ends after the given time or when the machine restarts.
"""

from typing import Annotated

from typer import Argument, Context, Exit, Option

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    name: Annotated[str, Argument(metavar="NAME", help="Name of the phase: download, compile, evaluate ...")],
    id: Annotated[o.Text, Option("--id", metavar="ID", help="Machine (default: this one, through its agent).")] = None,  # noqa: A002 - the option's name
    length: o.Length = None,
) -> CommandAnswer:
    """Record a phase of work."""
    from costguard.cli.agent import forward_to_agent, has_agent

    if id is None and length is not None and has_agent():
        raise Exit(forward_to_agent(["phase", name, "--for", length]))
    from costguard.services.guarding import overrides

    return overrides.declare_phase(name, reference=id, length=length, config=ctx.obj.config)
