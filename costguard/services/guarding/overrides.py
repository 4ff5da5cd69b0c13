"""Overrides that people give the guard (keep, protect, snooze, freeze, phase, approve), and closing the breaker."""

from __future__ import annotations

import getpass
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

from costguard.data import ShippedFacts
from costguard.errors import InputError, NoAnswerError, NoLedgerError
from costguard.guard.limits import Breaker
from costguard.guard.machine_reference import MachineReference, format_resource, get_stated_key, resolve_resource
from costguard.guard.overrides import (
    APPROVE,
    CLOSE_BREAKER,
    FREEZE,
    LEASE,
    PHASE,
    PROTECT,
    SNOOZE,
    STOP_AT,
    Override,
    decide_lease,
    find_breaker_close,
    find_owner,
    find_protection,
)
from costguard.guard.policy import GRACE_MIN, STOP, TERMINATE, Rails
from costguard.guard.policy_evaluation import compute_burn_rate, matches_target
from costguard.guard.timed_stops import find_timed_stop, get_due_time
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_last_run, load_overrides_since
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.observation import Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.reporting.statement.period import parse_report_instant
from costguard.services import CommandAnswer
from costguard.services.guarding.guard_inputs import build_guard_config
from costguard.services.guarding.guard_snapshot import OVERRIDES_BACK, decode_breaker
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.settings.fields import parse_duration
from costguard.values.calendar import DAY, resolve_wall_time
from costguard.values.checks import require, require_one_of
from costguard.values.text_format import format_command, format_instant, format_length, format_local_time, get_currency_sign
from costguard.views.document import Document
from costguard.views.policy import build_kept_document, build_override_document

if TYPE_CHECKING:  # a type and no more: it brings SQLAlchemy with it
    from costguard.ledger.guard.store import GuardStore

LONGEST_LEASE, LONGEST_SNOOZE, LONGEST_PHASE = timedelta(days=30), timedelta(days=90), timedelta(days=7)
"""Whatever a policy allows: what is meant for longer is `protect`, or a policy."""
APPROVAL_LENGTH = timedelta(hours=24)
"""A yes from last week was said of another situation."""
ACTS = (STOP, TERMINATE)
RecordOverride = Callable[[Override], object]
LOSS_UNKNOWN = "The ledger does not record what would be lost: costguard plan queries the provider."
"""Of an act whose cost nobody has stated: that is not the same as nothing."""


def keep_resource(
    reference: MachineReference,
    *,
    length: str | None,
    why: str | None,
    lift: bool = False,
    config: str | None = None,
    record: RecordOverride | None = None,
) -> CommandAnswer:
    """Answer `costguard keep`: make a lease, or lift it. `record`: writes the lease; None: into the ledger.

    Raises NoAnswerError if a policy does not allow its length or number.
    """
    if lift:
        return _lift_overrides(reference, LEASE, config)
    settings, reason = read_settings(config), require_reason(why, "costguard keep ID --for 4h")
    lasts = parse_duration(length, "--for", least=timedelta(minutes=1), most=LONGEST_LEASE)
    now = get_now()
    live = find_machine(reference, settings, now)
    observation, life, rate = live.observation, identify_incarnation(live.observation), compute_burn_rate(live, now)
    owner = find_owner(observation, settings.defaults.owner_from)
    policies = [policy for policy in settings.policies if matches_target(policy.target, observation, owner)]
    with open_guard_store(settings) as book:
        earlier = book.load_overrides_since(live.first_seen_at)
        allowed = decide_lease(life, earlier, policies, lasts, now, rate=rate)
        if not allowed.allowed:
            protect = format_command("protect", observation.key, '--why "..."')
            hint = f"{protect} keeps it without limit; raise lease in the policy to allow more"
            raise NoAnswerError(allowed.why, field=format_resource(observation), hint=hint)
        override = _make_resource_override(LEASE, reason, now, until=_compute_end(now, lasts), live=live)
        (record or book.add_override)(override)
        planned = _end_timed_stop(observation, earlier, book, settings)
    costs = "its price is unknown, so the cost is unknown"
    if allowed.costs is not None:
        costs = f"costs up to {get_currency_sign(allowed.costs.currency)}{allowed.costs.format()}"
    left = min((policy.renewals_max for policy in policies), default=None)
    renewals = "" if left is None else f" Renewals left: {max(0, left - allowed.renewals)}."
    lead = (
        f"{format_resource(observation)} is kept until {format_local_time(_compute_end(now, lasts))} "
        f"({format_length(lasts)}): {costs}.{renewals}{planned}"
    )
    more = {"costs_up_to": None if allowed.costs is None else {allowed.costs.currency: allowed.costs.format()}}
    notes = (
        "A lease does not stop a hard cap. It ends when the machine restarts.",
        f"next: {format_command('keep', observation.key, '--lift')} ends it early",
    )
    document = build_override_document("recorded", (override,), lead=(lead,), notes=notes, more=more)
    return CommandAnswer(document=document, value=override)


