"""`costguard until`: record the date that ends a machine, or show the dates of all machines.

Examples:
  costguard until set train-1 4h
  costguard until set train-1 2026-12-01T18:00Z --why "the agent's task ends then"
  costguard until show

A policy with match = { until_label = "passed" } notifies before the date and stops the machine after it. The date may also be
on the machine, as the label costguard:until; the newest of both counts. A date never keeps a machine: use costguard keep.
"""

from typing import Annotated

from typer import Argument, Context

from costguard.cli import options as o
from costguard.cli.commands import AnswerCommand, FileCommand, build_group
from costguard.services import CommandAnswer

app = build_group()


@app.command(cls=AnswerCommand, name="set")
def set_date(
    ctx: Context,
    id: o.Machine,  # noqa: A002 - as it is shown
    time: Annotated[str, Argument(metavar="TIME", help="Duration from now, or a time with a zone: 4h, 2026-12-01T18:00Z.")],
    why: o.Why = None,
) -> CommandAnswer:
    """Record when the current run of a machine ends."""
    from costguard.services.guarding import until

    return until.set_end_date(id, time, why=why, config=ctx.obj.config)


@app.command(cls=FileCommand)
def show(ctx: Context) -> CommandAnswer:
    """Show when each running machine ends."""
    from costguard.services.guarding import until

    return until.show_end_dates(config=ctx.obj.config)
