"""Stopping and ending pods: what is looked at first, what is sent, and how each answer is read."""

from __future__ import annotations

import pytest
from costguard_runpod.account import RunpodAccount

from costguard.values.provider import ACCEPTED, ALREADY, MISSING, POSTPONED, REFUSED
from costguard.values.resource import ResourceKey
from tests.fakes.runpod import problem
from tests.providers.runpod.rig import RunpodRig

LOSE = frozenset({"50 GB of container disk"})


def key_of(id_: str) -> ResourceKey:
    return ResourceKey("runpod", "default", "global", id_)


def test_a_stop_says_what_it_loses_first(account: RunpodAccount, rig: RunpodRig) -> None:
    (id_,) = rig.put(1)
    refused = account.stop(key_of(id_))
    assert refused.said == REFUSED
    assert "50 GB of container disk" in refused.why
    assert rig.fake.calls("POST") == 0
    assert account.stop(key_of(id_), lose=LOSE).said == ACCEPTED
    assert rig.state_of(id_) == "stopped"
    assert [one.json() for one in rig.fake.asked if one.method == "POST"] == [{"action": "stop"}]


def test_a_stop_of_a_stopped_pod_sends_nothing(account: RunpodAccount, rig: RunpodRig) -> None:
    (id_,) = rig.put(1)
    rig.let(id_, "stopped")
    assert account.stop(key_of(id_)).said == ALREADY
    assert rig.fake.calls("POST") == 0


def test_a_pod_that_stopped_in_between_is_already_there(account: RunpodAccount, rig: RunpodRig) -> None:
    (id_,) = rig.put(1)
    rig.fake.fault(rig.stops or "", "edit", edit=lambda _: problem(409, "Conflict", "cannot stop the pod"))
    assert account.stop(key_of(id_), lose=LOSE).said == ALREADY
    assert rig.fake.calls("POST") == 1


def test_a_conflict_of_a_pod_that_still_runs_is_refused(account: RunpodAccount, rig: RunpodRig) -> None:
    (id_,) = rig.put(1)
    rig.fake.deaf = True
    rig.fake.fault(rig.stops or "", "edit", edit=lambda _: problem(409, "Conflict", "its host is busy"))
    reception = account.stop(key_of(id_), lose=LOSE)
    assert reception.said == REFUSED
    assert "its host is busy" in reception.why


@pytest.mark.parametrize("verb", ["stop", "terminate"])
@pytest.mark.parametrize(
    ("how", "said"), [("cluster", "cluster cluster_7"), ("locked", "locked"), ("actions", "allows restart")]
)
def test_what_must_be_left_alone_is_refused_without_a_request(
    account: RunpodAccount, rig: RunpodRig, verb: str, how: str, said: str
) -> None:
    (id_,) = rig.put(1)
    if how == "cluster":
        rig.fake.manners.cluster[id_] = "cluster_7"
    elif how == "locked":
        rig.fake.manners.locked.add(id_)
    else:
        rig.fake.manners.spoilt[id_] = {("actions",): ["restart"]}
    reception = account.stop(key_of(id_), lose=LOSE) if verb == "stop" else account.terminate(key_of(id_))
    assert reception.said == REFUSED
    assert said in reception.why
    assert {one.method for one in rig.fake.asked} == {"GET"}


def test_a_network_volume_is_never_deleted(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.put(1)
    assert account.terminate(key_of("volume000001")).said == MISSING
    assert rig.fake.calls("DELETE") == 0


def test_a_terminated_pod_is_already_ended(account: RunpodAccount, rig: RunpodRig) -> None:
    (id_,) = rig.put(1)
    rig.fake.manners.status[id_] = "TERMINATED"
    assert account.terminate(key_of(id_)).said == ALREADY
    assert account.stop(key_of(id_)).said == MISSING


@pytest.mark.parametrize("status", [500, 503])
def test_a_look_that_fails_sends_nothing(account: RunpodAccount, rig: RunpodRig, status: int) -> None:
    (id_,) = rig.put(1)
    rig.fake.fault(rig.one, "status", status=status)
    reception = account.terminate(key_of(id_))
    assert reception.said == POSTPONED
    assert "nothing was sent" in reception.why
    assert rig.fake.calls("DELETE") == 0


@pytest.mark.parametrize("verb", ["stop", "terminate"])
def test_a_retired_api_is_no_proof_that_a_pod_is_gone(account: RunpodAccount, rig: RunpodRig, verb: str) -> None:
    (id_,) = rig.put(1)
    rig.fake.fault("/v2/", "status", status=410)
    reception = account.stop(key_of(id_), lose=LOSE) if verb == "stop" else account.terminate(key_of(id_))
    assert reception.said == REFUSED
    assert "retired" in reception.why
