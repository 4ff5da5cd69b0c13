"""Poll all accounts in parallel and write their listings to the ledger.

An account that fails neither stops nor delays the others: each is recorded as soon as it has answered, and one that has not
answered within the time limit is recorded as not seen. If a listing lacks more than half of the known resources, or all of one
kind, each missing resource is looked up by itself before it counts as absent. Then the measurements of running machines are
fetched from providers that state them apart from the listing; what cannot be measured is missing, never zero.

Everything that waits runs in threads, in a pool for each provider, so that a provider that hangs uses up no thread of another.
All decisions and ledger writes happen in the calling thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from queue import SimpleQueue

from costguard.errors import to_one_line
from costguard.metering.inventory import COMPLETE, FAILED, OTHER_ACCOUNT, POLL_AHEAD_MAX, Failed, Partial, Poll
from costguard.metering.observation import Observation
from costguard.metering.scope_state import AccrualResult
from costguard.metering.spending import ScopeCoverage
from costguard.providers.ports import Inspector, InstanceSource, PolledUtilizationSource, UtilizationSource
from costguard.services.poll.account_identity import AccountIntroduction, IdentityCache, add_identity, fetch_introduction
from costguard.services.poll.concurrency import NamedAnswer, QuestionPool, run_all, wait_for_answer
from costguard.services.poll.listing_validation import describe_failure, validate_listing
from costguard.services.poll.ports import Ledger
from costguard.system.clock import Clock, read_monotonic
from costguard.system.progress import report_progress
from costguard.system.tracing import trace_span
from costguard.values.calendar import Period
from costguard.values.resource import ENDED, INSTANCE, RUNNING, ResourceKey, ScopeKey
from costguard.values.sample import UtilizationSamples
from costguard.values.text_format import describe_unreached_scope

__all__ = ["LOOKUPS_MAX", "POLL_CYCLE_LIMIT_S", "PollCycleResult", "poll_sources", "verify_absences"]

POLL_CYCLE_LIMIT_S = 75.0
"""How long a round lasts at most: the 60 s that an adapter gives one poll by itself, and time for look-ups."""


def poll_sources(
    sources: Iterable[InstanceSource],
    ledger: Ledger,
    clock: Clock,
    *,
    limit_s: float = POLL_CYCLE_LIMIT_S,
    elsewhere: Callable[[], Collection[ScopeKey]] = frozenset,
    identities: IdentityCache | None = None,
    attribute: Callable[[Poll], Poll] | None = None,
) -> PollCycleResult:
    """Run one poll cycle over every scope of every source within `limit_s` seconds, one transaction per source.

    `clock` dates failures. A poll dated ahead of `clock` is refused, because the ledger would then ignore every poll until that
    time. `elsewhere`: the scopes of accounts that are not among `sources`, which this cycle leaves alone. It is called only if
    one of `sources` cannot list its own. `identities`: what providers called the accounts in earlier cycles. `attribute`:
    returns a poll with what others say of its machines, such as owners of the pods on them.
    """
    identities = identities or IdentityCache()
    return PollCycle(sources, ledger, clock, limit_s, elsewhere, identities=identities, attribute=attribute).run()


TWIN_WAIT_S = 15.0
"""How long an account waits for those of its provider that stand before it in the settings, so that of twins it is always the
same one that is polled. After that it goes on alone: an assumption, 2026-11."""

SCOPES, POLL, LOOK = "scopes", "poll", "look"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopePoll:
    """The listing of one scope by `source`."""

    source: InstanceSource
    poll: Poll


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreachedAccount:
    """An account that could not be asked for its scopes, and of which the ledger knows none.

    `coverage`: of a failed scope without a name, which the ledger does not store; one for each provider of `source`.
    """

    source: InstanceSource
    coverage: ScopeCoverage


@dataclass(frozen=True, slots=True, kw_only=True)
class PollCycleResult:
    """Result of one poll cycle, in the order of the sources.

    `refused`: what was not recorded, a sentence each; `twins`: those of them about accounts that another source already covers.
    `notes`: what complete listings left out. `seen`: the listed resources, with `handling` and source, which the ledger does
    not store. `unreached`: accounts whose scopes nobody knows yet. `others`: sources whose key is of another
    account than the ledger's.
    """

    accrued: tuple[AccrualResult, ...]
    refused: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seen: tuple[ScopePoll, ...] = ()
    unreached: tuple[UnreachedAccount, ...] = ()
    others: tuple[InstanceSource, ...] = ()

    @property
    def answered(self) -> bool:
        """Return whether at least one scope was listed, completely or in part."""
        return any(not isinstance(one.poll.inventory, Failed) for one in self.seen)

    @property
    def unseen(self) -> tuple[AccrualResult, ...]:
        """Return the scopes that were not listed completely.

        A scope whose poll was dropped, because it is not newer than the last one, is included.
        """
        return tuple(one for one in self.accrued if one.outcome != COMPLETE)


AccountQuestion = tuple[int, str, ScopeKey | None]
"""The number of a slot, what it is asked, and of which scope."""
AccountReply = AccountIntroduction | Poll


@dataclass(slots=True, eq=False, kw_only=True)
class _AccountSlot:
    """One source of the cycle. `said`, `broken`: the answer to the request for its scopes. `waits`: scopes not done yet.

    `other`: its key is of another account than the ledger's.
    """

    number: int
    source: InstanceSource
    crew: QuestionPool[AccountQuestion, AccountReply]
    said: AccountIntroduction | None = None
    broken: str = ""
    admitted: bool = False
    other: bool = False
    done: bool = False
    waits: set[ScopeKey] = field(default_factory=set)
    polls: dict[ScopeKey, Poll] = field(default_factory=dict)
    accrued: tuple[AccrualResult, ...] = ()
    refused: list[str] = field(default_factory=list)
    twins: list[str] = field(default_factory=list)
    unreached: tuple[UnreachedAccount, ...] = ()

    @property
    def answered(self) -> bool:
        """Return whether its scopes are known, or cannot be known."""
        return self.said is not None or bool(self.broken)

    @property
    def name(self) -> str:
        """Return its name for messages: its position in the settings, since duplicate accounts differ in nothing else."""
        return f"account {self.number + 1} ({', '.join(self.source.providers)})"


class PollCycle:
    """The state of one poll cycle. `limit_s`: seconds after which missing answers count as not seen."""

    def __init__(
        self,
        sources: Iterable[InstanceSource],
        ledger: Ledger,
        clock: Clock,
        limit_s: float,
        elsewhere: Callable[[], Collection[ScopeKey]],
        *,
        identities: IdentityCache,
        attribute: Callable[[Poll], Poll] | None = None,
    ) -> None:
        self._identities, self._attribute = identities, attribute
        self._ledger, self._clock, self._limit_s, self._elsewhere = ledger, clock, limit_s, elsewhere
        self._line: SimpleQueue[NamedAnswer[AccountQuestion, AccountReply]] = SimpleQueue()
        crews: dict[tuple[str, ...], QuestionPool[AccountQuestion, AccountReply]] = {}
        self._slots = [
            _AccountSlot(number=number, source=source, crew=crews.setdefault(tuple(source.providers), QuestionPool(self._line)))
            for number, source in enumerate(sources)
        ]
        self._crews = tuple(crews.values())
        self._groups = _group_slots(self._slots)
        self._claimed: dict[ScopeKey, _AccountSlot] = {}

    def run(self) -> PollCycleResult:
        """Request all, record each source when it is done, and record what is missing at the time limit as not seen."""
        began = read_monotonic()
        for slot in self._slots:
            alone = len(self._groups[slot.number]) == 1
            slot.crew.ask((slot.number, SCOPES, None), partial(fetch_introduction, slot.source, self._identities, alone=alone))
        try:
            while not all(slot.done for slot in self._slots):
                report_progress("listing all accounts", sum(slot.done for slot in self._slots), len(self._slots))
                elapsed_s = read_monotonic() - began
                if elapsed_s >= self._limit_s:
                    self._close_overdue()
                    break
                edge = TWIN_WAIT_S if elapsed_s < TWIN_WAIT_S < self._limit_s else self._limit_s
                answer = wait_for_answer(self._line, edge - elapsed_s)
                patient = read_monotonic() - began < TWIN_WAIT_S
                if answer is not None:
                    self._take_reply(*answer)
                    self._advance(self._groups[answer[0][0]], patient=patient)
                else:
                    self._advance(self._slots, patient=patient)
        finally:
            for crew in self._crews:
                crew.close()
        return self._collect_result()

    def _collect_result(self) -> PollCycleResult:
        return PollCycleResult(
            accrued=tuple(one for slot in self._slots for one in slot.accrued),
            refused=tuple(sentence for slot in self._slots for sentence in (*slot.refused, *slot.twins)),
            twins=tuple(sentence for slot in self._slots for sentence in slot.twins),
            notes=tuple(dict.fromkeys(note for slot in self._slots for note in _list_notes(slot))),
            seen=tuple(ScopePoll(source=slot.source, poll=poll) for slot in self._slots for poll in slot.polls.values()),
            unreached=tuple(one for slot in self._slots for one in slot.unreached),
            others=tuple(slot.source for slot in self._slots if slot.other),
        )

    def _take_reply(self, question: AccountQuestion, reply: AccountReply | BaseException) -> None:
        number, step, scope = question
        slot = self._slots[number]
        if scope is None:
            if isinstance(reply, AccountIntroduction):
                slot.said = reply
            else:
                slot.broken = f"its accounts cannot be listed: {describe_failure(reply)}"
        elif step == POLL:
            self._take_poll(slot, scope, self._validate_poll(scope, reply))
        else:
            if isinstance(reply, Poll):
                slot.polls[scope] = reply
            slot.waits.discard(scope)

    def _validate_poll(self, scope: ScopeKey, answer: AccountReply | BaseException) -> Poll:
        why = validate_listing(answer, scope)
        return self._build_failed_poll(scope, why) if why or not isinstance(answer, Poll) else answer

    def _build_failed_poll(self, scope: ScopeKey, why: str) -> Poll:
        return Poll(scope=scope, at=self._clock.now(), inventory=Failed(why))

    def _take_poll(self, slot: _AccountSlot, scope: ScopeKey, answer: Poll) -> None:
        """Keep `answer` unless it is dated in the future; if it lacks too much, start look-ups first."""
        now = self._clock.now()
        if answer.seen_at > now + POLL_AHEAD_MAX:
            name, dated = "/".join(scope), f"{answer.seen_at:%Y-%m-%d %H:%M} UTC"
            slot.refused.append(
                f"{name}: its listing is dated {dated}, ahead of this clock ({now:%Y-%m-%d %H:%M} UTC): not recorded"
            )
            slot.waits.discard(scope)
            return
        missing = self._ledger.find_suspects(answer)
        slot.polls[scope] = replace(answer, unanswered=frozenset(missing)) if missing else answer
        if missing and isinstance(slot.source, Inspector):
            slot.crew.ask((slot.number, LOOK, scope), partial(verify_absences, answer, tuple(missing), slot.source))
        else:
            slot.waits.discard(scope)

    def _advance(self, slots: Iterable[_AccountSlot], *, patient: bool) -> None:
        """Admit those of `slots` that wait for no related account before them, and record those that are done."""
        blocked_groups = set[int]()
        for slot in slots:
            group_id = id(self._groups[slot.number])
            if slot.said and not slot.admitted and not (patient and group_id in blocked_groups):
                self._admit(slot)
            if not slot.answered:
                blocked_groups.add(group_id)
            if slot.admitted and not slot.waits:
                self._record(slot)
        for slot in (one for one in slots if one.broken and not one.done):
            if all(other.admitted or other.broken for other in self._groups[slot.number]):
                self._record_broken(slot)

    def _admit(self, slot: _AccountSlot) -> None:
        """Poll the scopes of `slot`, except those that another account already covers."""
        slot.admitted = True
        twin = self._explain_twin(slot)
        if twin:
            slot.twins.append(twin)
            return
        for scope in dict.fromkeys(slot.said.scopes if slot.said else ()):
            other = self._claimed.setdefault(scope, slot)
            if other is not slot:
                slot.twins.append(f"{'/'.join(scope)} is listed by {other.name} and by {slot.name}: the second is not polled")
                continue
            slot.waits.add(scope)
            slot.crew.ask((slot.number, POLL, scope), partial(_poll_scope, slot.source, scope))

    def _explain_twin(self, slot: _AccountSlot) -> str:
        """Explain why another account already covers `slot`, or may; "" if none does."""
        introduction = slot.said
        others = [other for other in self._groups[slot.number] if other is not slot and other.admitted and other.said]
        for other in others:
            if (
                introduction
                and introduction.identity
                and other.said
                and other.said.identity == introduction.identity
                and not other.twins
            ):
                return (
                    f"{other.name} and {slot.name} are the same account, which the provider calls {introduction.identity}: "
                    "the second is not polled"
                )
        unsure = [other for other in others if other.said and (other.said.unsure or (introduction and introduction.unsure))]
        if unsure and not self._is_known(slot) and any(self._is_known(other) for other in unsure):
            return f"{slot.name} is new and not polled: today it cannot be compared with {unsure[0].name}"
        return ""

    def _is_known(self, slot: _AccountSlot) -> bool:
        """Return whether the ledger knows a scope of `slot`."""
        known_scopes = {scope for provider in slot.source.providers for scope in self._ledger.list_scopes_of(provider)}
        return bool(slot.said and known_scopes.intersection(slot.said.scopes))

    def _record(self, slot: _AccountSlot) -> None:
        """Record the listings of `slot` in one transaction, then the samples that came with them."""
        if slot.done:
            return
        slot.done = True
        if self._attribute is not None:
            slot.polls = {scope: self._attribute(poll) for scope, poll in slot.polls.items()}
        order = {scope: number for number, scope in enumerate(slot.said.scopes)} if slot.said else {}
        polls = sorted(slot.polls.values(), key=lambda poll: order.get(poll.scope, len(order)))  # not as they happened to come
        if polls:
            slot.accrued = tuple(self._ledger.record_polls([add_identity(one, slot.source, slot.said) for one in polls]))
        if any(one.why.startswith(OTHER_ACCOUNT) for one in slot.accrued):
            slot.other, slot.polls, polls = True, {}, []
        samples = [sample for poll in polls for sample in poll.samples]
        if samples:
            self._ledger.record_samples(samples)

    def _record_broken(self, slot: _AccountSlot) -> None:
        """Record as not seen the known scopes of its providers that no other account listed; a sentence if there is none."""
        if slot.done:
            return
        known_scopes = [scope for provider in slot.source.providers for scope in self._ledger.list_scopes_of(provider)]
        listed = {scope for other in self._slots if other.said for scope in other.said.scopes}.union(self._elsewhere())
        left = [scope for scope in known_scopes if scope not in listed and scope not in self._claimed]
        if not left:
            slot.unreached = tuple(_build_unreached_account(slot, name, self._clock.now()) for name in slot.source.providers)
            slot.refused += [describe_unreached_scope(one.coverage.scope, slot.broken) for one in slot.unreached]
        for scope in left:
            self._claimed[scope] = slot
            slot.polls[scope] = self._build_failed_poll(scope, slot.broken)
        self._record(slot)

    def _close_overdue(self) -> None:
        """Count missing answers as not seen; keep a listing whose look-ups are unfinished as it is."""
        why = f"no answer within {self._limit_s:g} s"
        for slot in self._slots:
            if slot.said is None and not slot.broken:
                slot.broken = f"its accounts cannot be listed: {why}"
            elif slot.said and not slot.admitted:
                self._admit(slot)
        for slot in self._slots:
            if slot.broken:
                self._record_broken(slot)
                continue
            for scope in slot.waits - set(slot.polls):
                slot.polls[scope] = self._build_failed_poll(scope, why)
            self._record(slot)


def _group_slots(slots: Sequence[_AccountSlot]) -> dict[int, list[_AccountSlot]]:
    """Return by number all slots that share a provider with it, directly or through others; itself included, in order."""
    groups = list[tuple[set[str], list[_AccountSlot]]]()
    for slot in slots:
        names = set(slot.source.providers)
        near = [group for group in groups if group[0] & names]
        groups = [group for group in groups if not group[0] & names]
        members = sorted((one for _, related in near for one in related), key=lambda one: one.number)
        groups.append((names.union(*(group_names for group_names, _ in near)), [*members, slot]))
    return {slot.number: related for _, related in groups for slot in related}


def _build_unreached_account(slot: _AccountSlot, provider: str, at: datetime) -> UnreachedAccount:
    account = getattr(slot.source, "account", "")
    scope = ScopeKey(provider, account if isinstance(account, str) else "", "")
    coverage = ScopeCoverage(scope=scope, outcome=FAILED, at=at, since=at, last_complete_at=None, why=slot.broken)
    return UnreachedAccount(source=slot.source, coverage=coverage)


def _poll_scope(source: InstanceSource, scope: ScopeKey) -> Poll:
    """Poll `scope`, within a span of the traces."""
    with trace_span("poll", provider=scope.provider, account=scope.account, scope=scope.name) as span:
        poll = source.poll(scope)
        span.set(outcome=type(poll.inventory).__name__.lower())
    return poll


def _list_notes(slot: _AccountSlot) -> Iterator[str]:
    return (f"{'/'.join(scope)}: {note}" for scope, poll in slot.polls.items() for note in poll.notes)


LOOKUPS_MAX = 100
"""Single look-ups of one poll: with more missing at once, the listing is wrong or the account is, and a rate limit is near."""


def verify_absences(answer: Poll, missing: Iterable[ResourceKey], source: Inspector) -> Poll:
    """Return `answer` with the results of looking up each of `missing`. One that still exists makes the listing partial.

    A resource that is found ended does not contradict the listing.
    """
    missing, absent, present = tuple(missing), set[ResourceKey](), list[Observation]()
    for key in missing[:LOOKUPS_MAX]:
        try:
            observation = source.look_up(key)
        except Exception:  # noqa: BLE001, S112 - a plug-in may raise anything
            continue  # unknown stays unknown: it is neither gone nor there
        if observation is None:
            absent.add(key)
        elif isinstance(observation, Observation) and observation.key == key:
            present.append(observation)
    answer = replace(answer, gone=frozenset(absent), unanswered=frozenset(missing) - absent - {one.key for one in present})
    if not present or isinstance(answer.inventory, Failed):
        return answer
    items = (*answer.inventory.items, *present)
    alive = sum(one.state != ENDED for one in present)
    if not alive:
        return replace(answer, inventory=replace(answer.inventory, items=items))
    return replace(answer, inventory=Partial(items, f"the listing lacks {alive} machines that exist when looked up"))


MEASURE_LOOKBACK = timedelta(minutes=15)
"""Of one question: measures are published up to some minutes late, and a sample that already exists is not kept twice."""
MEASURE_LIMIT_S = 45.0
"""How long all questions together may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementResult:
    """The number of samples recorded, and why others are missing."""

    samples: int = 0
    notes: tuple[str, ...] = ()


