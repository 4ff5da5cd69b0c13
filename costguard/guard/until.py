"""The date that ends a machine: its label `costguard:until`, or what `costguard until set` recorded for this run of it.

People, scripts and agents that rent a machine write it; a policy with `match = { until_label = "passed" }` notifies before the
date and stops after it. A date only ends a machine. It holds no idle rule, no cap and no other policy: a lease does that.

Example: `costguard:until=2026-12-01T18:00Z`, or in a GCP label, which has no capitals and colons,
`costguard-until=2026-12-01t18-00z`. A text without a zone, a date from before the machine was created, and one that is further
ahead than the policy's `until_max` count as missing, and people are notified of it. The newest statement counts: what
`until set` recorded holds until somebody changes the label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.errors import InputError, shorten, to_one_line
from costguard.guard.overrides import UNTIL, Override, is_override_open
from costguard.guard.policy import PASSED, UNTIL_MISSING
from costguard.metering.observation import Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.values.resource import Incarnation, is_same_life
from costguard.values.text_format import format_length, format_local_time

LABEL_KEYS = frozenset(("costguard:until", "costguard-until", "costguard_until"))
"""In any case. Keys of GCP labels have neither colons nor capitals (Compute Engine, labeling resources, 2026-11)."""
AHEAD = "ahead"
TIME_PATTERN = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?", re.ASCII)
"""Not all of ISO 8601, which reads 18-05 as six in the evening five hours west of UTC."""
GCP_PATTERN = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)(?:-(\d\d))?Z", re.ASCII)
ZONE_OFFSET_MAX = timedelta(hours=14)
"""Of any time zone (tz database 2025b: Pacific/Kiritimati)."""
TEXT_CHARS_MAX = 60
UNTIL_HINT = "write 2026-12-01T18:00Z, or 2026-12-01t18-00z in a GCP label"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndDate:
    """When a machine ends. `state`: passed, ahead or missing. `at`: None if it is missing.

    `why`: the date with its source, or why there is none, in words. `fault`: a date is stated, and it cannot count.
    """

    state: str
    why: str
    at: datetime | None = None
    fault: bool = False


def parse_until(text: str) -> datetime:
    """Return the time in `text`, which ends with `Z` or an offset, in UTC. Raises InputError without a field."""
    date_text = text.strip().upper()
    if not date_text:
        raise InputError("is empty", hint=UNTIL_HINT)
    if gcp := GCP_PATTERN.fullmatch(date_text):
        day, *clock = gcp.groups(default="00")
        date_text = f"{day}T{':'.join(clock)}Z"
    if not TIME_PATTERN.fullmatch(date_text):
        raise InputError("is no date with a time and a zone", hint=UNTIL_HINT)
    try:
        at = datetime.fromisoformat(date_text)
        offset = at.utcoffset()
        if offset is not None and abs(offset) <= ZONE_OFFSET_MAX:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError("is a time that does not exist", hint=UNTIL_HINT) from None
    raise InputError("has no time zone" if offset is None else "has a zone that does not exist", hint=UNTIL_HINT)


def find_until_override(life: Incarnation, overrides: Iterable[Override], now: datetime) -> Override | None:
    """Return the newest date that somebody recorded for this incarnation; None: there is none."""
    dates = [
        one
        for one in overrides
        if one.what == UNTIL and one.life and is_same_life(one.life, life) and is_override_open(one, now)
    ]
    return max(dates, key=lambda one: (one.at, one.id), default=None)


def list_ended_dates(overrides: Iterable[Override], live: Iterable[LiveResource], now: datetime) -> list[Override]:
    """Return the recorded dates of runs that are over: of a machine that has ended or was started again since."""
    dates = [one for one in overrides if one.what == UNTIL and one.life and is_override_open(one, now)]
    live_by_key = {one.observation.key: one for one in live} if dates else {}
    return [one for one in dates if one.life and not _may_go_on(one, one.life, live_by_key.get(one.life.key))]


def _may_go_on(override: Override, life: Incarnation, live: LiveResource | None) -> bool:
    if live is None:
        return False
    return live.seen_at <= override.at or is_same_life(identify_incarnation(live.observation), life)


def list_until_labels(observation: Observation) -> list[str]:
    """Return its until labels as `key=value`, in order."""
    return sorted(f"{key}={value}" for key, value in observation.labels if key.casefold() in LABEL_KEYS)


def join_until_labels(observation: Observation) -> str:
    """Return what an override remembers of the labels, so that a later change of them counts."""
    return ", ".join(list_until_labels(observation))


def read_end_date(
    observation: Observation, override: Override | None, now: datetime, ahead_max: timedelta, zone: tzinfo = UTC
) -> EndDate:
    """Return when the machine ends by its labels and by `override` (from `find_until_override`).

    `ahead_max`: a date further ahead of `now` counts as missing. `zone`: for times in words.
    """
    labels = list_until_labels(observation)
    if override is not None and override.value == join_until_labels(observation):
        source, at = f"{override.who} set its end to", datetime.fromisoformat(override.subject)
    elif not labels:
        return EndDate(state=UNTIL_MISSING, why="no label costguard:until states when it ends")
    else:
        label_text = " and ".join(shorten(to_one_line(label), TEXT_CHARS_MAX) for label in labels)
        if len({label.partition("=")[2] for label in labels}) > 1:
            return _refuse_date(f"its labels {label_text} differ: remove one")
        try:
            at = parse_until(labels[0].partition("=")[2])
        except InputError as error:
            return _refuse_date(f"its label {label_text} {error.what}: {error.hint}")
        source = f"its label {label_text} ends it at"
        if observation.created_at is not None and at < observation.created_at:
            return _refuse_date(f"its label {label_text} is from before the machine was created: {UNTIL_HINT}")
    if at - now > ahead_max:
        last = format_local_time(now + ahead_max, zone)
        return _refuse_date(f"{source} {format_local_time(at, zone)}, more than {format_length(ahead_max)} ahead: state {last}")
    return EndDate(state=PASSED if at <= now else AHEAD, why=f"{source} {format_local_time(at, zone)}", at=at)


def _refuse_date(why: str) -> EndDate:
    return EndDate(state=UNTIL_MISSING, why=f"{why}; until then it counts as missing", fault=True)
