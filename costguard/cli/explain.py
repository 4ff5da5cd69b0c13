"""`costguard explain`: say what a reason means, and what to do about it."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard explain untold
  costguard explain
"""


def command(
    ctx: Context,
    code: Annotated[Text, Argument(metavar="CODE", help="A reason as it stands in an answer: untold, breaker, rate.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Print the answer."""
    from costguard.services.guarding.explain import answer_explain

    write_answer(answer_explain(code), ctx)
