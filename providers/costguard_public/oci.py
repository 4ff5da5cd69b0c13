"""Oracle Cloud's list prices of GPU shapes, from the products of its cost estimator. They hold in every region.

    GET /pls/apex/cetools/api/v1/products/?currencyCode=USD
    {"lastUpdated": "2026-09-01T14:26:53.943Z",
     "items": [{"partNumber": "B98415", "displayName": "Oracle Cloud Infrastructure - Compute - GPU - H100",
                "metricName": "GPU Per Hour", "serviceCategory": "Compute - GPU",
                "currencyCodeLocalizations": [{"currencyCode": "USD",
                                               "prices": [{"model": "PAY_AS_YOU_GO", "value": 10}]}]}]}

The price is of one GPU. BM.GPU.H100.8 costs 8 x $10 = $80 an hour.

Left out: licences (NVIDIA AI Enterprise has the same metric and category), appliances on premises (other categories), and
products named by a generation rather than a GPU ("GPU - E3", "GPU Standard - V2"): which shape they price is not stated.
Sources: three public collectors that pin live answers of 2026-07 to 2026-09, with part numbers and prices; shapes from Oracle's
documentation and oracle-quickstart/oci-hpc-oke; `providers/public-prices.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal

from costguard.providers.ports.price_source import PriceFetcher, PriceSourceFacts
from costguard.quoting.offer import OfferListing
from costguard.values.gpu import GpuNames
from costguard_public.rows import (
    MIB,
    NO_PRICE,
    OTHER_CURRENCY,
    UNREADABLE,
    MachinePrice,
    Row,
    RowCollector,
    decode_json,
    parse_decimal,
    take_rows,
    take_text,
)

PROVIDER, TITLE = "oci", "Oracle's price list"
PATH, MOST_BYTES = "/pls/apex/cetools/api/v1/products/?currencyCode=USD", 8 * MIB
CATEGORY, METRIC, MODEL = "Compute - GPU", "GPU Per Hour", "PAY_AS_YOU_GO"
PRODUCT = re.compile(r"(?:OCI|Oracle Cloud Infrastructure)?\s*-?\s*Compute\s+-\s+GPU\s+-\s+(.+)")
GENERATION = re.compile(r"[EVX]\d")

SHAPES: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "A10": ("A10", {"VM.GPU.A10.1": 1, "VM.GPU.A10.2": 2, "BM.GPU.A10.4": 4}),
    "A100 - v2": ("A100-80GB-SXM", {"BM.GPU.A100-v2.8": 8}),
    "L40S": ("L40S", {"BM.GPU.L40S.4": 4}),
    "H100": ("H100-SXM", {"BM.GPU.H100.8": 8}),
    "H200": ("H200-SXM", {"BM.GPU.H200.8": 8}),
    "B200": ("B200-SXM", {"BM.GPU.B200.8": 8}),
    "B300": ("B300", {"BM.GPU.B300.8": 8}),
    "GB200": ("GB200", {"BM.GPU.GB200.4": 4}),
    "GB300": ("GB300", {"BM.GPU.GB300.4": 4}),
    "MI300X": ("MI300X", {"BM.GPU.MI300X.8": 8}),
    "MI355X": ("MI355X", {"BM.GPU.MI355X.8": 8}),
    "RTX PRO 6000": ("RTX-PRO-6000-Blackwell-Server", {"BM.GPU.RTXPRO.8": 8}),
}
"""End of a product's name -> our name of the GPU, and the shapes that are priced by it with their GPUs (2026-11-23)."""


class OciSource:
    """See the module."""

    facts = PriceSourceFacts(
        name="oci",
        title=TITLE,
        endpoint="https://apexapps.oracle.com",
        providers=(PROVIDER,),
        terms="documented price list API, no key; Oracle's site terms",
        size="1 answer, about 0.5 MB",
        freshness="list prices; the answer states when the catalogue was last updated",
        checked_on=date(2026, 11, 23),
        order=10,
    )

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return the shapes of every product that names its GPU."""
        collector = RowCollector(gpus=gpus, provider=PROVIDER, source="GET /cetools/api/v1/products", observed_on=fetch.today)
        for row in take_rows(decode_json(fetch.get(PATH, most_bytes=MOST_BYTES).body, TITLE), ("items",), TITLE):
            if not row:
                collector.leave_out(UNREADABLE)
            elif take_text(row, "serviceCategory") == CATEGORY and take_text(row, "metricName") == METRIC:
                _add_product(row, collector)
        return {PROVIDER: collector.build_listing()}


def _add_product(row: Row, collector: RowCollector) -> None:
    match = PRODUCT.fullmatch(take_text(row, "displayName"))
    if match is None or GENERATION.fullmatch(match[1]):
        return
    if match[1] not in SHAPES:
        collector.report_unknown(match[1])  # which shapes it prices, with how many GPUs, is not stated
        return
    price = _find_price(row)
    if isinstance(price, str):
        collector.leave_out(price)
        return
    name, shapes = SHAPES[match[1]]
    for shape, count in shapes.items() if collector.find_gpu(name) else ():
        collector.add(
            MachinePrice(
                region="global",
                instance_type=shape,
                gpu=name,
                gpu_count=count,
                tier="on-demand",
                price=price * count,
            )
        )


def _find_price(row: Row) -> Decimal | str:
    """Return the price of one GPU in dollars, or why there is none."""
    localizations = row.get("currencyCodeLocalizations")
    currencies = [one for one in localizations if isinstance(one, dict)] if isinstance(localizations, list) else []
    dollars = [one for one in currencies if one.get("currencyCode") == "USD"]
    if not dollars:
        return OTHER_CURRENCY if currencies else NO_PRICE
    prices = dollars[0].get("prices")
    payg = [one for one in prices if isinstance(one, dict) and one.get("model") == MODEL] if isinstance(prices, list) else []
    values = {number for one in payg if (number := parse_decimal(one.get("value"))) is not None}
    if len(values) > 1:
        return UNREADABLE  # two prices of one product: either may be meant
    return values.pop() if values else NO_PRICE


source = OciSource()
