"""`costguard notify`: send a test message to each route of the settings, and show what came back.

Examples:
  costguard notify test
  costguard notify test team
  costguard notify test --json | jq '.tests[] | select(.outcome != "delivered")'

Each channel gets one message that says that it is a test; the incident that a pager opens for it is ended at once. Exit code 3:
a message was not delivered whole.
"""

from typing import Annotated

from typer import Argument, Context

from costguard.cli import options as o
from costguard.cli.commands import FileCommand, build_group
from costguard.services import CommandAnswer

app = build_group()
app.callback()(lambda: None)  # else typer takes the only command for the group


@app.command("test", cls=FileCommand)
def send_test(
    ctx: Context, route: Annotated[o.Text, Argument(metavar="ROUTE", help="Only this route (default: all).")] = None
) -> CommandAnswer:
    """Send one message to each channel of the routes."""
    from costguard.services.guarding.route_checks import answer_notify_test

    return answer_notify_test(route, config=ctx.obj.config, offline=ctx.obj.offline)
