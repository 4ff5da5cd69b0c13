"""Who is told what now, and why now: notices of a run, beside what was told before, become messages.

Example: a machine is found idle at 18:50: told (first). A second of the same owner and policy at 18:55: told (new in group).
A stop is due: told (escalated). It still idles at 22:50, on the next day at 18:50, after a week, and every week: told (repeat
due). It works again for two minutes: told once (resolved).

A page goes by itself at once, never put together with others. Of one group (and of one page) at most six messages go an hour;
what came meanwhile comes together in the next, also what is over by then. Nothing here knows a clock: a run that is repeated
with the same facts gives the same messages with the same ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.guard.alerts.alert import (
    ESCALATED,
    FIRST,
    INFO,
    NEW_IN_GROUP,
    PAGE,
    REPEAT_DUE,
    RESOLVED,
    SEVERITIES,
    SNOOZE_ENDED,
    WARNING,
    Message,
    Notice,
    Route,
    Told,
)
from costguard.guard.overrides import SNOOZE, Wish
from costguard.values.instant import to_micros
from costguard.values.text_format import format_local_time

MOST_PER_HOUR = 6
HOUR = timedelta(hours=1)
SETTLED = timedelta(minutes=2)
"""What holds no more is over after this long: what flickers is told neither as over nor as new."""
KEPT = timedelta(hours=24)
"""How long is known of what is over that it was told."""
REST = timedelta(hours=1)
"""A repeat that is due within this long of the last message is left out."""

WEIGHT = (ESCALATED, FIRST, NEW_IN_GROUP, SNOOZE_ENDED, REPEAT_DUE, RESOLVED)
"""Why a message goes that has several reasons: the first of these."""

Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One notice on one route, beside what was told of it. `why`: the reason to tell it now, "" for none."""

    notice: Notice
    told: Told
    why: str


def tell(
    notices: Iterable[Notice],
    states: Iterable[Told],
    *,
    now: datetime,
    routes: Sequence[Route],
    snoozes: Sequence[Wish] = (),
    after_gap: bool = False,
    most_per_hour: int = MOST_PER_HOUR,
    zone: tzinfo = UTC,
) -> tuple[tuple[Message, ...], tuple[Told, ...]]:
    """The messages of this run and all that is known afterwards, to be committed together.

    `states`: what the last run handed out. `snoozes`: wishes that are open now. `after_gap`: this is the first run after a gap,
    so warnings and pages are sent again. A route that is not there any more is forgotten. `zone`: whose clocks people go by.
    """
    present = [_addressed(notice, routes) for notice in notices]
    known = {told.key: told for told in states}
    messages, after = list[Message](), list[Told]()
    for route in routes:
        mine = {key: told for key, told in known.items() if key[0] == route.name}
        found = _found(present, mine, route, now, snoozes, after_gap=after_gap)
        groups = defaultdict[tuple[str, ...], list[_Found]](list)
        for one in found:
            groups[_group(one.notice, route)].append(one)
        for group, members in sorted(groups.items()):
            due = _due(members, now, most_per_hour)
            if due:
                messages += _messages(route, group, due, members, now)
            told_now = {id(one) for one in due}
            after += [_after(one, now, told=id(one) in told_now) for one in members]
    messages = [replace(one, told_at=format_local_time(now, zone)) for one in messages]
    return tuple(messages), tuple(told for told in after if _is_kept(told, now))


def _found(
    present: Iterable[Notice],
    mine: Mapping[Key, Told],
    route: Route,
    now: datetime,
    snoozes: Sequence[Wish],
    *,
    after_gap: bool,
) -> list[_Found]:
    """All that holds on this route, each once (the most severe of its key), then all that holds no more."""
    chosen = dict[Key, Notice]()
    for notice in present:
        key = (route.name, notice.topic, notice.subject, notice.owner)
        if _concerns(route, notice, key in mine) and (key not in chosen or _rank(notice) > _rank(chosen[key])):
            chosen[key] = notice
    found = list[_Found]()
    for key, notice in sorted(chosen.items()):
        told = _returned(mine.get(key), notice, now) or _new(key, notice, now)
        quiet = _is_snoozed(notice, snoozes)
        if quiet:
            told = replace(told, snoozed=True)
        why = "" if quiet else _why(notice, told, route, now, after_gap=after_gap)
        found.append(_Found(notice=notice, told=told, why=why))
    for key, told in sorted(mine.items()):
        if key not in chosen:
            found.append(_gone(told, now, snoozes))
    return found


