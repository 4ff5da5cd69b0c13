"""`costguard settings`: explain the keys of the settings file.

Examples:
  costguard settings explain
  costguard settings explain budget.cap
  costguard settings explain providers.runpod
  costguard settings explain policy

Without a key, explain lists the sections. What it prints can be pasted into the file: remove the # before a key.
"""

from typing import Annotated

from typer import Argument, Context

from costguard.cli import options as o
from costguard.cli.commands import AnswerCommand, build_group
from costguard.services import CommandAnswer

app = build_group()
app.callback()(lambda: None)  # else typer takes the only command for the group


@app.command(cls=AnswerCommand)
def explain(
    ctx: Context, key: Annotated[o.Text, Argument(metavar="KEY", help="A section, or section.key (default: list them).")] = None
) -> CommandAnswer:
    """Explain a section or a key of the settings file, with an example."""
    from costguard.services.watch_loop.first_settings import explain_settings

    return explain_settings(key)