def measure_activity(
    scope_polls: Iterable[ScopePoll], ledger: Ledger, now: datetime, *, limit_s: float = MEASURE_LIMIT_S
) -> MeasurementResult:
    """Fetch and record the samples of running instances in `scope_polls`, one transaction per account."""
    running: dict[int, tuple[InstanceSource, list[Observation]]] = {}
    for one in scope_polls:
        if isinstance(one.source, UtilizationSource) and not isinstance(one.poll.inventory, Failed):
            instances = [item for item in one.poll.inventory.items if item.kind == INSTANCE and item.state == RUNNING]
            running.setdefault(id(one.source), (one.source, []))[1].extend(instances)
    period = Period(start=now - MEASURE_LOOKBACK, end=now)
    questions = {
        number: partial(
            source.poll_utilization if isinstance(source, PolledUtilizationSource) else source.fetch_utilization, items, period
        )
        for number, (source, items) in running.items()
        if items and isinstance(source, UtilizationSource)
    }
    notes, count = list[str](), 0
    for number, answer in run_all(questions, limit_s=limit_s, doing="reading activity samples").items():
        if isinstance(answer, UtilizationSamples):
            ledger.record_samples(answer.samples)
            count += len(answer.samples)
            notes += sorted({f"{key.provider}: {why}" for key, why in answer.blind})
        else:
            name = ", ".join(running[number][0].providers)
            notes.append(f"{name}: activity cannot be measured: {to_one_line(str(answer)) or type(answer).__name__}")
    return MeasurementResult(samples=count, notes=tuple(dict.fromkeys(notes)))
