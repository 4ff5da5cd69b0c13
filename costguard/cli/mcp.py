"""`costguard mcp`: serve costguard's answers to agents over the Model Context Protocol, and arm their stops.

Examples:
  costguard mcp                               # over stdio, for the client that starts it (docs/MCP.md)
  costguard mcp --http 127.0.0.1:8480         # over HTTP on this machine, with a token
  costguard mcp arm --why "the agent tidies up after its own runs"
  costguard mcp disarm

Agents can quote, size, list offers, read status and reports, and keep a machine with a reason. The tool stop exists only
while it is armed (90 days). It does what costguard stop does, and counts against acts per_10m of [rails].
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import AnswerCommand, CostguardCommand, build_group, name_missing_package
from costguard.services import CommandAnswer

app = build_group(default="serve")


@app.command(cls=CostguardCommand)
def serve(
    ctx: Context,
    http: Annotated[
        o.Text, Option("--http", metavar="ADDRESS", help="Serve over HTTP at this loopback address and port (default: stdio).")
    ] = None,
) -> None:
    """Serve until the client disconnects."""
    with name_missing_package("costguard mcp", "mcp"):
        from costguard.mcp import server
    from costguard.mcp.tools import McpContext

    context = McpContext(config=ctx.obj.config, offline=ctx.obj.offline)
    if http is None:
        server.run_stdio(context)
    else:
        server.run_http(context, http)


@app.command(cls=AnswerCommand)
def arm(ctx: Context, why: o.Why = None) -> CommandAnswer:
    """Let agents stop machines, for 90 days."""
    from costguard.services.serving import mcp_acts

    return mcp_acts.arm_mcp(why=why, config=ctx.obj.config)


@app.command(cls=AnswerCommand)
def disarm(ctx: Context) -> CommandAnswer:
    """Withdraw the agents' permission to stop machines."""
    from costguard.services.serving import mcp_acts

    return mcp_acts.disarm_mcp(config=ctx.obj.config)
