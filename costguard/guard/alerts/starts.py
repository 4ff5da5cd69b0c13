"""Alerts of starts: a machine runs again or lacks its GPU, a start is not confirmed, did not take place, or takes too long.

Example: box is due at 08:00 and costs $3.60 an hour instead of $2.99: "box was not started: its price is $3.60 an hour now,
more than 10 % above $2.99 before its stop", with the command that starts it all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.guard.action_intents import DONE, OPEN_STATES, UNCONFIRMED, Intent
from costguard.guard.alerts.alert import (
    INFO,
    PAGE,
    WARNING,
    Alert,
    AlertSubject,
    build_alert,
    format_alert_rate,
    format_alert_sum,
)
from costguard.guard.policy import START, STOP, TERMINATE
from costguard.guard.scheduled_starts import ScheduledStart, is_failed_try
from costguard.guard.slow_starts import find_arriving_since
from costguard.metering.spending import LiveResource
from costguard.values.money import Rate
from costguard.values.resource import RUNNING, ResourceKey
from costguard.values.text_format import format_command

STARTED_TOLD_FOR = timedelta(hours=1)
"""How long a confirmed start stays an alert."""
UNTOLD_HOLDS = frozenset(("touched",))
"""Somebody took the machine over: that it stays stopped is what they want, as far as is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCost:
    """What a start was sent for: its compute price an hour (None: unknown), and the GPUs that it had."""

    price: Rate | None = None
    gpus: float = 0


UNKNOWN_START = StartCost()


def list_sent_start_alerts(
    intents: Iterable[Intent],
    live: Mapping[ResourceKey, LiveResource],
    subjects: Mapping[ResourceKey, AlertSubject],
    costs: Mapping[str, StartCost],
    now: datetime,
) -> Iterator[Alert]:
    """Yield alerts of starts that were sent. `subjects`: of listed machines; `costs`: by intent id."""
    for intent in intents:
        one, matter = live.get(intent.life.key), subjects.get(intent.life.key)
        if intent.act != START or intent.sent_at is None or one is None or matter is None:
            continue
        matter, cost = replace(matter, topic=f"act:{START}"), costs.get(intent.id, UNKNOWN_START)
        if intent.state == UNCONFIRMED:
            yield _build_unconfirmed_start(intent, matter, cost, now)
        elif intent.state == DONE and now - intent.moved_at < STARTED_TOLD_FOR:
            yield _build_started(intent, one, matter, cost)


def _build_unconfirmed_start(intent: Intent, matter: AlertSubject, cost: StartCost, now: datetime) -> Alert:
    facts = (
        ("per hour", format_alert_rate(cost.price)),
        ("since", matter.format_time(intent.sent_at or intent.moved_at, now)),
        ("why", intent.outcome or "its provider does not list it as running"),
        ("next", "no second request; every run checks whether it runs, and it costs money from its start on"),
        ("to cancel it", format_command("stop", matter.key)),
    )
    what, condition = f"START NOT CONFIRMED: {matter.called}", f"unconfirmed start of {matter.short_name}"
    return build_alert(matter, PAGE, what, now, facts, keep=False, stage=9, condition=condition)


def _build_started(intent: Intent, one: LiveResource, matter: AlertSubject, cost: StartCost) -> Alert:
    observation = one.observation
    lost = observation.state == RUNNING and cost.gpus > observation.gpu_count
    facts = (
        ("per hour", format_alert_rate(cost.price)),
        ("why", intent.why),
        (
            "requested",
            f"{matter.format_time(intent.sent_at or intent.moved_at, intent.moved_at)}, confirmed by its provider's listing",
        ),
        ("next", "stop it, unless it is of use without these GPUs" if lost else "its policies apply again"),
    )
    moment = matter.format_time(intent.moved_at, intent.moved_at)
    what = f"{matter.called} runs again since {moment}"
    if lost:
        what = f"{matter.called} was started at {moment} with {observation.gpu_count:g} of its {cost.gpus:g} GPUs"
    return build_alert(matter, PAGE if lost else INFO, what, intent.moved_at, facts, keep=False, stage=2)


def list_slow_start_alerts(starting: Iterable[tuple[LiveResource, AlertSubject]], now: datetime) -> Iterator[Alert]:
    """Yield an alert of each of `starting`, the slow starts."""
    for one, matter in starting:
        facts = (
            ("per hour", format_alert_rate(matter.rate)),
            ("so far", format_alert_sum(one.spent.expected)),
            ("next", "it may be billed and may never run: hard caps count it at this price"),
            ("to stop it", format_command(TERMINATE if one.observation.handling.stops is False else STOP, matter.key)),
        )
        since = matter.format_time(find_arriving_since(one), now)
        what = f"{matter.called} does not start: {one.observation.state} since {since}"
        yield build_alert(matter, WARNING, what, now, facts, keep=False, condition=f"slow start of {matter.short_name}")


def list_missed_start_alerts(
    starts: Iterable[ScheduledStart], subjects: Mapping[ResourceKey, AlertSubject], now: datetime
) -> Iterator[Alert]:
    """Yield an alert of each start that is due and does not take place until a person acts, or that failed and is retried."""
    for start in starts:
        matter = subjects.get(start.proposal.verdict.life.key)
        if matter is None or start.proposal.due_at > now:
            continue
        lasting = start.list_lasting_holds()
        failed = bool(start.tries) and is_failed_try(start.tries[-1])
        if start.tries and start.tries[-1].state in OPEN_STATES:
            continue  # it may have been started: the alerts of acts that were sent say so
        if any(reason in UNTOLD_HOLDS for reason, _ in lasting) or not (lasting or failed):
            continue
        yield _build_missed(start, replace(matter, topic=f"start:{start.policy.name}"), lasting, now)


def _build_missed(start: ScheduledStart, matter: AlertSubject, lasting: list[tuple[str, str]], now: datetime) -> Alert:
    again = next((says for reason, says in start.proposal.held_by if reason == "retry"), "")
    last = start.tries[-1].outcome if start.tries else ""
    why = lasting[0][1] if lasting else last or "its provider refused"
    following = f"it is tried again: {again.rpartition('; ')[2]}" if again and not lasting else "nothing automatic"
    facts = (
        ("per hour before", format_alert_rate(start.price)),
        ("to start it", format_command("start", matter.key)),
        ("due", f"{matter.format_time(start.proposal.due_at, now)}, at the end of the off period of {start.policy.name}"),
        ("why", why),
        ("stopped", matter.format_time(start.own_stop.moved_at, now)),
        ("next", following),
    )
    what, condition = f"{matter.called} was not started: {why}", f"missed start of {matter.short_name}"
    return build_alert(matter, WARNING, what, now, facts, keep=False, stage=2 if lasting else 1, condition=condition)
