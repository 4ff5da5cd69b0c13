"""RunPod's prices per GPU, from the public part of its GraphQL API.

    POST /graphql  {"query": "{ gpuTypes { id displayName memoryInGb ... securePrice communityPrice } }"}
    {"data": {"gpuTypes": [{"id": "NVIDIA H100 80GB HBM3", "memoryInGb": 80, "maxGpuCount": 8, "secureCloud": true,
                            "communityCloud": true, "securePrice": 2.99, "communityPrice": 2.69}]}}

Machines are rented with as many GPUs as one asks for, each at the price of one: the row above is 1, 2, 4 and 8 H100 at 2.99,
5.98, 11.96 and 23.92, secure, and at 2.69 and so on, community. A price of null or 0 means "not offered"; 0.50 of a data-centre
card is a placeholder. The API is to be retired early in 2027; REST v2 needs a key.
Sources: `providers/runpod.md` and its specs/runpod-graphql-known-fields.json; three collectors that send no key (2026-08).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date

from costguard.errors import InvalidAnswerError, shorten, to_one_line
from costguard.providers.ports.price_source import PriceFetcher, PriceSourceFacts
from costguard.quoting.offer import OfferListing
from costguard.quoting.price_drift import is_placeholder
from costguard.values.gpu import GpuNames
from costguard.values.resource import COMMUNITY
from costguard_public.rows import (
    MIB,
    PLACEHOLDER,
    UNREADABLE,
    MachinePrice,
    Row,
    RowCollector,
    decode_json,
    parse_count,
    parse_decimal,
    parse_size,
    take_rows,
    take_text,
)

PROVIDER, TITLE = "runpod", "RunPod's GPU types"
QUERY = "{ gpuTypes { id displayName memoryInGb maxGpuCount secureCloud communityCloud securePrice communityPrice } }"
SOLD = (1, 2, 4, 8)
"""Numbers of GPUs that are listed; RunPod takes any up to what a host holds (`providers/runpod.md`)."""
MOST_BYTES = 4 * MIB
TIERS = (("secure", "securePrice"), (COMMUNITY, "communityPrice"))


class RunpodSource:
    """See the module."""

    facts = PriceSourceFacts(
        name="runpod",
        title=TITLE,
        endpoint="https://api.runpod.io",
        providers=(PROVIDER,),
        terms="GraphQL API, no key for this query; RunPod's terms of service; retirement announced for early 2027",
        size="1 answer, under 100 kB",
        freshness="of the moment",
        checked_on=date(2026, 11, 23),
        order=10,
    )

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return every GPU that is offered, secure and community, in machines of 1, 2, 4 and 8."""
        answer = decode_json(fetch.post("/graphql", json.dumps({"query": QUERY}).encode(), most_bytes=MOST_BYTES).body, TITLE)
        _check_errors(answer)
        collector = RowCollector(gpus=gpus, provider=PROVIDER, source="POST /graphql gpuTypes", observed_on=fetch.today)
        for row in take_rows(answer, ("data", "gpuTypes"), TITLE):
            _add_gpu(row, collector)
        return {PROVIDER: collector.build_listing()}


def _check_errors(answer: object) -> None:
    """Raise the message of a GraphQL error, which comes with status 200."""
    errors = answer.get("errors") if isinstance(answer, dict) else None
    if isinstance(errors, list) and errors:
        first = errors[0].get("message") if isinstance(errors[0], dict) else None
        raise InvalidAnswerError(f"answered with an error: {shorten(to_one_line(str(first)), 80)}", provider=TITLE)


def _add_gpu(row: Row, collector: RowCollector) -> None:
    name = take_text(row, "id")
    if not name:
        collector.leave_out(UNREADABLE)
        return
    prices = [(tier, row.get(key)) for tier, key in TIERS if _is_offered(row.get(key))]
    gpu = collector.find_gpu(name, vram_gb=parse_size(row.get("memoryInGb"))) if prices else None
    if gpu is None:
        return
    most = parse_count(row.get("maxGpuCount")) or SOLD[-1]
    for tier, price in prices:
        offer = collector.make_offer(_make_machine(gpu.canonical, 1, tier, price))
        if offer is None:
            continue
        if is_placeholder(offer):
            collector.leave_out(PLACEHOLDER)
            continue
        for count in SOLD:
            each = parse_decimal(price)
            if count <= most and each is not None:
                collector.add(_make_machine(gpu.canonical, count, tier, each * count))


def _is_offered(price: object) -> bool:
    """Return whether a price is stated: RunPod writes null or 0 where a GPU is not offered."""
    return price is not None and parse_decimal(price) != 0


def _make_machine(gpu: str, count: int, tier: str, price: object) -> MachinePrice:
    return MachinePrice(
        region="global",
        instance_type=f"{gpu} x{count}",
        gpu=gpu,
        gpu_count=count,
        tier=tier,
        price=price,
        note="" if count == 1 else f"{count} times the price of one GPU",
    )


source = RunpodSource()
