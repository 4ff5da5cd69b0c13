"""Costs that a person enters by hand, because no listing shows them: Colab, storage, power, egress.

Example: "S3 checkpoints", $41.20 in October 2026, of vision. It is billed at noon (UTC) of the first day of its month, which is
in that month in every time zone. A correction is an entry of its own, which holds the difference: "E3 is $39.10" is an entry
of -$2.10 that refers to E3. So entries are only ever added up.

What a month leaves unused of an agreement's commitment is an entry, too, which the watchdog writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.metering.charge_item import ChargeItem
from costguard.metering.meter import UNIT, PriceRange
from costguard.metering.span import PICO
from costguard.metering.spending import BilledResource, Spending
from costguard.values.calendar import find_month_start
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import ENTERED, Attribution, ResourceKey

BY_HAND = "by-hand"
"""The provider of an entry that names none, and the account of every entry."""
AGREEMENT = "agreement "
"""How `who` begins where no person entered it: what an agreement's commitment costs beyond the month's usage."""
BILLED_AT, BILLED_FOR = timedelta(hours=12), timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEntry:
    """An entry. `number`: E3 is 3; 0: not stored yet. `month`: since 1970. `money`: of a correction, the difference.

    `corrects`: the number of the entry that it corrects, 0 for none: what, month, owner and the rest are those of that one.
    `provider`: "aws", or with an account "aws/123456789012".
    """

    number: int = 0
    corrects: int = 0
    what: str
    month: int
    money: Money
    who: str
    entered_at: datetime
    provider: str = BY_HAND
    owner: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def start(self) -> datetime:
        """Return when it is billed."""
        return find_month_start(self.month) + BILLED_AT

    @property
    def attribution(self) -> Attribution:
        """Return whose it is."""
        provider, _, account = self.provider.partition("/")
        return Attribution(provider, account or BY_HAND, "", ENTERED, owner=self.owner, labels=self.labels)

    @property
    def bearer(self) -> BilledResource:
        """Return the entry that it is, or corrects, as what it is billed to."""
        of = self.attribution
        key = ResourceKey(of.provider, of.account, "", f"E{self.corrects or self.number}")
        return BilledResource(key=key, name=self.what, labels=self.labels)

    def to_spending(self) -> Spending:
        """Convert to a sum of the ledger."""
        money = MoneyInterval(low=self.money, expected=self.money, high=self.money)
        return Spending(attribution=self.attribution, charge=ENTERED, money=money, us=0)

    def to_item(self) -> ChargeItem:
        """Convert to a charge item: one unit, or a unit less, at the amount."""
        amount, sign = abs(self.money.nano), -1 if self.money.nano < 0 else 1
        return ChargeItem(
            key=self.bearer.key,
            attribution=self.attribution,
            charge=ENTERED,
            part="",
            unit=UNIT,
            price=PriceRange.exactly(amount, self.money.currency),
            source=f"entered by {self.who} on {self.entered_at:%Y-%m-%d %H:%M} UTC",
            start=self.start,
            end=self.start + BILLED_FOR,
            money=self.to_spending().money,
            quantity_pico=sign * PICO,
            us=0,
            name=self.what,
            tags=self.labels,
            corrected=bool(self.corrects),
        )
