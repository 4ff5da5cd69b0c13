"""`costguard agent`: which agents may report; the agent's own commands run on its machine.

Examples:
  costguard agent enrol train-1                     # prints a one-time code and the command to run on the machine
  costguard agent enrol train-1 --through-restarts  # stays valid after the machine restarts
  costguard agent list
  costguard agent revoke train-1

On the machine, run costguard-agent: join, run, status, phase, busy, keep, install.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Exit, Option

from costguard.cli import options as o
from costguard.cli.commands import AnswerCommand, CostguardCommand, build_group, name_missing_package
from costguard.services import CommandAnswer

if TYPE_CHECKING:
    from costguard.services.poll.ports import Seal

AGENT_ACTIONS = ("join", "run", "status", "phase", "busy", "keep", "install", "version")
"""What `costguard-agent` does on the machine that it measures."""
app = build_group()


@app.command(cls=AnswerCommand)
def enrol(
    ctx: Context,
    machine: o.Machine,
    through_restarts: Annotated[
        bool, Option("--through-restarts", help="Keep the enrolment valid after the machine restarts.")
    ] = False,
) -> CommandAnswer:
    """Create a one-time code for the agent of a machine."""
    from costguard.services.serving import agent_commands

    return agent_commands.enrol_agent(
        machine, open_seal=open_watchdog_key, through_restarts=through_restarts, config=ctx.obj.config
    )


@app.command("list", cls=AnswerCommand)
def list_agents(ctx: Context) -> CommandAnswer:
    """List the agents and the times of their last reports."""
    from costguard.services.serving import agent_commands

    return agent_commands.list_agents(config=ctx.obj.config)


@app.command(cls=AnswerCommand)
def revoke(ctx: Context, agent: Annotated[str, Argument(metavar="AGENT", help="Agent, or its machine.")]) -> CommandAnswer:
    """Revoke an agent: refuse all further messages of it."""
    from costguard.services.serving import agent_commands

    return agent_commands.revoke_agent_access(agent, config=ctx.obj.config)


class ForwardingCommand(CostguardCommand):
    """A command of the agent's own command line, which gets its words unchanged."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401, ARG002 - the signature is typer's
        """Run the agent's command and end with its exit code."""
        raise Exit(forward_to_agent([str(self.name), *args]))


def _forward(words: o.Names = None) -> None:
    """Run costguard-agent; see costguard-agent --help."""


for _action in AGENT_ACTIONS:
    app.command(_action, cls=ForwardingCommand, hidden=True)(_forward)


def open_watchdog_key(path: Path) -> Seal:
    """Open the watchdog's key, or create it as `costguard watch` does."""
    with name_missing_package("agent enrol", "web"):
        from costguard.web.signing import open_seal
    return open_seal(path)


def forward_to_agent(words: list[str]) -> int:
    """Run the agent's command line with `words` and return its exit code."""
    from costguard_agent.cli import main

    try:
        return main(words)
    except SystemExit as ended:  # argparse ends so
        return ended.code if isinstance(ended.code, int) else 1


def has_agent() -> bool:
    """Return whether an agent has joined or is running on this machine, as far as this user can see."""
    from costguard_agent import state_dir

    try:
        return (state_dir.find_state_dir() / state_dir.CONFIG).exists() or any(
            (one / state_dir.STATUS).exists() for one in state_dir.list_runtime_dirs()
        )
    except OSError:
        return False