def list_kept_machines(*, config: str | None = None) -> CommandAnswer:
    """Answer `costguard keep --list`: the leases and protections in force, those that end first before the others."""
    settings, now = read_settings(config), get_now()
    with open_guard_store(settings) as book:
        open_overrides = [one for one in book.load_open_overrides(now) if one.what in (LEASE, PROTECT)]
    open_overrides.sort(key=lambda one: (one.until is None, one.until or now, one.id))
    return CommandAnswer(document=build_kept_document(open_overrides, now))


def protect_resource(
    reference: MachineReference, *, why: str | None, lift: bool = False, config: str | None = None
) -> CommandAnswer:
    """Answer `costguard protect`: no act until it is lifted. Lifting does not remove protection by a provider or a label."""
    settings, now = read_settings(config), get_now()
    reason = (why or "").strip()
    live = find_machine(reference, settings, now)
    key, called = live.observation.key, format_resource(live.observation)
    with open_guard_store(settings) as book:
        current = [w for w in book.load_open_overrides(now) if w.what == PROTECT and w.key == key]
        if lift:
            lifts = [book.lift_override(w.id, who=describe_user(), now=now) for w in current]
            still = find_protection(live.observation, (), settings.defaults.protect, None, now)
            notes = (
                (f"It stays protected: {still.why}.",)
                if still.protected
                else (f"Policies and hard caps may act on it. {LOSS_UNKNOWN}",)
            )
            lead = (
                f"{called} is no longer protected by a command."
                if lifts
                else f"{called} is not protected by a command: nothing to lift."
            )
            return CommandAnswer(
                document=build_override_document("lifted" if lifts else "none", lifts, lead=(lead,), notes=notes)
            )
        override = _make_resource_override(PROTECT, reason, now, live=live, whole_life=False)
        book.add_override(override)
    lead = f"{called} is protected: no policy and no cap acts on it until {format_command('protect', key, '--lift')}."
    return CommandAnswer(document=build_override_document("recorded", (override,), lead=(lead,)))


def snooze_alerts(
    reference: MachineReference, *, length: str | None, why: str | None = None, lift: bool = False, config: str | None = None
) -> CommandAnswer:
    """Answer `costguard snooze`: no notifications about a machine or a policy for a time; acts are not affected."""
    if lift:
        return _lift_overrides(reference, SNOOZE, config)
    settings, now = read_settings(config), get_now()
    lasts = parse_duration(length, "--for", least=timedelta(minutes=1), most=LONGEST_SNOOZE)
    name = _find_policy(reference, settings)
    if name:
        override, called = (
            _make_resource_override(SNOOZE, why or "", now, until=_compute_end(now, lasts), subject=name),
            f"Policy {name}",
        )
    else:
        live = find_machine(reference, settings, now, field="TARGET")
        called = format_resource(live.observation)
        override = _make_resource_override(SNOOZE, why or "", now, until=_compute_end(now, lasts), live=live, whole_life=False)
    with open_guard_store(settings) as book:
        book.add_override(override)
    lead = f"{called} is snoozed until {format_local_time(_compute_end(now, lasts))} ({format_length(lasts)})."
    notes = (
        "Only messages are snoozed. An announced act still happens; an act that was not announced waits until the snooze ends.",
        "The next message says that the snooze has ended.",
    )
    return CommandAnswer(document=build_override_document("recorded", (override,), lead=(lead,), notes=notes))


