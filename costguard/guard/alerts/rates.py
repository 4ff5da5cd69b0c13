"""The money an hour of a machine in an alert, where its provider does not state a price.

Example: an m5.large whose price nobody states is "about $0.10 (an estimate: $0.05 to $0.12)"; a machine of which nothing is
known is "unpriced, at most $3.44".

Neither is a rate that a condition or an act could count with: see `policy_evaluation.compute_burn_rate`.
"""

from __future__ import annotations

from datetime import datetime

from costguard.guard.alerts.alert import PRICE_NOT_KNOWN
from costguard.metering.burn import HourlyBurn, compute_hourly_burn
from costguard.metering.spending import LiveResource
from costguard.values.text_format import RATE_PLACES, get_currency_sign

PLACES = 2
"""Decimals of an amount in an alert."""


def describe_hourly_cost(live: LiveResource, now: datetime) -> str:
    """Return what `live` costs an hour at `now`, with its disks, as `costguard status` counts it, in each currency that bills.

    It is the stated rate, the estimate with its bounds, or a bound. Where a part of it is estimated and a part is unpriced, the
    estimate is told, and its high end covers both. A machine that listings lack bills nothing.
    """
    burns = compute_hourly_burn(live, now) if live.absent_at is None else ()
    text = " and ".join(_describe_burn(one) for one in burns if one.bounds.high.nano)
    return text or (PRICE_NOT_KNOWN if live.not_counted else "nothing")


def _describe_burn(burn: HourlyBurn) -> str:
    """Return the burn of one currency in words."""
    sign, most = get_currency_sign(burn.currency), burn.bounds.high.format(PLACES)
    if not burn.guessed and not burn.unknown:
        return f"{sign}{burn.stated.format(RATE_PLACES)}"
    if not burn.guessed:
        return f"unpriced, at most {sign}{most}"
    bounds = f"{sign}{burn.bounds.low.format(PLACES)} to {sign}{most}"
    return f"about {sign}{burn.stated.format(PLACES)} (an estimate: {bounds})"
