"""`costguard report --email` and `--notify`: a report to people, now, and what became of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from costguard.errors import CostguardError
from costguard.guard.alerts.alert import ASKED
from costguard.reporting.statement.groups import parse_group_keys
from costguard.reporting.statement.period import parse_report_period
from costguard.services import CommandAnswer
from costguard.services.configured_providers import SystemClock
from costguard.services.ledger_answers import CHARTS_NEED, build_report
from costguard.services.report_delivery import ReportLetter, build_report_command, find_report_format
from costguard.services.telling import format_channel_name, open_notifier
from costguard.settings import Settings, load_zone, read_settings
from costguard.settings.reports import read_person, read_recipient
from costguard.views.report import build_incomplete_report_error, list_report_warnings
from costguard.views.report_delivery import format_report_title
from costguard.views.sent import ReportDelivery, build_delivery_document

NOTIFY_HINT = 'write the name of a route, "console", "env:SLACK_URL" or "https://example.com/hook"'


def send_report(
    *,
    stated: Mapping[str, str | None],
    by: str | None,
    zone: str | None,
    strict: bool,
    people: Sequence[str],
    routes: Sequence[str],
    attach: str,
    config: str | None,
) -> CommandAnswer:
    """Send the report of a period to `people` by mail and to `routes`, each once and all of them, whatever becomes of one.

    InputError before anything is made where one of them cannot be reached as the settings are. `attach`: the format of what is
    enclosed. `strict`: a period that was not seen all through is refused, and nothing is sent.
    """
    settings, now = read_settings(config), get_utc_now()
    place = settings.defaults.zone if zone is None else load_zone(zone, "--zone")
    keys, of, chosen = parse_group_keys(by), parse_report_period(stated, now, place), find_report_format(attach)
    ways = {name: open_notifier(name, settings, SystemClock()) for name in _choose_channels(settings, people, routes)}
    statement, document = build_report(settings, of, by=keys, zone=place, now=now, drawn=chosen.needs == CHARTS_NEED)
    refusal = build_incomplete_report_error(statement) if strict else None
    if refusal is not None:
        raise refusal
    given = {name: text for name, text in stated.items() if text is not None} or {"month": of.label}
    again = build_report_command(given, keys, place)
    letter = ReportLetter(statement=statement, document=document, chosen=chosen, again=again)
    sent = list[ReportDelivery]()
    for name, way in ways.items():
        message = letter.build_message(secrets.token_hex(16), name, ASKED, now, place)
        enclosed = tuple(one.name for one in message.enclosures)
        sent.append(ReportDelivery(to=format_channel_name(name), delivery=way(message), enclosed=enclosed))
    return CommandAnswer(
        document=build_delivery_document(of.label, format_report_title(statement), sent),
        warnings=list_report_warnings(statement),
        refusal=_explain_unsent(sent),
    )


def get_utc_now() -> datetime:
    """This instant."""
    return datetime.now(UTC)


def _choose_channels(settings: Settings, people: Sequence[str], routes: Sequence[str]) -> dict[str, None]:
    mail = [read_person(text, "--email", mail=settings.mail) for text in people]
    others = [
        name
        for text in routes
        for name in read_recipient(text, "--notify", routes=settings.routes, mail=settings.mail, hint=NOTIFY_HINT)
    ]
    return dict.fromkeys((*mail, *others))


def _explain_unsent(sent: Sequence[ReportDelivery]) -> CostguardError | None:
    failed = [one for one in sent if not one.delivery.sent]
    if not failed:
        return None
    first = failed[0]
    hint = "mend that and send it again" + (f" (to {len(failed)} of {len(sent)} it was not sent)" if len(sent) > 1 else "")
    return CostguardError(f"was not sent: {first.delivery.why}", field=first.to, hint=hint)
