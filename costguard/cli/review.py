"""`costguard review`: quote the changed job files before and after a change; comment in CI.

Examples:
  costguard review --base origin/main --path 'jobs/*.toml'
  costguard review --base main --path 'jobs/*' --max-increase 50 --format github
  costguard review --ci github --path 'jobs/*' --max-usd 500       # in a workflow on: pull_request (docs/CI.md)

review compares the commits BASE and HEAD, and quotes each matching file that differs, as `costguard quote FILE` does. In a
pattern * also matches /. Exit code 3: over a limit, or a limit is set and a job cannot be quoted.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FormatCommand
from costguard.errors import InputError
from costguard.services import CommandAnswer
from costguard.values.checks import require_one_of

COMMAND = FormatCommand


def command(
    ctx: Context,
    path: Annotated[o.Names, Option("--path", metavar="PATTERN", help="Pattern of the job files (repeatable).")] = None,
    base: Annotated[o.Text, Option("--base", metavar="REVISION", help="Branch or commit to compare with.")] = None,
    ci: Annotated[
        o.Text, Option("--ci", metavar="NAME", help="github | gitlab: review this CI job's change and comment on it.")
    ] = None,
    comment: Annotated[bool, Option("--comment/--no-comment", help="With --ci: write the comment.")] = True,
    max_usd: Annotated[o.Text, Option("--max-usd", metavar="N", help="Maximum cost of all changed jobs, in $.")] = None,
    max_increase: Annotated[o.Text, Option("--max-increase", metavar="N", help="Maximum increase of their cost, in $.")] = None,
    market: o.Market = None,
) -> CommandAnswer:
    """Compare, print, and comment."""
    if (base is None) == (ci is None):
        raise InputError("state one of --base and --ci", field="--base", hint="costguard review --base main --path 'jobs/*'")
    patterns, config = [line for one in path or () for line in one.split()], ctx.obj.config
    if ci is not None:
        from costguard.services.quote.review import ci as flow
        from costguard.services.quote.review.comment import FORGES

        require_one_of(ci, FORGES, "--ci")
        answer = flow.answer_ci_review(
            forge=ci,
            patterns=patterns,
            max_usd=max_usd,
            max_increase=max_increase,
            comments=comment and not ctx.obj.offline,
            market=market,
            config=config,
        )
    else:
        from costguard.services.quote.review import answer_review

        answer = answer_review(
            patterns=patterns, base=base or "", max_usd=max_usd, max_increase=max_increase, market=market, config=config
        )
    return answer
