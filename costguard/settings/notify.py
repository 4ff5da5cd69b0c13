"""Reads the `[notify]` section with its routes, the `[[report]]` tables, and the addresses that they use.

An address of a channel, a hook or the heartbeat is one of these; a secret address is referred to by its source:

    "console"                         the terminal of the watchdog
    "https://example.com/costguard"   a webhook whose address contains no secret
    "env:SLACK_URL"                   the variable that holds the address, such as slack://... (any that Apprise supports)
    "file:/run/secrets/slack"         the file that holds it

Routes state who receives which messages, and how often they are repeated:

    [notify]
    signed_with = "env:COSTGUARD_WEBHOOK_SECRET"    # source of the secret that signs webhooks; or "file:PATH"
    console_is_delivery = false                     # true: somebody reads the console or journal, so it counts as delivered
    mail = "env:MAIL_URL"                           # source of the mail server's address (mailto://...) for mail to people
    [[notify.route]]
    to = ["env:SLACK_URL", "console"]               # addresses as above
    name = "team"                                   # default: the text of `to`
    group_by = ["owner", "policy"]                  # also topic, subject; []: one message for all notices of a run
    repeat = ["4h", "24h", "7d"]                    # after the first message; the last one repeats; []: never
    min_severity = "warning"                        # info, warning, page
    match = { owners = ["alice"], policies = ["idle-gpu"], topics = ["budget:*"],
              audience = ["owner"] }                    # of a step's `to`: owner, admin

An AlertRoute holds the names of its channels, as written in `to`; `resolve_address` reads a secret address when a message is
sent.

Reports are sent once a day, week or month:

    [[report]]
    every = "month"                     # day, week (from Monday) or month, of the [defaults] timezone
    to = ["lead@lab.org", "team"]       # mail addresses of people, names of routes, or channels as in a route's `to`
    name = "month"                      # default: `every`; sent reports are recorded under this name
    at = "08:00"                        # on the first day after the period
    by = ["owner", "gpu"]               # as `costguard report --by`
    format = "html"                     # of the attachment, if a channel accepts files

Mail to a person is sent through the server that [notify] mail names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from costguard.errors import InputError, shorten
from costguard.guard.alerts.alert import AUDIENCES, GROUP_BY_FIELDS, INFO, REPEAT_INTERVALS, SEVERITIES, AlertRoute
from costguard.reporting.schedule import MAIL_PREFIX, REPORT_FREQUENCIES, ReportSchedule
from costguard.reporting.statement.groups import parse_group_keys
from costguard.settings.fields import (
    SettingsTable,
    describe_unlike,
    parse_duration,
    read_flag,
    read_inner,
    read_name,
    read_tables,
    read_text,
    read_texts,
    require_unique_names,
)
from costguard.settings.files import expand_path
from costguard.system.file_security import describe_exposure
from costguard.system.input_file import read_input_file
from costguard.values.checks import describe_value, find_nearest_names, require, require_known_keys, require_one_of

CONSOLE_CHANNEL = "console"
JOURNAL_SCHEMES = ("syslog", "rsyslog", "journald", "dbus", "gnome", "glib", "kde", "macosx", "windows")
"""Of addresses that write into a log or onto this machine's own screen (Apprise 1.9), where nobody may be."""
VARIABLE_PATTERN = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
FILE_PATTERN = re.compile(r"file:(\S.*)")
SCHEME_PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
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
    require(not secret, field, "holds a secret, as it seems; the settings file must not contain one", cure)
    return text


def resolve_address(text: str, field: str, folder: Path | None = None, *, what: str = "address") -> str:
    """Return the address that `text` states or refers to.

    Raise InputError for `field` if the variable or file is missing or empty, or if others can read the file. `folder`: base of
    a relative file path; None: the working folder. `what`: the word for it in messages.
    """
    variable, file = VARIABLE_PATTERN.fullmatch(text), FILE_PATTERN.fullmatch(text)
    if variable:
        found = os.environ.get(variable[1], "").strip()
        require(bool(found), field, f"the variable {variable[1]} is not set", f"set {variable[1]} to the {what}")
        return found
    if file is None:
        return text
    path = (folder or Path()) / expand_path(file[1])
    try:
        found = read_input_file(path, SECRET_BYTES_MAX).decode().strip()
    except (OSError, ValueError):
        raise InputError(
            f"{path} cannot be read", field=field, hint=f"write the path of a file that holds the {what}"
        ) from None
    require(bool(found), field, f"{path} is empty", f"write the {what} into it")
    others = describe_exposure(path)
    require(not others, field, f"{path} holds a secret and {others}", f"chmod 600 '{path}'")
    return found


