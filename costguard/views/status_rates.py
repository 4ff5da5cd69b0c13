"""The money an hour of one resource in the status document: what is expected, between which bounds, and how that is known.

Example: an m5.large whose price nobody states has `usd_per_hour` "0.0960", an interval from "0.0528" to "0.1200", and the step
"machine-rate". What is unpriced has no expected figure, and `usd_per_hour_bounds` from "0.0000" to its ceiling.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from costguard.metering.meter import COMPUTE
from costguard.metering.observation import AGREED, LEARNED, UNPRICED, find_price_basis
from costguard.reporting.status import FleetStatus, ResourceBurn
from costguard.values.text_format import RATE_PLACES, format_exact

OWN_PRICE = re.compile(r"(.*); list .*")
"""The source of a price without what its provider lists."""
NAMED_MAX = 5


def build_unpriced_data(status: FleetStatus) -> dict[str, object]:
    """Return how many resources are unpriced, and what they cost at most in dollars an hour."""
    count = sum(one.get_burn().unknown for one in status.resources)
    return {"resources": count, "usd_per_hour_at_most": format_exact(status.usd.burn.unstated, RATE_PLACES)}


def build_price_data(one: ResourceBurn) -> dict[str, object] | None:
    """Return step, basis, source and day of the price of computing; None if the resource bills none."""
    computing = next((span for span in one.live.open if span.meter.charge == COMPUTE), None)
    if computing is None:
        return None
    prices = one.live.observation.prices
    estimate = prices[-1].estimate if prices else None
    price = computing.meter.price
    step = UNPRICED if price.unpriced else estimate.step if estimate else "stated" if price.known else "unknown"
    on = estimate.observed_on.isoformat() if estimate and estimate.observed_on else None
    basis = find_price_basis(computing.meter.source)
    return {"step": step, "basis": basis, "source": computing.meter.source, "observed_on": on}


def list_own_price_notes(status: FleetStatus) -> Iterator[str]:
    """Yield a sentence for each price that is not the listed one, as its source states it, with its machines."""
    machines = defaultdict[str, list[str]](list)
    for one in status.resources:
        for span in one.live.open:
            if span.meter.charge == COMPUTE and find_price_basis(span.meter.source) in (AGREED, LEARNED):
                machines[OWN_PRICE.sub(r"\1", span.meter.source)].append(
                    one.live.observation.name or one.live.observation.key.id
                )
    for source, names in sorted(machines.items()):
        yield f"{source}: the price of {', '.join(sorted(names)[:NAMED_MAX])}{' ...' if len(names) > NAMED_MAX else ''}."


def build_rate_interval(one: ResourceBurn) -> dict[str, str] | None:
    """Return low, expected and high dollars an hour; None if nothing is expected, or a part has no bound."""
    expected, high = format_stated_rate(one), format_rate_bound(one)
    if expected is None or high is None:
        return None
    return {"low": format_exact(one.get_burn().bounds.low, RATE_PLACES), "expected": expected, "high": high}


def format_stated_rate(one: ResourceBurn) -> str | None:
    """Return the expected dollars per hour as text.

    None: the price is unknown or in another currency, or it is unknown whether the resource still exists.
    """
    burn = one.get_burn()
    elsewhere = any(other.currency != "USD" for other in one.burns) and not burn.bounds.high.nano
    doubtful = burn.unknown or elsewhere or one.unpriced or (one.absent and burn.bounds.high.nano)
    return None if doubtful else format_exact(burn.stated, RATE_PLACES)


def format_rate_bound(one: ResourceBurn) -> str | None:
    """Return the upper bound of dollars per hour; None: there is no bound."""
    return None if one.live.not_counted else format_exact(one.get_burn().bounds.high, RATE_PLACES)
