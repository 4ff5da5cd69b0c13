"""Decide which alerts are sent now and why: alerts of a run plus stored alert states become notifications.

Example: a machine is found idle at 18:50: sent (first). A second of the same owner and policy at 18:55: sent (new in group). A
stop is due: sent (escalated). It still idles at 22:50, on the next day at 18:50, after a week, and every week: sent (repeat
due). It works again for two minutes: sent once (resolved).

A page is sent at once: alone, or for all machines of one policy and owner. A notification names each of its alerts, and a
channel sends a long one in parts. One group (or page) sends at most 6 notifications an hour; what was held back comes with the
next one, resolved alerts included. Pure: the same facts give the same notifications with the same ids.
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
    WITHDRAWN,
    Alert,
    AlertRoute,
    AlertState,
    Notification,
    is_admin_route,
)
from costguard.guard.overrides import SNOOZE, Override
from costguard.values.instant import to_micros
from costguard.values.text_format import format_local_time

NOTIFICATIONS_PER_HOUR_MAX = 6
DIGEST_INTERVAL = timedelta(minutes=15)
"""New information, as of a stop that is done, waits until so long after the last message of its group."""
ANNOUNCEMENTS_MAX, ALERTS_MAX = 20, 100
"""Alerts of one notification, if it announces acts and if not; more are several, which count as one in the hour."""
RESOLVED_MARK = "resolved: "
HOUR = timedelta(hours=1)
RESOLVE_AFTER = timedelta(minutes=2)
"""Flap damping: an alert resolves only after 2 minutes inactive."""
RESOLVED_KEPT_FOR = timedelta(hours=24)
"""How long the state of a resolved alert is kept."""
WITHDRAWN_AFTER = timedelta(hours=1)
"""An act that is expected so much later than announced is announced anew."""
REPEAT_MARGIN = timedelta(hours=1)
"""A repeat due within this time after the last notification is skipped."""

LOG_ROUTE = AlertRoute(name="log", channels=("console",), topics=())
"""Takes the warnings that no route takes, where no route takes all: they stand at least in the log of the watchdog."""

REASON_PRECEDENCE = (ESCALATED, WITHDRAWN, FIRST, NEW_IN_GROUP, SNOOZE_ENDED, REPEAT_DUE, RESOLVED)
"""The first of these that applies is the reason of a notification."""

AlertKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoutedAlert:
    """One alert on one route with its state. `why`: the reason to notify now, "" for none.

    `ends_incident`: it ends, which only pagers are told.
    """

    notice: Alert
    told: AlertState
    why: str
    ends_incident: bool = False


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
    """Return the notifications of this run and the new alert states; commit both in one transaction.

    `states`: as returned by the last run; those of removed routes are dropped. `snoozes`: overrides open now. `after_gap`: the
    first run after a gap, so warnings and pages are sent again. `most_per_hour`: limit per group. `zone`: for times in texts.
    """
    present = [_restrict_audience(notice, routes) for notice in notices]
    unrouted = [notice for notice in present if _is_unrouted(notice, routes)]
    routes = routes if any(map(is_admin_route, routes)) else (*routes, LOG_ROUTE)
    states_by_key = {state.key: state for state in states}
    messages, new_states = list[Notification](), list[AlertState]()
    for route in routes:
        route_states = {key: state for key, state in states_by_key.items() if key[0] == route.name}
        more = unrouted if is_admin_route(route) or route is LOG_ROUTE else ()
        routed = _route_alerts(present, route_states, route, now, snoozes, more=more, after_gap=after_gap)
        groups = defaultdict[tuple[str, ...], list[_RoutedAlert]](list)
        for one in routed:
            groups[_build_group_key(one.notice, route)].append(one)
        for group, members in sorted(groups.items()):
            due = _select_due(members, now, most_per_hour)
            if due:
                messages += _build_notifications(route, group, due, members, now)
            ends = [replace(one, why=RESOLVED) for one in members if one.ends_incident]
            if ends and route.pagers:
                messages += _build_notifications(replace(route, channels=route.pagers), (*group, "end"), ends, (), now)
            told_now = {id(one) for one in due}
            new_states += [_advance_state(one, now, is_sent=id(one) in told_now) for one in members]
    messages = [replace(one, told_at=format_local_time(now, zone)) for one in messages]
    return tuple(messages), tuple(state for state in new_states if _is_kept(state, now))


def _route_alerts(
    present: Iterable[Alert],
    states: Mapping[AlertKey, AlertState],
    route: AlertRoute,
    now: datetime,
    snoozes: Sequence[Override],
    *,
    more: Sequence[Alert],
    after_gap: bool,
) -> list[_RoutedAlert]:
    """Return the active alerts of this route (the most severe per key), then those that no longer hold.

    `more`: alerts of `present` that the route carries although its own match excludes them.
    """
    chosen = dict[AlertKey, Alert]()
    for notice in present:
        key = (route.name, notice.topic, notice.subject, notice.owner)
        if (_is_carried(route, notice, key in states) or notice in more) and (
            key not in chosen or _rank_severity(notice) > _rank_severity(chosen[key])
        ):
            chosen[key] = notice
    routed = list[_RoutedAlert]()
    for key, notice in sorted(chosen.items()):
        state = _reopen_state(states.get(key), notice, now) or _build_state(key, notice, now)
        quiet = _is_snoozed(notice, snoozes)
        if quiet:
            state = replace(state, snoozed=True)
        why = "" if quiet else _find_notify_reason(notice, state, route, now, after_gap=after_gap)
        routed.append(_RoutedAlert(notice=notice, told=state, why=why))
    acted = {notice.subject for notice in present if notice.topic.startswith("act:")}
    for key, state in sorted(states.items()):
        if key not in chosen:
            is_over = state.due is not None and state.subject in acted  # the alert of the act itself tells that it is over
            is_over = is_over or state.topic.startswith("held:")  # as the machines' own alerts do
            routed.append(_resolve_alert(state, now, snoozes, quiet=is_over))
    return routed


def _is_carried(route: AlertRoute, notice: Alert, was_told: bool) -> bool:  # noqa: FBT001 - a fact about the notice
    """Return whether the route carries the alert. Once notified, it is carried until resolved, even below `min_severity`."""
    severe = SEVERITIES.index(notice.severity) >= SEVERITIES.index(route.min_severity)
    owned = route.owners is None or not {notice.owner, *notice.owners}.isdisjoint(route.owners)
    has_topic = route.topics is None or any(_matches_topic(notice.topic, pattern) for pattern in route.topics)
    served = route.audience is None or not notice.to or bool(set(notice.to) & set(route.audience))
    return owned and has_topic and served and (severe or was_told)


def _is_unrouted(notice: Alert, routes: Sequence[AlertRoute]) -> bool:
    """Return whether no route carries a warning or page: it then goes to the admin routes."""
    return notice.severity != INFO and not any(_is_carried(route, notice, False) for route in routes)  # noqa: FBT003 - not told yet


def _restrict_audience(notice: Alert, routes: Sequence[AlertRoute]) -> Alert:
    """Drop recipients that no route serves; with none left the alert goes to everybody, so it is not lost."""
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
        episode=notice.episode,
    )


def _reopen_state(state: AlertState | None, notice: Alert, now: datetime) -> AlertState | None:
    """Return the state of an active alert. A resolved one starts anew but keeps `recent`, for the hourly limit."""
    if state is None or not state.over:
        return None if state is None else replace(state, resolved_at=None)
    if notice.severity == INFO and state.last_told_at is not None and notice.at <= state.last_told_at:
        return replace(state, resolved_at=None)
    return replace(_build_state(state.key, notice, now), recent=state.recent)


def _find_notify_reason(notice: Alert, state: AlertState, route: AlertRoute, now: datetime, *, after_gap: bool) -> str:
    """Return the named reason to notify now; "" for none."""
    if state.snoozed:
        return SNOOZE_ENDED
    if state.last_told_at is None or (notice.episode and notice.episode != state.episode):
        return FIRST
    return _find_change(notice, state) or _find_repeat(notice, state, state.last_told_at, route, now, after_gap=after_gap)


def _find_change(notice: Alert, state: AlertState) -> str:
    """Return the reason to notify of an act that is newly announced, or will not come as announced; "" for none."""
    if state.due is None:
        return ESCALATED if notice.ahead and notice.due is not None else ""
    if notice.undelivered:
        return ""  # the message that waits says what holds when it is sent (`refresh_waiting`)
    later = notice.due is not None and notice.due - state.due > WITHDRAWN_AFTER
    return WITHDRAWN if notice.withdraws or later else ""


def _find_repeat(notice: Alert, state: AlertState, last: datetime, route: AlertRoute, now: datetime, *, after_gap: bool) -> str:
    """Return the reason to notify again about an alert last sent at `last`; "" for none."""
    if notice.once or notice.severity == INFO:
        return RESOLVED if notice.severity == INFO != state.severity else ""
    if SEVERITIES.index(notice.severity) > SEVERITIES.index(state.severity) or notice.stage > state.stage:
        return ESCALATED
    if after_gap or now >= _find_next_repeat(state, last, route):
        return REPEAT_DUE
    return ""


def _find_next_repeat(state: AlertState, last: datetime, route: AlertRoute) -> datetime:
    """Return the next repeat: the first of `repeat` after `first_at` not too close to the last notification."""
    if not route.repeat:
        return datetime.max.replace(tzinfo=last.tzinfo)
    earliest = last + min(REPEAT_MARGIN, route.repeat[0] / 2)
    for delay in route.repeat:
        if state.first_at + delay >= earliest:
            return state.first_at + delay
    every = route.repeat[-1]
    return state.first_at + every * -(-(earliest - state.first_at) // every)


def _resolve_alert(state: AlertState, now: datetime, snoozes: Sequence[Override], *, quiet: bool) -> _RoutedAlert:
    """Resolve an inactive alert after `RESOLVE_AFTER`; without a notification if `quiet`, info, once-only or snoozed."""
    since = state.resolved_at or now
    state = replace(state, resolved_at=since)
    what = f"{RESOLVED_MARK}{state.what or state.subject}"
    notice = Alert(
        topic=state.topic,
        subject=state.subject,
        owner=state.owner,
        severity=state.severity,
        what=what,
        at=since,
        stage=state.stage,
    )
    if state.over or now - since < RESOLVE_AFTER:
        return _RoutedAlert(notice=notice, told=state, why="")
    mild = (state.severity == INFO or state.once or quiet) and state.times > 0
    if mild or state.snoozed or _is_snoozed(notice, snoozes):
        ends = state.times > 0 and not state.once  # of an event nobody knows when it is dealt with
        return _RoutedAlert(notice=notice, told=replace(state, over=True, snoozed=False), why="", ends_incident=ends)
    return _RoutedAlert(notice=notice, told=state, why=RESOLVED)


def _is_snoozed(notice: Alert, snoozes: Sequence[Override]) -> bool:
    """Return whether a snooze covers the alert. A page needs a snooze of its own topic; an empty snooze covers nothing."""
    for override in snoozes:
        if override.what != SNOOZE or (override.key is None and not override.subject):
            continue
        same_subject = override.key is None or notice.subject == "/".join(override.key)
        same_topic = override.subject in {notice.topic, notice.topic.removeprefix("policy:")}
        if same_subject and (same_topic or (not override.subject and notice.severity != PAGE)):
            return True
    return False


def _build_group_key(notice: Alert, route: AlertRoute) -> tuple[str, ...]:
    """Return the group of the alert on this route. A page is alone, or one for all machines of a policy and an owner."""
    if notice.severity == PAGE:
        subject = "" if notice.topic.startswith("policy:") else notice.subject
        return (PAGE, notice.topic, subject, notice.owner)
    parts = {"owner": notice.owner, "policy": notice.topic, "topic": notice.topic, "subject": notice.subject}
    return ("", *(f"{name}={parts[name]}" for name in route.group_by))


def _select_due(members: Sequence[_RoutedAlert], now: datetime, most: int) -> list[_RoutedAlert]:
    """Select the alerts to send. At the hourly limit of the group only new or escalated ones about coming acts are sent.

    A repeat includes all active alerts of the group, so that they repeat together. Example: three machines of one owner are
    stopped at 19:07, 19:12 and 19:22: one message at 19:07, one about two machines at 19:22.
    """
    due = [one for one in members if one.why]
    sent_in_hour = {at for one in members for at in one.told.recent if now - HOUR < at <= now}
    is_news = all(one.notice.severity == INFO and one.why == FIRST for one in due)
    if is_news and any(now - at < DIGEST_INTERVAL for at in sent_in_hour):
        return []
    if len(sent_in_hour) >= most:
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
    notices = tuple(replace(one.notice, is_over=one.why == RESOLVED) for one in ordered)
    size = ANNOUNCEMENTS_MAX if any(one.ahead for one in notices) else ALERTS_MAX
    parts = [notices[start : start + size] for start in range(0, len(notices), size)]
    return [
        Notification(
            id=_hash_parts(route.name, channel, *group, str(to_micros(now)), *([str(number)] if number else [])),
            channel=channel,
            why_now=why,
            severity=severity,
            title=build_title(part),
            notices=part,
            at=now,
            route=route.name,
        )
        for channel in route.channels
        for number, part in enumerate(parts)
    ]


def build_title(notices: Sequence[Alert]) -> str:
    """Return the title of a notification of `notices`: the first, and how many more there are."""
    return notices[0].what if len(notices) == 1 else f"{notices[0].what} (and {len(notices) - 1} more)"


def refresh_waiting(message: Notification, present: Mapping[tuple[str, str, str], Alert]) -> Notification:
    """Return a message that waits for its channel with its alerts as they are now; the same if none changed.

    Example: it was written at 09:15 and says "stops at 09:30". At 09:50 the channel works again: "stops at 10:05".
    `present`: the alerts of this run, by topic, subject and owner.
    """
    notices = tuple(_refresh_alert(one, present.get((one.topic, one.subject, one.owner))) for one in message.notices)
    return message if notices == message.notices else replace(message, notices=notices, title=build_title(notices))


_OVER = (("next", "nothing: it no longer holds"),)


def _refresh_alert(old: Alert, new: Alert | None) -> Alert:
    """Return what holds now in the place of `old`; an announcement that no longer holds says so, and announces nothing."""
    if not old.facts or old.once:  # the end of an alert, or an event
        return old
    if new is not None:
        return replace(new, is_over=old.is_over and new.severity == INFO)
    if old.facts == _OVER:
        return old
    return replace(old, what=f"{RESOLVED_MARK}{old.condition_name}", facts=_OVER, ahead=False, due=None, is_over=True)


def _advance_state(one: _RoutedAlert, now: datetime, *, is_sent: bool) -> AlertState:
    """Return the state after this run. `is_sent`: it was sent now."""
    recent = tuple(at for at in one.told.recent if now - HOUR < at <= now)
    if not is_sent:
        due = one.notice.due if one.notice.undelivered and one.notice.due and one.told.due else one.told.due
        return replace(one.told, recent=recent, what=one.told.what or one.notice.condition_name, due=due)
    over = one.told.resolved_at is not None
    return replace(
        one.told,
        last_told_at=now,
        times=one.told.times + 1,
        stage=one.notice.stage,
        severity=one.notice.severity,
        what=one.told.what if over else one.notice.condition_name,
        snoozed=False,
        episode=one.notice.episode or one.told.episode,
        due=one.notice.due,
        over=over,
        recent=(*recent, now),
    )


def _is_kept(state: AlertState, now: datetime) -> bool:
    return not state.over or state.resolved_at is None or now - state.resolved_at < RESOLVED_KEPT_FOR


def _rank_severity(notice: Alert) -> tuple[int, int]:
    return SEVERITIES.index(notice.severity), notice.stage


def _hash_parts(*parts: str) -> str:
    """Return a repeatable id: 128-bit FNV-1a. It tells notifications apart; it is not a secret."""
    digest = 0x6C62272E07BB014262B821756295C58D
    for byte in "\0".join(part.replace("\0", "\ufffd") for part in parts).encode("utf-8", "replace"):
        digest = (digest ^ byte) * 0x0000000001000000000000000000013B % 2**128
    return f"{digest:032x}"
