"""How well the age of a price tells what it is today: coverage of the 80 % interval, and whether the named cheapest is.

    python bench/prices.py                              both tables, from ../shared/data/price_history_dev.csv
    python bench/prices.py --write docs/ACCURACY.md     the same into its part of the page

Coverage is scored twice on prices that the constants were not fitted to: a fifth of the providers and GPUs at a time, and the
months after a day. The ranking is played on each week of 2026 with what `age_price` says: every machine that a collector lists
about that day is an offer, its price then is the truth, and what is known of it is its price of some days before, never the
same one. Example: a spot price of $2.00 on 10 June is known as the $1.80 of 3 June; the offer ranked first by what such prices
are likely today is a hit if no other offer truly costs less.
"""

from __future__ import annotations

import argparse
import math
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # bench and scripts are folders beside the package, not installed

from bench.page import PRICES_BEGIN as BEGIN  # noqa: E402 - after the path above
from bench.page import PRICES_END as END  # noqa: E402
from costguard.data import FOLDER, ShippedFacts  # noqa: E402
from costguard.ledger.market import MarketReader  # noqa: E402
from costguard.quoting.offer import BID, DRIFT_CLASSES, OfferSelection  # noqa: E402
from costguard.quoting.price_drift import AgedPrice, PriceDrift, age_price  # noqa: E402
from costguard.values.money import Rate  # noqa: E402
from scripts.fit_price_drift import HISTORY, LEAST_SERIES, SOLD, SPANS, Series, fit_all, read_history, weigh_pairs  # noqa: E402

FOLDS = 5
CUT = date(2026, 5, 1)
"""The day of the time split: fitted before, scored after. Histories of lists and asks begin in February 2026."""
SAME = 0.01
"""Prices that differ by less are the same price."""
TOO_DEAR = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The share of pairs inside the 80 % interval, and of prices that did not move, in one class and span of ages.

    `covered` and `unmoved`: collectors alike, within them each provider and GPU; `covered_series`: every series alike.
    """

    series: int
    covered: float
    covered_series: float
    unmoved: float


Key = tuple[str, tuple[int, int]]
"""A drift class and a span of ages."""


def score_groups(
    series: Sequence[Series], drift: Mapping[str, PriceDrift], since: date = date.min
) -> Iterator[tuple[Key, str, Coverage]]:
    """Yield key, collector and coverage by `drift` of each collector's provider and GPU, of pairs that end `since` or after."""
    groups: dict[tuple[str, ...], list[Series]] = defaultdict(list)
    for one in series:
        groups[one.drift_class, *one.group].append(one)
    for (name, collector, *_), members in groups.items():
        for span, pairs in weigh_pairs(members, since, least_series=1).items():
            inside = sum(w for age, y, w in pairs if _covers(drift[name], round(age), y))
            unmoved = sum(w for _, y, w in pairs if abs(y) < SAME / 2)
            count = sum(any(span[0] <= p.age_days <= span[1] and p.later >= since for p in one.list_pairs()) for one in members)
            yield (name, span), collector, Coverage(series=count, covered=inside, covered_series=inside, unmoved=unmoved)


def _covers(terms: PriceDrift, age_days: int, log_ratio: float) -> bool:
    factor, ratio = terms.estimate_factor(age_days), math.exp(log_ratio)
    return factor.low * (1 - SAME / 2) <= ratio <= factor.high * (1 + SAME / 2)


def combine_groups(groups: Iterable[tuple[Key, str, Coverage]]) -> dict[Key, Coverage]:
    """Key -> the coverage of all its groups, where there are LEAST_SERIES."""
    found: dict[Key, dict[str, list[Coverage]]] = defaultdict(lambda: defaultdict(list))
    for key, collector, one in groups:
        found[key][collector].append(one)
    combined = {}
    for key, collectors in found.items():
        every = [one for some in collectors.values() for one in some]
        count = sum(one.series for one in every)
        if count >= LEAST_SERIES:
            combined[key] = Coverage(
                series=count,
                covered=fmean(fmean(one.covered for one in some) for some in collectors.values()),
                covered_series=sum(one.covered * one.series for one in every) / count,
                unmoved=fmean(fmean(one.unmoved for one in some) for some in collectors.values()),
            )
    return combined


def score_folds(series: Sequence[Series]) -> dict[Key, Coverage]:
    """The coverage where each provider and GPU is scored with constants that were fitted without it."""
    groups: list[tuple[Key, str, Coverage]] = []
    for fold in range(FOLDS):
        drift = fit_all([one for one in series if _pick_fold(one) != fold])
        groups += score_groups([one for one in series if _pick_fold(one) == fold], drift)
    return combine_groups(groups)


