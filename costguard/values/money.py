"""Money and rates as integers of nano-units (no floats), exchange rates, and prepaid balances.

Example: 12 h at $2.49 an hour. `Rate.parse("2.49", "USD")` is 2_490_000_000 nano-USD an hour; over 43_200 s that is
2_490_000_000 * 43_200 / 3_600 = 29_880_000_000 nano-USD = $29.88. Division rounds half to even, once, at the end.

Dollars can be shown in another currency, with the rate and its date.

Example: at "1 USD = 0.92 EUR on 2026-11-01 (ECB)", $1,679.64 is EUR 1545.27. This is for display only: the ledger and the JSON
contract keep each amount in its own currency, and add no amounts of two currencies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from costguard.errors import InputError
from costguard.values.checks import describe_value, require

NANO = 10**9
SECONDS_PER_HOUR = 3600
LARGEST_AMOUNT = Decimal(10**18)
"""More is a slip of the pen, and 1e900000 would be an integer that fills memory."""


@dataclass(frozen=True, slots=True, kw_only=True, order=False)
class Money:
    """An amount: `nano` billionths of one unit of `currency` (ISO 4217). May be negative (a credit)."""

    nano: int
    currency: str = "USD"

    def __post_init__(self) -> None:
        if type(self.nano) is not int:
            raise InputError(f"must be an integer of nano-units, not {describe_value(self.nano)}", field="money")
        if len(self.currency) != 3 or not (self.currency.isascii() and self.currency.isupper()):  # noqa: PLR2004 - ISO 4217 codes have three letters
            raise InputError(f"must be an ISO 4217 code such as USD, not {describe_value(self.currency)}", field="currency")

    @classmethod
    def parse(cls, text: str | int | Decimal, currency: str = "USD", *, field: str = "money") -> Money:
        """Parse a decimal string ("2.49"); floats and more than nine decimals are refused."""
        return cls(nano=_parse_nano(text, field), currency=currency)

    def __add__(self, other: Money) -> Money:
        return Money(nano=self.nano + self._same(other), currency=self.currency)

    def __sub__(self, other: Money) -> Money:
        return Money(nano=self.nano - self._same(other), currency=self.currency)

    def __radd__(self, other: object) -> Money:
        """Add to the zero that `sum` starts from."""
        return self if other == 0 else NotImplemented

    def __neg__(self) -> Money:
        return Money(nano=-self.nano, currency=self.currency)

    def __mul__(self, factor: int | Decimal | Fraction) -> Money:
        """Multiply by an exact number, rounded half to even; a float is refused, as in `parse`."""
        if isinstance(factor, int | Decimal | Fraction):
            return Money(nano=round(self.nano * Fraction(factor)), currency=self.currency)
        return NotImplemented

    __rmul__ = __mul__

    def __float__(self) -> float:
        return self.nano / NANO

    def __str__(self) -> str:
        """Return the amount for people: "$5,185.02", or "EUR 5,185.02" in another currency."""
        sign = "$" if self.currency == USD else f"{self.currency} "
        return f"{'-' * (self.nano < 0)}{sign}{abs(self.to_decimal()):,.2f}"

    def __lt__(self, other: Money) -> bool:
        return self.nano < self._same(other)

    def __le__(self, other: Money) -> bool:
        return self.nano <= self._same(other)

    def to_decimal(self) -> Decimal:
        """Return the exact amount."""
        return Decimal(self.nano).scaleb(-9)

    def format(self, places: int = 2) -> str:
        """Return the amount as a decimal string of `places` decimals, rounded half to even."""
        return f"{self.to_decimal():.{places}f}"

    def _same(self, other: Money) -> int:
        if other.currency != self.currency:
            raise InputError(f"cannot mix {self.currency} with {other.currency}", field="currency")
        return other.nano


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Money per hour of a whole offer (all its GPUs); `nano_per_hour` > 0. An unknown price is None, not a Rate of zero."""

    nano_per_hour: int
    currency: str = "USD"

    def __post_init__(self) -> None:
        if type(self.nano_per_hour) is not int or self.nano_per_hour <= 0:
            raise InputError(
                f"must be more than zero, not {describe_value(self.nano_per_hour)}",
                field="rate",
                hint="leave an unknown price out",
            )

    @classmethod
    def parse(cls, text: str | int | Decimal, currency: str = "USD", *, field: str = "rate") -> Rate:
        """Parse decimal money per hour ("2.49")."""
        return cls(nano_per_hour=_parse_nano(text, field), currency=currency)

    def multiply_seconds(self, seconds: int) -> Money:
        """Return the cost of `seconds` at this rate, rounded half to even to the nano-unit."""
        return Money(nano=divide_half_even(self.nano_per_hour * seconds, SECONDS_PER_HOUR), currency=self.currency)

    def multiply(self, count: int) -> Rate:
        """Return the rate of `count` such offers."""
        return Rate(nano_per_hour=self.nano_per_hour * count, currency=self.currency)

    def format(self, places: int = 4) -> str:
        """Return money per hour as a decimal string of `places` decimals."""
        return f"{Decimal(self.nano_per_hour).scaleb(-9):.{places}f}"


