"""`costguard quote`: the expected cost and duration of a job on each offer.

Examples:
  costguard quote --model llama-3.1-8b --method qlora --tokens 50e6
  costguard quote job.toml --max-usd 200 --provider aws --provider runpod
  costguard quote --model mistral-7b --method full --tokens 1B --on H100:8
  costguard quote --model llama-3.1-70b --method inference --requests-per-second 5 --prompt-len 1000 --output-len 300
  costguard quote --model sdxl --method lora --images 10000
  costguard quote qlora.yml task.sky.yaml --tokens 50e6      # configs and launch files of other tools
  costguard quote --model llama-3.1-8b --method full --tokens 1B --on H100:8 --compare parallel
  costguard quote --gpu H100 --count 8 --hours 12
  costguard quote --gpu H100 --hours 12 --region eu --tier on-demand --tier secure --exclude vast
  costguard quote --template lora-7b
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.answer import find_format
from costguard.cli.commands import FormatCommand, add_options
from costguard.services import CommandAnswer
from costguard.sizing.job_flags import build_job_table, parse_hours, parse_number

LIST = "list"
"""Asked for in place of a template's name: all of them are shown."""
SHORT = (
    *("job", "template", "model", "method", "tokens", "seq_len", "micro_batch", "requests_per_second"),
    *("on", "gpu", "count", "hours", "max_usd", "provider", "region", "tier", "why", "all_options", "json"),
)
COMMAND = add_options(FormatCommand, o.list_job_options(), SHORT)


def command(
    ctx: Context,
    job: o.JobFiles = None,
    on: o.On = None,
    count: o.Count = None,
    hours: o.Hours = None,
    top: Annotated[o.Text, Option(metavar="N", help="Number of rows to show (default: five different ones).")] = None,
    all_options: Annotated[bool, Option("--all", help="Show all options, refusals and subscriptions.")] = False,
    sort: Annotated[o.Text, Option(metavar="NAME", help="Order: usd (default) | hours | usd_per_hour | provider")] = None,
    compare: Annotated[o.Text, Option(metavar="NAME", help="parallel: DDP, ZeRO, FSDP and tp on --on, side by side.")] = None,
    pilot: Annotated[o.Text, Option(metavar="PERCENT", help="Also quote so much of the job, to run first: 1%.")] = None,
    market: o.Market = None,
    calibration: o.Calibration = None,
    why: Annotated[bool, Option("--why", help="Show each caveat, and what every assumption changes.")] = False,
    explain: o.Explain = False,
    strict: o.Strict = False,
) -> CommandAnswer:
    """Read the options and return the quote."""
    from costguard.services.quote import quote_commands

    if ctx.params["template"] == LIST:
        return quote_commands.answer_templates()
    return quote_commands.answer_quote(
        job_file=job,
        flags=build_job_table(ctx.params),
        on=on,
        count=None if count is None else parse_number(count, "count"),
        hours=None if hours is None else parse_hours(hours, "hours"),
        top=None if top is None else parse_number(top, "top"),
        sort=sort or "usd",
        market=market,
        explain=explain,
        why=why,
        strict=strict,
        calibration=calibration,
        every=all_options or find_format(ctx).name in ("json", "csv"),
        config=ctx.obj.config,
        compare=compare,
        pilot=pilot,
    )
