"""Spot price history as EC2 answers it: by zone, in no order, with the last change before the start, an empty last token."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from urllib.parse import parse_qs

from costguard_sim.world import SIM_INSTANCE, Resource, from_us

from tests.fakes.aws_wire import ec2_error, ec2_xml
from tests.fakes.server import Answer, Asked

LINUX = "Linux/UNIX"


def zone_of(resource: Resource) -> str:
    """The zone of a machine. Each machine of a simulated world draws spot prices of its own, so each has a zone of its own."""
    return f"{resource.region}-{resource.id.rsplit('-', 1)[-1]}-1a" if resource.tier == "spot" else f"{resource.region}a"


@dataclass(slots=True)
class FakeSpot:
    """`markets`: the prices of (type, zone, product) as (when, USD an hour). `page`: entries a page."""

    markets: dict[tuple[str, str, str], list[tuple[datetime, Decimal]]] = field(default_factory=dict)
    page: int = 1000

    @classmethod
    def of(cls, resources: Iterable[Resource]) -> FakeSpot:
        """What the spot machines of a world have paid."""
        made = cls()
        for one in resources:
            if one.kind == SIM_INSTANCE and one.tier == "spot":
                history = [(from_us(rate.at_us), Decimal(rate.nano).scaleb(-9)) for rate in one.rates]
                made.markets[one.shapes[0].type, zone_of(one), LINUX] = history
        return made

    def answer(self, asked: Asked, region: str, now: datetime) -> Answer | None:
        """The answer to a question for the history, of zones of `region`; None for any other."""
        form = {k: v[0] for k, v in parse_qs(asked.body.decode("utf-8", "replace")).items()}
        if form.get("Action") != "DescribeSpotPriceHistory":
            return None
        types, products = _list(form, "InstanceType"), _list(form, "ProductDescription")
        zones = _list(form, "Filter.1.Value") if form.get("Filter.1.Name") == "availability-zone" else []
        if "NextToken" in form and not form["NextToken"].isdigit():
            return ec2_error("InvalidPaginationToken", "bad token")
        start, end = _time(form.get("StartTime"), now), _time(form.get("EndTime"), now)
        entries: list[tuple[str, str, str, datetime, Decimal]] = []
        for (name, zone, product), history in sorted(self.markets.items()):
            asked_for = (not types or name in types) and (not zones or zone in zones) and (not products or product in products)
            if asked_for and zone.startswith(region):
                entries += [(name, zone, product, at, usd) for at, usd in _shown(history, start, min(end, now))]
        random.Random(7).shuffle(entries)  # noqa: S311 - an order is drawn, not secret
        first = int(form.get("NextToken") or 0)
        last = first + min(self.page, int(form.get("MaxResults") or 1000))
        token = str(last) if last < len(entries) else ""
        items = "".join(_item(*entry) for entry in entries[first:last])
        body = f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{token}</nextToken>"
        return ec2_xml("DescribeSpotPriceHistory", body)


def _shown(history: Iterable[tuple[datetime, Decimal]], start: datetime, end: datetime) -> list[tuple[datetime, Decimal]]:
    """The changes from the last one before `start` until `end`."""
    ordered = sorted(entry for entry in history if entry[0] <= end)
    before = [entry for entry in ordered if entry[0] <= start]
    return before[-1:] + [entry for entry in ordered if entry[0] > start]


def _item(name: str, zone: str, product: str, at: datetime, usd: Decimal) -> str:
    told = f"<instanceType>{name}</instanceType><productDescription>{product}</productDescription>"
    price = f"<spotPrice>{usd:.9f}</spotPrice><timestamp>{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.000Z}</timestamp>"
    return f"<item>{told}{price}<availabilityZone>{zone}</availabilityZone></item>"


def _list(form: dict[str, str], name: str) -> list[str]:
    return [value for key, value in form.items() if key.rpartition(".")[0] == name and key.rpartition(".")[2].isdigit()]


def _time(text: str | None, otherwise: datetime) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC) if text else otherwise
