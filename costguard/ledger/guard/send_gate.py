"""Last check before a request: may this intent be sent now? It runs in the transaction that marks it as sent."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import ColumnElement, func, or_
from sqlalchemy import select as select_columns
from sqlalchemy.orm import aliased
from sqlmodel import col, select

from costguard.guard.action_intents import EXECUTING, VERIFYING, Intent
from costguard.guard.escalation import HookRun
from costguard.guard.overrides import FREEZE, LEASE, PROTECT, Override, list_approved_acts
from costguard.guard.policy import CAP_RULE, HOLD_REASONS, PERSON_RULE, START, STOP, TERMINATE, Rails
from costguard.ledger.db.codecs import Query
from costguard.ledger.guard.guard_state import LeaderLease, is_leader, load_leader_lease, load_open_overrides
from costguard.ledger.guard.intents import is_on_resource, is_send
from costguard.ledger.tables.intents import IntentEventRow, IntentRow
from costguard.ledger.tables.spans import ObservationRow, ResourceRow
from costguard.ledger.types import RESOURCE_KEY
from costguard.values.instant import to_micros
from costguard.values.resource import INSTANCE, RUNNING

TEN_MINUTES, AN_HOUR, A_DAY = timedelta(minutes=10), timedelta(hours=1), timedelta(days=1)


class SendRefusal(NamedTuple):
    """A refused send.

    `reason`: a key of `HOLD_REASONS`. `told`: the details, in words.
    """

    reason: str
    told: str


def find_refusal(
    ask: Query,
    rails: Rails,
    intent: Intent,
    now: datetime,
    *,
    run: str,
    fleet: int | None,
    accepted: frozenset[str] = frozenset(),
) -> SendRefusal | None:
    """Return why `intent` may not be sent at `now`; None if it may. A person's act needs no leader and no room in the limits.

    `run`: the name of the guard run that the send counts in. `fleet`: how many machines run; None: as counted in the ledger.
    `accepted`: the policies of hard caps that have limits of their own (`find_accepted_caps`).
    """
    if intent.rule == PERSON_RULE:
        return _find_override(intent, load_open_overrides(ask, now)) or _find_uncertain_intent(ask, intent)
    turn = load_leader_lease(ask)
    if not is_leader(turn, intent.epoch, now):
        return SendRefusal("not_acting", f"{HOLD_REASONS['not_acting']}: {_describe_leader(turn, intent.epoch)}")
    overrides = load_open_overrides(ask, now)
    approved = intent.act in list_approved_acts(intent.life, overrides, now)
    return (
        _find_override(intent, overrides)
        or _find_uncertain_intent(ask, intent)
        or _find_exceeded_limit(ask, rails, intent, now, run=run, fleet=fleet, approved=approved, accepted=accepted)
    )


def may_begin_hook(ask: Query, run: HookRun, now: datetime) -> bool:
    """Return whether a hook may begin at `now`: its epoch leads, and no freeze, protection or lease applies."""
    return is_leader(load_leader_lease(ask), run.epoch, now) and _find_override(run, load_open_overrides(ask, now)) is None


def build_run_name(ask: Query, run: str) -> str:
    """Return the name under which sends of the present guard run are counted: `run`, or epoch and round of the lease."""
    turn = load_leader_lease(ask)
    return run or (f"{turn.epoch}.{turn.rounds}" if turn else "")


def count_machines(ask: Query, now: datetime) -> int:
    """Return the size of the fleet.

    It counts machines that ran when last listed, and machines for which a request was sent within a day.

    Stopped machines keep counting for that day, because otherwise the limits would leave no room for the last machines of a
    hard cap.
    """
    newest = aliased(ObservationRow)
    last = select(func.max(newest.id)).where(newest.resource_id == ResourceRow.id).correlate(ResourceRow).scalar_subquery()
    running = (
        select_columns(*(getattr(ResourceRow, name) for name in RESOURCE_KEY))
        .join(ObservationRow, col(ObservationRow.id) == last)
        .where(col(ResourceRow.kind) == INSTANCE, col(ObservationRow.state) == RUNNING)
    )
    fleet = running.union(select_columns(*_INTENT_KEY).where(_was_sent_after(now - A_DAY))).subquery()
    number: int = ask(select(func.count()).select_from(fleet))[0]
    return number


def _describe_leader(turn: LeaderLease | None, epoch: int) -> str:
    if turn is None:
        return "no watchdog holds the leader lease"
    return f"{turn.holder or 'nobody'} holds the lease, epoch {turn.epoch}, until {turn.until:%H:%M:%S}, not epoch {epoch}"


def _find_override(intent: Intent | HookRun, overrides: list[Override]) -> SendRefusal | None:
    """Return a refusal by an override made since the intent was planned.

    A lease keeps a machine running: it holds no act of a hard cap, and no start by a person.
    """
    by_person = isinstance(intent, Intent) and intent.act == START and intent.rule == PERSON_RULE
    own = [override for override in overrides if override.key == intent.life.key and override.life in (None, intent.life)]
    for reason, holding in (
        ("frozen", [override for override in overrides if override.what == FREEZE]),
        ("protected", [override for override in own if override.what == PROTECT]),
        ("leased", [override for override in own if override.what == LEASE and intent.rule != CAP_RULE and not by_person]),
    ):
        if holding:
            return SendRefusal(reason, f"{HOLD_REASONS[reason]}: {holding[-1].who}, {holding[-1].why}")
    return None


def _find_uncertain_intent(ask: Query, intent: Intent) -> SendRefusal | None:
    """Return a refusal because another intent on the same resource has an unknown outcome.

    A start that its provider took, and that has not begun, may be withdrawn by a person's stop: that sends no start twice.
    """
    uncertain = select(IntentRow.id, IntentRow.act, IntentRow.state).where(
        is_on_resource(intent.life.key), col(IntentRow.state).in_((EXECUTING, VERIFYING)), col(IntentRow.id) != intent.id
    )
    withdraws = intent.rule == PERSON_RULE and intent.act == STOP
    for name, act, state in ask(uncertain.order_by(col(IntentRow.id))):
        if withdraws and (act, state) == (START, VERIFYING):
            continue
        return SendRefusal("in_doubt", f"{HOLD_REASONS['in_doubt']}: {act} {name} is {state}")
    return None


def _find_exceeded_limit(
    ask: Query,
    rails: Rails,
    intent: Intent,
    now: datetime,
    *,
    run: str,
    fleet: int | None,
    approved: bool,
    accepted: frozenset[str],
) -> SendRefusal | None:
    """Return the limit it would break; None for none. An approved act is held by those of a run and of loss alone.

    Starts have limits of their own, and use up none of those of acts that stop. So have the hard caps in `accepted`.
    """
    if intent.act == START:
        return _find_exceeded_start_limit(ask, rails, intent, now, run=run)
    kind = [col(IntentRow.rule) == CAP_RULE if intent.rule == CAP_RULE else col(IntentRow.rule) != CAP_RULE]
    if intent.rule == CAP_RULE and intent.policy in accepted:
        rails = rails.limit_caps()
    elif intent.rule == CAP_RULE:
        rails, kind = rails.limit_unaccepted(), []  # an unaccepted hard cap counts what all others did
    in_run = _count_sends_in_run(ask, run, _STOPS, *kind)
    if in_run >= rails.acts_per_run:
        return _make_rate_refusal(f"{in_run} sent in this run, of {rails.acts_per_run}")
    acts_10m, machines_10m = _count_others(ask, intent, now - TEN_MINUTES, *kind)
    if acts_10m >= rails.acts_per_10m and not approved:
        return _make_rate_refusal(f"{acts_10m} acts in 10 minutes, of {rails.acts_per_10m}")
    size = count_machines(ask, now) if fleet is None else fleet
    _, machines_day = _count_others(ask, intent, now - A_DAY, *kind)
    for stopped, most, words in (
        (machines_10m, max(1, int(size * rails.fleet_share_10m)), "10 minutes"),
        (machines_day, max(rails.acts_least_day, 1, int(size * rails.fleet_share_day)), "a day"),
    ):
        if stopped >= most and not approved:
            return _make_rate_refusal(f"{stopped} of {size} machines in {words}, of {most}")
    if intent.irreversible or intent.act == TERMINATE:
        loses = or_(col(IntentRow.irreversible) == 1, col(IntentRow.act) == TERMINATE)
        lost = _count_other_intents(ask, intent, now - AN_HOUR, loses, *kind)
        if lost >= rails.irreversible_per_h:
            return _make_rate_refusal(f"{lost} acts in an hour that lose data, of {rails.irreversible_per_h}")
    return None


def _find_exceeded_start_limit(ask: Query, rails: Rails, intent: Intent, now: datetime, *, run: str) -> SendRefusal | None:
    in_run = _count_sends_in_run(ask, run, ~_STOPS)
    if in_run >= rails.starts_per_run:
        return _make_rate_refusal(f"{in_run} started in this run, of {rails.starts_per_run}")
    in_hour = _count_other_intents(ask, intent, now - AN_HOUR, ~_STOPS)
    if in_hour >= rails.starts_per_h:
        return _make_rate_refusal(f"{in_hour} started in an hour, of {rails.starts_per_h}")
    return None


def _make_rate_refusal(reason: str) -> SendRefusal:
    return SendRefusal("rate", f"{HOLD_REASONS['rate']}: {reason}")


def _count_others(ask: Query, intent: Intent, since: datetime, *kind: ColumnElement[bool]) -> tuple[int, int]:
    """Return how many other intents, and other machines, had a request sent after `since`."""
    rows = ask(select_columns(col(IntentRow.id), *_INTENT_KEY).where(_was_sent_after(since), _STOPS, *kind))
    return (
        len({name for name, *_ in rows if name != intent.id}),
        len({key for _, *key_ in rows if (key := tuple(key_)) != tuple(intent.life.key)}),
    )


def _count_other_intents(ask: Query, intent: Intent, since: datetime, *kind: ColumnElement[bool]) -> int:
    others = select(func.count()).select_from(IntentRow).where(_was_sent_after(since), col(IntentRow.id) != intent.id, *kind)
    number: int = ask(others)[0]
    return number


def _count_sends_in_run(ask: Query, run: str, *kind: ColumnElement[bool]) -> int:
    sends = select(func.count()).select_from(IntentEventRow).join(IntentRow, col(IntentRow.id) == IntentEventRow.intent_id)
    number: int = ask(sends.where(is_send(IntentEventRow), col(IntentEventRow.run) == run, *kind))[0]
    return number


def _was_sent_after(since: datetime) -> ColumnElement[bool]:
    return col(IntentRow.sent_us) > to_micros(since)


_INTENT_KEY = tuple(getattr(IntentRow, name) for name in RESOURCE_KEY)
_STOPS = col(IntentRow.act) != START
"""Every act that is no start: the ones that the limits of a run and of the fleet count."""