def _lift_overrides(reference: MachineReference, what: str, config: str | None) -> CommandAnswer:
    """Lift the leases or snoozes of the machine that `reference` names, or the snoozes of a policy."""
    settings, now = read_settings(config), get_now()
    name = _find_policy(reference, settings) if what == SNOOZE else ""
    live = None if name else find_machine(reference, settings, now)
    key, called = (live.observation.key, format_resource(live.observation)) if live else (None, f"Policy {name}")
    word = {LEASE: "kept", SNOOZE: "snoozed"}.get(what, "to be stopped")
    with open_guard_store(settings) as book:
        current = [w for w in book.load_open_overrides(now) if w.what == what and w.key == key and (key or w.subject == name)]
        lifts = [book.lift_override(w.id, who=describe_user(), now=now) for w in current]
    if what == STOP_AT and not lifts:
        hint = f"costguard stop {reference} --at 22:00 plans one"
        raise InputError(f"no stop of {called} is planned", field="--cancel", hint=hint)
    lead = f"{called} is no longer {word}." if lifts else f"{called} is not {word}: nothing to lift."
    notes = ("Policies may act on it from the next run on.",) if lifts and what == LEASE else ()
    return CommandAnswer(document=build_override_document("lifted" if lifts else "none", lifts, lead=(lead,), notes=notes))


def parse_stop_time(delay: str | None, at: str | None, *, config: str | None) -> datetime:
    """Return when `costguard stop` is to stop it: `delay` a time, or `at` a date or the next 22:00 in the settings' zone."""
    require(delay is None or at is None, "--after and --at", "cannot be given together", "write one of them")
    zone, now, wall = read_settings(config).defaults.timezone, get_now().replace(microsecond=0), None
    if at is None:
        return now + parse_duration(delay, "--after", least=GRACE_MIN, most=LONGEST_LEASE)
    hint = "write a time such as 22:00 or 2026-12-01T08:00; without --at it is stopped now"
    with suppress(ValueError):
        wall = time.fromisoformat(at.strip())
    if wall is None or wall.tzinfo is not None:
        due_at = parse_report_instant(at, "--at", zone, hint=hint)
    else:
        days = (now.astimezone(zone).date() + number * DAY for number in range(3))
        due_at = next(one for day in days if (one := resolve_wall_time(day, wall, zone)) > now)
    wrong = "in the past" if due_at <= now else "not between 5 min and 30 d from now"
    require(GRACE_MIN <= due_at - now <= LONGEST_LEASE, "--at", f"{format_local_time(due_at, zone)} is {wrong}", hint)
    return due_at


def record_timed_stop(
    observation: Observation, due_at: datetime, consequences: Sequence[str], *, why: str, book: GuardStore, settings: Settings
) -> CommandAnswer:
    """Plan a stop of the run that `observation` shows, in place of an earlier one. `consequences`: what was accepted."""
    now, key, turn = get_now(), observation.key, book.load_leader_lease()
    replaced = _end_timed_stop(observation, book.load_open_overrides(now), book, settings)
    override = make_override(
        STOP_AT, why, now, subject=format_instant(due_at), value="\n".join(observation.handling.stop_loses)
    )
    override = replace(override, key=key, life=identify_incarnation(observation))
    book.add_override(override)
    watched, routed = turn is not None and turn.is_held(now), build_guard_config(settings).admin_route
    doubts = [] if watched else ["no watchdog runs: nothing is stopped until one does (costguard watch)"]
    doubts += [] if routed else ["there may be no notice before the stop: no route of [notify] takes every warning"]
    when = f"{format_local_time(due_at, settings.defaults.timezone)} (in {format_length(due_at - now)})"
    lead = (*(f"WARNING: {one}" for one in doubts), f"{format_resource(observation)} is to be stopped at {when}.{replaced}")
    cancel, keep = format_command("stop", key, "--cancel"), format_command("keep", key, "--for 4h")
    notes = (*consequences, f"next: {cancel}, or {keep}, to keep it running")
    more = {"due_at": format_instant(due_at), "consequences": list(consequences)}
    document = build_override_document("recorded", (override,), lead=lead, notes=notes, more=more)
    return CommandAnswer(document=document, warnings=tuple(doubts), value=override)


