"""`costguard gpus`: the known GPUs: memory, bandwidth, arithmetic, power and price.

Examples:
  costguard gpus
  costguard gpus a100
  costguard gpus --min-memory 80 --sort price
  costguard gpus --vendor AMD --json
"""

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.services import CommandAnswer
from costguard.sizing.job_flags import parse_number


def command(
    ctx: Context,
    name: Annotated[o.Text, Argument(metavar="NAME", help="A GPU, or part of the GPUs' names (default: all GPUs).")] = None,
    vendor: Annotated[o.Text, Option(metavar="NAME", help="NVIDIA | AMD | Apple | Google | AWS | Intel")] = None,
    min_memory: Annotated[o.Text, Option(metavar="GB", help="Only GPUs with at least this memory.")] = None,
    sort: Annotated[
        o.Text, Option(metavar="NAME", help="Order: memory | bandwidth | tflops | power | price (by architecture).")
    ] = None,
    market: o.Market = None,
) -> CommandAnswer:
    """Read the options and return the GPUs."""
    from costguard.services.quote.gpus import answer_gpus

    return answer_gpus(
        name=name,
        vendor=vendor,
        min_memory=None if min_memory is None else parse_number(min_memory, "min-memory"),
        sort=sort,
        market=market,
        config=ctx.obj.config,
    )
