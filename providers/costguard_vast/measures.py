"""Measures of work that come with Vast's listing.

Vast states percent; its spec says fraction (vast.md, sections 3 and 9, 2026-11-21). A value above 1 settles it. An
instance that never had one and whose GPU is hot may be busy on the other scale: it has no sample, which is not idle.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from costguard.values.resource import ResourceKey
from costguard.values.sample import CPU_UTIL, GPU_TEMPERATURE, GPU_UTIL, MEMORY_USED, Sample
from costguard_vast.numbers import parse_finite, parse_percent, parse_positive
from costguard_vast.traffic import Say
from costguard_vast.wire import Instance

HOT_C = 60.0
"""Degrees at which a GPU surely works, or has just worked: an assumption, 2026-11."""
HOTTEST_C = 150.0


def build_samples(one: Instance, key: ResourceKey, at: datetime, proven: set[str], say: Say) -> tuple[Sample, ...]:
    """What the last heartbeat of a running instance said. `proven`: ids that are known to state percent; it grows."""
    use, heat = parse_percent(one.gpu_util), parse_finite(one.gpu_temp)
    heat_c = float(heat) if heat is not None and 0 < heat <= Decimal(HOTTEST_C) else None
    if use is not None and use > 1:
        proven.add(key.id)
    if use is not None and key.id not in proven and heat_c is not None and heat_c >= HOT_C:
        say(f"scale suspicious: gpu_util {use:g} at {heat_c:.0f} degrees, so it is taken for unknown, not for idle")
        use = None
    found = {
        GPU_UTIL: use,
        GPU_TEMPERATURE: heat_c,
        CPU_UTIL: parse_percent(one.cpu_util),
        MEMORY_USED: _compute_memory_percent(one),
    }
    return tuple(Sample(key=key, signal=name, at=at, value=value) for name, value in found.items() if value is not None)


def _compute_memory_percent(one: Instance) -> float | None:
    """Main memory held, in percent. Both figures are in one unit, whichever that is."""
    used, limit = parse_finite(one.mem_usage), parse_positive(one.mem_limit)
    return float(100 * used / limit) if used is not None and limit is not None and 0 <= used <= limit else None
