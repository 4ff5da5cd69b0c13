"""Vast for the contract suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from costguard_sim.view import find_state
from costguard_sim.world import Resource
from costguard_vast import provider

from tests.contract.rig import Rig
from tests.fakes.vast import KEY, SECRETS, USER, FakeVast, machine

STATUS = ("actual_status", "cur_state", "intended_status", "next_state")
PLAIN = {"gpu": "gpu_name", "gpu_count": "num_gpus", "started": "start_date", "name": "label"}


class VastRig(Rig):
    """One account with user id 123456; its one text, the label, carries name and owner."""

    provider: ClassVar[str] = "vast"
    secret: ClassVar[str] = KEY
    more_secrets: ClassVar[tuple[str, ...]] = SECRETS
    lists: ClassVar[str] = r"^GET /api/v1/instances/"
    one: ClassVar[str] = r"^GET /api/v0/instances/\d+/"
    identity = (r"^GET /api/v0/users/current/", str(USER), "999")
    stops: ClassVar[str | None] = r"^PUT /api/v0/instances/"
    starts: ClassVar[str | None] = r"^PUT /api/v0/instances/"
    terminates: ClassVar[str] = r"^DELETE /api/v0/instances/"

    fake: FakeVast

    def make_fake(self) -> FakeVast:
        return FakeVast(self.clock)

    def put(self, count: int) -> list[str]:
        first = 24_815_377 + 10 * len(self.fake.resources)
        made = [machine(first + 10 * n) for n in range(count)]
        self.fake.resources += made
        return [self.fake.id_of(one) for one in made]

    def state_of(self, id: str) -> str:  # noqa: A002 - the rig's signature
        return find_state(self._resource(id), self.fake.now_us()) or "ended"

    def let(self, id: str, state: str) -> None:  # noqa: A002
        self.fake.let(id, state)

    def spoil(self, id: str, **fields: Any) -> None:  # noqa: A002, ANN401
        extra = self.fake.extra.setdefault(id, {})
        for name, value in fields.items():
            if name == "price":
                extra.update(_priced(value))
            elif name == "status":
                extra.update(dict.fromkeys(STATUS, value))
            elif name == "owner":
                extra["label"] = f"owner={value}" if isinstance(value, str) else value
            elif name in PLAIN:
                extra[PLAIN[name]] = value
            else:
                extra[name] = value

    def page(self, size: int) -> None:
        self.fake.page_size = size

    def environ(self) -> Mapping[str, str]:
        return {"VAST_API_KEY": KEY}

    def table(self, base: str) -> Mapping[str, object]:
        return {"base_url": base, "account": str(USER)}

    def plugin(self) -> Any:  # noqa: ANN401
        return provider

    def _resource(self, id_: str) -> Resource:
        return next(one for one in self.fake.resources if self.fake.id_of(one) == id_)


def _priced(value: Any) -> dict[str, Any]:  # noqa: ANN401
    """Wherever Vast states what the GPUs cost."""
    if value is ...:
        return dict.fromkeys(("dph_base", "dph_total", "search", "instance"), ...)
    accrues = {"gpuCostPerHour": value, "diskHour": 0.0133, "totalHour": value, "discountedTotalPerHour": value}
    return {"dph_base": value, "dph_total": value, "search": accrues, "instance": accrues}
