"""`costguard policy`: lint, explain, test, arm and accept policies.

Examples:
  costguard policy lint
  costguard policy explain idle-gpu
  costguard policy test idle-gpu --fact state=idle --fact confidence=0.95 --fact "rate=2.99 USD"
  costguard policy arm idle-gpu stop --why "watched it for two weeks"
  costguard policy accept 3f9a1c0d2b4e5f60

Levels: observe, notify, stop, terminate. Raising a level shows the plan, is valid for 90 days, and cannot exceed the level in
the settings; lowering a level takes effect at once. If an armed policy is edited, it only observes until it is armed again.
accept arms the policies with these digests up to the level in the settings; policy lint prints the digests.
"""

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.commands import FileCommand, build_group
from costguard.cli.completion import complete_names
from costguard.cli.options import choose_format
from costguard.services import CommandAnswer

Why = Annotated[o.Text, Option("--why", metavar="TEXT", help="Reason for the change, shown to other users.")]
app = build_group()


@app.command(cls=FileCommand)
def lint(ctx: Context) -> CommandAnswer:
    """Check every policy of the settings, and print its digest."""
    from costguard.services.guarding import policy

    return policy.lint_policies(config=ctx.obj.config)


@app.command(cls=FileCommand)
def explain(ctx: Context, name: o.Policy = None) -> CommandAnswer:
    """Explain in words what the policies do."""
    from costguard.services.guarding import policy

    return policy.explain_policies(name, config=ctx.obj.config)


@app.command("test", cls=FileCommand)
def try_facts(
    ctx: Context,
    name: Annotated[str, Argument(metavar="NAME", help="Name of the policy.", autocompletion=complete_names("policy"))],
    fact: Annotated[
        list[str] | None, Option("--fact", metavar="NAME=VALUE", help="Fact to evaluate the policy on (repeatable).")
    ] = None,
) -> CommandAnswer:
    """Evaluate a policy on given facts."""
    from costguard.services.guarding import policy

    return policy.try_policy(name, tuple(fact or ()), config=ctx.obj.config)


@app.command(cls=FileCommand)
def arm(
    ctx: Context,
    name: Annotated[str, Argument(metavar="NAME", help="Policy, or budget:NAME.", autocompletion=complete_names("policy"))],
    level: Annotated[str, Argument(metavar="LEVEL", help="observe | notify | stop | terminate")],
    why: Why = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Show the plan, and do not ask.")] = False,
) -> CommandAnswer:
    """Arm a policy up to LEVEL; on a terminal you see the plan and are asked first."""
    from costguard.cli.confirm import find_asker
    from costguard.services.guarding import policy

    ask = None if yes or choose_format(ctx.params) != "table" or ctx.params.get("output") else find_asker()

    def agree(plan: CommandAnswer, question: str) -> bool:
        write_answer(plan, ctx)
        return ask is not None and ask(question)

    return policy.arm_policy(name, level, why=why, config=ctx.obj.config, agree=agree if ask else None)


@app.command(cls=FileCommand)
def accept(
    ctx: Context,
    digests: Annotated[list[str], Argument(metavar="DIGEST", help="Digest that policy lint printed.")],
    why: Why = None,
) -> CommandAnswer:
    """Arm the policies with these digests up to the level in the settings."""
    from costguard.services.guarding import policy

    return policy.accept_policies(digests, why=why, config=ctx.obj.config)
