"""A large fleet as its providers list it: made by number, always the same, for `bench.ledger`.

Machines of five providers' real billing rules; their ids, owners, types and prices follow from their number alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from costguard.data import ShippedFacts
from costguard.metering.billing import BillingRule
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Disk, Observation, Price
from costguard.values.money import NANO, Rate
from costguard.values.resource import ResourceKey, ScopeKey

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PEOPLE = 40

SHAPES = {
    "aws": (("p5.48xlarge", "H100-SXM", 8, 55_040_000_000), ("g5.xlarge", "A10G", 1, 1_006_000_000)),
    "gcp": (("a2-highgpu-1g", "A100-40GB-SXM", 1, 3_673_385_000), ("g2-standard-8", "L4", 1, 853_624_000)),
    "runpod": (("NVIDIA H100 80GB HBM3", "H100-SXM", 2, 5_980_000_000), ("NVIDIA L40S", "L40S", 1, 860_000_000)),
    "lambda": (("gpu_8x_h100_sxm5", "H100-SXM", 8, 23_920_000_000), ("gpu_1x_a10", "A10G", 1, 750_000_000)),
    "vast": (("4x A100 SXM4", "A100-80GB-SXM", 4, 3_604_074_077), ("1x RTX 4090", "RTX-4090", 1, 401_851_853)),
}
"""Provider -> (type, GPU, GPUs, nano-USD an hour)."""
PROVIDERS = tuple(SHAPES)
DISKS = {"aws": "gp3", "gcp": "pd-balanced", "runpod": "volume"}
CEILINGS = {gpu: 20 * NANO for shapes in SHAPES.values() for _, gpu, _, _ in shapes}


@cache
def rules() -> Mapping[str, BillingRule]:
    """The rules as shipped."""
    return ShippedFacts().get_billing_rules()


@dataclass(frozen=True, slots=True)
class Machine:
    """The `number`-th machine of a fleet, in a scope of `provider`."""

    provider: str
    number: int

    @property
    def key(self) -> ResourceKey:
        """One account a provider, two regions."""
        return ResourceKey(self.provider, "lab", f"region-{self.number % 2}", f"i-{self.number:08x}")

    def seen(self, *, disk: bool = True, **said: Any) -> Observation:  # noqa: ANN401 - fields of an Observation
        """As a listing shows it while it runs, made anew each time, with whatever else is `said` of it."""
        type_, gpu, gpus, nano = SHAPES[self.provider][self.number % 2]
        usual = Observation(
            key=self.key,
            state="running",
            name=f"run-{self.number % 97}",
            instance_type=type_,
            gpu=gpu,
            gpu_count=gpus,
            owner=f"person-{self.number // 2 % PEOPLE}",
            labels=(("project", f"p{self.number % 7}"), ("run", f"{self.number:x}")),
            created_at=START - timedelta(hours=1),
            started_at=START - timedelta(hours=1) if self.provider in DISKS else None,
            prices=(Price(Rate(nano_per_hour=nano)),),
            disks=(Disk(200, DISKS[self.provider]),) if disk and self.provider in DISKS else (),
        )
        return replace(usual, **said) if said else usual


def scopes(count: int, providers: tuple[str, ...] = PROVIDERS) -> list[ScopeKey]:
    """`count` scopes, the providers in turn."""
    return [ScopeKey(providers[n % len(providers)], "lab", f"scope-{n}") for n in range(count)]


def machines(scope: ScopeKey, count: int) -> list[Machine]:
    """`count` machines of `scope`, none of which another scope of the fleet has."""
    first = int(scope.name.removeprefix("scope-")) * 1_000_000
    return [Machine(scope.provider, first + n) for n in range(count)]


def polled(scope: ScopeKey, minutes: int, items: Iterable[Observation]) -> Poll:
    """A complete listing of `scope`, so many minutes after START."""
    return Poll(scope=scope, at=START + minutes * MINUTE, inventory=Complete(tuple(items)))
