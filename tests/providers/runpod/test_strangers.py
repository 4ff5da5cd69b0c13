"""Another fake than ours, which speaks the same protocol: other spellings, fewer endpoints, lists that break off."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from costguard_runpod.account import RunpodAccount
from costguard_runpod.billing import BillStatement, parse_bill_lines
from costguard_runpod.wire import BillRecord

from costguard.bills.bill_line import BillLine
from costguard.metering.inventory import Complete, Failed
from costguard.metering.observation import Disk
from costguard.values.calendar import Period
from costguard.values.provider import POSTPONED
from costguard.values.resource import ResourceKey
from tests.contract.rig import poll_of
from tests.providers.runpod.rig import RunpodRig


def test_whole_numbers_may_be_written_with_a_point(account: RunpodAccount, rig: RunpodRig) -> None:
    (id_,) = rig.put(1)
    rig.fake.manners.spoilt[id_] = {("disk",): 50.0, ("gpu", "count"): 2.0, ("mounts",): {"persistent": {"size": 20.0}}}
    poll = poll_of(account)
    assert isinstance(poll.inventory, Complete)
    (pod,) = poll.inventory.items
    assert (pod.gpu, pod.gpu_count) == ("L40S", 2)
    assert pod.disks == (Disk(50, "container"), Disk(20, "volume"))
    assert pod.handling.terminate_loses == ("50 GB of container disk", "20 GB of volume disk")


@pytest.mark.parametrize("size", [50.5, -1, "fifty"])
def test_a_size_that_is_no_whole_number_is_unknown_and_told(account: RunpodAccount, rig: RunpodRig, size: object) -> None:
    (id_,) = rig.put(1)
    rig.fake.manners.spoilt[id_] = {("disk",): size, ("mounts",): {}}
    poll = poll_of(account)
    assert isinstance(poll.inventory, Complete)
    assert poll.inventory.items[0].disks == (Disk(None, "container"),)
    assert any(id_ in note and "disk" in note for note in poll.notes)


@pytest.mark.parametrize("verb", ["stop", "terminate"])
@pytest.mark.parametrize(("field", "value"), [("locked", "true"), ("cluster", "cl1"), ("actions", "stop"), ("status", 3)])
def test_no_act_follows_from_a_pod_whose_lock_or_cluster_cannot_be_read(
    account: RunpodAccount, rig: RunpodRig, verb: str, field: str, value: object
) -> None:
    (id_,) = rig.put(1)
    rig.fake.manners.spoilt[id_] = {(field,): value}
    key, lose = ResourceKey("runpod", "default", "global", id_), frozenset({"50 GB of container disk"})
    reception = account.stop(key, lose=lose) if verb == "stop" else account.terminate(key)
    assert reception.said == POSTPONED
    assert field in reception.why
    assert {one.method for one in rig.fake.asked} == {"GET"}


@pytest.mark.parametrize("gpus", [[{"util": None}, {"util": 5}], [{}], [{"util": -1}, {"util": 200}]])
def test_a_pod_that_states_no_number_is_not_examined_as_measured(account: RunpodAccount, rig: RunpodRig, gpus: Any) -> None:  # noqa: ANN401
    (id_,) = rig.put(1)
    rig.fake.manners.spoilt[id_] = {("runtime",): {"uptime": 5, "gpus": gpus}, ("gpu", "count"): 2}
    (found,) = [check for check in account.examine() if check.subject == "utilization"]
    assert found.outcome == "unsure"
    assert found.told.startswith("0 of 1")


@pytest.mark.parametrize(
    ("kind", "amounts", "nano"),
    [
        ("pods", {"gpuAmount": 1.38, "diskAmount": 0.02}, 1_400_000_000),
        ("pods", {"gpuAmount": 1.38, "diskAmount": 0.02, "totalAmount": 1.5}, 1_500_000_000),
        ("pods", {"totalAmount": 0.7}, 700_000_000),
        ("pods", {"totalAmount": 0}, 0),
        ("network-volumes", {"totalAmount": 0.3, "standardAmount": 0.1, "highPerformanceAmount": 0.2}, 300_000_000),
        ("network-volumes", {"standardAmount": 0.1, "highPerformanceAmount": 0.2}, 300_000_000),
    ],
)
def test_a_bill_without_its_sum_is_the_sum_of_its_parts(kind: str, amounts: dict[str, float], nano: int) -> None:
    lines, unread = billed(kind, amounts)
    assert (sum(line.amount.nano for line in lines), unread) == (nano, 0)


@pytest.mark.parametrize("kind", ["pods", "network-volumes"])
def test_a_bill_that_states_no_amount_is_not_nothing(kind: str) -> None:
    assert billed(kind, {}) == ([], 1)
    assert billed(kind, {"totalAmount": None}) == ([], 1)


def billed(kind: str, amounts: Mapping[str, float | None]) -> tuple[list[BillLine], int]:
    """The lines of one record, and how many records could not be read."""
    start, end = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 1, 1, tzinfo=UTC)
    wire = {"startTime": start.isoformat(), "endTime": end.isoformat(), "podId": "k3v9", "networkVolumeId": "2q9m", **amounts}
    record = msgspec.convert(wire, BillRecord, strict=False)
    period = Period(start=start, end=end)
    return parse_bill_lines([record], BillStatement(kind=kind, account="default", now=end, period=period))


@pytest.mark.parametrize("status", [202, 203, 206])
def test_only_a_200_is_a_whole_list(account: RunpodAccount, rig: RunpodRig, status: int) -> None:
    rig.put(1)
    rig.fake.fault(rig.lists, "status", status=status, body=b'{"pods":[]}')
    assert isinstance(poll_of(account).inventory, Failed)


def test_a_cursor_beside_the_items_is_followed(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.fake.fault(rig.lists, "body", body=b'{"pods":[{"id":"a"}],"nextCursor":"x","hasNextPage":true}', times=1)
    rig.fake.fault(rig.lists, "body", body=b'{"pods":[{"id":"b"}],"nextCursor":null,"hasNextPage":false}', skip=1)
    poll = poll_of(account)
    assert isinstance(poll.inventory, Complete)
    assert {one.key.id for one in poll.inventory.items} == {"a", "b"}
