"""`costguard breaker`: show the acts that the breaker holds, or close it.

Examples:
  costguard breaker show
  costguard breaker close --why "the job array ended, all eight are done"

The breaker opens if a quarter of the fleet and at least five machines turn idle or unknown within ten minutes ([rails]
breaker). It holds acts on these machines only. After an hour costguard asks about each machine; after a day the breaker
closes.
"""

from typer import Context

from costguard.cli import options as o
from costguard.cli.commands import AnswerCommand, build_group
from costguard.services import CommandAnswer

app = build_group()


@app.command(cls=AnswerCommand)
def show(ctx: Context) -> CommandAnswer:
    """Show the machines that the breaker holds."""
    from costguard.services.guarding import overrides

    return overrides.show_breaker(config=ctx.obj.config)


@app.command(cls=AnswerCommand)
def close(
    ctx: Context,
    why: o.Why = None,
) -> CommandAnswer:
    """Close the breaker."""
    from costguard.services.guarding import overrides

    return overrides.close_breaker(why, config=ctx.obj.config)
