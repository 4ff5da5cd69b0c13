"""Carries a plan out: simulated clouds, the real ledger, guard and acts, as `app.watchroom` opens them, minute by minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, cast

from costguard.app.watchroom import OneAtATime, Room
from costguard.core.budget import DAY, Budget, Match
from costguard.core.guard.incarnation import Incarnation
from costguard.core.guard.policy import NOTIFY, STOP, Policy, Rails, Step, Target
from costguard.core.guard.sight import Rules
from costguard.core.guard.wishes import ACCEPT, ARM, FREEZE, LEASE, PROTECT, SNOOZE, Wish
from costguard.core.metering.observation import Handling
from costguard.core.metering.resource import STOPPED
from costguard.core.money import Money
from costguard.core.sample import AGENT_ALIVE, CPU_CORES, GPU_UTIL, NETWORK
from costguard.flows.guard import Guard, Guarded, Latest
from costguard.ledger.guardbook import GuardBook
from costguard.ledger.reading import Books
from costguard.ledger.writing import Ledger
from costguard.settings.conditions import read_condition
from costguard.testing import FakeClock
from costguard.testing.faults import Fault
from costguard.testing.machine import COMPUTE, Machine
from costguard.testing.samples import SILENT, Rule, busy, computing, quiet, transfer
from tests.simulation.clouds import EndedAbruptly, Log, LoggedCloud, LoggedEndingCloud, PlainCloud
from tests.simulation.judge import Record, Wished, Witness
from tests.simulation.plans import CALM, CAP, Box, Happens, Plan

START = datetime(2026, 11, 6, 16, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOLD, GRACE = timedelta(minutes=10), timedelta(minutes=5)
IDLE = read_condition('state == "idle" && confidence >= 0.9', "the simulation")
FOREVER = START + timedelta(days=30)
FEW = (GPU_UTIL, CPU_CORES, NETWORK, AGENT_ALIVE)
"""So many signals prove idleness with 0.97, and more would only take time."""


def _few(rule: Rule) -> Rule:
    return replace(rule, values={signal: value for signal, value in rule.values.items() if signal in FEW})


DOES = {
    "busy": _few(busy()),
    "quiet": _few(quiet()),
    "io": _few(transfer(6.1e6)),
    "cpu": _few(computing(2.0, cores=32)),
    "silent": SILENT,
}
WHY_NOT = {
    "controller": "a controller has it",
    "handling": "its provider protects it",
    "unstoppable": "it cannot be stopped",
    "unarmed": "its policy is not armed",
    "label": "its label protects it",
    "slip": "its label nearly protects it",
    "wish": "somebody protects it",
    "loses": "a stop would lose its disk",
}


def _policy(name: str, arm: str, mark: str) -> Policy:
    steps = (Step(do=NOTIFY), Step(do=STOP, after=GRACE))
    target = Target(match=Match(labels=(("arm", (mark,)),)))
    return Policy(name=name, when=IDLE, then=steps, arm=arm, hold=HOLD, target=target)


def _rails(plan: Plan) -> Rails:
    stated: dict[str, Any] = {
        name: Fraction(value).limit_denominator(100) if "share" in name else value for name, value in plan.rails.items()
    }
    return Rails(**stated)


class World:
    """One world in `folder`."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.path = plan, folder / f"world-{plan.seed}.db"
        self.truth, self.clock = FakeClock(START), FakeClock(START)
        self.log = Log(self.truth, self.clock, Witness(self.path))
        self.log.meddle = self._meddle
        self.looks, self.jumped = 0, timedelta()
        self.clouds: dict[str, LoggedEndingCloud] = {}
        self.activity: dict[str, list[tuple[datetime, str]]] = {}
        self.wished: list[Wished] = []
        self.disarmed = {"watched": START}
        self.polls: list[tuple[datetime, int]] = []
        self.gaps: list[datetime] = []
        self.odd_runs: dict[int, str] = {}
        self.shown: list[float] = []
        self.asleep: dict[str, int] = {"a": -1, "b": -1}
        self.broken: list[str] = []
        used = {box.cloud for box in plan.boxes}
        for name, kind in (("aws", LoggedCloud), ("runpod", PlainCloud), ("lambda", LoggedEndingCloud)):
            if name in used:
                self.clouds[name] = kind(name, self.truth)
                self.clouds[name].log = self.log
        for box in plan.boxes:
            if not box.at:
                self._put(box)
        self.rules = Rules(
            policies=(_policy("idle-gpu", STOP, "yes"), _policy("watched", NOTIFY, "no")),
            budgets=self._budgets(),
            rails=_rails(plan),
        )
        self.rooms: dict[str, Room] = {}
        self._open("a")
        if plan.twin:
            self._open("b")
        for box in plan.boxes:
            if box.guard == "wish" and not box.at:
                self._wish(PROTECT, self._machine(box.name), FOREVER)

    # What there is

    def _put(self, box: Box) -> None:
        cloud, now = self.clouds[box.cloud], self.truth.now()
        labels = {"arm": "no" if box.guard == "unarmed" else "yes"}
        labels |= {"costguard": "never"} if box.guard == "label" else {"protcted": "yes"} if box.guard == "slip" else {}
        handling = Handling(
            stops=cloud.can_stop and box.guard != "unstoppable",
            terminates=True,
            controller="auto-scaling group train" if box.guard == "controller" else "",
            protected=("stop",) if box.guard == "handling" else (),
            stop_loses=("the local disk",) if box.guard == "loses" else (),
        )
        began = now - box.age_min * MINUTE
        machine = cloud.add(box.name, rate=box.rate, gpu="H100-SXM", at=began, labels=labels, handling=handling, owner="ada")
        machine.families = frozenset({"duty"} if box.few else {"duty", "cpu", "io", "agent"})
        for number, does in enumerate(box.does):
            at = began if number == 0 else max(START + does.at * MINUTE, now)
            cloud.measures(box.name, DOES[does.what], at=at)
            self.activity.setdefault(machine.key.id, []).append((at, does.what))

    def _budgets(self) -> tuple[Budget, ...]:
        if not self.plan.cap_hours:
            return ()
        return (Budget(name="all", cap=Money.parse(f"{self._cap():.2f}"), period=DAY, hard=True),)

    def _cap(self) -> float:
        burn = sum(float(box.rate) for box in self.plan.boxes)
        already = sum(float(box.rate) * box.age_min / 60 for box in self.plan.boxes)
        return round(already + burn * self.plan.cap_hours, 2)

    def _open(self, who: str) -> None:
        url, billing = f"sqlite:///{self.path}", {name: cloud.rule() for name, cloud in self.clouds.items()}
        book = GuardBook(url, rails=self.rules.rails, rules=billing)
        guard = Guard(
            book=book,
            books=partial(Books, url, rules=billing),
            rules=self.rules,
            latest=Latest,
            clock=self.clock,
            holder=f"{who}:1",
            resident=True,
            seconds=lambda: self.clock.boottime().total_seconds(),
        )
        ledger = Ledger(url, rules=billing, ceilings={})
        room = Room(
            settings=cast(Any, None),
            sources=tuple(self.clouds.values()),
            ledger=OneAtATime(ledger),
            guard=guard,
            book=book,
            postman=cast(Any, None),
            clock=cast(Any, self.clock),
        )
        guard.latest = room.latest
        self.rooms[who] = room
        self._fresh = {*getattr(self, "_fresh", set()), who}

    def _shut(self, who: str) -> None:
        room = self.rooms[who]
        room.book.close()
        room.ledger._ledger.close()  # the real one behind the lock

    # What happens

    def _machine(self, name: str) -> Machine | None:
        plain = name.removeprefix("i-")
        return next((cloud.machines[plain] for cloud in self.clouds.values() if plain in cloud.machines), None)

    def _wish(self, what: str, machine: Machine | None, until: datetime, *, subject: str = "", value: str = "") -> None:
        """Somebody says it at this moment; a lease is of this life."""
        now, started = self.clock.now(), None
        key = machine.key if machine else None
        here = machine.now(self.truth.now()) if machine else None
        life = None
        if machine and here and what == LEASE:
            started = here.started_at
            life = Incarnation(machine.key, started, machine.created_at)
        wish = Wish(
            id=f"{what}-{len(self.wished)}-{now:%H%M}",
            what=what,
            who="ada",
            why="",
            at=now,
            until=until,
            key=key,
            life=life,
            subject=subject,
            value=value,
        )
        self.rooms["a"].book.add_wish(wish)
        self.wished.append(Wished(what, now, until, key.id if key else "", started))
        if what in {SNOOZE, ARM, ACCEPT}:
            self.wished.pop()

    def _label(self, machine: Machine, **changed: str) -> None:
        labels = {key: value for key, value in {**machine.labels[-1][1], **changed}.items() if value}
        machine.labels.append((self.truth.now(), labels))

    def _meddle(self, name: str) -> None:
        self.looks += 1
        what, machine = self.plan.meddles.get(self.looks, ""), self._machine(name)
        if not what or machine is None:
            return
        now, until = self.truth.now(), self.clock.now() + timedelta(hours=1)
        if what == "label":
            self._label(machine, costguard="never")
            self._now_protected(machine.key.id)
        elif what == "relabel":
            self._label(machine, arm="other")
        elif what in {"lease", "freeze", "protect"}:
            said = {"lease": LEASE, "freeze": FREEZE, "protect": PROTECT}[what]
            self._wish(said, None if said == FREEZE else machine, until)
        elif what == "restart":
            machine.run(now)
        else:
            for clock in (self.truth, self.clock):
                clock.advance(timedelta(seconds=6 if what == "slow" else 40))

    def _now_protected(self, name: str) -> None:
        """From now on, whether it was listed so or not: a look sees it."""
        self.wished.append(Wished("label", self.clock.now(), FOREVER, name))

    def _happen(self, event: Happens) -> None:
        machine, now = self._machine(event.name), self.truth.now()
        until, over = now + event.minutes * MINUTE, self.clock.now() + event.minutes * MINUTE
        if event.name in self.clouds and event.what in {"down", "partial", "empty", "stale", "hides"}:
            self.clouds[event.name].faults.append(Fault(now, until, event.what, polls=3, name=event.how))
        elif event.what == "freeze":
            self._wish(FREEZE, None, over)
        elif event.what == "disarm":
            self._wish(ARM, None, FOREVER, subject="idle-gpu", value=NOTIFY)
            self.disarmed.setdefault("idle-gpu", self.clock.now())
        elif event.what == "jumps":
            by = timedelta(seconds=float(event.how))
            self.clock.jump(by)
            self.jumped += abs(by)
            self.odd_runs[self.log.run + 1] = "the clock jumped"
        elif event.what == "crash":
            self._restart("a")
        elif event.what == "dies":
            self.log.end = event.how
        elif event.what in {"sleeps", "twin sleeps"}:
            self.asleep["b" if event.what == "twin sleeps" else "a"] = event.at + event.minutes
        elif machine is not None:
            self._to(machine, event, over)

    def _to(self, machine: Machine, event: Happens, over: datetime) -> None:
        now = self.truth.now()
        here = machine.now(now)
        if event.what == "answers":
            machine.answers.append((now, event.how, event.minutes if event.minutes < 5 else None))
        elif event.what == "restart":
            machine.run(now)
        elif event.what == "stopped" and here and here.state == "running":
            machine.turn(now, STOPPED)
        elif event.what in {"label", "unlabel", "slip"}:
            value = {"label": "never", "unlabel": "", "slip": "nevr"}[event.what]
            self._label(machine, costguard=value)
        elif event.what == "lease":
            self._wish(LEASE, machine, over)
        elif event.what == "snooze":
            self._wish(SNOOZE, machine, over)
        elif event.what == "lift":
            self._lift(machine)

    def _lift(self, machine: Machine) -> None:
        now = self.clock.now()
        for wish in self.rooms["a"].book.open_wishes(now):
            if wish.what == LEASE and wish.key == machine.key:
                self.rooms["a"].book.lift_wish(wish.id, who="ada", now=now)
                number = int(wish.id.rpartition("-")[2])
                self.wished[number] = self.wished[number]._replace(until=now)

    def _restart(self, who: str) -> None:
        self._shut(who)
        self._open(who)

    # A minute

    def play(self) -> Record:
        """All of it, and what there is to judge."""
        try:
            for minute in range(self.plan.minutes + 1):
                self._minute(minute)
        finally:
            for who in self.rooms:
                self._shut(who)
            self.log.witness.close()
        return self._record()

    def _minute(self, minute: int) -> None:
        by = max(timedelta(), START + minute * MINUTE - self.truth.now())
        for clock in (self.truth, self.clock):
            clock.advance(by)
        for box in self.plan.boxes:
            if box.at == minute and box.at:
                self._put(box)
                if box.guard == "wish":
                    self._wish(PROTECT, self._machine(box.name), FOREVER)
        for event in self.plan.events:
            if event.at == minute:
                self._happen(event)
        for who in tuple(self.rooms):
            if self.asleep[who] < minute:
                self._guarded(who)

    def _guarded(self, who: str) -> None:
        now = self.truth.now()
        if who == "a" or self.asleep["a"] >= 0:
            self.rooms[who].poll()
        running = sum(
            bool((here := one.now(now)) and here.state == "running")
            for cloud in self.clouds.values()
            for one in cloud.machines.values()
        )
        self.polls.append((now, running))
        self.log.run += 1
        if who in self._fresh:
            self.odd_runs.setdefault(self.log.run, "it was just started")
            self._fresh.discard(who)
        try:
            guarded = self.rooms[who].judge()
        except EndedAbruptly:
            self._restart(who)
            return
        self._note(guarded)
        if guarded.unaccepted:
            self._wish(ACCEPT, None, guarded.at + HOLD, subject=guarded.plan_hash)

    def _note(self, guarded: Guarded) -> None:
        if guarded.broken:
            self.broken.append(guarded.broken)
        if guarded.sight is not None and guarded.acting:
            gap = guarded.sight.gap_ended_at
            if gap is not None and not self.jumped and gap not in self.gaps:
                self.gaps.append(gap)
        before = [one for one in self.log.asked if one.run < self.log.run]
        if guarded.survey is not None and not any(row["rule"] == "cap" for one in before for row in one.rows):
            self.shown += [one.overshoot.nano / 1e9 for one in guarded.survey.foresights]

    def _record(self) -> Record:
        plan, end = self.plan, self.truth.now()
        ids = {box.name: f"i-{box.name}" for box in plan.boxes}
        calm = plan.kind == CALM
        eligible = []
        for box in plan.boxes:
            last = box.does[-1]
            if calm and last.what == "quiet" and not box.guard and not box.few and box.cloud != "lambda":
                eligible.append((ids[box.name], START + last.at * MINUTE))
        midnight = START.replace(hour=0)
        spent = sum((cloud.spent(midnight, end, (COMPUTE,)) for cloud in self.clouds.values()), Fraction(0)) / 10**9
        cap = (self._cap(), float(spent), max(self.shown, default=0.0)) if plan.kind == CAP else None
        return Record(
            path=self.path,
            start=START,
            end=end,
            hold=HOLD,
            grace=GRACE,
            acts_10m=plan.rails["acts_per_10m"],
            share_10m=plan.rails["fleet_share_10m"],
            share_day=plan.rails["fleet_share_day"],
            calm=calm,
            told=self.log.told,
            asked=self.log.asked,
            measured=self.log.measured,
            activity=self.activity,
            untouchable=self._untouchable(),
            wished=self.wished,
            disarmed=self.disarmed,
            polls=self.polls,
            gaps=self.gaps,
            odd_runs=self.odd_runs,
            eligible=eligible,
            cap=cap,
            slack=self.jumped,
            lag={f"i-{box.name}": timedelta(minutes=5) for box in plan.boxes if box.cloud == "aws"},
        )

    def _untouchable(self) -> Mapping[str, str]:
        return {f"i-{box.name}": WHY_NOT[box.guard] for box in self.plan.boxes if box.guard} | {
            f"i-{box.name}": "its provider has no stop" for box in self.plan.boxes if box.cloud == "lambda"
        }


def shrunk(plan: Plan, without: int) -> Plan:
    """`plan` without one of its events: for who looks for the few that matter."""
    return replace(plan, events=plan.events[:without] + plan.events[without + 1 :])
