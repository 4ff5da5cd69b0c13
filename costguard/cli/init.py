"""`costguard init`: look for credentials, ask what may be done, and write the settings: about 25 lines.

Examples:
  costguard init
  costguard init --yes --budget "3000 USD" --zone Europe/Berlin
  costguard init --guard --to env:SLACK_URL --idle ask
  costguard init --example lab
  costguard init --path ~/.config/costguard/costguard.toml

On a terminal init asks each account what runs, checks each answer, sends a test message and ends with the status. With --yes,
--json or without a terminal it asks nobody and contacts no provider. A file that exists is extended by what it lacks. No
policy is armed: costguard policy arm does that. costguard settings explain explains every other setting.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from typer import Context, Option, confirm, echo, prompt

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.commands import CostguardCommand
from costguard.errors import CostguardError, InputError, replace_unprintable
from costguard.services import CommandAnswer
from costguard.system.progress import clear_progress
from costguard.values.checks import require_one_of

if TYPE_CHECKING:  # imported when it runs
    from costguard.services.watch_loop.first_settings import Draft
    from costguard.settings.first_file import FirstChoices

COMMAND = CostguardCommand


def command(
    ctx: Context,
    path: Annotated[
        o.Text, Option(metavar="FILE", help="File to write or extend (default: the one that applies, else ./costguard.toml).")
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask questions.")] = False,
    budget: Annotated[o.Text, Option(metavar="AMOUNT", help="Monthly budget for everything, such as '3000 USD'.")] = None,
    zone: o.Zone = None,
    guard: Annotated[bool, Option("--guard", help="Also write a budget, policies and where warnings go.")] = False,
    to: Annotated[
        o.Text,
        Option("--to", metavar="PLACE", help="With --guard: env:SLACK_URL, file:PATH, or console (default)."),
    ] = None,
    idle: Annotated[
        o.Text, Option("--idle", metavar="ACT", help="With --guard, what armed policies may do: tell | ask | stop (default).")
    ] = None,
    claim: Annotated[
        list[str] | None, Option("--claim", metavar="PROVIDER", help="Nobody else has machines in this account (repeatable).")
    ] = None,
    losses: Annotated[bool, Option("--allow-losses", help="Stops may delete what only that machine holds.")] = False,
    agents: Annotated[bool, Option("--agents", help="Also write the policies for machines with costguard's agent.")] = False,
    example: Annotated[
        o.Text, Option("--example", metavar="NAME", help="Write an example file instead: solo | lab | company.")
    ] = None,
    json: o.Json = False,
) -> CommandAnswer:
    """Write the file and print the next steps."""
    from costguard.services.watch_loop import first_settings
    from costguard.settings.first_file import IDLE_CHOICES, STOP_IDLE, FirstChoices

    if example is not None:
        return first_settings.answer_example(example, path=path)
    for name, value in (("--to", to), ("--idle", idle), ("--claim", claim), ("--allow-losses", losses), ("--agents", agents)):
        if value and not guard:
            raise InputError("is about policies and their warnings", field=name, hint="add --guard")
    draft = first_settings.open_draft(path, config=ctx.obj.config)
    asks = not yes and not json and sys.stdin.isatty()
    choices = FirstChoices(
        providers=(*draft.settings.providers, *draft.found_providers),
        cap=budget if asks or not guard else budget or first_settings.GUARD_CAP,
        zone=zone,
        to=(to or "console") if guard else None,
        idle=require_one_of(idle or STOP_IDLE, IDLE_CHOICES, "--idle"),
        losses=losses,
        claims=tuple(claim or ()),
        agents=agents,
    )
    if not asks:
        return first_settings.write_draft(draft, choices)
    clear_progress()
    choices = _ask_basics(draft, replace(choices, to=to))
    if idle is None and not {*choices.list_policies()} <= {one.name for one in draft.settings.policies}:
        choices = _ask_idle(draft, choices)
    written = first_settings.write_draft(draft, choices, checked=True)
    if not choices.providers:
        return written
    write_answer(written, ctx)
    from costguard.services.report.status_answer import answer_status

    _say("")
    return answer_status(config=str(draft.target), ask=True)


def _ask_basics(draft: "Draft", choices: "FirstChoices") -> "FirstChoices":
    """Say what runs; ask for the budget, the zone and the channel that no flag said and the file does not hold."""
    from costguard.services.watch_loop import first_settings

    bare = replace(choices, cap=None, zone=None, to=None)
    for line in first_settings.survey_accounts(draft.load(bare)):
        _say(line)
    if not draft.found_providers and not draft.settings.providers:
        _say("No provider's key was found: costguard providers lists where each is looked for.")
    if choices.cap is None and not draft.settings.budgets:
        text = "Monthly budget for everything, such as 3000 USD (Enter: none)"
        choices = _ask(text, "", lambda answer: _check(draft, replace(choices, cap=answer)))
    if choices.zone is None and "defaults" not in draft.table:
        choices = _ask("Time zone for days and months", "UTC", lambda answer: _check(draft, replace(choices, zone=answer)))
    if choices.to is None and not draft.settings.routes:
        text = "Whom to warn: env:SLACK_URL (a variable), file:PATH, or this console"
        choices = _ask(text, "console", lambda answer: _check_route(draft, replace(choices, to=answer)))
    elif choices.to is None:
        choices = replace(choices, to="console")  # the file's own routes stay: none is added to them
    else:
        choices = _check_route(draft, choices)
    return choices


def _ask_idle(draft: "Draft", choices: "FirstChoices") -> "FirstChoices":
    """Ask what may be done to idle machines, after saying what a stop loses where they are."""
    from costguard.services.watch_loop import first_settings
    from costguard.settings.first_file import IDLE_CHOICES, STOP_IDLE, TELL

    _say("What may be done to idle machines? Nothing is done before you arm it (costguard policy arm).")
    for name, text in IDLE_CHOICES.items():
        _say(f"  {name:5} {text}")
    for provider, loss in first_settings.list_losses(choices).items():
        _say(f"        {provider}: a stop deletes {loss}; costguard asks you before it, unless you allow it")
    act = " or ".join(IDLE_CHOICES)
    choices = _ask(act, TELL, lambda answer: replace(choices, idle=require_one_of(answer, IDLE_CHOICES, "answer")))
    if choices.idle != TELL:
        for name in first_settings.list_unclaimed(draft, choices):
            text = f"{name} does not say whose a machine is. May costguard act on every machine of this account?"
            choices = replace(choices, claims=(*choices.claims, name) if _confirm(text) else choices.claims)
    losses = first_settings.list_losses(choices) if choices.idle == STOP_IDLE else {}
    for name, loss in losses.items():
        text = f"May costguard stop idle machines of {name} without asking you, and so delete {loss}?"
        choices = replace(choices, losses=_confirm(text))
    for line in first_settings.describe_idle_acts(draft, choices):
        _say(line)
    return choices


def _say(text: str) -> None:
    clear_progress()
    echo(replace_unprintable(text), err=True)


def _confirm(question: str) -> bool:
    clear_progress()
    return confirm(question, err=True)


def _ask(question: str, default: str, check: "Callable[[str], FirstChoices]") -> "FirstChoices":
    """Ask until `check` takes the answer, and return what it makes of it."""
    while True:
        clear_progress()
        answer = prompt(question, default=default, show_default=bool(default), err=True).strip()
        try:
            return check(answer)
        except CostguardError as error:
            _say(f"  {error}")


def _check(draft: "Draft", choices: "FirstChoices") -> "FirstChoices":
    draft.extend(choices)
    return choices


def _check_route(draft: "Draft", choices: "FirstChoices") -> "FirstChoices":
    """Return `choices` if a test message to their channel arrives; the console needs none."""
    from costguard.services.guarding.route_checks import send_test

    settings = draft.load(choices)
    if choices.to not in (None, "console"):
        tested = send_test(settings.routes[-1], choices.to, settings)
        if tested.outcome != "delivered":
            raise InputError(f"no message arrives: {tested.answer}", field=choices.to, hint="correct it, or write console")
        _say(f"Sent a test to {choices.to}: {tested.answer or 'delivered'}")
    return choices