def _concerns(route: Route, notice: Notice, was_told: bool) -> bool:  # noqa: FBT001 - a fact about the notice
    """Whether the route carries it. What it was told of it carries to its end, though it became milder."""
    severe = SEVERITIES.index(notice.severity) >= SEVERITIES.index(route.min_severity)
    owned = route.owners is None or notice.owner in route.owners
    meant = route.topics is None or any(_fits(notice.topic, pattern) for pattern in route.topics)
    served = route.audience is None or not notice.to or bool(set(notice.to) & set(route.audience))
    return owned and meant and served and (severe or was_told)


def _addressed(notice: Notice, routes: Sequence[Route]) -> Notice:
    """`notice` for those alone whom a route serves; for everybody where none does, so that none is lost."""
    open_to_all = any(route.audience is None for route in routes)
    to = tuple(one for one in notice.to if open_to_all or any(one in (route.audience or ()) for route in routes))
    return notice if to == notice.to else replace(notice, to=to)


def _fits(topic: str, pattern: str) -> bool:
    return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern


def _new(key: Key, notice: Notice, now: datetime) -> Told:
    route, topic, subject, owner = key
    return Told(
        route=route,
        topic=topic,
        subject=subject,
        owner=owner,
        first_at=now,
        stage=notice.stage,
        severity=notice.severity,
        once=notice.once,
    )


def _returned(told: Told | None, notice: Notice, now: datetime) -> Told | None:
    """What was told of a notice that holds. One that was over begins anew, and keeps only how often it was told lately."""
    if told is None or not told.over:
        return None if told is None else replace(told, resolved_at=None)
    if notice.severity == INFO and told.last_told_at is not None and notice.at <= told.last_told_at:
        return replace(told, resolved_at=None)
    return replace(_new(told.key, notice, now), recent=told.recent)


def _why(notice: Notice, told: Told, route: Route, now: datetime, *, after_gap: bool) -> str:
    """The named reason to tell it now; "" where there is none."""
    if told.snoozed:
        return SNOOZE_ENDED
    if told.last_told_at is None:
        return FIRST
    if notice.once or notice.severity == INFO:
        return RESOLVED if notice.severity == INFO != told.severity else ""
    if SEVERITIES.index(notice.severity) > SEVERITIES.index(told.severity) or notice.stage > told.stage:
        return ESCALATED
    if after_gap or now >= _next_repeat(told, told.last_told_at, route):
        return REPEAT_DUE
    return ""