ROUTE_KEYS = ("to", "name", "group_by", "repeat", "min_severity", "match")
ROUTE_MATCH_KEYS = ("owners", "policies", "topics", "audience")
SECRET_FIELDS = {"signed_with": "COSTGUARD_WEBHOOK_SECRET", "mail": "MAIL_URL"}
"""Keys that say where a secret is kept, and the variable that it might be."""
ROUTE_TO_HINT = 'write to = ["console"], "env:SLACK_URL" or "https://example.com/hook"'
REPEAT_MIN = timedelta(minutes=15)
"""A repeat more often than this is a storm."""


class NotifySettings(NamedTuple):
    """The `[notify]` section.

    `signed_with`: source of the secret that signs webhooks; `mail`: source of the mail server's address; "": none.
    `console_is_delivery`: a notice on the console or in a journal counts as delivered.
    """

    routes: tuple[AlertRoute, ...]
    signed_with: str
    mail: str
    console_is_delivery: bool


def read_notify(stated: object, where: str, *, policies: tuple[str, ...]) -> NotifySettings:
    """Return the `[notify]` section of the file `where`.

    `policies`: the names of the policies.
    """
    if not isinstance(stated, Mapping):
        told = f"must be a table, not {describe_unlike(stated)}"
        raise InputError(told, field=f"{where}: notify", hint="write [[notify.route]], and its keys below it")
    require_known_keys(stated, ("route", "console_is_delivery", *SECRET_FIELDS), f"{where}: notify")
    tables = read_tables(stated.get("route", []), where, "notify.route")
    routes = tuple(_read_route(table, f"{where}: notify.route {number}", policies) for number, table in enumerate(tables, 1))
    require_unique_names([route.name for route in routes], where, "notify.route")
    signed_with, mail = (
        _read_secret_place(stated[key], f"{where}: notify.{key}", key) if key in stated else "" for key in SECRET_FIELDS
    )
    console = read_flag(stated.get("console_is_delivery", False), f"{where}: notify.console_is_delivery")
    return NotifySettings(routes, signed_with, mail, console)


def _read_secret_place(stated: object, field: str, key: str) -> str:
    """Return the source of a secret; raise InputError if `stated` is not `env:NAME` or `file:PATH`."""
    text = read_text(stated, field)
    kept = VARIABLE_PATTERN.fullmatch(text) or FILE_PATTERN.fullmatch(text)
    hint = f'write "env:{SECRET_FIELDS[key]}", or "file:PATH" of a file that holds it'
    require(kept is not None, field, "holds a secret; the settings file must not contain one", hint)
    return text


def _read_route(table: SettingsTable, place: str, policies: tuple[str, ...]) -> AlertRoute:
    require_known_keys(table, ROUTE_KEYS, place)
    if "to" not in table:
        raise InputError("is missing", field=f"{place}.to", hint=ROUTE_TO_HINT)
    channels = tuple(dict.fromkeys(read_channel(text, f"{place}.to") for text in read_texts(table["to"], f"{place}.to")))
    require(bool(channels), f"{place}.to", "is empty", ROUTE_TO_HINT)
    name = read_name(table["name"], f"{place}.name", "team") if "name" in table else ", ".join(channels)
    match = read_inner(table["match"], f"{place}.match", 'match = { owners = ["alice"] }') if "match" in table else {}
    require_known_keys(match, ROUTE_MATCH_KEYS, f"{place}.match")
    grouped = read_texts(table.get("group_by", ["owner", "policy"]), f"{place}.group_by")
    return AlertRoute(
        name=name,
        channels=channels,
        group_by=tuple(require_one_of(key, GROUP_BY_FIELDS, f"{place}.group_by") for key in grouped),
        repeat=_read_repeat(table["repeat"], f"{place}.repeat") if "repeat" in table else REPEAT_INTERVALS,
        min_severity=require_one_of(table.get("min_severity", INFO), SEVERITIES, f"{place}.min_severity"),
        owners=read_texts(match["owners"], f"{place}.match.owners") if "owners" in match else None,
        topics=_read_topics(match, f"{place}.match", policies),
        audience=_read_audience(match["audience"], f"{place}.match.audience") if "audience" in match else None,
    )


def is_journal(channel: str) -> bool:
    """Return whether `channel` is the console, a log or this machine's own screen.

    A channel whose address cannot be read now counts as one that reaches a person.
    """
    if channel == CONSOLE_CHANNEL:
        return True
    try:
        address = resolve_address(channel, "notify.route.to")
    except InputError:
        return False
    return address.partition("://")[0].lower() in JOURNAL_SCHEMES


