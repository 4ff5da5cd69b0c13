"""`costguard models`: list the built-in models.

Examples:
  costguard models
  costguard models qwen
"""

from typing import Annotated

from typer import Argument, Context

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    name: Annotated[o.Text, Argument(metavar="NAME", help="Part of the models' names (default: all models).")] = None,
) -> CommandAnswer:
    """Print the answer."""
    from costguard.services.guarding.explain import answer_models

    return answer_models(name)
