"""`costguard explain`: explain a reason id, and what to do.

Examples:
  costguard explain untold
  costguard explain
"""

from typing import Annotated

from typer import Argument, Context

from costguard.cli import options as o
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    code: Annotated[o.Text, Argument(metavar="CODE", help="Reason id (default: all): untold, breaker, rate ...")] = None,
) -> CommandAnswer:
    """Print the answer."""
    from costguard.services.guarding.explain import answer_explain

    return answer_explain(code, config=ctx.obj.config)
