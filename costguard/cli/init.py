"""`costguard init`: write a settings file for the credentials found on this machine."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard init
  costguard init --yes --budget "3000 USD" --zone Europe/Berlin
  costguard init --path ~/.config/costguard/costguard.toml

It looks for every provider's credentials in their usual places. It contacts no provider and writes no key.
"""


def command(
    ctx: typer.Context,
    path: Annotated[Text, typer.Option(metavar="FILE", help="File to write (default: ./costguard.toml).")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    budget: Annotated[Text, typer.Option(metavar="AMOUNT", help="A monthly budget for everything, such as '3000 USD'.")] = None,
    zone: o.Zone = None,
    json: o.Json = False,
) -> None:
    """Write the file and print the next steps."""
    from costguard.services import setup

    setup.check_free_path(path, force=force)  # before anybody is asked anything
    if not yes and sys.stdin.isatty():
        if budget is None:
            budget = typer.prompt("Monthly budget for everything (empty: none)", default="", show_default=False, err=True)
        if zone is None:
            zone = typer.prompt("Time zone for days and months", default="UTC", err=True)
    write_answer(setup.answer_init(path=path, force=force, budget=budget, zone=zone), ctx)
