"""Least privilege: what the roles of config/iam grant is what the adapter asks, no more and no less."""

from __future__ import annotations

import json
import re
from pathlib import Path

from costguard_azure.account import AzureAccount
from costguard_azure.examination import RIGHTS
from costguard_azure.translation import LOCAL

from costguard.values.provider import CHECK_BAD
from tests.fakes.azure import machine, make_address, make_disk, make_scale_set
from tests.providers.azure.rig import AzureRig
from tests.providers.azure.test_listing import read_items

IAM = Path(__file__).parents[3] / "config" / "iam"
ROLES = {name: frozenset(json.loads((IAM / f"azure-{name}.json").read_text())["Actions"]) for name in ("reader", "actor")}
UNSEEN = frozenset(("Microsoft.Compute/virtualMachines/instanceView/read",))
"""What the log cannot show: power states may need a right of their own (from memory)."""
NONE = re.compile(r"/oauth2/|/api/retail/")
NAMES = r"resourceGroups/[^/]+/providers/"


def find_action(method: str, path: str) -> str:
    """The action of Azure's roles that a request needs: provider and types, then read, delete, or the verb of a POST."""
    if path == "/subscriptions":
        return "Microsoft.Resources/subscriptions/read"
    rest = re.sub(rf"^/subscriptions/[^/]+/(?:{NAMES}|providers/)", "", path)
    provider, *parts = rest.split("/")
    types = "/".join([provider, *parts[::2]])
    if method == "POST":
        return f"{'/'.join([provider, *parts[:-1:2]])}/{parts[-1]}/action"
    return f"{types}/{'delete' if method == 'DELETE' else 'read'}"


def test_azure_is_asked_what_the_roles_grant_and_nothing_else(rig: AzureRig, account: AzureAccount) -> None:
    now = rig.clock.now()
    rig.fake.sets, rig.fake.members = (
        [make_scale_set("set")],
        {"set": [machine("m", rig.clock, group="MC_ml_cluster_westeurope")]},
    )
    rig.fake.disks, rig.fake.addresses = [make_disk("d", "Premium_LRS", 10, now)], [make_address("a")]
    rig.put(1)
    account.list_scopes()
    assert not [check for check in account.examine() if check.outcome == CHECK_BAD]
    for seen in read_items(account).values():
        assert account.look_up(seen.key) == seen
        if not seen.handling.controller and seen.kind == "instance":
            account.stop(seen.key, lose=frozenset((LOCAL,)))
            account.start_instance(seen.key)
            account.terminate(seen.key)
    sent = {find_action(one.method, one.path) for one in rig.fake.asked if not NONE.search(one.path)}
    granted = ROLES["reader"] | ROLES["actor"]
    assert sorted(sent - granted) == []
    assert sorted(granted - sent - UNSEEN) == ["Microsoft.Resources/subscriptions/read"], "only `discover` asks for it"
    assert {action for _, action, needed in RIGHTS if needed} <= ROLES["reader"]
    assert {action for _, action, needed in RIGHTS if not needed} == ROLES["actor"]
    assert not [one for one in granted if "*" in one or one.endswith("/write")]
    assert not ROLES["reader"] & ROLES["actor"]
