"""A ledger of one morning: a machine that idles on, one that idles and works again within the hour, and one nobody measures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from costguard.data import ShippedFacts
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Disk, Observation, Price
from costguard.values.money import Rate
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import CPU_UTIL, GPU_UTIL, NETWORK, Sample

BEGIN = datetime(2026, 11, 2, 6, tzinfo=UTC)
END = datetime(2026, 11, 2, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SCOPE = ScopeKey("runpod", "me", "pods")
PRICES = {"idles": "2.99", "returns": "1.99", "unmeasured": "0.79"}
POLICY = """
[[policy]]
name = "idle-gpu"
match = { gpu = true }
when = 'state == "idle"'
for = "45m"
then = [{ do = "notify" }, { after = "15m", do = "stop" }]
"""
RAILS = """
[rails]
acts = { per_run = 1, per_10m = 2, fleet_percent = 100, fleet_percent_day = 100 }
"""


def key(name: str) -> ResourceKey:
    """Of a machine by its name."""
    return ResourceKey("runpod", "me", "EU-RO-1", name)


def busy(name: str, at: datetime) -> bool:
    """All work until 07:00; one goes on at 08:20."""
    return at < BEGIN + 60 * MINUTE or (name == "returns" and at >= BEGIN + 140 * MINUTE)


def record(url: str) -> None:
    """Fill the ledger at `url`."""
    machines = tuple(
        Observation(
            key=key(name),
            state="running",
            name=name,
            gpu="H100-SXM",
            gpu_count=1,
            owner="ada",
            created_at=BEGIN - timedelta(hours=1),
            started_at=BEGIN - timedelta(hours=1),
            prices=(Price(Rate.parse(price)),),
            disks=(Disk(200, "volume"),),
        )
        for name, price in PRICES.items()
    )
    times = [BEGIN + n * MINUTE for n in range(241)]
    with LedgerWriter(url, rules=ShippedFacts().get_billing_rules(), ceilings={}) as ledger:
        ledger.record_polls([Poll(scope=SCOPE, at=at, inventory=Complete(machines)) for at in times])
        ledger.record_samples(
            [
                Sample(key=key(name), signal=signal, at=at, value=value if busy(name, at) else 0.0)
                for name in ("idles", "returns")
                for signal, value in ((GPU_UTIL, 97.0), (CPU_UTIL, 40.0), (NETWORK, 5e6))
                for at in times
            ]
        )
