"""Azure for the contract suite: a service principal's secret, one subscription and a second one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from costguard_azure import AzurePlugin
from costguard_azure.wire import parse_resource_id

from tests.contract.rig import Rig
from tests.fakes.azure import CLIENT, OTHER, SECRET, SUBSCRIPTION, TENANT, TOKEN, FakeAzure, FakeMachine, machine

FIELDS = {"name": "name", "started": "properties.timeCreated"}
"""Neutral name -> where Azure has it. It states no price and no GPU."""


class AzureRig(Rig):
    """The cloud whose stopped machines bill on."""

    cap = None
    provider: ClassVar[str] = "azure"
    secret: ClassVar[str] = SECRET
    more_secrets: ClassVar[tuple[str, ...]] = (TOKEN,)
    lists: ClassVar[str] = r"^GET /subscriptions/[^/]+/providers/Microsoft.Compute/virtualMachines\?"
    stops: ClassVar[str | None] = r"^POST /subscriptions/.*/deallocate\?"
    starts: ClassVar[str | None] = r"^POST /subscriptions/.*/start\?"
    terminates: ClassVar[str] = r"^DELETE /subscriptions/"
    one: ClassVar[str] = r"^GET /subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft.Compute/virtualMachines/"

    fake: FakeAzure

    def __init__(self) -> None:
        super().__init__()
        self._made = 0

    def make_fake(self) -> FakeAzure:
        return FakeAzure(self.clock)

    def put(self, count: int) -> list[str]:
        made = [machine(f"Train{self._made + n}x", self.clock) for n in range(count)]
        self._made += count
        self.fake.resources += made
        return [parse_resource_id(one.id) for one in made]

    def find(self, id_: str) -> FakeMachine | None:
        return next((one for one in self.fake.resources if parse_resource_id(one.id) == id_), None)

    def state_of(self, id: str) -> str:  # noqa: A002 - the ledger's word
        one = self.find(id)
        return "ended" if one is None else {"deallocated": "stopped"}.get(one.power or "", "running")

    def let(self, id: str, state: str) -> None:  # noqa: A002 - the ledger's word
        one = self.find(id)
        assert one is not None
        if state == "ended":
            self.fake.resources.remove(one)
        one.power = {"stopped": "deallocated"}.get(state, "running")

    def spoil(self, id: str, **fields: Any) -> None:  # noqa: A002, ANN401 - as the wire has them
        one = self.find(id)
        assert one is not None
        for name, value in fields.items():
            if name == "owner":
                one.edits.append(("tags", value if value is None or value is ... else {"owner": value}))
            elif name == "status":
                power = [] if value is ... else [{"code": f"PowerState/{value}" if isinstance(value, str) else value}]
                one.edits.append(("properties.instanceView.statuses", power))
            elif name in FIELDS:
                one.edits.append((FIELDS[name], value))

    def page(self, size: int) -> None:
        self.fake.size = size

    def environ(self) -> Mapping[str, str]:
        return {"AZURE_TENANT_ID": TENANT, "AZURE_CLIENT_ID": CLIENT, "AZURE_CLIENT_SECRET": SECRET}

    def table(self, base: str) -> Mapping[str, object]:
        self.fake.scheme = base.partition(":")[0]
        return {"subscriptions": [SUBSCRIPTION], "endpoint": base, "login_endpoint": base, "prices_endpoint": base}

    def plugin(self) -> Any:  # noqa: ANN401 - the plug-in's own class
        return AzurePlugin()

    def two_scopes(self) -> tuple[Mapping[str, object], str] | None:
        line = rf"^GET /subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines\?"
        return {"subscriptions": [SUBSCRIPTION, OTHER]}, line
