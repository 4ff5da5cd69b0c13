"""Scaleway's Instance and Block Storage APIs over a list of machines, as its SDK (2.12.0) and its documentation tell of them.

Pages by number with `X-Total-Count`; the catalogue in euros; a guest's shutdown leaves an Instance "stopped in place", where it
is billed. Prices in the catalogue are made up.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tests.fakes.server import Answer, Asked, FakeCloud, Hands

KEY = "5ca1ab1e-canary-4f7d-9b1c-0f5c6d7e8f90"
ORGANIZATION, PROJECT = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
ZONE = "fr-par-2"
RUNNING, STOPPED, STANDBY = "running", "stopped", "stopped in place"
GB = 10**9

ACTIONS = {
    RUNNING: ["poweroff", "terminate", "reboot", "stop_in_place", "backup"],
    STOPPED: ["poweron", "backup"],
    STANDBY: ["poweron", "poweroff", "terminate", "backup"],
}
"""What each state allows. Whether `poweroff` is taken in standby is not in the SDK: see `standby_allows`."""


def server_type(price: float, gpus: int, name: str = "", memory_gb: int = 0, vcpus: int = 8) -> dict[str, Any]:
    """One type of the catalogue, with the SDK's fields."""
    return {
        "hourly_price": price,
        "monthly_price": round(price * 730, 2),
        "alt_names": [],
        "ncpus": vcpus,
        "ram": 48 * 2**30,
        "arch": "x86_64",
        "scratch_storage_max_volumes_count": 0,
        "scratch_storage_max_size": 0,
        "block_bandwidth": 41943040,
        "end_of_service": False,
        "gpu": gpus,
        "gpu_info": {"gpu_manufacturer": "NVIDIA", "gpu_name": name, "gpu_memory": memory_gb * GB} if gpus else None,
    }


CATALOGUE = {
    "L4-1-24G": server_type(0.75, 1, "L4", 24),
    "L40S-2-48G": server_type(2.8, 2, "L40S", 48),
    "H100-1-80G": server_type(2.73, 1, "H100", 80),
    "H100-SXM-8-80G": server_type(23.03, 8, "H100-SXM", 80),
    "B300-SXM-8-288G": server_type(60.0, 8, "B300-SXM", 288),
    "RENDER-S": server_type(1.24, 1, "P100", 16),
    "NEW-1-9G": server_type(9.0, 1, "Zebra Z9000", 9),
    "DEV1-S": server_type(0.009, 0, vcpus=2),
}


@dataclass(slots=True, kw_only=True)
class Machine:
    """An Instance. `volumes`: (type, bytes). `tags`: plain texts."""

    id: str
    zone: str = ZONE
    type: str = "L4-1-24G"
    state: str = RUNNING
    name: str = "train"
    created: datetime
    tags: list[str] = field(default_factory=lambda: ["owner=alice", "team=vision", "gpu"])
    volumes: list[tuple[str, int]] = field(default_factory=lambda: [("sbs_volume", 0)])
    protected: bool = False