def _pick_fold(one: Series) -> int:
    return zlib.crc32(f"{one.offer.provider} {one.offer.gpu}".encode()) % FOLDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One question (which machine with this GPU is the cheapest today?) and how the answer did.

    `hit`: the one ranked first is the cheapest of all that were ranked, or costs the same. `wrong`: it is dearer than that by
    more than a tenth, and was not "maybe". `hit_asks` and `wrong_asks`: the same against asks too, that are too old to rank.
    """

    hit: bool
    wrong: bool
    hit_asks: bool
    wrong_asks: bool
    maybe: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A machine whose price was seen some days ago: what is said of it, and what it costs now. `lot`: provider and tier."""

    lot: tuple[str, str]
    price: AgedPrice
    usd: float


SLACK_DAYS = 14
"""Histories hold a price a week, some a fortnight: a price wanted of one day is the newest of so many days up to it."""
SHIPPED_ON = date(2026, 11, 23)
WEEK = dict.fromkeys(DRIFT_CLASSES, range(1, 8))


def list_shipped_ages() -> dict[str, Sequence[int]]:
    """Drift class -> the age of each shipped price on SHIPPED_ON, in days."""
    ages: dict[str, list[int]] = {name: [] for name in DRIFT_CLASSES}
    with MarketReader(FOLDER / "market.sqlite") as market:
        for offer in market.list_offers(OfferSelection()):
            if offer.rate:
                ages[offer.drift_class].append(max(1, offer.count_age_days(SHIPPED_ON)))
    return {name: sorted(found) for name, found in ages.items() if found}


def play_ranking(series: Sequence[Series], drift: Mapping[str, PriceDrift], ages: Mapping[str, Sequence[int]]) -> list[Choice]:
    """Every choice on each week of 2026 for each GPU and count, where offers of two providers or tiers may be ranked.

    Medians and bids are no offers. Each offer is as old as one of `ages` of its class; a class without ages is not known.
    """
    offers = [one for one in series if one.offer.region != "median" and one.drift_class in ages.keys() - {BID}]
    choices = []
    for day in _list_weeks(offers):
        for options in _list_markets(offers, drift, ages, day):
            ranked = [one for one in options if not one.price.unranked]
            if len({one.lot for one in ranked}) > 1:
                choices.append(_choose(ranked, options))
    return choices


def _list_weeks(series: Sequence[Series]) -> Iterator[date]:
    days = [day for one in series for day, _ in one.prices if day.year >= CUT.year]
    day = min(days) + timedelta(days=30)
    while day <= max(days):
        yield day
        day += timedelta(days=7)


def _list_markets(
    series: Sequence[Series], drift: Mapping[str, PriceDrift], ages: Mapping[str, Sequence[int]], day: date
) -> Iterable[list[Option]]:
    """Return the machines of each GPU and count that are listed about `day` and were listed before."""
    markets: dict[tuple[str, int], list[Option]] = defaultdict(list)
    for one in series:
        now = _find_price(one, day)
        if now is None:
            continue
        some = ages[one.drift_class]
        age = some[zlib.crc32(repr(one.offer).encode()) % len(some)]
        then = _find_price(one, now[0] - timedelta(days=age))  # an earlier day than `now`: no price is compared with itself
        if then is None:
            continue
        aged = age_price(replace(one.offer, observed_on=then[0], rate=_make_rate(then[1])), drift, now[0])
        if aged:
            option = Option(lot=(one.offer.provider, one.offer.tier), price=aged, usd=now[1])
            markets[one.offer.gpu, one.offer.gpu_count].append(option)
    return markets.values()


def _find_price(one: Series, day: date) -> tuple[date, float] | None:
    """The newest price of the SLACK_DAYS up to `day`."""
    return next((p for p in reversed(one.prices) if day - timedelta(days=SLACK_DAYS) <= p[0] <= day), None)


def _make_rate(usd: float) -> Rate:
    return Rate(nano_per_hour=max(1, round(usd * 1e9)))


def _choose(ranked: Sequence[Option], known: Sequence[Option]) -> Choice:
    first = min(ranked, key=lambda option: option.price.expected.nano_per_hour)
    least, least_known = (min(option.usd for option in some) for some in (ranked, known))
    maybe = not first.price.fresh
    return Choice(
        hit=first.usd <= least * (1 + SAME),
        wrong=first.usd > least * TOO_DEAR and not maybe,
        hit_asks=first.usd <= least_known * (1 + SAME),
        wrong_asks=first.usd > least_known * TOO_DEAR and not maybe,
        maybe=maybe,
    )


