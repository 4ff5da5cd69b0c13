"""Fits `costguard/data/price_drift.csv` to histories of prices: `python scripts/fit_price_drift.py [HISTORY.csv]`.

A history has one row per price and day. Rows of one collector, provider, machine, tier and region are a series; rows of two
collectors never are, because they define a price differently. Two days of a series are a pair: an age, and the logarithm of the
later price over the earlier one. In each span of ages pairs are weighed twice: every series alike; and every collector alike,
within it every provider and GPU, and within these every series. The pairs of the newest RECENT_DAYS are weighed so once more.

The half width h of a class is the one with which the share of pairs inside comes nearest to 80 % in every span and by both
weights; of those that come equally near, the narrowest. The trend is the mean ratio, halved: prices of 2026 rose with a
shortage, and half of a regime is not far off in the next one.
What no history can tell (days to live, days to rank) is stated here with its reason.

Example: GCP's spot prices of which 80 % moved by less than 29 % in 31 to 90 days ask for h = 0.29 at 60 days.
"""

from __future__ import annotations

import argparse
import csv
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import accumulate, product
from pathlib import Path

from costguard.quoting.offer import (
    ASK,
    BID,
    COMMUNITY_PRICE,
    DRIFT_CLASSES,
    HYPERSCALER,
    HYPERSCALER_NEW,
    LISTED,
    MARKETPLACES,
    SPOT_PRICE,
    Offer,
)
from costguard.quoting.price_drift import CONSTANTS, PriceDrift, is_placeholder
from costguard.values.money import Rate

ROOT = Path(__file__).parent.parent
HISTORY = ROOT.parent / "shared" / "data" / "price_history_dev.csv"
SOLD = ROOT.parent / "shared" / "providers" / "prices" / "gcp.csv"
LISTS_ALL = "c"
"""The collector that prices machines of GCP in every region; where there are none they fell, while the others rose."""
OUTPUT = ROOT / "costguard" / "data" / "price_drift.csv"

SNAPSHOTS = "p"
"""The collector of costguard's own snapshots: days of several sources, which are no series."""
SAME_PROVIDER = {"oracle": "oci"}
SPANS = ((1, 7), (8, 14), (15, 30), (31, 60), (61, 90), (91, 180), (181, 365), (366, 730))
"""Ages in days that are weighed alike, first and last."""
COVERED = 0.8
EXACT = 0.005
"""Prices that differ by half a percent are the same price."""
RECENT_DAYS = 92
"""The newest pairs are fitted once more beside all of them, because prices have regimes: of GCP's spot prices 69 % did not move
in 31 to 60 days of late 2025, and 9 % in early 2026. Fitted before 2026-05-01, spot prices of 61 to 90 days after it are
covered to 77 % with this, to 58 % without, and those of 91 to 180 days to 56 and 40 %."""
NEARLY = 3
"""Decimals to which scores are compared: closer ones differ by noise, and then the narrowest interval is taken."""
LEAST_SERIES = 3
"""Series in a span below which it is no evidence."""

STARTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25)
GROWTHS = tuple(n / 1000 for n in range(0, 102, 4))
GRACES = (0, 7, 14, 21, 30)
MOSTS = (0.1, 0.3, 0.6, 0.75, 0.9, 1.05)
LEAST_GROWTH = {LISTED: 0.02, COMMUNITY_PRICE: 0.02, HYPERSCALER: 0.02, HYPERSCALER_NEW: 0.02}
"""Most of these prices do not move for months, so the quantile alone would call them exact; those that do, move by a tenth or
two (RunPod raised its secure machines by 12 to 18 % between 2026-10-07 and 2026-10-10)."""
LEAST_MOST = {LISTED: 0.6, COMMUNITY_PRICE: 0.6, HYPERSCALER_NEW: 0.6}
"""No history of these is longer than three months, or shows the cut of a new GPU's price (AWS cut P5 by 44 % in June 2025):
nothing says that they stop moving."""
GRACE = {HYPERSCALER: (365,), HYPERSCALER_NEW: (90,)}
"""95 % of on-demand prices were unchanged after half a year to a year, and 93 % of those of the newest GPUs; but the newest
are those whose lists are cut within months."""
TREND_DAYS = 326
"""The age up to which the trend was seen to hold, at most: that of the oldest spot prices shipped."""