def _next_repeat(told: Told, last: datetime, route: Route) -> datetime:
    """When it is told again: at the first of `repeat` after `first_at` that is not too near to the last message."""
    if not route.repeat:
        return datetime.max.replace(tzinfo=last.tzinfo)
    earliest = last + min(REST, route.repeat[0] / 2)
    for after in route.repeat:
        if told.first_at + after >= earliest:
            return told.first_at + after
    every = route.repeat[-1]
    return told.first_at + every * -(-(earliest - told.first_at) // every)


def _gone(told: Told, now: datetime, snoozes: Sequence[Wish]) -> _Found:
    """One that holds no more: told once, after it has settled; in silence where it was mild, or was snoozed."""
    since = told.resolved_at or now
    told = replace(told, resolved_at=since)
    what = f"over: {told.what}" if told.what else f"over: {told.subject}"
    notice = Notice(
        topic=told.topic, subject=told.subject, owner=told.owner, severity=told.severity, what=what, at=since, stage=told.stage
    )
    if told.over or now - since < SETTLED:
        return _Found(notice=notice, told=told, why="")
    mild = (told.severity == INFO or told.once) and told.times > 0
    if mild or told.snoozed or _is_snoozed(notice, snoozes):
        return _Found(notice=notice, told=replace(told, over=True, snoozed=False), why="")
    return _Found(notice=notice, told=told, why=RESOLVED)


def _is_snoozed(notice: Notice, snoozes: Sequence[Wish]) -> bool:
    """Whether somebody wants quiet about it. A page is quieted only by a snooze of its very topic. An empty snooze is none."""
    for wish in snoozes:
        if wish.what != SNOOZE or (wish.key is None and not wish.subject):
            continue
        here = wish.key is None or notice.subject == "/".join(wish.key)
        named = wish.subject in {notice.topic, notice.topic.removeprefix("policy:")}
        if here and (named or (not wish.subject and notice.severity != PAGE)):
            return True
    return False


def _group(notice: Notice, route: Route) -> tuple[str, ...]:
    """What it is put together with; a page with nothing but itself."""
    if notice.severity == PAGE:
        return (PAGE, notice.topic, notice.subject, notice.owner)
    parts = {"owner": notice.owner, "policy": notice.topic, "topic": notice.topic, "subject": notice.subject}
    return ("", *(f"{name}={parts[name]}" for name in route.group_by))


def _due(members: Sequence[_Found], now: datetime, most: int) -> list[_Found]:
    """Those to be told now: where the group was told as often as it may be within the hour, only news of acts that come next.

    With a repeat goes all that holds, so that one group has one rhythm.
    """
    due = [one for one in members if one.why]
    lately = {at for one in members for at in one.told.recent if now - HOUR < at <= now}
    if len(lately) >= most:
        return [one for one in due if one.notice.ahead and one.why in {FIRST, ESCALATED}]
    if any(one.why == REPEAT_DUE for one in due):
        due += [one for one in members if not one.why and _still_holds(one)]
    return due


def _still_holds(one: _Found) -> bool:
    return one.told.resolved_at is None and not one.told.snoozed and one.notice.severity != INFO and not one.told.once


def _messages(
    route: Route, group: tuple[str, ...], due: Sequence[_Found], members: Sequence[_Found], now: datetime
) -> list[Message]:
    reasons = {one.why for one in due}
    why = next(reason for reason in WEIGHT if reason in reasons)
    if why == FIRST and any(one.told.times and _still_holds(one) for one in members):
        why = NEW_IN_GROUP
    ordered = sorted(due, key=lambda one: (one.why == RESOLVED, -_rank(one.notice)[0], one.notice.subject, one.notice.topic))
    severity = max((WARNING if one.why == RESOLVED else one.notice.severity for one in due), key=SEVERITIES.index)
    if reasons == {RESOLVED}:
        severity = INFO
    notices = tuple(one.notice for one in ordered)
    title = notices[0].what if len(notices) == 1 else f"{notices[0].what} (and {len(notices) - 1} more)"
    return [
        Message(
            id=_name(route.name, channel, *group, str(to_micros(now))),
            channel=channel,
            why_now=why,
            severity=severity,
            title=title,
            notices=notices,
            at=now,
        )
        for channel in route.channels
    ]


def _after(one: _Found, now: datetime, *, told: bool) -> Told:
    """What is known of it from now on."""
    recent = tuple(at for at in one.told.recent if now - HOUR < at <= now)
    if not told:
        return replace(one.told, recent=recent, what=one.told.what or one.notice.what)
    over = one.told.resolved_at is not None
    return replace(
        one.told,
        last_told_at=now,
        times=one.told.times + 1,
        stage=one.notice.stage,
        severity=one.notice.severity,
        what=one.told.what if over else one.notice.what,
        snoozed=False,
        over=over,
        recent=(*recent, now),
    )


def _is_kept(told: Told, now: datetime) -> bool:
    return not told.over or told.resolved_at is None or now - told.resolved_at < KEPT


def _rank(notice: Notice) -> tuple[int, int]:
    return SEVERITIES.index(notice.severity), notice.stage


def _name(*parts: str) -> str:
    """An id that the same parts give again: FNV-1a of 128 bits. It only tells messages of one run apart, and hides nothing."""
    found = 0x6C62272E07BB014262B821756295C58D
    for byte in "\0".join(part.replace("\0", "\ufffd") for part in parts).encode("utf-8", "replace"):
        found = (found ^ byte) * 0x0000000001000000000000000000013B % 2**128
    return f"{found:032x}"
