"""`costguard models`: list the built-in models."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard models
  costguard models qwen
"""


def command(
    ctx: Context,
    name: Annotated[Text, Argument(metavar="NAME", help="Only models with this in their name.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Print the answer."""
    from costguard.services.guarding.explain import answer_models

    write_answer(answer_models(name), ctx)
