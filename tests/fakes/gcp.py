"""Google Cloud as a view of the simulated world: Compute Engine, the Billing Catalog, Monitoring, the Resource Manager, tokens.

Its quirks (gcp.md): ids are text, zones and types are addresses, times have an offset, scopes stand on every page and empty
ones warn of it, TERMINATED means stopped, operations may fail while the answer is 200. Times have microseconds where the
world's do; the real ones end at milliseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

from costguard_gcp.machine_types import find_shape
from costguard_sim.view import find_last_run, find_state
from costguard_sim.world import SIM_INSTANCE, SIM_VOLUME, Disk, Resource, Run, from_us, to_us

from tests.fakes.gcp_prices import Listed, price_list, storage_sku
from tests.fakes.server import Answer, Asked, FakeCloud, Hands

WRONG = "wrong-canary-0123456789abcdef"
TOKEN = "ya29.gcp-canary-7c1e9b44d2a05f83"  # noqa: S105 - the canary that tests look for
STARTUP = "startup-canary-2b7f8e19c3"
WORDS = {"starting": "STAGING", "running": "RUNNING", "stopping": "STOPPING", "stopped": "TERMINATED"}
API = "https://www.googleapis.com/compute/v1"
PACIFIC = timezone(timedelta(hours=-8))
ZONES = ("us-central1-a", "europe-west4-b", "us-east5-a")


def project_of(resource: Resource) -> str:
    """The project in which a resource of the world stands."""
    return f"{resource.account}-{resource.scope}"


def number_of(id_: str) -> str:
    """A world's id as Google numbers things."""
    return str(10**18 + int.from_bytes(sha256(id_.encode()).digest()[:7]))


def time_text(us: int) -> str:
    """A time as Google writes it."""
    at = from_us(us).astimezone(PACIFIC)
    return at.isoformat(timespec="milliseconds" if us % 1000 == 0 else "microseconds")


def refusal(status: int, reason: str, message: str = "no", **info: str) -> Answer:
    """An error in Google's form."""
    body: dict[str, Any] = {
        "code": status,
        "message": message,
        "errors": [{"reason": reason, "domain": "global", "message": message}],
    }
    if info:
        body["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": info.pop("info"), "metadata": info}]
    return Answer.of({"error": body}, status)


