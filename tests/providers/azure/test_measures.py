"""What Azure Monitor measures, in one request a region; and Azure's names of accounts and resources in FOCUS files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from costguard_azure.account import AzureAccount

from costguard.services.poll.bill_files import list_installed_kinds, open_bill
from costguard.values.calendar import Period
from tests.cli.test_reconcile_files import START, row, text
from tests.fakes.azure import SUBSCRIPTION, machine
from tests.providers.azure.rig import AzureRig
from tests.providers.azure.test_listing import read_items


def test_processors_network_and_disk_are_measured_in_one_request_and_a_missing_half_is_no_sample(
    rig: AzureRig, account: AzureAccount
) -> None:
    rig.fake.resources += [machine(name, rig.clock) for name in ("one", "two", "silent")]
    rig.fake.resources.append(machine("off", rig.clock, power="deallocated"))
    rig.fake.resources.append(machine("cpu", rig.clock, size="Standard_D8s_v5"))
    rig.fake.measures = {
        "Percentage CPU": {"one": 12.5, "two": 400.0, "cpu": 0.0, "off": 1.0},
        "Network In Total": {"one": 600.0, "two": 60.0},
        "Network Out Total": {"one": 1200.0},
    }
    now, seen = rig.clock.now(), read_items(account)
    measured = account.fetch_utilization(list(seen.values()), Period(start=now - timedelta(minutes=3), end=now))
    assert rig.fake.calls("Microsoft.Insights/metrics") == 1
    assert {(one.key.id, one.signal, one.value) for one in measured.samples} == {
        ("lab/one", "cpu_util", 12.5),
        ("lab/one", "network_bytes_s", 30.0),
        ("lab/cpu", "cpu_util", 0.0),
    }
    assert len({one.at for one in measured.samples}) == 3
    blind = {key.id: why for key, why in measured.blind}
    assert set(blind) == {"lab/one", "lab/two", "lab/silent"}
    assert "no GPU" in blind["lab/one"]
    assert "no data" in blind["lab/silent"]


def test_a_focus_file_of_azure_names_subscriptions_and_machines_as_the_ledger_does(tmp_path: Path) -> None:
    id_ = f"/subscriptions/{SUBSCRIPTION.upper()}/resourceGroups/Lab/providers/Microsoft.Compute/virtualMachines/Train"
    line = row(ProviderName="Microsoft", SubAccountId=f"/subscriptions/{SUBSCRIPTION}", ResourceId=id_, RegionId="westeurope")
    (tmp_path / "focus.csv").write_text(text([line]))
    bill = open_bill(tmp_path / "focus.csv", list_installed_kinds("", "", lambda _: ()), START + timedelta(days=40))
    ((found, _),) = list(bill.parts)
    assert (found.provider, found.account, found.resource_id) == ("azure", SUBSCRIPTION, "lab/train")
