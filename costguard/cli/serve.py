"""`costguard serve`: serve agents, pages and the API over HTTP in a separate process.

Examples:
  costguard watch                          # starts it automatically if [web] listen is set
  costguard serve                          # for [web] process = "none", where the watchdog does not start it
  costguard serve --listen 127.0.0.1:8471  # a second server beside the watchdog's

serve reads the ledger and passes agents' messages to the watchdog on the same machine. Without a watchdog it refuses agents'
messages (503), which the agents send again later.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import CostguardCommand

COMMAND = CostguardCommand


def command(
    ctx: Context,
    listen: Annotated[o.Text, Option("--listen", metavar="ADDRESS", help="Address and port (default: [web] listen).")] = None,
    interval: Annotated[o.Text, Option("--interval", metavar="TIME", help="Time between two runs of the guard.")] = None,
) -> None:
    """Serve until a signal ends it."""
    from costguard.errors import InputError

    try:
        from costguard.web.process import run_server
    except ModuleNotFoundError as error:
        message = f"needs a package that is not installed: {error.name}"
        raise InputError(message, field="web.listen", hint="in a clone of costguard: pip install '.[web]'") from None
    global_options = ctx.obj
    run_server(config=global_options.config, listen=listen, interval=interval, json_log=global_options.json_log)
