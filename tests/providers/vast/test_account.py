"""The account over real HTTP: what Vast does that no other cloud does."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from costguard_sim.world import SECOND_US, Rate, Run, to_us

from costguard.errors import CredentialsError, ForbiddenError, InputError, InvalidAnswerError, ProviderError, RefusedError
from costguard.metering.inventory import Complete, Failed, Partial
from costguard.values.calendar import Period
from costguard.values.money import Money
from costguard.values.provider import (
    ACCEPTED,
    ALREADY,
    CHECK_BAD,
    CHECK_GOOD,
    CHECK_UNSURE,
    MISSING,
    REFUSED,
    UNCLEAR,
)
from costguard.values.resource import ResourceKey
from tests.contract.rig import poll_of
from tests.fakes.server import START
from tests.fakes.vast import KEY, USER, volume
from tests.providers.vast.rig import VastRig

LIST, VOLUMES, SEARCH = r"GET /api/v1/instances/", r"GET /api/v0/volumes/", r"POST /api/v0/bundles/"


def key(id_: str) -> ResourceKey:
    return ResourceKey("vast", str(USER), "global", id_)


def ask(gpu: str = "RTX 4090", price: float = 0.4, **more: object) -> dict[str, Any]:
    usual = {
        "gpu_name": gpu,
        "num_gpus": 1,
        "gpu_ram": 24564,
        "dph_base": price,
        "dph_total": price + 0.01,
        "min_bid": price / 2,
    }
    return {**usual, "verification": "verified", "geolocation": "Sweden, SE", "machine_id": 7, "hosting_type": 1, **more}


def test_a_list_that_is_gone_is_failed_and_never_empty(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    gone = json.dumps({"success": False, "error": "deprecated_endpoint", "msg": "Use /api/v2/instances/ instead."}).encode()
    rig.fake.fault(LIST, "status", status=410, body=gone)
    found = poll_of(source).inventory
    assert isinstance(found, Failed)
    assert "deprecated_endpoint" in found.why


def test_a_look_at_an_address_that_is_gone_proves_nothing_of_the_instance(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    (id_,) = rig.put(1)
    gone = json.dumps({"success": False, "error": "deprecated_endpoint", "msg": "gone"}).encode()
    for status, body in ((410, gone), (404, b""), (404, b"<html>"), (404, gone)):
        rig.fake.faults.clear()
        rig.fake.fault(rig.one, "status", status=status, body=body)
        with pytest.raises(ProviderError):
            source.look_up(key(id_))


@pytest.mark.parametrize("as_null", [True, False])
def test_an_instance_that_is_gone_is_none_in_both_forms(rig: VastRig, source: Any, as_null: bool) -> None:  # noqa: ANN401, FBT001
    rig.fake.null_when_gone = as_null
    assert source.look_up(key("1")) is None
    assert source.look_up(key("not-a-number")) is None


@pytest.mark.parametrize("token", [b"", b', "next_token": ""', b', "next_token": 7'])
def test_a_list_without_a_stated_end_is_not_whole(rig: VastRig, source: Any, token: bytes) -> None:  # noqa: ANN401
    rig.fake.fault(LIST, "body", body=b'{"success": true, "instances": []' + token + b"}")
    assert not isinstance(poll_of(source).inventory, Complete)


def test_a_list_that_counts_more_than_it_holds_is_not_whole(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    body = b'{"success": true, "instances": [], "total_instances": 3, "next_token": null}'
    rig.fake.fault(LIST, "body", body=body)
    found = poll_of(source).inventory
    assert isinstance(found, Partial)
    assert "counts 3 instances and lists 0" in found.why


def test_volumes_that_cannot_be_listed_leave_the_listing_partial(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.put(1)
    rig.fake.resources.append(volume(2001))
    assert {one.key.id for one in poll_of(source).inventory.items} == {"24815377", "volume-2001"}  # type: ignore[union-attr]
    assert source.look_up(key("volume-2001")).kind == "volume"
    assert source.look_up(key("volume-2002")) is None
    rig.fake.fault(VOLUMES, "status", status=500)
    found = poll_of(source).inventory
    assert isinstance(found, Partial)
    assert len(found.items) == 1


def test_proposed_price_increases_are_told_and_asked_for_now_and_then(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    (id_,) = rig.put(1)
    rates = {"old_gpu_costpersec": 0.000211, "new_gpu_costpersec": 0.000267}
    rig.fake.increases = [
        {"pending_price_increase_id": 91, "contract_id": int(id_), **rates, "contract_end_date": 1769000000.0}
    ]
    told = f"vast {id_}: its host proposes to raise the price of its GPUs from $0.7596 to $0.9612 an hour after 2026-01-21"
    assert [poll_of(source).notes for _ in range(3)] == [(told,)] * 3
    assert rig.fake.calls("pending-price-increases") == 1
    rig.clock.at += timedelta(minutes=11)
    rig.fake.increases = []
    assert poll_of(source).notes == ()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (403, b'{"success":false,"error":"auth_error","msg":"This action requires login."}'),
        (404, b'{"success":false,"error":"auth_error","msg":"Invalid user key"}'),
        (200, b'{"success":false,"error":"auth_error","msg":"Invalid user key"}'),
        (401, b'{"detail":"Authentication credentials were not provided."}'),
    ],
)
def test_a_wrong_key_is_named_by_its_source_and_never_gone(rig: VastRig, source: Any, status: int, body: bytes) -> None:  # noqa: ANN401
    (id_,) = rig.put(1)
    poll_of(source)
    rig.fake.fault(".*", "status", status=status, body=body)
    with pytest.raises(CredentialsError, match="the variable VAST_API_KEY"):
        source.look_up(key(id_))
    assert source.stop(key(id_)).said == REFUSED
    assert source.terminate(key(id_)).said == REFUSED


def test_a_scoped_key_is_forbidden_and_told_the_groups(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.fake.groups -= {"instance_read"}
    found = poll_of(source).inventory
    assert isinstance(found, Failed)
    assert "instance_read" in found.why


def test_a_stated_account_must_be_that_of_the_key(rig: VastRig, tmp_path: Path) -> None:
    with rig.opened(tmp_path, account="77") as source:
        found = poll_of(source).inventory
        assert isinstance(found, Failed)
        assert "is 77, and its key is of user 123456" in found.why
        with pytest.raises(InputError):
            source.fetch_identity()  # type: ignore[attr-defined]


def test_a_key_that_may_not_say_who_it_is_goes_by_the_stated_account(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.fake.groups -= {"user_read"}
    assert isinstance(poll_of(source).inventory, Complete)
    source.stated, source._id = "", ""
    with pytest.raises(ForbiddenError):
        source.list_scopes()


@pytest.mark.parametrize(
    "body",
    [
        b"API requests too frequent",
        b"API requests too frequent: endpoint threshold=3.0",
        b'{"detail":"API requests too frequent endpoint threshold=1.0"}',
    ],
)
def test_asked_too_often_in_plain_text_is_asked_again(rig: VastRig, source: Any, body: bytes) -> None:  # noqa: ANN401
    rig.put(1)
    rig.fake.fault(LIST, "status", status=429, body=body, times=1)
    assert isinstance(poll_of(source).inventory, Complete)
    assert rig.fake.calls(LIST) == 2


@pytest.mark.parametrize(("bid", "said"), [(False, ALREADY), (True, ACCEPTED)])
def test_a_stop_of_a_stopped_one_is_needless_but_for_one_that_would_resume(
    rig: VastRig,
    source: Any,  # noqa: ANN401
    bid: bool,  # noqa: FBT001
    said: str,
) -> None:
    (id_,) = rig.put(1)
    rig.let(id_, "stopped")
    rig.fake.extra[id_] = {"is_bid": bid}
    assert source.stop(key(id_)).said == said


def test_a_stop_is_sent_although_the_look_before_it_failed(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    (id_,) = rig.put(1)
    rig.fake.fault(rig.one, "status", status=500)
    assert source.stop(key(id_)).said == ACCEPTED
    assert rig.state_of(id_) == "stopped"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"success":false,"error":"no_such_instance","msg":"x"}', MISSING),
        (b'{"success":false,"error":"other","msg":"x"}', UNCLEAR),
        (b"{}", UNCLEAR),
    ],
)
def test_a_200_that_says_no_to_an_act(rig: VastRig, source: Any, body: bytes, said: str) -> None:  # noqa: ANN401
    (id_,) = rig.put(1)
    rig.fake.fault(r"^(PUT|DELETE)", "body", body=body)
    assert source.stop(key(id_)).said == said
    assert source.terminate(key(id_)).said == said


def test_a_volume_is_never_terminated(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.fake.resources.append(volume(2001))
    assert source.terminate(key("volume-2001")).said == REFUSED
    assert rig.fake.calls("^DELETE") == 0


def test_a_create_that_fails_and_leaves_an_instance_is_seen(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.put(1)
    answer = rig.fake._create(replace(_asked(), body=b'{"price": 0.01}'), "9")
    number = json.loads(answer.body)["new_contract"]
    one = next(item for item in poll_of(source).inventory.items if item.key.id == str(number))  # type: ignore[union-attr]
    assert (one.state, one.disks[0].gb) == ("stopped", 64)


def _asked() -> Any:  # noqa: ANN401
    from tests.fakes.server import Asked

    return Asked(method="PUT", path="", query={}, headers={}, body=b"", line="")


def test_an_interruptible_one_that_resumes_by_itself_is_seen_running_again(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.put(1)
    begun = to_us(START)
    runs = (Run(start_us=begun - 60 * SECOND_US, stop_us=begun + 60 * SECOND_US), Run(start_us=begun + 600 * SECOND_US))
    rig.fake.resources[0] = replace(rig.fake.resources[0], runs=runs, tier="spot")
    states = []
    for minute in (0, 5, 11):
        rig.clock.at = START + timedelta(minutes=minute)
        states.append(poll_of(source).inventory.items[0].state)  # type: ignore[union-attr]
    assert states == ["running", "stopped", "running"]


def test_samples_come_with_the_listing_and_only_of_what_runs(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    one, two = rig.put(2)
    rig.let(two, "stopped")
    rig.fake.extra[two] = {"gpu_util": 0.0, "gpu_temp": 30.0}
    assert {sample.key.id for sample in poll_of(source).samples} == {one}


def test_offers_are_on_demand_and_interruptible(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.fake.asks = [
        ask(reliability2=0.998),
        ask("A100 SXM4", 1.5, gpu_ram=40960),
        ask("Zebra", 9),
        ask(price=0, min_bid=0, verification="unverified"),
    ]
    found = source.list_live_offers({"RTX-4090"})
    assert [(one.gpu, one.tier, one.rate.format(2)) for one in found.offers] == [
        ("RTX-4090", "on-demand", "0.40"),
        ("RTX-4090", "spot", "0.20"),
    ]
    assert found.offers[0].note == "machine 7, verified, datacenter, disk and traffic extra"
    assert {(one.reliability, one.verified) for one in found.offers} == {(0.998, True)}
    assert rig.fake.calls(SEARCH) == 1
    assert {one.gpu for one in source.list_live_offers({"A100-40GB-SXM"}).offers} == {"A100-40GB-SXM"}
    assert source.list_live_offers({"TPU-v5e"}).offers == ()


def test_a_group_of_gpus_whose_answer_is_cut_off_is_asked_for_in_halves(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.fake.asks = [ask("RTX 4090", 0.3 + i / 1000) for i in range(40)] + [
        ask("RTX 5090", 0.5, gpu_ram=32607) for _ in range(24)
    ]
    found = source.list_live_offers({"RTX-4090", "RTX-5090"})
    assert (rig.fake.calls(SEARCH), len(found.offers), found.why) == (3, 128, "")


def test_a_used_up_quota_of_searches_is_not_asked_again_before_midnight(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.fake.searches = 0
    for _ in range(3):
        with pytest.raises(RefusedError, match="no searches left"):
            source.list_live_offers({"RTX-4090"})
    assert rig.fake.calls(SEARCH) == 1
    rig.fake.searches, rig.clock.at = 10, START + timedelta(hours=13)
    assert source.list_live_offers({"RTX-4090"}).offers == ()


def test_the_balance_is_the_credit_less_what_is_owed_and_says_both(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.fake.credit, rig.fake.balance = 25.125, -1.5
    found = source.fetch_balance()
    assert (found.amount, found.account) == (Money.parse("23.625"), str(USER))
    assert "balance, is $-1.5, which is taken off the credit of $25.125" in found.why
    rig.fake.balance = 3.0
    assert source.fetch_balance().amount == Money.parse("25.125")
    rig.fake.credit = None  # type: ignore[assignment]
    assert source.fetch_balance().amount is None


def test_bill_lines_are_of_a_day_and_add_up_to_what_the_world_charged(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    (id_,) = rig.put(1)
    begun = to_us(START - timedelta(days=2))
    machine = rig.fake.resources[0]
    rig.fake.resources[0] = replace(
        machine,
        created_us=begun,
        runs=(Run(start_us=begun),),
        rates=(Rate(at_us=begun, nano=760_000_000),),
        traffic=((begun + 1, 500),),
        traffic_nano=10**7,
    )
    found = source.fetch_bill_lines(Period(start=START - timedelta(days=3), end=START))
    assert found.why == ""
    assert {line.resource_id for line in found.lines} == {id_}
    assert {line.charge for line in found.lines} == {"compute", "storage", "traffic"}
    assert {line.start.date().day for line in found.lines} == {19, 20, 21}
    total = sum(line.amount.nano for line in found.lines)
    assert total == pytest.approx(48 * 760_000_000 + 48 * 64 * 150_000_000 / 720 + 5_000_000, abs=10)
    assert [line.estimated for line in found.lines if line.start.day == 19] == [False, False, False]
    assert all(line.estimated for line in found.lines if line.start.day == 21)
    again = source.fetch_bill_lines(Period(start=START - timedelta(days=1), end=START))
    assert {line.id for line in again.lines} <= {line.id for line in found.lines}


def test_charges_are_read_page_by_page_and_a_lost_page_is_said(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.put(501)
    period = Period(start=datetime(2026, 11, 21, tzinfo=UTC), end=START)
    assert len(source.fetch_bill_lines(period).lines) == 1002
    rig.fake.fault("after_token", "status", status=500)
    found = source.fetch_bill_lines(period)
    assert len(found.lines) == 1000
    assert "page 2 was lost" in found.why


def test_an_examination_says_what_each_right_is_worth(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.put(2)
    checks = {check.subject: check for check in source.examine()}
    assert list(checks)[:3] == ["credentials", "reachable", "identity"]
    assert checks["credentials"].told == f"from the variable VAST_API_KEY, ending in ...{KEY[-4:]}"
    assert {check.outcome for subject, check in checks.items() if not subject.endswith(("stop", "terminate"))} == {CHECK_GOOD}
    assert checks["permission: stop"].outcome == CHECK_UNSURE
    assert "2 of 2" in checks["utilization"].told
    rig.fake.groups -= {"billing_read"}
    bad = [check for check in source.examine() if check.outcome == CHECK_BAD]
    assert [(check.subject, check.fix) for check in bad] == [
        ("permission: read the bill", "give the key the group billing_read")
    ]


def test_an_answer_about_another_instance_is_not_believed(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    one, _ = rig.put(2)
    rig.fake.fault(rig.one, "body", body=b'{"instances": {"id": 5}}')
    with pytest.raises(InvalidAnswerError):
        source.look_up(key(one))
