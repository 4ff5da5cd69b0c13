"""The rate headers of REST v2: how long to wait when a window of the quota is used up.

Example: `RateLimit: "minute";r=0;t=12, "hour";r=0;t=1812, "day";r=49500;t=45012` with `Retry-After: 12`: wait 1812 s, for
the hour is used up as well. They come with every answer, also with 200 (the specification of 2026-08-20).
"""

from __future__ import annotations

import re

from costguard.errors import ProviderError, ThrottledError
from costguard.providers.transport import HttpResponse
from costguard.providers.transport.channel import parse_retry_after

MEMBER = re.compile(r'"[^"]{0,40}"((?:\s*;\s*[a-z]{1,8}=\d{1,9})+)', re.ASCII)
PARAMETER = re.compile(r"([a-z]{1,8})=(\d{1,9})", re.ASCII)
LONGEST_HEADER = 2000


def compute_pause(reply: HttpResponse) -> float:
    """Seconds until every window that is used up begins anew; 0 where none is, or nothing is said."""
    waits = [0.0]
    for member in MEMBER.finditer(reply.headers.get("ratelimit", "")[:LONGEST_HEADER]):
        stated = dict(PARAMETER.findall(member[1]))
        if stated.get("r") == "0":
            waits.append(float(stated.get("t", 0)))
    return max(waits)


def apply_rate_limit(reply: HttpResponse, found: ProviderError) -> ProviderError:
    """`found`; one of too many requests waits for the longest of Retry-After and every window that is used up."""
    if isinstance(found, ThrottledError):
        pause, stated = compute_pause(reply), parse_retry_after(reply)
        found.retry_after_s = max(pause, stated or 0.0) if pause or stated is not None else None
    return found
