"""What stands beside a resource in a status: its work, whose it is, who keeps it, whether it is protected."""

from __future__ import annotations

from costguard.core.guard.seat import Seat
from costguard.core.guard.sight import Rules, Sight
from costguard.core.metering.resource import ResourceKey
from costguard.core.status import Beside


def beside(rules: Rules, sight: Sight) -> dict[ResourceKey, Beside]:
    """Of each resource of `sight`, as the policy that waits longest for it judges its work."""
    seats = (Seat.of(live, rules, sight) for live in sight.live)
    return {
        seat.key: Beside(
            work=seat.work(seat.longest(), rules, sight),
            owner=seat.owner,
            lease=seat.lease,
            protected=seat.protection.protected,
        )
        for seat in seats
    }
