"""Guard: from facts to a plan, and from the plan to one deed at a time. Each run derives everything anew.

    read what is known -> confirm what was sent -> survey -> commit what it leaves, messages too -> do what goes

Nothing is done that was not committed before. Where the ledger cannot be written nothing is done at all, and that is said
through a channel that needs no disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from secrets import token_hex

from costguard.core.balance import Balance
from costguard.core.guard.incarnation import Incarnation
from costguard.core.guard.intent import Intent
from costguard.core.guard.ladders import stepped
from costguard.core.guard.notice import Notice, Route
from costguard.core.guard.noticing import notices_of
from costguard.core.guard.policy import ASK, DENY, NOTIFY, OBSERVE, RECORD, Policy
from costguard.core.guard.railing import clock_doubt, config_would_exceed, fingerprint, gap_doubt
from costguard.core.guard.run import GuardRun
from costguard.core.guard.sight import Rules, Sight
from costguard.core.guard.surveying import Survey, survey
from costguard.core.guard.telling import tell
from costguard.core.guard.wishes import ACCEPT, ARM, ARMED_FOR, SNOOZE, Wish, is_open
from costguard.core.hold import Hold
from costguard.core.metering.observation import Handling, Observation
from costguard.core.metering.resource import ResourceKey, ScopeKey
from costguard.core.spending import Live, ScopeNow
from costguard.errors import LedgerError
from costguard.flows.acting import boottime_s
from costguard.flows.carried import breaker_of, breaker_text, costs_of, instant_of
from costguard.flows.deeds import Deeds
from costguard.flows.status import standings
from costguard.ports import Books, Clock, InstanceSource, UtilizationSource
from costguard.ports.guarding import GuardBook

LOOKS_BACK = timedelta(hours=48)
WISHES_BACK = timedelta(days=100)
"""Longer than an arming lasts."""
DAY = timedelta(days=1)
TURN_LEAST = timedelta(seconds=60)
SETTINGS = "settings file"
"""Who armed what the file arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """What the last listings told that the ledger does not keep, and who can be asked about each scope.

    `balances`: of accounts that are paid in advance, as last asked. `members`: what controllers bring up, ended ones as well.
    """

    handling: Mapping[ResourceKey, Handling] = field(default_factory=dict)
    sources: Mapping[ScopeKey, InstanceSource] = field(default_factory=dict)
    balances: tuple[Balance, ...] = ()
    members: tuple[Observation, ...] = ()

    def source_of(self, key: ResourceKey, scope: ScopeKey | None) -> InstanceSource | None:
        """Who can be asked about `key`, which was listed in `scope`; None: any scope of its account."""
        if scope is not None:
            return self.sources.get(scope)
        return next((source for one, source in self.sources.items() if one[:2] == key[:2]), None)

    @property
    def apart(self) -> frozenset[str]:
        """Providers that are asked for measures apart from their listing."""
        return frozenset(scope.provider for scope, source in self.sources.items() if isinstance(source, UtilizationSource))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """What a run came to. `committed`: it is in the ledger, or another watchdog has the turn. `broken`: why nothing was done.

    `intents`: as they stand now. `unaccepted`: why its plan must be accepted first; `plan_hash`: of what would be done.
    """

    at: datetime
    committed: bool
    acting: bool
    survey: Survey | None = None
    sight: Sight | None = None
    intents: tuple[Intent, ...] = ()
    notices: tuple[Notice, ...] = ()
    scopes: tuple[ScopeNow, ...] = ()
    plan_hash: str = ""
    unaccepted: str = ""
    broken: str = ""
    notes: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Guard:
    """The guard of one ledger. `holder`: this process, by a name of its own. `latest`: asked anew in each run.

    `dry_run`: nothing is done, recorded or sent. `resident`: it runs again and again, so that its own first run only observes;
    else only a gap in the ledger's runs counts.
    """

    book: GuardBook
    books: Callable[[], AbstractContextManager[Books]]
    rules: Rules
    latest: Callable[[], Latest]
    clock: Clock
    holder: str
    holds: Callable[[datetime], Sequence[Hold]] = field(default=lambda _: ())
    routes: tuple[Route, ...] = ()
    dry_run: bool = False
    resident: bool = False
    seconds: Callable[[], float] = boottime_s
    _clocks: tuple[datetime, float] | None = None

    def run(self) -> Guarded:
        """One run. It raises nothing that the ledger raises: that is `broken`, and nothing is done then."""
        now = self.clock.now()
        try:
            return self._run(now)
        except LedgerError as error:
            return Guarded(at=now, committed=False, acting=False, broken=str(error))

    def _run(self, now: datetime) -> Guarded:
        epoch = None if self.dry_run else self.book.take_turn(self.holder, now, max(3 * self.rules.interval, TURN_LEAST))
        latest = self.latest()
        wishes = _wishes(self.book, now)
        if epoch is not None:
            wishes = (*wishes, *self._armed(wishes, now))
        sight, scopes, facts = self._sight(now, wishes, epoch, latest)
        scope_of = {one.observation.key: one.scope for one in sight.live}
        deeds = Deeds(
            book=self.book,
            rules=self.rules,
            source_of=lambda key: latest.source_of(key, scope_of.get(key)),
            clock=self.clock,
            seconds=self.seconds,
            epoch=epoch or 0,
            observes=bool(sight.held),
        )
        if epoch is not None and deeds.confirm_all(sight.intents, sight.live):
            sight = replace(sight, intents=_intents(self.book, now))
        found = survey(self.rules, sight)
        told_hash = fingerprint(found.proposals, _sha256)
        unaccepted = self._unaccepted(found, wishes, facts, told_hash, now)
        if unaccepted:
            sight = replace(sight, held=(*sight.held, ("not_accepted", unaccepted)))
            found = survey(self.rules, sight)
        found = _told(found, now)
        notices = notices_of(found, self.rules, sight, scopes, costs_of(sight.intents))
        committed = self.dry_run
        if epoch is not None:
            committed = self._record(epoch, found, sight, notices, facts, unaccepted=unaccepted, now=now)
            if committed:
                deeds.go(found, sight)
        return Guarded(
            at=now,
            committed=committed or (epoch is None and not self.dry_run),
            acting=epoch is not None and committed,
            survey=found,
            sight=sight,
            intents=_intents(self.book, now),
            notices=tuple(notices),
            scopes=scopes,
            plan_hash=told_hash,
            unaccepted=unaccepted,
            broken=deeds.broken,
            notes=tuple(deeds.notes),
        )

    def _sight(
        self, now: datetime, wishes: tuple[Wish, ...], epoch: int | None, latest: Latest
    ) -> tuple[Sight, tuple[ScopeNow, ...], dict[str, str]]:
        last = self.book.last_run()
        facts = dict(last.facts) if last else {}
        gap = gap_doubt(last.at if last else None, self.rules.interval, self.rules.rails, now)
        gap_ended = now if gap and last else instant_of(facts.get("gap_ended_at"))
        if gap_ended:
            facts["gap_ended_at"] = gap_ended.isoformat()
        with self.books() as books:
            live = tuple(_handled(one, latest.handling) for one in books.live(now))
            found = standings(books=books, budgets=self.rules.budgets, holds=self.holds(now), live=live, now=now)
            scopes = tuple(books.scopes())
        sight = Sight(
            now=now,
            live=live,
            standings=found,
            samples=self.book.samples_since(now - LOOKS_BACK),
            known=self.book.first_polls(),
            protections=self.book.protections(),
            wishes=wishes,
            climbs=tuple(self.book.climbs()),
            intents=_intents(self.book, now),
            sent=tuple(self.book.sends_since(now - DAY)),
            reactions=tuple(self.book.reactions(now - 30 * DAY)),
            apart=latest.apart,
            balances=latest.balances,
            members=latest.members,
            gap_ended_at=gap_ended,
            breaker=breaker_of(facts.get("breaker")),
            held=tuple(self._held(now, epoch, gap)),
        )
        return sight, scopes, facts

    def _held(self, now: datetime, epoch: int | None, gap: str) -> Iterable[tuple[str, str]]:
        """What holds every act of this run."""
        if self.dry_run:
            yield "dry_run", "this is a dry run"
        elif epoch is None:
            yield "not_acting", "another watchdog acts on this ledger"
        before, self._clocks = self._clocks, (now, self.seconds())
        if gap:
            yield "gap", gap
        elif before is None and self.resident:
            yield "gap", "the first run after a start only observes"
        if before is not None:
            doubt = clock_doubt(now - before[0], timedelta(seconds=self._clocks[1] - before[1]), self.rules.rails)
            if doubt:
                yield "clock", doubt

    def _armed(self, wishes: Iterable[Wish], now: datetime) -> list[Wish]:
        """The armings that the file states and the ledger does not know yet, now recorded."""
        known = {(w.subject, w.value) for w in wishes if w.what == ARM and w.who == SETTINGS}
        stated = {p.name: p.arm for p in self.rules.policies if p.arm != OBSERVE}
        stated |= {f"budget:{b.name}": "stop" for b in self.rules.budgets if b.hard}
        made = []
        for name, level in stated.items():
            if (name, level) not in known:
                why, until = "armed by the settings", now + ARMED_FOR
                wish = Wish(id=token_hex(8), what=ARM, who=SETTINGS, why=why, at=now, until=until, subject=name, value=level)
                self.book.add_wish(wish)
                made.append(wish)
        return made

    def _unaccepted(self, found: Survey, wishes: Iterable[Wish], facts: dict[str, str], plan_hash: str, now: datetime) -> str:
        """Why the first run of these settings waits for a yes; "" where they ran before, or their plan was accepted."""
        mark = _sha256("\n".join(map(_written, self.rules.policies)).encode())[:16]
        if facts.get("settings") == mark:
            return ""
        accepted = any(w.what == ACCEPT and plan_hash.startswith(w.subject) and is_open(w, now) for w in wishes if w.subject)
        why = "" if accepted else config_would_exceed(found.proposals, found.fleet, self.rules.rails, now)
        if not why:
            facts["settings"] = mark
        return why

    def _record(
        self,
        epoch: int,
        found: Survey,
        sight: Sight,
        notices: Sequence[Notice],
        facts: dict[str, str],
        *,
        unaccepted: str,
        now: datetime,
    ) -> bool:
        """Everything that the run leaves, in one transaction with its messages."""
        facts = facts | {"breaker": breaker_text(found.breaker)}
        snoozes = [w for w in sight.wishes if w.what == SNOOZE and is_open(w, now)]
        after_gap = any(reason == "gap" for reason, _ in sight.held)
        messages, told = tell(notices, self.book.told(), now=now, routes=self.routes, snoozes=snoozes, after_gap=after_gap)
        run = GuardRun(
            id=token_hex(8),
            at=now,
            epoch=epoch,
            interval=self.rules.interval,
            outcome="held" if sight.held or unaccepted else "acting",
            notes=tuple(f"{reason}: {says}" for reason, says in sight.held),
            facts=tuple(sorted(facts.items())),
        )
        return self.book.record_run(run, climbs=found.climbs, told=told, messages=messages, protections=found.sighted)