def cancel_timed_stop(reference: str, *, config: str | None) -> CommandAnswer:
    """Answer `costguard stop --cancel`; raise InputError if no stop is planned."""
    return _lift_overrides(reference, STOP_AT, config)


def _end_timed_stop(observation: Observation, overrides: Iterable[Override], book: GuardStore, settings: Settings) -> str:
    """Lift the stop that is planned for this run of the machine, and say so; "" if there is none."""
    now = get_now()
    planned = find_timed_stop(observation, overrides, now)
    if planned is None:
        return ""
    book.lift_override(planned.id, who=describe_user(), now=now)
    due = format_local_time(get_due_time(planned), settings.defaults.timezone)
    return f" The stop that {planned.who} planned for {due} is cancelled."


def _find_policy(reference: MachineReference, settings: Settings) -> str:
    """Return the policy that `reference` names; "" if it is a machine's key or no policy has the name."""
    name = reference.removeprefix("policy:") if isinstance(reference, str) else ""
    return name if name in {policy.name for policy in settings.policies} else ""


def freeze_actions(*, why: str | None, lift: bool = False, config: str | None = None) -> CommandAnswer:
    """Answer `costguard freeze`: no acts at all until it is lifted."""
    settings, now = read_settings(config), get_now()
    reason = (why or "").strip()
    with open_guard_store(settings) as book:
        current = [w for w in book.load_open_overrides(now) if w.what == FREEZE]
        if lift:
            lifts = [book.lift_override(w.id, who=describe_user(), now=now) for w in current]
            lead = "Acts are no longer frozen: the next run does what is due and allowed." if lifts else "Nothing was frozen."
            return CommandAnswer(document=build_override_document("lifted" if lifts else "none", lifts, lead=(lead,)))
        override = _make_resource_override(FREEZE, reason, now)
        book.add_override(override)
    lead = "All acts are frozen, including hard caps. Polls and messages continue."
    notes = ("next: costguard freeze --lift, to allow acts again",)
    return CommandAnswer(document=build_override_document("recorded", (override,), lead=(lead,), notes=notes))


def declare_phase(name: str, *, reference: str | None, length: str | None, config: str | None = None) -> CommandAnswer:
    """Answer `costguard phase`: count the machine as active although no measurement shows it."""
    settings, now = read_settings(config), get_now()
    called = name.strip()
    if not called:
        raise InputError("is empty", field="NAME", hint="costguard phase download --id ID --for 3h")
    if not reference:
        raise InputError("is missing", field="--id", hint="costguard status lists running machines")
    lasts = parse_duration(length, "--for", least=timedelta(minutes=1), most=LONGEST_PHASE)
    live = find_machine(reference, settings, now, field="--id")
    override = _make_resource_override(PHASE, "", now, until=_compute_end(now, lasts), live=live, subject=called)
    with open_guard_store(settings) as book:
        book.add_override(override)
    until = format_local_time(_compute_end(now, lasts))
    lead = f"{format_resource(live.observation)} counts as working ({called}) until {until} ({format_length(lasts)})."
    return CommandAnswer(
        document=build_override_document("recorded", (override,), lead=(lead,), notes=("Hard caps still apply.",))
    )