class FakeScaleway(FakeCloud):
    """`size`: most items of a page. `spoilt`: id -> fields of the wire, `...` leaves one out. `shortages`: types without stock.

    `standby_allows`: whether `poweroff` is among what "stopped in place" allows. `blocks`, `locals`, `ips`: by zone.
    """

    def __init__(self, clock: Hands | None = None, resources: list[Machine] | None = None) -> None:
        super().__init__(clock)
        self.resources = list(resources or [])
        self.blocks: dict[str, list[dict[str, Any]]] = {}
        self.locals: dict[str, list[dict[str, Any]]] = {}
        self.ips: dict[str, list[dict[str, Any]]] = {}
        self.catalogue = dict(CATALOGUE)
        self.spoilt: dict[str, dict[str, Any]] = {}
        self.shortages: set[str] = set()
        self.size, self.standby_allows = 100, True

    def answer(self, asked: Asked) -> Answer:
        """As Scaleway answers; the key comes first."""
        if asked.headers.get("x-auth-token") != KEY:
            body = {
                "message": "authentication is denied",
                "method": "api_key",
                "reason": "not_found",
                "type": "denied_authentication",
            }
            return Answer.of(body, 401)
        for method, pattern, what in self._routes():
            match = re.fullmatch(pattern, asked.path)
            if match and method == asked.method:
                return what(asked, *match.groups())
        return Answer.of({"message": "method not found", "type": "unknown_method"}, 404)

    def _routes(self) -> tuple[tuple[str, str, Callable[..., Answer]], ...]:
        zone = "/instance/v1/zones/([a-z0-9-]+)"
        return (
            ("GET", f"{zone}/servers", lambda a, z: self._page(a, "servers", [self.server(m) for m in self.there(z)])),
            ("GET", f"{zone}/servers/([^/]+)", self._one),
            ("POST", f"{zone}/servers/([^/]+)/action", self._action),
            ("DELETE", f"{zone}/servers/([^/]+)", self._delete),
            ("GET", f"{zone}/volumes", lambda a, z: self._page(a, "volumes", self.locals.get(z, []))),
            ("GET", f"{zone}/ips", lambda a, z: self._page(a, "ips", self.ips.get(z, []))),
            ("GET", f"{zone}/products/servers", self._types),
            ("GET", f"{zone}/products/servers/availability", self._availability),
            ("GET", "/block/v1/zones/([a-z0-9-]+)/volumes", self._block_volumes),
        )

    def there(self, zone: str) -> list[Machine]:
        """The Instances of a zone."""
        return [one for one in self.resources if one.zone == zone]

    def find(self, id_: str) -> Machine | None:
        """The Instance of an id."""
        return next((one for one in self.resources if one.id == id_), None)

    def _cut(self, asked: Asked, rows: list[Any], size: str = "per_page") -> list[Any]:
        count = min(self.size, int(asked.one(size, "50")))
        first = (int(asked.one("page", "1")) - 1) * count
        return rows[first : first + count]

    def _page(self, asked: Asked, name: str, rows: list[dict[str, Any]]) -> Answer:
        return Answer.of({name: self._cut(asked, rows)}, X_Total_Count=str(len(rows)))

    def _block_volumes(self, asked: Asked, zone: str) -> Answer:
        rows = self.blocks.get(zone, [])
        return Answer.of({"volumes": self._cut(asked, rows, "page_size"), "total_count": len(rows)})

    def _types(self, asked: Asked, _: str) -> Answer:
        names = self._cut(asked, sorted(self.catalogue))
        return Answer.of({"servers": {n: self.catalogue[n] for n in names}}, X_Total_Count=str(len(self.catalogue)))

    def _availability(self, asked: Asked, _: str) -> Answer:
        names = self._cut(asked, sorted(self.catalogue))
        states = {n: {"availability": "shortage" if n in self.shortages else "available"} for n in names}
        return Answer.of({"servers": states}, X_Total_Count=str(len(self.catalogue)))

    def server(self, one: Machine) -> dict[str, Any]:
        """An Instance as it goes over the wire, with every field that the SDK requires."""
        allowed = list(ACTIONS.get(one.state, []))
        if one.state == STANDBY and not self.standby_allows:
            allowed.remove("poweroff")
        volumes = {str(n): self._server_volume(one, n, *volume) for n, volume in enumerate(one.volumes)}
        made: dict[str, Any] = {
            "id": one.id,
            "name": one.name,
            "organization": ORGANIZATION,
            "project": PROJECT,
            "allowed_actions": allowed,
            "tags": one.tags,
            "commercial_type": one.type,
            "creation_date": one.created.isoformat(),
            "modification_date": one.created.isoformat(),
            "dynamic_ip_required": False,
            "hostname": one.name,
            "protected": one.protected,
            "public_ips": [],
            "mac_address": "de:00:00:00:00:01",
            "state": one.state,
            "state_detail": "",
            "boot_type": "local",
            "volumes": volumes,
            "maintenances": [],
            "arch": "x86_64",
            "private_nics": [],
            "filesystems": [],
            "end_of_service": False,
            "zone": one.zone,
        }
        made.update(self.spoilt.get(one.id, {}))
        return {name: value for name, value in made.items() if value is not ...}

    def _server_volume(self, one: Machine, number: int, type_: str, size: int) -> dict[str, Any]:
        id_ = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{one.id}/{number}"))
        made = {"id": id_, "volume_type": type_, "boot": number == 0, "zone": one.zone, "state": "available"}
        return {**made, "size": size} if size else made

    def _one(self, _: Asked, zone: str, id_: str) -> Answer:
        one = self.find(id_)
        return Answer.of({"server": self.server(one)}) if one and one.zone == zone else gone(id_)

    def _action(self, asked: Asked, zone: str, id_: str) -> Answer:
        one, action = self.find(id_), asked.json()["action"]
        if one is None or one.zone != zone:
            return gone(id_)
        if action not in self.server(one)["allowed_actions"]:
            return Answer.of(
                {"message": f"resource is not in a state that allows {action}", "type": "invalid_request_error"}, 400
            )
        if not self.deaf:
            self.let(id_, {"poweroff": STOPPED, "poweron": RUNNING, "stop_in_place": STANDBY}.get(action, "ended"))
        task = {
            "id": str(uuid.UUID(int=77)),
            "description": f"server_{action}",
            "progress": 0,
            "status": "pending",
            "zone": zone,
            "href_from": f"/servers/{id_}/action",
            "started_at": self.clock.now().isoformat(),
        }
        return Answer.of({"task": task}, 202)

    def _delete(self, _: Asked, zone: str, id_: str) -> Answer:
        one = self.find(id_)
        if one is None or one.zone != zone:
            return gone(id_)
        if one.state != STOPPED:
            return Answer.of({"message": "instance should be stopped", "type": "invalid_request_error"}, 400)
        if not self.deaf:
            self.let(id_, "ended")
        return Answer(status=204)

    def let(self, id_: str, state: str) -> None:
        """Put an Instance in a state of Scaleway's, or end it."""
        for i, one in enumerate(self.resources):
            if one.id == id_:
                self.resources[i] = replace(one, state=state)
        self.resources[:] = [one for one in self.resources if one.state != "ended"]


