"""Acts over real HTTP: consent to lose, protection, names that are used again, operations that fail while saying 200."""

from __future__ import annotations

import json
from dataclasses import replace

from costguard_gcp.account import GcpAccount
from costguard_sim.world import Shape, to_us

from costguard.values.provider import ACCEPTED, ALREADY, REFUSED, UNCLEAR
from costguard.values.resource import ResourceKey
from tests.fakes.gcp import number_of
from tests.fakes.server import Answer
from tests.providers.gcp.rig import GcpRig, resource


def _key(rig: GcpRig, kind: str = "g2-standard-8") -> ResourceKey:
    shape = Shape(at_us=0, type=kind)
    rig.fake.resources.append(resource("a", to_us(rig.clock.now()), shapes=(shape,)))
    return ResourceKey("gcp", "acme-lab", "us-central1-a", number_of("a"))


def test_bundled_local_ssd_is_given_up_only_with_consent(rig: GcpRig, account: GcpAccount) -> None:
    key = _key(rig, "a3-highgpu-8g")
    refused = account.stop(key)
    assert (refused.said, "6000 GB" in refused.why) == (REFUSED, True)
    assert account.stop(key, lose=frozenset(("750 GB of local SSD",))).said == REFUSED
    assert rig.fake.calls("POST /compute") == 0
    assert account.stop(key, lose=frozenset(("6000 GB of local SSD",))).said == ACCEPTED
    assert rig.fake.calls("stop.*discardLocalSsd=true") == 1
    assert rig.state_of(key.id) == "stopped"


def test_local_ssd_that_nobody_knows_of_is_refused_by_google(rig: GcpRig, account: GcpAccount) -> None:
    key = _key(rig)
    body = b'{"error": {"code": 400, "message": "an undefined value for discard-local-ssd", "errors": [{"reason": "invalid"}]}}'
    rig.fake.fault(rig.stops or "", "status", status=400, headers={"Content-Type": "application/json"}, body=body)
    reception = account.stop(key)
    assert (reception.said, "discard-local-ssd" in reception.why) == (REFUSED, True)


def test_a_protected_machine_is_not_even_asked_to_be_deleted(rig: GcpRig, account: GcpAccount) -> None:
    key = _key(rig)
    rig.fake.extra[key.id] = {"deletionProtection": True}
    assert account.terminate(key).said == REFUSED
    assert rig.fake.calls("DELETE") == 0
    assert account.stop(key).said == ACCEPTED


def test_an_operation_that_is_done_and_failed_is_a_no(rig: GcpRig, account: GcpAccount) -> None:
    rig.fake.failing = "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"
    reception = account.stop(_key(rig))
    assert (reception.said, "RESOURCE_IN_USE" in reception.why) == (REFUSED, True)


def test_an_operation_on_another_machine_is_unclear(rig: GcpRig, account: GcpAccount) -> None:
    key = _key(rig)

    def other(right: Answer) -> Answer:
        return replace(right, body=json.dumps({**json.loads(right.body), "targetId": "77"}).encode())

    rig.fake.fault(rig.stops or "", "edit", edit=other)
    assert account.stop(key).said == UNCLEAR


def test_a_machine_that_has_another_number_now_is_missing(rig: GcpRig, account: GcpAccount) -> None:
    key = _key(rig)
    rig.fake.extra[key.id] = {"id": "77"}
    assert account.stop(key).said == "missing"
    assert rig.fake.calls("POST /compute") == 0


def test_a_machine_on_its_way_to_a_stop_is_already(rig: GcpRig, account: GcpAccount) -> None:
    key = _key(rig)
    for status in ("STOPPING", "PENDING_STOP", "TERMINATED", "STOPPED"):
        rig.fake.extra[key.id] = {"status": status}
        assert account.stop(key).said == ALREADY
    assert rig.fake.calls("POST /compute") == 0


def test_one_act_is_one_look_and_one_request(rig: GcpRig, account: GcpAccount) -> None:
    account.stop(_key(rig))
    assert [one.method for one in rig.fake.asked if one.path.startswith("/compute")] == ["GET", "POST"]
