"""`costguard web`: logins to the pages, and tokens for reading status; `costguard watch` serves both at `[web] listen`.

Examples:
  costguard web token grafana --for 90d       # shown once; only its hash is stored
  costguard web token slurm --role operator   # may also admit runs
  costguard web tokens
  costguard web revoke grafana
  costguard web invite ada --role operator    # prints a one-time login link for ada
  costguard web logout ada                    # ends all sessions and unused links of ada
  curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8470/v1/status
"""

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.commands import AnswerCommand, build_group
from costguard.services import CommandAnswer

Name = Annotated[str, Argument(metavar="NAME", help="Name of the program or person.")]
app = build_group()


@app.command("token", cls=AnswerCommand)
def create_token(
    ctx: Context,
    name: Name,
    length: Annotated[o.Text, Option("--for", metavar="TIME", help="Validity (90d).")] = None,
    role: Annotated[o.Text, Option("--role", metavar="ROLE", help="viewer | operator (viewer).")] = None,
) -> CommandAnswer:
    """Create a token for a program that reads status; it is shown once."""
    from costguard.services.serving import agent_commands

    return agent_commands.create_web_token(name, length=length, role=role, config=ctx.obj.config)


@app.command("tokens", cls=AnswerCommand)
def list_tokens(ctx: Context) -> CommandAnswer:
    """List the tokens."""
    from costguard.services.serving import agent_commands

    return agent_commands.list_web_tokens(config=ctx.obj.config)


@app.command(cls=AnswerCommand)
def revoke(ctx: Context, name: Name) -> CommandAnswer:
    """Revoke a token."""
    from costguard.services.serving import agent_commands

    return agent_commands.revoke_web_token(name, config=ctx.obj.config)


@app.command("invite", cls=AnswerCommand)
def create_invitation(
    ctx: Context,
    name: Name,
    role: Annotated[o.Text, Option("--role", metavar="ROLE", help="viewer | operator | admin (viewer).")] = None,
) -> CommandAnswer:
    """Create a one-time login link to the pages for a person."""
    from costguard.services.serving import web_logins

    return web_logins.create_login_link(name, role=role, config=ctx.obj.config)


@app.command("logout", cls=AnswerCommand)
def end_sessions(ctx: Context, name: Name) -> CommandAnswer:
    """End all sessions and unused links of a person."""
    from costguard.services.serving import web_logins

    return web_logins.end_sessions(name, config=ctx.obj.config)
