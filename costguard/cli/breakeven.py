"""`costguard breakeven`: compare buying with renting.

Examples:
  costguard breakeven --gpu A100-80GB --price 15000 --rate 4
  costguard breakeven --gpu RTX-4090 --price 1600 --rate 0.40 --hours-week 20 --usd-per-kwh 0.30 --resale 700
  costguard breakeven job.toml --gpu RTX-4090 --price 1600    # after how many runs of the job
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FileCommand
from costguard.services import CommandAnswer
from costguard.sizing.job_flags import parse_number

COMMAND = FileCommand


def command(
    ctx: Context,
    job: o.JobFiles = None,
    gpu: Annotated[o.Text, Option(metavar="NAME", help="GPU type; sets the defaults of --price, --rate and --power-w.")] = None,
    count: Annotated[o.Text, Option(metavar="N", help="Number of GPUs bought (1).")] = None,
    price: Annotated[o.Text, Option(metavar="USD", help="Total purchase price, in $ (default: the GPU's list price).")] = None,
    rate: Annotated[
        o.Text,
        Option(metavar="USD", help="Rental price of the same hardware, in $ an hour (default: the cheapest known offer)."),
    ] = None,
    power_w: Annotated[o.Text, Option(metavar="N", help="Total watts drawn under load (default: the GPU's TDP).")] = None,
    usd_per_kwh: Annotated[o.Text, Option(metavar="USD", help="Price of electricity, in $ per kWh (0.15).")] = None,
    resale: Annotated[o.Text, Option(metavar="USD", help="Resale value, in $ (0).")] = None,
    hours_week: Annotated[o.Text, Option(metavar="N", help="Hours of use per week; also shows the result in months.")] = None,
    years: Annotated[o.Text, Option(metavar="N", help="Years until the machine is worn out (3).")] = None,
    market: o.Market = None,
) -> CommandAnswer:
    """Read the options and print the break-even."""
    from costguard.services.quote.breakeven import answer_breakeven

    return answer_breakeven(
        job_file=job,
        gpu=gpu,
        count=1 if count is None else parse_number(count, "count"),
        price=price,
        rate=rate,
        power_w=None if power_w is None else parse_number(power_w, "power-w"),
        usd_per_kwh=usd_per_kwh,
        resale=resale,
        hours_week=None if hours_week is None else parse_number(hours_week, "hours-week"),
        years=None if years is None else parse_number(years, "years"),
        market=market,
        config=ctx.obj.config,
    )
