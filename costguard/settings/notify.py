"""The models of `[notify]` with its routes and of `[[report]]` tables, and the addresses that they use.

An address of a channel, a hook or the heartbeat is one of these; a secret address is referred to by its source:

    "console"                         the terminal of the watchdog
    "https://example.com/costguard"   a webhook whose address contains no secret
    "env:SLACK_URL"                   the variable that holds the address, such as slack://... (any that Apprise supports)
    "file:/run/secrets/slack"         the file that holds it

An AlertRoute holds the names of its channels, as written in `to`; `resolve_address` reads a secret address when a message is
sent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from costguard.errors import InputError, collect_errors, raise_errors, shorten
from costguard.guard.alerts.alert import AUDIENCES, GROUP_BY_FIELDS, INFO, REPEAT_INTERVALS, SEVERITIES, AlertRoute
from costguard.reporting.schedule import MAIL_PREFIX, REPORT_FREQUENCIES, ReportSchedule
from costguard.reporting.statement.groups import parse_group_keys
from costguard.settings.budgets import MatchTable, make_filter
from costguard.settings.fields import SettingsTable, parse_duration, read_name, read_section, read_text, read_texts
from costguard.settings.files import expand_path
from costguard.settings.model import (
    Flag,
    OptionalTexts,
    ReadAs,
    SettingsModel,
    choose,
    choose_many,
    describe_flag,
    describe_key,
    fit,
    read_model,
    read_models,
    require_table,
)
from costguard.settings.web import LOOPBACK
from costguard.system.file_security import describe_exposure
from costguard.system.input_file import read_input_file
from costguard.values.checks import describe_value, find_nearest_names, require, require_one_of

CONSOLE_CHANNEL = "console"
JOURNAL_SCHEMES = ("syslog", "rsyslog", "journald", "dbus", "gnome", "glib", "kde", "macosx", "windows")
"""Of addresses that write into a log or onto this machine's own screen (Apprise 1.9), where nobody may be."""
PAGER_PATTERN = re.compile(
    r"(?:firehydrant|goalerts?|ilert|incidentio|jira|opsgenie|pagerduty|pagertree|signl4|splunk|victorops|squadcast)://|https://"
    r"(?:(?:alert\.victorops|api\.(?:eu\.)?squadcast|api\.pagertree|connect\.signl4|signals\.firehydrant)\.com"
    r"|api\.incident\.io|[^/]+/api/v2/generic/incoming\?)",
    re.IGNORECASE,
)
"""Addresses of services that keep incidents (Apprise 2.2), and those of them as the services show them."""
VARIABLE_PATTERN = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
FILE_PATTERN = re.compile(r"file:(\S.*)")
SCHEME_PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
TOKEN_PATTERN = re.compile(r"(?=.*[0-9])[A-Za-z0-9_+=~-]{16,}|[A-Za-z]{32,}|[A-Z0-9]{9,}|[0-9a-f]{8}-[0-9a-f-]{27}")
"""A part of a path that gives away more than a place."""
SECRET_BYTES_MAX = 64 * 2**10
"""Bytes of a file that holds an address."""


def check_address(text: str, field: str, variable: str) -> str:
    """Return `text` if it is an address that may be in the settings file; raise InputError, without showing it, if not.

    `variable`: an example of a variable for the hint.
    """
    if VARIABLE_PATTERN.fullmatch(text) or FILE_PATTERN.fullmatch(text):
        return text
    cure = f'write "env:{variable}" and set {variable} to the address, or "file:PATH" of a file that holds it'
    scheme = SCHEME_PATTERN.match(text)
    if scheme is None:
        raise InputError("is not an address", field=field, hint=f'{cure}; or "https://..." of a webhook')
    name, rest = scheme[1].lower(), text[scheme.end() :]
    if name not in ("http", "https"):
        # syslog:// and the like name nobody, and so hold no secret
        open_book = not any(letter.isalnum() for letter in rest)
        require(open_book, field, f"{name}:// addresses hold a secret; the settings file must not contain one", cure)
        return text
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host:
        raise InputError("is not an address", field=field, hint='write "https://example.com/costguard"')
    require(name == "https" or host in LOOPBACK, field, "is http:// to another machine", "write https://")
    secret = (
        "@" in parts.netloc
        or parts.query
        or parts.fragment
        or any(TOKEN_PATTERN.fullmatch(part) for part in parts.path.split("/"))
    )
    require(not secret, field, "appears to contain a secret; the settings file must not contain one", cure)
    return text


