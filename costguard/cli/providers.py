"""`costguard providers`: show what costguard supports for each provider.

Examples:
  costguard providers
  costguard providers --json | jq '.providers[] | {name, credentials}'
"""

from typer import Context

from costguard.cli.commands import FileCommand
from costguard.services import CommandAnswer

COMMAND = FileCommand


def command(ctx: Context) -> CommandAnswer:
    """Print the table of supported features."""
    from costguard.services.watch_loop import setup

    return setup.answer_providers(config=ctx.obj.config)
