"""A vendor's fake in a wired world: it serves what is true at the moment, and lies or breaks where the plan says so.

It writes down by itself what it told and what it was asked. Nothing of what it writes comes from costguard.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email.utils import format_datetime

from costguard_sim.view import find_state
from costguard_sim.world import to_us

from costguard.metering.observation import Handling
from costguard.testing import FakeClock
from costguard.testing.cloud import DOWN as UNREACHED
from costguard.testing.cloud import EMPTY, HIDES, PARTIAL, STALE, ListingFault
from costguard.testing.machine import DEAF, LOST, REFUSES, UNCLEAR, SampleRule, SimulatedMachine
from costguard.values.money import Rate
from costguard.values.resource import ENDED, RUNNING, STOPPED, ResourceKey
from costguard.values.sample import CPU_CORES, CPU_UTIL, GPU_UTIL
from tests.fakes.server import Answer, Asked
from tests.simulation.clouds import AFTER, BEFORE, FORGETS, EndedAbruptly, Log
from tests.simulation.reading import micros
from tests.simulation.wired_net import Sent
from tests.simulation.wired_vendors import BESIDE, END, LIST, MEASURE, STOP, VENDORS, Vendor, numbered

MINUTE = timedelta(minutes=1)
CORES = 32
OLD = 3 * MINUTE
"""How old a stale answer is."""
LIES = (EMPTY, STALE, HIDES)
MEASURED_LATE = 4 * MINUTE
SLOW_S = 5.0
"""Between two bytes that drip: the shortest answer takes longer than any deadline."""
UNSEEN = frozenset(
    ("500", "502", "503", "429", "429long", "401", "403", "reset", "timeout", "html", "deep", "redirect", "void", "apology")
)
"""Faults in which the vendor never comes to do anything."""
PAGE_OF_HTML = b"<!DOCTYPE html><html><title>Attention Required!</title></html>"
JSON = {"Content-Type": "application/json"}
ACT_FAULTS: Mapping[str, str] = {LOST: "did", UNCLEAR: "reset", REFUSES: "403"}
"""How a machine takes acts -> what comes over the wire."""


class Whole(SimulatedMachine):
    """A machine whose turns come at whole seconds, as EC2 states them."""

    __slots__ = ()

    def turn(self, at: datetime, state: str, *, started_at: datetime | None = None) -> None:
        whole = None if started_at is None else started_at.replace(microsecond=0)
        super().turn(at.replace(microsecond=0), state, started_at=whole)


@dataclass(slots=True)
class Shown:
    """The time that a fake believes it is: now, or `back` before."""

    truth: FakeClock
    back: timedelta = timedelta()

    def now(self) -> datetime:
        """Now, or before."""
        return self.truth.now() - self.back


@dataclass(slots=True)
class _Chain:
    """The pages of one listing so far. `broken`: lists beside it whose last answer was none."""

    items: dict[str, list[object]] = field(default_factory=dict)
    told: bool = False
    whole: bool = False
    broken: set[str] = field(default_factory=set)
    lies: set[str] = field(default_factory=set)
    first: Answer | None = None


class WiredCloud:
    """See the module. `machines`: by name, with their `keys`. `requests`: how many came."""

    def __init__(self, provider: str, truth: FakeClock, log: Log, broken: list[str]) -> None:
        self.vendor: Vendor = VENDORS[provider]()
        self.provider, self.truth, self.log, self._broken = provider, truth, log, broken
        self.shown = Shown(truth)
        self.fake = self.vendor.fake
        self.fake.clock = self.shown
        self.machines: dict[str, SimulatedMachine] = {}
        self.keys: dict[str, ResourceKey] = {}
        self.faults: list[ListingFault] = []
        self.requests = 0
        self._struck: dict[ListingFault, int] = {}
        self._chain = _Chain()
        self._measured: set[tuple[str, datetime, bool]] = set()
        self._told: set[tuple[str, datetime]] = set()

    @property
    def can_stop(self) -> bool:
        """Whether the vendor has a stop."""
        return self.vendor.stops

    def add(
        self, name: str, *, rate: str, at: datetime, labels: Mapping[str, str], handling: Handling, **_: object
    ) -> SimulatedMachine:
        """A machine that runs since `at`."""
        number = numbered([name])[name]
        key, nano, at = self.vendor.key(number), self.vendor.priced(rate), at.replace(microsecond=0)
        machine = Whole(key=key, name=name, created_at=at, rate=Rate(nano_per_hour=nano), handling=handling)
        machine.labels.append((at, dict(labels)))
        machine.run(at)
        self.machines[name], self.keys[name] = machine, key
        self.vendor.came[name], self.vendor.costs[name] = rate, [(at, nano)]
        return machine

    def measures(self, name: str, rule: SampleRule, *, at: datetime) -> None:
        """From `at` on the machine measures by `rule`."""
        self.machines[name].rules.append((at, rule))
        self.machines[name].rules.sort(key=lambda one: one[0])

    def reprice(self, name: str, rate: Rate, *, said: bool) -> None:
        """From now on the machine costs `rate`; none of these vendors says since when."""
        del said
        self.vendor.costs[name].append((self.truth.now(), rate.nano_per_hour))

    # What is measured

    def value(self, machine: SimulatedMachine, signal: str, at: datetime) -> float | None:
        """What is told of `signal` at `at`; None: nothing. What is told of work is kept, to be written down once it is out."""
        rule, kinds = machine.rule(at), {one.what for one in self._at_work()}
        truly = rule.values.get(CPU_CORES if signal == CPU_UTIL else signal) if "unmeasured" not in kinds else None
        if truly is None:
            return None
        told = 0.0 if "zero" in kinds else float(truly(at) if callable(truly) else truly)
        told *= 100 / CORES if signal == CPU_UTIL else 1
        if signal == GPU_UTIL:
            self._measured.add((machine.name, at, "zero" in kinds))
        return told

    def bucket(self, machine: SimulatedMachine, at: datetime) -> float | None:
        """The mean of five minutes."""
        values = [self.value(machine, GPU_UTIL, at + n * MINUTE) for n in range(5)]
        known = [one for one in values if one is not None]
        return sum(known) / 5 if len(known) == len(values) else None

    def minutes(
        self, machine: SimulatedMachine, signal: str, start: datetime, end: datetime
    ) -> Iterator[tuple[datetime, float]]:
        """A point for each minute after `start`, as Cloud Monitoring shows them."""
        at = start.replace(second=0, microsecond=0) + MINUTE
        while at <= min(end, self.truth.now() - MEASURED_LATE):
            value = self.value(machine, signal, at)
            if value is not None:
                yield at, {GPU_UTIL: value, CPU_UTIL: value / 100}.get(signal, value / 2)
            at += MINUTE

    # What is asked

    def serve(self, asked: Asked) -> Sent:
        """What goes back to a request. A fake that breaks has not played its part: the world is wrong, and says so."""
        self.requests += 1
        try:
            return self._served(asked)
        except Exception:
            self._broken.append(f"{self.provider}: {asked.line}: {traceback.format_exc()}")
            raise

    def _served(self, asked: Asked) -> Sent:
        line = self.vendor.line(asked)
        kind, continues = self.vendor.kind(line), self.vendor.continues(line)
        self._measured.clear()
        wrong = self._wrong(kind, continues=continues)
        if kind in {STOP, END}:
            return self._acted(asked, kind, wrong)
        right = None if wrong in UNSEEN else self._right(asked, kind, continues=continues)
        sent = self._sent(wrong, right)
        good = sent.answer is right and sent.whole and not sent.never and not sent.every
        if wrong:
            self.log.write("fault", what=f"wire {wrong} {kind}", name=self.provider)
        self._note(kind, line, right if good and right and right.status < 300 else None, continues=continues)
        return sent

    def begins(self) -> None:
        """A poll of it begins."""
        self._chain = _Chain()

    def polled(self, at: datetime, clock_at: datetime) -> None:
        """Write down what was told in the listing that began at `at`, at `clock_at` by the watchdog's clock."""
        chain = self._chain
        whole = chain.whole and not chain.broken
        for what in sorted(chain.lies):
            self.log.write("fault", what=what, name=self.provider, at=micros(at))
        if chain.told:
            self.log.write("listed", cloud=self.provider, whole=whole, items=list(chain.items.values()), at=micros(at))
        if not whole:
            self.log.write("unlisted", cloud=self.provider, at=micros(at), clock_at=micros(clock_at))
        self._chain = _Chain()

    def _at_work(self) -> list[ListingFault]:
        now = self.truth.now()
        return [one for one in self.faults if one.start <= now < one.end]

    def _wrong(self, kind: str, *, continues: bool) -> str:
        """The fault of the wire that befalls a request of `kind`, "" for none."""
        for one in self._at_work():
            if one.what == UNREACHED:
                return "reset"
            if one.what == PARTIAL and kind == LIST and continues:
                return "500"
            if one.what != "wire":
                continue
            how, which, every = one.name.split()
            mine = {"any": True, "act": kind in {STOP, END}, "pages": kind == LIST and continues}.get(which, which == kind)
            if mine:
                count = self._struck[one] = self._struck.get(one, 0) + 1
                if (count - 1) % int(every) == 0:
                    return how
        return ""

    def _right(self, asked: Asked, kind: str, *, continues: bool) -> Answer:
        """What the vendor answers, be it the truth or not."""
        kinds = {one.what: one for one in self._at_work()} if kind == LIST else {}
        if "loops" in kinds and continues and self._chain.first is not None:
            self._chain.lies.add("loops")
            return self._chain.first
        self.shown.back = OLD if STALE in kinds else timedelta()
        self._stand(kinds)
        try:
            return self._dated(self.fake.answer(asked))
        finally:
            self.shown.back = timedelta()

    def _stand(self, kinds: Mapping[str, ListingFault]) -> None:
        """Put every machine on the fake, as it is or as it is told to be."""
        at, hidden = self.shown.now(), {one.name for one in self._at_work() if one.what == HIDES and HIDES in kinds}
        forgotten = {one.name for one in self._at_work() if one.what == FORGETS and FORGETS in kinds}
        numbers, resources = numbered(list(self.machines)), []
        for name, machine in self.machines.items():
            if EMPTY in kinds or name in hidden or machine.created_at > at:
                continue
            labels = self._labels(name, at)
            if name in forgotten:
                labels.pop("costguard", None)
            resources.append(self.vendor.resource(numbers[name], machine, at, labels))
            self.vendor.show(self, numbers[name], machine, at)
        self.fake.resources[:] = [*resources, *(resources[:2] if "twice" in kinds else ())]
        self._chain.lies |= {what for what in (*LIES, FORGETS, "twice") if what in kinds}

    def _labels(self, name: str, at: datetime) -> dict[str, str]:
        found = next((labels for since, labels in reversed(self.machines[name].labels) if since <= at), {})
        return dict(found) if self.vendor.labels else {"arm": found.get("arm", "")}

    def _dated(self, answer: Answer) -> Answer:
        off = sum((timedelta(seconds=float(one.name)) for one in self._at_work() if one.what == "date"), timedelta())
        date = format_datetime((self.truth.now() + off).replace(microsecond=0), usegmt=True)
        return replace(answer, headers={"Date": date, **answer.headers})

    def _sent(self, wrong: str, right: Answer | None) -> Sent:
        if wrong in UNSEEN or right is None:
            return _unanswered(wrong)
        if wrong == "truncated":
            return Sent(answer=replace(right, body=right.body[: max(1, len(right.body) // 2)]))
        if wrong == "short":
            headers = {**right.headers, "Content-Length": str(len(right.body) + 1000)}
            return Sent(answer=replace(right, headers=headers), whole=False, cut=len(right.body))
        if wrong == "drip":
            return Sent(answer=right, every=SLOW_S)
        if wrong in {"did", "gone"}:
            return Sent(reset=wrong == "did", never=wrong == "gone")
        return Sent(answer=right, after=4.0 if wrong == "late" else 0.0)

    def _note(self, kind: str, line: str, right: Answer | None, *, continues: bool) -> None:
        """Keep what was told, where it was told so that it can be read."""
        chain = self._chain
        if kind == BESIDE:
            path = line.partition("?")[0]
            chain.broken = chain.broken - {path} if right else chain.broken | {path}
        if kind == LIST:
            if not continues:
                chain.items, chain.first, chain.whole = {}, right, False
            chain.whole = right is not None and not self.vendor.more(right)
        if right is None or kind not in {LIST, MEASURE} or re.search(self.vendor.valueless, line):
            return
        there = [name for name, key in self.keys.items() if kind == MEASURE or key.id.encode() in right.body]
        if kind == LIST:
            chain.told = True
            at = self.truth.now() - (OLD if STALE in chain.lies else timedelta())
            chain.items |= {name: self._item(name, at) for name in there}
        self._write_measured(there)

    def _item(self, name: str, at: datetime) -> list[object]:
        here, labels = self.machines[name].now(at), self._labels(name, at)
        if any(one.what == FORGETS and one.name == name for one in self._at_work()):
            labels.pop("costguard", None)
        started = micros(here.started_at) if here and here.started_at else None
        return [self.keys[name].id, labels, started, here.state if here else ""]

    def _write_measured(self, there: list[str]) -> None:
        times: dict[tuple[str, bool], list[int]] = {}
        for name, at, lied in sorted(self._measured):
            if name in there and (name, at) not in self._told:
                self._told.add((name, at))
                times.setdefault((name, lied), []).append(micros(at))
        for (name, lied), told in times.items():
            self.log.write("lied" if lied else "measured", name=self.keys[name].id, times=told)

    # What is done

    def _acted(self, asked: Asked, kind: str, wrong: str) -> Sent:
        """Write down a request to act with what the ledger held when it came, and do it."""
        log, name, now = self.log, self.vendor.asked_of(asked, self.keys), self.truth.now()
        machine, key = self.machines.get(name), self.keys.get(name)
        id_ = key.id if key else ""
        rows, clock_at = list(log.witness.intents(id_)), micros(log.clock.now())
        here = machine.now(now) if machine else None
        log.asked += 1
        log.capped = log.capped or any(row["rule"] == "cap" for row in rows)
        end, log.end = (log.end, "") if log.end in {BEFORE, AFTER} else ("", log.end)
        sent, done, said = Sent(), False, ""
        if end != BEFORE:
            how = machine.answer(now) if machine and not wrong else ""
            wrong = wrong or ACT_FAULTS.get(how, "")
            self.fake.deaf = how == DEAF
            right = None if wrong in UNSEEN else self._right(asked, kind, continues=False)
            self.fake.deaf = False
            done = machine is not None and self._took(name, machine)
            sent = self._sent(wrong, right)
            said = _said(sent, right)
            if wrong or (how == DEAF and here and here.state == RUNNING):
                log.write("fault", what=(wrong and f"wire {wrong} act") or DEAF, name=id_)
        log.write(
            "asked",
            at=micros(now),
            clock_at=clock_at,
            run=log.run,
            name=id_,
            act="stop" if kind == STOP else "terminate",
            started=micros(here.started_at) if here and here.started_at else None,
            rows=rows,
            said=said,
            done=done,
        )
        if end:
            log.write("ended", where=f"{end} a call")
            raise EndedAbruptly
        return sent

    def _took(self, name: str, machine: SimulatedMachine) -> bool:
        """Whether what the fake did to its resource is new; it is the truth from now on."""
        now = self.truth.now()
        found = next((one for one in self.fake.resources if one.name == name), None)
        state = (find_state(found, to_us(now)) if found else None) or ENDED
        here = machine.now(now)
        if here is None or here.state == state or state not in {STOPPED, ENDED}:
            return False
        machine.turn(now, state)
        return True


def _unanswered(wrong: str) -> Sent:
    """What comes of a request that the vendor never saw."""
    if wrong in {"reset", "timeout"}:
        return Sent(reset=wrong == "reset", never=wrong == "timeout")
    page, elsewhere = {"Content-Type": "text/html"}, {"Location": "https://example.invalid/elsewhere"}
    odd: Mapping[str, Answer] = {
        "html": Answer(status=503, headers=page, body=PAGE_OF_HTML),
        "apology": Answer(status=200, headers=page, body=PAGE_OF_HTML),
        "deep": Answer(headers=JSON, body=b"[" * 10**5 + b"]" * 10**5),
        "redirect": Answer(status=302, headers=elsewhere),
        "void": Answer(headers=JSON),
        "429": Answer(status=429, headers={**JSON, "Retry-After": "7"}, body=b"{}"),
        "429long": Answer(status=429, headers={**JSON, "Retry-After": "90"}, body=b"{}"),
    }
    return Sent(answer=odd[wrong] if wrong in odd else Answer(status=int(wrong or 500), headers=JSON, body=b"{}"))


def _said(sent: Sent, right: Answer | None) -> str:
    """How the answer to an act reads."""
    if sent.reset or sent.never or not sent.whole or sent.answer.status >= 500 or (right and sent.answer is not right):
        return "unclear"
    if right is None:
        return "refused" if 400 <= sent.answer.status < 500 else "unclear"
    return "accepted" if right.status < 300 else "refused"