def resolve_address(text: str, field: str, folder: Path | None = None, *, what: str = "address") -> str:
    """Return the address that `text` states or refers to.

    Raise InputError for `field` if the variable or file is missing or empty, or if others can read the file. `folder`: base of
    a relative file path; None: the working folder. `what`: the word for it in messages.
    """
    variable, file = VARIABLE_PATTERN.fullmatch(text), FILE_PATTERN.fullmatch(text)
    if variable:
        address = os.environ.get(variable[1], "").strip()
        require(bool(address), field, f"the variable {variable[1]} is not set", f"set {variable[1]} to the {what}")
        return address
    if file is None:
        return text
    path = (folder or Path()) / expand_path(file[1])
    try:
        address = read_input_file(path, SECRET_BYTES_MAX).decode().strip()
    except (OSError, ValueError):
        raise InputError(
            f"{path} cannot be read", field=field, hint=f"write the path of a file that holds the {what}"
        ) from None
    require(bool(address), field, f"{path} is empty", f"write the {what} into it")
    others = describe_exposure(path)
    require(not others, field, f"{path} holds a secret and {others}", f"chmod 600 '{path}'")
    return address


ROUTE_TO_HINT = 'write to = ["console"], "env:SLACK_URL" or "https://example.com/hook"'
REPEAT_MIN = timedelta(minutes=15)
"""A repeat more often than this is a storm."""


def _read_channels(value: object, field: str) -> tuple[str, ...]:
    channels = tuple(dict.fromkeys(read_channel(text, field) for text in read_texts(value, field)))
    require(bool(channels), field, "is empty", ROUTE_TO_HINT)
    return channels


def _read_repeat(value: object, field: str) -> tuple[timedelta, ...]:
    times = tuple(parse_duration(text, field, least=REPEAT_MIN) for text in read_texts(value, field))
    rising = all(earlier < later for earlier, later in pairwise(times))
    require(rising, field, "must increase", 'write ["4h", "24h", "7d"]')
    return times


def require_secret_place(text: str, field: str, variable: str) -> str:
    """Return `text`, which says where a secret is kept, such as in `variable`; raise InputError for a secret itself."""
    match = VARIABLE_PATTERN.fullmatch(text) or FILE_PATTERN.fullmatch(text)
    hint = f'write "env:{variable}", or "file:PATH" of a file that holds it'
    require(match is not None, field, "holds a secret; the settings file must not contain one", hint)
    return text


def _read_secret_place(variable: str) -> ReadAs:
    return ReadAs(lambda value, field: require_secret_place(read_text(value, field), field, variable))


class RouteMatchTable(SettingsModel):
    """`match` of a route; None: all."""

    owners: OptionalTexts = None
    policies: OptionalTexts = None
    topics: OptionalTexts = None
    audience: Annotated[tuple[str, ...] | None, choose_many(*AUDIENCES)] = None


class RouteTable(SettingsModel):
    """A `[[notify.route]]` table: who receives which messages, and how often they are repeated."""

    to: Annotated[tuple[str, ...], ReadAs(_read_channels)] = describe_key(
        ...,
        '"console", the https:// address of a webhook, or the source of a secret address: "env:NAME" or "file:PATH" of '
        "slack://..., mailto://..., ntfy://..., all that Apprise supports.",
        ["env:SLACK_URL", "console"],
    )
    name: Annotated[str | None, ReadAs(read_name)] = describe_key(None, "Default: the text of `to`.", "team")
    group_by: Annotated[tuple[str, ...], choose_many(*GROUP_BY_FIELDS)] = describe_key(
        ("owner", "policy"), "owner, policy, topic, subject; []: one message for all notices of a run.", ["owner", "policy"]
    )
    repeat: Annotated[tuple[timedelta, ...], ReadAs(_read_repeat)] = describe_key(
        REPEAT_INTERVALS, "After the first message, the last value repeatedly; []: never.", ["4h", "24h", "7d"]
    )
    min_severity: Annotated[str, choose(*SEVERITIES)] = describe_key(INFO, "info, warning, page.", "info")
    match: Annotated[RouteMatchTable | None, require_table('match = { owners = ["alice"] }')] = describe_key(
        None,
        'Owners, policies by their names, topics such as "budget:*", audience (owner, admin: the `to` of a step); default: '
        "all. A message without an owner goes to every route.",
        {"owners": ["alice"], "policies": ["idle-gpu"], "topics": ["budget:*"], "audience": ["owner"]},
    )


