"""Traffic, which Vast bills in every state: counted where somebody has said in what unit.

One public exporter reads `inet_up_billed` and `inet_down_billed` as GB, another as MB, and the spec has neither field (vast.md,
section 3, 2026-11-21). A thousandfold mistake is no estimate, so without the setting `traffic_unit` nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from costguard.metering.observation import LARGEST_MB, TrafficCounter
from costguard_vast.numbers import parse_finite, parse_positive, to_nano
from costguard_vast.wire import Instance

MB_PER = {"GB": 1000, "MB": 1}
UNCOUNTED = "traffic is stated without a unit and not counted: traffic_unit says whether inet_*_billed is in GB or MB"

Say = Callable[[str], None]


def list_counters(one: Instance, unit: str, say: Say) -> tuple[TrafficCounter, ...]:
    """What went in and out since the contract began; `unit` "": nobody says, and nothing is counted."""
    stated = (("traffic down", one.inet_down_billed, one.inet_down_cost), ("traffic up", one.inet_up_billed, one.inet_up_cost))
    used = [(name, amount, cost) for name, raw, cost in stated if (amount := parse_finite(raw)) is not None and amount >= 0]
    if used and not unit:
        say(UNCOUNTED)
        return ()
    return tuple(found for name, amount, cost in used if (found := _make_counter(name, amount * MB_PER[unit], cost, say)))


def _make_counter(name: str, mb: Decimal, cost: Decimal | None, say: Say) -> TrafficCounter | None:
    if mb > LARGEST_MB:
        say(f"{name} is {mb:.3g} MB, which is not believed")
        return None
    price = parse_positive(cost)
    return TrafficCounter(name, int(mb), to_nano(price) if price else None)
