"""`costguard web`: logins to the pages, and tokens for reading status; `costguard watch` serves both at `[web] listen`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli.answer import add_format_options, write_answer
from costguard.cli.commands import CostguardCommand, build_group
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard web token grafana --for 90d       # shown once; only its hash is stored
  costguard web token slurm --role operator   # may also admit runs
  costguard web tokens
  costguard web revoke grafana
  costguard web invite ada --role operator    # a link that logs ada into the pages, once
  costguard web logout ada                    # ends every session and unused link of ada
  curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8470/v1/status
"""
Name = Annotated[str, Argument(metavar="NAME", help="Whose it is.")]
app = build_group()


@app.command("token", cls=CostguardCommand)
@add_format_options
def create_token(
    ctx: Context,
    name: Name,
    length: Annotated[Text, Option("--for", metavar="TIME", help="Validity (90d).")] = None,
    role: Annotated[Text, Option("--role", metavar="ROLE", help="viewer | operator (viewer).")] = None,
) -> None:
    """Make a token for a program that reads status; it is shown once."""
    from costguard.services.serving import agent_commands

    write_answer(agent_commands.create_web_token(name, length=length, role=role, config=ctx.obj.config), ctx)


@app.command("tokens", cls=CostguardCommand)
@add_format_options
def list_tokens(ctx: Context) -> None:
    """List the tokens."""
    from costguard.services.serving import agent_commands

    write_answer(agent_commands.list_web_tokens(config=ctx.obj.config), ctx)


@app.command(cls=CostguardCommand)
@add_format_options
def revoke(ctx: Context, name: Name) -> None:
    """Revoke a token."""
    from costguard.services.serving import agent_commands

    write_answer(agent_commands.revoke_web_token(name, config=ctx.obj.config), ctx)


@app.command("invite", cls=CostguardCommand)
@add_format_options
def create_invitation(
    ctx: Context,
    name: Name,
    role: Annotated[Text, Option("--role", metavar="ROLE", help="viewer | operator | admin (viewer).")] = None,
) -> None:
    """Make a link that logs a person into the pages, once."""
    from costguard.services.serving import web_logins

    write_answer(web_logins.create_login_link(name, role=role, config=ctx.obj.config), ctx)


@app.command("logout", cls=CostguardCommand)
@add_format_options
def end_sessions(ctx: Context, name: Name) -> None:
    """End every session and unused link of a person."""
    from costguard.services.serving import web_logins

    write_answer(web_logins.end_sessions(name, config=ctx.obj.config), ctx)