def gone(id_: str) -> Answer:
    """There is no such Instance."""
    return Answer.of({"message": f'"{id_}" not found', "type": "unknown_resource"}, 404)


def machine(number: int, now: datetime, **more: Any) -> Machine:  # noqa: ANN401 - fields of Machine
    """An Instance that was made a day ago, with an id that no other number has."""
    return Machine(id=str(uuid.UUID(int=0x5CA1 << 64 | number)), created=now - timedelta(days=1), **more)


def block_volume(number: int, now: datetime, gb: int, type_: str = "sbs_5k") -> dict[str, Any]:
    """A block volume as it goes over the wire."""
    return {
        "id": str(uuid.UUID(int=0xB10C << 64 | number)),
        "name": f"data-{number}",
        "type": type_,
        "size": gb * GB,
        "project_id": PROJECT,
        "references": [],
        "status": "available",
        "tags": ["owner=alice"],
        "zone": ZONE,
        "created_at": (now - timedelta(days=1)).isoformat(),
        "updated_at": now.isoformat(),
    }


def local_volume(number: int, now: datetime, gb: int, type_: str = "l_ssd") -> dict[str, Any]:
    """A volume of the Instance API as it goes over the wire."""
    return {
        "id": str(uuid.UUID(int=0x10CA << 64 | number)),
        "name": f"local-{number}",
        "size": gb * GB,
        "volume_type": type_,
        "organization": ORGANIZATION,
        "project": PROJECT,
        "tags": [],
        "state": "available",
        "zone": ZONE,
        "creation_date": (now - timedelta(days=1)).isoformat(),
        "server": None,
    }


def address(number: int, type_: str = "routed_ipv4") -> dict[str, Any]:
    """A flexible IP as it goes over the wire."""
    return {
        "id": str(uuid.UUID(int=0xADD4 << 64 | number)),
        "address": f"203.0.113.{number}",
        "organization": ORGANIZATION,
        "project": PROJECT,
        "tags": [],
        "type": type_,
        "state": "detached",
        "prefix": "",
        "ipam_id": str(uuid.UUID(int=3)),
        "zone": ZONE,
        "server": None,
    }
