"""Azure over the wire: the Resource Manager, Entra ID's tokens, the Retail Prices API, as azure-mgmt-compute 39.0.0 reads them.

`statusOnly` may come with and without sizes and tags (`bare`): which it is, is not documented. Names are compared without case.
An act is taken with 202 and an operation's address; with `failing` the operation comes to nothing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.fakes.server import START, Answer, Asked, FakeCloud, Hands

TENANT, CLIENT = "11111111-2222-3333-4444-555555555555", "99999999-8888-7777-6666-555555555555"
SECRET = "canary~Azure8Q~k3vZxKp2TgW7yLr4NdHs6JQm5d1f"  # noqa: S105 - a canary
TOKEN = "eyJ0canaryAzure.b7d30d9d3e4d8fa41657bc0d478c1b.Qm3vZ8xKp2TgW7yLr4"  # noqa: S105 - a canary
SUBSCRIPTION, OTHER = "aaaaaaaa-0000-4000-8000-00000000000a", "bbbbbbbb-0000-4000-8000-00000000000b"
SIZE = "Standard_NC24ads_A100_v4"
PRICES = {
    SIZE: 3.673,
    "Standard_ND96isr_H100_v5": 98.32,
    "Standard_NC4as_T4_v3": 0.526,
    "Standard_D8s_v5": 0.384,
    "Standard_D4ds_v5": 0.226,
}
"""USD an hour in every region; spot costs 3/10, Windows 3/2 of it."""
DISK_PRICES = {"P10 LRS": 19.71, "P30 LRS": 122.88, "E10 LRS": 9.6, "S30 LRS": 40.96}
"""USD a month, by the meter's name without "Disk"."""
COMPUTE = "Microsoft.Compute"


@dataclass(eq=False, kw_only=True)
class FakeMachine:
    """A machine. `power`: Azure's word, None for none stated. `edits`: fields at dotted paths that go over the wire instead."""

    name: str
    created: datetime
    subscription: str = SUBSCRIPTION
    group: str = "Lab"
    size: str = SIZE
    location: str = "westeurope"
    power: str | None = "running"
    priority: str = "Regular"
    tags: dict[str, str] = field(default_factory=lambda: {"Owner": "alice", "project": "llm"})
    windows: bool = False
    ephemeral: bool = False
    locked: bool = False
    scale_set: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    edits: list[tuple[str, Any]] = field(default_factory=list)
    vm_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def id(self) -> str:
        return make_id(self.subscription, self.group, f"{COMPUTE}/virtualMachines", self.name)


def make_id(subscription: str, group: str, kind: str, name: str) -> str:
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{kind}/{name}"


