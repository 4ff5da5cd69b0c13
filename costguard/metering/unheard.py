"""What may have billed since anybody looked: spans that stand beside the open ones, worth nothing at least and at best.

Example: a machine at $2.99 an hour was off when its scope was last listed completely, at 12:00. Nothing has been heard since.
At 13:00 it is probably still off, and may have run all the time: MAYBE from 12:00 to 13:00, $0.00 to $2.99. Should the scope
answer now that it runs, and since when, that is what will be written; should it still be off, and its provider states its
starts, nothing will.

So what is said meanwhile is never less than what any answer makes of it (docs/decisions/0014): a machine may be running or off,
each line at what it costs there, and a spot price may have risen to the dearest of the market.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from costguard.metering.billing import BillingRule, bound_unknown_price, list_meters
from costguard.metering.meter import COMPUTE, Line, Meter, PriceRange
from costguard.metering.observation import Observation
from costguard.metering.scope_state import KnownResource
from costguard.metering.span import MAYBE, Span
from costguard.metering.state_transitions import DOWN_STATES, ObservationWindow
from costguard.values.resource import ENDED, INSTANCE, RUNNING, SPOT, STOPPED

NOT_LOOKED_AT = "not looked at"


def find_unobserved_usage(
    known: KnownResource, seen_at: datetime, as_of: datetime, *, rule: BillingRule, ceilings: Mapping[str, int], gap: timedelta
) -> tuple[Span, ...]:
    """What may have billed, beside what is open, from the last look at `seen_at` to `as_of`; mostly nothing.

    `gap`: until the look is older than this, what was off counts as off, and a price as it was. `known` needs its `settled`.
    """
    window = ObservationWindow(since=seen_at - timedelta(seconds=rule.lag_s), at=as_of, gap=gap)
    seen = known.observation
    if not window.wide or seen.kind != INSTANCE or seen.state == ENDED:
        return ()
    return tuple(_yield_unobserved_spans(known, window, _find_dearest_meters(seen, rule, ceilings)))


def needs_price_ceilings(seen: Observation, rule: BillingRule) -> bool:
    """Whether what it may cost is bounded by the market alone."""
    running = list_meters(replace(seen, state=RUNNING), rule, {})
    return seen.tier == SPOT or not all(meter.price.known for meter in running.values())


def _find_dearest_meters(seen: Observation, rule: BillingRule, ceilings: Mapping[str, int]) -> dict[Line, Meter]:
    """The most that each line may bill in any state that the machine may have come to."""
    ends = rule.restarts == "never" and seen.state in DOWN_STATES
    found: dict[Line, Meter] = {}
    for state in (STOPPED,) if ends else (STOPPED, RUNNING):
        for line, meter in list_meters(replace(seen, state=state), rule, ceilings).items():
            if line not in found or _compute_most(meter) > _compute_most(found[line]):
                found[line] = meter
    computing = found.get((COMPUTE, ""))
    if computing and seen.tier == SPOT:
        moved = max(computing.price.high, bound_unknown_price(seen, ceilings).high)
        found[computing.line] = replace(computing, price=replace(computing.price, high=moved))
    return found


def _yield_unobserved_spans(known: KnownResource, window: ObservationWindow, dearest: Mapping[Line, Meter]) -> Iterator[Span]:
    for line, meter in sorted(dearest.items()):
        open_now = known.open.get(line)
        more = _subtract_meter(meter, open_now.meter) if open_now else meter
        floor = open_now.start if open_now else known.settled.get(line)
        start = window.begin if floor is None else max(window.begin, floor)
        if more and start < window.at:
            yield Span(
                key=known.observation.key,
                attribution=known.observation.attribution,
                meter=more,
                start=start,
                anchor=open_now.anchor if open_now else start,
                end=window.at,
                presence=MAYBE,
                why=NOT_LOOKED_AT,
                ended_by=NOT_LOOKED_AT,
            )


def _subtract_meter(meter: Meter, open_now: Meter) -> Meter | None:
    """What `meter` costs at most beyond `open_now`; None where that is nothing. All of it where the two do not compare."""
    mine, other = meter.price, open_now.price
    if (meter.unit, meter.quantum_s, mine.currency) != (open_now.unit, open_now.quantum_s, other.currency):
        return meter
    more = _compute_most(meter) - _compute_most(open_now)
    if more <= 0:
        return None
    high = -(-more // max(1, meter.quantity))
    return replace(meter, minimum_s=0, price=PriceRange(0, 0, high, mine.currency, known=mine.known))


def _compute_most(meter: Meter) -> int:
    return meter.price.high * meter.quantity
