"""`costguard init`: write a settings file for the credentials found on this machine.

Examples:
  costguard init
  costguard init --yes --budget "3000 USD" --zone Europe/Berlin
  costguard init --guard --to env:SLACK_URL
  costguard init --example lab
  costguard init --path ~/.config/costguard/costguard.toml

init looks for every provider's credentials in their usual places. It contacts no provider and writes no key.
"""

import sys
from functools import partial
from typing import Annotated

from typer import Context, Option, confirm, prompt

from costguard.cli import options as o
from costguard.cli.commands import CostguardCommand
from costguard.errors import InputError
from costguard.services import CommandAnswer
from costguard.system.progress import clear_progress

COMMAND = CostguardCommand
LOSS_QUESTION = (
    "RunPod: a stop deletes the container disk, that is everything outside the volume. "
    "May costguard stop idle pods, an hour after its message?"
)


def command(
    ctx: Context,
    path: Annotated[o.Text, Option(metavar="FILE", help="File to write (default: ./costguard.toml).")] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask questions.")] = False,
    force: Annotated[bool, Option("--force", help="Replace an existing file.")] = False,
    budget: Annotated[o.Text, Option(metavar="AMOUNT", help="Monthly budget for everything, such as '3000 USD'.")] = None,
    zone: o.Zone = None,
    guard: Annotated[
        bool, Option("--guard", help="Also write a budget, a policy for idle GPUs, and a channel for warnings.")
    ] = False,
    to: Annotated[
        o.Text,
        Option("--to", metavar="PLACE", help="With --guard, the channel: env:SLACK_URL, file:PATH, or console (default)."),
    ] = None,
    example: Annotated[
        o.Text, Option("--example", metavar="NAME", help="Write an example file instead: solo | lab | company.")
    ] = None,
    json: o.Json = False,
) -> CommandAnswer:
    """Write the file and print the next steps."""
    from costguard.services.watch_loop import setup

    setup.check_free_path(path, force=force)  # before anybody is asked anything
    if example is not None:
        return setup.answer_example(example, path=path, force=force)
    if to is not None and not guard:
        raise InputError("says where the warnings of a policy go", field="--to", hint="add --guard")
    if not yes and sys.stdin.isatty():
        if budget is None:
            clear_progress()
            budget = prompt("Monthly budget for everything (empty: none)", default="", show_default=False, err=True)
        if zone is None:
            zone = prompt("Time zone for days and months", default="UTC", err=True)
    asks = guard and not yes and sys.stdin.isatty()
    answer = setup.answer_init(
        path=path,
        force=force,
        budget=budget,
        zone=zone,
        notices=(to or "console") if guard else None,
        ask_loss=partial(confirm, LOSS_QUESTION, default=False, err=True) if asks else None,
    )
    if asks and to not in (None, "console") and confirm(f"Send a test message to {to} now?", default=True, err=True):
        return setup.add_route_test(answer, path)
    return answer
