"""What the pages show: the fleet built once a guard run for all readers, and one machine's life.

Everything is read from the ledger. No provider is asked, and nothing is changed here: the watchdog does what people confirm
(`person_acts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from threading import Lock, Thread
from time import monotonic
from typing import NamedTuple, cast

from costguard.data import ShippedFacts
from costguard.errors import CostguardError, InputError, NoAnswerError
from costguard.guard.action_intents import Intent
from costguard.guard.machine_reference import require_resource_key
from costguard.guard.overrides import Override, is_override_open
from costguard.guard.policy import CANNOT_SAY
from costguard.guard.replay.history import ResourceHistory
from costguard.guard.run_facts import LATE_AFTER_RUNS
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.ask_links import AskLinkStore
from costguard.ledger.guard.audit_check import AuditWatch
from costguard.ledger.guard.guard_state import load_last_run
from costguard.ledger.guard_records import SnapshotRecords
from costguard.ledger.spans.observations import HistoryReader
from costguard.metering.billing import get_billing_rule
from costguard.metering.observation import identify_incarnation
from costguard.metering.span import Span, compute_charge, compute_known_until
from costguard.reporting.status import ResourceBurn
from costguard.services.guarding import overrides
from costguard.services.guarding.ask_links import choose_keep_length, hash_secret
from costguard.services.serving.fleet_page import FleetPage, MachineFacts, MachineRow
from costguard.services.serving.machine_timeline import LENGTHS, Timeline, build_timeline
from costguard.services.serving.page_builder import PageBuilder
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.settings.fields import format_duration
from costguard.values.ask_link import AskLink
from costguard.values.calendar import Period
from costguard.values.money import MoneyInterval, sum_intervals
from costguard.values.resource import ResourceKey, format_life

FLEET_AGE_MAX_S = 60.0
"""Seconds after which the fleet is built anew although no guard run followed: without a watchdog, time goes on."""
BUILD_INLINE_S = 2.0
"""A fleet that took longer to build is built beside the readers, who get the previous one."""
HISTORY_BACK, OVERRIDES_BACK = timedelta(days=14), timedelta(days=90)
GAP_MIN = timedelta(minutes=15)
"""Shorter times between two complete listings are no gap: as long as a scope may go unseen (`reporting/status.py`)."""


class SpanCost(NamedTuple):
    """What one line of a machine cost in the period that its page shows."""

    span: Span
    money: MoneyInterval


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePage:
    """One machine's recorded life. `row`, `one`: None if it is not listed any more. `gaps`: when its account was not seen.

    `costs`: of its spans in the last 14 days, the newest first; `totals`: their sums, one for each currency.
    """

    key: ResourceKey
    row: MachineRow | None
    one: ResourceBurn | None
    past: ResourceHistory
    gaps: tuple[tuple[datetime, datetime], ...]
    costs: tuple[SpanCost, ...]
    totals: tuple[MoneyInterval, ...]
    intents: tuple[Intent, ...]
    wishes: tuple[Override, ...]
    verdicts: tuple[Mapping[str, object], ...]
    timeline: Timeline
    at: datetime

    @property
    def life(self) -> str:
        """Return its present run for a form; "" if it is not listed."""
        return format_life(identify_incarnation(self.one.live.observation)) if self.one else ""

    def is_open(self, override: Override) -> bool:
        """Return whether `override` is in force. The template of the page calls it."""
        return is_override_open(override, self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPage:
    """What a link asks. `row`, `one`: None if the machine is not listed. `approves`: what an approval means, a sentence each.

    `keeps_for`: how long a denial keeps it.
    """

    link: AskLink
    row: MachineRow | None
    one: ResourceBurn | None
    approves: tuple[str, ...]
    keeps_for: str


@dataclass(slots=True, kw_only=True)
class PageServices:
    """What the pages are served with. `config`: the settings file; None: the usual one. `clock`: a demo's stands still.

    `initial`: the settings as they were read already; they count until the file is read anew. None: it is read at once.

    `read_only`: nothing is changed, as in a demo. `secure`: cookies are sent over TLS only.
    `audit`: remembers how much of the log was verified.
    """

    config: str | None = None
    initial: InitVar[Settings | None] = None
    clock: Callable[[], datetime] = overrides.get_now
    read_only: bool = False
    secure: bool = False
    audit: AuditWatch = field(default_factory=AuditWatch)
    _fleet: FleetPage | None = None
    _made_s: float = 0.0
    _took_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)
    _settings: Settings | None = None
    _read_s: float = 0.0

    def __post_init__(self, initial: Settings | None) -> None:
        """Take the settings that were read already."""
        self._settings, self._read_s = initial, monotonic()

    def find_link(self, secret: str) -> AskLink:
        """Return the link of `secret`. Raises NoAnswerError unless its question waits for an answer."""
        with AskLinkStore(resolve_ledger_url(self.settings)) as book:
            return book.find(hash_secret(secret), self.clock())[0]

    def find_ask(self, secret: str) -> AskPage:
        """Return what the link of `secret` asks, and change nothing. Raises NoAnswerError unless it waits for an answer."""
        link = self.find_link(secret)
        fleet, path = self.load_fleet(), "/".join(link.key)
        facts = fleet.load_facts(path)
        one = facts.one if facts else None
        return AskPage(
            link=link,
            row=fleet.find_row(path),
            one=one,
            approves=tuple(self.describe_act(one, f"approve-{link.act}")),
            keeps_for=format_duration(choose_keep_length(self.settings, link.policy)),
        )

    @property
    def settings(self) -> Settings:
        """Return the settings, read anew once a minute."""
        if self._settings is None or monotonic() - self._read_s > FLEET_AGE_MAX_S:
            self._settings, self._read_s = read_settings(self.config), monotonic()
        return self._settings

    def read_run_id(self) -> str:
        """Return the id of the last guard run; "" before the first."""
        with LedgerReader(resolve_ledger_url(self.settings)) as reader, reader.snapshot() as ask:
            last = load_last_run(ask)
        return last.id if last else ""

    def load_fleet(self) -> FleetPage:
        """Return the fleet as of the last guard run, built once for all readers.

        Of a large fleet readers get the previous one while another thread builds the next: its time is on every page.
        """
        run, fleet = self.read_run_id(), self._fleet
        if fleet is not None and fleet.run_id == run and monotonic() - self._made_s < FLEET_AGE_MAX_S:
            return fleet
        if fleet is not None and self._took_s > BUILD_INLINE_S:
            if self._lock.acquire(blocking=False):
                Thread(target=self._build_and_release, name="fleet", daemon=True).start()
            return fleet
        with self._lock:
            if self._fleet is None or self._fleet is fleet:
                self._build()
            assert self._fleet is not None  # noqa: S101 - built above
            return self._fleet

    def _build(self) -> None:
        began = monotonic()
        fleet = PageBuilder(self.config, self.settings).build_fleet(self.clock())
        self._fleet, self._made_s, self._took_s = fleet, monotonic(), monotonic() - began

    def _build_and_release(self) -> None:
        try:
            with suppress(CostguardError):  # the next reader tries again
                self._build()
        finally:
            self._lock.release()

    def forget_fleet(self) -> None:
        """Build the fleet anew for the next reader: somebody changed what the guard may do."""
        self._made_s = monotonic() - FLEET_AGE_MAX_S

    def list_late(self, fleet: FleetPage) -> list[str]:
        """Return why what is shown may be old, a sentence each; nothing where a guard run is recent."""
        last, now = fleet.last, self.clock()
        if last is None:
            return [
                "No guard run is recorded: no watchdog runs on this ledger, so no machine is stopped and nobody is notified."
            ]
        age = now - last.at
        if age <= LATE_AFTER_RUNS * last.interval:
            return []
        minutes = int(age.total_seconds() // 60)
        return [f"The last guard run was {minutes} minutes ago: the watchdog is down or late, and this page may be outdated."]

    def load_machine(self, path: str, length: str = "2d") -> MachinePage:
        """Return the life of the machine whose full key is `path`. Raises InputError if the ledger does not know it.

        `length`: of its time axis, a name of LENGTHS.
        """
        key, now = require_resource_key(path, "the machine"), self.clock()
        fleet = self.load_fleet()
        with LedgerReader(resolve_ledger_url(self.settings)) as reader, reader.snapshot() as ask:
            history, records = HistoryReader(ask), SnapshotRecords(ask)
            period = Period(start=now - HISTORY_BACK, end=now + timedelta(seconds=1))
            if key not in history.load_resources(Period(start=datetime.min.replace(tzinfo=now.tzinfo), end=period.end)):
                raise InputError("is not in this ledger", field="the machine", hint="open the machine from the list")
            past = history.load_history(key, period, self.settings.watch.interval)
            stretches = history.load_stretches().get(past.scope, ())
            intents = [one for one in records.load_intents_since(now - OVERRIDES_BACK) if one.life.key == key]
            recent_overrides = [one for one in records.load_overrides_since(now - OVERRIDES_BACK) if one.key == key]
        ends = [(one.start, one.end) for one in stretches if one.outcome == "complete" and one.end > period.start]
        usual = fleet.last.interval if fleet.last else self.settings.watch.interval
        facts = fleet.load_facts(path)
        costs = list_span_costs(past, facts.one if facts else None, Period(start=period.start, end=now))
        pause = max(GAP_MIN, LATE_AFTER_RUNS * usual)
        gaps = [(a[1], b[0]) for a, b in pairwise(ends) if b[0] - a[1] > pause]
        return MachinePage(
            key=key,
            row=fleet.find_row(path),
            one=facts.one if facts else None,
            past=past,
            gaps=tuple(gaps),
            costs=tuple(reversed(costs)),
            totals=tuple(sum_costs(costs)),
            intents=tuple(reversed(intents)),
            wishes=tuple(reversed(recent_overrides)),
            verdicts=facts.verdicts if facts else (),
            timeline=build_timeline(
                past=past,
                work=facts.one.work if facts else None,
                costs=costs,
                events=_list_events(facts, intents, recent_overrides),
                now=now,
                length=LENGTHS.get(length, LENGTHS["2d"]),
            ),
            at=now,
        )

    def describe_act(self, one: ResourceBurn | None, do: str) -> list[str]:
        """Return what an approval or a stop of this machine means, a sentence each. `one`: None if it is not listed."""
        act = "terminate" if do == "approve-terminate" else "stop"
        if one is None:
            return ["The machine is no longer listed: there is nothing to do."]
        observation = one.live.observation
        loses = observation.handling.stop_loses if act == "stop" else observation.handling.terminate_loses
        lines = [f"Permanently lost: {', '.join(loses)}." if loses else overrides.LOSS_UNKNOWN]
        if do.startswith("approve"):
            lines.append(f"The guard may {act} it within a day, during its current run, if a policy asks for it.")
        return lines

    def require_changes(self) -> None:
        """Raise NoAnswerError where nothing may be changed."""
        if self.read_only:
            raise NoAnswerError("is read-only: it is a demo", field="this page", hint="run costguard watch with your accounts")


def _list_events(
    facts: MachineFacts | None, intents: Iterable[Intent], overrides_made: Iterable[Override]
) -> Iterator[tuple[datetime, str]]:
    """Yield what the time axis marks: when people were told, what was done, what people said, and what is due."""
    yield from ((one.moved_at, f"{one.act}: {one.state}") for one in intents)
    yield from ((one.at, f"{one.what} by {one.who}") for one in overrides_made)
    for told_at in facts.told_at if facts else ():
        yield told_at, "told"
    for verdict in facts.verdicts if facts else ():
        if verdict["finding"] != CANNOT_SAY:
            for step in cast("list[dict[str, str]]", verdict["steps"]):
                yield datetime.fromisoformat(step["expected_at"]), f"{step['told']} due"


def list_span_costs(past: ResourceHistory, one: ResourceBurn | None, period: Period) -> list[SpanCost]:
    """Return what each span cost within `period`, ordered by time; of an open one until the period's end.

    `one`: the machine as it is listed; None: it is not listed any more. A span that is open is certain until it was last seen,
    less what its provider's listing may lag.
    """
    lag = timedelta(seconds=get_billing_rule(ShippedFacts().get_billing_rules(), past.key.provider).lag_s)
    costs = list[SpanCost]()
    for span in past.spans:
        if span.start >= period.end or (span.end is not None and span.end <= period.start):
            continue
        reach = None
        if span.end is None:
            reach = compute_known_until(
                start=span.start,
                complete_at=None,
                logged_at=past.said[-1].at if past.said else span.start,
                seen_at=one.live.seen_at if one else None,
                absent_at=one.live.absent_at if one else None,
                lag=lag,
                as_of=period.end,
            )
        costs.append(SpanCost(span, compute_charge(span, period, reach)))
    return costs


def sum_costs(costs: Sequence[SpanCost]) -> Iterator[MoneyInterval]:
    """Yield the sum of each currency."""
    for currency in sorted({cost.money.low.currency for cost in costs}):
        yield sum_intervals((cost.money for cost in costs if cost.money.low.currency == currency), currency)
