"""A ledger in plain memory, which refuses what the real one would refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from costguard.metering.accrual import POLL_GAP, find_dearest_meters, find_last_seen, find_unobserved_usage
from costguard.metering.billing import BillingRule
from costguard.metering.scope_state import AccrualResult, ScopeState
from costguard.metering.span import Span, compute_amounts, compute_charge, compute_known_until
from costguard.values.calendar import Period
from costguard.values.instant import EPOCH, to_micros
from costguard.values.resource import ResourceKey, ScopeKey


class Sum(NamedTuple):
    """Nano-USD of one charge of one resource, and of how many spans they are."""

    low: int = 0
    expected: int = 0
    high: int = 0
    spans: int = 0


@dataclass(slots=True)
class Books:
    """The ledger in plain memory."""

    states: dict[ScopeKey, ScopeState] = field(default_factory=dict)
    open: dict[ResourceKey, dict[tuple[str, str], Span]] = field(default_factory=dict)
    closed: dict[ResourceKey, list[Span]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def write(self, accrued: AccrualResult) -> None:
        """As the ledger would; what it would refuse is a fault."""
        self.states[accrued.state.scope] = accrued.state
        for span in accrued.closed:
            was = self.open.get(span.key, {}).pop(span.line, None)
            if was is None or replace(span, end=None, ended_by="") != was:
                self.faults.append(f"{span.key.id} {span.line}: closes a span that is not open")
            self._keep(span)
        for span in accrued.opened:
            if span.end is not None:
                self._keep(span)
            elif span.line in self.open.setdefault(span.key, {}):
                self.faults.append(f"{span.key.id} {span.line}: opens a second span")
            else:
                self._after(span, self.closed.get(span.key, ()))
                self.open[span.key][span.line] = span
        for correction in accrued.corrected:
            spans = self.closed.get(correction.span.key, [])
            if correction.span not in spans:
                self.faults.append(f"{correction.span.key.id} {correction.span.line}: corrects a span that is not there")
            else:
                spans[spans.index(correction.span)] = replace(correction.span, presence=correction.presence)

    def _keep(self, span: Span) -> None:
        spans = self.closed.setdefault(span.key, [])
        if span.end is not None and span.end > span.start:
            for other in spans:
                if other.line == span.line and other.start < span.end and span.start < (other.end or span.end):
                    self.faults.append(
                        f"{span.key.id} {span.line}: {span.start} to {span.end} overlaps {other.start} to {other.end}"
                    )
        spans.append(span)

    def _after(self, span: Span, spans: Sequence[Span]) -> None:
        if any(other.line == span.line and other.end is not None and other.end > span.start for other in spans):
            self.faults.append(f"{span.key.id} {span.line}: opens before its last span ended")

    def sums(self, key: ResourceKey, scope: ScopeKey, rule: BillingRule, as_of: datetime) -> dict[str, Sum]:
        """Charge -> what the resource has cost up to `as_of`."""
        sums: dict[str, Sum] = {}
        at = to_micros(as_of)

        def add(span: Span, low: int, expected: int, high: int) -> None:
            a, b, c, n = sums.get(span.meter.charge, Sum())
            sums[span.meter.charge] = Sum(a + low, b + expected, c + high, n + 1)

        for span in self.closed.get(key, ()):
            add(span, *compute_amounts(span, 0, at))
        state = self.states[scope]
        for span in self.open.get(key, {}).values():
            known = state.resources[key]
            reach = compute_known_until(
                start=span.start,
                complete_at=state.complete_at,
                logged_at=known.logged_at,
                seen_at=known.seen_at,
                absent_at=known.absent_at,
                lag=timedelta(seconds=rule.lag_s),
                as_of=as_of,
            )
            money = compute_charge(span, Period(start=EPOCH, end=max(as_of, span.start)), reach)
            add(span, money.low.nano, money.expected.nano, money.high.nano)
        if key in state.resources:
            known = state.resources[key]
            for span in find_unobserved_usage(
                known,
                find_last_seen(known, state),
                as_of,
                rule=rule,
                dearest=find_dearest_meters(known.observation, rule, {}),
                gap=POLL_GAP,
            ):
                add(span, *compute_amounts(span, 0, at))
        return sums
