"""`costguard providers`: show what costguard supports for each provider."""

from __future__ import annotations

from typer import Context

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer

EXAMPLES = """Examples:

\b
  costguard providers
  costguard providers --json | jq '.providers[] | {name, credentials}'
"""


@add_output_options
def command(ctx: Context, json: o.Json = False, csv: o.Csv = False, markdown: o.Markdown = False) -> None:
    """Print the table of supported features."""
    from costguard.services.watch_loop import setup

    write_answer(setup.answer_providers(config=ctx.obj.config), ctx)