def make_disk(name: str, sku: str, gb: int, created: datetime, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - fields
    """A managed disk as it goes over the wire."""
    return {
        "id": make_id(SUBSCRIPTION, "LAB", f"{COMPUTE}/disks", name),
        "name": name,
        "type": f"{COMPUTE}/disks",
        "location": "westeurope",
        "tags": {"owner": "bob"},
        "sku": {"name": sku, "tier": sku.partition("_")[0]},
        "properties": {
            "diskSizeGB": gb,
            "diskState": "Unattached",
            "timeCreated": format_time(created),
            "provisioningState": "Succeeded",
        },
        **more,
    }


def make_address(name: str, **properties: Any) -> dict[str, Any]:  # noqa: ANN401 - fields
    """A public address as it goes over the wire."""
    usual = {"ipAddress": "198.51.100.7", "publicIPAddressVersion": "IPv4", "publicIPAllocationMethod": "Static"}
    return {
        "id": make_id(SUBSCRIPTION, "lab", "Microsoft.Network/publicIPAddresses", name),
        "name": name,
        "location": "westeurope",
        "sku": {"name": "Standard", "tier": "Regional"},
        "properties": {**usual, **properties},
    }


def make_scale_set(name: str, priority: str = "Regular", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - fields
    """A uniform scale set as it goes over the wire."""
    return {
        "id": make_id(SUBSCRIPTION, "MC_ml_cluster_westeurope", f"{COMPUTE}/virtualMachineScaleSets", name),
        "name": name,
        "location": "westeurope",
        "tags": {"aks-managed-poolName": "gpupool"},
        "sku": {"name": SIZE, "tier": "Standard", "capacity": 2},
        "properties": {"orchestrationMode": "Uniform", "virtualMachineProfile": {"priority": priority}},
        **more,
    }


class FakeAzure(FakeCloud):
    """`size`: items a page. `bare`: what `statusOnly` leaves out. `forbidden`: subscriptions that may not be read.

    `disks`, `addresses`, `sets`: as they go over the wire; `members`: of a scale set, by its name.
    """

    def __init__(self, clock: Hands | None = None) -> None:
        super().__init__(clock)
        self.resources: list[FakeMachine] = []
        self.disks: list[dict[str, Any]] = []
        self.addresses: list[dict[str, Any]] = []
        self.sets: list[dict[str, Any]] = []
        self.members: dict[str, list[FakeMachine]] = {}
        self.subscriptions = [SUBSCRIPTION, OTHER]
        self.forbidden: set[str] = set()
        self.size, self.bare, self.failing, self.scheme = 1000, False, False, "http"
        self.actions = ["*"]
        self.priced = True
        self.expired = False
        self.measures: dict[str, dict[str, float]] = {}
        """Metric -> name of a machine -> its figure in every minute."""

    def answer(self, asked: Asked) -> Answer:  # noqa: PLR0911 - one a service
        path = unquote(asked.path)
        if path.endswith("/oauth2/v2.0/token"):
            return self._token(path, asked)
        if path == "/api/retail/prices":
            return self._prices(asked)
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return refusal(401, "InvalidAuthenticationToken", "The access token is invalid.")
        if self.expired:
            return refusal(401, "ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than now.")
        parts = path.strip("/").split("/")
        if parts == ["subscriptions"]:
            rows = [
                {"id": f"/subscriptions/{one}", "subscriptionId": one, "displayName": "lab", "state": "Enabled"}
                for one in self.subscriptions
            ]
            return self._page(asked, rows)
        subscription = parts[1].lower()
        if subscription not in self.subscriptions:
            return refusal(404, "SubscriptionNotFound", f"The subscription '{subscription}' could not be found.")
        if subscription in self.forbidden:
            return refusal(403, "AuthorizationFailed", "The client does not have authorization to perform the action.")
        for pattern, method in ROUTES:
            match = re.fullmatch(pattern, "/".join(parts[2:]), re.IGNORECASE)
            if match:
                right: Answer = getattr(self, method.__name__)(asked, subscription, *match.groups())
                return right
        return refusal(404, "InvalidResourceType", "The resource type could not be found.")

    def _token(self, path: str, asked: Asked) -> Answer:
        form = {key: values[0] for key, values in parse_qs(asked.body.decode()).items()}
        if path.split("/")[1] != TENANT:
            return Answer.of(
                {"error": "invalid_request", "error_description": f"AADSTS90002: Tenant '{path[:20]}' not found."}, 400
            )
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT, SECRET):
            text = f"AADSTS7000215: Invalid client secret provided: {form.get('client_secret')}."
            return Answer.of({"error": "invalid_client", "error_description": text}, 401)
        return Answer.of({"token_type": "Bearer", "expires_in": 3599, "ext_expires_in": 3599, "access_token": TOKEN})

    def _page(self, asked: Asked, rows: list[dict[str, Any]]) -> Answer:
        first = int(asked.one("$skiptoken", "0"))
        after = first + self.size
        query = "&".join(f"{name}={values[0]}" for name, values in asked.query.items() if name != "$skiptoken")
        link = f"{self.scheme}://{asked.headers.get('host')}{asked.path}?{query}&$skiptoken={after}"
        return Answer.of({"value": rows[first:after], **({"nextLink": link} if after < len(rows) else {})})

    def _machines(self, asked: Asked, subscription: str) -> Answer:
        there = [one for one in self.resources if one.subscription == subscription]
        status = asked.one("statusOnly") == "true"
        return self._page(asked, [self.wire(one, view=status, bare=status and self.bare) for one in there])

    def _machine(self, asked: Asked, subscription: str, group: str, name: str) -> Answer:
        one = self.find(subscription, group, name)
        if one is None:
            return gone(name)
        if asked.method != "DELETE":
            return Answer.of(self.wire(one, view=asked.one("$expand") == "instanceView"))
        if one.locked:
            return refusal(
                409, "ScopeLocked", "The scope cannot perform delete operation because following scope(s) are locked."
            )
        if not self.deaf and not self.failing:
            self.resources.remove(one)
        return self._operation(asked)

    def _act(self, asked: Asked, subscription: str, group: str, name: str, verb: str) -> Answer:
        one = self.find(subscription, group, name)
        if one is None:
            return gone(name)
        if one.locked and verb != "start":
            return refusal(
                409, "ScopeLocked", "The scope cannot perform write operation because following scope(s) are locked."
            )
        if one.ephemeral and verb.lower() == "deallocate":
            return refusal(409, "OperationNotAllowed", "Deallocate is not supported for VMs with an ephemeral OS disk.")
        if not self.deaf and not self.failing:
            one.power = {"deallocate": "deallocated", "start": "running", "poweroff": "stopped"}[verb.lower()]
        return self._operation(asked)

    def _operation(self, asked: Asked) -> Answer:
        where = f"{self.scheme}://{asked.headers.get('host')}/subscriptions/{SUBSCRIPTION}/providers/{COMPUTE}/operations/1"
        headers = {"Azure-AsyncOperation": where, "Location": where, "Retry-After": "10"}
        return Answer(status=202, headers=headers)

    def _sets(self, asked: Asked, subscription: str) -> Answer:
        return self._page(asked, [one for one in self.sets if subscription in one["id"]])

    def _set(self, _asked: Asked, _subscription: str, _group: str, name: str) -> Answer:
        return next((Answer.of(one) for one in self.sets if one["name"].lower() == name.lower()), gone(name))

    def _members(self, asked: Asked, _subscription: str, _group: str, name: str, number: str | None = None) -> Answer:
        rows = []
        for n, one in enumerate(self.members.get(name, [])):
            wire = self.wire(one, view=True)
            wire["id"] = (
                f"{make_id(one.subscription, one.group, f'{COMPUTE}/virtualMachineScaleSets', name)}/virtualMachines/{n}"
            )
            wire |= {"instanceId": str(n), "sku": {"name": one.size, "tier": "Standard"}}
            del wire["properties"]["hardwareProfile"], wire["properties"]["priority"]
            rows.append(wire)
        if number is None:
            return self._page(asked, rows)
        return Answer.of(rows[int(number)]) if int(number) < len(rows) else gone(number)

    def _disks(self, asked: Asked, subscription: str) -> Answer:
        return self._page(asked, [one for one in self.disks if subscription in one["id"]])

    def _disk(self, _asked: Asked, _subscription: str, _group: str, name: str) -> Answer:
        return next((Answer.of(one) for one in self.disks if one["name"].lower() == name.lower()), gone(name))

    def _addresses(self, asked: Asked, subscription: str) -> Answer:
        return self._page(asked, [one for one in self.addresses if subscription in one["id"]])

    def _address(self, _asked: Asked, _subscription: str, _group: str, name: str) -> Answer:
        return next((Answer.of(one) for one in self.addresses if one["name"].lower() == name.lower()), gone(name))

    def _metrics(self, asked: Asked, subscription: str) -> Answer:
        """The figures of all machines of a region, each minute of the span."""
        start, end = (datetime.fromisoformat(at) for at in asked.one("timespan").split("/"))
        first = start.replace(second=0, microsecond=0)
        minutes = [first + timedelta(minutes=n) for n in range(int((end - start) / timedelta(minutes=1)) + 1)]
        there = [one for one in self.resources if one.subscription == subscription and one.location == asked.one("region")]
        value = []
        for name in asked.one("metricnames").split(","):
            kind, figures = ("average" if name == "Percentage CPU" else "total"), self.measures.get(name, {})
            series = [
                {
                    "metadatavalues": [{"name": {"value": "Microsoft.ResourceId"}, "value": one.id.lower()}],
                    "data": [{"timeStamp": f"{at:%Y-%m-%dT%H:%M:%SZ}", kind: figures[one.name]} for at in minutes if at < end],
                }
                for one in there
                if one.name in figures
            ]
            value.append({"name": {"value": name, "localizedValue": name}, "unit": "Percent", "timeseries": series})
        return Answer.of({"cost": 0, "interval": "PT1M", "value": value})

    def _rights(self, asked: Asked, _subscription: str) -> Answer:
        return self._page(asked, [{"actions": self.actions, "notActions": []}])

    def find(self, subscription: str, group: str, name: str) -> FakeMachine | None:
        """The machine of these names, in any case."""
        wanted = make_id(subscription, group, f"{COMPUTE}/virtualMachines", name).lower()
        return next((one for one in self.resources if one.id.lower() == wanted), None)

    def wire(self, one: FakeMachine, *, view: bool, bare: bool = False) -> dict[str, Any]:
        """A machine as it goes over the wire."""
        os_disk: dict[str, Any] = {
            "osType": "Windows" if one.windows else "Linux",
            "createOption": "FromImage",
            "deleteOption": "Delete",
        }
        if one.ephemeral:
            os_disk["diffDiskSettings"] = {"option": "Local"}
        properties: dict[str, Any] = {
            "vmId": one.vm_id,
            "provisioningState": "Succeeded",
            "timeCreated": format_time(one.created),
            "hardwareProfile": {"vmSize": one.size},
            "priority": one.priority,
            "storageProfile": {"osDisk": os_disk, "dataDisks": []},
            **one.fields,
        }
        if one.scale_set:
            set_id = make_id(one.subscription, one.group, f"{COMPUTE}/virtualMachineScaleSets", one.scale_set)
            properties["virtualMachineScaleSet"] = {"id": set_id}
        power = (
            []
            if one.power is None
            else [{"code": f"PowerState/{one.power}", "level": "Info", "displayStatus": f"VM {one.power}"}]
        )
        if view:
            properties["instanceView"] = {"statuses": [{"code": "ProvisioningState/succeeded", "level": "Info"}, *power]}
        if bare:
            properties = {key: properties[key] for key in ("vmId", "provisioningState", "timeCreated", "instanceView")}
        wire: dict[str, Any] = {"name": one.name, "id": one.id, "type": f"{COMPUTE}/virtualMachines", "location": one.location}
        wire |= {} if bare else {"tags": dict(one.tags)}
        wire["properties"] = properties
        for path, value in one.edits:
            put(wire, path, value)
        return wire

    def _prices(self, asked: Asked) -> Answer:
        if not self.priced:
            return Answer(status=429, headers={"Retry-After": "3600"})
        filter_ = asked.one("$filter")
        region = re.search(r"armRegionName eq '([^']*)'", filter_)
        where = region[1] if region else ""
        if "'Storage'" in filter_:
            rows = [
                price_row("", where, price, f"{name} Disk", "Premium SSD Managed Disks", "1/Month")
                for name, price in DISK_PRICES.items()
            ]
        else:
            rows = []
            for size in re.findall(r"armSkuName eq '([^']*)'", filter_):
                if size in PRICES:
                    usd, short, product = PRICES[size], size.removeprefix("Standard_"), f"Virtual Machines {size} Series"
                    rows += [
                        price_row(size, where, usd * 2, short, product, effectiveStartDate="2020-01-01T00:00:00Z"),
                        price_row(size, where, usd, short, product),
                        price_row(size, where, usd * 9, short, product, effectiveStartDate="2030-01-01T00:00:00Z"),
                        price_row(size, where, usd * 0.3, f"{short} Spot", product),
                        price_row(size, where, usd * 1.5, short, f"{product} Windows"),
                        price_row(size, where, usd * 0.1, f"{short} Low Priority", product),
                    ]
        first = int(asked.one("$skip", "0"))
        query = "&".join(f"{name}={values[0]}" for name, values in asked.query.items() if name != "$skip")
        link = f"{self.scheme}://{asked.headers.get('host')}/api/retail/prices?{query}&$skip={first + 4}".replace(" ", "%20")
        return Answer.of(
            {"Items": rows[first : first + 4], "NextPageLink": link if first + 4 < len(rows) else None, "Count": 4}
        )


def price_row(  # noqa: PLR0917 - columns
    size: str, region: str, usd: float, name: str, product: str, unit: str = "1 Hour", **more: str
) -> dict[str, Any]:
    """A row of the Retail Prices API."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": round(usd, 6),
        "unitPrice": round(usd, 6),
        "armRegionName": region,
        "effectiveStartDate": "2026-10-01T00:00:00Z",
        "meterName": name,
        "productName": product,
        "skuName": name,
        "armSkuName": size,
        "unitOfMeasure": unit,
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        **more,
    }


_VM = rf"resourceGroups/([^/]+)/providers/{COMPUTE}/virtualMachines/([^/]+)"
_SET = rf"resourceGroups/([^/]+)/providers/{COMPUTE}/virtualMachineScaleSets/([^/]+)"
ROUTES: tuple[tuple[str, Callable[..., Answer]], ...] = (
    (rf"providers/{COMPUTE}/virtualMachines", FakeAzure._machines),
    (_VM, FakeAzure._machine),
    (rf"{_VM}/(deallocate|start|powerOff)", FakeAzure._act),
    (rf"providers/{COMPUTE}/virtualMachineScaleSets", FakeAzure._sets),
    (_SET, FakeAzure._set),
    (rf"{_SET}/virtualMachines(?:/(\d+))?", FakeAzure._members),
    (rf"providers/{COMPUTE}/disks", FakeAzure._disks),
    (rf"resourceGroups/([^/]+)/providers/{COMPUTE}/disks/([^/]+)", FakeAzure._disk),
    (r"providers/Microsoft.Network/publicIPAddresses", FakeAzure._addresses),
    (r"resourceGroups/([^/]+)/providers/Microsoft.Network/publicIPAddresses/([^/]+)", FakeAzure._address),
    (r"providers/Microsoft.Insights/metrics", FakeAzure._metrics),
    (r"providers/Microsoft.Authorization/permissions", FakeAzure._rights),
)


def refusal(status: int, code: str, message: str) -> Answer:
    """An error in the Resource Manager's form."""
    return Answer.of({"error": {"code": code, "message": message}}, status)


def gone(name: str) -> Answer:
    return refusal(404, "ResourceNotFound", f"The Resource '{name}' under resource group was not found.")


def format_time(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z").replace("Z", "0+00:00")


def put(wire: dict[str, Any], path: str, value: Any) -> None:  # noqa: ANN401 - as the wire has it
    """Overwrite the field at a dotted path; `...` leaves it out."""
    *outer, last = path.split(".")
    for name in outer:
        wire = wire.setdefault(name, {})
        if not isinstance(wire, dict):
            return
    if value is ...:
        wire.pop(last, None)
    else:
        wire[last] = value


def machine(name: str, clock: Hands | None = None, **more: Any) -> FakeMachine:  # noqa: ANN401 - fields of FakeMachine
    """A plain running machine, made an hour ago."""
    return FakeMachine(name=name, created=(clock.now() if clock else START) - timedelta(hours=1), **more)
