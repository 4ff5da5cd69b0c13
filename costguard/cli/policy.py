"""`costguard policy`: lint, explain, test, arm and accept policies.

Examples:
  costguard policy lint
  costguard policy explain idle-gpu
  costguard policy test idle-gpu --fact state=idle --fact confidence=0.95 --fact "rate=2.99 USD"
  costguard policy arm idle-gpu stop --why "watched it for two weeks"
  costguard policy accept 3f9a1c0d2b4e5f60

Levels: observe, notify, stop, terminate. Raising one shows the plan, counts for 90 days, and goes no further than the settings
say; lowering one counts at once. More than notify counts for the policy as it is now: an edited one only observes. For a
reviewed file that is rolled out, accept arms the policies of these digests as far as the file says; policy lint prints them.
"""

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FileCommand, build_group
from costguard.services import CommandAnswer

Why = Annotated[o.Text, Option("--why", metavar="TEXT", help="The reason for the change; it is shown to others.")]
app = build_group()


@app.command(cls=FileCommand)
def lint(ctx: Context) -> CommandAnswer:
    """Check every policy of the settings, and print its digest."""
    from costguard.services.guarding import policy

    return policy.lint_policies(config=ctx.obj.config)


@app.command(cls=FileCommand)
def explain(
    ctx: Context, name: Annotated[o.Text, Argument(metavar="NAME", help="Only this policy (default: all).")] = None
) -> CommandAnswer:
    """Say in words what the policies do."""
    from costguard.services.guarding import policy

    return policy.explain_policies(name, config=ctx.obj.config)


@app.command("test", cls=FileCommand)
def try_facts(
    ctx: Context,
    name: Annotated[str, Argument(metavar="NAME", help="The policy.")],
    fact: Annotated[list[str] | None, Option("--fact", metavar="NAME=VALUE", help="A fact (repeatable).")] = None,
) -> CommandAnswer:
    """Evaluate a policy on stated facts."""
    from costguard.services.guarding import policy

    return policy.try_policy(name, tuple(fact or ()), config=ctx.obj.config)


@app.command(cls=FileCommand)
def arm(
    ctx: Context,
    name: Annotated[str, Argument(metavar="NAME", help="The policy, or budget:NAME.")],
    level: Annotated[str, Argument(metavar="LEVEL", help="observe | notify | stop | terminate")],
    why: Why = None,
) -> CommandAnswer:
    """Arm a policy as far as LEVEL."""
    from costguard.services.guarding import policy

    return policy.arm_policy(name, level, why=why, config=ctx.obj.config)


@app.command(cls=FileCommand)
def accept(
    ctx: Context, digests: Annotated[list[str], Argument(metavar="DIGEST", help="As policy lint prints them.")], why: Why = None
) -> CommandAnswer:
    """Arm the policies of these digests as far as the settings say."""
    from costguard.services.guarding import policy

    return policy.accept_policies(digests, why=why, config=ctx.obj.config)
