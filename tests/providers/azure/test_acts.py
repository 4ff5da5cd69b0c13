"""Acts: a stop deallocates and never powers off, is not waited for, and is proven by a listing; what Azure refuses is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from costguard_azure.account import AzureAccount
from costguard_azure.translation import LOCAL

from costguard.errors import CredentialsError
from costguard.metering.observation import Observation
from costguard.providers.transport import Transport
from tests.contract.rig import poll_of
from tests.fakes.azure import CLIENT, OTHER, SECRET, SUBSCRIPTION, machine
from tests.providers.azure.rig import AzureRig
from tests.providers.azure.test_listing import read_items

LOSE = frozenset((LOCAL,))


def see(rig: AzureRig, account: AzureAccount, name: str = "one", **more: object) -> Observation:
    """A machine with these fields, as it is listed."""
    rig.fake.resources.append(machine(name, rig.clock, **more))
    return read_items(account)[f"lab/{name}"]


def test_a_machine_that_was_shut_down_from_inside_is_deallocated(rig: AzureRig, account: AzureAccount) -> None:
    seen = see(rig, account, power="stopped")
    assert account.stop(seen.key, lose=LOSE).said == "accepted"
    assert rig.fake.calls("powerOff") == 0
    assert rig.fake.calls("operations/") == 0, "the operation is not waited for"
    assert read_items(account)["lab/one"].state == "stopped"


def test_an_operation_that_fails_after_202_is_seen_through(rig: AzureRig, account: AzureAccount) -> None:
    seen = see(rig, account)
    rig.fake.failing = True
    assert account.stop(seen.key, lose=LOSE).said == "accepted"
    assert read_items(account)["lab/one"].state == "running"


@pytest.mark.parametrize("verb", ["stop", "terminate"])
def test_a_lock_is_refused_with_what_to_do(rig: AzureRig, account: AzureAccount, verb: str) -> None:
    seen = see(rig, account, locked=True)
    response = account.stop(seen.key, lose=LOSE) if verb == "stop" else account.terminate(seen.key)
    assert response.said == "refused"
    assert "lift the lock first" in response.why
    assert "ScopeLocked" in response.why


def test_an_ephemeral_disk_cannot_be_deallocated(rig: AzureRig, account: AzureAccount) -> None:
    seen = see(rig, account, ephemeral=True)
    assert seen.handling.stops is False
    assert "its system's disk" in seen.handling.terminate_loses
    response = account.stop(seen.key, lose=LOSE)
    assert (response.said, rig.fake.calls(rig.stops or "")) == ("refused", 0)
    assert "ephemeral" in response.why
    assert account.terminate(seen.key).said == "accepted"


def test_a_size_without_local_disks_is_stopped_without_consent(rig: AzureRig, account: AzureAccount) -> None:
    seen = see(rig, account, size="Standard_D8s_v5")
    assert seen.handling.stop_loses == ()
    assert seen.handling.terminate_loses == ("1 disk set to be deleted with it",)
    assert account.stop(seen.key).said == "accepted"


def test_an_evicted_spot_machine_is_stopped_or_gone(rig: AzureRig, account: AzureAccount) -> None:
    see(rig, account, priority="Spot")
    rig.fake.resources[0].power = "deallocated"
    assert read_items(account)["lab/one"].state == "stopped"
    rig.fake.resources.clear()
    assert read_items(account) == {}


@pytest.mark.parametrize("broken", ["tenant", "secret", "expired", "forbidden", "unknown"])
def test_what_is_wrong_with_a_login_or_a_subscription_is_named_and_the_others_go_on(
    rig: AzureRig, tmp_path: Path, broken: str
) -> None:
    rig.put(1)
    environ, missing = dict(rig.environ()), "cccccccc-0000-4000-8000-00000000000c"
    environ |= {"tenant": {"AZURE_TENANT_ID": "contoso.example"}, "secret": {"AZURE_CLIENT_SECRET": "wrong~value"}}.get(
        broken, {}
    )
    rig.fake.expired = broken == "expired"
    rig.fake.forbidden = {OTHER} if broken == "forbidden" else set()
    named = [SUBSCRIPTION, missing if broken == "unknown" else OTHER]
    with rig.opened(tmp_path, environ=environ, subscriptions=named) as account:
        assert isinstance(account, AzureAccount)
        first, second = (account.poll(scope).inventory for scope in account.list_scopes())
        bad = [check for check in account.examine() if check.outcome == "bad"]
    words = " ".join(f"{check.subject} {check.told} {check.fix}" for check in bad)
    assert SECRET not in words
    expected = {
        "tenant": "AADSTS90002: there is no such tenant",
        "secret": "AZURE_CLIENT_SECRET is wrong",
        "expired": "ExpiredAuthenticationToken",
        "forbidden": "AuthorizationFailed",
        "unknown": "SubscriptionNotFound",
    }[broken]
    assert expected in words.replace("AADSTS90002)", "AADSTS90002"), words
    assert type(second).__name__ == "Failed"
    if broken in ("forbidden", "unknown"):
        assert named[1] in words
        assert SUBSCRIPTION not in words
        assert type(first).__name__ == "Complete"


def test_rights_that_are_missing_are_named(rig: AzureRig, account: AzureAccount) -> None:
    rig.fake.actions = ["*/read", "Microsoft.Compute/virtualMachines/deallocate/action"]
    found = {check.subject.partition(" (")[0]: check.outcome for check in account.examine()}
    assert found["permission: list"] == found["permission: stop"] == "good"
    assert found["permission: terminate"] == "unsure"


def test_all_visible_subscriptions_are_discovered(rig: AzureRig, tmp_path: Path) -> None:
    with rig.opened(tmp_path, subscriptions=[], discover=True) as account:
        assert [scope.account for scope in account.list_scopes()] == [SUBSCRIPTION, OTHER]
        assert poll_of(account).scope.account == SUBSCRIPTION


def test_a_secret_without_its_tenant_is_refused_before_anything_is_sent(rig: AzureRig, tmp_path: Path) -> None:
    transport = Transport()
    try:
        with pytest.raises(CredentialsError, match="AZURE_TENANT_ID"):
            rig.accounts("http://127.0.0.1:9", transport, tmp_path, {"AZURE_CLIENT_ID": CLIENT, "AZURE_CLIENT_SECRET": SECRET})
    finally:
        transport.close()
    assert rig.fake.asked == []
