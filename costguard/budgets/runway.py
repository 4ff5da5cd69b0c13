"""How long a prepaid balance lasts, and which machines lose data when it is used up.

Example: $41.20 and four pods that cost $11.96 an hour: 3.44 h. Less than six hours cause an immediate warning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from costguard.metering.burn import compute_hourly_burn
from costguard.metering.spending import LiveResource
from costguard.values.instant import HOUR_US, MICROSECOND
from costguard.values.money import Money, PrepaidBalance
from costguard.values.resource import ResourceKey

RUNWAY_MIN = timedelta(hours=6)
"""A prepaid balance that lasts shorter is warned about at once."""
RUNWAY_MAX = timedelta(days=36500)
"""A runway that is longer is none that anybody must know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runway:
    """How long a prepaid balance lasts. `left` None: not known, or no costs, as stated in `why`.

    `loses`: the machines that permanently lose data when it is used up, beyond what a stop would lose.
    """

    balance: PrepaidBalance
    hourly: Money | None
    left: timedelta | None
    why: str
    loses: tuple[tuple[ResourceKey, str, tuple[str, ...]], ...] = ()

    @property
    def short(self) -> bool:
        """Return whether to warn at once."""
        return self.left is not None and self.left < RUNWAY_MIN


def compute_runway(balance: PrepaidBalance, live: Iterable[LiveResource], now: datetime) -> Runway:
    """Return how long `balance` lasts at the burn of its account: as its provider states it, else at our prices."""
    account = (balance.provider, balance.account)
    machines = [one for one in live if one.observation.key[:2] == account and one.absent_at is None]
    loses = tuple((one.observation.key, one.observation.name, lost) for one in machines if (lost := _list_lost_at_zero(one)))
    if balance.amount is None:
        return Runway(balance=balance, hourly=None, left=None, why=balance.why or "the balance is not known", loses=loses)
    currency = balance.amount.currency
    burns = [b for one in machines for b in compute_hourly_burn(one, now) if b.currency == currency]
    is_stated = balance.burn is not None and balance.burn.currency == currency
    nano = balance.burn.nano_per_hour if balance.burn and is_stated else sum(b.stated.nano for b in burns)
    hourly = Money(nano=nano, currency=currency)
    unpriced = not is_stated and any(b.unknown or b.guessed for b in burns)
    why = "part of the burn is at estimated prices" if unpriced else ""
    if balance.amount.nano <= 0:
        return Runway(balance=balance, hourly=hourly, left=timedelta(), why="it is spent", loses=loses)
    if not nano:
        return Runway(balance=balance, hourly=hourly, left=None, why=why or "nothing burns", loses=loses)
    hours = Fraction(balance.amount.nano, nano) - Fraction((now - balance.at) // MICROSECOND, HOUR_US)
    left = min(max(hours, Fraction(0)), Fraction(RUNWAY_MAX // timedelta(hours=1)))
    return Runway(balance=balance, hourly=hourly, left=timedelta(hours=float(left)), why=why, loses=loses)


def _list_lost_at_zero(live: LiveResource) -> tuple[str, ...]:
    """Return what a termination would lose that a stop would not; nothing for data stored elsewhere."""
    handling = live.observation.handling
    return tuple(lost for lost in handling.terminate_loses if lost not in handling.stop_loses)