class NotifyTable(SettingsModel):
    """The `[notify]` section beside its routes."""

    route: object = ()
    """Read by RouteTable."""
    signed_with: Annotated[str, _read_secret_place("COSTGUARD_WEBHOOK_SECRET")] = describe_key(
        "", "Source of the secret that signs webhooks.", "env:COSTGUARD_WEBHOOK_SECRET"
    )
    mail: Annotated[str, _read_secret_place("MAIL_URL")] = describe_key(
        "",
        "Source of the mail server's address (mailtos://USER:PASSWORD@HOST?from=ADDRESS), for [[report]] and `report --email`.",
        "env:MAIL_URL",
    )
    console_is_delivery: Flag = describe_flag(
        "true where somebody reads the terminal or the journal all the time. The grace before a stop begins when a notice was "
        "delivered; without a route that takes every warning to a person, nothing beyond notify is armed."
    )


def read_notify(notify_table: object, where: str, *, policies: tuple[str, ...]) -> dict[str, object]:
    """Return the fields of `Settings` that the `[notify]` section of the file `where` states.

    `policies`: the names of the policies.
    """
    place = f"{where}: notify"
    table = read_section(notify_table, place, "[[notify.route]], and its keys below it")
    routes: tuple[AlertRoute, ...] = ()
    errors: list[InputError] = []
    with collect_errors(errors):
        plain = read_model(NotifyTable, table, place, ("notify",))
    with collect_errors(errors, ("notify", "route")):
        routes = read_models(
            "notify.route",
            RouteTable,
            table.get("route", []),
            where,
            lambda one: _make_route(one, policies),
            title=lambda _: None,
        )
    raise_errors(errors)
    return {"routes": routes, **{key: value for key, value in plain if key != "route"}}


def _make_route(table: RouteTable, policies: tuple[str, ...]) -> AlertRoute:
    match = table.match or RouteMatchTable()
    topics = [f"policy:{require_one_of(name, policies, '.match.policies')}" for name in match.policies or ()]
    return AlertRoute(
        name=table.name or ", ".join(table.to),
        channels=table.to,
        group_by=table.group_by,
        repeat=table.repeat,
        min_severity=table.min_severity,
        owners=match.owners,
        topics=None if match.policies is None and match.topics is None else (*topics, *(match.topics or ())),
        audience=match.audience,
    )


def is_journal(channel: str) -> bool:
    """Return whether `channel` is the console, a log or this machine's own screen.

    A channel whose address cannot be read now counts as one that reaches a person.
    """
    return channel == CONSOLE_CHANNEL or _read_address(channel).partition("://")[0].lower() in JOURNAL_SCHEMES


def is_pager(channel: str) -> bool:
    """Return whether `channel` keeps incidents open until it is sent their end; False if its address cannot be read now."""
    return PAGER_PATTERN.match(_read_address(channel)) is not None


def _read_address(channel: str) -> str:
    """Return the address of `channel`; "" if it cannot be read."""
    try:
        return resolve_address(channel, "notify.route.to")
    except InputError:
        return ""


def read_channel(text: str, field: str) -> str:
    """Return the name of the channel that `text` states: the console, an address, or the source of an address."""
    return (
        CONSOLE_CHANNEL
        if text in (CONSOLE_CHANNEL, f"{CONSOLE_CHANNEL}:", f"{CONSOLE_CHANNEL}://")
        else check_address(text, field, "SLACK_URL")
    )


REPORT_TO_HINT = 'write to = ["lead@lab.org"], the name of a route, or "env:SLACK_URL"'
NO_MAIL_HINT = (
    'write [notify] mail = "env:MAIL_URL", and set MAIL_URL to the address of your server, '
    "such as mailtos://USER:PASSWORD@smtp.lab.org?from=costguard@lab.org"
)
MAIL_PATTERN = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
CLOCK_PATTERN = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
FORMAT_PATTERN = r"[a-z][a-z0-9-]{0,39}"


