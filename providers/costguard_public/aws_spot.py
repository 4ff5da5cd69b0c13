"""AWS's spot prices of all regions, from the feed behind its pricing page: one price a type and region, not per zone.

    GET /spot.js
    callback({"vers": 0.01, "config": {"rate": "perhr", "valueColumns": ["linux", "mswin"], "currencies": ["USD"], "regions": [
      {"region": "us-east", "instanceTypes": [{"type": "gpuInstancesCurrentGen", "sizes": [
        {"size": "p5.48xlarge", "valueColumns": [{"name": "linux", "prices": {"USD": "21.4871"}}]}]}]}]}});

Six regions have names of their own ("us-east" is us-east-1). "N/A*" means "not sold as spot there". On-demand prices are not in
it. The feed is undocumented and states no day: it is dated by the Last-Modified of its bucket, without one by the day of the
request. The zone in which a machine starts may be dearer.
Sources: alexei-led/spotinfo internal/spot/data.go (names of regions, the wrapping); `providers/public-prices.md`, 2026-11-23.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date

from costguard.errors import InvalidAnswerError
from costguard.providers.ports.price_source import PriceFetcher, PriceSourceFacts
from costguard.quoting.offer import OfferListing
from costguard.values.gpu import GpuNames
from costguard.values.resource import SPOT
from costguard_public.instance_types import MachineType, read_aws_types
from costguard_public.rows import (
    MIB,
    MOST_ROWS,
    OTHER_CURRENCY,
    UNREADABLE,
    MachinePrice,
    Row,
    RowCollector,
    decode_json,
    take_object,
    take_rows,
    take_text,
)

PROVIDER, TITLE = "aws", "AWS's spot feed"
WRAPPED = re.compile(rb"\s*(?:/\*.{0,4096}?\*/\s*)?callback\((.*)\)\s*;?\s*", re.DOTALL)
REGIONS = {
    "us-east": "us-east-1",
    "us-west": "us-west-1",
    "eu-ireland": "eu-west-1",
    "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2",
    "apac-tokyo": "ap-northeast-1",
}
ACCELERATED = re.compile(r"(?:g|gr|p|dl|trn|inf)\d[^.]*\.\w+")
SHARES = re.compile(r"gr?\df\..*")
NOT_SOLD = "N/A"
MOST_BYTES = 8 * MIB


class AwsSpotSource:
    """See the module."""

    facts = PriceSourceFacts(
        name="aws_spot",
        title=TITLE,
        endpoint="https://spot-price.s3.amazonaws.com",
        providers=(PROVIDER,),
        terms="undocumented feed of AWS's pricing page, no key; AWS's site terms",
        size="1 file, a few MB",
        freshness="not stated; one price a region, not per zone",
        checked_on=date(2026, 11, 23),
        order=60,
    )

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return the Linux spot price of every type with whole GPUs in every region."""
        feed = fetch.get("/spot.js", most_bytes=MOST_BYTES)
        day = min(feed.as_of or fetch.today, fetch.today)
        wrapped = WRAPPED.fullmatch(feed.body)
        answer = decode_json(wrapped[1] if wrapped else feed.body, TITLE)
        rate = take_object(answer if isinstance(answer, dict) else {}, "config").get("rate")
        if rate != "perhr":
            raise InvalidAnswerError("published a different format: its prices are not per hour", provider=TITLE)
        collector = RowCollector(gpus=gpus, provider=PROVIDER, source="GET spot.js", observed_on=day)
        types = read_aws_types()
        for number, (region, size) in enumerate(_list_sizes(take_rows(answer, ("config", "regions"), TITLE), collector), 1):
            if number > MOST_ROWS:
                raise InvalidAnswerError(f"holds more than {MOST_ROWS} prices: refused", provider=TITLE)
            name = take_text(size, "size")
            if name in types:
                _add_size(region, types[name], size, collector)
            elif not name:
                collector.leave_out(UNREADABLE)
            elif ACCELERATED.fullmatch(name) and not SHARES.fullmatch(name):
                collector.report_unknown(name)
        return {PROVIDER: collector.build_listing()}


def _list_sizes(regions: list[Row], collector: RowCollector) -> Iterator[tuple[str, Row]]:
    """Yield each region's name and size; a region that cannot be read is counted."""
    for region in regions:
        name, families = take_text(region, "region"), region.get("instanceTypes")
        if not name or not isinstance(families, list):
            collector.leave_out(UNREADABLE)
            continue
        for family in families:
            sizes = family.get("sizes") if isinstance(family, dict) else None
            for size in sizes if isinstance(sizes, list) else ():
                yield REGIONS.get(name, name), size if isinstance(size, dict) else {}


def _add_size(region: str, machine: MachineType, size: Row, collector: RowCollector) -> None:
    columns = size.get("valueColumns")
    linux = (
        [one for one in columns if isinstance(one, dict) and one.get("name") == "linux"] if isinstance(columns, list) else []
    )
    prices = take_object(linux[0], "prices") if linux else {}
    if "USD" not in prices:
        collector.leave_out(OTHER_CURRENCY if prices else UNREADABLE)
        return
    price = prices["USD"]
    if (isinstance(price, str) and price.startswith(NOT_SOLD)) or collector.find_gpu(machine.gpu) is None:
        return
    collector.add(
        MachinePrice(
            region=region,
            instance_type=machine.name,
            gpu=machine.gpu,
            gpu_count=machine.gpu_count,
            tier=SPOT,
            price=price,
            pricing="dynamic",
            vcpus=machine.vcpus,
            ram_gb=machine.ram_gb,
            disk_gb=machine.disk_gb,
            note="price of the region; zones differ",
        )
    )


source = AwsSpotSource()
