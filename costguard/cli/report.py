"""`costguard report`: the costs of a period by group.

Examples:
  costguard report
  costguard report --month 2026-10 --by provider,owner
  costguard report --week 2026-W40 --by team,label:run
  costguard report --from 2026-10-03 --to 2026-10-03T18:00 --by resource
  costguard report --last 7d --only owner=vision
  costguard report --month 2026-10 --zone Europe/Berlin --csv
  costguard report --month 2026-10 --format focus --output october.csv      # also october.parquet, --format beancount
  costguard report --month 2026-10 --email lead@lab.org --notify team        # [[report]] in the settings sends it monthly
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.answer import find_format
from costguard.cli.commands import FormatCommand
from costguard.errors import InputError
from costguard.services import CommandAnswer

ITEMS = "items"
"""What a format needs that is made of charges."""


class ReportCommand(FormatCommand):
    """The command whose documents have charges."""

    makes = (ITEMS,)


COMMAND = ReportCommand


def command(
    ctx: Context,
    month: Annotated[o.Text, Option(metavar="YYYY-MM", help="Month to report (default: the current month).")] = None,
    day: Annotated[o.Text, Option(metavar="YYYY-MM-DD", help="Day to report.")] = None,
    week: Annotated[o.Text, Option(metavar="YYYY-Www", help="Week to report, Monday to Sunday (ISO 8601).")] = None,
    start: Annotated[o.Text, Option("--from", metavar="WHEN", help="Start of the period: a day or a time.")] = None,
    end: Annotated[o.Text, Option("--to", metavar="WHEN", help="End: a time or the day after the last (default: now).")] = None,
    last: Annotated[o.Text, Option(metavar="TIME", help="The time up to now: 7d, 24h, 2w.")] = None,
    only: Annotated[
        o.Names,
        Option(
            metavar="KEY=VALUE",
            help=(
                "Only this spending, with the budgets within it: owner, team, project, provider, account, region, gpu, tier, "
                "kind. Repeat it for more values or keys."
            ),
        ),
    ] = None,
    by: Annotated[
        o.Text,
        Option(
            metavar="KEYS",
            help=(
                "Grouping: provider,account,owner,gpu; also region, kind, charge, tier, instance_type, project, team; "
                "by latest value: resource, name, job, label:KEY."
            ),
        ),
    ] = None,
    zone: o.Zone = None,
    strict: Annotated[bool, Option("--strict", help="Exit 4 if the polls of an account have gaps.")] = False,
    in_full: Annotated[bool, Option("--all", help="List what is not counted, instead of one line.")] = False,
    focus_version: Annotated[  # the renderer takes it
        o.Text, Option("--focus-version", metavar="N", help="For --format focus: 1.2 | 1.3 | 1.4 (1.4).")
    ] = None,
    email: Annotated[
        o.Names,
        Option("--email", metavar="ADDRESS", help="Mail the report ([notify] mail) instead of printing it."),
    ] = None,
    notify: Annotated[
        o.Names,
        Option("--notify", metavar="ROUTE", help="Send the report to a route or a channel instead of printing it."),
    ] = None,
    attach: Annotated[
        o.Text, Option("--attach", metavar="FORMAT", help="Format of the attachment of a sent report (html).")
    ] = None,
) -> CommandAnswer:
    """Print the report of a period, or send it."""
    needs = find_format(ctx).needs
    period_options = {"month": month, "day": day, "week": week, "last": last, "from": start, "to": end}
    if email or notify:
        from costguard.services.report import report_delivery

        _check_tellable(needs, ctx.params.get("output"))
        people, routes, config = email or (), notify or (), ctx.obj.config
        return report_delivery.send_report(
            period=period_options,
            by=by,
            only=only or (),
            zone=zone,
            strict=strict,
            people=people,
            routes=routes,
            attach=attach or "html",
            config=config,
        )
    if attach is not None:
        raise InputError(
            "sets the attachment's format", field="--attach", hint="name a recipient: --email ADDRESS or --notify ROUTE"
        )
    from costguard.services.report import ledger_answers

    return ledger_answers.answer_report(
        period=period_options,
        by=by,
        only=only or (),
        zone=zone,
        strict=strict,
        in_full=in_full,
        needs=needs,
        config=ctx.obj.config,
    )


def _check_tellable(needs: str, output: object) -> None:
    """Raise InputError, before anything is sent, if the format or output option does not fit a report that is sent."""
    if needs == ITEMS:
        what = "sets the format of the confirmation"
        raise InputError(what, field="--format", hint="--attach sets the attachment's format")
    if output is not None:
        raise InputError("cannot be used when the report is sent", field="--output", hint="run it twice")
