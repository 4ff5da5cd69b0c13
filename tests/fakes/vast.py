"""Vast.ai on the wire: a view of simulated resources, with Vast's quirks (`../shared/providers/vast.md`, "Faking it").

Lists of 25 with tokens, the old list gone (410), 404 `auth_error` for an unknown key, one instance under a plural key or null,
`gpu_util` null unless something runs, `dph_total` that stays when an instance is stopped, 200 with `success: false`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from costguard_sim.bill import charge_resource, count_traffic_mb, find_rate
from costguard_sim.view import find_last_run, find_state
from costguard_sim.world import SECOND_US, SIM_INSTANCE, SIM_VOLUME, Resource, Run, to_us

from tests.fakes.server import Answer, Asked, FakeCloud, Hands

KEY = "vast-canary-8a61f0c2d94be7753e10"
USER = 123456
GROUPS = frozenset(("instance_read", "instance_write", "user_read", "billing_read", "misc"))
WORDS = {
    "starting": ("loading", "running", "running"),
    "running": ("running", "running", "running"),
    "paused": ("frozen", "running", "frozen"),
    "stopped": ("stopped", "stopped", "stopped"),
}
"""Our state -> actual_status, cur_state, intended_status."""
GPU_WORDS = {"RTX4090": ("RTX 4090", 24564), "RTX-4090": ("RTX 4090", 24564), "A100-80GB-SXM": ("A100 SXM4", 81920)}
BROAD = 64
NANO = 10**9
HOUR_S, MONTH_H = 3600, 720


class FakeVast(FakeCloud):
    """A healthy Vast. `extra`: our id -> fields that overwrite what goes over the wire; `...` leaves one out.

    `asks`: what hosts offer. `groups`: the rights of the key. `searches`: how many are left today. `null_when_gone`: whether
    one that is gone is null, or 404.
    """

    def __init__(self, clock: Hands | None = None, resources: tuple[Resource, ...] = ()) -> None:
        super().__init__(clock)
        self.resources = list(resources)
        self.extra: dict[str, dict[str, Any]] = {}
        self.taken: set[str] = set()
        self.asks: list[dict[str, Any]] = []
        self.increases: list[dict[str, Any]] = []
        self.groups, self.searches, self.null_when_gone = GROUPS, 1000, True
        self.page_size, self.user, self.credit, self.balance = 25, USER, 25.0, 0.0
        self._ids: dict[str, int] = {}
        for resource in resources:
            self.id_of(resource)

    def id_of(self, resource: Resource) -> str:
        """The number of a resource, as text; a volume has numbers of its own, marked as charges write them."""
        digits = resource.id.removeprefix("vol-")
        number = self._ids.setdefault(resource.id, int(digits) if digits.isdigit() else 24_815_000 + len(self._ids))
        return f"volume-{number}" if resource.kind == SIM_VOLUME else str(number)

    def answer(self, asked: Asked) -> Answer:
        refusal = self._refusal(asked.headers.get("authorization", ""))
        if refusal:
            return refusal
        for method, pattern, group, serve in self._routes():
            found = re.fullmatch(pattern, asked.path)
            if found and method == asked.method:
                if group not in self.groups:
                    return no(403, "forbidden", "This key does not have permission for this endpoint.")
                return serve(asked, *found.groups())
        return Answer(status=404, headers={"Content-Type": "text/html"}, body=b"<html>Not Found</html>")

    def _refusal(self, authorization: str) -> Answer | None:
        if not authorization:
            return no(403, "auth_error", "This action requires login.")
        return None if authorization == f"Bearer {KEY}" else no(404, "auth_error", "Invalid user key")

    def _routes(self) -> tuple[tuple[str, str, str, Callable[..., Answer]], ...]:
        return (
            ("GET", r"/api/v1/instances/", "instance_read", self._page),
            ("GET", r"/api/v0/instances/", "instance_read", _old_list),
            ("GET", r"/api/v0/instances/pending-price-increases/", "instance_read", self._increases),
            ("GET", r"/api/v0/instances/([^/]+)/", "instance_read", self._one),
            ("PUT", r"/api/v0/instances/([^/]+)/", "instance_write", self._manage),
            ("DELETE", r"/api/v0/instances/([^/]+)/", "instance_write", self._destroy),
            ("PUT", r"/api/v0/asks/([^/]+)/", "instance_write", self._create),
            ("GET", r"/api/v0/volumes/", "instance_read", self._volumes),
            ("POST", r"/api/v0/bundles/", "misc", self._search),
            ("GET", r"/api/v0/users/current/", "user_read", self._user),
            ("GET", r"/api/v0/charges/", "billing_read", self._charges),
            ("GET", r"/api/v1/invoices/", "billing_read", self._invoices),
        )

    def now_us(self) -> int:
        return to_us(self.clock.now())

    def there(self, kind: str) -> list[Resource]:
        """Whatever of `kind` is listed now, by its id."""
        found = [r for r in self.resources if r.kind == kind and find_state(r, self.now_us()) is not None]
        return sorted(found, key=lambda r: int(self.id_of(r).removeprefix("volume-")))

    def find(self, id_: str, kind: str = SIM_INSTANCE) -> Resource | None:
        """The resource that goes by `id_`, if it is listed."""
        return next((r for r in self.there(kind) if self.id_of(r) == id_), None)

    def _page(self, asked: Asked) -> Answer:
        token, limit = asked.one("after_token"), int(asked.one("limit", "25"))
        try:
            after = json.loads(base64.b64decode(token, validate=True))["values"]["id"] if token else -1
        except (ValueError, KeyError, TypeError):
            return no(400, "invalid_token", "Invalid pagination token")
        size = self.page_size if self.page_size != 25 else min(limit, 25) if limit > 0 else 5
        every = self.there(SIM_INSTANCE)
        rest = [r for r in every if int(self.id_of(r)) > after]
        page = rest[:size]
        last = {"values": {"id": int(self.id_of(page[-1]))}} if len(rest) > size else None
        labels = [self._label(r) or "" for r in page]
        return Answer.of(
            {
                "success": True,
                "instances_found": len(page),
                "total_instances": len(every),
                "label_counts": {label: labels.count(label) for label in labels},
                "next_token": None if last is None else base64.b64encode(json.dumps(last).encode()).decode(),
                "instances": [self.wire(r) for r in page],
            }
        )

    def _one(self, _: Asked, id_: str) -> Answer:
        if not id_.isdigit():
            return no(400, "invalid_args", "invalid instance_id")
        found = self.find(id_)
        if found is None and not self.null_when_gone:
            return no(404, "no_such_instance", "Instance not found")
        return Answer.of({"instances": None if found is None else self.wire(found)})

    def _manage(self, asked: Asked, id_: str) -> Answer:
        found, state = self.find(id_), asked.json().get("state")
        if found is None:
            return no(404, "no_such_instance", "Instance not found")
        if state not in ("stopped", "running"):
            return no(400, "invalid_args", "state must be stopped or running")
        if state == "running" and id_ in self.taken:  # its GPU is rented away: it waits, and starts by itself later
            self.extra.setdefault(id_, {})["intended_status"] = "running"
        elif not self.deaf:
            self.extra.get(id_, {}).pop("intended_status", None)
            self.let(id_, state)
        return Answer.of({"success": True})

    def _destroy(self, _: Asked, id_: str) -> Answer:
        if not id_.isdigit():
            return no(400, "invalid_args", "invalid instance_id")
        if self.find(id_) is None:
            return no(404, "not_found", "Instance not found")
        if not self.deaf:
            self.let(id_, "ended")
        return Answer.of({"success": True, "msg": "Instance destroyed successfully"})

    def _create(self, asked: Asked, ask: str) -> Answer:
        """A bid that is too low is refused, and yet leaves a stopped contract whose disk bills."""
        number = 30_000_000 + len(self.resources)
        bid = asked.json().get("price")
        now = self.now_us()
        made = replace(self.resources[0], id=str(number), name=f"of-{ask}", created_us=now, ended_us=None, runs=(), traffic=())
        if bid is not None:
            self.resources.append(replace(made, runs=(Run(start_us=now, stop_us=now),), tier="spot"))
            return Answer.of({"success": False, "error": "bid_too_low", "msg": "Bid below minimum", "new_contract": number})
        self.resources.append(replace(made, runs=(Run(start_us=now),)))
        return Answer.of({"success": True, "new_contract": number})

    def let(self, id_: str, state: str) -> None:
        """Make an instance running, stopped or ended from now on, whatever was planned."""
        number = next(i for i, r in enumerate(self.resources) if self.id_of(r) == id_)
        self.resources[number] = _made(self.resources[number], state, self.now_us())

    def _label(self, resource: Resource) -> str | None:
        now = [tag for tag in resource.tags if tag.at_us <= self.now_us()]
        if not now:
            return None
        owner = [("owner", now[-1].owner)] if now[-1].owner else []
        return " ".join(f"{k}={v}" for k, v in (*owner, *now[-1].labels)) or None

    def wire(self, resource: Resource) -> dict[str, Any]:
        """A contract as the list and the single look-up show it."""
        right = {**self._standing(resource), **self._shape(resource), **self._money(resource), **self._secrets()}
        shown = {**right, **self.extra.get(self.id_of(resource), {})}
        return {name: value for name, value in shown.items() if value is not ...}

    def _standing(self, resource: Resource) -> dict[str, Any]:
        now = self.now_us()
        actual, contract, intended = WORDS[find_state(resource, now) or "stopped"]
        return {
            "id": int(self.id_of(resource)),
            "machine_id": 36683,
            "host_id": 166946,
            "label": self._label(resource),
            "actual_status": actual,
            "intended_status": intended,
            "cur_state": contract,
            "next_state": contract,
            "status_msg": "success, running pytorch/pytorch_2.4/ssh\n",
            "image_uuid": "pytorch/pytorch:2.4.0",
            "start_date": resource.created_us / SECOND_US,
            "end_date": resource.created_us / SECOND_US + 90 * 86_400,
            "duration": 5_400_000.0,
            "uptime_mins": None,
            "geolocation": "Sweden, SE",
            "public_ipaddr": "203.0.113.50",
            "verification": "verified",
            "template_id": None,
            "volume_info": [],
            "country_code": None,
            "ports": {"22/tcp": [{"HostIp": "203.0.113.50", "HostPort": "40123"}]} if actual == "running" else None,
        }

    def _shape(self, resource: Resource) -> dict[str, Any]:
        now = self.now_us()
        shape = [s for s in resource.shapes if s.at_us <= now][-1]
        name, ram = GPU_WORDS.get(shape.gpu, (shape.gpu.replace("-", " "), 24576))
        run, busy = find_last_run(resource, now), find_state(resource, now) == "running"
        return {
            "num_gpus": shape.gpus,
            "gpu_name": name,
            "gpu_ram": ram,
            "gpu_totalram": ram * shape.gpus,
            "gpu_frac": 0.25,
            "gpu_util": 87.5 if busy and run else None,
            "gpu_temp": 64.0 if busy else None,
            "vmem_usage": 21.3 if busy else None,
            "cpu_cores_effective": 16.0,
            "cpu_ram": 128576,
            "cpu_util": 12.4 if busy else -1.0,
            "mem_usage": 11.2 if busy else None,
            "mem_limit": 31.4 if busy else None,
            "disk_space": float(resource.disks[0].gb) if resource.disks else 0.0,
            "disk_util": -1,
            "disk_usage": 18.7,
        }

    def _money(self, resource: Resource) -> dict[str, Any]:
        now = self.now_us()
        base = find_rate(resource.rates, now).nano / NANO
        rate = (resource.disks[0].nano or 0) / NANO if resource.disks else 0.0
        disk = (resource.disks[0].gb if resource.disks else 0) * rate / MONTH_H
        held = find_state(resource, now) in ("running", "paused")
        list_price = {"gpuCostPerHour": base, "diskHour": disk, "totalHour": base + disk, "discountTotalHour": 0}
        accrues = list_price if held else {**list_price, "gpuCostPerHour": 0, "totalHour": disk}
        per_gb = resource.traffic_nano / NANO
        traffic = (
            {"inet_down_billed": float(count_traffic_mb(resource, now + 1)), "inet_up_billed": 0.0} if resource.traffic else {}
        )
        return {
            "is_bid": resource.tier == "spot",
            "min_bid": round(base / 2, 4),
            "dph_base": base,
            "dph_total": base + disk,
            "storage_cost": rate,
            "storage_total_cost": disk,
            "search": {**list_price, "discountedTotalPerHour": base + disk},
            "instance": {**accrues, "discountedTotalPerHour": accrues["totalHour"]},
            "credit_balance": None,
            "credit_discount": None,
            "credit_discount_max": 0.4,
            "inet_up_cost": per_gb,
            "inet_down_cost": per_gb,
            **traffic,
        }

    def _secrets(self) -> dict[str, Any]:
        return {"extra_env": [["TOKEN", SECRETS[0]]], "onstart": f"export A={SECRETS[1]}", "jupyter_token": SECRETS[2]}

    def _volumes(self, _: Asked) -> Answer:
        return Answer.of({"volumes": [self._volume(r) for r in self.there(SIM_VOLUME)]})

    def _volume(self, resource: Resource) -> dict[str, Any]:
        disk = resource.disks[0]
        right = {
            "id": int(self.id_of(resource).removeprefix("volume-")),
            "status": "running",
            "disk_space": float(disk.gb),
            "machine_id": 36683,
            "host_id": 166946,
            "storage_total_cost": disk.gb * (disk.nano or 0) / NANO / MONTH_H,
            "start_date": resource.created_us / SECOND_US,
            "verification": "verified",
            "instances": [],
        }
        shown = {**right, **self.extra.get(self.id_of(resource), {})}
        return {name: value for name, value in shown.items() if value is not ...}

    def _increases(self, _: Asked) -> Answer:
        found = self.increases
        return Answer.of({"success": True, "count": len(found), "truncated": False, "pending_price_increases": found})

    def _user(self, _: Asked) -> Answer:
        money = {"credit": self.credit, "balance": self.balance, "balance_threshold": 5.0, "balance_threshold_enabled": True}
        return Answer.of({"id": self.user, "key_id": 7, "email": "a@example.com", **money, "ssh_key": SECRETS[3], "sid": "1"})

    def _search(self, asked: Asked) -> Answer:
        if self.searches <= 0:
            return Answer.of({"error": "search_quota_exceeded", "msg": "Daily search quota exceeded"}, 429)
        self.searches -= 1
        query = asked.json()
        if not isinstance(query, dict):
            return Answer.of({"error": "invalid_request", "msg": "Invalid json body"}, 400)
        names, limit = query.get("gpu_name", {}).get("in"), query.get("limit", BROAD)
        fitting = [ask for ask in self.asks if names is None or ask["gpu_name"] in names]
        if query.get("verified", {}).get("eq"):
            fitting = [ask for ask in fitting if ask.get("verification") == "verified"]
        cheapest = sorted(fitting, key=lambda ask: ask.get("dph_total") or 0)
        return Answer.of({"offers": cheapest[: BROAD if names is None else limit]})

    def _charges(self, asked: Asked) -> Answer:
        day = json.loads(asked.one("select_filters", "{}")).get("day", {})
        if "gte" not in day or "lte" not in day:
            return Answer.of({"success": False, "msg": "Must provide both 'day' gte and lte filters for instance charges"}, 400)
        window = (day["gte"] * SECOND_US, min((day["lte"] + 1) * SECOND_US, self.now_us()))
        every = [row for resource in self.resources for row in self._charge(resource, window)]
        first, limit = int(asked.one("after_token", "0") or 0), min(int(asked.one("limit", "100")), 500)
        page = every[first : first + limit]
        token = str(first + limit) if first + limit < len(every) else None
        return Answer.of({"success": True, "count": len(page), "total": len(every), "next_token": token, "results": page})

    def _charge(self, resource: Resource, window: tuple[int, int]) -> Iterator[dict[str, Any]]:
        start, end = (us // SECOND_US for us in window)
        kinds = {"compute": "gpu", "storage": "disk", "traffic": "bwd"}
        times: dict[str, Any] = {"start": start, "end": end, "source": None, "metadata": {}, "items": []}
        lines = charge_resource(resource, *window)
        items = [
            {**times, "type": kinds[line.charge], "description": f"{line.charge}", "amount": _dollars(line.amount)}
            for line in lines
        ]
        if not items:
            return
        id_ = self.id_of(resource)
        label = self._label(resource)
        yield {
            **times,
            "type": resource.kind,
            "source": id_ if resource.kind == SIM_VOLUME else f"instance-{id_}",
            "description": f"Instance {id_} Charges",
            "amount": round(_dollars(sum((line.amount for line in lines), Fraction(0))), 3),
            "metadata": {} if label is None else {"label": label},
            "items": items,
        }

    def _invoices(self, asked: Asked) -> Answer:
        if "when" not in json.loads(asked.one("select_filters", "{}")):
            return no(200, "invalid_args", "Must provide a date range")
        return Answer.of({"success": True, "count": 0, "total": 0, "next_token": None, "results": []})


SECRETS = ("hf_envcanary1234567890", "onstartcanary1234567890", "jupytercanary1234567890", "sshkeycanary1234567890")


def no(status: int, error: str, msg: str) -> Answer:
    """Vast's usual form of a no."""
    return Answer.of({"success": False, "error": error, "msg": msg}, status)


