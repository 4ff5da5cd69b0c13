"""`costguard mcp`: serve costguard's answers to agents over the Model Context Protocol, and arm what they may stop."""

from __future__ import annotations

from typing import Annotated

from typer import Context, Option

from costguard.cli.answer import add_format_options, write_answer
from costguard.cli.commands import CostguardCommand, build_group
from costguard.cli.options import Text
from costguard.errors import InputError

EXAMPLES = """Examples:

\b
  costguard mcp                               # over stdio, for the client that starts it (docs/MCP.md)
  costguard mcp --http 127.0.0.1:8480         # over HTTP on this machine, with a token
  costguard mcp arm --why "the agent tidies up after its own runs"
  costguard mcp disarm

Agents quote, size, list offers, and read status and reports; keep needs a reason. stop exists only while it is armed (90 days),
takes the path of costguard stop, and counts against acts per_10m of [rails].
"""
app = build_group(default="serve")


@app.command(cls=CostguardCommand)
def serve(
    ctx: Context,
    http: Annotated[
        Text, Option("--http", metavar="ADDRESS", help="Serve over HTTP at this loopback address and port.")
    ] = None,
) -> None:
    """Serve until the client closes."""
    try:
        from costguard.mcp import server
    except ModuleNotFoundError as error:
        what = f"needs a package that is not installed: {error.name}"
        raise InputError(what, field="costguard mcp", hint="pip install 'gpu-costguard[mcp]'") from None
    from costguard.mcp.tools import McpContext

    context = McpContext(config=ctx.obj.config, offline=ctx.obj.offline)
    if http is None:
        server.run_stdio(context)
    else:
        server.run_http(context, http)


@app.command(cls=CostguardCommand)
@add_format_options
def arm(ctx: Context, why: Annotated[Text, Option("--why", metavar="TEXT", help="The reason; it is recorded.")] = None) -> None:
    """Let agents stop machines, for 90 days."""
    from costguard.services.serving import mcp_acts

    write_answer(mcp_acts.arm_mcp(why=why, config=ctx.obj.config), ctx)


@app.command(cls=CostguardCommand)
@add_format_options
def disarm(ctx: Context) -> None:
    """Let agents stop nothing."""
    from costguard.services.serving import mcp_acts

    write_answer(mcp_acts.disarm_mcp(config=ctx.obj.config), ctx)
