"""Who is told what now, and why now: notices of a run, beside what was told before, become messages.

Example: a machine is found idle at 18:50: told (first). A second of the same owner and policy at 18:55: told (new in group).
A stop is due: told (escalated). It still idles at 22:50, on the next day at 18:50, after a week, and every week: told (repeat
due). It works again for two minutes: told once (resolved).

A page goes by itself at once, never put together with others. Of one group (and of one page) at most six messages go an hour;
what came meanwhile comes together in the next, also what is over by then. Nothing here knows a clock: a run that is repeated
with the same facts gives the same messages with the same ids.

A message as text: why it comes, then of each notice what, whose, since when, why, how much, what next, how to keep it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.guard.alerts.alert import (
    ESCALATED,
    FIRST,
    INFO,
    NEW_IN_GROUP,
    NOTIFY_REASONS,
    PAGE,
    REPEAT_DUE,
    RESOLVED,
    SEVERITIES,
    SNOOZE_ENDED,
    WARNING,
    Alert,
    AlertRoute,
    AlertState,
    Notification,
)
from costguard.guard.overrides import SNOOZE, Override
from costguard.values.instant import to_micros
from costguard.values.text_format import TITLE_CHARS_MAX, encode_plain, format_local_time

NOTIFICATIONS_PER_HOUR_MAX = 6
HOUR = timedelta(hours=1)
RESOLVE_AFTER = timedelta(minutes=2)
"""What holds no more is over after this long: what flickers is told neither as over nor as new."""
RESOLVED_KEPT_FOR = timedelta(hours=24)
"""How long is known of what is over that it was told."""
REPEAT_MARGIN = timedelta(hours=1)
"""A repeat that is due within this long of the last message is left out."""

REASON_PRECEDENCE = (ESCALATED, FIRST, NEW_IN_GROUP, SNOOZE_ENDED, REPEAT_DUE, RESOLVED)
"""Why a message goes that has several reasons: the first of these."""

AlertKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoutedAlert:
    """One notice on one route, beside what was told of it. `why`: the reason to tell it now, "" for none."""

    notice: Alert
    told: AlertState
    why: str


def dispatch_alerts(
    notices: Iterable[Alert],
    states: Iterable[AlertState],
    *,
    now: datetime,
    routes: Sequence[AlertRoute],
    snoozes: Sequence[Override] = (),
    after_gap: bool = False,
    most_per_hour: int = NOTIFICATIONS_PER_HOUR_MAX,
    zone: tzinfo = UTC,
) -> tuple[tuple[Notification, ...], tuple[AlertState, ...]]:
    """The messages of this run and all that is known afterwards, to be committed together.

    `states`: what the last run handed out. `snoozes`: wishes that are open now. `after_gap`: this is the first run after a gap,
    so warnings and pages are sent again. A route that is not there any more is forgotten. `zone`: whose clocks people go by.
    """
    present = [_restrict_audience(notice, routes) for notice in notices]
    known = {told.key: told for told in states}
    messages, after = list[Notification](), list[AlertState]()
    for route in routes:
        mine = {key: told for key, told in known.items() if key[0] == route.name}
        found = _route_alerts(present, mine, route, now, snoozes, after_gap=after_gap)
        groups = defaultdict[tuple[str, ...], list[_RoutedAlert]](list)
        for one in found:
            groups[_build_group_key(one.notice, route)].append(one)
        for group, members in sorted(groups.items()):
            due = _select_due(members, now, most_per_hour)
            if due:
                messages += _build_notifications(route, group, due, members, now)
            told_now = {id(one) for one in due}
            after += [_advance_state(one, now, told=id(one) in told_now) for one in members]
    messages = [replace(one, told_at=format_local_time(now, zone)) for one in messages]
    return tuple(messages), tuple(told for told in after if _is_kept(told, now))


def _route_alerts(
    present: Iterable[Alert],
    mine: Mapping[AlertKey, AlertState],
    route: AlertRoute,
    now: datetime,
    snoozes: Sequence[Override],
    *,
    after_gap: bool,
) -> list[_RoutedAlert]:
    """All that holds on this route, each once (the most severe of its key), then all that holds no more."""
    chosen = dict[AlertKey, Alert]()
    for notice in present:
        key = (route.name, notice.topic, notice.subject, notice.owner)
        if _is_carried(route, notice, key in mine) and (
            key not in chosen or _rank_severity(notice) > _rank_severity(chosen[key])
        ):
            chosen[key] = notice
    found = list[_RoutedAlert]()
    for key, notice in sorted(chosen.items()):
        told = _reopen_state(mine.get(key), notice, now) or _build_state(key, notice, now)
        quiet = _is_snoozed(notice, snoozes)
        if quiet:
            told = replace(told, snoozed=True)
        why = "" if quiet else _find_notify_reason(notice, told, route, now, after_gap=after_gap)
        found.append(_RoutedAlert(notice=notice, told=told, why=why))
    for key, told in sorted(mine.items()):
        if key not in chosen:
            found.append(_resolve_alert(told, now, snoozes))
    return found


def _is_carried(route: AlertRoute, notice: Alert, was_told: bool) -> bool:  # noqa: FBT001 - a fact about the notice
    """Whether the route carries it. What it was told of it carries to its end, though it became milder."""
    severe = SEVERITIES.index(notice.severity) >= SEVERITIES.index(route.min_severity)
    owned = route.owners is None or notice.owner in route.owners
    meant = route.topics is None or any(_matches_topic(notice.topic, pattern) for pattern in route.topics)
    served = route.audience is None or not notice.to or bool(set(notice.to) & set(route.audience))
    return owned and meant and served and (severe or was_told)


def _restrict_audience(notice: Alert, routes: Sequence[AlertRoute]) -> Alert:
    """`notice` for those alone whom a route serves; for everybody where none does, so that none is lost."""
    open_to_all = any(route.audience is None for route in routes)
    to = tuple(one for one in notice.to if open_to_all or any(one in (route.audience or ()) for route in routes))
    return notice if to == notice.to else replace(notice, to=to)


def _matches_topic(topic: str, pattern: str) -> bool:
    return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern


def _build_state(key: AlertKey, notice: Alert, now: datetime) -> AlertState:
    route, topic, subject, owner = key
    return AlertState(
        route=route,
        topic=topic,
        subject=subject,
        owner=owner,
        first_at=now,
        stage=notice.stage,
        severity=notice.severity,
        once=notice.once,
    )


def _reopen_state(told: AlertState | None, notice: Alert, now: datetime) -> AlertState | None:
    """What was told of a notice that holds. One that was over begins anew, and keeps only how often it was told lately."""
    if told is None or not told.over:
        return None if told is None else replace(told, resolved_at=None)
    if notice.severity == INFO and told.last_told_at is not None and notice.at <= told.last_told_at:
        return replace(told, resolved_at=None)
    return replace(_build_state(told.key, notice, now), recent=told.recent)


def _find_notify_reason(notice: Alert, told: AlertState, route: AlertRoute, now: datetime, *, after_gap: bool) -> str:
    """The named reason to tell it now; "" where there is none."""
    if told.snoozed:
        return SNOOZE_ENDED
    if told.last_told_at is None:
        return FIRST
    if notice.once or notice.severity == INFO:
        return RESOLVED if notice.severity == INFO != told.severity else ""
    if SEVERITIES.index(notice.severity) > SEVERITIES.index(told.severity) or notice.stage > told.stage:
        return ESCALATED
    if after_gap or now >= _find_next_repeat(told, told.last_told_at, route):
        return REPEAT_DUE
    return ""


def _find_next_repeat(told: AlertState, last: datetime, route: AlertRoute) -> datetime:
    """When it is told again: at the first of `repeat` after `first_at` that is not too near to the last message."""
    if not route.repeat:
        return datetime.max.replace(tzinfo=last.tzinfo)
    earliest = last + min(REPEAT_MARGIN, route.repeat[0] / 2)
    for after in route.repeat:
        if told.first_at + after >= earliest:
            return told.first_at + after
    every = route.repeat[-1]
    return told.first_at + every * -(-(earliest - told.first_at) // every)


def _resolve_alert(told: AlertState, now: datetime, snoozes: Sequence[Override]) -> _RoutedAlert:
    """One that holds no more: told once, after it has settled; in silence where it was mild, or was snoozed."""
    since = told.resolved_at or now
    told = replace(told, resolved_at=since)
    what = f"over: {told.what}" if told.what else f"over: {told.subject}"
    notice = Alert(
        topic=told.topic, subject=told.subject, owner=told.owner, severity=told.severity, what=what, at=since, stage=told.stage
    )
    if told.over or now - since < RESOLVE_AFTER:
        return _RoutedAlert(notice=notice, told=told, why="")
    mild = (told.severity == INFO or told.once) and told.times > 0
    if mild or told.snoozed or _is_snoozed(notice, snoozes):
        return _RoutedAlert(notice=notice, told=replace(told, over=True, snoozed=False), why="")
    return _RoutedAlert(notice=notice, told=told, why=RESOLVED)


def _is_snoozed(notice: Alert, snoozes: Sequence[Override]) -> bool:
    """Whether somebody wants quiet about it. A page is quieted only by a snooze of its very topic. An empty snooze is none."""
    for wish in snoozes:
        if wish.what != SNOOZE or (wish.key is None and not wish.subject):
            continue
        here = wish.key is None or notice.subject == "/".join(wish.key)
        named = wish.subject in {notice.topic, notice.topic.removeprefix("policy:")}
        if here and (named or (not wish.subject and notice.severity != PAGE)):
            return True
    return False


def _build_group_key(notice: Alert, route: AlertRoute) -> tuple[str, ...]:
    """What it is put together with; a page with nothing but itself."""
    if notice.severity == PAGE:
        return (PAGE, notice.topic, notice.subject, notice.owner)
    parts = {"owner": notice.owner, "policy": notice.topic, "topic": notice.topic, "subject": notice.subject}
    return ("", *(f"{name}={parts[name]}" for name in route.group_by))


def _select_due(members: Sequence[_RoutedAlert], now: datetime, most: int) -> list[_RoutedAlert]:
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


def _still_holds(one: _RoutedAlert) -> bool:
    return one.told.resolved_at is None and not one.told.snoozed and one.notice.severity != INFO and not one.told.once


def _build_notifications(
    route: AlertRoute, group: tuple[str, ...], due: Sequence[_RoutedAlert], members: Sequence[_RoutedAlert], now: datetime
) -> list[Notification]:
    reasons = {one.why for one in due}
    why = next(reason for reason in REASON_PRECEDENCE if reason in reasons)
    if why == FIRST and any(one.told.times and _still_holds(one) for one in members):
        why = NEW_IN_GROUP
    ordered = sorted(
        due, key=lambda one: (one.why == RESOLVED, -_rank_severity(one.notice)[0], one.notice.subject, one.notice.topic)
    )
    severity = max((WARNING if one.why == RESOLVED else one.notice.severity for one in due), key=SEVERITIES.index)
    if reasons == {RESOLVED}:
        severity = INFO
    notices = tuple(one.notice for one in ordered)
    title = notices[0].what if len(notices) == 1 else f"{notices[0].what} (and {len(notices) - 1} more)"
    return [
        Notification(
            id=_hash_parts(route.name, channel, *group, str(to_micros(now))),
            channel=channel,
            why_now=why,
            severity=severity,
            title=title,
            notices=notices,
            at=now,
        )
        for channel in route.channels
    ]


def _advance_state(one: _RoutedAlert, now: datetime, *, told: bool) -> AlertState:
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


def _is_kept(told: AlertState, now: datetime) -> bool:
    return not told.over or told.resolved_at is None or now - told.resolved_at < RESOLVED_KEPT_FOR


def _rank_severity(notice: Alert) -> tuple[int, int]:
    return SEVERITIES.index(notice.severity), notice.stage


def _hash_parts(*parts: str) -> str:
    """An id that the same parts give again: FNV-1a of 128 bits. It only tells messages of one run apart, and hides nothing."""
    found = 0x6C62272E07BB014262B821756295C58D
    for byte in "\0".join(part.replace("\0", "\ufffd") for part in parts).encode("utf-8", "replace"):
        found = (found ^ byte) * 0x0000000001000000000000000000013B % 2**128
    return f"{found:032x}"


ALERTS_SHOWN = 20
"""Notices of one message that are written out; the rest is counted."""
SEVERITY_MARKS = {PAGE: "PAGE: ", "warning": "", "info": ""}

TextEncoder = Callable[[str], str]


def format_title(message: Notification, encode: TextEncoder = encode_plain) -> str:
    """One line: `costguard: PAGE: STOP NOT CONFIRMED ...`."""
    mark = (
        "over: " if message.why_now == RESOLVED and not message.title.startswith("over: ") else SEVERITY_MARKS[message.severity]
    )
    text = encode(message.title)
    head = f"costguard: {mark}"
    return head + (text if len(head) + len(text) <= TITLE_CHARS_MAX else f"{text[: TITLE_CHARS_MAX - len(head) - 1]}…")


def format_body(message: Notification, encode: TextEncoder = encode_plain) -> str:
    """The text below the title. Each line of it went through `encode` by itself, so that no name can make a line of its own."""
    parts = [f"Sent now because {NOTIFY_REASONS[message.why_now]}, at {message.told_at or format_local_time(message.at)}."]
    parts += ["\n".join(encode(line) for line in paragraph) for paragraph in message.letter]
    parts += ["\n".join(_format_alert_lines(notice, encode)) for notice in message.notices[:ALERTS_SHOWN]]
    more = len(message.notices) - ALERTS_SHOWN
    if more > 0:
        parts.append(f"and {more} more: costguard status")
    if message.audit:
        parts.append(f"audit {encode(message.audit)}")
    return "\n\n".join(parts)


def _format_alert_lines(notice: Alert, encode: TextEncoder) -> list[str]:
    whose = encode(notice.owner) if notice.owner else "unknown"
    lines = [encode(notice.what), f"  of what: {encode(notice.subject)}", f"  whose: {whose}"]
    lines += [f"  {encode(label)}: {encode(text)}" for label, text in notice.facts]
    return lines if not notice.keep else [*lines, f"  to keep it: {encode(notice.keep)}"]
