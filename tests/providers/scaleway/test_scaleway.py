"""What Scaleway's words mean, its acts, its prices in euros, and what doctor says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from costguard_scaleway.account import ScalewayAccount, parse_key
from costguard_scaleway.translation import STATES, USD_PER_EUR

from costguard.errors import InputError
from costguard.guard.policy import STOP
from costguard.metering.inventory import Complete, Partial, Poll
from costguard.metering.observation import Observation
from costguard.services.guarding.act.by_hand import act_on_resource
from costguard.values.provider import ACCEPTED, ALREADY, CHECK_BAD, CHECK_GOOD, CHECK_SKIPPED, POSTPONED, REFUSED
from costguard.values.resource import ResourceKey
from tests.conftest import Command
from tests.fakes.scaleway import STANDBY, STOPPED, ZONE, address, block_volume, local_volume, machine
from tests.fakes.server import Answer, serving
from tests.providers.scaleway.rig import ScalewayRig

ACTION = r"/action$"


@pytest.fixture
def rig() -> ScalewayRig:
    return ScalewayRig()


@pytest.fixture
def account(rig: ScalewayRig, tmp_path: Path) -> Iterator[ScalewayAccount]:
    with rig.opened(tmp_path) as source:
        assert isinstance(source, ScalewayAccount)
        yield source


def poll(source: ScalewayAccount) -> Poll:
    return source.poll(source.list_scopes()[0])


def items(source: ScalewayAccount) -> dict[str, Observation]:
    inventory = poll(source).inventory
    assert isinstance(inventory, Complete), inventory
    return {one.key.id: one for one in inventory.items}


def key(id_: str) -> ResourceKey:
    return ResourceKey("scaleway", "default", ZONE, id_)


def put(rig: ScalewayRig, **more: Any) -> str:  # noqa: ANN401 - fields of a machine
    made = machine(len(rig.fake.resources) + 1, rig.clock.now(), **more)
    rig.fake.resources.append(made)
    return made.id


@pytest.mark.parametrize("word", [STANDBY, "stopped_in_place"])
def test_what_a_guest_shut_down_is_seen_as_billing_and_archived(rig: ScalewayRig, account: ScalewayAccount, word: str) -> None:
    id_ = put(rig, state=STANDBY)
    rig.fake.spoilt[id_] = {"state": word}
    one = items(account)[id_]
    assert (one.state, one.gpu, one.why, one.handling.stops) == ("paused", "L4", word, True)
    rig.fake.spoilt.clear()
    assert account.stop(one.key).said == ACCEPTED
    assert [json.loads(asked.body) for asked in rig.fake.asked if asked.method == "POST"] == [{"action": "poweroff"}]
    assert (items(account)[id_].state, account.stop(one.key).said) == ("stopped", ALREADY)


def test_where_standby_takes_no_poweroff_nothing_is_sent_and_it_is_said_to_bill(
    rig: ScalewayRig, account: ScalewayAccount
) -> None:
    id_, rig.fake.standby_allows = put(rig, state=STANDBY), False
    assert items(account)[id_].handling.stops is False
    response = account.stop(key(id_))
    assert (response.said, rig.fake.calls(ACTION)) == (REFUSED, 0)
    assert "billed as before" in response.why


def test_a_yes_archives_a_machine_that_its_guest_shut_down(
    rig: ScalewayRig, costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: status counts it as burning, a person is asked, says yes, and the machine leaves its host."""
    rig.clock.at = datetime.now(UTC)
    monkeypatch.setenv("SCW_SECRET_KEY", rig.secret)
    id_, asked = put(rig, state=STANDBY), list[str]()

    def agree(question: str) -> bool:
        asked.append(question)
        return True

    with serving(rig.fake) as base:
        rows = "".join(f"{name} = {json.dumps(value)}\n" for name, value in rig.table(base).items())
        ledger = f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n'
        (tmp_path / "costguard.toml").write_text(f"{ledger}[providers.scaleway]\n{rows}")
        ran = costguard("status", "--json")
        assert ran.code == 0, ran.err
        (one,) = json.loads(ran.out)["resources"]
        assert (one["state"], Decimal(str(one["usd_per_hour"]))) == ("paused", Decimal("0.9375"))
        answer = act_on_resource(f"scaleway/default/{ZONE}/{id_}", STOP, ask=agree)
    assert answer.document.data["result"] != "not done"
    assert len(asked) == 1
    assert rig.state_of(id_) == "stopped"