def freeze(drift: Mapping[str, PriceDrift]) -> dict[str, PriceDrift]:
    """`drift` that moves no price and knows no age: as quotes were before."""
    return {
        name: replace(one, start=0.0, growth=0.0, trend_per_day=0.0, fresh_days=10**6, ranked_days=None)
        for name, one in drift.items()
    }


def build_part(series: Sequence[Series]) -> str:
    """The part of the page."""
    shipped = ShippedFacts().get_price_drift()
    folds, late = score_folds(series), combine_groups(score_groups(series, fit_all(series, before=CUT), CUT))
    now = combine_groups(score_groups(series, shipped, CUT))
    lines = [
        "## Prices with an age",
        "",
        f"Written by `python bench/prices.py --write docs/ACCURACY.md`, from {len(series)} series of dated prices.",
        f"*Covered, other series*: each provider and GPU is scored with constants fitted without it ({FOLDS} parts), with",
        "equal weights per collector, and within a collector per provider and GPU; *every series alike*: with equal",
        "weights per series. The target is 72 to 92 %; if more prices than that did not move, the coverage is at least",
        f"their share. *Later time*: after {CUT}, with constants fitted to the time before, with equal weights per series.",
        "This is not a score, because spot prices began to move weekly in 2026, and the collectors of asks before and",
        "after that day differ. *Shipped*: the same later time with the shipped constants, which are fitted to it: their",
        "score if prices continue to move in this way.",
        "",
        "| class | age in days | series | did not move | covered, other series | every series alike | later time | shipped |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for key in ((name, span) for name in DRIFT_CLASSES for span in SPANS):
        if key in folds:
            one = folds[key]
            shares = [f"{share:.0%}" for share in (one.unmoved, one.covered, one.covered_series)]
            shares += [f"{some[key].covered_series:.0%}" if key in some else "-" for some in (late, now)]
            lines.append(f"| {key[0]} | {key[1][0]}-{key[1][1]} | {one.series} | {' | '.join(shares)} |")
    lines += [
        "",
        "This is the first-ranked offer of each GPU and count, for each week of 2026, if two providers or tiers can be",
        f"ranked. Ages are those of the shipped prices on {SHIPPED_ON}, by class; histories have one price per week, so *a",
        "week old* is mostly 7 days. *Wrong*: more than 10 % more expensive than the best ranked one, and not marked",
        '"maybe". *With asks*: compared also with marketplace asks, which are listed but not ranked after a day.',
        "",
        "| prices | choices | the cheapest | wrong and unmarked | marked maybe | the cheapest, with asks | wrong, with asks |",
        "|---|---|---|---|---|---|---|",
    ]
    ours, before = list_shipped_ages(), freeze(shipped)
    for label, choices in (
        ("as old as those shipped, by the price seen", play_ranking(series, before, ours)),
        ("as old as those shipped, by what they are likely today", play_ranking(series, shipped, ours)),
        ("a week old, by the price seen", play_ranking(series, before, WEEK)),
        ("a week old, by what they are likely today", play_ranking(series, shipped, WEEK)),
    ):
        total = max(1, len(choices))
        names = ("hit", "wrong", "maybe", "hit_asks", "wrong_asks")
        shares = [sum(getattr(one, what) for one in choices) / total for what in names]
        lines.append(f"| {label} | {len(choices)} | {' | '.join(f'{share:.0%}' for share in shares)} |")
    return "\n".join([BEGIN, *lines, END])


def main(words: list[str] | None = None) -> int:
    """0 when done, or skipped where the project's own history is not here; 2 where the stated history cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("history", nargs="?", type=Path, default=HISTORY, help="a CSV file of dated prices (%(default)s)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write the part into this page")
    asked = parser.parse_args(words)
    missing = next((path for path in (asked.history, SOLD) if not path.is_file()), None)
    if missing and asked.history == HISTORY:
        print(f"prices: skipped, {missing.name} is not in {missing.parent}")
        return 0
    if not asked.history.is_file():
        print(f"cannot read {asked.history}: give a CSV file of dated prices", file=sys.stderr)
        return 2
    part = build_part(read_history(asked.history))
    print(part)
    if asked.write:
        page = asked.write.read_text(encoding="utf-8")
        before, begun, rest = page.partition(BEGIN)
        if begun and END not in rest:
            print(f"cannot write {asked.write}: it has {BEGIN} and no {END} after it", file=sys.stderr)
            return 2
        after = rest.partition(END)[2] or "\n"
        asked.write.write_text(f"{before.rstrip()}\n\n{part}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
