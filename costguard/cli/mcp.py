"""`costguard mcp`: serve costguard's answers to agents over the Model Context Protocol, and arm what they may stop."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text
from costguard.errors import InputError
from costguard.values.checks import require_one_of

SERVE, ARM, DISARM = ACTIONS = ("serve", "arm", "disarm")

EXAMPLES = """Examples:

\b
  costguard mcp                               # over stdio, for the client that starts it (docs/MCP.md)
  costguard mcp --http 127.0.0.1:8480         # over HTTP on this machine, with a token
  costguard mcp arm --why "the agent tidies up after its own runs"
  costguard mcp disarm

Agents quote, size, list offers, and read status and reports; keep needs a reason. stop exists only while it is armed (90 days),
takes the path of costguard stop, and counts against acts per_10m of [rails].
"""


def command(
    ctx: Context,
    action: Annotated[str, Argument(metavar="ACTION", help=" | ".join(ACTIONS))] = SERVE,
    http: Annotated[
        Text, Option("--http", metavar="ADDRESS", help="Serve over HTTP at this loopback address and port.")
    ] = None,
    why: Annotated[Text, Option("--why", metavar="TEXT", help="With arm: the reason; it is recorded.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Serve until the client closes, or record an arming."""
    require_one_of(action, ACTIONS, "ACTION")
    if http is not None and action != SERVE:
        raise InputError("belongs to serve", field="--http", hint="costguard mcp --http 127.0.0.1:8480")
    if why is not None and action != ARM:
        raise InputError("belongs to arm", field="--why", hint='costguard mcp arm --why "..."')
    if action == SERVE:
        _serve(ctx, http)
        return
    from costguard.services import mcp_acts

    config = ctx.obj.config
    write_answer(mcp_acts.arm_mcp(why=why, config=config) if action == ARM else mcp_acts.disarm_mcp(config=config), ctx)


def _serve(ctx: Context, http: str | None) -> None:
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
