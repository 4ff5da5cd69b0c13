"""Plans that sell access rather than machines: Google Colab. Shown beside a quote as what they are, never ranked.

Example: 8 hours on an L4 at 2.1 to 4.8 compute units an hour take 17 to 38 of the 100 units a month of Colab Pro,
if an L4 is given at all; a session that ends after 12 hours ends the run with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costguard.values.interval import Interval
from costguard.values.money import Money


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A plan and one kind of GPU it may give. `price`: of `units` compute units; a session lasts `session_hours` at most."""

    provider: str
    plan: str
    gpu: str
    price: Money
    units: int
    units_per_hour: Interval
    session_hours: float
    source: str
    observed_on: str

    def compute_units(self, hours: Interval) -> Interval:
        """Compute units a run of `hours` takes."""
        return self.units_per_hour.multiply(hours)


def read_subscriptions(rows: Iterable[Mapping[str, str]]) -> tuple[Subscription, ...]:
    """Every plan and GPU of `subscriptions.csv`, in its order."""
    return tuple(
        Subscription(
            provider=row["provider"],
            plan=row["plan"],
            gpu=row["gpu"],
            price=Money.parse(row["price_usd"], field=f"subscriptions.csv {row['plan']}"),
            units=int(row["units"]),
            units_per_hour=Interval(*(float(row[f"units_per_hour_{end}"]) for end in ("low", "expected", "high"))),
            session_hours=float(row["session_hours"]),
            source=row["source"],
            observed_on=row["observed_on"],
        )
        for row in rows
    )
