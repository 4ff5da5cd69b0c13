"""Buy or rent: after how many hours of use a bought machine has paid for itself.

    hours = (price - resale) / (rent - power - upkeep, per hour)

Example: a $1,600 RTX 4090 against $0.40 an hour is 4000 h. With 450 W at $0.30 per kWh an hour of the own machine costs $0.135,
and the hours become 6038; sold for $600 in the end, 3774. At 40 hours a week that is 94 weeks, 21.8 months. If power and upkeep
cost as much as the rent, buying never pays back. A machine that lasts 3 years reaches 6038 hours at 39 hours a week.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from costguard.quoting.offer import Offer
from costguard.quoting.own_hardware import YEARS
from costguard.values.checks import require, require_number
from costguard.values.gpu import Gpu
from costguard.values.interval import Interval
from costguard.values.money import NANO, Money, Rate

WEEKS_PER_MONTH = Fraction(52, 12)
"""4.33: a year of 52 weeks over 12 months, as S1's exercise counts."""
WATTS_PER_KILOWATT = 1000
HOURS_PER_WEEK = 168


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The `hours` of use until buying costs no more than renting; None: never. `plain_hours`: price / rent only.

    `weeks`, `months`: the same at `hours_per_week`; None if that was not stated, or never.
    """

    hours: float | None
    plain_hours: float
    weeks: float | None = None
    months: float | None = None
    explain: tuple[str, ...] = ()

    @property
    def never(self) -> bool:
        """Return whether the machine never pays for itself."""
        return self.hours is None


def compute_break_even(
    price: Money,
    rent: Rate,
    *,
    power_w: float | None = None,
    usd_per_kwh: str | None = None,
    resale: Money | None = None,
    upkeep: Rate | None = None,
    hours_per_week: float | None = None,
) -> BreakEven:
    """Return after how many hours of use `price` is saved in rent.

    `power_w` is drawn at `usd_per_kwh` (a decimal string) while in use, and counts only if both are stated. `upkeep`: rack,
    host and repair per hour of use. `resale` is subtracted from the price.
    """
    _check_inputs(price, rent, resale, hours_per_week)
    own = _compute_own_hourly(power_w, usd_per_kwh, rent.currency, upkeep)
    outlay = Fraction(max(0, price.nano - (resale.nano if resale else 0)))
    saved = rent.nano_per_hour - own
    hours = outlay / saved if saved > 0 else None
    weeks = None if hours is None or not hours_per_week else hours / Fraction(hours_per_week)
    net = f"({price.format()} - {resale.format()} resale)" if resale else price.format()
    return BreakEven(
        hours=None if hours is None else float(hours),
        plain_hours=float(Fraction(price.nano, rent.nano_per_hour)),
        weeks=None if weeks is None else float(weeks),
        months=None if weeks is None else float(weeks / WEEKS_PER_MONTH),
        explain=_explain_break_even(net, rent, own, hours, weeks),
    )


def _check_inputs(price: Money, rent: Rate, resale: Money | None, hours_per_week: float | None) -> None:
    require(price.nano >= 0, "price", "is below zero", "write what the machine costs")
    for other in (rent, resale):
        require(
            other is None or other.currency == price.currency,
            "currency",
            "price, rent and resale are in different currencies",
            "write all in one currency",
        )
    if hours_per_week is not None:
        require_number(hours_per_week, "hours_per_week", least=0.1, most=HOURS_PER_WEEK)


def _compute_own_hourly(power_w: float | None, per_kwh: str | None, currency: str, upkeep: Rate | None) -> Fraction:
    """Return the nano-units that the bought machine costs per hour of use."""
    other = Fraction(upkeep.nano_per_hour) if upkeep else Fraction(0)
    if power_w is None or per_kwh is None:
        return other
    kilowatts = Fraction(require_number(power_w, "power_w", most=1e6)) / WATTS_PER_KILOWATT
    return other + kilowatts * Money.parse(per_kwh, currency, field="usd_per_kwh").nano


def _explain_break_even(
    outlay: str, rent: Rate, own: Fraction, hours: Fraction | None, weeks: Fraction | None
) -> tuple[str, ...]:
    own_text = f"{float(own / NANO):.4f}"
    if hours is None:
        return (f"never: an hour on your own costs {own_text}, a rented hour {rent.format()} {rent.currency}",)
    saved = f"({rent.format()} rent - {own_text} on your own)" if own else f"{rent.format()} rent"
    lines = [f"{outlay} {rent.currency} / {saved} an hour = {float(hours):.0f} h of use"]
    if weeks is not None:
        lines.append(f"{float(hours):.0f} h = {float(weeks):.1f} weeks = {float(weeks / WEEKS_PER_MONTH):.1f} months")
    return tuple(lines)


USD_PER_KWH = "0.15"
"""Electricity where nobody stated a price: near the 2026 average for firms in the United States and half of Germany's. An
assumption, named in every answer that uses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPurchase:
    """A job on the bought machine and on rented ones. `hours`: of one run on the bought machine.

    `own_usd`: the electricity of one run. `rented_as`, `rented_usd`: the cheapest option that lasts, on any hardware. `runs`:
    after which the machine has paid for itself; None: never.
    """

    hours: Interval
    own_usd: Money
    rented_as: str
    rented_usd: Money
    runs: float | None


def compute_job_purchase(
    price: Money, hours: Interval, *, watts: float | None, usd_per_kwh: str, rented_as: str, rented_usd: Money
) -> JobPurchase:
    """Return after how many runs of `hours` a machine of `price` (less its resale) is cheaper than renting for each run."""
    own = _compute_own_hourly(watts, usd_per_kwh, price.currency, None) * Fraction(hours.expected)
    saved = rented_usd.nano - own
    return JobPurchase(
        hours=hours,
        own_usd=Money(nano=round(own), currency=price.currency),
        rented_as=rented_as,
        rented_usd=rented_usd,
        runs=float(price.nano / saved) if saved > 0 else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseAnswer:
    """The answer to "buy or rent?", with its assumptions. `plain`: price over rent. `full`: with power and resale.

    `rented_as`: the offer that the rent is taken from. `years`: of use until the machine is worth its resale alone. `job`: the
    job that was given; None: none was.
    """

    gpu: Gpu | None
    count: int
    price: Money
    rent: Rate
    power_w: float | None
    usd_per_kwh: str
    resale: Money | None
    hours_week: float | None
    plain: BreakEven
    full: BreakEven
    rented_as: Offer | None = None
    years: float = YEARS
    job: JobPurchase | None = None
    warnings: tuple[str, ...] = ()

    @property
    def weekly_hours_least(self) -> float | None:
        """Return the hours of use a week from which buying pays before the machine is worn out; None: no week has them."""
        hours = self.full.hours
        weekly = None if hours is None else hours / (self.years * 52)
        return None if weekly is None or weekly > HOURS_PER_WEEK else weekly
