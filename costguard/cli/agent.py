"""`costguard agent`: which agents may report.

The agent's own commands run on its machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Exit, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.commands import CostguardCommand
from costguard.cli.options import Names
from costguard.errors import InputError
from costguard.values.checks import require_one_of

if TYPE_CHECKING:
    from pathlib import Path

    from costguard.services.poll.ports import Seal

ACTIONS = {"enrol": 1, "list": 0, "revoke": 1}
"""Action -> how many words follow it."""
AGENT_ACTIONS = ("join", "run", "status", "phase", "busy", "keep", "install", "version")
"""What `costguard-agent` does on the machine that it measures."""
USAGE = {
    "enrol": "costguard agent enrol ID [--through-restarts]",
    "list": "costguard agent list",
    "revoke": "costguard agent revoke AGENT",
}
EXAMPLES = """Examples:

\b
  costguard agent enrol train-1                     # a one-time code, and the command to run on the machine
  costguard agent enrol train-1 --through-restarts  # stays valid after the machine restarts
  costguard agent list
  costguard agent revoke train-1

On the machine, run costguard-agent: join, run, status, phase, busy, keep, install.
"""


class ForwardingCommand(CostguardCommand):
    """Forwards the agent's own commands, unchanged, to the agent's command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - the signature is typer's
        """Parse as every command does, unless the first word is one of the agent's commands."""
        if args and args[0] in AGENT_ACTIONS:
            raise Exit(forward_to_agent(args))
        return super().parse_args(ctx, args)


COMMAND = ForwardingCommand


def command(
    ctx: Context,
    action: Annotated[str, Argument(metavar="ACTION", help=" | ".join((*ACTIONS, *AGENT_ACTIONS)))],
    words: Annotated[Names, Argument(metavar="ID", help="The machine, or the agent.")] = None,
    through_restarts: Annotated[bool, Option("--through-restarts", help="Stay valid through restarts of the machine.")] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Perform the action and print its result."""
    require_one_of(action, (*ACTIONS, *AGENT_ACTIONS), "ACTION")
    if action in AGENT_ACTIONS:
        what = f"{action} is a command of the agent, which takes no option before it"
        raise InputError(what, field="ACTION", hint=f"costguard agent {action}")
    given = list(words or ())
    if len(given) != ACTIONS[action]:
        raise InputError(f"{action} takes other arguments", field="agent", hint=USAGE[action])
    if through_restarts and action != "enrol":
        raise InputError("belongs to enrol", field="--through-restarts", hint=USAGE["enrol"])
    from costguard.services.serving import agent_commands

    config = ctx.obj.config
    if action == "enrol":
        answer = agent_commands.enrol_agent(
            given[0], open_seal=open_watchdog_key, through_restarts=through_restarts, config=config
        )
        write_answer(answer, ctx)
    elif action == "list":
        write_answer(agent_commands.list_agents(config=config), ctx)
    else:
        write_answer(agent_commands.revoke_agent_access(given[0], config=config), ctx)


def open_watchdog_key(path: Path) -> Seal:
    """Open the watchdog's key, or create it as `costguard watch` does."""
    try:
        from costguard.web.signing import open_seal
    except ImportError as error:
        told = f"the watchdog's key needs a package that is not installed: {error.name or error}"
        raise InputError(told, field="agent enrol", hint="pip install 'gpu-costguard[web]'") from None
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
