"""`costguard policy`: lint, explain, test, arm and accept policies."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer
from costguard.cli.options import Names, Text
from costguard.errors import InputError
from costguard.values.checks import require_one_of

ACTIONS = {"lint": (0, 0), "explain": (0, 1), "test": (1, 1), "arm": (2, 2), "accept": (1, 100)}
"""Action -> how many words may follow it."""
USAGE = {
    "lint": "costguard policy lint",
    "explain": "costguard policy explain [NAME]",
    "test": "costguard policy test NAME --fact state=idle",
    "arm": 'costguard policy arm NAME LEVEL --why "..."',
    "accept": "costguard policy accept DIGEST...",
}
EXAMPLES = """Examples:

\b
  costguard policy lint
  costguard policy explain idle-gpu
  costguard policy test idle-gpu --fact state=idle --fact confidence=0.95 --fact "rate=2.99 USD"
  costguard policy arm idle-gpu stop --why "watched it for two weeks"
  costguard policy accept 3f9a1c0d2b4e5f60

Levels: observe, notify, stop, terminate. Raising one shows the plan, counts for 90 days, and goes no further than the settings
say; lowering one counts at once. More than notify counts for the policy as it is now: an edited one only observes. For a
reviewed file that is rolled out, accept arms the policies of these digests as far as the file says; policy lint prints them.
"""


@add_output_options
def command(
    ctx: Context,
    action: Annotated[str, Argument(metavar="ACTION", help=" | ".join(ACTIONS))],
    words: Annotated[Names, Argument(metavar="NAME LEVEL", help="A policy, and for arm a level; accept: digests.")] = None,
    fact: Annotated[Names, Option("--fact", metavar="NAME=VALUE", help="A fact for test (repeatable).")] = None,
    why: Annotated[Text, Option("--why", metavar="TEXT", help="The reason for the change; it is shown to others.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Perform the action and print its result."""
    require_one_of(action, ACTIONS, "ACTION")
    given, (least, most) = list(words or ()), ACTIONS[action]
    if not least <= len(given) <= most:
        raise InputError(f"{action} takes other arguments", field="policy", hint=USAGE[action])
    if fact and action != "test":
        raise InputError("belongs to test", field="--fact", hint=USAGE["test"])
    from costguard.services import policy

    config = ctx.obj.config
    if action == "lint":
        write_answer(policy.lint_policies(config=config), ctx)
    elif action == "explain":
        write_answer(policy.explain_policies(given[0] if given else None, config=config), ctx)
    elif action == "test":
        write_answer(policy.try_policy(given[0], tuple(fact or ()), config=config), ctx)
    elif action == "accept":
        write_answer(policy.accept_policies(given, why=why, config=config), ctx)
    else:
        write_answer(policy.arm_policy(given[0], given[1], why=why, config=config), ctx)
