"""A ledger's answers made by hand: what `ports.Books` promises, from values in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from costguard.budgets.budget import ResourceFilter
from costguard.budgets.spend_forecast import NO_PAST, PastHours
from costguard.metering.billing import BillingRule
from costguard.metering.meter import COMPUTE, HOUR, Meter, PriceRange
from costguard.metering.observation import Observation
from costguard.metering.span import Span
from costguard.metering.spending import LiveResource, PollStretch, ScopeCoverage, Spending
from costguard.reporting.statement.period import ReportPeriod
from costguard.reporting.statement.statement import Statement
from costguard.services.report import report
from costguard.values.calendar import Period, make_month
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import Attribution, ResourceKey, ScopeKey

HOUR_US = 3_600_000_000
AWS = ScopeKey("aws", "123", "us-east-1")
VAST = ScopeKey("vast", "me", "all")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass(slots=True)
class FakeBooks:
    """Answers with what it was given; `asked` keeps every question for a sum."""

    spent: tuple[Spending, ...] = ()
    resources: tuple[LiveResource, ...] = ()
    known: tuple[ScopeCoverage, ...] = ()
    polled: tuple[PollStretch, ...] = ()
    asked: tuple[tuple[Period, datetime], ...] = ()

    def load_spending(self, period: Period, as_of: datetime) -> list[Spending]:
        self.asked += ((period, as_of),)
        return list(self.spent)

    def load_past_hours(
        self,
        at: datetime,  # noqa: ARG002 - the signature of the port
        parts: Collection[tuple[ResourceFilter, str]],
    ) -> dict[tuple[ResourceFilter, str], PastHours]:
        return dict.fromkeys(parts, NO_PAST)

    def load_live(self, as_of: datetime) -> list[LiveResource]:  # noqa: ARG002 - the signature of the port
        return list(self.resources)

    def list_scopes(self) -> list[ScopeCoverage]:
        return list(self.known)

    def load_stretches(self, period: Period) -> list[PollStretch]:
        return [s for s in self.polled if s.start < period.end and s.end >= period.start]


def at(day: int, hour: int = 0, minute: int = 0, *, month: int = 11) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


def money(low: str, expected: str | None = None, high: str | None = None, currency: str = "USD") -> MoneyInterval:
    """A point where one amount is given."""
    three = (low, expected or low, high or expected or low)
    low_, expected_, high_ = (Money.parse(text, currency) for text in three)
    return MoneyInterval(low=low_, expected=expected_, high=high_)


def attribution(provider: str = "aws", **stated: Any) -> Attribution:  # noqa: ANN401 - any field
    return replace(
        Attribution(provider, "123", "us-east-1", "instance", "H100-80GB-SXM", 8, "on-demand", "ada", "p5.48xlarge"), **stated
    )


def spent(
    amount: MoneyInterval, of: Attribution | None = None, *, hours: int = 1, charge: str = COMPUTE, known: bool = True
) -> Spending:
    return Spending(attribution=of or attribution(), charge=charge, money=amount, us=hours * HOUR_US, known=known)


def meter(
    nano: int, *, charge: str = COMPUTE, unit: str = HOUR, quantity: int = 1, currency: str = "USD", part: str = ""
) -> Meter:
    return Meter(charge, PriceRange.exactly(nano, currency), unit=unit, quantity=quantity, part=part)


def unpriced(most: int) -> Meter:
    """Computing at an estimated price: 0 to `most` nano-dollars an hour."""
    return Meter(COMPUTE, PriceRange(0, most // 2, most, known=False))


def live(
    id_: str,
    *meters: Meter,
    scope: ScopeKey = AWS,
    amount: MoneyInterval | None = None,
    absent_at: datetime | None = None,
    **stated: Any,  # noqa: ANN401 - any field
) -> LiveResource:
    """A resource with an open line a meter, running since noon of the 20th unless stated otherwise."""
    key = ResourceKey(scope.provider, scope.account, "us-east-1", id_)
    usual: dict[str, Any] = {"gpu": "H100-80GB-SXM", "gpu_count": 8, "owner": "ada", "started_at": at(20, 12)}
    seen = Observation(key=key, **{"state": "running", **usual, **stated})
    begun = at(20, 12)
    spans = tuple(Span(key=key, attribution=seen.attribution, meter=m, start=begun, anchor=begun) for m in meters)
    return LiveResource(
        scope=scope,
        observation=seen,
        first_seen_at=at(20, 12, 1),
        seen_at=NOW,
        open=spans,
        spent=amount or money("24.00"),
        absent_at=absent_at,
    )


def scope_now(
    scope: ScopeKey = AWS,
    outcome: str = "complete",
    *,
    polled_at: datetime = NOW,
    complete_at: datetime | None = NOW,
    since: datetime | None = None,
    why: str = "",
) -> ScopeCoverage:
    return ScopeCoverage(
        scope=scope, outcome=outcome, at=polled_at, since=since or polled_at, last_complete_at=complete_at, why=why
    )


def stretch(start: datetime, end: datetime, outcome: str = "complete", *, scope: ScopeKey = AWS, why: str = "") -> PollStretch:
    return PollStretch(scope=scope, outcome=outcome, start=start, end=end, polls=2, why=why)


def state_month(
    books: FakeBooks, of: tuple[int, int], by: Sequence[str], as_of: datetime, rules: Mapping[str, BillingRule]
) -> Statement:
    """The statement of a month without its sections, as known at `as_of`."""
    period = make_month(*of, UTC)
    asked = ReportPeriod(period=period, label=f"{of[0]}-{of[1]:02d}")
    question = report.ReportQuestion(asked=asked, by=tuple(by), zone=UTC, as_of=as_of, pause=timedelta(minutes=5))
    return report._build_plain_statement(books, books.load_spending(period, as_of), question, rules)
