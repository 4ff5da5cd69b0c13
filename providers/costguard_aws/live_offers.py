"""EC2's current offers: its GPU types in each region, on demand by the price list and as spot by the spot history.

The types are those of `types.csv`, which limits the requests to two or three a region. Shares of a GPU (g6f, gr6f) are left
out, because an offer is of whole GPUs. A listed price does not mean that there is capacity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from costguard.errors import ProviderError
from costguard.metering.observation import parse_hourly_rate
from costguard.quoting.offer import Offer, OfferListing
from costguard.system.clock import Clock
from costguard.values.money import Rate
from costguard.values.resource import SPOT
from costguard_aws.errors import AwsClients
from costguard_aws.instance_types import GpuInstanceType, load_known_types
from costguard_aws.price_list import OnDemandPrices, PriceKey
from costguard_aws.spot import LINUX, MOST_TYPES, VPC, read_history


class LiveOffers:
    """The offers of one account's regions."""

    def __init__(self, aws: AwsClients, prices: OnDemandPrices, clock: Clock) -> None:
        self._aws, self._prices, self._clock = aws, prices, clock

    def list_offers(self, regions: Sequence[str], gpus: Collection[str] | None) -> OfferListing:
        """Return the offers in `regions` with the canonical `gpus` (None: any GPU); a type without a price is no offer.

        Raises a ProviderError if no region could be read.
        """
        kinds = [kind for kind in load_known_types().values() if _has_whole_gpus(kind) and (gpus is None or kind.gpu in gpus)]
        offers, why, broken = list[Offer](), list[str](), list[ProviderError]()
        for region in regions if kinds else ():
            on_demand, doubts = self._list_on_demand(region, kinds)
            offers += on_demand
            why += doubts
            try:
                offers += self._list_spot(region, kinds)
            except ProviderError as failed:
                broken.append(failed)
                why.append(f"spot prices of {region}: {failed.what}")
        if broken and not offers:
            raise broken[0]
        return OfferListing(offers=tuple(offers), why="; ".join(dict.fromkeys(why)))

    def _list_on_demand(self, region: str, kinds: Sequence[GpuInstanceType]) -> tuple[list[Offer], list[str]]:
        """Return the offers in the price list, and why some may be missing although they are sold."""
        keys = {kind.name: PriceKey(kind.name, region) for kind in kinds}
        self._prices.learn(keys.values())
        offers, doubts = list[Offer](), list[str]()
        for kind in kinds:
            answer = self._prices.peek_price(keys[kind.name])
            if answer.price.rate is not None:
                offers.append(self._make_offer(kind, region, answer.price.rate, note=answer.why))
            elif answer.doubtful:
                doubts.append(answer.why)
        return offers, doubts

    def _list_spot(self, region: str, kinds: Sequence[GpuInstanceType]) -> list[Offer]:
        """Return the current price of each type in its cheapest zone."""
        now, offers = self._clock.now(), list[Offer]()
        newest: dict[tuple[str, str], tuple[datetime, Rate]] = {}
        for first in range(0, len(kinds), MOST_TYPES):
            self._read_newest(region, kinds[first : first + MOST_TYPES], now, newest)
        for kind in kinds:
            zones = sorted((rate.nano_per_hour, zone) for (name, zone), (_, rate) in newest.items() if name == kind.name)
            if zones:
                note = f"in {zones[0][1]}, the cheapest of {len(zones)} zones"
                offers.append(self._make_offer(kind, region, Rate(nano_per_hour=zones[0][0]), spot=True, note=note))
        return offers

    def _read_newest(
        self, region: str, kinds: Iterable[GpuInstanceType], now: datetime, newest: dict[tuple[str, str], tuple[datetime, Rate]]
    ) -> None:
        """Add the latest price of each type and zone to `newest`.

        The request starts now, which includes the last change before it.
        """
        kind_by_name = {kind.name: kind for kind in kinds}
        params = {
            "InstanceTypes": list(kind_by_name),
            "ProductDescriptions": [LINUX, LINUX + VPC],
            "StartTime": now,
            "EndTime": now,
        }
        for entry in read_history(self._aws, region, params):
            name, zone, at = str(entry.get("InstanceType")), str(entry.get("AvailabilityZone") or ""), entry.get("Timestamp")
            if name not in kind_by_name or not zone or not isinstance(at, datetime) or at.tzinfo is None:
                continue
            rate, _ = parse_hourly_rate(entry.get("SpotPrice"), gpus=kind_by_name[name].gpu_count)
            old_entry = newest.get((name, zone))
            if rate is not None and (old_entry is None or at > old_entry[0]):
                newest[name, zone] = (at, rate)

    def _make_offer(self, kind: GpuInstanceType, region: str, rate: Rate, *, spot: bool = False, note: str = "") -> Offer:
        return Offer(
            provider="aws",
            region=region,
            instance_type=kind.name,
            gpu=kind.gpu,
            gpu_count=int(kind.gpu_count),
            tier=SPOT if spot else "on-demand",
            rate=rate,
            observed_on=self._clock.now().date(),
            source="AWS spot history" if spot else "AWS price list",
            pricing="dynamic" if spot else "standard",
            vcpus=kind.vcpus,
            ram_gb=kind.ram_gb,
            disk_gb=float(kind.local_gb) if kind.local_gb else None,
            note=note,
        )


def _has_whole_gpus(kind: GpuInstanceType) -> bool:
    return kind.gpu_count >= 1 and kind.gpu_count == int(kind.gpu_count)
