"""Google Cloud for the contract suite: a service account's key file, two projects, one fake for all its services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from costguard_gcp import provider
from costguard_sim.view import find_state
from costguard_sim.world import SIM_INSTANCE, Rate, Resource, Run, Shape, to_us

from costguard.providers.ports import InstanceSource
from costguard.providers.transport import Transport
from tests.contract.rig import Rig
from tests.fakes.gcp import STARTUP, TOKEN, FakeGCP, account_file, number_of

HOUR_US = 3_600_000_000


def resource(name: str, now_us: int, **more: Any) -> Resource:  # noqa: ANN401 - fields of Resource
    """A plain running g2-standard-8 that has run for an hour."""
    fields: dict[str, Any] = {
        "cloud": "sim-gcp",
        "account": "acme",
        "scope": "lab",
        "region": "us-central1-a",
        "id": name,
        "name": name,
        "kind": SIM_INSTANCE,
        "created_us": now_us - 2 * HOUR_US,
        "runs": (Run(start_us=now_us - HOUR_US),),
        "rates": (Rate(at_us=0, nano=853_624_000),),
        "shapes": (Shape(at_us=0, type="g2-standard-8", gpu="L4", gpus=1),),
    }
    return Resource(**{**fields, **more})


class GcpRig(Rig):
    """One project, "acme-lab"; `two_scopes` adds "acme-prod"."""

    cap = None
    provider: ClassVar[str] = "gcp"
    secret: ClassVar[str] = TOKEN
    more_secrets: ClassVar[tuple[str, ...]] = (STARTUP,)
    lists: ClassVar[str] = r"GET /compute/v1/projects/[^/]+/aggregated/instances"
    stops: ClassVar[str | None] = r"POST /compute/v1/projects/.*/stop"
    starts: ClassVar[str | None] = r"POST /compute/v1/projects/.*/start"
    terminates: ClassVar[str] = r"DELETE /compute/v1/projects/.*/instances/"
    one: ClassVar[str] = r"GET /compute/v1/projects/[^/]+/zones/[^/]+/instances\?"

    fake: FakeGCP

    def __init__(self) -> None:
        super().__init__()
        self._made = 0

    def make_fake(self) -> FakeGCP:
        return FakeGCP(self.clock)

    def put(self, count: int) -> list[str]:
        names = [f"trainer-{self._made + n}" for n in range(count)]
        self._made += count
        now = to_us(self.clock.now())
        self.fake.resources += [resource(name, now) for name in names]
        return [number_of(name) for name in names]

    def state_of(self, id: str) -> str:  # noqa: A002 - the ledger's word
        return find_state(self.fake.of_number(id), to_us(self.clock.now())) or "ended"

    def let(self, id: str, state: str) -> None:  # noqa: A002 - the ledger's word
        self.fake.change(self.fake.of_number(id), state)

    def spoil(self, id: str, **fields: Any) -> None:  # noqa: A002, ANN401 - as the wire has them
        wire = self.fake.extra.setdefault(id, {})
        for name, value in fields.items():
            if name in ("gpu", "gpu_count"):
                part = {"gpu": "acceleratorType", "gpu_count": "acceleratorCount"}[name]
                right = {"acceleratorType": "x/acceleratorTypes/nvidia-l4", "acceleratorCount": 1}
                stated = {**right, part: value}
                wire["guestAccelerators"] = [{k: v for k, v in stated.items() if v is not ...}]
            elif name == "owner":
                wire["labels"] = {} if value is ... else {"owner": value}
            elif name in ("status", "name", "started"):
                wire[{"started": "lastStartTimestamp"}.get(name, name)] = value

    def page(self, size: int) -> None:
        self.fake.size = size

    def environ(self) -> Mapping[str, str]:
        return {"GOOGLE_APPLICATION_CREDENTIALS": "key.json"}

    def wrong_environ(self) -> Mapping[str, str]:
        return {"GOOGLE_APPLICATION_CREDENTIALS": "wrong.json"}

    def table(self, base: str) -> Mapping[str, object]:
        return {"projects": ["acme-lab"], "api_endpoint": base}

    def plugin(self) -> Any:  # noqa: ANN401 - the plug-in's own class
        return provider

    def two_scopes(self) -> tuple[Mapping[str, object], str] | None:
        return {"projects": ["acme-lab", "acme-prod"]}, r"GET /compute/v1/projects/acme-lab/aggregated/instances"

    def accounts(
        self,
        base: str,
        transport: Transport,
        home: Path,
        environ: Mapping[str, str] | None = None,
        **more: Any,  # noqa: ANN401 - further settings
    ) -> Sequence[InstanceSource]:
        """The key files lie in `home`, as they name the fake's own address."""
        stated = dict(self.environ() if environ is None else environ)
        if name := stated.get("GOOGLE_APPLICATION_CREDENTIALS"):
            stated["GOOGLE_APPLICATION_CREDENTIALS"] = str(home / name)
            (home / name).write_text(account_file(base, "/token" if name == "key.json" else "/wrong-token"))
        return super().accounts(base, transport, home, {"NO_GCE_CHECK": "true", **stated}, **more)
