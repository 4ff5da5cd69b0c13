"""How fast prices move by one's own history: it replaces the shipped constants of a drift class where there is enough of it.

A *pair* is two dated prices of one machine, about so many days apart as one of AGES says; of each age a machine gives at most
PAIRS_PER_AGE, none overlapping, the newest first, because prices have regimes. With r the logarithm of the later price over the
earlier one, a pair needs the growth (|r| - start) / sqrt(age - grace_days); 80 % of the pairs must need at most `growth`.

Example: 12 machines of the class "list" over 90 days, where the 80 % quantile of 150 pairs needs 0.05 and the shipped growth is
0.034: the growth is 0.05. Where the pairs need only 0.02, it stays near the shipped one, by the machines and the days:
0.034 + (0.02 - 0.034) * 12 / (12 + 20) * 90 / (90 + 1460) = 0.0337. A class whose prices moved within its grace period loses
that part of the period, and is made no narrower otherwise.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from costguard.quoting.price_drift import PriceDrift
from costguard.quoting.price_series import PriceSeries

COVERAGE = 0.8
"""The share of prices that an interval must hold: that of `price_drift`."""
AGES = (1, 2, 4, 7, 14, 21, 30, 45, 60, 90, 120, 180, 270, 365, 540, 730)
"""Days between the prices of a pair, about."""
AGE_TOLERANCE = 0.2
"""By what share of its age a pair may be older or younger."""
PAIRS_PER_AGE, ATTEMPTS_PER_AGE = 6, 24
"""Pairs of one machine and age, and tries to find them: bounds of the work."""
PAIRS_MIN, SERIES_MIN, DAYS_MIN, AGES_MIN = 20, 5, 60, 3
"""What is enough: pairs past the grace period, machines, days from the first to the last price, and different ages."""
PAIRS_PER_AGE_MIN = 5
"""Pairs without which an age does not count."""
SHRINK_SERIES, SHRINK_DAYS = 20, 1460
"""Machines and days of which each moves a growth halfway to the smaller one that the pairs need. Prices have regimes, so that a
quiet past says little: on the public histories, split by time at five days of 2025 and 2026, growths as the pairs needed them
held 21 to 50 % of later spot prices older than 14 days, the shipped ones 57 to 77 % (2026-11-23)."""
NARROWEST = 0.8
"""No constant becomes smaller than so much of the shipped one, for the same reason."""
SETTLED_DAYS = 365
"""From this age on pairs say where `most` lies."""


@dataclass(frozen=True, slots=True)
class OwnDrift:
    """What one's own history says of a drift class.

    `growth`, `grace_days`, `most`: the constants to use, as in `PriceDrift`. `series`, `pairs`: machines with a pair, and pairs
    past the grace period. `days`: from the first to the last price. `why_not`: why the shipped constants stay, "": they do not.
    """

    drift: str
    growth: float
    grace_days: float
    most: float
    series: int
    pairs: int
    days: int
    why_not: str = ""

    @property
    def is_used(self) -> bool:
        """Return whether these constants replace the shipped ones."""
        return not self.why_not


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two prices of one machine. `age`: nominal days between them; `days`: the actual ones; `moved`: |log of their ratio|."""

    series: int
    age: int
    days: int
    moved: float


def estimate_own_drift(series: Iterable[PriceSeries], shipped: Mapping[str, PriceDrift]) -> tuple[OwnDrift, ...]:
    """Return what `series` say of each drift class that they contain, in the order of `shipped`."""
    by_class: dict[str, list[PriceSeries]] = defaultdict(list)
    for one in series:
        by_class[one.machine.drift].append(one)
    return tuple(_estimate_class(name, by_class[name], terms) for name, terms in shipped.items() if by_class.get(name))


def replace_drift(shipped: Mapping[str, PriceDrift], own: Iterable[OwnDrift]) -> dict[str, PriceDrift]:
    """Return `shipped` with the constants of one's own history where there is enough of it."""
    used = {one.drift: one for one in own if one.is_used}
    return {
        name: replace(terms, growth=used[name].growth, grace_days=used[name].grace_days, most=used[name].most)
        if name in used
        else terms
        for name, terms in shipped.items()
    }


def _estimate_class(name: str, series: Sequence[PriceSeries], shipped: PriceDrift) -> OwnDrift:
    pairs = [pair for number, one in enumerate(series) for pair in _list_pairs(number, one)]
    days = (max(one.runs[-1].last_seen_on for one in series) - min(one.runs[0].seen_on for one in series)).days
    grace = _estimate_grace(pairs, shipped)
    moving = [pair for pair in pairs if pair.days > grace]
    machines = len({pair.series for pair in moving})
    found = OwnDrift(name, shipped.growth, shipped.grace_days, shipped.most, machines, len(moving), days)
    why = _explain_too_little(found, moving)
    if why:
        return replace(found, why_not=why)
    needed = find_quantile([max(p.moved - shipped.start, 0.0) / math.sqrt(p.days - grace) for p in moving])
    return replace(
        found,
        growth=_shrink(needed, shipped.growth, machines, days) if grace == shipped.grace_days else max(needed, shipped.growth),
        grace_days=grace,
        most=_estimate_most(moving, shipped, days),
    )


