"""Dollars as people want to read them: in another currency, at a rate of a day that is said with it.

Example: at "1 USD = 0.92 EUR on 2026-11-01 (ECB)", $1,679.64 is EUR 1545.27. It is a way of showing: the ledger and the JSON
contract keep each amount in its own currency, and amounts of two currencies are never added.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction

from costguard.errors import InputError
from costguard.values.checks import describe_value, require
from costguard.values.money import NANO, Money, MoneyInterval, divide_half_even

EXCHANGE_RATE = re.compile(
    r"1 USD = (?P<rate>\d{1,9}(?:\.\d{1,9})?) (?P<currency>[A-Z]{3}) on (?P<on>\d{4}-\d\d-\d\d)"
    r"(?: \((?P<source>[^()]{1,80})\))?",
    re.ASCII,
)
EXCHANGE_EXAMPLE = "1 USD = 0.92 EUR on 2026-11-01 (ECB)"
USD = "USD"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRate:
    """What a dollar was worth in `currency` on a day. `nano`: billionths of a unit of it. `source`: who says so, "" nobody."""

    currency: str
    nano: int
    on: date
    source: str = ""

    def convert(self, dollars: Money) -> Money:
        """`dollars` in this currency, rounded half to even to the nano-unit."""
        if dollars.currency != USD:
            raise InputError(f"cannot mix USD with {dollars.currency}", field="currency")
        exact = Fraction(dollars.nano * self.nano, NANO)
        return Money(nano=divide_half_even(exact.numerator, exact.denominator), currency=self.currency)

    def convert_interval(self, dollars: MoneyInterval) -> MoneyInterval:
        """The same, end by end."""
        return MoneyInterval(
            low=self.convert(dollars.low), expected=self.convert(dollars.expected), high=self.convert(dollars.high)
        )

    @property
    def label(self) -> str:
        """`at 0.92 EUR to the dollar on 2026-11-01 (ECB)`."""
        rate = f"{Money(nano=self.nano, currency=self.currency).to_decimal().normalize():f}"
        return f"at {rate} {self.currency} to the dollar on {self.on}" + (f" ({self.source})" if self.source else "")


def parse_exchange_rate(text: str, field: str) -> ExchangeRate:
    """The rate that `text` states; InputError for `field` where it states none."""
    found = EXCHANGE_RATE.fullmatch(text.strip())
    hint = f'write "{EXCHANGE_EXAMPLE}"'
    if found is None:
        raise InputError(f"is no rate of a day: {describe_value(text)}", field=field, hint=hint)
    try:
        on = date.fromisoformat(found["on"])
    except ValueError:
        raise InputError(f"names no day: {describe_value(found['on'])}", field=field, hint=hint) from None
    worth = Money.parse(found["rate"], found["currency"], field=field)
    require(worth.nano > 0, field, "is worth nothing", hint)
    require(found["currency"] != USD, field, "is of dollars themselves", "name another currency")
    return ExchangeRate(currency=found["currency"], nano=worth.nano, on=on, source=found["source"] or "")


def find_exchange_rate(rates: Sequence[ExchangeRate], currency: str, at: datetime) -> ExchangeRate | None:
    """The last of `rates` of `currency` that was known at `at`; the first one where all are later. None: there is none."""
    own = sorted((rate for rate in rates if rate.currency == currency), key=lambda rate: rate.on)
    known = [rate for rate in own if rate.on <= at.astimezone(UTC).date()]
    return known[-1] if known else next(iter(own), None)
