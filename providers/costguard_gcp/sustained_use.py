"""Google's discount for sustained use: machines of some families cost less with each quarter of the month that they run.

Example: an n1-standard-8 at $0.38 an hour that runs since before November costs $0.38 until November 8, then $0.304, from
November 16 on $0.228, from November 23 on $0.152: $0.266 on average, 70 %.
"""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction

from costguard.metering.meter import GB_MONTH_PACIFIC, find_billing_month
from costguard.metering.observation import Price, price_sustained_use
from costguard.values.instant import from_micros, to_micros
from costguard_gcp.machine_types import MachineShape
from costguard_gcp.price_list import ON_DEMAND

_UP_TO_30, _UP_TO_20 = (
    tuple(Fraction(part) for part in parts) for parts in (("1", "0.8", "0.6", "0.4"), ("1", "0.8678", "0.733", "0.6"))
)
SUSTAINED_USE = {
    **dict.fromkeys(("n1", "n1 custom"), _UP_TO_30),
    **dict.fromkeys(("n2", "n2 custom", "n2d", "n2d custom", "c2"), _UP_TO_20),
}
"""Family -> the share of the list price of an hour in each quarter, for cores, memory and attached GPUs alike.

N1 and its GPUs have up to 30 %; A2, A3, A4, G2 and G4 have none (gcp.md, section 3). The steps, and the 20 % of N2, N2D and C2:
Google's documentation (cloud.google.com/compute/docs/sustained-use-discounts), from memory, 2026-11.
"""


def apply_use_discount(
    price: Price, machine: MachineShape | None, tier: str, started: datetime | None, at: datetime
) -> tuple[Price, ...]:
    """Return the prices of a machine that runs since `started`, in the parts of the month of `at`. `tier`: of the price list.

    Spot, Flex-start and reservations have no such discount.
    """
    shares = SUSTAINED_USE.get(machine.family, ()) if machine and tier == ON_DEMAND else ()
    if not shares:
        return (price,)
    _, start_us, length_us = find_billing_month(GB_MONTH_PACIFIC, to_micros(at))
    return price_sustained_use(price, shares, (started, at), (from_micros(start_us), from_micros(start_us + length_us)))
