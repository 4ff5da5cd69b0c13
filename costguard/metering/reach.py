"""How far an open span is known to go.

Example: a scope was listed completely at 12:00 and nothing has been heard since; its provider's listing may lag 30 s. At
13:00 its open spans surely reach 11:59:30, and probably and at most 13:00: a provider that is down goes on billing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from costguard.metering.span import KnownUntil


def compute_known_until(
    *,
    start: datetime,
    complete_at: datetime | None,
    logged_at: datetime,
    seen_at: datetime | None,
    absent_at: datetime | None,
    lag: timedelta,
    as_of: datetime,
) -> KnownUntil:
    """The reach at `as_of` of a span that opened at `start`.

    `complete_at`: the scope's last complete poll. `logged_at`: when the resource's last observation was first said. Where
    complete listings lack the resource since `absent_at` and it was last seen at `seen_at`, its end lies between the two, or
    it comes back: probably half-way, at most now.
    """
    if absent_at is not None:
        last = seen_at or logged_at
        expected = last + (absent_at - last) / 2
    else:
        last = max(seen_at or logged_at, logged_at, complete_at or logged_at)
        expected = as_of
    low = min(max(start, last - lag), as_of)
    high = max(start, as_of)
    return KnownUntil(low=low, expected=min(max(low, expected), high), high=high)
