"""`costguard doctor`: check that everything works, and print how to fix what does not.

Examples:
  costguard doctor
  costguard doctor --provider runpod
  costguard doctor --accept-account runpod/default
  costguard doctor --json | jq '.providers[].checks[] | select(.outcome == "bad")'

doctor changes nothing but what --accept-account records, and stops nothing. It shows only the last four characters of a key.
Exit code 3: a check failed, or no provider is configured.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FileCommand
from costguard.services import CommandAnswer

COMMAND = FileCommand


def command(
    ctx: Context,
    provider: o.Provider = None,
    all_checks: Annotated[bool, Option("--all", help="Show every check, also those that passed.")] = False,
    accept: Annotated[
        o.Text, Option("--accept-account", metavar="NAME", help="Accept a key that is of another account than before.")
    ] = None,
) -> CommandAnswer:
    """Check every provider and the ledger, and print the results."""
    from costguard.services.watch_loop import setup

    only = tuple(provider) if provider else None
    return setup.answer_doctor(only=only, all_checks=all_checks, offline=ctx.obj.offline, config=ctx.obj.config, accept=accept)
