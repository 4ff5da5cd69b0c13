"""`costguard policy`: lint, explain, test, arm and accept policies."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli.answer import add_format_options, add_output_options, write_answer
from costguard.cli.commands import CostguardCommand, build_group
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard policy lint
  costguard policy explain idle-gpu
  costguard policy test idle-gpu --fact state=idle --fact confidence=0.95 --fact "rate=2.99 USD"
  costguard policy arm idle-gpu stop --why "watched it for two weeks"
  costguard policy accept 3f9a1c0d2b4e5f60

Levels: observe, notify, stop, terminate. Raising one shows the plan, counts for 90 days, and goes no further than the settings
say; lowering one counts at once. More than notify counts for the policy as it is now: an edited one only observes. For a
reviewed file that is rolled out, accept arms the policies of these digests as far as the file says; policy lint prints them.
"""
Why = Annotated[Text, Option("--why", metavar="TEXT", help="The reason for the change; it is shown to others.")]
app = build_group()


@app.command(cls=CostguardCommand)
@add_output_options
@add_format_options
def lint(ctx: Context) -> None:
    """Check every policy of the settings, and print its digest."""
    from costguard.services.guarding import policy

    write_answer(policy.lint_policies(config=ctx.obj.config), ctx)


@app.command(cls=CostguardCommand)
@add_output_options
@add_format_options
def explain(
    ctx: Context, name: Annotated[Text, Argument(metavar="NAME", help="Only this policy (default: all).")] = None
) -> None:
    """Say in words what the policies do."""
    from costguard.services.guarding import policy

    write_answer(policy.explain_policies(name, config=ctx.obj.config), ctx)


@app.command("test", cls=CostguardCommand)
@add_output_options
@add_format_options
def try_facts(
    ctx: Context,
    name: Annotated[str, Argument(metavar="NAME", help="The policy.")],
    fact: Annotated[list[str] | None, Option("--fact", metavar="NAME=VALUE", help="A fact (repeatable).")] = None,
) -> None:
    """Evaluate a policy on stated facts."""
    from costguard.services.guarding import policy

    write_answer(policy.try_policy(name, tuple(fact or ()), config=ctx.obj.config), ctx)


@app.command(cls=CostguardCommand)
@add_output_options
@add_format_options
def arm(
    ctx: Context,
    name: Annotated[str, Argument(metavar="NAME", help="The policy, or budget:NAME.")],
    level: Annotated[str, Argument(metavar="LEVEL", help="observe | notify | stop | terminate")],
    why: Why = None,
) -> None:
    """Arm a policy as far as LEVEL."""
    from costguard.services.guarding import policy

    write_answer(policy.arm_policy(name, level, why=why, config=ctx.obj.config), ctx)


@app.command(cls=CostguardCommand)
@add_output_options
@add_format_options
def accept(
    ctx: Context, digests: Annotated[list[str], Argument(metavar="DIGEST", help="As policy lint prints them.")], why: Why = None
) -> None:
    """Arm the policies of these digests as far as the settings say."""
    from costguard.services.guarding import policy

    write_answer(policy.accept_policies(digests, why=why, config=ctx.obj.config), ctx)
