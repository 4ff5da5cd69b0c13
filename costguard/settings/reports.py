"""The `[[report]]` tables: what is sent once a day, week or month, and to whom.

    [[report]]
    every = "month"                     # day, week (from Monday) or month, of the [defaults] timezone
    to = ["lead@lab.org", "team"]       # people by their mail, routes by their names, or channels as a route's `to` says them
    name = "month"                      # usually what `every` says; under this name is kept what was sent
    at = "08:00"                        # on the first day after it
    by = ["owner", "gpu"]               # as `costguard report --by`
    format = "html"                     # what is enclosed, where a channel takes files

A person's mail goes through the server that [notify] mail names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import time

from costguard.errors import InputError, shorten
from costguard.guard.alerts.alert import AlertRoute
from costguard.reporting.schedule import MAIL_PREFIX, REPORT_FREQUENCIES, ReportSchedule
from costguard.reporting.statement.groups import parse_group_keys
from costguard.settings.fields import SettingsTable, read_name, read_tables, read_text, read_texts, require_unique_names
from costguard.settings.notify import read_channel
from costguard.values.checks import describe_value, find_nearest_names, require, require_known_keys, require_one_of

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
    """The schedules of `where` (a file) in their order. `mail`: as in the settings."""
    tables = read_tables(stated, where, "report")
    made = tuple(_read_report(table, f"{where}: report {n}", routes, mail) for n, table in enumerate(tables, 1))
    require_unique_names([one.name for one in made], where, "report")
    return made


def read_recipient(
    text: str, field: str, *, routes: Sequence[AlertRoute], mail: str, hint: str = REPORT_TO_HINT
) -> tuple[str, ...]:
    """The channels that `text` means: those of a route, a person's mail, or a channel."""
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
    """The channel that is the mail of the person `text`; InputError where it is none, or no server is named."""
    what = f"is no address of a person's mail: {describe_value(text)}"
    require(bool(MAIL_PATTERN.fullmatch(text)) and ".." not in text, field, what, "write lead@lab.org")
    require(bool(mail), field, "goes by mail, and nothing says through which server", NO_MAIL_HINT)
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
    require(bool(FORMAT_PATTERN.fullmatch(name)), field, f"is no name of a format: {describe_value(name)}", 'write "html"')
    return name