def _estimate_grace(pairs: Sequence[_Pair], shipped: PriceDrift) -> float:
    """Return the days for which 80 % of the prices stayed within `start`, at most the shipped ones."""
    held = 0
    for age in AGES:
        here = [pair for pair in pairs if pair.age == age]
        if age > shipped.grace_days:
            break
        if len(here) >= PAIRS_MIN and len({p.series for p in here}) >= SERIES_MIN:
            if find_quantile([pair.moved for pair in here]) > shipped.start:
                return float(held)
            held = age
    return shipped.grace_days


def _explain_too_little(found: OwnDrift, moving: Sequence[_Pair]) -> str:
    """Return why the history says too little; "" if it says enough."""
    if found.days < DAYS_MIN:
        return f"only {found.days} days of prices; {DAYS_MIN} are needed"
    if found.series < SERIES_MIN:
        return f"only {found.series} machines with prices past the grace period; {SERIES_MIN} are needed"
    if found.pairs < PAIRS_MIN:
        return f"only {found.pairs} pairs of prices past the grace period; {PAIRS_MIN} are needed"
    ages = [pair.age for pair in moving]
    enough = sum(ages.count(age) >= PAIRS_PER_AGE_MIN for age in set(ages))
    return "" if enough >= AGES_MIN else f"prices at only {enough} different ages; {AGES_MIN} are needed"


def _estimate_most(moving: Sequence[_Pair], shipped: PriceDrift, days: int) -> float:
    """Return the half width that no age exceeds: raised by any age that needs more, lowered by pairs of a year and more."""
    counted = [(age, [p for p in moving if p.age == age]) for age in AGES]
    needed = [find_quantile([p.moved for p in here]) for _, here in counted if len(here) >= PAIRS_MIN]
    old = [pair for pair in moving if pair.age >= SETTLED_DAYS]
    raised = max(needed, default=0.0)
    if raised > shipped.most or len(old) < PAIRS_MIN:
        return max(raised, shipped.most)
    return _shrink(max(raised, shipped.start), shipped.most, len({pair.series for pair in old}), days)


def _shrink(needed: float, shipped: float, machines: int, days: int) -> float:
    """Return `needed` where it is larger than `shipped`, else a value between the two, by the `machines` and the `days`."""
    if needed >= shipped:
        return needed
    nearer = (needed - shipped) * machines / (machines + SHRINK_SERIES) * days / (days + SHRINK_DAYS)
    return max(shipped + nearer, NARROWEST * shipped)


def find_quantile(values: Sequence[float]) -> float:
    """Return the value that at least 80 % of future ones stay within, if they come from where `values` came from.

    It is the value of rank 0.8 (n + 1), rounded up: a quantile of a small sample would hold less than 80 %.
    """
    rank = math.ceil(COVERAGE * (len(values) + 1))
    return sorted(values)[min(rank, len(values)) - 1]


def _list_pairs(number: int, series: PriceSeries) -> list[_Pair]:
    known = _KnownPrices(series)
    return [pair for age in AGES for pair in _list_pairs_of_age(number, known, age)]


def _list_pairs_of_age(number: int, known: _KnownPrices, age: int) -> list[_Pair]:
    """Return the pairs of one machine and age, from the newest back, without overlap."""
    found, tolerance = list[_Pair](), math.floor(AGE_TOLERANCE * age)
    end = known.last
    for _ in range(ATTEMPTS_PER_AGE):
        if len(found) == PAIRS_PER_AGE or end - age < known.first - tolerance:
            break
        late, early = known.find_nearest(end), known.find_nearest(end - age)
        days = late[0] - early[0]
        if abs(days - age) > tolerance or days < 1:
            end -= max(1, tolerance)
            continue
        found.append(_Pair(number, age, days, abs(late[1] - early[1])))
        end = early[0]
    return found


class _KnownPrices:
    """The days on which a machine's price was seen, as runs of day numbers with the logarithm of the price."""

    def __init__(self, series: PriceSeries) -> None:
        self.runs = [
            (run.seen_on.toordinal(), run.last_seen_on.toordinal(), math.log(run.rate.nano_per_hour)) for run in series.runs
        ]
        self.ends = [end for _, end, _ in self.runs]

    @property
    def first(self) -> int:
        return self.runs[0][0]

    @property
    def last(self) -> int:
        return self.ends[-1]

    def find_nearest(self, day: int) -> tuple[int, float]:
        """Return the known day nearest to `day`, and the logarithm of its price."""
        place = bisect_left(self.ends, day)
        near = [(min(max(day, first), last), price) for first, last, price in self.runs[max(0, place - 1) : place + 1]]
        return min(near, key=lambda one: abs(one[0] - day))


def describe_own_drift(found: OwnDrift, shipped: PriceDrift, days: int = 90) -> str:
    """Return a sentence on where the constants of the class come from, and how wide they are after `days` days."""
    if not found.is_used:
        return f"{found.drift}: as shipped ({found.why_not})"
    own = replace_drift({found.drift: shipped}, [found])[found.drift]
    widths = [terms.estimate_factor(days).high for terms in (own, shipped)]
    told = " instead of ".join(f"{width - 1:.0%}" for width in widths)
    since = f"{found.series} machines, {found.pairs} pairs of prices over {found.days} days"
    return f"{found.drift}: from your own history ({since}): after {days} days up to {told} dearer"
