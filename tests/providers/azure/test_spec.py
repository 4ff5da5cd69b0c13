"""The fake's answers are those that azure-mgmt-compute itself reads: the same figures, and no field that it does not know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costguard.system.clock import read_monotonic
from tests.contract.rig import poll_of
from tests.fakes.azure import SIZE, SUBSCRIPTION, TOKEN, machine, make_disk, make_scale_set
from tests.fakes.server import serving
from tests.providers.azure.rig import AzureRig

compute = pytest.importorskip("azure.mgmt.compute", reason="azure-mgmt-compute is not installed")


class Login:
    """The token that the fake knows."""

    def get_token(self, *_scopes: str, **_more: Any) -> Any:  # noqa: ANN401 - azure-core's AccessToken
        from azure.core.credentials import AccessToken

        return AccessToken(TOKEN, int(read_monotonic()) + 10**9)


@pytest.fixture
def client(rig: AzureRig) -> Iterator[Any]:
    """Microsoft's own client over the fake; its policy refuses a token over plain http, and that alone is switched off."""
    from azure.core.pipeline.policies import SansIOHTTPPolicy

    with serving(rig.fake) as base:
        auth: Any = SansIOHTTPPolicy()
        auth.on_request = lambda request: request.http_request.headers.update({"Authorization": f"Bearer {TOKEN}"})
        yield compute.ComputeManagementClient(Login(), SUBSCRIPTION, base_url=base, authentication_policy=auth)


def list_unknown(model: Any, name: str = "") -> list[str]:  # noqa: ANN401 - a model of the SDK
    """The fields of an answer that the SDK's model has no name for."""
    known = {field._rest_name for field in getattr(type(model), "_attr_to_rest_field", {}).values()}
    if not known:
        return []
    odd = [f"{name}.{key}" for key in model if key not in known and key != "properties"]
    for field in vars(type(model)).get("_attr_to_rest_field", {}):
        value = getattr(model, field, None)
        for inner in value if isinstance(value, list) else [value]:
            odd += list_unknown(inner, f"{name}.{field}") if hasattr(inner, "_attr_to_rest_field") else []
    return odd


def test_the_sdk_reads_the_same_of_the_fake_as_the_adapter(rig: AzureRig, client: Any, tmp_path: Path) -> None:  # noqa: ANN401
    now = rig.clock.now()
    rig.fake.resources += [
        machine("one", rig.clock, priority="Spot"),
        machine("two", rig.clock, power="deallocated", ephemeral=True),
    ]
    rig.fake.resources.append(machine("three", rig.clock, scale_set="flex", windows=True))
    rig.fake.disks = [make_disk("d", "Premium_LRS", 100, now)]
    rig.fake.sets = [make_scale_set("set")]
    rig.fake.members["set"] = [machine("m", rig.clock, group="MC_ml_cluster_westeurope")]
    rig.fake.size = 2
    listed = list(client.virtual_machines.list_all(status_only="true"))
    assert [list_unknown(one) for one in listed] == [[], [], []]
    states = {one.name: one.properties.instance_view.statuses[-1].code for one in listed}
    assert states == {"one": "PowerState/running", "two": "PowerState/deallocated", "three": "PowerState/running"}
    assert {one.properties.hardware_profile.vm_size for one in listed} == {SIZE}
    assert [one.properties.priority for one in listed] == ["Spot", "Regular", "Regular"]
    assert listed[1].properties.storage_profile.os_disk.diff_disk_settings.option == "Local"
    assert listed[2].properties.virtual_machine_scale_set.id.endswith("/flex")
    (disk,) = client.disks.list()
    assert (disk.properties.disk_size_gb, disk.sku.name, disk.properties.disk_state) == (100, "Premium_LRS", "Unattached")
    (group,) = client.virtual_machine_scale_sets.list_all()
    (member,) = client.virtual_machine_scale_set_vms.list("MC_ml_cluster_westeurope", "set", expand="instanceView")
    assert (group.properties.orchestration_mode, group.sku.capacity) == ("Uniform", 2)
    assert (member.instance_id, member.sku.name) == ("0", SIZE)
    assert list_unknown(disk) == list_unknown(group) == list_unknown(member) == []
    with rig.opened(tmp_path) as account:
        items = {one.key.id: one for one in getattr(poll_of(account).inventory, "items", ())}
    made = {f"lab/{one.name}": one.properties.time_created for one in listed}
    assert {id_: items[id_].created_at for id_ in made} == made
    assert items["lab/disks/d"].created_at == disk.properties.time_created


def test_the_sdk_takes_the_acts_answers(rig: AzureRig, client: Any) -> None:  # noqa: ANN401
    rig.fake.resources.append(machine("one", rig.clock))
    client.virtual_machines.begin_deallocate("Lab", "one", polling=False)
    assert rig.fake.resources[0].power == "deallocated"
    client.virtual_machines.begin_start("Lab", "one", polling=False)
    assert rig.fake.resources[0].power == "running"
    client.virtual_machines.begin_delete("Lab", "one", polling=False)
    assert rig.fake.resources == []
    lines = [one.line.partition("?")[0].lower() for one in rig.fake.asked if one.method != "GET"]
    path = f"/subscriptions/{SUBSCRIPTION}/resourcegroups/lab/providers/microsoft.compute/virtualmachines/one"
    assert lines == [f"post {path}/deallocate", f"post {path}/start", f"delete {path}"]