def read_channel(text: str, field: str) -> str:
    """Return the name of the channel that `text` states: the console, an address, or the source of an address."""
    return (
        CONSOLE_CHANNEL
        if text in (CONSOLE_CHANNEL, f"{CONSOLE_CHANNEL}:", f"{CONSOLE_CHANNEL}://")
        else check_address(text, field, "SLACK_URL")
    )


def _read_repeat(stated: object, field: str) -> tuple[timedelta, ...]:
    times = tuple(parse_duration(text, field, least=REPEAT_MIN) for text in read_texts(stated, field))
    rising = all(earlier < later for earlier, later in pairwise(times))
    require(rising, field, "must rise from one to the next", 'write ["4h", "24h", "7d"]')
    return times


def _read_audience(stated: object, field: str) -> tuple[str, ...]:
    """Return the audiences that a route matches, from AUDIENCES."""
    return tuple(require_one_of(one, AUDIENCES, field) for one in read_texts(stated, field))


def _read_topics(match: SettingsTable, field: str, policies: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the topics that a route matches; None: all."""
    if "policies" not in match and "topics" not in match:
        return None
    named = read_texts(match.get("policies", []), f"{field}.policies")
    topics = [f"policy:{require_one_of(name, policies, f'{field}.policies')}" for name in named]
    return (*topics, *read_texts(match.get("topics", []), f"{field}.topics"))


REPORT_KEYS = ("name", "every", "at", "to", "by", "format")
REPORT_TO_HINT = 'write to = ["lead@lab.org"], the name of a route, or "env:SLACK_URL"'
NO_MAIL_HINT = (
    'write [notify] mail = "env:MAIL_URL", and set MAIL_URL to the address of your server, '
    "such as mailtos://USER:PASSWORD@smtp.lab.org?from=costguard@lab.org"
)
MAIL_PATTERN = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
CLOCK_PATTERN = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
FORMAT_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,39}")


def read_reports(stated: object, where: str, *, routes: Sequence[AlertRoute], mail: str) -> tuple[ReportSchedule, ...]:
    """Return the report schedules of the file `where` in their order.

    `mail`: source of the mail server's address, as in the settings.
    """
    tables = read_tables(stated, where, "report")
    made = tuple(_read_report(table, f"{where}: report {n}", routes, mail) for n, table in enumerate(tables, 1))
    require_unique_names([one.name for one in made], where, "report")
    return made


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


def _read_report(table: SettingsTable, place: str, routes: Sequence[AlertRoute], mail: str) -> ReportSchedule:
    require_known_keys(table, REPORT_KEYS, place)
    every = require_one_of(_require_key(table, "every", place, 'write every = "month"'), REPORT_FREQUENCIES, f"{place}.every")
    name = read_name(table["name"], f"{place}.name", "month") if "name" in table else every
    place = f"{place} ({name})"
    texts = read_texts(_require_key(table, "to", place, REPORT_TO_HINT), f"{place}.to")
    require(bool(texts), f"{place}.to", "is empty", REPORT_TO_HINT)
    channels = (one for text in texts for one in read_recipient(text, f"{place}.to", routes=routes, mail=mail))
    return ReportSchedule(
        name=name,
        every=every,
        channels=tuple(dict.fromkeys(channels)),
        by=_read_by(table, f"{place}.by"),
        at=_read_clock(table.get("at", "08:00"), f"{place}.at"),
        format=_read_format(table.get("format", "html"), f"{place}.format"),
    )


def _require_key(table: SettingsTable, key: str, place: str, hint: str) -> object:
    if key not in table:
        raise InputError("is missing", field=f"{place}.{key}", hint=hint)
    return table[key]


def _read_by(table: SettingsTable, field: str) -> tuple[str, ...]:
    if "by" not in table:
        return parse_group_keys(None)
    try:
        return parse_group_keys(",".join(read_texts(table["by"], field)))
    except InputError as wrong:
        raise InputError(wrong.what, field=field, hint=wrong.hint) from None


def _read_clock(stated: object, field: str) -> time:
    if isinstance(stated, time):  # TOML has times of its own: 08:00:00
        require(not (stated.second or stated.microsecond), field, f"must be a whole minute, not {stated}", 'write "08:00"')
        return stated
    found = CLOCK_PATTERN.fullmatch(stated.strip()) if isinstance(stated, str) else None
    if found is None:
        raise InputError(
            f"must be a time of day, not {describe_value(stated)}", field=field, hint='write "08:00", from 00:00 to 23:59'
        )
    return time(int(found[1]), int(found[2]))


def _read_format(stated: object, field: str) -> str:
    name = read_text(stated, field)
    require(bool(FORMAT_PATTERN.fullmatch(name)), field, f"is not a name of a format: {describe_value(name)}", 'write "html"')
    return name