def _old_list(_: Asked) -> Answer:
    return no(410, "deprecated_endpoint", "/api/v0/instances/ is deprecated. Use /api/v1/instances/ instead.")


def _dollars(amount: Fraction) -> float:
    return round(float(amount), 9)


def _made(resource: Resource, state: str, now: int) -> Resource:
    """`resource` in `state` from `now` on."""
    runs = tuple(
        replace(run, stop_us=None if run.stop_us is None else run.stop_us) for run in resource.runs if run.start_us < now
    )
    on = bool(runs) and (runs[-1].stop_us is None or runs[-1].stop_us > now)
    if state == "running":
        return resource if on else replace(resource, runs=(*runs, Run(start_us=now)))
    if on:
        runs = (*runs[:-1], replace(runs[-1], stop_us=now, stopping_us=0, pauses=()))
    if not runs:
        runs = (Run(start_us=now, stop_us=now),)
    return replace(resource, runs=runs, ended_us=now if state == "ended" else resource.ended_us)


def machine(number: int, *, nano: int = 760_000_000, gpus: int = 2, **more: Any) -> Resource:  # noqa: ANN401 - any field
    """A plain running instance since an hour before the fakes begin, whose id is `number`."""
    from costguard_sim.world import Disk, Rate, Shape, Tag

    from tests.fakes.server import START

    begun = to_us(START) - 3600 * SECOND_US
    usual: Mapping[str, Any] = {
        "cloud": "sim-vast",
        "account": "main",
        "scope": "contracts",
        "region": "contracts",
        "id": str(number),
        "name": f"m-{number}",
        "kind": SIM_INSTANCE,
        "created_us": begun,
        "runs": (Run(start_us=begun + 60 * SECOND_US),),
        "rates": (Rate(at_us=begun, nano=nano),),
        "shapes": (Shape(at_us=begun, type=f"{gpus}x RTX 4090", gpu="RTX-4090", gpus=gpus),),
        "tags": (Tag(at_us=begun, owner="alice", labels=(("project", "llm"),)),),
        "disks": (Disk(gb=64, type="disk", nano=150_000_000),),
    }
    return Resource(**{**usual, **more})


def volume(number: int, *, gb: int = 50, nano: int = 150_000_000, **more: Any) -> Resource:  # noqa: ANN401 - any field
    """A volume."""
    from costguard_sim.world import Disk

    bare: dict[str, Any] = {"id": f"vol-{number}", "kind": SIM_VOLUME, "runs": (), "rates": (), "shapes": ()}
    return replace(machine(number), **{**bare, "disks": (Disk(gb=gb, type="volume", nano=nano),), **more})