def read_recipient(
    text: str, field: str, *, routes: Sequence[AlertRoute], mail: str, hint: str = REPORT_TO_HINT
) -> tuple[str, ...]:
    """Return the channels that `text` refers to: those of a route, a person's mail address, or a channel."""
    for route in routes:
        if route.name == text:
            return route.channels
    if "@" in text and "://" not in text:
        return (read_person(text, field, mail=mail),)
    try:
        return (read_channel(text, field),)
    except InputError as wrong:
        names = [route.name for route in routes]
        near = ", ".join(find_nearest_names(text, names))
        if ":" in text:
            raise
        hint = f"did you mean {near}?" if near else f"routes: {shorten(', '.join(names))}; {hint}" if names else hint
        raise InputError(f"{wrong.what}, and no route has this name", field=field, hint=hint) from None


def read_person(text: str, field: str, *, mail: str) -> str:
    """Return the mail channel of the person `text`; raise InputError if it is no mail address or no mail server is set."""
    what = f"is not an address of a person's mail: {describe_value(text)}"
    require(bool(MAIL_PATTERN.fullmatch(text)) and ".." not in text, field, what, "write lead@lab.org")
    require(bool(mail), field, "goes by mail, and no mail server is set", NO_MAIL_HINT)
    return f"{MAIL_PREFIX}{text}"


def _read_recipients(value: object, field: str) -> tuple[str, ...]:
    texts = read_texts(value, field)
    require(bool(texts), field, "is empty", REPORT_TO_HINT)
    return texts


def _read_by(value: object, field: str) -> tuple[str, ...]:
    try:
        return parse_group_keys(",".join(read_texts(value, field)))
    except InputError as wrong:
        raise InputError(wrong.what, field=field, hint=wrong.hint) from None


def _read_clock(value: object, field: str) -> time:
    if isinstance(value, time):  # TOML has times of its own: 08:00:00
        require(not (value.second or value.microsecond), field, f"must be a whole minute, not {value}", 'write "08:00"')
        return value
    match = CLOCK_PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InputError(
            f"must be a time of day, not {describe_value(value)}", field=field, hint='write "08:00", from 00:00 to 23:59'
        )
    return time(int(match[1]), int(match[2]))


class ReportTable(SettingsModel):
    """A `[[report]]` table: a report that `costguard watch` sends."""

    name: Annotated[str | None, ReadAs(read_name)] = describe_key(
        None, "Identifies the report (default: `every`); sent reports are recorded under it.", "month"
    )
    every: Annotated[str, choose(*REPORT_FREQUENCIES)] = describe_key(
        ..., '"day", "week" (from Monday) or "month", of [defaults] timezone.', "month"
    )
    at: Annotated[time, ReadAs(_read_clock)] = describe_key(time(8), "On the first day after the period.", "08:00")
    to: Annotated[tuple[str, ...], ReadAs(_read_recipients)] = describe_key(
        ..., "Mail addresses, names of routes, or channels as in a route's `to`.", ["lead@lab.org", "team"]
    )
    by: Annotated[tuple[str, ...], ReadAs(_read_by)] = describe_key(
        parse_group_keys(None), "As `report --by`.", ["provider", "owner"]
    )
    format: Annotated[str, fit(FORMAT_PATTERN, "is not a name of a format", 'write "html"')] = describe_key(
        "html", "Of the attachment where a channel takes files; a webhook gets JSON.", "html"
    )
    match: Annotated[MatchTable | None, require_table('{ owners = ["vision"] }')] = describe_key(
        None,
        "Only the spending that it selects, with the budgets within it, as `match` of a budget (default: everything).",
        {"owners": ["vision"]},
    )


def read_reports(value: object, where: str, *, routes: Sequence[AlertRoute], mail: str) -> tuple[ReportSchedule, ...]:
    """Return the report schedules of the file `where` in their order.

    `mail`: source of the mail server's address, as in the settings.
    """

    def make(table: ReportTable) -> ReportSchedule:
        channels = (one for text in table.to for one in read_recipient(text, ".to", routes=routes, mail=mail))
        return ReportSchedule(
            name=table.name or table.every,
            every=table.every,
            channels=tuple(dict.fromkeys(channels)),
            by=table.by,
            at=table.at,
            format=table.format,
            match=make_filter(table.match),
        )

    return read_models("report", ReportTable, value, where, make, title=_find_report_name)


def _find_report_name(table: SettingsTable) -> object:
    return table.get("name", table.get("every") if table.get("every") in REPORT_FREQUENCIES else None)