def divide_half_even(numerator: int, denominator: int) -> int:
    """Return numerator / denominator as an integer, ties to even; `denominator` > 0."""
    quotient, remainder = divmod(numerator, denominator)
    twice = 2 * remainder
    return quotient + (twice > denominator or (twice == denominator and quotient % 2 == 1))


def _parse_nano(text: str | int | Decimal, field: str) -> int:
    if isinstance(text, bool) or not isinstance(text, str | int | Decimal):
        raise InputError(f"must be a decimal string, not {describe_value(text)}", field=field, hint='write it as "2.49"')
    try:
        amount = Decimal(text)
        nano = amount.scaleb(9) if abs(amount) < LARGEST_AMOUNT else Decimal("NaN")
        exact = nano.is_finite() and nano == nano.to_integral_value()
    except ArithmeticError:
        exact = False
    if not exact:
        raise InputError(f"is not an amount of money: {describe_value(text)}", field=field, hint="write digits such as 2.49")
    return int(nano)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyInterval:
    """An interval with low <= expected <= high, in one currency."""

    low: Money
    expected: Money
    high: Money

    def __post_init__(self) -> None:
        if not self.low <= self.expected <= self.high:
            raise InputError(
                f"is not in order: {self.low.format()}, {self.expected.format()}, {self.high.format()}", field="money"
            )

    def __str__(self) -> str:
        """Return "$2.53 (1.79 to 3.57)"."""
        return f"{self.expected} ({self.low.to_decimal():,.2f} to {self.high.to_decimal():,.2f})"

    def add(self, other: MoneyInterval) -> MoneyInterval:
        """Add low to low, expected to expected and high to high."""
        return MoneyInterval(low=self.low + other.low, expected=self.expected + other.expected, high=self.high + other.high)

    def __add__(self, other: MoneyInterval) -> MoneyInterval:
        return self.add(other) if isinstance(other, MoneyInterval) else NotImplemented

    def __radd__(self, other: object) -> MoneyInterval:
        """Add to the zero that `sum` starts from."""
        return self if other == 0 else NotImplemented

    def __mul__(self, factor: int | Decimal | Fraction) -> MoneyInterval:
        """Multiply each end by an exact number, each rounded half to even; a negative one swaps the ends."""
        if not isinstance(factor, int | Decimal | Fraction):
            return NotImplemented
        low, high = sorted((self.low * factor, self.high * factor))
        return MoneyInterval(low=low, expected=self.expected * factor, high=high)

    __rmul__ = __mul__

    def multiply(self, count: int) -> MoneyInterval:
        """Return `count` times the interval."""
        return MoneyInterval(low=self.low * count, expected=self.expected * count, high=self.high * count)

    def format_ends(self, places: int = 2) -> dict[str, str]:
        """Return low, expected and high as decimal strings."""
        return {"low": self.low.format(places), "expected": self.expected.format(places), "high": self.high.format(places)}


def sum_intervals(parts: Iterable[MoneyInterval], currency: str = "USD") -> MoneyInterval:
    """Return the sum of `parts`, zero for none. All must be in `currency`."""
    low = expected = high = 0
    for part in parts:
        if part.low.currency != currency:
            raise InputError(f"cannot mix {currency} with {part.low.currency}", field="currency")
        low, expected, high = low + part.low.nano, expected + part.expected.nano, high + part.high.nano
    return _build_interval(low, expected, high, currency)