def test_a_stop_that_would_lose_scratch_storage_needs_leave_and_a_protected_one_is_left(
    rig: ScalewayRig, account: ScalewayAccount
) -> None:
    id_ = put(rig, volumes=[("sbs_volume", 0), ("scratch", 3000 * 10**9), ("l_ssd", 10 * 10**9)])
    handling = items(account)[id_].handling
    assert handling.stop_loses == ("3000 GB of scratch storage",)
    assert handling.terminate_loses == ("10 GB of local storage", "3000 GB of scratch storage")
    assert account.stop(key(id_)).said == REFUSED
    assert account.stop(key(id_), lose=frozenset(handling.stop_loses)).said == ACCEPTED
    kept = put(rig, protected=True)
    assert (account.stop(key(kept)).said, account.terminate(key(kept)).said) == (REFUSED, REFUSED)
    moving = put(rig, state="stopping")
    assert account.stop(key(moving)).said == POSTPONED


def test_a_stopped_machine_is_deleted_and_a_running_one_terminated(rig: ScalewayRig, account: ScalewayAccount) -> None:
    stopped, running = put(rig, state=STOPPED), put(rig)
    assert (account.terminate(key(stopped)).said, account.terminate(key(running)).said) == (ACCEPTED, ACCEPTED)
    assert [asked.method for asked in rig.fake.asked if asked.method != "GET"] == ["DELETE", "POST"]
    assert rig.fake.resources == []


def test_prices_are_dollars_at_the_rate_and_a_range_without_one(rig: ScalewayRig, tmp_path: Path) -> None:
    id_ = put(rig, type="H100-SXM-8-80G")
    with rig.opened(tmp_path) as source:
        assert isinstance(source, ScalewayAccount)
        (price,) = items(source)[id_].prices
    assert price.rate is not None
    assert (price.rate.nano_per_hour, price.estimate) == (round(23_030_000_000 / 0.8), None)
    plain = {name: value for name, value in rig.table("http://x").items() if name != "exchange_rate"}
    with serving(rig.fake) as base, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig, "table", lambda _: {**plain, "base_url": base})
        with rig.opened(tmp_path) as source:
            assert isinstance(source, ScalewayAccount)
            (price,) = items(source)[id_].prices
    assert price.estimate is not None
    assert (price.estimate.low, price.estimate.high) == (
        round(23_030_000_000 * USD_PER_EUR[0]),
        round(23_030_000_000 * USD_PER_EUR[2]),
    )
    with pytest.raises(InputError, match="EUR"), rig.opened(tmp_path, exchange_rate="1 USD = 0.80 GBP on 2026-11-01"):
        pass


@pytest.mark.parametrize(
    ("type_", "gpu", "count"),
    [
        ("L4-1-24G", "L4", 1),
        ("L40S-2-48G", "L40S", 2),
        ("H100-1-80G", "H100-PCIe", 1),
        ("H100-SXM-8-80G", "H100-SXM", 8),
        ("B300-SXM-8-288G", "B300", 8),
        ("RENDER-S", "P100-16GB", 1),
        ("H100-SXM-4-80G", "H100-SXM", 4),  # not in the catalogue
        ("NEW-1-9G", "Zebra Z9000", 1),
        ("DEV1-S", "", 0),
    ],
)
def test_types_have_their_gpus(rig: ScalewayRig, account: ScalewayAccount, type_: str, gpu: str, count: int) -> None:
    id_ = put(rig, type=type_)
    one = items(account)[id_]
    assert (one.gpu, one.gpu_count) == (gpu, count)


