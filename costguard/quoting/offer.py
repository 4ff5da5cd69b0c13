"""An offer: hardware for rent at a rate observed on a day; and a selection of offers.

Example: RunPod's H100 at $3.99, observed on 2026-10-10, is 42 days old on 2026-11-21. What that age means for the price depends
on its drift class (`quoting/price_drift.py`).

A `Subscription` sells access rather than machines (Google Colab). It is shown beside a quote but never ranked. Example: 8 hours
on an L4 at 2.1 to 4.8 compute units an hour take 17 to 38 of the 100 units a month of Colab Pro, if an L4 is assigned at all; a
session that ends after 12 hours ends the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from costguard.errors import InputError
from costguard.values.interval import Interval
from costguard.values.money import Money, Rate
from costguard.values.resource import COMMUNITY, SPOT, TIERS

OWN = "own"
"""The tier of a machine that is not rented (`quoting/own_hardware.py`)."""
PRICINGS = ("standard", "dynamic")
"""How a price is made, in FOCUS's words: from a provider's price list, or by demand, by bids or by hosts."""

HYPERSCALERS = frozenset({"aws", "azure", "gcp", "oci"})
"""Providers whose on-demand lists hold for years."""

MARKETPLACES = frozenset({"vast"})
"""Where hosts ask and renters bid: no price there is of a list."""

HYPERSCALER, HYPERSCALER_NEW, LISTED, COMMUNITY_PRICE, SPOT_PRICE, ASK, BID = DRIFT_CLASSES = (
    "hyperscaler",
    "hyperscaler-new",
    "list",
    "community",
    "spot",
    "ask",
    "bid",
)
"""How fast a price moves: a hyperscaler's on-demand price, the same of its newest GPUs, another provider's price list (RunPod's
secure machines too), a community's machines, spot, a host's ask on a marketplace, and the least bid there."""

NEWEST_GPUS = re.compile(r"G?[BH]200(-.*)?|G?B300|RTX-PRO-\d+-Blackwell.*|MI3[25]\dX")
"""GPUs that hyperscalers began to sell since 2025: their list prices are cut within months (AWS cut P5 by 44 % in 2025-06)."""


def find_drift_class(provider: str, tier: str, gpu: str, pricing: str = "standard") -> str:
    """Return the drift class of what `provider` sells in `tier`; `gpu` is canonical, "" for a machine without one."""
    if provider in MARKETPLACES:
        return BID if tier == SPOT else ASK
    if tier in (SPOT, COMMUNITY):
        return SPOT_PRICE if tier == SPOT else COMMUNITY_PRICE
    if pricing == "dynamic":
        return ASK
    if provider in HYPERSCALERS:
        return HYPERSCALER_NEW if NEWEST_GPUS.fullmatch(gpu) else HYPERSCALER
    return LISTED


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceFall:
    """How a price fell (`quoting/price_falls.py`). `peak`: the price before, last known on `peak_on`.

    `confirmed`: two sources or two days stated the fall. `doubted`: a price that is doubted, with when and by whom it was
    stated first; None: none is, and the offer's rate is the price as stated.
    """

    peak: Rate
    peak_on: date
    confirmed: bool = False
    doubted: Rate | None = None
    stated_at: datetime | None = None
    stated_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One offer. `rate` is for all its GPUs together; None: unknown price, which is never zero and never ranked.

    `region` is the provider's name of it; "global" means one price for every region. `instance_type` is the provider's name, or
    "H100-SXM x8" if it has none. `gpu` is canonical. `vcpus`, `ram_gb` and `disk_gb` are of the whole offer, None: unknown.
    `note` is what a person should read before renting ("median of 32 offers").

    `observed_on` is the day on which the price was seen; of an undated copy the earliest possible one, and `observed_to` the
    latest. `drift`: one of DRIFT_CLASSES; "": as its provider, tier and pricing imply. `on_demand_rate`: of a spot machine,
    what the same machine costs on demand; None: unknown. `fall`: the price fell far lately; None: it did not.

    `reliability`: the part of the time that a marketplace's host could be reached, 0 to 1, as the marketplace states it;
    `verified`: whether it checked the host. None: unknown, as of stored prices, or not on a marketplace.
    """

    provider: str
    region: str
    instance_type: str
    gpu: str
    gpu_count: int
    tier: str
    rate: Rate | None
    observed_on: date
    source: str
    pricing: str = "standard"
    vcpus: float | None = None
    ram_gb: float | None = None
    disk_gb: float | None = None
    note: str = ""
    drift: str = ""
    observed_to: date | None = None
    on_demand_rate: Rate | None = None
    fall: PriceFall | None = None
    reliability: float | None = field(default=None, compare=False)
    verified: bool | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not (self.provider and self.region and self.instance_type and self.gpu and self.source):
            raise InputError("needs a provider, region, instance type, GPU and source", field=f"offer {self.instance_type}")
        if type(self.gpu_count) is not int or self.gpu_count < 1:
            raise InputError(f"must be 1 or more, not {self.gpu_count!r}", field=f"offer {self.instance_type}.gpu_count")
        if self.tier not in (*TIERS, OWN):
            raise InputError(f"must be one of {', '.join(TIERS)}", field=f"offer {self.instance_type}.tier")
        if self.pricing not in PRICINGS:
            raise InputError(f"must be one of {', '.join(PRICINGS)}", field=f"offer {self.instance_type}.pricing")
        if self.drift and self.drift not in DRIFT_CLASSES:
            raise InputError(f"must be one of {', '.join(DRIFT_CLASSES)}", field=f"offer {self.instance_type}.drift")
        if self.observed_to is not None and self.observed_to < self.observed_on:
            raise InputError("is before observed_on", field=f"offer {self.instance_type}.observed_to")

    @property
    def drift_class(self) -> str:
        """Return the stated drift class, or the one that provider, tier and pricing imply."""
        return self.drift or find_drift_class(self.provider, self.tier, self.gpu, self.pricing)

    def count_age_days(self, today: date) -> int:
        """Return the whole days since the price was observed; negative if it is dated in the future."""
        return (today - self.observed_on).days


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferSelection:
    """Which offers to return. None is no limit; an empty tuple selects nothing. Names are compared exactly.

    A region limit keeps offers of exactly that region; "global" offers must be selected by "global", since one price for all
    regions does not mean that the machine will be in the wanted one. `gpus` are canonical. Counts are GPUs of one offer.
    `observed_since`: the day on which a price must have been seen or confirmed. `least_reliability`: 0 to 1, of marketplaces;
    hosts whose reliability is unknown are left out.
    """

    providers: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    tiers: tuple[str, ...] | None = None
    gpus: tuple[str, ...] | None = None
    gpu_counts: tuple[int, ...] | None = None
    least_gpus: int | None = None
    most_gpus: int | None = None
    observed_since: date | None = None
    least_reliability: float | None = None

    def accepts_host(self, offer: Offer) -> bool:
        """Return whether the host of `offer` is reliable enough; other providers than marketplaces have no hosts."""
        least = self.least_reliability
        return least is None or offer.provider not in MARKETPLACES or (offer.reliability or 0.0) >= least


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferListing:
    """The offers of one provider. `why`: what is missing, "" if the listing is complete.

    `unnamed`: the provider's names of GPUs that match no canonical name: their offers are left out and counted. `left_out`: the
    rows of a complete listing that cannot be used, in words ("3 rows without a price above zero"); "": none.
    """

    offers: tuple[Offer, ...]
    why: str = ""
    unnamed: tuple[str, ...] = ()
    left_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A plan and one kind of GPU that it may assign. `price`: of `units` compute units. `session_hours`: at most."""

    provider: str
    plan: str
    gpu: str
    price: Money
    units: int
    units_per_hour: Interval
    session_hours: float
    source: str
    observed_on: str

    def compute_units(self, hours: Interval) -> Interval:
        """Return the compute units that a run of `hours` uses."""
        return self.units_per_hour.multiply(hours)


def read_subscriptions(rows: Iterable[Mapping[str, str]]) -> tuple[Subscription, ...]:
    """Return every plan and GPU of `subscriptions.csv`, in its order."""
    return tuple(
        Subscription(
            provider=row["provider"],
            plan=row["plan"],
            gpu=row["gpu"],
            price=Money.parse(row["price_usd"], field=f"subscriptions.csv {row['plan']}"),
            units=int(row["units"]),
            units_per_hour=Interval(*(float(row[f"units_per_hour_{end}"]) for end in ("low", "expected", "high"))),
            session_hours=float(row["session_hours"]),
            source=row["source"],
            observed_on=row["observed_on"],
        )
        for row in rows
    )