def approve_action(
    reference: MachineReference,
    act: str,
    *,
    why: str | None = None,
    config: str | None = None,
    record: RecordOverride | None = None,
    question: str = "",
    most: datetime | None = None,
    ask: Callable[[str], bool] | None = None,
) -> CommandAnswer:
    """Answer `costguard approve`: allow one act on the present run of a machine, for a day. `record`: as in `keep_resource`.

    `question`: allow it as the answer to this alone (`name_question`). `most`: and no longer than until then. `ask`: asks a
    person whether a machine is the one that is meant; None, or a full key: it is not asked.
    """
    settings, now = read_settings(config), get_now()
    require_one_of(act, ACTS, "ACT")
    live = find_machine(reference, settings, now)
    observation = live.observation
    if ask is not None and get_stated_key(reference) is None and not ask(f"Approve {act} of {format_resource(observation)}?"):
        return CommandAnswer(document=build_override_document("none", (), lead=("Not approved: nothing was recorded.",)))
    loses = observation.handling.stop_loses if act == STOP else observation.handling.terminate_loses
    end = min(_compute_end(now, APPROVAL_LENGTH), most or datetime.max.replace(tzinfo=UTC))
    override = replace(_make_resource_override(APPROVE, why or "", now, until=end, live=live, subject=act), value=question)
    with open_guard_store(settings) as book:
        (record or book.add_override)(override)
    asks = "only as the answer to this question" if question else "if a policy asks for it"
    lead = f"Approved: {act} of {format_resource(observation)}, in its current run and until {format_local_time(end)}, {asks}."
    loss_note = f"Would be permanently lost: {', '.join(loses)}." if loses else LOSS_UNKNOWN
    following = "next: a running watchdog does it in its next run; otherwise run costguard watch --once"
    return CommandAnswer(document=build_override_document("recorded", (override,), lead=(lead,), notes=(loss_note, following)))


_PERSON = ContextVar("person", default="")


@contextmanager
def act_for(person: str) -> Iterator[None]:
    """Record what the block does under the name `person`, who is not the user of this process: a login to the pages."""
    token = _PERSON.set(person)
    try:
        yield
    finally:
        _PERSON.reset(token)


def describe_user() -> str:
    """Return who acts: the person of `act_for`, else the system user and the machine: `ada@workstation`."""
    if _PERSON.get():
        return _PERSON.get()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number that has no name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def require_reason(why: str | None, example: str) -> str:
    """Return `why` without surrounding blanks; raise InputError if it is empty."""
    if not (why or "").strip():
        raise InputError("is missing", field="--why", hint=f'{example} --why "evaluation until tomorrow"')
    return (why or "").strip()


def make_override(
    what: str, why: str, now: datetime, *, until: datetime | None = None, subject: str = "", value: str = ""
) -> Override:
    """Make an override for no particular resource."""
    return Override(
        id=secrets.token_hex(8), what=what, who=describe_user(), why=why, at=now, until=until, subject=subject, value=value
    )


def _make_resource_override(
    what: str,
    why: str,
    now: datetime,
    *,
    until: datetime | None = None,
    live: LiveResource | None = None,
    whole_life: bool = True,
    subject: str = "",
) -> Override:
    """Make an override of a resource.

    `whole_life`: bound to the present incarnation of `live`; else to its resource in any incarnation.
    """
    observation = live.observation if live else None
    return Override(
        id=secrets.token_hex(8),
        what=what,
        who=describe_user(),
        why=why,
        at=now,
        until=until,
        key=observation.key if observation else None,
        life=identify_incarnation(observation) if observation and whole_life else None,
        subject=subject,
    )


def find_machine(reference: MachineReference, settings: Settings, now: datetime, field: str = "ID") -> LiveResource:
    """Return the machine of the ledger that `reference` names; raises InputError as `resolve_resource` does."""
    key = get_stated_key(reference)
    with SpendingReader(resolve_ledger_url(settings), rules=ShippedFacts().get_billing_rules()) as books:
        former = books.load_keys(key.id if key else str(reference).strip())
        return resolve_resource(reference, books.load_live(now), field, former)


