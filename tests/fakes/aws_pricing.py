"""The Price List as AWS answers it: every product three times by `capacitystatus`, one of them at $0, and each a JSON text.

`FakePricing.of(resources)` lists what the machines of a simulated world cost on demand, so that the truth is known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from costguard_sim.world import SIM_INSTANCE, Resource

from tests.fakes.aws_wire import amz_json, amz_json_error, target_of
from tests.fakes.server import Answer, Asked

EFFECTIVE = datetime(2026, 11, 1, tzinfo=UTC)
OPERATIONS = {"RunInstances": ("Linux", "NA", Decimal(1)), "RunInstances:0002": ("Windows", "NA", Decimal("1.25"))}
"""UsageOperation -> operating system, software, and what it costs relative to Linux."""
TENANCIES = {"Shared": Decimal(1), "Dedicated": Decimal("1.1")}
STATUSES = (("AllocatedCapacityReservation", 0), ("UnusedCapacityReservation", 1), ("Used", 1))
"""In the order that leads whoever takes the first."""


@dataclass(slots=True)
class FakePricing:
    """`rates`: USD an hour of (type, region) on Linux. `page`: products a page. `knows_any_of`: whether ANY_OF is known."""

    rates: dict[tuple[str, str], Decimal] = field(default_factory=dict)
    effective: datetime = EFFECTIVE
    page: int = 100
    knows_any_of: bool = True
    extra: list[dict[str, Any]] = field(default_factory=list)
    """Products that are listed beside the others as they are."""

    @classmethod
    def of(cls, resources: Iterable[Resource]) -> FakePricing:
        """What the machines that are not spot cost, by type and region."""
        made = cls()
        for resource in resources:
            if resource.kind == SIM_INSTANCE and resource.tier != "spot":
                for shape in resource.shapes:
                    rates = [rate.nano for rate in resource.rates if rate.at_us <= max(shape.at_us, resource.rates[0].at_us)]
                    made.rates[shape.type, resource.region] = Decimal(rates[-1]).scaleb(-9)
        return made

    def answer(self, asked: Asked) -> Answer | None:
        """The answer to a request for the Price List; None for any other."""
        prefix, operation = target_of(asked)
        if prefix != "AWSPriceListService":
            return None
        if operation != "GetProducts":
            return amz_json_error("UnknownOperationException", operation)
        return self._products(asked.json())

    def _products(self, body: Mapping[str, Any]) -> Answer:
        if body.get("ServiceCode") != "AmazonEC2":
            return amz_json_error("NotFoundException", "no such service")
        found: list[dict[str, Any]] = [*self._all(), *self.extra]
        for one in body.get("Filters") or ():
            if one["Type"] not in ("TERM_MATCH", "EQUALS", "ANY_OF") or (one["Type"] == "ANY_OF" and not self.knows_any_of):
                return amz_json_error("InvalidParameterException", f"Input Parameters are invalid: {one['Type']}")
            wanted = one["Value"].split(",") if one["Type"] == "ANY_OF" else [one["Value"]]
            found = [product for product in found if product["product"]["attributes"].get(one["Field"]) in wanted]
        first = int(body.get("NextToken") or 0)
        last = first + min(self.page, int(body.get("MaxResults") or 100))
        more = {"NextToken": str(last)} if last < len(found) else {}
        return amz_json({"FormatVersion": "aws_v1", "PriceList": [json.dumps(p) for p in found[first:last]], **more})

    def _all(self) -> Iterable[dict[str, Any]]:
        for (name, region), usd in self.rates.items():
            for operation, (system, software, dearer) in OPERATIONS.items():
                for tenancy, more in TENANCIES.items():
                    for status, factor in STATUSES:
                        yield self.product(
                            name,
                            region,
                            usd * dearer * more * factor,
                            capacitystatus=status,
                            operatingSystem=system,
                            preInstalledSw=software,
                            operation=operation,
                            tenancy=tenancy,
                        )

    def product(self, name: str, region: str, usd: Decimal | str, **told: str) -> dict[str, Any]:
        """One product as AWS writes it, with reserved terms beside the price on demand."""
        attributes = {
            "instanceType": name,
            "regionCode": region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
            "licenseModel": "No License required",
            "marketoption": "OnDemand",
            "operation": "RunInstances",
            "servicecode": "AmazonEC2",
            **told,
        }
        sku = hashlib.sha256(json.dumps(attributes, sort_keys=True).encode()).hexdigest()[:16].upper()
        return {
            "product": {"productFamily": "Compute Instance", "sku": sku, "attributes": attributes},
            "serviceCode": "AmazonEC2",
            "version": "20261115000000",
            "publicationDate": "2026-11-15T00:00:00Z",
            "terms": {
                "OnDemand": {f"{sku}.JRTCKXETXF": _term(sku, "JRTCKXETXF", "6YS6EN2CT7", str(usd), self.effective)},
                "Reserved": {f"{sku}.4NA7Y494T4": _term(sku, "4NA7Y494T4", "6YS6EN2CT7", "0.1230000000", self.effective)},
            },
        }


def _term(sku: str, offer: str, rate: str, usd: str, effective: datetime) -> dict[str, Any]:
    code = f"{sku}.{offer}.{rate}"
    dimension = {
        "rateCode": code,
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"${usd} per On Demand Linux",
        "appliesTo": [],
        "pricePerUnit": {"USD": f"{Decimal(usd):.10f}"},
    }
    return {
        "sku": sku,
        "offerTermCode": offer,
        "effectiveDate": f"{effective:%Y-%m-%dT%H:%M:%SZ}",
        "termAttributes": {},
        "priceDimensions": {code: dimension},
    }