def _told(found: Survey, now: datetime) -> Survey:
    """`found` with the steps done that only tell: those are done by being found, as their notice is committed with them.

    An act is done by its intent, a hook by its end.
    """
    due: dict[tuple[str, Incarnation], list[int]] = {}
    for one in found.proposals:
        if one.step.do in (NOTIFY, ASK, RECORD, DENY) and one.goes(now):
            due.setdefault((one.verdict.policy.name, one.verdict.life), []).append(one.number)
    cases = []
    for case in found.cases:
        climb = case.climb
        for number in due.get((case.verdict.policy.name, case.verdict.life), ()):
            climb = stepped(climb, case.verdict.policy, number, now) if climb is not None else None
        cases.append(replace(case, climb=climb))
    return replace(found, cases=tuple(cases), climbs=tuple(case.climb for case in cases if case.climb is not None))


def _wishes(book: GuardBook, now: datetime) -> tuple[Wish, ...]:
    """All that count, and those that have ended lately: a lease that ended starts windows anew."""
    found = {wish.id: wish for wish in (*book.open_wishes(now), *book.wishes_since(now - WISHES_BACK))}
    return tuple(sorted(found.values(), key=lambda wish: (wish.at, wish.id)))


def _intents(book: GuardBook, now: datetime) -> tuple[Intent, ...]:
    """The open ones, and those that ended within a day."""
    found = {one.id: one for one in (*book.open_intents(), *book.intents_since(now - DAY))}
    return tuple(sorted(found.values(), key=lambda one: (one.created_at, one.id)))


def _handled(live: Live, handling: Mapping[ResourceKey, Handling]) -> Live:
    known = handling.get(live.observation.key)
    return live if known is None else replace(live, observation=replace(live.observation, handling=known))


def _written(policy: Policy) -> str:
    """Everything in `policy` that bears on acts, as a text."""
    parts = (policy.name, policy.arm, policy.when.text, policy.target, policy.hold, policy.then, policy.needs, policy.rule)
    return "\x1f".join(map(repr, (*parts, policy.allow_irreversible, policy.schedule)))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
