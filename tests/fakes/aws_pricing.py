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
GP3 = "0.0800000000"
"""USD a GB-month that the simulated world bills, wherever the disk is (costguard_sim/bill.py)."""
TENANCIES = {"Shared": Decimal(1), "Dedicated": Decimal("1.1")}
STATUSES = (("AllocatedCapacityReservation", 0), ("UnusedCapacityReservation", 1), ("Used", 1))
"""In the order that leads whoever takes the first."""


USAGES = {
    "gp3": ("Storage", "gp3", "EBS:VolumeUsage.gp3", "GB-Mo"),
    "gp2": ("Storage", "gp2", "EBS:VolumeUsage.gp2", "GB-Mo"),
    "io2": ("Storage", "io2", "EBS:VolumeUsage.io2", "GB-month"),
    "gp3-iops": ("System Operation", "gp3", "EBS:VolumeP-IOPS.gp3", "IOPS-Mo"),
    "gp3-mibps": ("Provisioned Throughput", "gp3", "EBS:VolumeP-Throughput.gp3", "GiBps-mo"),
    "io2-iops": ("System Operation", "io2", "EBS:VolumeP-IOPS.io2", "IOPS-Mo"),
    "io2-iops-tier2": ("System Operation", "io2", "EBS:VolumeP-IOPS.io2.tier2", "IOPS-Mo"),
    "io2-iops-tier3": ("System Operation", "io2", "EBS:VolumeP-IOPS.io2.tier3", "IOPS-Mo"),
    "address-in-use": ("", "", "PublicIPv4:InUseAddress", "Hrs"),
    "address-idle": ("", "", "PublicIPv4:IdleAddress", "Hrs"),
}
"""Line -> product family, volume type, usage type and unit, as public readers of the Price List quote them, 2026-11."""
PREFIXES = {"us-east-1": "", "eu-west-1": "EU-", "ap-northeast-1": "APN1-"}
"""The prefix of a region's usage types; that of us-east-1 is missing for EBS."""


@dataclass(slots=True)
class FakePricing:
    """`rates`: USD an hour of (type, region) on Linux. `page`: products a page. `knows_any_of`: whether ANY_OF is known.

    `storage`: USD of (line of `USAGES`, region).
    """

    rates: dict[tuple[str, str], Decimal] = field(default_factory=dict)
    storage: dict[tuple[str, str], str] = field(default_factory=dict)
    effective: datetime = EFFECTIVE
    page: int = 100
    knows_any_of: bool = True
    broken: str = ""
    """The service of which the list answers with an error of its own."""
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
            made.storage |= {(disk.type, resource.region): GP3 for disk in resource.disks if disk.type == "gp3"}
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
        if body.get("ServiceCode") not in ("AmazonEC2", "AmazonVPC"):
            return amz_json_error("NotFoundException", "no such service")
        if body["ServiceCode"] == self.broken:
            return amz_json_error("AccessDeniedException", "not this service")
        every = (*self._all(), *self._all_storage(), *self.extra)
        found: list[dict[str, Any]] = [one for one in every if one["serviceCode"] == body["ServiceCode"]]
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

    def _all_storage(self) -> Iterable[dict[str, Any]]:
        for (line, region), usd in self.storage.items():
            yield self.storage_product(line, region, usd)

    def storage_product(self, line: str, region: str, usd: str, **told: str) -> dict[str, Any]:
        """One product of storage or of addresses as AWS writes it; addresses have a group and no product family."""
        family, volume, usage, unit = USAGES[line]
        service = "AmazonEC2" if volume else "AmazonVPC"
        attributes = {
            "servicecode": service,
            "locationType": "AWS Region",
            "regionCode": region,
            "usagetype": f"{PREFIXES[region]}{usage}",
            "operation": "",
            **({"volumeApiName": volume} if volume else {"group": "VPCPublicIPv4Address"}),
            **told,
        }
        sku = hashlib.sha256(json.dumps([attributes, usd]).encode()).hexdigest()[:16].upper()
        return {
            "product": {**({"productFamily": family} if family else {}), "sku": sku, "attributes": attributes},
            "serviceCode": service,
            "terms": {
                "OnDemand": {f"{sku}.JRTCKXETXF": _term(sku, "JRTCKXETXF", "6YS6EN2CT7", usd, self.effective, unit)},
            },
        }

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


def _term(sku: str, offer: str, rate: str, usd: str, effective: datetime, unit: str = "Hrs") -> dict[str, Any]:  # noqa: PLR0917 - the wire's fields
    code = f"{sku}.{offer}.{rate}"
    dimension = {
        "rateCode": code,
        "unit": unit,
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