@contextmanager
def open_guard_store(settings: Settings) -> Iterator[GuardStore]:
    """Open the guard's part of the ledger for writing."""
    from costguard.ledger.guard.store import GuardStore

    with GuardStore(resolve_ledger_url(settings), rails=settings.rails or Rails()) as book:
        yield book


def _compute_end(now: datetime, lasts: timedelta) -> datetime:
    return (now + lasts).replace(microsecond=0)


def get_now() -> datetime:
    """Return the current time of the wall clock."""
    return datetime.now(UTC)


BREAKER_SCHEMA = "costguard.breaker/1"


def show_breaker(*, config: str | None = None) -> CommandAnswer:
    """Show the machines whose idle acts the breaker holds, since when, and when it closes."""
    settings = read_settings(config)
    breaker, at = _load_open_breaker(settings, get_now())
    data: dict[str, object] = {
        "schema": BREAKER_SCHEMA,
        "open": breaker is not None,
        "as_of": format_instant(at) if at else None,
    }
    if breaker is None:
        as_of = f"as of the last guard run at {format_local_time(at)}" if at else "no guard run is recorded yet"
        return CommandAnswer(document=Document(data=data, records=(), lead=(f"The breaker is closed: {as_of}.",)))
    rails = settings.rails or Rails()
    asks, ends = breaker.opened_at + rails.breaker_asks, breaker.opened_at + rails.breaker_lasts
    records = tuple(dict(zip(("provider", "account", "region", "resource"), key, strict=True)) for key in breaker.keys)
    data |= {
        "opened_at": format_instant(breaker.opened_at),
        "asks_from": format_instant(asks),
        "closes_at": format_instant(ends),
        "in_common": breaker.shared or None,
        "machines": list(records),
    }
    lead = (
        f"Open since {format_local_time(breaker.opened_at)}: {len(breaker.keys)} machines turned idle or unknown at once.",
        f"In common: {breaker.shared or 'nothing found'}.",
        f"costguard asks about each from {format_local_time(asks)} on.",
        f"It closes at {format_local_time(ends)}, or {format_length(rails.breaker_recovery)} after most of them work again.",
        *("  " + "/".join(key) for key in breaker.keys),
    )
    notes = ("next: costguard breaker close, if the machines are really idle; costguard approve ID stop for one of them",)
    return CommandAnswer(document=Document(data=data, records=records, lead=lead, notes=notes))


def close_breaker(why: str | None, *, config: str | None = None) -> CommandAnswer:
    """Close the breaker: from the next run on, the machines that it holds are judged as usual."""
    settings, now = read_settings(config), get_now()
    reason = require_reason(why, "costguard breaker close")
    breaker, _ = _load_open_breaker(settings, now)
    if breaker is None:
        return CommandAnswer(document=build_override_document("none", (), lead=("The breaker is closed: nothing to do.",)))
    override = make_override(CLOSE_BREAKER, reason, now)
    with open_guard_store(settings) as book:
        book.add_override(override)
    count = len(breaker.keys)
    lead = f"The breaker is closed for the {count} machines it held: policies act on them again from the next run on."
    return CommandAnswer(document=build_override_document("recorded", (override,), lead=(lead,)))


def _load_open_breaker(settings: Settings, now: datetime) -> tuple[Breaker | None, datetime | None]:
    """Return the open breaker of the last guard run, and when that was; (None, None) before the first run."""
    try:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
            last, overrides = load_last_run(ask), load_overrides_since(ask, now - OVERRIDES_BACK)
    except NoLedgerError:
        return None, None
    if last is None:
        return None, None
    breaker, closed = decode_breaker(dict(last.facts).get("breaker")), find_breaker_close(overrides, now)
    is_closed = breaker is None or breaker.closed_at is not None or (closed is not None and breaker.opened_at <= closed)
    return (None if is_closed else breaker), last.at
