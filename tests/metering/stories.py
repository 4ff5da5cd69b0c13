"""A little language for stories of one scope: polls go in, spans are kept as a ledger would, money comes out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from costguard.metering.accrual import accrue_poll
from costguard.metering.billing import BillingRule, StorageRule, TimeRule
from costguard.metering.inventory import Complete, Inventory, Poll
from costguard.metering.meter import GB_MONTH_730, PriceRange
from costguard.metering.observation import Observation, Price
from costguard.metering.scope_state import AccrualResult, ScopeState
from costguard.metering.span import Span, compute_charge, compute_known_until
from costguard.values.calendar import Period
from costguard.values.money import Rate
from costguard.values.resource import ResourceKey, ScopeKey

TEN = datetime(2026, 11, 2, 10, tzinfo=UTC)
"""Ten o'clock on a Monday: stories count minutes from here."""
Dollars = Decimal | int
SCOPE = ScopeKey("cloud", "lab", "here")
EVER = Period(start=datetime(2000, 1, 1, tzinfo=UTC), end=datetime(2100, 1, 1, tzinfo=UTC))

RULE = BillingRule(
    provider="cloud",
    source="a test",
    observed_on="2026-11",
    lag_s=0,
    restarts="stated",
    compute=TimeRule(bills=("running",), free=("stopped", "pending", "starting", "suspended")),
    storage=(
        StorageRule(
            part="disk",
            type="disk",
            running=PriceRange.exactly(73 * 10**7),
            stopped=PriceRange.exactly(146 * 10**7),
            unit=GB_MONTH_730,
        ),
    ),
)
"""Computing by the second while running; a GB of disk costs $0.001 an hour running and $0.002 stopped."""


def minute(number: float) -> datetime:
    """So many minutes after ten."""
    return TEN + timedelta(minutes=number)


def key(name: str = "i-1") -> ResourceKey:
    """A resource of the scope."""
    return ResourceKey("cloud", "lab", "here", name)


def machine(name: str = "i-1", **stated: object) -> Observation:
    """A machine at $60 an hour (a dollar a minute), running since ten unless said otherwise."""
    usual: dict[str, object] = {
        "state": "running",
        "gpu": "H100-SXM",
        "gpu_count": 1,
        "started_at": TEN,
        "prices": (Price(Rate.parse("60")),),
    }
    return Observation(key=key(name), **{**usual, **stated})  # type: ignore[arg-type]  # a test's own fields


class Story:
    """Polls of one scope in order, and the spans they left."""

    def __init__(self, rule: BillingRule = RULE, *, ceilings: dict[str, int] | None = None) -> None:
        self.rule, self.ceilings = rule, ceilings or {}
        self.state = ScopeState(scope=SCOPE)
        self.spans: list[Span] = []
        self.last: AccrualResult | None = None

    def poll(
        self,
        at: float,
        inventory: Inventory,
        *,
        asked: float | None = None,
        gone: frozenset[ResourceKey] = frozenset(),
        unanswered: frozenset[ResourceKey] = frozenset(),
    ) -> AccrualResult:
        """One poll, so many minutes after ten."""
        asked_at = None if asked is None else minute(asked)
        one = Poll(scope=SCOPE, at=minute(at), inventory=inventory, asked_at=asked_at, gone=gone, unanswered=unanswered)
        self.last = accrued = accrue_poll(self.state, one, self.rule, self.ceilings)
        for ended in accrued.closed:
            place = next(i for i, s in enumerate(self.spans) if s.end is None and (s.key, s.line) == (ended.key, ended.line))
            assert replace(ended, end=None, ended_by="") == self.spans[place]
            self.spans[place] = ended
        self.spans.extend(accrued.opened)
        for fix in accrued.corrected:
            self.spans[self.spans.index(fix.span)] = replace(fix.span, presence=fix.presence)
        self.state = accrued.state
        self.check()
        return accrued

    def listed(self, at: float, *machines: Observation) -> AccrualResult:
        """A complete listing."""
        return self.poll(at, Complete(machines))

    def check(self) -> None:
        """What must hold after every poll: no overlap on any line, and the state knows exactly the open spans."""
        lines: dict[tuple[ResourceKey, tuple[str, str]], list[Span]] = {}
        for span in self.spans:
            if span.end is None or span.end > span.start:
                lines.setdefault((span.key, span.line), []).append(span)
        for spans in lines.values():
            ordered = sorted(spans, key=lambda s: s.start)
            assert all(a.end is not None and a.end <= b.start for a, b in pairwise(ordered))
        known = {(k, line): span for k, one in self.state.resources.items() for line, span in one.open.items()}
        assert known == {(s.key, s.line): s for s in self.spans if s.end is None}

    def cost(self, at: float, *, charge_of: str = "compute", name: str = "i-1") -> tuple[Dollars, Dollars, Dollars]:
        """Low, expected and high dollars of one charge of one resource, as known at so many minutes after ten."""
        sums = [Decimal(0), Decimal(0), Decimal(0)]
        for span in self.spans:
            if (span.key.id, span.meter.charge) != (name, charge_of):
                continue
            one = self.state.resources[span.key]
            reach = (
                None
                if span.end
                else compute_known_until(
                    start=span.start,
                    complete_at=self.state.complete_at,
                    logged_at=one.logged_at,
                    seen_at=one.seen_at,
                    absent_at=one.absent_at,
                    lag=timedelta(seconds=self.rule.lag_s),
                    as_of=minute(at),
                )
            )
            money = compute_charge(span, EVER, reach)
            for i, part in enumerate((money.low, money.expected, money.high)):
                sums[i] += part.to_decimal()
        return sums[0], sums[1], sums[2]

    def exactly(self, at: float, **of: str) -> Dollars:
        """The cost, which must be a point."""
        low, expected, high = self.cost(at, **of)
        assert low == expected == high, (low, expected, high)
        return expected
