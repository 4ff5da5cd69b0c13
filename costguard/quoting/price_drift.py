"""What an old price says about today's: an interval, whether it is still fresh, and whether it may be ranked at all.

With the age of a price in days, its drift class gives

    h    = min(most, start + growth * sqrt(max(age - grace_days, 0)))     the 80 % interval is the price times exp(-h) to exp(h)
    mean = exp(trend_per_day * min(max(age - grace_days, 0), trend_days))    the expected price is the price times mean

Example: a spot price of $20.00 seen 100 days ago, with start 0, growth 0.034, grace_days 14 and most 0.75, has h = 0.315: today
it is between $14.59 and $27.41 with 80 % probability. The constants are fitted by `scripts/fit_price_drift.py` to dated prices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from costguard.errors import InputError
from costguard.quoting.offer import BID, DRIFT_CLASSES, SPOT_PRICE, Offer
from costguard.values.interval import Interval
from costguard.values.money import Rate

AHEAD_DAYS = 1
"""Days a price may seem to come from the future: the observer's day may begin earlier than ours."""

UNDATED_DAYS = 180
"""A copy of a spot price that may be this many days older than it may be young is no observation of a price that moves."""

PLACEHOLDERS: Mapping[str, tuple[int, re.Pattern[str]]] = {
    "runpod": (500_000_000, re.compile(r"(A100|A800|[GH]+[12]00|H800|H20|G?B[23]00|MI\d+X)(-.*)?"))
}
"""Provider -> a price per GPU, in nano-dollars an hour, that stands for "none" when it is stated of such a GPU: RunPod's 0.50
(H200 and MI300X, 2026-07 and 2026-08; `providers/public-prices.md`, 2026-11-23)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceDrift:
    """How the prices of one drift class move. `start`, `growth` and `most` are half widths of a logarithm.

    A price counts as fresh for `fresh_days`, and is ranked for `ranked_days`, None: for ever.
    """

    start: float
    growth: float
    grace_days: float
    most: float
    trend_per_day: float
    trend_days: float
    fresh_days: int
    ranked_days: int | None

    def estimate_factor(self, age_days: int) -> Interval:
        """Return today's price over the one seen `age_days` ago: the 80 % interval and the expected factor; exactly 1 at 0."""
        if age_days <= 0:
            return Interval.exactly(1.0)
        moving = max(age_days - self.grace_days, 0.0)
        half = min(self.most, self.start + self.growth * math.sqrt(moving))
        trend = min(max(self.trend_per_day * min(moving, self.trend_days), -half), half)
        return Interval(math.exp(-half), math.exp(trend), math.exp(half))


LARGEST_CUT, LARGEST_RISE = 0.45, 0.25
"""The least shares by which a price that nobody states today may be lower or higher than when it was seen. AWS cut P4 and P5
by up to 45 % at once in June 2025 (the project's provider notes, aws.md, 2026-11); no list price in the histories at hand rose
by more than the interval of its class, and a quarter is an assumption (2026-11)."""

BOUND_WIDTHS = 2
"""The bounds of a ledger are so many times as wide, as logarithms, as the 80 % interval: 99 % of a normal error."""


