"""`costguard breaker`: show the acts that the breaker holds, or close it.

Examples:
  costguard breaker show
  costguard breaker close --why "the job array ended, all eight are done"

It opens where a quarter of the fleet, and at least five machines, turn idle or unknown within ten minutes ([rails] breaker).
It holds these machines only, asks about each after an hour, and closes by itself after a day. Once closed, it holds none.
"""

from typer import Context

from costguard.cli import options as o
from costguard.cli.commands import AnswerCommand, build_group
from costguard.services import CommandAnswer

app = build_group()


@app.command(cls=AnswerCommand)
def show(ctx: Context) -> CommandAnswer:
    """Show the machines that it holds."""
    from costguard.services.guarding import overrides

    return overrides.show_breaker(config=ctx.obj.config)


@app.command(cls=AnswerCommand)
def close(
    ctx: Context,
    why: o.Why = None,
) -> CommandAnswer:
    """Record that the breaker is closed."""
    from costguard.services.guarding import overrides

    return overrides.close_breaker(why, config=ctx.obj.config)