def test_what_bills_beside_machines_is_listed_in_no_more_than_five_calls(rig: ScalewayRig, account: ScalewayAccount) -> None:
    now = rig.clock.now()
    rig.put(30)
    rig.fake.blocks[ZONE] = [block_volume(1, now, 500)]
    rig.fake.locals[ZONE] = [local_volume(1, now, 20), local_volume(2, now, 3000, "scratch")]
    rig.fake.ips[ZONE] = [address(1), address(2, "routed_ipv6")]
    listed = [one for one in items(account).values() if one.kind != "instance"]
    assert [(one.kind, [(disk.gb, disk.type) for disk in one.disks]) for one in listed] == [
        ("volume", [(20, "l_ssd")]),
        ("volume", [(500, "sbs_5k")]),
        ("address", []),
    ]
    assert len(rig.fake.asked) == 5
    poll(account)
    assert len(rig.fake.asked) == 9
    assert account.look_up(listed[1].key) == listed[1]


def test_a_right_that_is_missing_is_named_and_the_machines_stay(rig: ScalewayRig, account: ScalewayAccount) -> None:
    rig.put(1)
    details = [{"resource": "block_volume", "action": "read"}]
    body = json.dumps({"message": "insufficient permissions", "type": "permissions_denied", "details": details}).encode()
    rig.fake.fault("/block/v1/", "status", status=403, body=body)
    inventory = poll(account).inventory
    assert isinstance(inventory, Partial)
    assert "block volumes" in inventory.why
    assert "block_volume:read" in inventory.why
    checks = {check.subject: check for check in account.examine()}
    assert checks["permission: list block volumes"].outcome == CHECK_BAD
    assert "BlockStorageReadOnly" in checks["permission: list block volumes"].fix
    assert checks["permission: list Instances"].outcome == CHECK_GOOD


def test_a_wrong_key_is_named_and_the_rest_skipped(rig: ScalewayRig, tmp_path: Path) -> None:
    with rig.opened(tmp_path, environ=rig.wrong_environ()) as source:
        assert isinstance(source, ScalewayAccount)
        checks = source.examine()
    assert (checks[0].subject, checks[0].outcome) == ("credentials", CHECK_BAD)
    assert "SCW_SECRET_KEY" in checks[0].fix
    assert {check.outcome for check in checks[2:]} == {CHECK_SKIPPED}


def test_a_listing_that_ends_before_its_total_is_partial(rig: ScalewayRig, account: ScalewayAccount) -> None:
    rig.put(2)

    def claim_more(right: Answer) -> Answer:
        return Answer(status=200, headers={**right.headers, "X-Total-Count": "3"}, body=right.body)

    rig.fake.fault(rig.lists, "edit", edit=claim_more)
    inventory = poll(account).inventory
    assert isinstance(inventory, Partial)
    assert "states 3 servers, and 2 came" in inventory.why


def test_offers_are_gpu_types_that_are_not_in_shortage(rig: ScalewayRig, account: ScalewayAccount) -> None:
    rig.fake.shortages = {"H100-SXM-8-80G"}
    listing = account.list_live_offers({"L4", "H100-SXM"})
    assert [(one.instance_type, one.region, one.rate and one.rate.format()) for one in listing.offers] == [
        ("L4-1-24G", ZONE, "0.9375")
    ]
    assert (listing.why, listing.unnamed) == ("", ("Zebra Z9000",))


def test_the_key_of_scaleways_own_file_and_the_zones_are_read(rig: ScalewayRig, tmp_path: Path) -> None:
    text = "access_key: SCWX\nsecret_key: 5ca1ab1e-1 # mine\nprofiles:\n  lab:\n    secret_key: other\n"
    assert (parse_key(text), parse_key("profiles:\n  lab:\n    secret_key: other\n")) == ("5ca1ab1e-1", "")
    for zones in (["paris"], [], [ZONE, ZONE]):
        with pytest.raises(InputError, match="zone"), rig.opened(tmp_path, zones=zones):
            pass
    assert set(STATES.values()) == {"running", "starting", "stopping", "stopped", "paused", "failed"}