def bound_factor(terms: PriceDrift, age_days: int) -> Interval:
    """Return what a machine pays over the price seen `age_days` ago as a ledger may rely on it: bounds around 1.

    An 80 % interval is too narrow to act on: a hard cap counts the low end. The trend of the class is left out, because it is
    of new offers, and a machine that runs pays what was agreed at its start.
    """
    factor = terms.estimate_factor(max(age_days, 0))
    return Interval(min(factor.low**BOUND_WIDTHS, 1 - LARGEST_CUT), 1.0, max(factor.high**BOUND_WIDTHS, 1 + LARGEST_RISE))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgedPrice:
    """The price of an offer as of a day: what it is likely to be then. `low` to `high` is the 80 % interval of the hourly rate.

    `age_days` is negative for a price dated in the future. `unranked`: why the offer must not be ranked, "": it may be.
    """

    age_days: int
    low: Rate
    expected: Rate
    high: Rate
    fresh: bool
    unranked: str = ""

    @property
    def is_exact(self) -> bool:
        """Return whether the price is taken as it was seen."""
        return self.low == self.high

    def multiply(self, count: int) -> AgedPrice:
        """Return the price of `count` such offers."""
        if count == 1:
            return self
        return AgedPrice(
            age_days=self.age_days,
            low=self.low.multiply(count),
            expected=self.expected.multiply(count),
            high=self.high.multiply(count),
            fresh=self.fresh,
            unranked=self.unranked,
        )

    def format_age(self) -> str:
        """Return the age as a table shows it: "3d old", "seen 326d ago" once it is past its time to live, "dated 3d ahead"."""
        if self.age_days < -AHEAD_DAYS:
            return f"dated {-self.age_days}d ahead"
        return f"{self.age_days}d old" if self.fresh else f"seen {self.age_days}d ago"

    def explain_age(self) -> str:
        """Return the age for a sentence: "was seen 326 d ago", "is dated 3 d ahead"."""
        if self.age_days < -AHEAD_DAYS:
            return f"is dated {-self.age_days} d ahead"
        return f"was seen {max(self.age_days, 0)} d ago"


def shorten_age(text: str) -> str:
    """Return what `AgedPrice.format_age` says without its words, for narrow tables: "326d"."""
    return re.sub(r"(?:seen )?(\d+d) (?:old|ago)", r"\1", text)


