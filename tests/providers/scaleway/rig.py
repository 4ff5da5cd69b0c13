"""Scaleway for the contract suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from costguard_scaleway import ScalewayPlugin

from tests.contract.rig import Rig
from tests.fakes.scaleway import KEY, RUNNING, STANDBY, STOPPED, ZONE, FakeScaleway, machine

FIELDS = {"status": "state", "name": "name", "started": "creation_date"}
"""Neutral name -> Scaleway's. Price and GPU are the catalogue's, which no Instance states."""


class ScalewayRig(Rig):
    """One zone of one account; a second one for what fails apart."""

    provider: ClassVar[str] = "scaleway"
    secret: ClassVar[str] = KEY
    lists: ClassVar[str] = rf"^GET /instance/v1/zones/{ZONE}/servers\?"
    one: ClassVar[str] = r"^GET /instance/v1/zones/[^/]+/servers/"
    stops: ClassVar[str | None] = r"^POST /instance/v1/zones/[^/]+/servers/[^/]+/action"
    starts: ClassVar[str | None] = r"^POST /instance/v1/zones/[^/]+/servers/[^/]+/action"
    terminates: ClassVar[str] = r"^POST /instance/v1/zones/[^/]+/servers/[^/]+/action"
    fake: FakeScaleway

    def make_fake(self) -> FakeScaleway:
        return FakeScaleway(self.clock)

    def put(self, count: int) -> list[str]:
        first = len(self.fake.resources) + 1
        made = [machine(number, self.clock.now(), name=f"train-{number}") for number in range(first, first + count)]
        self.fake.resources += made
        return [one.id for one in made]

    def state_of(self, id: str) -> str:  # noqa: A002 - the ledger's word
        one = self.fake.find(id)
        return "ended" if one is None else "running" if one.state in (RUNNING, STANDBY) else "stopped"

    def let(self, id: str, state: str) -> None:  # noqa: A002
        self.fake.let(id, {"running": RUNNING, "stopped": STOPPED}.get(state, state))

    def spoil(self, id: str, **fields: Any) -> None:  # noqa: A002, ANN401
        edits = self.fake.spoilt.setdefault(id, {})
        for name, value in fields.items():
            if name == "owner":
                edits["tags"] = [f"owner={value}"] if isinstance(value, str) else value
            elif name not in ("price", "gpu", "gpu_count"):
                edits[FIELDS.get(name, name)] = value

    def page(self, size: int) -> None:
        self.fake.size = size

    def environ(self) -> Mapping[str, str]:
        return {"SCW_SECRET_KEY": KEY}

    def table(self, base: str) -> Mapping[str, object]:
        return {"base_url": base, "zones": [ZONE], "exchange_rate": "1 USD = 0.80 EUR on 2026-11-01 (ECB)"}

    def plugin(self) -> ScalewayPlugin:
        return ScalewayPlugin()

    def two_scopes(self) -> tuple[Mapping[str, object], str]:
        return {"zones": [ZONE, "nl-ams-1"]}, self.lists