FRESH_DAYS = {HYPERSCALER: 365, HYPERSCALER_NEW: 90, LISTED: 30, COMMUNITY_PRICE: 21, SPOT_PRICE: 14, ASK: 1, BID: 0}
RANKED_DAYS = {ASK: 1, BID: 0, SPOT_PRICE: 365}
FRESH_REASONS = {
    HYPERSCALER: "95 % of such prices did not move in half a year to a year",
    HYPERSCALER_NEW: "few of them moved in half a year, but AWS cut P5 by 44 % in June 2025",
    LISTED: "four in five such prices did not move in 15 to 30 days",
    COMMUNITY_PRICE: "19 in 20 did not move in 15 to 30 days, but that is one summer of one provider",
    SPOT_PRICE: "half of them move in 8 to 14 days, four in five by less than 5 %",
    ASK: "two in three move within a week, four in five by less than 40 %",
    BID: "a bid rents nothing by itself",
}
"""Why a price counts as fresh for FRESH_DAYS; the shares are of docs/ACCURACY.md, 2026-11-23."""
RANKED_REASONS = {
    ASK: "an older ask is a machine that may be gone",
    BID: "a bid rents nothing by itself",
    SPOT_PRICE: "the interval spans a factor of two each way well before",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two days of one series. `log_ratio`: of the later price over the earlier one."""

    age_days: int
    log_ratio: float
    later: date


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The dated prices of one machine as one collector states them, oldest first, and the offer that they are prices of."""

    collector: str
    offer: Offer
    prices: tuple[tuple[date, float], ...]

    @property
    def drift_class(self) -> str:
        """The drift class of its prices."""
        return self.offer.drift_class

    @property
    def group(self) -> tuple[str, str, str]:
        """What weighs alike: collector, provider and GPU."""
        return (self.collector, self.offer.provider, self.offer.gpu)

    def list_pairs(self) -> Iterator[Pair]:
        """Every two days of the series."""
        for n, (earlier, first) in enumerate(self.prices):
            for later, second in self.prices[n + 1 :]:
                yield Pair(age_days=(later - earlier).days, log_ratio=math.log(second / first), later=later)


def read_history(path: Path) -> list[Series]:
    """Every series of the history, without placeholders."""
    found: dict[tuple[str, ...], dict[date, float]] = defaultdict(dict)
    offers: dict[tuple[str, ...], Offer] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            if line["collector"] == SNAPSHOTS or float(line["usd_per_hour"]) <= 0:
                continue
            offer = build_offer(line)
            if is_placeholder(offer):
                continue
            key = tuple(line[n] for n in ("collector", "provider", "gpu", "gpu_count", "tier", "region", "instance_type"))
            found[key][offer.observed_on] = float(line["usd_per_hour"])
            offers[key] = offer
    return [
        Series(collector=key[0], offer=offers[key], prices=tuple(sorted(days.items()))) for key, days in sorted(found.items())
    ]


def build_offer(line: Mapping[str, str]) -> Offer:
    """One row of the history as an offer."""
    provider, count = SAME_PROVIDER.get(line["provider"], line["provider"]), int(line["gpu_count"])
    dynamic = line["tier"] == "spot" or provider in MARKETPLACES
    return Offer(
        provider=provider,
        region=line["region"],
        instance_type=line["instance_type"] or f"{line['gpu']} x{count}",
        gpu=line["gpu"],
        gpu_count=count,
        tier=line["tier"],
        rate=Rate(nano_per_hour=max(1, round(float(line["usd_per_hour"]) * 1e9))),
        observed_on=date.fromisoformat(line["observed_on"]),
        source=line["source"],
        pricing="dynamic" if dynamic else "standard",
    )


Weighed = tuple[float, float, float]
"""Age in days, log ratio and weight of a pair."""


BY_COLLECTOR, BY_SERIES = WEIGHTS = ("collector", "series")


def weigh_pairs(
    series: Iterable[Series],
    since: date = date.min,
    before: date = date.max,
    *,
    alike: str = BY_COLLECTOR,
    least_series: int = LEAST_SERIES,
) -> dict[tuple[int, int], list[Weighed]]:
    """The pairs of each span of ages whose later day is in [since, before), weighed by `alike`; each span sums to 1."""
    spans: dict[tuple[int, int], dict[tuple[str, ...], list[list[Pair]]]] = {}
    for one in series:
        pairs = [pair for pair in one.list_pairs() if since <= pair.later < before]
        for span in SPANS:
            within = [pair for pair in pairs if span[0] <= pair.age_days <= span[1]]
            if within:
                group = one.group if alike == BY_COLLECTOR else ("all",)
                spans.setdefault(span, {}).setdefault(group, []).append(within)
    weighed: dict[tuple[int, int], list[Weighed]] = {}
    for span, groups in spans.items():
        if sum(map(len, groups.values())) >= least_series:
            sources = Counter(group[0] for group in groups)
            weighed[span] = [
                (pair.age_days, pair.log_ratio, 1 / len(sources) / sources[group[0]] / len(members) / len(pairs))
                for group, members in groups.items()
                for pairs in members
                for pair in pairs
            ]
    return weighed


def fit_class(
    name: str, weighed: Sequence[Mapping[tuple[int, int], Sequence[Weighed]]], sold: Mapping[tuple[int, int], Sequence[Weighed]]
) -> PriceDrift:
    """The constants of one drift class that fit its pairs best.

    `weighed`: the pairs by span, once for each way to weigh them. `sold`: of machines that can be rented, for the trend.
    """
    coarse = [_bin_span(pairs) for spans in weighed for pairs in spans.values()]
    oldest = max((last for spans in weighed for _, last in spans), default=0)
    candidates = (
        (start, growth, grace, most)
        for start, growth, grace, most in product(STARTS, GROWTHS, GRACE.get(name, GRACES), MOSTS)
        if growth >= LEAST_GROWTH.get(name, 0.0) and start <= most and most >= LEAST_MOST.get(name, 0.0)
    )
    best = min(candidates, key=lambda one: (round(_score(coarse, *one), NEARLY), _measure_width(*one)))
    return PriceDrift(
        start=best[0],
        growth=best[1],
        grace_days=best[2],
        most=best[3],
        trend_per_day=fit_trend(sold, best[2]),
        trend_days=min(TREND_DAYS, oldest),
        fresh_days=FRESH_DAYS[name],
        ranked_days=RANKED_DAYS.get(name),
    )


def fit_trend(spans: Mapping[tuple[int, int], Sequence[Weighed]], grace_days: float) -> float:
    """Half of the slope of the logarithm of the mean ratio over the days beyond `grace_days`, by least squares through 0.

    Never below 0: a fall that may not go on must not rank an old price first.
    """
    points = [
        (sum(age * w for age, _, w in pairs) - grace_days, math.log(sum(math.exp(y) * w for _, y, w in pairs)))
        for span, pairs in spans.items()
        if span[0] > grace_days and span[1] <= TREND_DAYS + 60
    ]
    squares = sum(days * days for days, _ in points)
    return max(0.0, round(sum(days * mean for days, mean in points) / squares / 2, 5)) if squares else 0.0


AGE_BIN = 1.25
"""Pairs are held in bins of ages, each this much longer than the one before, so that a fit takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeBin:
    """The pairs of nearly one age. `sizes` are |log ratio|, ascending; `covered` the weight of all up to each, 0 first."""

    age_days: float
    sizes: Sequence[float]
    covered: Sequence[float]

    def cover(self, half: float) -> float:
        """The weight of the pairs that a half width covers."""
        return self.covered[bisect_right(self.sizes, half + EXACT)]


def _bin_span(pairs: Sequence[Weighed]) -> tuple[Sequence[AgeBin], float]:
    """The pairs of a span in bins of age, and the share of them that an interval should cover."""
    bins: dict[int, list[Weighed]] = defaultdict(list)
    for age, y, w in pairs:
        bins[round(math.log(max(age, 1)) / math.log(AGE_BIN))].append((age, abs(y), w))
    found = []
    for members in bins.values():
        members.sort(key=lambda pair: pair[1])
        covered = [0.0, *accumulate(w for _, _, w in members)]
        age_days = sum(age * w for age, _, w in members) / covered[-1]
        found.append(AgeBin(age_days=age_days, sizes=[size for _, size, _ in members], covered=covered))
    return found, max(COVERED, sum(one.cover(0.0) for one in found))


def _score(spans: Sequence[tuple[Sequence[AgeBin], float]], start: float, growth: float, grace: float, most: float) -> float:
    """How far the covered shares lie from COVERED, in squares; where more did not move, only what is covered beyond counts."""
    total = 0.0
    for bins, wanted in spans:
        covered = 0.0
        for one in bins:
            covered += one.cover(min(most, start + growth * math.sqrt(max(one.age_days - grace, 0.0))))
        total += (covered - wanted) ** 2
    return total


def _measure_width(start: float, growth: float, grace: float, most: float) -> float:
    """The mean half width over the spans: of equally good constants the narrowest are the honest ones."""
    ages = [(first + last) / 2 for first, last in SPANS]
    return sum(min(most, start + growth * math.sqrt(max(age - grace, 0.0))) for age in ages)


def fit_all(series: Sequence[Series], since: date = date.min, before: date = date.max) -> dict[str, PriceDrift]:
    """Drift class -> its constants, from the pairs whose later day is in [since, before)."""
    sold, fitted = find_sold(), {}
    for name in DRIFT_CLASSES:
        mine = [one for one in series if one.drift_class == name]
        rented = [one for one in mine if one.collector != LISTS_ALL or (one.offer.instance_type, one.offer.region) in sold]
        newest = max((day for one in mine for day, _ in one.prices if day < before), default=date.max)
        recent = max(since, newest - timedelta(days=RECENT_DAYS))
        weighed = [weigh_pairs(mine, start, before, alike=alike) for start in (since, recent) for alike in WEIGHTS]
        fitted[name] = fit_class(name, weighed, weigh_pairs(rented, since, before))
    return fitted


def find_sold() -> frozenset[tuple[str, str]]:
    """(Instance type, region) of GCP's machines that the snapshot of karpenter's table knows."""
    with SOLD.open(encoding="utf-8", newline="") as lines:
        return frozenset((line["instance_type"], line["region"]) for line in csv.DictReader(lines))


def write_constants(path: Path, series: Sequence[Series], fitted: Mapping[str, PriceDrift], history: str) -> None:
    """Write the constants, each with what it was fitted to."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("drift_class", "constant", "value", "source"))
        for name, terms in fitted.items():
            evidence = describe_evidence(name, series, history)
            for constant in CONSTANTS:
                value = getattr(terms, constant)
                text = "" if value is None else f"{value:g}"
                writer.writerow((name, constant, text, explain_constant(name, constant, value, evidence)))


def explain_constant(name: str, constant: str, value: float | None, evidence: str) -> str:
    """Where a constant comes from: the histories, or an assumption and its reason."""
    if constant == "fresh_days":
        return f"assumption: {FRESH_REASONS[name]}"
    if constant == "ranked_days":
        return f"assumption: {RANKED_REASONS.get(name, 'the interval of such a price is never too wide to rank it')}"
    if constant == "trend_days":
        return "assumption: no longer than such prices were watched, and than the oldest spot prices shipped"
    if constant == "grace_days" and name in GRACE:
        return "assumption: as long as the price counts as fresh"
    if constant == "trend_per_day" and value:
        return f"{evidence}; half of what was seen"
    least = {"growth": LEAST_GROWTH, "most": LEAST_MOST}.get(constant, {}).get(name)
    return f"assumption: the least that is believed, the history shows no more; {evidence}" if value == least else evidence


def describe_evidence(name: str, series: Sequence[Series], history: str) -> str:
    """What the constants of a class were fitted to."""
    used = [one for one in series if one.drift_class == name and len(one.prices) > 1]
    if not used:
        return "assumption: no dated prices of this class"
    days = [day for one in used for day, _ in (one.prices[0], one.prices[-1])]
    collectors = "".join(sorted({one.collector for one in used}))
    return f"{history}: {len(used)} series of collectors {collectors}, {min(days)} to {max(days)}"


def main() -> None:
    """Fit the constants and write them."""
    parser = argparse.ArgumentParser(description="Fits costguard/data/price_drift.csv to histories of prices.")
    parser.add_argument("history", nargs="?", type=Path, default=HISTORY, help="a CSV file of dated prices (%(default)s)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the file to write (%(default)s)")
    asked = parser.parse_args()
    for path in (asked.history, SOLD):
        if not path.is_file():
            parser.error(f"no file {path}")
    series = read_history(asked.history)
    fitted = fit_all(series)
    write_constants(asked.output, series, fitted, asked.history.name)
    for name, terms in fitted.items():
        print(f"{name:16} {terms}")


if __name__ == "__main__":
    main()