@dataclass(frozen=True, slots=True, order=True)
class Vintage:
    """What prices must share to age alike. `observed_to` date.min: `observed_on` is exact. `placeholder`: no prices."""

    drift_class: str
    observed_on: date
    observed_to: date
    placeholder: bool

    def count_undated_days(self) -> int:
        """Return how many days lie between the first and the last day on which the prices may have been seen."""
        return max(0, (self.observed_to - self.observed_on).days)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a vintage says today: the factor of its prices, whether they are fresh, and why they must not be ranked ("")."""

    factor: Interval
    fresh: bool
    unranked: str


def get_vintage(offer: Offer) -> Vintage:
    """Return the vintage of the price of `offer`."""
    return Vintage(offer.drift_class, offer.observed_on, offer.observed_to or date.min, is_placeholder(offer))


def judge_vintage(vintage: Vintage, drift: Mapping[str, PriceDrift], today: date) -> Judgement:
    """Return what prices of `vintage` say `today`.

    A price dated more than AHEAD_DAYS in the future is never fresh, and moves as one of that age would: one of the two clocks
    is wrong.
    """
    age, terms = (today - vintage.observed_on).days, drift[vintage.drift_class]
    return Judgement(
        factor=terms.estimate_factor(abs(age) if age < -AHEAD_DAYS else max(age, 0)),
        fresh=-AHEAD_DAYS <= age <= terms.fresh_days,
        unranked=_explain_unranked(vintage, age, terms),
    )


def age_price(offer: Offer, drift: Mapping[str, PriceDrift], today: date) -> AgedPrice | None:
    """Return what the price of `offer` is likely to be `today`; None for an unknown price.

    The high end of a spot price is at most what the same machine costs on demand. A doubted fall widens the interval to both
    the price that is doubted and the one before (`quoting/price_falls.py`).
    """
    if offer.rate is None:
        return None
    judged = judge_vintage(get_vintage(offer), drift, today)
    factor = judged.factor
    nano = offer.rate.nano_per_hour
    most = round(nano * factor.high)
    if offer.on_demand_rate is not None:
        most = max(nano, min(most, offer.on_demand_rate.nano_per_hour))
    least = min(round(nano * factor.low), nano)
    if offer.fall is not None and offer.fall.doubted is not None:
        least, most = min(least, offer.fall.doubted.nano_per_hour), max(most, offer.fall.peak.nano_per_hour)
    return AgedPrice(
        age_days=offer.count_age_days(today),
        low=_make_rate(offer.rate, least),
        expected=_make_rate(offer.rate, min(round(nano * factor.expected), most)),
        high=_make_rate(offer.rate, most),
        fresh=judged.fresh,
        unranked=judged.unranked,
    )


def _explain_unranked(vintage: Vintage, age: int, terms: PriceDrift) -> str:
    if vintage.placeholder:
        return "a placeholder, not a price"
    if vintage.drift_class == BID:
        return "the minimum bid, which does not rent a machine by itself"
    if vintage.drift_class == SPOT_PRICE and vintage.count_undated_days() > UNDATED_DAYS:
        return f"an undated copy: seen on a day between {vintage.observed_on.isoformat()} and {vintage.observed_to.isoformat()}"
    if terms.ranked_days is not None and (age > terms.ranked_days or -age > max(terms.ranked_days, AHEAD_DAYS)):
        age_text = f"seen {age} d ago" if age > 0 else f"dated {-age} d ahead"
        return f"{age_text}; a price of this kind is not ranked after {terms.ranked_days} d"
    return ""


def is_placeholder(offer: Offer) -> bool:
    """Return whether the price of `offer` is one that its provider states where it has none."""
    if offer.rate is None or offer.provider not in PLACEHOLDERS:
        return False
    nano, gpus = PLACEHOLDERS[offer.provider]
    return offer.rate.nano_per_hour == nano * offer.gpu_count and gpus.fullmatch(offer.gpu) is not None


def _make_rate(like: Rate, nano: int) -> Rate:
    return Rate(nano_per_hour=max(nano, 1), currency=like.currency)


CONSTANTS = ("start", "growth", "grace_days", "most", "trend_per_day", "trend_days", "fresh_days", "ranked_days")
"""What a drift class needs; the names in `price_drift.csv`."""

MOST_DAYS, MOST_HALF_WIDTH = 36_500, 10
"""The highest values that are read: the days of a century, and a factor of 22,000 each way."""


def read_price_drift(rows: Iterable[Mapping[str, str]]) -> dict[str, PriceDrift]:
    """Return drift class -> its constants, from rows of `price_drift.csv` (drift_class, constant, value, source).

    InputError if a class or one of its constants is missing or no number in its range; only a trend may be negative. An empty
    `ranked_days` means for ever.
    """
    values: dict[str, dict[str, str]] = {}
    for row in rows:
        values.setdefault(row["drift_class"], {})[row["constant"]] = row["value"]
    return {name: _read_terms(name, values.get(name, {})) for name in DRIFT_CLASSES}


def _read_terms(name: str, values: Mapping[str, str]) -> PriceDrift:
    numbers: dict[str, float] = {}
    for constant in CONSTANTS:
        text = values.get(constant)
        field = f"price_drift.csv {name}.{constant}"
        if text is None:
            raise InputError("is missing", field=field, hint="reinstall costguard, or fit it with scripts/fit_price_drift.py")
        if text or constant != "ranked_days":
            try:
                value = float(text)
            except ValueError:
                raise InputError(f"is not a number: {text!r}", field=field, hint="write a number such as 0.034") from None
            most = MOST_DAYS if constant.endswith("_days") else MOST_HALF_WIDTH
            least = -most if constant == "trend_per_day" else 0
            if not least <= value <= most:  # nan is in no range
                raise InputError(f"must be {least} to {most}, not {text}", field=field)
            numbers[constant] = value
    return PriceDrift(
        **{name: numbers[name] for name in CONSTANTS[:6]},
        fresh_days=int(numbers["fresh_days"]),
        ranked_days=int(numbers["ranked_days"]) if "ranked_days" in numbers else None,
    )
