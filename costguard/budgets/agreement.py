"""Agreements: prices that are yours, as `[[agreement]]` of the settings states them.

An agreement gives its machines a discount on the price that their provider lists, or a rate. It counts from the next poll on:
what is recorded stays. The source of a price says whose it is, and keeps the list price, which FOCUS wants beside it.

Example: 42 % off a p4d.24xlarge at $32.7726 an hour are $19.008108, with the source "agreed, EDP 2026 (contract 4711); list
32.772600000 USD: AWS price list".

What a month leaves unused of a commitment is a charge of its own, when the month is over (decision 0152).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from costguard.budgets.budget import MATCH_ALL, ResourceFilter, matches_filter
from costguard.metering.meter import COMPUTE
from costguard.metering.observation import AGREED, Observation, Price
from costguard.metering.scope_state import KnownResource
from costguard.metering.spending import Spending
from costguard.values.calendar import Period
from costguard.values.checks import require
from costguard.values.instant import EARLIEST
from costguard.values.money import Money, Rate
from costguard.values.resource import ENDED, INSTANCE, Attribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A price for machines that `match` selects, in [start, end) (None: no bound).

    `types`: instance types; None: any. `discount`: share of the listed price that is taken off; None: `rate` replaces the
    price of a whole machine. `source`: where it is written. `commitment`: what its machines cost a month at least.
    """

    name: str
    source: str
    match: ResourceFilter = MATCH_ALL
    types: tuple[str, ...] | None = None
    discount: Fraction | None = None
    rate: Rate | None = None
    start: datetime | None = None
    end: datetime | None = None
    commitment: Money | None = None

    def __post_init__(self) -> None:
        one = (self.discount is None) != (self.rate is None)
        require(one, "", "needs either discount or rate", 'write discount = "42%" or rate = "19.60 USD/h"')
        share = self.discount is None or 0 < self.discount < 1
        require(share, "discount", "must be more than 0 % and less than 100 %", 'write what is taken off, such as "42%"')
        if self.commitment is not None:
            is_named = len(self.match.providers or ()) == 1 and len(self.match.accounts or ()) <= 1
            hint = 'write match = { providers = ["aws"], accounts = ["123456789012"] }'
            require(is_named, "match", "must name one provider, and at most one account, of which the commitment is", hint)
        ordered = self.start is None or self.end is None or self.start < self.end
        require(ordered, "until", "is not after from", "write the first day that no longer counts")

    def covers(self, observation: Observation, at: datetime) -> bool:
        """Return whether it gives the price of a machine at `at`."""
        in_force = (self.start is None or self.start <= at) and (self.end is None or at < self.end)
        return in_force and self.selects(observation)

    def selects(self, observation: Observation) -> bool:
        """Return whether the machine is one of those that it is about."""
        return self._matches(observation.attribution)

    def _matches(self, of: Attribution) -> bool:
        return (self.types is None or of.instance_type in self.types) and matches_filter(self.match, of)

    def compute_unused(self, month: Period, spending: Iterable[Spending]) -> Money | None:
        """Return what is not used of the commitment of `month`, in which `spending` was; None: it has none, or that is unknown.

        Usage is what its machines cost to compute. Example: $300 of $500 leave $200.
        """
        begun = self.start is None or self.start <= month.start
        if self.commitment is None or not begun or (self.end is not None and self.end < month.end):
            return None
        used = [one.money.expected for one in spending if one.charge == COMPUTE and self._matches(one.attribution)]
        if any(one.currency != self.commitment.currency for one in used):
            return None
        return replace(self.commitment, nano=max(0, self.commitment.nano - sum(one.nano for one in used)))

    def overlaps(self, other: Agreement) -> bool:
        """Return whether one machine may have both at one time."""
        edges = ((self.start, other.end), (other.start, self.end))
        if any(start is not None and end is not None and end <= start for start, end in edges):
            return False
        keys = ("providers", "accounts", "regions", "owners", "gpus", "tiers", "kinds")
        choices = [(getattr(self.match, key), getattr(other.match, key)) for key in keys] + [(self.types, other.types)]
        labels = dict(self.match.labels or ()), dict(other.match.labels or ())
        choices += [(labels[0].get(key), labels[1].get(key)) for key in labels[0]]
        return all(one is None or two is None or set(one) & set(two) for one, two in choices)


def apply_agreements(
    agreements: Sequence[Agreement], observation: Observation, at: datetime, resource: KnownResource | None = None
) -> Observation:
    """Return `observation` as listed at `at`, with the agreed price of its machine.

    `resource`: what is known of it; None: it was never listed before, and may have run since before an agreement began.
    """
    if observation.kind != INSTANCE or observation.state == ENDED or not observation.prices:
        return observation
    selecting = [one for one in agreements if one.selects(observation)]
    if not selecting:
        return observation
    prices = list[Price]()
    ends = [*(price.since for price in observation.prices[1:]), None]
    for price, end in zip(observation.prices, ends, strict=True):
        if price.since is None and end is None and resource is not None:
            prices.append(_agree(selecting, observation, price, at))
            continue
        since, until = price.since or EARLIEST, min(end or at, at)
        edges = {edge for one in selecting for edge in (one.start, one.end) if edge is not None and since < edge <= until}
        prices.append(_agree(selecting, observation, price, since))
        prices += [replace(_agree(selecting, observation, price, edge), since=edge) for edge in sorted(edges - {end})]
    return replace(observation, prices=tuple(prices))


def _agree(agreements: Iterable[Agreement], observation: Observation, price: Price, at: datetime) -> Price:
    """Return what the machine costs at `at`: the agreed price, or `price` without an agreement, or if it is agreed already."""
    one = next((one for one in agreements if one.covers(observation, at)), None)
    if one is None or price.prepaid or f"{AGREED}, " in price.source:
        return price
    listed = "unknown" if price.rate is None else f"{price.rate.format(9)} {price.rate.currency}"
    source = f"{AGREED}, {one.name} ({one.source}); list {listed}: {price.source}"
    if one.rate is not None:
        return replace(price, rate=one.rate, source=source, estimate=None)
    if price.rate is None or one.discount is None:
        return price
    left, estimate = 1 - one.discount, price.estimate
    nano = max(1, round(price.rate.nano_per_hour * left))
    if estimate is not None:
        low, high = round(estimate.low * left), round(estimate.high * left)
        estimate = replace(estimate, low=min(low, nano), high=max(high, nano))
    return replace(price, rate=Rate(nano_per_hour=nano, currency=price.rate.currency), source=source, estimate=estimate)
