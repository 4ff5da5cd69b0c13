"""`costguard status`: what is running, what it costs, and the month's forecast."""

from __future__ import annotations

from typing import Annotated

from click import Context

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer
from costguard.cli.commands import Option

EXAMPLES = """Examples:

\b
  costguard status
  costguard status --ask
  costguard status --zone Europe/Berlin
  costguard status --json | jq .burn_usd_per_hour

Where `costguard watch` ran within its interval, and read every account, the ledger answers, and the age of what it shows is
said. Else the configured providers are asked first; `--ask` asks them in any case, `costguard --offline status` never.
"""


@add_output_options
def command(
    ctx: Context,
    zone: o.Zone = None,
    ask: Annotated[bool, Option("--ask", help="Ask the clouds, even if a guard run did just now.")] = False,
    strict: Annotated[bool, Option("--strict", help="Exit 4 if a provider could not be asked.")] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
    format: o.Format = None,  # noqa: A002 - the option's name
) -> None:
    """Print the current costs and machines."""
    from costguard.services import ledger_answers

    found = ledger_answers.answer_status(zone=zone, strict=strict, offline=ctx.obj.offline, ask=ask, config=ctx.obj.config)
    write_answer(found, ctx)
