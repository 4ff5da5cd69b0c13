"""What may be wrong with a listing, and when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from costguard.metering.inventory import Complete, Failed, Inventory, Partial
from costguard.metering.observation import Observation

DOWN, PARTIAL, EMPTY, STALE, HIDES = "down", "partial", "empty", "stale", "hides"
LISTING_FAULTS = {
    DOWN: "it cannot be asked at all",
    PARTIAL: "its second page is lost, and it says so",
    EMPTY: "it answers 200 with an empty list",
    STALE: "it answers from a cache, as it was some polls ago",
    HIDES: "it leaves out one machine, and does not say so",
}


class ListingFault(NamedTuple):
    """`what` (of LISTING_FAULTS) from `start` on and before `end`. `polls`: of a stale one; `name`: of one that hides."""

    start: datetime
    end: datetime
    what: str
    polls: int = 0
    name: str = ""


def apply_listing_faults(
    items: tuple[Observation, ...], faults: Sequence[ListingFault], past: Sequence[tuple[Observation, ...]]
) -> Inventory:
    """The answer of a cloud that holds `items`, with `faults` at work. `past`: what it truly held at earlier polls."""
    kinds = {one.what: one for one in faults}
    if DOWN in kinds:
        return Failed("the provider answered 503")
    if EMPTY in kinds:
        return Complete(())
    if STALE in kinds:
        items = past[-kinds[STALE].polls] if len(past) >= kinds[STALE].polls else (past or (items,))[0]
    hidden = {one.name for one in faults if one.what == HIDES}
    items = tuple(one for one in items if one.name not in hidden)
    return Partial(items[: len(items) // 2], "page 2 was lost") if PARTIAL in kinds else Complete(items)
