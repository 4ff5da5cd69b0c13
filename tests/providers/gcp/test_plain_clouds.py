"""Clouds that speak the same protocol and less of it, and refusals that only look like an empty project."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from costguard_gcp import inventory
from costguard_gcp.account import GcpAccount
from costguard_gcp.monitoring import METRICS

from costguard.metering.inventory import Complete, Failed, Inventory, Partial
from costguard.values.calendar import Period
from costguard.values.provider import ACCEPTED, CHECK_BAD, CHECK_UNSURE, MISSING, POSTPONED, REFUSED
from costguard.values.resource import ResourceKey
from tests.fakes.gcp import refusal
from tests.fakes.server import Answer
from tests.providers.gcp.rig import GcpRig

CONSUMER = "777777777"


def _key(rig: GcpRig) -> ResourceKey:
    return ResourceKey("gcp", "acme-lab", "us-central1-a", rig.put(1)[0])


def _inventory(account: GcpAccount, which: int = 0) -> Inventory:
    return account.poll(account.list_scopes()[which]).inventory


def _says(rig: GcpRig, where: str, body: object, status: int = 200) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    rig.fake.fault(where, "status", status=status, headers={"Content-Type": "application/json"}, body=data)


def _switched_off(rig: GcpRig, where: str = "") -> None:
    told = f"Compute Engine API has not been used in project {CONSUMER} before or it is disabled."
    no = refusal(403, "accessNotConfigured", told, info="SERVICE_DISABLED", consumer=f"projects/{CONSUMER}")
    rig.fake.fault(where or rig.lists, "status", status=403, headers=no.headers, body=no.body)


def test_an_api_that_is_off_is_not_believed_where_machines_were_seen(rig: GcpRig, account: GcpAccount) -> None:
    rig.put(1)
    assert isinstance(_inventory(account), Complete)
    _switched_off(rig)
    after = _inventory(account)
    assert isinstance(after, Failed)
    assert "seen there before" in after.why


@pytest.mark.parametrize(("number", "kind"), [(CONSUMER, Complete), ("888888888", Failed)])
def test_whose_api_is_off_is_held_against_the_projects_number(
    rig: GcpRig, account: GcpAccount, number: str, kind: type[Inventory]
) -> None:
    _says(rig, "GET /v3/projects/acme-lab$", {"name": f"projects/{number}", "projectId": "acme-lab"})
    _switched_off(rig)
    assert isinstance(_inventory(account), kind)
    reached = next(check for check in account.examine() if check.subject.startswith("reachable"))
    assert reached.outcome == (CHECK_UNSURE if kind is Complete else CHECK_BAD)


def test_one_number_that_two_projects_are_refused_with_empties_neither(rig: GcpRig, account: GcpAccount) -> None:
    _switched_off(rig, "aggregated/instances")
    first, _ = account.list_scopes()[0], account.lister.absence
    assert account.poll(first).inventory == Complete(())
    other = first._replace(account="acme-prod")
    assert isinstance(account.poll(other).inventory, Failed)
    assert isinstance(account.poll(first).inventory, Failed)


def test_a_page_of_a_filtered_list_may_be_empty_and_not_the_last(rig: GcpRig, account: GcpAccount) -> None:
    key = _key(rig)
    rig.fake.fault(rig.one + "(?!.*pageToken)", "edit", edit=_first_page_is_empty)
    assert account.look_up(key) is not None
    assert account.stop(key).said == ACCEPTED


def _first_page_is_empty(_right: Answer) -> Answer:
    return Answer.of({"kind": "compute#instanceList", "nextPageToken": "next"})


def test_a_zone_that_is_no_list_by_itself_is_looked_up_among_all(rig: GcpRig, account: GcpAccount) -> None:
    key = _key(rig)
    rig.fake.fault(r"/zones/[^/]+/(instances|disks)\?", "status", status=404)
    assert account.look_up(key) is not None
    gone = key._replace(id="1")
    assert account.look_up(gone) is None
    assert account.stop(gone).said == MISSING
    assert account.stop(key).said == ACCEPTED


@pytest.mark.parametrize(
    ("fields", "owner"),
    [
        ({"metadata": {"items": [{"key": "created-by", "value": "projects/1/zones/z/instanceGroupManagers/m"}]}}, "group m"),
        ({"labels": {"goog-k8s-node-pool-name": "gpus"}}, "GKE node pool gpus"),
        ({"name": "gke-pool-1"}, "GKE node pool"),
    ],
)
def test_what_would_be_brought_back_is_left_alone(
    rig: GcpRig, account: GcpAccount, fields: Mapping[str, Any], owner: str
) -> None:
    key = _key(rig)
    rig.fake.extra[key.id] = dict(fields)
    for reception in (account.stop(key), account.terminate(key)):
        assert (reception.said, owner in reception.why) == (REFUSED, True)
    assert rig.fake.calls("POST /compute") == rig.fake.calls("DELETE") == 0


def test_an_act_over_the_rate_limit_was_not_done(rig: GcpRig, account: GcpAccount) -> None:
    key = _key(rig)
    no = refusal(403, "rateLimitExceeded")
    rig.fake.fault(rig.stops or "", "status", status=403, headers=no.headers, body=no.body)
    assert account.stop(key).said == POSTPONED


def test_gpus_that_are_not_counted_leave_the_price_unknown(rig: GcpRig, account: GcpAccount) -> None:
    key = _key(rig)
    rig.fake.extra[key.id] = {
        "machineType": "z/machineTypes/n1-standard-8",
        "guestAccelerators": [{"acceleratorType": "z/acceleratorTypes/nvidia-tesla-t4"}],
    }
    poll = account.poll(account.list_scopes()[0])
    assert isinstance(poll.inventory, Complete)
    assert poll.inventory.items[0].prices[0].rate is None
    assert any("how many GPUs" in note for note in poll.notes)


def test_reaching_something_that_is_no_list_is_bad(rig: GcpRig, account: GcpAccount) -> None:
    _says(rig, rig.lists, {})
    reached = next(check for check in account.examine() if check.subject.startswith("reachable"))
    assert (reached.outcome, bool(reached.fix)) == (CHECK_BAD, True)


def test_more_machines_than_the_cap_are_partial(rig: GcpRig, account: GcpAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    assert inventory.MOST_ITEMS == 50_000
    monkeypatch.setattr(inventory, "MOST_ITEMS", 5)
    rig.put(7)
    found = _inventory(account)
    assert isinstance(found, Partial)
    assert "more than 5" in found.why


def test_groups_of_a_measure_are_asked_for_one_by_one_and_a_measure_that_nobody_wrote_is_no_fault(
    rig: GcpRig, account: GcpAccount
) -> None:
    rig.put(1)
    found = _inventory(account)
    assert isinstance(found, Complete)
    rig.fake.fault("metric.type%3D%22(agent|workload)", "status", status=404)
    now = rig.clock.now()
    told = account.fetch_utilization(found.items, Period(start=now.replace(hour=0), end=now))
    assert all("Ops Agent" in why or "no data" in why for _, why in told.blind)
    groups = sum(1 + len(metric.group) for metric in METRICS if metric.group)
    assert rig.fake.calls("&".join(["aggregation.groupByFields=[a-z_.]+"] * groups)) == 1
