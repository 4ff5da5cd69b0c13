"""The `[notify]` section and its `[[notify.route]]` tables: who is told, of what, and how often again.

    [notify]
    signed_with = "env:COSTGUARD_WEBHOOK_SECRET"    # what webhooks are signed with; "file:PATH" likewise
    mail = "env:MAIL_URL"                           # the server (mailto://...) that mail to a person goes through
    [[notify.route]]
    to = ["env:SLACK_URL", "console"]               # see addresses
    name = "team"                                   # usually what `to` says
    group_by = ["owner", "policy"]                  # also topic, subject; [] puts all of a run together
    repeat = ["4h", "24h", "7d"]                    # after the first message, the last one again and again; [] never
    min_severity = "warning"                        # info, warning, page
    match = { owners = ["alice"], policies = ["idle-gpu"], topics = ["budget:*"],
              audience = ["owner"] }                    # of a step's `to`: owner, admin

A Route carries the names of its channels, which are what `to` says: an address that is secret is read where it is kept, by
`addresses.revealed`, when something is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple

from costguard.errors import InputError
from costguard.guard.alerts.alert import AUDIENCES, GROUP_BY_FIELDS, INFO, REPEAT_INTERVALS, SEVERITIES, AlertRoute
from costguard.settings.addresses import CONSOLE_CHANNEL, FILE_PATTERN, VARIABLE_PATTERN, check_address
from costguard.settings.fields import (
    SettingsTable,
    describe_unlike,
    read_inner,
    read_name,
    read_tables,
    read_text,
    read_texts,
    require_unique_names,
)
from costguard.settings.lasting import parse_duration
from costguard.values.checks import require, require_known_keys, require_one_of

ROUTE_KEYS = ("to", "name", "group_by", "repeat", "min_severity", "match")
ROUTE_MATCH_KEYS = ("owners", "policies", "topics", "audience")
SECRET_FIELDS = {"signed_with": "COSTGUARD_WEBHOOK_SECRET", "mail": "MAIL_URL"}
"""Keys that say where a secret is kept, and the variable that it might be."""
ROUTE_TO_HINT = 'write to = ["console"], "env:SLACK_URL" or "https://example.com/hook"'
REPEAT_MIN = timedelta(minutes=15)
"""A repeat more often than this is a storm."""


class NotifySettings(NamedTuple):
    """The `[notify]` section. `signed_with`: where the secret of webhooks is kept, `mail`: the server of mail; "": nowhere."""

    routes: tuple[AlertRoute, ...]
    signed_with: str
    mail: str


def read_notify(stated: object, where: str, *, policies: tuple[str, ...]) -> NotifySettings:
    """What `where` (a file) says of it. `policies`: their names."""
    if not isinstance(stated, Mapping):
        told = f"must be a table, not {describe_unlike(stated)}"
        raise InputError(told, field=f"{where}: notify", hint="write [[notify.route]], and its keys below it")
    require_known_keys(stated, ("route", *SECRET_FIELDS), f"{where}: notify")
    tables = read_tables(stated.get("route", []), where, "notify.route")
    routes = tuple(_read_route(table, f"{where}: notify.route {number}", policies) for number, table in enumerate(tables, 1))
    require_unique_names([route.name for route in routes], where, "notify.route")
    signed_with, mail = (
        _read_secret_place(stated[key], f"{where}: notify.{key}", key) if key in stated else "" for key in SECRET_FIELDS
    )
    return NotifySettings(routes, signed_with, mail)


def _read_secret_place(stated: object, field: str, key: str) -> str:
    """Where a secret is kept."""
    text = read_text(stated, field)
    kept = VARIABLE_PATTERN.fullmatch(text) or FILE_PATTERN.fullmatch(text)
    hint = f'write "env:{SECRET_FIELDS[key]}", or "file:PATH" of a file that holds it'
    require(kept is not None, field, "holds a secret, and the settings file holds none", hint)
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


def read_channel(text: str, field: str) -> str:
    """The name of the channel that `text` states: the console, an address, or where one is kept."""
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
    """For whom it is, of AUDIENCES."""
    return tuple(require_one_of(one, AUDIENCES, field) for one in read_texts(stated, field))


def _read_topics(match: SettingsTable, field: str, policies: tuple[str, ...]) -> tuple[str, ...] | None:
    """The topics that are meant; None for any."""
    if "policies" not in match and "topics" not in match:
        return None
    named = read_texts(match.get("policies", []), f"{field}.policies")
    topics = [f"policy:{require_one_of(name, policies, f'{field}.policies')}" for name in named]
    return (*topics, *read_texts(match.get("topics", []), f"{field}.topics"))