@lru_cache(maxsize=32)
def make_zero_interval(currency: str = "USD") -> MoneyInterval:
    """Return an interval of zeros."""
    return _build_interval(0, 0, 0, currency)


def _build_interval(low: int, expected: int, high: int, currency: str) -> MoneyInterval:
    return MoneyInterval(
        low=Money(nano=low, currency=currency),
        expected=Money(nano=expected, currency=currency),
        high=Money(nano=high, currency=currency),
    )


EXCHANGE_RATE = re.compile(
    r"1 USD = (?P<rate>\d{1,9}(?:\.\d{1,9})?) (?P<currency>[A-Z]{3}) on (?P<on>\d{4}-\d\d-\d\d)"
    r"(?: \((?P<source>[^()]{1,80})\))?",
    re.ASCII,
)
EXCHANGE_EXAMPLE = "1 USD = 0.92 EUR on 2026-11-01 (ECB)"
USD = "USD"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRate:
    """The price of one US dollar in `currency` on a day, in billionths of its unit (`nano`).

    `source`: who published it; "" if not stated.
    """

    currency: str
    nano: int
    on: date
    source: str = ""

    def convert(self, dollars: Money) -> Money:
        """Convert `dollars` to this currency, rounded half to even to the nano-unit."""
        if dollars.currency != USD:
            raise InputError(f"cannot mix USD with {dollars.currency}", field="currency")
        exact = Fraction(dollars.nano * self.nano, NANO)
        return Money(nano=divide_half_even(exact.numerator, exact.denominator), currency=self.currency)

    def convert_interval(self, dollars: MoneyInterval) -> MoneyInterval:
        """Convert low, expected and high."""
        return MoneyInterval(
            low=self.convert(dollars.low), expected=self.convert(dollars.expected), high=self.convert(dollars.high)
        )

    def convert_to_dollars(self, amount: Money) -> Money:
        """Convert an amount of this currency to dollars, rounded half to even to the nano-unit."""
        if amount.currency != self.currency:
            raise InputError(f"cannot mix {self.currency} with {amount.currency}", field="currency")
        return Money(nano=divide_half_even(amount.nano * NANO, self.nano))

    @property
    def label(self) -> str:
        """Return a label of the rate: `at 0.92 EUR to the dollar on 2026-11-01 (ECB)`."""
        rate = f"{Money(nano=self.nano, currency=self.currency).to_decimal().normalize():f}"
        return f"at {rate} {self.currency} to the dollar on {self.on}" + (f" ({self.source})" if self.source else "")


def parse_exchange_rate(text: str, field: str) -> ExchangeRate:
    """Parse a rate such as EXCHANGE_EXAMPLE; raise InputError for `field` if `text` states none."""
    match = EXCHANGE_RATE.fullmatch(text.strip())
    hint = f'write "{EXCHANGE_EXAMPLE}"'
    if match is None:
        raise InputError(f"is not a rate of a day: {describe_value(text)}", field=field, hint=hint)
    try:
        on = date.fromisoformat(match["on"])
    except ValueError:
        raise InputError(f"has no date: {describe_value(match['on'])}", field=field, hint=hint) from None
    worth = Money.parse(match["rate"], match["currency"], field=field)
    require(worth.nano > 0, field, "is a rate of zero", hint)
    require(match["currency"] != USD, field, "is a rate for US dollars", "name another currency")
    return ExchangeRate(currency=match["currency"], nano=worth.nano, on=on, source=match["source"] or "")


def find_exchange_rate(rates: Sequence[ExchangeRate], currency: str, at: datetime) -> ExchangeRate | None:
    """Return the last rate of `currency` dated at or before `at`, else its first one; None: there is none."""
    own = sorted((rate for rate in rates if rate.currency == currency), key=lambda rate: rate.on)
    past_rates = [rate for rate in own if rate.on <= at.astimezone(UTC).date()]
    return past_rates[-1] if past_rates else next(iter(own), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepaidBalance:
    """The balance of a prepaid account at `at`, as its provider states it.

    `amount` None: unknown, for the reason `why`; it may be negative. `burn`: the hourly charge that the provider states.
    `burn_limit`: the highest hourly charge that it allows. None: not stated.
    """

    provider: str
    account: str
    at: datetime
    amount: Money | None
    burn: Rate | None = None
    burn_limit: Rate | None = None
    why: str = ""
