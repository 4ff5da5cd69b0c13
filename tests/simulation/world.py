"""Carries a plan out: simulated clouds, the real ledger, guard and messages as `app.watchroom` opens them, by the minute.

It leaves `clouds.jsonl` and `ledger.db` in its folder, and whoever judges reads those.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from costguard.guard.alerts.alert import INFO, AlertRoute
from costguard.guard.context import GuardConfig
from costguard.guard.overrides import ACCEPT, ARM, LEASE, PROTECT, SNOOZE, Override, join_arming
from costguard.guard.policy import Policy
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.guarding import guard
from costguard.services.guarding.act import executor
from costguard.services.guarding.guard import GuardRunner, GuardRunResult
from costguard.services.guarding.sample_cache import AgentSampleCache
from costguard.services.guarding.watchdog_context import SerializedLedger, WatchdogContext
from costguard.services.poll.kubernetes_view import KubernetesView
from costguard.settings import Settings
from costguard.testing import FakeClock
from costguard.testing.machine import SimulatedMachine
from costguard.values.resource import Incarnation
from tests.due import list_due
from tests.simulation.clouds import EndedAbruptly, Log, LoggedEndingCloud
from tests.simulation.judge_due import COUNTED
from tests.simulation.plans import Plan
from tests.simulation.reading import LEDGER, LOG, Record, Witness, micros, read
from tests.simulation.ruling import policies, rails_of
from tests.simulation.staging import budgets_of, write_rules
from tests.simulation.telling import Channel
from tests.simulation.troubles import Troubles
from tests.simulation.ways import Ways

MINUTE, MICRO = timedelta(minutes=1), timedelta(microseconds=1)
HEALING = 3
"""So many polls follow once nothing is wrong any more."""
LONGEST_TAIL = timedelta(hours=12)
EVERYBODY = AlertRoute(name="people", channels=("people",), min_severity=INFO)


class World(Ways):
    """One world in `folder`, which is empty. `runs`: of the guard so far; `judging`: whose run it is."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self.path = plan, folder, folder / LEDGER
        self.start = datetime.fromisoformat(plan.start).replace(tzinfo=UTC)
        self.forever = self.start + timedelta(days=30)
        self.truth, self.clock = FakeClock(self.start), FakeClock(self.start)
        self.log = Log(self.truth, self.clock, Witness(self.path), folder / LOG)
        self.troubles = Troubles(self)
        self.log.meddle = self.troubles.meddle
        self.jumped = self.disarmed = False
        self.runs, self.judging, self.broken = 0, "", list[str]()
        self.clouds: dict[str, LoggedEndingCloud] = {}
        self.rooms: dict[str, WatchdogContext] = {}
        self.asleep: dict[str, int] = {"a": -1, "b": -1}
        self._books: dict[str, SpendingReader] = {}
        self._fresh: set[str] = set()
        self._turns: dict[str, list[Any]] = {}
        self._gaps: list[datetime] = []
        self._leases: dict[str, SimulatedMachine] = {}
        self._wishes = self._ids = 0
        write_rules(self)
        self.found_clouds({box.cloud for box in plan.boxes})
        self.rules = GuardConfig(
            admin_route=True, policies=self.armed_policies(), budgets=budgets_of(plan), rails=rails_of(plan)
        )
        for box in plan.boxes:
            if not box.at:
                self.put(box)
        self._arm_policies()

    def armed_policies(self) -> tuple[Policy, ...]:
        """What is to be guarded in this world."""
        return policies()

    def _arm_policies(self) -> None:
        """Somebody accepted the policies before the story begins."""
        with GuardStore(f"sqlite:///{self.path}", rails=self.rules.rails) as book:
            for number, policy in enumerate(self.rules.policies):
                book.add_override(
                    Override(
                        id=f"arm-{number}",
                        what=ARM,
                        who="ada",
                        why="",
                        at=self.start,
                        until=self.forever,
                        subject=policy.name,
                        value=join_arming(policy.arm, policy.digest),
                    )
                )

    def play(self) -> Record:
        """All of it, and what there is to judge."""
        with self._named():
            try:
                self._open("a")
                if self.plan.twin:
                    self._open("b")
                for box in self.plan.boxes:
                    if box.guard == "wish" and not box.at:
                        self.wish(PROTECT, self.machine(box.name), self.forever)
                for minute in range(self.plan.minutes + 1):
                    self._minute(minute)
                for minute in range(self.plan.minutes + 1, self.plan.minutes + 1 + HEALING):
                    self._minute(minute, heal=minute == self.plan.minutes + 1)
                self._last_messages()
                self.log.write("end", broken=self.broken)
            finally:
                for who in self.rooms:
                    self._shut(who)
                self.log.flush()
                self.log.witness.close()
        return read(self.folder)

    # What there is

    def machine(self, name: str) -> SimulatedMachine | None:
        """By its name or its id."""
        plain = name.removeprefix("i-")
        return next((cloud.machines[plain] for cloud in self.clouds.values() if plain in cloud.machines), None)

    def pass_time(self, by: timedelta) -> None:
        """For everybody."""
        for clock in (self.truth, self.clock):
            clock.advance(by)

    # Who watches

    def _open(self, who: str) -> None:
        url, billing = f"sqlite:///{self.path}", {name: self.rule(cloud) for name, cloud in self.clouds.items()}
        book = GuardStore(url, rails=self.rules.rails)
        ledger = LedgerWriter(url, rules=billing, ceilings={})
        self._counted(book, "_begin_write")
        self._counted(ledger._pen, "begin_transaction")
        watching = GuardRunner(
            book=book,
            books=partial(SpendingReader, url, rules=billing),
            rules=self.rules,
            latest=lambda: room.collect_poll_results(),  # noqa: PLW0108 - it is made below
            clock=self.clock,
            holder=f"{who}:1",
            holds=lambda _: (),
            resident=True,
            routes=(EVERYBODY,),
            seconds=lambda: self.clock.boottime().total_seconds(),
        )
        room: WatchdogContext = WatchdogContext(
            settings=cast(Any, None),
            sources=self.sources(who),
            ledger=SerializedLedger(ledger),
            guard=watching,
            book=book,
            postman=Channel(self.log, self.troubles, self.clock).postman(book),
            reports=cast(Any, None),  # nobody asks for any here
            clock=cast(Any, self.clock),
            clusters=KubernetesView(Settings(), self.clock, {}, Path()),
            lags=self.late,
            heard=AgentSampleCache(),
            agents=tuple,
        )
        self.rooms[who] = room
        self._books[who] = SpendingReader(url, rules=billing)
        self._fresh.add(who)

    def _shut(self, who: str) -> None:
        room = self.rooms[who]
        room.book.close()
        room.ledger._ledger.close()  # the real one behind the lock
        self._books[who].close()

    def restart(self, who: str) -> None:
        """Its process is no more, and another one begins."""
        self.log.end = ""
        self._shut(who)
        self._open(who)

    def _counted(self, holder: Any, name: str) -> None:  # noqa: ANN401 - whatever commits
        """A watchdog may end right after a commit of it."""
        commits = getattr(holder, name)

        @contextmanager
        def counted(*stated: Any, **bounds: Any) -> Iterator[Any]:  # noqa: ANN401 - what is locked, and for how long
            with commits(*stated, **bounds) as voices:
                yield voices
            if self.troubles.committed():
                self.log.write("ended", where="after a commit")
                raise EndedAbruptly

        setattr(holder, name, counted)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Names that costguard draws follow from the plan, for as long as it plays."""
        with patch.object(guard, "token_hex", self._name), patch.object(executor, "token_hex", self._name):
            yield

    def _name(self, size: int) -> str:
        self._ids += 1
        return f"{self._ids:0{2 * size}x}"

    # What people wish

    def wish(self, what: str, machine: SimulatedMachine | None, until: datetime, *, subject: str = "", value: str = "") -> None:
        """Somebody says it at this moment; a lease is of this life."""
        now, life, key = self.clock.now(), None, machine.key if machine else None
        here = machine.now(self.truth.now()) if machine else None
        if machine and here and what == LEASE:
            life = Incarnation(machine.key, here.started_at, machine.created_at)
        self._wishes += 1
        name = f"{what}-{self._wishes}-{now:%H%M}"
        fields: dict[str, Any] = {"what": what, "at": now, "until": until, "key": key, "life": life}
        self.rooms["a"].book.add_override(Override(id=name, who="ada", why="", subject=subject, value=value, **fields))
        if what == LEASE and machine:
            self._leases[name] = machine
        if what not in {SNOOZE, ARM, ACCEPT}:
            started = micros(life.started_at) if life and life.started_at else None
            said = {"name": key.id if key else "", "started": started, "at": micros(now), "until": micros(until)}
            self.log.write("wish", id=name, what=what, **said)

    def lift(self, machine: SimulatedMachine) -> None:
        """Every lease of it that holds."""
        now = self.clock.now()
        for wish in self.rooms["a"].book.load_open_overrides(now):
            if self._leases.get(wish.id) is machine:
                self.rooms["a"].book.lift_override(wish.id, who="ada", now=now)
                self.log.write("lifted", id=wish.id, at=micros(now))

    # A minute

    def _minute(self, minute: int, *, heal: bool = False) -> None:
        self.pass_time(max(timedelta(), self.start + minute * MINUTE - self.truth.now()))
        if heal:
            self.troubles.heal()
        for box in self.plan.boxes:
            if box.at == minute and box.at:
                self.put(box)
                if box.guard == "wish":
                    self.wish(PROTECT, self.machine(box.name), self.forever)
        for event in self.plan.events:
            if event.at == minute and minute <= self.plan.minutes:
                self._spared(partial(self.troubles.happen, event))
        for who in tuple(self.rooms):
            if self.asleep[who] < minute:
                self._spared(partial(self._watched, who), who)
        self._note_turns()
        self.log.flush()

    def _spared(self, do: Any, who: str = "a") -> None:  # noqa: ANN401 - anything that may end a watchdog
        try:
            do()
        except EndedAbruptly:
            self.restart(who)

    def _watched(self, who: str) -> None:
        """It asks, judges, and tells."""
        if who == "a" or self.asleep["a"] >= 0:
            self.polls(who)
            self._said(who)
        now = self.truth.now()
        machines = [one for cloud in self.clouds.values() for one in cloud.machines.values()]
        self.log.write("polled", fleet=sum(bool((here := one.now(now)) and here.state == "running") for one in machines))
        self.judge(who)
        self.rooms[who].postman.deliver()

    def judge(self, who: str) -> None:
        """One run of its guard."""
        self.runs += 1
        self.judging, self.log.run = who, self.runs
        if who in self._fresh:
            self.log.write("odd", run=self.runs, why="it was just started")
            self._fresh.discard(who)
        guarded = self.rooms[who].run_guard()
        self._note(who, guarded)
        if guarded.unaccepted:
            self.wish(ACCEPT, None, guarded.at + self.hold, subject=guarded.plan_hash)

    def _said(self, who: str) -> None:
        """What costguard says at this moment that each machine ever cost."""
        as_of = self.clock.now()
        spent = self._books[who].spent(as_of)
        money = [[one.key.id, one.money.low.nano, one.money.high.nano] for one in spent]
        self.log.write("said", as_of=micros(as_of), money=money)

    def _note(self, who: str, guarded: GuardRunResult) -> None:
        if guarded.broken:
            self.broken.append(guarded.broken)
        if guarded.sight is not None and guarded.acting:
            gap = guarded.sight.gap_ended_at
            if gap is not None and not self.jumped and gap not in self._gaps:
                self._gaps.append(gap)
                self.log.write("gap", at=micros(gap))
        held = sorted({why for one in guarded.survey.proposals for why, _ in one.held_by}) if guarded.survey else []
        self.log.write("guarded", who=who, acting=guarded.acting, held=held)
        if guarded.survey is not None and guarded.acting:
            due = sorted({(one.key.id, one.act) for one in list_due(guarded)})
            self.log.write("wanted", due=due, counted=self.log.witness.ask(COUNTED), clock_at=micros(self.clock.now()))
        if guarded.survey is not None and not self.log.capped:
            for one in guarded.survey.foresights:
                self.log.write("shown", over=one.overshoot.nano / 1e9)
        for seq, head in self.log.witness.ask("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1"):
            self.log.write("head", seq=seq, hash=head)

    def _note_turns(self) -> None:
        for cloud in self.clouds.values():
            for one in cloud.machines.values():
                turns = [[micros(at), state, micros(since) if since else None] for at, state, since in one.turns]
                if turns != self._turns.get(one.name):
                    self._turns[one.name] = turns
                    self.log.write("turns", name=one.key.id, turns=turns)

    def _last_messages(self) -> None:
        """Messages that failed are tried again at their own pace: time goes on until none is due any more."""
        since, due = self.truth.now(), "SELECT min(next_us) FROM outbox WHERE sent_us IS NULL AND gave_up_us IS NULL"
        while self.truth.now() - since < LONGEST_TAIL:
            ((next_us,),) = self.log.witness.ask(due)
            if next_us is None:
                return
            self.pass_time(max((next_us - micros(self.clock.now())) * MICRO, MINUTE))
            self.rooms["a"].postman.deliver()
