"""Lambda Cloud as its OpenAPI (1.10.0) and its users tell of it, over a list of simulated resources.

No time stands in an instance; names, addresses and tags are missing at times; there are no pages but in the audit log; the key
may be given as Bearer or as the user of Basic; filesystems are listed with a hyphen and deleted without; booting machines
cannot be ended; one that ends is `terminating` for some seconds, then out of the listing, then for an hour still known by id.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from costguard_sim.view import find_last_run
from costguard_sim.world import SECOND_US, SIM_INSTANCE, Resource, from_us, to_us

from tests.fakes.server import Answer, Asked, FakeCloud, Hands

KEY = "secret_canary-lambda_5d1f0b7a93c24e68.Qm3vZ8xKp2TgW7yLr4NdHs6J"
JUPYTER = "jupyter-canary-03b7d30d9d3e4d8fa41657bc0d478c1b"
OWNER = "lrn:cloud:account:fedcba9876543210fedcba9876543210"

TERMINATING_US = 45 * SECOND_US
KNOWN_US = 3600 * SECOND_US
"""How long a machine that ended is listed as terminating, and known by its id."""
GIB = 2**30

TYPES: dict[str, tuple[str, int, int, int, int]] = {
    "gpu_1x_a10": ("A10 (24 GB PCIe)", 1, 30, 226, 1331),
    "gpu_1x_h100_pcie": ("H100 (80 GB PCIe)", 1, 26, 225, 1024),
    "gpu_8x_h100_sxm5": ("H100 (80 GB SXM5)", 8, 208, 1800, 22528),
    "gpu_8x_a100": ("A100 (40 GB SXM4)", 8, 124, 1800, 6144),
    "gpu_1x_new": ("Z900 (512 GB)", 1, 30, 226, 1331),
    "cpu_4x_general": ("N/A", 0, 4, 16, 512),
}
"""Name -> GPU in words, GPUs, virtual CPUs, GiB of memory, GiB of disk."""
CENTS = {"gpu_1x_a10": 129, "gpu_1x_h100_pcie": 249, "gpu_8x_h100_sxm5": 3192, "gpu_8x_a100": 1432, "gpu_1x_new": 999}
ROOM = {"gpu_1x_a10": ("us-west-1", "us-east-1"), "gpu_8x_h100_sxm5": ("us-west-1",), "gpu_1x_new": ("us-east-1",)}
PLACES = {"us-west-1": "California, USA", "us-east-1": "Virginia, USA"}


def wire_id(id_: str) -> str:
    """An id as Lambda writes it, 32 hexadecimal digits, of one of the simulated world."""
    return id_ if re.fullmatch(r"[0-9a-f]{32}", id_) else hashlib.sha256(id_.encode()).hexdigest()[:32]


class FakeLambda(FakeCloud):
    """`log`: whether the key may read the audit log. `log_page`: its lines a page. `spoilt`: id -> edits of what is listed."""

    def __init__(self, clock: Hands | None = None, resources: list[Resource] | None = None) -> None:
        super().__init__(clock)
        self.resources = list(resources or [])
        self.spoilt: dict[str, list[tuple[str, Any]]] = {}
        self.log, self.log_page = True, 100
        self.restarts: list[tuple[str, int]] = []
        """(id, when) of reboots, which stand in the log as well."""
        self.made = "created"
        """The log's word for a launch, which the spec does not give."""
        self.per_s = 0.0
        self.throttle = b'{"error":{"code":"global/too-many-requests","message":"Rate limit exceeded."}}'
        """Requests a second before a 429, 0: any number; and its body, which nobody has written down."""
        self.monotonic: Callable[[], float] | None = None
        self._last: float | None = None

    def answer(self, asked: Asked) -> Answer:
        """As Lambda answers."""
        limited = self._limited()
        if limited:
            return limited
        if not _knows(asked.headers.get("authorization", "")):
            return refusal(401, "global/invalid-api-key", "API key was invalid, expired, or deleted.", "Check your API key.")
        return self._answered(asked) or refusal(404, "global/not-found", "The requested resource was not found.")

    def _answered(self, asked: Asked) -> Answer | None:
        match asked.method, asked.path.removeprefix("/api/v1").strip("/").split("/"):
            case "GET", ["instances"]:
                found = Answer.of({"data": [self.instance(one) for one in self._listed(SIM_INSTANCE)]})
            case "GET", ["instances", id_]:
                found = self._one(id_)
            case "POST", ["instance-operations", "terminate"]:
                found = self._terminated(asked.json())
            case "GET", ["file-systems"]:
                found = Answer.of({"data": [self.filesystem(one) for one in self._listed("volume")]})
            case "DELETE", ["filesystems", id_]:
                found = self._deleted(id_)
            case "GET", ["instance-types"]:
                found = Answer.of({"data": {name: self._type_for_rent(name) for name in TYPES}})
            case "GET", ["audit-events"]:
                found = self._events(asked)
            case _:
                return None
        return found

    def _limited(self) -> Answer | None:
        if not self.per_s or self.monotonic is None:
            return None
        now = self.monotonic()
        soon = self._last is not None and now - self._last < 1 / self.per_s - 1e-6
        if soon:
            return Answer(status=429, headers={"Content-Type": "application/json"}, body=self.throttle)
        self._last = now
        return None

    def _now(self) -> int:
        return to_us(self.clock.now())

    def status(self, one: Resource) -> str | None:
        """Lambda's word for a machine now; None: it knows none such."""
        now, end = self._now(), _end(one)
        if now < one.created_us or (end is not None and now >= end + KNOWN_US):
            return None
        if end is not None and now >= end:
            return "terminating" if now < end + TERMINATING_US else "terminated"
        return "booting" if find_last_run(one, now) is None else "active"

    def _listed(self, kind: str) -> list[Resource]:
        now = self._now()
        if kind == SIM_INSTANCE:
            return [one for one in self.resources if one.kind == kind and self.status(one) not in (None, "terminated")]
        there = [one for one in self.resources if one.kind == kind and one.created_us <= now]
        return [one for one in there if one.ended_us is None or now < one.ended_us]

    def _one(self, id_: str) -> Answer:
        one = self.found(id_)
        if one is None or one.kind != SIM_INSTANCE or self.status(one) is None:
            return _gone()
        return Answer.of({"data": self.instance(one)})

    def found(self, id_: str) -> Resource | None:
        """The resource of an id in either form."""
        return next((one for one in self.resources if wire_id(one.id) == wire_id(id_)), None)

    def _terminated(self, body: Any) -> Answer:  # noqa: ANN401 - whatever was sent
        ids = body.get("instance_ids") if isinstance(body, dict) else None
        if not isinstance(ids, list) or not ids or not all(isinstance(id_, str) for id_ in ids):
            return refusal(400, "global/invalid-parameters", "Invalid request data.")
        found = [self.found(id_) for id_ in ids]
        there = [one for one in found if one is not None and self.status(one) is not None]
        if len(there) < len(ids):
            return _gone()
        if any(self.status(one) in ("terminating", "terminated") for one in there):
            return refusal(500, "global/unknown", "An unknown error occurred.", "Try again later.")
        if any(self.status(one) == "booting" for one in there):
            return refusal(400, "global/invalid-parameters", "The instance has not launched yet.")
        if not self.deaf:
            for one in there:
                self.end(one.id)
        ended = [self.instance(self.found(one.id) or one) for one in there]
        return Answer.of({"data": {"terminated_instances": [{**one, "status": "terminating"} for one in ended]}})

    def end(self, id_: str, *, ago_us: int = 0) -> None:
        """Let a machine end now, or have ended a while ago."""
        now = self._now() - ago_us
        for i, one in enumerate(self.resources):
            if wire_id(one.id) == wire_id(id_):
                runs = tuple(replace(run, stop_us=now) for run in one.runs if run.start_us < now)
                self.resources[i] = replace(one, runs=runs, ended_us=now)

    def _deleted(self, id_: str) -> Answer:
        one = self.found(id_)
        if one is None or one not in self._listed("volume"):
            return _gone("Filesystem was not found.")
        self.resources[self.resources.index(one)] = replace(one, ended_us=self._now())
        return Answer.of({"data": {"deleted_ids": [wire_id(id_)]}})

    def instance(self, one: Resource) -> dict[str, Any]:
        """A machine as it is listed. What is missing is missing as with Lambda: a booting one has no address."""
        status, id_ = self.status(one) or "terminated", wire_id(one.id)
        tag = one.tags[0] if one.tags else None
        kind = one.shapes[0].type if one.shapes else "gpu_1x_a10"
        nano = one.rates[0].nano if one.rates else CENTS[kind] * 10**7
        page = f"https://jupyter-{id_}.lambdaspaces.com/?token={JUPYTER}"
        up, named = status != "booting", int(id_[0], 16) % 4 != 0
        tags = [{"key": key, "value": value} for key, value in (tag.labels if tag else ())]
        tags += [{"key": "owner", "value": tag.owner}] if tag and tag.owner else []
        wire = {
            "id": id_,
            "status": status,
            "ssh_key_names": [f"{(tag and tag.owner) or 'lab'}-laptop"],
            "file_system_names": [],
            "region": _region(one.region),
            "instance_type": _type(kind, nano // 10**7),
            "actions": _actions(status),
            **({"name": one.name} if named else {}),
            **({"tags": tags} if tags else {}),
            **({"ip": "198.51.100.2", "private_ip": "10.19.60.24", "hostname": "198-51-100-2"} if up else {}),
            **({"jupyter_token": JUPYTER, "jupyter_url": page} if up else {}),
            "firewall_rulesets": [],
            "is_reserved": False,
        }
        for path, value in self.spoilt.get(id_, []):
            _put(wire, path, value)
        return wire

    def filesystem(self, one: Resource) -> dict[str, Any]:
        """A filesystem as it is listed."""
        id_ = wire_id(one.id)
        wire: dict[str, Any] = {
            "id": id_,
            "name": one.name,
            "mount_point": f"/lambda/nfs/{one.name}",
            "created": from_us(one.created_us).isoformat(),
            "created_by": {"id": wire_id("alice"), "email": "alice@example.com", "status": "active"},
            "is_in_use": False,
            "region": _region(one.region),
            "bytes_used": sum(disk.gb for disk in one.disks) * GIB,
        }
        for path, value in self.spoilt.get(id_, []):
            _put(wire, path, value)
        return wire

    def _type_for_rent(self, name: str) -> dict[str, Any]:
        rooms = [_region(region) for region in ROOM.get(name, ())]
        return {"instance_type": _type(name, CENTS.get(name, 12)), "regions_with_capacity_available": rooms}

    def _events(self, asked: Asked) -> Answer:
        if not self.log:
            return refusal(403, "global/account-inactive", "Your account is inactive.", "Contact Support.")
        start, end = asked.one("start"), asked.one("end", "9999")
        kinds = asked.one("resource_type")
        lines = [line for line in self._lines() if start <= line["event_time"] <= end]
        lines = [line for line in lines if not kinds or f"cloud.{line['resource_name']}" == kinds]
        first = int(base64.b64decode(asked.one("page_token") or base64.b64encode(b"0")))
        after = first + self.log_page
        token = base64.b64encode(str(after).encode()).decode() if after < len(lines) else None
        return Answer.of({"data": lines[first:after], "page_token": token})

    def _lines(self) -> list[dict[str, Any]]:
        """The whole log up to now, oldest first; not only of instances."""
        now = self._now()
        lines = [_line("api_key", "created", wire_id("key"), 0)]
        for one in self.resources:
            end = _end(one)
            word = "instance" if one.kind == SIM_INSTANCE else "filesystem"
            lines.append(_line(word, self.made if one.kind == SIM_INSTANCE else "created", wire_id(one.id), one.created_us))
            lines += [_line(word, "deleted", wire_id(one.id), end)] if end is not None else []
        lines += [_line("instance", "restarted", wire_id(id_), at) for id_, at in self.restarts]
        past = [line for us, line in lines if us <= now]
        return sorted(past, key=lambda line: (line["event_time"], line["event_id"]))


def refusal(status: int, code: str, message: str, suggestion: str = "") -> Answer:
    """An error in Lambda's form."""
    error = {"code": code, "message": message, **({"suggestion": suggestion} if suggestion else {})}
    return Answer.of({"error": error}, status)


def _gone(message: str = "Specified instance does not exist.") -> Answer:
    return refusal(404, "global/object-does-not-exist", message)


def _knows(header: str) -> bool:
    basic = base64.b64encode(f"{KEY}:".encode()).decode()
    return header in (f"Bearer {KEY}", f"Basic {basic}")


def _end(one: Resource) -> int | None:
    run = one.runs[-1] if one.runs else None
    stops = [us for us in (one.ended_us, run.stop_us if run else None) if us is not None]
    return min(stops) if stops else None


def _region(name: str) -> dict[str, str]:
    return {"name": name, "description": PLACES.get(name, "Elsewhere")}


def _type(name: str, cents: int) -> dict[str, Any]:
    gpu, gpus, vcpus, memory, disk = TYPES[name]
    specs = {"vcpus": vcpus, "memory_gib": memory, "storage_gib": disk, "gpus": gpus}
    words = {"name": name, "description": f"{gpus}x {gpu}" if gpus else "4x CPU", "gpu_description": gpu}
    return {**words, "price_cents_per_hour": cents, "specs": specs}


def _actions(status: str) -> dict[str, Any]:
    why = {"booting": "vm-has-not-launched", "terminating": "vm-is-terminating", "terminated": "vm-is-terminating"}.get(status)
    told = {"available": True} if why is None else {"available": False, "reason_code": why, "reason_description": "Not now."}
    return {name: dict(told) for name in ("migrate", "rebuild", "restart", "cold_reboot", "terminate")}


def _line(word: str, action: str, id_: str, us: int) -> tuple[int, dict[str, Any]]:
    lrn = f"lrn:cloud:{word}:{id_}"
    stamp = from_us(us).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return us, {
        "service_name": "cloud",
        "resource_name": word,
        "action": action,
        "catalog_version": "2025-09-06",
        "event_id": hashlib.sha256(f"{lrn}{action}{us}".encode()).hexdigest()[:32],
        "event_time": stamp,
        "actor_lrn": "lrn:cloud:identity:00112233445566778899aabbccddeeff",
        "resource_lrns": [lrn],
        "resource_owner_lrn": OWNER,
        "request_api_key_lrn": None,
        "additional_details": {f"{word}_lrn": lrn},
    }


def _put(wire: dict[str, Any], path: str, value: Any) -> None:  # noqa: ANN401 - as the wire has it
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