class FakeGCP(FakeCloud):
    """`resources` are of the simulated world. What a test sets:

    `extra`: fields of an instance or a disk by its number, merged in (`...` leaves one out).
    `unreachable`: zones that do not answer.
    `measures`: metric -> number of the machine -> value. `prices`: the price list in place of the world's own.
    `storage`: nano-USD of (line of `gcp_prices.STORAGE`, region), listed before the machines.
    `failing`: operations that come back DONE with this error code.
    """

    def __init__(self, clock: Hands, resources: Iterable[Resource] = ()) -> None:
        super().__init__(clock)
        self.resources = list(resources)
        self.size: int | None = None
        self.extra: dict[str, dict[str, Any]] = {}
        self.unreachable: list[str] = []
        self.measures: dict[str, dict[str, float]] = {}
        self.prices: list[Listed] | None = None
        self.storage: dict[tuple[str, str], int] = {}
        self.addresses: list[dict[str, Any]] = []
        self.failing = ""
        self.token = TOKEN
        self.missing_rights: set[str] = set()
        self.types: dict[str, dict[str, Any]] = {}

    def answer(self, asked: Asked) -> Answer:
        if asked.path in ("/token", "/wrong-token"):
            token = self.token if asked.path == "/token" else WRONG
            return Answer.of({"access_token": token, "expires_in": 3599, "token_type": "Bearer"})
        if asked.headers.get("authorization") not in (None, f"Bearer {TOKEN}"):
            return refusal(401, "authError", "Request had invalid authentication credentials.")
        for pattern, method in _ROUTES:
            found = re.fullmatch(pattern, asked.path)
            if found:
                right: Answer = getattr(self, method.__name__)(asked, *found.groups())
                return right
        return refusal(404, "notFound", "The requested URL was not found.")

    # Compute Engine

    def instances(self, project: str) -> list[dict[str, Any]]:
        """Every machine of the project, as it goes over the wire now."""
        return [wire for one in self.resources if one.kind == SIM_INSTANCE and (wire := self._instance(one, project))]

    def disks(self, project: str) -> list[dict[str, Any]]:
        """Every persistent disk: of machines and by themselves."""
        now, found = to_us(self.clock.now()), list[dict[str, Any]]()
        for one in self.resources:
            if project_of(one) == project and find_state(one, now) is not None:
                found += [self._disk(one, disk, n, project) for n, disk in enumerate(one.disks)]
        return found

    def aggregated(self, asked: Asked, project: str, what: str) -> Answer:
        """A page over all zones; pages cut across zones."""
        if not self._known(project):
            return refusal(403, "forbidden", f"Required 'compute.{what}.list' permission for 'projects/{project}'")
        every = self._every(what, project)
        every = [one for one in every if _place(one) not in self.unreachable]
        size = self.size if self.size is not None else int(asked.one("maxResults", "500"))
        first = int(asked.one("pageToken", "0"))
        page = every[first : first + size]
        items: dict[str, Any] = {f"zones/{zone}": _empty(zone) for zone in (*ZONES, "us-west9-z")}
        for one in page:
            where = _place(one)
            scope = f"{'zones' if where.count('-') > 1 else 'regions'}/{where}"
            held = items.get(scope)
            items[scope] = {what: [*held[what], one]} if held and what in held else {what: [one]}
        items |= {f"zones/{zone}": _warned("UNREACHABLE", zone) for zone in self.unreachable}
        kind = {"instances": "instance", "disks": "disk", "addresses": "address"}[what]
        body: dict[str, Any] = {
            "kind": f"compute#{kind}AggregatedList",
            "id": f"projects/{project}/aggregated/{what}",
            "items": items,
            "selfLink": f"{API}/projects/{project}/aggregated/{what}",
        }
        if first + size < len(every):
            body["nextPageToken"] = str(first + size)
        if self.unreachable:
            body["unreachables"] = [f"projects/{project}/zones/{zone}" for zone in self.unreachable]
        return Answer.of(body)

    def zonal(self, asked: Asked, project: str, _places: str, place: str, what: str) -> Answer:
        """The list of one zone or region, filtered by number."""
        wanted = re.fullmatch(r"id = (\d+)", asked.one("filter"))
        if wanted is None:
            return refusal(400, "invalid", "Invalid value for field 'filter'")
        every = self._every(what, project)
        found = [one for one in every if str(one["id"]) == wanted[1] and _place(one) == place]
        kind = {"instances": "instance", "disks": "disk", "addresses": "address"}[what]
        body = {"kind": f"compute#{kind}List", "id": f"projects/{project}/zones/{place}/{what}", "selfLink": API}
        return Answer.of(body | ({"items": found} if found else {}))

    def machine_type(self, _asked: Asked, _project: str, _zone: str, name: str) -> Answer:
        """One machine type."""
        stated = self.types.get(name)
        return (
            Answer.of({"kind": "compute#machineType", "name": name, **stated})
            if stated
            else refusal(404, "notFound", "no such type")
        )

    def stop(self, asked: Asked, project: str, zone: str, name: str) -> Answer:
        """Stop one machine, by its name."""
        found = self._named(project, zone, name)
        if found is None:
            return refusal(404, "notFound", f"The resource '{name}' was not found")
        one, wire = found
        shape = find_shape(wire["machineType"].rsplit("/", 1)[-1])
        scratch = any(disk.get("type") == "SCRATCH" for disk in wire.get("disks", ())) or (shape and shape.ssd_gib)
        if scratch and asked.one("discardLocalSsd") != "true":
            message = "VM has a Local SSD attached but an undefined value for `discard-local-ssd`"
            return refusal(400, "invalid", message)
        if not self.deaf and not self.failing:
            self.change(one, state="stopped")
        return self._operation(project, zone, "stop", wire)

    def start(self, _asked: Asked, project: str, zone: str, name: str) -> Answer:
        """Start one machine, by its name."""
        found = self._named(project, zone, name)
        if found is None:
            return refusal(404, "notFound", f"The resource '{name}' was not found")
        one, wire = found
        if not self.deaf and not self.failing and wire["status"] == "TERMINATED":
            self.change(one, state="running")
        return self._operation(project, zone, "start", wire)

    def delete(self, _asked: Asked, project: str, zone: str, name: str) -> Answer:
        """Delete one machine, by its name."""
        found = self._named(project, zone, name)
        if found is None:
            return refusal(404, "notFound", f"The resource '{name}' was not found")
        one, wire = found
        if wire.get("deletionProtection"):
            return refusal(412, "conditionNotMet", "Resource cannot be deleted if it's protected against deletion.")
        if not self.deaf and not self.failing:
            self.change(one, state="ended")
        return self._operation(project, zone, "delete", wire)

    def change(self, one: Resource, state: str) -> None:
        """Make a resource of the world running, stopped or ended, now."""
        now = to_us(self.clock.now())
        runs = list(one.runs)
        if state != "running" and runs and runs[-1].stop_us is None:
            runs[-1] = replace(runs[-1], stop_us=now, stopping_us=0)
        if state == "running" and runs and runs[-1].stop_us is not None:
            runs.append(Run(start_us=now))
        ended = now if state == "ended" else None
        self.resources[self.resources.index(one)] = replace(one, runs=tuple(runs), ended_us=ended)

    def of_number(self, number: str) -> Resource:
        """The machine with that number."""
        return next(one for one in self.resources if number_of(one.id) == number)

    # The other services

    def skus(self, asked: Asked) -> Answer:
        """A page of the price list."""
        storage = [storage_sku(line, region, nano) for (line, region), nano in self.storage.items()]
        every = [*storage, *price_list(self.listed() if self.prices is None else self.prices)]
        first, size = int(asked.one("pageToken", "0")), max(1, min(int(asked.one("pageSize", "5000")), (len(every) + 1) // 2))
        more = {"nextPageToken": str(first + size) if first + size < len(every) else ""}
        return Answer.of({"skus": every[first : first + size], **more})

    def listed(self) -> list[Listed]:
        """What the machines of the world cost now; one type has one price in a region."""
        now, found = to_us(self.clock.now()), list[Listed]()
        for one in self.resources:
            if one.kind == SIM_INSTANCE and one.rates and one.shapes:
                rate = [r for r in one.rates if r.at_us <= now][-1:] or list(one.rates[:1])
                shape = [s for s in one.shapes if s.at_us <= now][-1:] or list(one.shapes[:1])
                found.append(Listed(shape[0].type, one.region.rpartition("-")[0], one.tier, rate[0].nano))
        return found

    def series(self, asked: Asked, _project: str) -> Answer:
        """Points of one metric, newest first."""
        metric = re.search(r'metric\.type="([^"]+)"', asked.one("filter"))
        values = self.measures.get(metric[1], {}) if metric else {}
        end = datetime.fromisoformat(asked.one("interval.endTime")).astimezone(UTC)
        times = [end - timedelta(seconds=60 * n) for n in range(1, 4)]
        made = []
        for number, value in values.items():
            states = (("used", value), ("free", 100 - value)) if "bytes_used" in asked.one("filter") else (("", value),)
            for state, amount in states:
                points = [
                    {"interval": {"startTime": _z(at), "endTime": _z(at)}, "value": {"doubleValue": amount}} for at in times
                ]
                labels = {"gpu_number": "0", "memory_state": state} if state else {}
                one: dict[str, Any] = {
                    "metric": {"type": metric[1] if metric else "", "labels": labels},
                    "resource": {"type": "gce_instance", "labels": {"instance_id": number}},
                    "metricKind": "GAUGE",
                    "valueType": "DOUBLE",
                }
                made.append(one if asked.one("view") == "HEADERS" else one | {"points": points})
        return Answer.of({"timeSeries": made, "unit": "1"} if made else {})

    def search(self, asked: Asked) -> Answer:
        """A page of projects; those that are being deleted are not asked for."""
        every = sorted({project_of(one) for one in self.resources})
        first = int(asked.one("pageToken", "0"))
        projects = [{"name": "projects/1", "projectId": name, "state": "ACTIVE"} for name in every[first : first + 1]]
        more = {"nextPageToken": str(first + 1)} if first + 1 < len(every) else {}
        return Answer.of({"projects": projects, **more})

    def permissions(self, asked: Asked, _project: str) -> Answer:
        """Those of the asked rights that the caller has."""
        return Answer.of({"permissions": [one for one in asked.json()["permissions"] if one not in self.missing_rights]})

    # Parts

    def _every(self, what: str, project: str) -> list[dict[str, Any]]:
        return self.addresses if what == "addresses" else self.disks(project) if what == "disks" else self.instances(project)

    def _known(self, project: str) -> bool:
        return not self.resources or any(project_of(one) == project for one in self.resources)

    def _named(self, project: str, zone: str, name: str) -> tuple[Resource, dict[str, Any]] | None:
        for one in self.resources:
            wire = self._instance(one, project) if one.kind == SIM_INSTANCE else None
            if wire and one.region == zone and (wire.get("name") or one.name) == name:
                return one, wire
        return None

    def _instance(self, one: Resource, project: str) -> dict[str, Any] | None:
        now = to_us(self.clock.now())
        state = find_state(one, now) if project_of(one) == project else None
        if state is None:
            return None
        run, shape = find_last_run(one, now), [s for s in one.shapes if s.at_us <= now][-1:] or list(one.shapes[:1])
        over = [r.stop_us for r in one.runs if r.stop_us is not None and r.stop_us <= now]
        tag = [t for t in one.tags if t.at_us <= now][-1:] or list(one.tags[:1])
        kind = find_shape(shape[0].type)
        zone = f"{API}/projects/{project}/zones/{one.region}"
        wire: dict[str, Any] = {
            "kind": "compute#instance",
            "id": number_of(one.id),
            "creationTimestamp": time_text(one.created_us),
            "name": one.name,
            "machineType": f"{zone}/machineTypes/{shape[0].type}",
            "status": WORDS[state],
            "zone": zone,
            "disks": [_attached(disk, n, zone, one) for n, disk in enumerate(one.disks)],
            "metadata": {"kind": "compute#metadata", "items": [{"key": "startup-script", "value": f"export KEY={STARTUP}"}]},
            "scheduling": {
                "onHostMaintenance": "TERMINATE",
                "automaticRestart": one.tier != "spot",
                "preemptible": one.tier == "spot",
                "provisioningModel": "SPOT" if one.tier == "spot" else "STANDARD",
            },
            "labels": {**dict(tag[0].labels), **({"owner": tag[0].owner} if tag and tag[0].owner else {})} if tag else {},
            "deletionProtection": False,
            "lastStartTimestamp": time_text(run.start_us) if run else "",
            "lastStopTimestamp": time_text(over[-1]) if over else "",
        }
        if kind and kind.gpus:
            accelerator = f"{zone}/acceleratorTypes/{kind.accelerator}"
            wire["guestAccelerators"] = [{"acceleratorType": accelerator, "acceleratorCount": max(1, int(kind.gpus))}]
        wire |= self.extra.get(number_of(one.id), {})
        return {name: value for name, value in wire.items() if value is not ...}

    def _disk(self, one: Resource, disk: Disk, n: int, project: str) -> dict[str, Any]:
        zone = f"{API}/projects/{project}/zones/{one.region}"
        user = {"users": [f"{zone}/instances/{one.name}"]} if one.kind == SIM_INSTANCE else {}
        number = number_of(one.id if one.kind == SIM_VOLUME else f"{one.id}/{n}")
        wire = {
            "kind": "compute#disk",
            "id": number,
            "creationTimestamp": time_text(one.created_us),
            "name": f"{one.name}-{n}",
            "sizeGb": str(disk.gb),
            "zone": zone,
            "status": "READY",
            "type": f"{zone}/diskTypes/{disk.type}",
            **user,
            **self.extra.get(number, {}),
        }
        return {name: value for name, value in wire.items() if value is not ...}

    def _operation(self, project: str, zone: str, verb: str, wire: Mapping[str, Any]) -> Answer:
        place = f"{API}/projects/{project}/zones/{zone}"
        body: dict[str, Any] = {
            "kind": "compute#operation",
            "id": "7261553109826353122",
            "name": "operation-1",
            "zone": place,
            "operationType": verb,
            "targetLink": f"{place}/instances/{wire.get('name')}",
            "targetId": wire["id"],
            "status": "DONE" if self.failing else "RUNNING",
            "user": "costguard@example.iam.gserviceaccount.com",
            "progress": 0,
            "insertTime": time_text(to_us(self.clock.now())),
        }
        if self.failing:
            body |= {"httpErrorStatusCode": 503, "error": {"errors": [{"code": self.failing, "message": "cannot"}]}}
        return Answer.of(body)


def _z(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _place(one: Mapping[str, Any]) -> str:
    return str(one.get("zone") or one.get("region") or "global").rsplit("/", 1)[-1]


def _empty(zone: str) -> dict[str, Any]:
    return _warned("NO_RESULTS_ON_PAGE", zone)


def _warned(code: str, zone: str) -> dict[str, Any]:
    return {"warning": {"code": code, "message": code.lower(), "data": [{"key": "scope", "value": f"zones/{zone}"}]}}


def _attached(disk: Disk, n: int, zone: str, one: Resource) -> dict[str, Any]:
    return {
        "kind": "compute#attachedDisk",
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "source": f"{zone}/disks/{one.name}-{n}",
        "deviceName": f"persistent-disk-{n}",
        "index": n,
        "boot": n == 0,
        "autoDelete": n == 0,
        "diskSizeGb": str(disk.gb),
    }


def account_file(base: str, token_path: str = "/token") -> str:  # noqa: S107 - a path
    """A service account's key that asks for tokens at `base`."""
    return json.dumps(
        {
            "type": "service_account",
            "project_id": "acme-lab",
            "private_key_id": "0123456789abcdef",
            "private_key": private_key(),
            "client_email": "costguard@acme-lab.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": f"{base}{token_path}",
        }
    )


_KEYS: list[str] = []


def private_key() -> str:
    """A key of our own, made once."""
    if not _KEYS:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        made = rsa.generate_private_key(65537, 2048)
        form = serialization.PrivateFormat.PKCS8
        _KEYS.append(made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode())
    return _KEYS[0]


_Route = Callable[..., Answer]
_ROUTES: tuple[tuple[str, _Route], ...] = (
    (r"/compute/v1/projects/([^/]+)/aggregated/(instances|disks|addresses)", FakeGCP.aggregated),
    (r"/compute/v1/projects/([^/]+)/(zones|regions)/([^/]+)/(instances|disks|addresses)", FakeGCP.zonal),
    (r"/compute/v1/projects/([^/]+)/zones/([^/]+)/machineTypes/([^/]+)", FakeGCP.machine_type),
    (r"/compute/v1/projects/([^/]+)/zones/([^/]+)/instances/([^/]+)/stop", FakeGCP.stop),
    (r"/compute/v1/projects/([^/]+)/zones/([^/]+)/instances/([^/]+)/start", FakeGCP.start),
    (r"/compute/v1/projects/([^/]+)/zones/([^/]+)/instances/([^/]+)", FakeGCP.delete),
    (r"/v1/services/6F81-5844-456A/skus", FakeGCP.skus),
    (r"/v3/projects/([^/]+)/timeSeries", FakeGCP.series),
    (r"/v3/projects:search", FakeGCP.search),
    (r"/v3/projects/([^/]+):testIamPermissions", FakeGCP.permissions),
)
