"""`costguard stop`, `terminate` and `start`: a person acts on one machine, on the path that the guard's own acts take.

    look -> may it? -> say what is lost, or what a start costs -> ask -> intent -> look again -> send once -> prove

The intent is written before anything is sent, so that a watchdog on the same ledger knows of it, and nothing is sent twice.
The leader lease and the limits of [rails] are for acts that nobody asked for; freezes, protections, leases and acts whose
outcome is open hold a person's act as well, and each refusal names what lifts it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from secrets import token_hex

from costguard.errors import CostguardError, IncompleteError, InputError, NoAnswerError, shorten
from costguard.guard.action_intents import (
    DONE,
    DOUBTFUL_STATES,
    FAILED,
    PROVING_STATES,
    READY,
    STARTABLE_STATES,
    UNCONFIRMED,
    Intent,
    is_proof,
)
from costguard.guard.machine_reference import MachineReference, format_resource
from costguard.guard.overrides import explain_untouchable, find_lease, find_phase
from costguard.guard.policy import PERSON_RULE, START, STOP, TERMINATE
from costguard.guard.policy_evaluation import compute_burn_rate, compute_savings_rate
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.account_identities import read_other_account
from costguard.metering.inventory import Complete
from costguard.metering.observation import Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.providers.ports import IdentitySource, InstanceSource
from costguard.services import CommandAnswer
from costguard.services.guarding.act.send_action import (
    ActionPorts,
    StartPrice,
    confirm_action,
    fetch_start_price,
    find_action_ports,
    look_at_resource,
    read_boot_time_s,
    send_action,
    settle_action,
)
from costguard.services.guarding.guard_snapshot import encode_evidence, encode_price
from costguard.services.guarding.overrides import describe_user, find_machine, open_guard_store, record_timed_stop
from costguard.services.poll.account_identity import IdentityCache, fetch_introduction, name_key
from costguard.services.poll.configured_providers import SystemClock, list_sources, open_providers
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.system.progress import report_progress
from costguard.values.money import Rate
from costguard.values.provider import POSTPONED
from costguard.values.resource import RUNNING, ResourceKey
from costguard.values.text_format import (
    RATE_PLACES,
    format_command,
    format_instant,
    format_length,
    format_local_time,
    get_currency_sign,
)
from costguard.views.document import Document

SCHEMA = "costguard.act/1"
POLICY = "by hand"
"""What stands in an intent where others name their policy."""
PROVE_WITHIN_S, LOOK_EVERY_S = 180.0, 5.0
"""How long the effect is waited for, and how often it is looked for."""
Ask = Callable[[str], bool]
"""Asks a person a question and returns whether the answer is yes."""


@dataclass(frozen=True, slots=True)
class _Desk:
    """What an act by hand is done with: the settings, the ledger's guard part, and the clock."""

    settings: Settings
    book: GuardStore
    clock: SystemClock
    due_at: datetime | None = None
    """For when the act is planned; None: now."""

    def find_objection(self, observation: Observation, act: str) -> tuple[str, str]:
        """Return what forbids `act` on `observation` at this moment, and what lifts it; ("", "") for nothing.

        A lease keeps a machine running, so it is no objection to a start.
        """
        now = self.clock.now()
        overrides, protections = self.book.load_open_overrides(now), self.book.load_protections()
        seen_before = protections[observation.key].at if observation.key in protections else None
        why = explain_untouchable(observation, overrides, self.settings.defaults.protect, seen_before, now)
        if why:
            lift = f"{format_command('protect', observation.key, '--lift')}, or remove its label"
            return why, "costguard freeze --lift" if "froze" in why else lift
        life = identify_incarnation(observation)
        if act == START:
            return "", ""
        hold = find_lease(life, overrides, now) or find_phase(life, overrides, now)
        if hold is None or (self.due_at and hold.until and hold.until <= self.due_at):
            return "", ""
        until = f" until {format_instant(hold.until)}" if hold.until else ""
        return (
            f"{hold.who} keeps it{until}: {hold.why or hold.subject}",
            f"{format_command('keep', observation.key, '--lift')}, if that is yours",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A machine that a person named, as it was seen just now, and the acts of its account."""

    live: LiveResource
    seen: Observation
    hands: ActionPorts
    source: InstanceSource
    price: StartPrice | None = None
    """What a start costs an hour; None: another act."""


def act_on_resource(
    reference: MachineReference,
    act: str,
    *,
    yes: bool = False,
    why: str = "",
    config: str | None = None,
    ask: Ask | None = None,
    prove_within_s: float | None = None,
    due_at: datetime | None = None,
) -> CommandAnswer:
    """Stop, terminate or start the machine that `reference` names; `ask` None and not `yes` is refused before anything is sent.

    `prove_within_s`: how long the effect is waited for; None: PROVE_WITHIN_S. `due_at`: plans the stop for then; None: now.

    Raises InputError for a name that fits none or several, NoAnswerError with the way on for a machine that must stay or an
    act that its provider lacks, IncompleteError where the request was taken and its effect not seen in time.
    """
    settings, clock = read_settings(config), SystemClock()
    live = find_machine(reference, settings, clock.now())
    with _open_target(live, settings) as machine, open_guard_store(settings) as book:
        desk = _Desk(settings, book, clock, due_at)
        _check_ability(machine, act)
        _check_allowed(machine, act, desk)
        target = replace(machine, price=fetch_start_price(machine.hands, machine.seen.key)) if act == START else machine
        effects = tuple(_list_consequences(target, act, clock.now()))
        if not yes:
            if ask is None:
                raise InputError("no terminal to confirm on", field=f"costguard {act}", hint="add --yes to confirm in advance")
            when = f" at {format_local_time(due_at, settings.defaults.timezone)}" if due_at else ""
            if not ask("\n".join((*effects, f"{act.capitalize()} {format_resource(target.seen)}{when}?"))):
                return _answer(target, act, "not done", "nothing was sent", effects)
        if due_at is not None:
            return record_timed_stop(target.seen, due_at, effects, why=why, book=book, settings=settings)
        intent = _plan(target, act, why, desk)
        within_s = PROVE_WITHIN_S if prove_within_s is None else prove_within_s
        return _send(intent, target, effects, desk, prove_within_s=within_s)


@contextmanager
def _open_target(live: LiveResource, settings: Settings) -> Iterator[_Target]:
    """Open the account of the machine and look at it; raises if its provider cannot be asked, or says that it is gone."""
    key = live.observation.key
    report_progress(f"querying {key.provider} about {key.id}")
    with open_providers(settings, only=(key.provider,)) as clouds:
        for cloud in clouds:
            if cloud.error is not None:
                raise cloud.error
        source = next((one for one in list_sources(clouds) if _has_account(one, key)), None)
        _require_same_account(source, key, settings)
        hands = find_action_ports(source)
        if source is None or hands.inspector is None:
            what = f"the settings have no account {key.account} of {key.provider} that can query it"
            raise InputError(what, field="providers", hint="costguard doctor lists the configured accounts")
        look = look_at_resource(hands.inspector, key, SystemClock(), read_boot_time_s)
        if look.seen is None:
            raise NoAnswerError(f"{look.why}; nothing was sent", field=format_resource(live.observation), hint="try again")
        yield _Target(live=live, seen=look.seen, hands=hands, source=source)


def _require_same_account(source: InstanceSource | None, key: ResourceKey, settings: Settings) -> None:
    """Raise NoAnswerError where the key of `source` is of another account than the one that the ledger remembers."""
    if isinstance(source, IdentitySource) and source is not None:
        introduction = fetch_introduction(source, IdentityCache(), alone=True)
        name = (key.provider, name_key(source, introduction.scopes))
        why = read_other_account(resolve_ledger_url(settings), name, introduction.identity)
        if why:
            raise NoAnswerError(f"{why}; nothing was sent", field="/".join(name), hint="costguard doctor")


def _has_account(source: InstanceSource, key: ResourceKey) -> bool:
    try:
        return any(scope[:2] == key[:2] for scope in source.list_scopes())
    except CostguardError:
        return False


def _check_ability(target: _Target, act: str) -> None:
    """Raise NoAnswerError where its state is another one, or its provider lacks the act; it says what there is instead."""
    observation, handling, called = target.seen, target.seen.handling, format_resource(target.seen)
    if act == START:
        _check_startable(target)
        return
    if is_proof(act, observation):
        raise NoAnswerError(f"it is {observation.state} already; nothing was sent", field=called)
    if act in handling.protected:
        hint = f"lift the protection in {observation.key.provider}'s console first: costguard does not"
        raise NoAnswerError(f"{observation.key.provider} protects it against {act}", field=called, hint=hint)
    able = target.hands.stopper if act == STOP else target.hands.terminator
    offered = handling.stops if act == STOP else handling.terminates
    if able is None or offered is False:
        if handling.stops is False and handling.terminates is False:
            raise NoAnswerError(f"{observation.key.provider} has no act for it", field=called, hint="end it by your own means")
        other = TERMINATE if act == STOP else STOP
        loses = ", ".join(handling.terminate_loses) or "all data on it"
        hint = format_command(other, observation.key) + (f" deletes it permanently and loses {loses}" if act == STOP else "")
        raise NoAnswerError(f"{observation.key.provider} has no {act} for it", field=called, hint=hint)


def _check_startable(target: _Target) -> None:
    observation, called = target.seen, format_resource(target.seen)
    provider = observation.key.provider
    if target.hands.starter is None:
        hint = "rent another one: costguard offers lists what is available now"
        raise NoAnswerError(f"{provider} cannot start machines: an ended machine is deleted", field=called, hint=hint)
    if observation.state not in STARTABLE_STATES:
        again = "" if observation.state == RUNNING else "; try again when it is stopped"
        raise NoAnswerError(
            f"it is {observation.state}; nothing was sent{again}", field=called, hint="costguard status shows it"
        )
    if observation.handling.controller:
        hint = f"change its size in {provider}'s console"
        raise NoAnswerError(f"{observation.handling.controller} starts and stops it", field=called, hint=hint)
    if not observation.handling.starts:
        reason = f": {observation.why}" if observation.why else ""
        hint = f"look at it in {provider}'s console"
        raise NoAnswerError(f"{provider} does not let it be started now{reason}", field=called, hint=hint)


def _check_allowed(target: _Target, act: str, desk: _Desk) -> None:
    """Raise NoAnswerError where somebody wants it to stay, or an earlier act on it is not settled."""
    called = format_resource(target.seen)
    against, hint = desk.find_objection(target.seen, act)
    if against:
        raise NoAnswerError(f"{against}; nothing was sent", field=called, hint=hint)
    own_intents = (one for one in desk.book.load_open_intents() if one.life.key == target.seen.key)
    withdrawn = START if act == STOP and target.seen.handling.start_waits else ""
    doubtful = next((one for one in own_intents if one.state in DOUBTFUL_STATES and one.act != withdrawn), None)
    if doubtful is not None:
        what = f"a {doubtful.act} of it was sent at {format_instant(doubtful.sent_at or doubtful.moved_at)} with no result yet"
        raise NoAnswerError(f"{what}; nothing was sent again", field=called, hint="costguard status shows it")
    if identify_incarnation(target.seen) != identify_incarnation(target.live.observation):
        hint = f"costguard status, then costguard {act} again"
        raise NoAnswerError("it was restarted since the ledger saw it; nothing was sent", field=called, hint=hint)


def _list_consequences(target: _Target, act: str, now: datetime) -> Iterator[str]:
    """Yield what is lost for good, what is saved and what goes on billing; of a start what it costs."""
    if act == START:
        yield from _list_start_costs(target)
        return
    handling, live = target.seen.handling, target.live
    if act == STOP and handling.start_waits:
        yield f"It is {target.seen.state}, and {target.seen.key.provider} starts it automatically: this cancels the start."
        return
    loses = handling.stop_loses if act == STOP else handling.terminate_loses
    yield f"Permanently lost: {', '.join(loses)}." if loses else "Nothing is lost, according to its provider."
    saves, burn = compute_savings_rate(live, now), compute_burn_rate(live, now)
    if handling.committed:
        yield f"The stop saves nothing: {handling.committed}."
    elif saves is not None:
        yield f"Saves {_format_rate(saves)} an hour."
    if act == STOP and saves is not None and burn is not None:
        rest = burn.nano_per_hour - saves.nano_per_hour
        yield (
            f"Still billed: {_format_rate(Rate(nano_per_hour=rest, currency=burn.currency))} an hour for its disks."
            if rest > 0
            else "Nothing is billed afterwards, except disks and addresses that costguard status lists separately."
        )
    if act == STOP and handling.restart_doubtful:
        yield "There may be no capacity to start it again."


def _list_start_costs(target: _Target) -> Iterator[str]:
    price = target.price or StartPrice(rate=None)
    if price.rate is not None:
        yield f"Costs {_format_rate(price.rate)} an hour while it runs, according to {target.seen.key.provider} now."
    else:
        yield f"Its price per hour is not known: {price.why}."
    if target.seen.handling.restart_doubtful:
        yield "There may be no capacity to start it."


def _format_rate(rate: Rate) -> str:
    return f"{get_currency_sign(rate.currency)}{rate.format(RATE_PLACES)}"


def _plan(target: _Target, act: str, why: str, desk: _Desk) -> Intent:
    """Record the intent, in the place of one that waits for the guard."""
    book, now = desk.book, desk.clock.now()
    handling, life = target.seen.handling, identify_incarnation(target.seen)
    for waiting in book.load_open_intents():
        if waiting.life == life and waiting.act == act and waiting.state not in DOUBTFUL_STATES:
            book.move_intent(waiting, "cancelled", now, outcome=f"{describe_user()} did it by hand")
    loses = {STOP: handling.stop_loses, TERMINATE: handling.terminate_loses}.get(act, ())
    facts: dict[str, object] = {"by": describe_user(), "name": target.seen.name, "seen": now}
    if target.price is not None:
        facts |= encode_price(target.price.rate) | {"gpus": target.seen.gpu_count}
    saves = None if act == START else compute_savings_rate(target.live, now)
    intent = Intent(
        id=token_hex(8),
        life=life,
        act=act,
        policy=POLICY,
        rule=PERSON_RULE,
        why=f"{describe_user()}: {why or f'costguard {act}'}",
        evidence=encode_evidence(facts, None, saves),
        state=READY,
        created_at=now,
        moved_at=now,
        lose=loses,
        irreversible=bool(loses) or act == TERMINATE,
    )
    if not book.plan_intent(intent):
        hint = "costguard status shows what is open; try again in a minute"
        raise NoAnswerError(f"a {act} of it is open already; nothing was sent", field=format_resource(target.seen), hint=hint)
    return intent


def _explain_started(intent: Intent, target: _Target, observation: Observation) -> str:
    """Explain why a stop that was to withdraw a waiting start is not sent: the machine runs now; "" if it does not."""
    withdraws = intent.act == STOP and target.seen.handling.start_waits
    return "it was started in the meantime" if withdraws and not observation.handling.start_waits else ""


def _send(intent: Intent, target: _Target, effects: tuple[str, ...], desk: _Desk, *, prove_within_s: float) -> CommandAnswer:
    """Send the request once, and look until the effect is proven."""

    def still(observation: Observation) -> str:
        return _explain_started(intent, target, observation) or desk.find_objection(observation, intent.act)[0]

    book, clock, called = desk.book, desk.clock, format_resource(target.seen)
    began = time.monotonic()
    report_progress(f"{intent.act} of {target.seen.key.id}")
    acted = send_action(intent, target.hands, book, clock, still)
    if acted.broken:
        raise CostguardError(f"the ledger failed: {acted.broken}", hint="look at the machine in its provider's console")
    if not acted.sent:
        nothing = "nothing was done" if acted.fault == POSTPONED else "nothing was sent"
        raise NoAnswerError(f"{acted.held or acted.intent.outcome}; {nothing}", field=called, hint="try again")
    now, absences = acted.intent, 0
    while now.state in DOUBTFUL_STATES and now.state != UNCONFIRMED and time.monotonic() - began < prove_within_s:
        report_progress(f"waiting until {target.seen.key.provider} shows it as {PROVING_STATES[intent.act][0]}")
        time.sleep(min(LOOK_EVERY_S, max(0.0, prove_within_s - (time.monotonic() - began))))
        now = settle_action(now, target.hands, book, clock, still, settling=timedelta(seconds=prove_within_s)).intent
        if now.state in DOUBTFUL_STATES and intent.act == TERMINATE:
            absences = absences + 1 if _is_absent(target) else 0
            at = clock.now()
            now = confirm_action(now, None, book, still, absences=absences, asked_at=at, now=at).intent if absences else now
    if now.state == DONE:
        took = format_length(timedelta(seconds=time.monotonic() - began))
        lost = _describe_lost_gpus(target) if intent.act == START else ""
        if intent.act == STOP and target.seen.handling.start_waits:
            lost = _close_withdrawn_start(target, desk)
        answer = _answer(
            target, intent.act, "done", f"verified after {took}: {now.outcome}", (*effects, lost) if lost else effects
        )
        return replace(answer, warnings=(*answer.warnings, lost)) if lost else answer
    if now.state == FAILED and intent.act == START:
        hint = "try again later, or rent another one: costguard offers"
        raise NoAnswerError(f"it was not started: {now.outcome}", field=called, hint=hint)
    if now.state == FAILED:
        raise NoAnswerError(f"its provider refused: {now.outcome}", field=called, hint="costguard doctor checks the key")
    answer = _answer(target, intent.act, "sent", f"{now.outcome}, but its effect is not visible yet", effects)
    hint = (
        f"costguard status shows it; a running watchdog keeps checking; otherwise look in {target.seen.key.provider}'s console"
    )
    wrong = IncompleteError(
        f"the {intent.act} was sent, but its effect is not verified after {prove_within_s:.0f} s", hint=hint
    )
    return CommandAnswer(document=answer.document, refusal=wrong)


def _describe_lost_gpus(target: _Target) -> str:
    """Return that a started machine has fewer GPUs than before its stop, or that this cannot be told; "" where it has them all.

    RunPod starts a pod without its GPUs where others have rented them (documented: "zero GPU pods", seen 2026-11).
    """
    had, key = target.seen.gpu_count, target.seen.key
    if not had or target.hands.inspector is None:
        return ""
    observation = look_at_resource(target.hands.inspector, key, SystemClock(), read_boot_time_s).seen
    if observation is None:
        return f"{key.provider} did not say whether it still has all {had:g} GPUs"
    if observation.gpu_count >= had:
        return ""
    stop = format_command(STOP, key)
    return f"it came back with {observation.gpu_count:g} of its {had:g} GPUs: run {stop}, unless you can use it like this"


def _close_withdrawn_start(target: _Target, desk: _Desk) -> str:
    """Settle the start that was withdrawn as failed; return what could not be settled, or ""."""
    for one in desk.book.load_open_intents():
        if one.life.key == target.seen.key and one.act == START and one.state in DOUBTFUL_STATES:
            outcome = f"{describe_user()} cancelled it before it happened"
            if desk.book.move_intent(one, FAILED, desk.clock.now(), outcome=outcome) is None:
                return "the start was cancelled, and its record was changed by another process: costguard status shows it"
    return ""


def _is_absent(target: _Target) -> bool:
    """Return whether a complete listing does not contain the machine; one such listing proves nothing by itself (H04)."""
    poll = target.source.poll(target.live.scope)
    return isinstance(poll.inventory, Complete) and all(one.key != target.seen.key for one in poll.inventory.items)


def _answer(target: _Target, act: str, result: str, why: str, effects: tuple[str, ...]) -> CommandAnswer:
    key = target.seen.key
    data = {
        "schema": SCHEMA,
        "act": act,
        "provider": key.provider,
        "account": key.account,
        "region": key.region,
        "id": key.id,
        "name": target.seen.name,
        "result": result,
        "why": why,
        "consequences": list(effects),
    }
    record = {name: value for name, value in data.items() if name not in ("schema", "consequences")}
    lead = f"{act.capitalize()} of {format_resource(target.seen)}: {result}; {shorten(why, 200)}."
    first_notes = effects if result != "not done" else ()
    following = (
        (f"next: costguard status, or {format_command('terminate', key)} to delete its disks as well",)
        if act == STOP and result == "done"
        else ()
    )
    return CommandAnswer(document=Document(data=data, records=(record,), lead=(lead,), notes=(*first_notes, *following)))
