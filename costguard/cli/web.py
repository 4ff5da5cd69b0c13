"""`costguard web`: logins to the pages, and tokens for reading status; `costguard watch` serves both at `[web] listen`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Names, Text
from costguard.errors import InputError
from costguard.values.checks import require_one_of

ACTIONS = {"token": 1, "tokens": 0, "revoke": 1, "invite": 1, "logout": 1}
"""Action -> how many words follow it."""
USAGE = {
    "token": "costguard web token NAME --for 90d",
    "tokens": "costguard web tokens",
    "revoke": "costguard web revoke NAME",
    "invite": "costguard web invite NAME --role operator",
    "logout": "costguard web logout NAME",
}
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


def command(
    ctx: Context,
    action: Annotated[str, Argument(metavar="ACTION", help=" | ".join(ACTIONS))],
    words: Annotated[Names, Argument(metavar="NAME", help="Whose token.")] = None,
    length: Annotated[Text, Option("--for", metavar="TIME", help="Validity (90d).")] = None,
    role: Annotated[
        Text, Option("--role", metavar="ROLE", help="viewer | operator | admin; of a token: viewer | operator (viewer).")
    ] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Perform the action and print its result."""
    require_one_of(action, ACTIONS, "ACTION")
    given = list(words or ())
    if len(given) != ACTIONS[action]:
        raise InputError(f"{action} takes other arguments", field="web", hint=USAGE[action])
    if length is not None and action != "token":
        raise InputError("belongs to token", field="--for", hint=USAGE["token"])
    if role is not None and action not in ("invite", "token"):
        raise InputError("belongs to invite and token", field="--role", hint=USAGE["invite"])
    from costguard.services import agent_commands

    config = ctx.obj.config
    if action == "token":
        write_answer(agent_commands.create_web_token(given[0], length=length, role=role, config=config), ctx)
    elif action == "invite":
        from costguard.services import web_logins

        write_answer(web_logins.create_login_link(given[0], role=role, config=config), ctx)
    elif action == "logout":
        from costguard.services import web_logins

        write_answer(web_logins.end_sessions(given[0], config=config), ctx)
    elif action == "tokens":
        write_answer(agent_commands.list_web_tokens(config=config), ctx)
    else:
        write_answer(agent_commands.revoke_web_token(given[0], config=config), ctx)
