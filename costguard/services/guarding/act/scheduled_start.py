"""Start one machine that a schedule stopped: ask its price, write the intent, look twice, send once.

    price, budget -> intent (or a cancelled one that says why not) -> look, still? -> EXECUTING -> look, still? -> send once

A start that must not be sent leaves a cancelled intent with the reason, so that a restart of the watchdog does not ask anew at
once: the next try waits as after a failure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from secrets import token_hex
from typing import TYPE_CHECKING

from costguard.budgets.budget_status import BudgetStatus
from costguard.guard.action_intents import CANCELLED, CONFIRM_WITHIN, DONE, OPEN_STATES, READY, Intent
from costguard.guard.policy import START
from costguard.guard.scheduled_starts import (
    ScheduledStart,
    StartPromise,
    explain_short_window,
    explain_start_budget,
    explain_start_price,
    explain_touched,
    explain_wanted_off,
    format_rate,
    list_tries,
    list_try_holds,
)
from costguard.metering.observation import Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.services.guarding.act.send_action import ActionPorts, ActionResult, fetch_start_price, send_action
from costguard.services.guarding.guard_snapshot import decode_price, encode_evidence, encode_price, load_start_history
from costguard.system.clock import Clock
from costguard.system.tracing import trace_span
from costguard.values.resource import RUNNING, ResourceKey

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.guard.store import GuardStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StartDesk:
    """What a start needs of its run. `find_objection`: what forbids an act now, by the rules of the plan, "" for nothing.

    `seconds`: a clock that nobody sets back. `epoch`: of the leader lease. `promised`: starts that no burn shows yet; each one
    that this desk sends is added.
    """

    book: GuardStore
    clock: Clock
    seconds: Callable[[], float]
    epoch: int
    find_ports: Callable[[ResourceKey], ActionPorts]
    standings: Sequence[BudgetStatus]
    find_objection: Callable[[Intent, Observation, datetime], str]
    promised: list[StartPromise] = field(default_factory=list)


def start_machine(start: ScheduledStart, desk: StartDesk) -> ActionResult | None:
    """Start the machine of `start`, or record why not; None if the ledger says by now that it must not be tried."""
    live, policy, now = start.case.live, start.policy, desk.clock.now()
    key = live.observation.key
    if _find_ledger_objection(start, desk, key, now):
        return None
    hands = desk.find_ports(key)
    price = fetch_start_price(hands, key)
    against = explain_start_price(start.price, price.rate, policy.start, price.why) if policy.start else "it has no start"
    if not against and price.rate is not None:
        against = explain_start_budget(
            live.observation,
            start.case.owner,
            price.rate,
            desk.standings,
            start=now,
            end=start.window_end,
            promised=desk.promised,
        )
    facts = {"name": live.observation.name, "owner": start.case.owner, "seen": live.seen_at, "stop": start.own_stop.id}
    facts |= encode_price(price.rate) | {"gpus": live.observation.gpu_count}
    rate_text = f", at {format_rate(price.rate)} an hour" if price.rate else ""
    intent = Intent(
        id=token_hex(8),
        life=identify_incarnation(live.observation),
        act=START,
        policy=policy.name,
        rule=policy.rule,
        why=f"its off period ended at {start.proposal.due_at:%Y-%m-%d %H:%M} UTC{rate_text}",
        evidence=encode_evidence(facts, None),
        state=READY,
        created_at=now,
        moved_at=now,
        epoch=desk.epoch,
    )
    if not desk.book.plan_intent(intent):
        return None
    if against:
        moved_intent = desk.book.move_intent(intent, CANCELLED, now, outcome=against)
        return ActionResult(intent=moved_intent or intent, held=f"it is not started: {against}")

    def still(observation: Observation) -> str:
        return _find_start_objection(intent, start, desk, observation)

    with trace_span("act", act=START, policy=policy.name, provider=key.provider, account=key.account, resource=key.id) as span:
        sent = send_action(intent, hands, desk.book, desk.clock, still, epoch=desk.epoch, seconds=desk.seconds)
        span.set(sent=sent.sent, state=sent.intent.state)
    if sent.intent.state in OPEN_STATES:
        desk.promised.append(_make_promise(sent.intent, live, start.case.owner))
    return sent


def list_promises(started: Iterable[Intent], live: Mapping[ResourceKey, LiveResource], now: datetime) -> list[StartPromise]:
    """Return what the starts of `started` (sent in the last day) will cost that no burn of `live` shows yet.

    That is so while a start is open, and for CONFIRM_WITHIN after its proof, until a listing shows the machine as running.
    """
    promises = []
    for intent in started:
        one = live.get(intent.life.key)
        proven = intent.state == DONE and now - intent.moved_at < CONFIRM_WITHIN
        if (one is None or one.observation.state != RUNNING) and (intent.state in OPEN_STATES or proven):
            promises.append(_make_promise(intent, one, json.loads(intent.evidence or "{}").get("owner", "")))
    return promises


def _make_promise(intent: Intent, live: LiveResource | None, owner: str) -> StartPromise:
    attribution = replace(live.observation.attribution, owner=owner) if live is not None else None
    return StartPromise(
        name=live.observation.name if live is not None else intent.life.key.id,
        attribution=attribution,
        rate=decode_price(intent),
    )


def _find_start_objection(intent: Intent, start: ScheduledStart, desk: StartDesk, observation: Observation) -> str:
    """Return why the machine must not be started (any more), from this look and the ledger of this moment; "" to go on."""
    now = desk.clock.now()
    if now >= start.until:
        return "the time of its start has passed"
    against = _find_ledger_objection(start, desk, observation.key, now, own=intent.id)
    against = against or explain_wanted_off(start, now) or explain_short_window(start, now)
    if against or observation.instance_type != start.case.live.observation.instance_type:
        return against or "its type was changed"
    return desk.find_objection(intent, observation, now)


def _find_ledger_objection(start: ScheduledStart, desk: StartDesk, key: ResourceKey, now: datetime, *, own: str = "") -> str:
    """Return what the ledger of this moment says against the start: others' acts, and its tries. `own`: its intent's id."""
    history = load_start_history(desk.book, key, now)
    tries = [one for one in list_tries(start.policy, start.own_stop, history.intents) if one.id != own]
    touched = explain_touched(start.policy, start.own_stop, history, own=own)
    return touched or next((says for _, says in list_try_holds(tries, now)), "")
