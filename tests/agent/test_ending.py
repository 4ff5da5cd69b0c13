"""How a machine ends itself: tried on the repository's fake clouds where they speak that verb, else on loopback servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from costguard_agent import clouds
from costguard_agent.clouds import runpod
from costguard_agent.http_client import UnansweredError, send_request
from costguard_agent.shutdown import MachineIdentity, ShutdownWay

from tests.agent.near import Machine, Server, answering
from tests.fakes.runpod import KEY as RUNPOD_KEY
from tests.fakes.server import Answer, Asked, serving
from tests.fakes.vast import KEY as VAST_KEY
from tests.providers.runpod.rig import RunpodRig
from tests.providers.vast.rig import VastRig

NOTHING = "http://127.0.0.1:9"
"""Nobody listens there: no test asks a cloud."""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that knows no cloud, and whose shutdown writes a line instead."""
    made = Machine(tmp_path, COSTGUARD_RUNPOD_GRAPHQL=NOTHING, COSTGUARD_RUNPOD_REST=NOTHING, COSTGUARD_VAST_API=NOTHING)
    made.command("shutdown", f'echo "shutdown $*" >> {tmp_path}/off')
    made.env["COSTGUARD_SHUTDOWN"] = "shutdown -h now"
    return made


def off(machine: Machine) -> list[str]:
    """How often, and how, the machine was turned off."""
    file = machine.root / "off"
    return file.read_text().splitlines() if file.exists() else []


def certain(machine: Machine, act: str) -> ShutdownWay:
    way, why = clouds.choose_shutdown_way(clouds.locate_machine(machine.around), act, machine.around)
    assert way is not None, why
    return way


# RunPod


@contextmanager
def pods(machine: Machine) -> Iterator[tuple[RunpodRig, str]]:
    """The repository's fake RunPod with two pods; we are the first."""
    rig = RunpodRig()
    first, _ = rig.put(2)
    with serving(rig.fake) as base:
        machine.env.update(COSTGUARD_RUNPOD_REST=f"{base}/v2", COSTGUARD_RUNPOD_GRAPHQL=f"{base}/graphql")
        machine.env.update(RUNPOD_POD_ID=first, RUNPOD_API_KEY=RUNPOD_KEY)
        yield rig, first


@pytest.mark.parametrize(("act", "after"), [("stop", "stopped"), ("terminate", "ended")])
def test_a_pod_ends_itself_and_no_other(machine: Machine, act: str, after: str) -> None:
    with pods(machine) as (rig, mine):
        way = certain(machine, act)
        assert clouds.read_machine_state(way.place, machine.around) == "running"
        assert clouds.end_machine(way, machine.around).result == "accepted"
        assert rig.state_of(mine) == after
        assert [rig.state_of(r.id) for r in rig.fake.resources if r.id != mine] == ["running"]
        assert rig.fake.calls("POST /v2/pods|DELETE") == 1
    assert RUNPOD_KEY not in repr(way)


def test_a_locked_pod_has_no_certain_way(machine: Machine) -> None:
    with pods(machine) as (rig, mine):
        rig.fake.manners.locked.add(mine)
        way, why = clouds.choose_shutdown_way(clouds.locate_machine(machine.around), "stop", machine.around)
    assert way is None
    assert "does not allow stop now" in why


def pod_by_graphql(pod: str, **more: object) -> object:
    """RunPod's GraphQL, which the repository's fake speaks for the balance only."""

    def answer(asked: Asked) -> Answer:
        said = asked.json()
        assert said["variables"] == {"input": {"podId": pod}}
        name = next(word for word in ("podStop", "podTerminate", "pod") if f"{word}(" in said["query"])
        if name == "podTerminate":
            return Answer.of({"data": {"podTerminate": None}})
        return Answer.of({"data": {name: {"id": pod, "desiredStatus": "EXITED" if name == "podStop" else "RUNNING", **more}}})

    return answer


@pytest.mark.parametrize("act", ["stop", "terminate"])
def test_a_pod_whose_key_speaks_graphql_alone_ends_itself_by_it(machine: Machine, act: str) -> None:
    with answering({"POST /graphql": pod_by_graphql("k3v9x2m7q1w8ab")}) as (server, port):  # type: ignore[dict-item]
        machine.env.update(
            COSTGUARD_RUNPOD_GRAPHQL=f"http://127.0.0.1:{port}/graphql", RUNPOD_POD_ID="k3v9x2m7q1w8ab", RUNPOD_API_KEY="x"
        )
        way = certain(machine, act)
        assert way.how == runpod.BY_GRAPHQL
        assert clouds.end_machine(way, machine.around).result == "accepted"
        assert len(server.asked) == 2


def test_a_pod_with_a_network_volume_is_not_stopped_on_a_guess(machine: Machine) -> None:
    answer = pod_by_graphql("k3v9x2m7q1w8ab", networkVolumeId="vol1")
    with answering({"POST /graphql": answer}) as (_, port):  # type: ignore[dict-item]
        machine.env.update(
            COSTGUARD_RUNPOD_GRAPHQL=f"http://127.0.0.1:{port}/graphql", RUNPOD_POD_ID="k3v9x2m7q1w8ab", RUNPOD_API_KEY="x"
        )
        ways = clouds.list_shutdown_ways(clouds.locate_machine(machine.around), machine.around)
    assert [(way.act, way.certain) for way in ways] == [("stop", False), ("terminate", True)]


def test_a_channel_that_refuses_for_certain_is_followed_by_the_other_and_one_that_is_unsure_is_not(machine: Machine) -> None:
    def refusing(code: str) -> Server:
        with ExitStack() as stack:
            rig, mine = stack.enter_context(pods(machine))
            no = {"errors": [{"message": "no", "extensions": {"code": code}}], "data": None}

            def answer(asked: Asked) -> Answer:
                return Answer.of(no) if "podStop(" in asked.json()["query"] else pod_by_graphql(mine)(asked)  # type: ignore[operator]

            _, port = stack.enter_context(answering({"POST /graphql": answer}))
            machine.env["COSTGUARD_RUNPOD_GRAPHQL"] = f"http://127.0.0.1:{port}/graphql"
            outcome = clouds.end_machine(certain(machine, "stop"), machine.around)
            assert (outcome.result, rig.state_of(mine)) == (
                ("accepted", "stopped") if code == "FORBIDDEN" else ("unknown", "running")
            )
            return rig.fake  # type: ignore[return-value]

    assert refusing("FORBIDDEN").calls("POST /v2/pods/.*/action") == 1
    assert refusing("INTERNAL_SERVER_ERROR").calls("POST /v2/pods/.*/action") == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"RUNPOD_ENDPOINT_ID": "abc"}, "serverless worker"),
        ({"RUNPOD_API_KEY": ""}, "RUNPOD_API_KEY is set neither here"),
        ({"RUNPOD_POD_ID": "../../pods"}, "not a pod's id"),
        ({"RUNPOD_POD_ID": "k3v9x2m7q1w8ab"}, "names another pod than that of the first process"),
        ({"RUNPOD_API_KEY": "wrong"}, "neither GraphQL nor REST"),
    ],
)
def test_a_pod_that_cannot_end_itself_says_why(machine: Machine, change: dict[str, str], why: str) -> None:
    with pods(machine) as (_, pod):
        machine.file("proc/1/environ", f"RUNPOD_POD_ID={pod}\0")
        machine.env.update(change)
        way, reason = clouds.choose_shutdown_way(clouds.locate_machine(machine.around), "stop", machine.around)
    assert way is None
    assert why in reason


@pytest.mark.parametrize(
    ("kind", "result"), [("did", "unknown"), ("reset", "unknown"), ("html", "unknown"), ("status", "unknown")]
)
def test_a_lost_answer_is_unknown_and_never_sent_again(machine: Machine, kind: str, result: str) -> None:
    with pods(machine) as (rig, _):
        way = certain(machine, "stop")
        fault = {"status": 503} if kind in ("html", "status") else {}
        rig.fake.fault("/action", kind, **fault)
        assert clouds.end_machine(way, machine.around).result == result
        assert rig.fake.calls("/action") == 1


# Vast


@contextmanager
def contracts(machine: Machine) -> Iterator[tuple[VastRig, str]]:
    """The repository's fake Vast with two instances; we are the first."""
    rig = VastRig()
    first, _ = rig.put(2)
    with serving(rig.fake) as base:
        machine.env.update(COSTGUARD_VAST_API=base, VAST_CONTAINERLABEL=f"C.{first}", CONTAINER_API_KEY=VAST_KEY)
        yield rig, first


@pytest.mark.parametrize(("act", "after"), [("stop", "stopped"), ("terminate", "ended")])
def test_a_container_of_vast_ends_itself_and_no_other(machine: Machine, act: str, after: str) -> None:
    with contracts(machine) as (rig, mine):
        way = certain(machine, act)
        assert clouds.read_machine_state(way.place, machine.around) == "running"
        assert clouds.end_machine(way, machine.around).result == "accepted"
        assert rig.state_of(mine) == after
        assert sum(rig.state_of(rig.fake.id_of(one)) == "running" for one in rig.fake.resources) == 1
        if act == "stop":
            assert clouds.read_machine_state(way.place, machine.around) == "ended"
            assert "about USD" in way.bills_after
    assert VAST_KEY not in repr(way)


def test_the_environment_file_of_a_container_is_read_too(machine: Machine) -> None:
    with contracts(machine) as (_, mine):
        for name in ("VAST_CONTAINERLABEL", "CONTAINER_API_KEY"):
            machine.env.pop(name)
        machine.file("etc/environment", f'CONTAINER_ID="{mine}"\nCONTAINER_API_KEY={VAST_KEY}\n')
        assert certain(machine, "stop").place == MachineIdentity("vast", mine)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"CONTAINER_API_KEY": "wrong"}, "cannot read this instance"),
        ({"CONTAINER_API_KEY": ""}, "CONTAINER_API_KEY is set neither here"),
        ({"VAST_CONTAINERLABEL": "C.999"}, "cannot read this instance"),
        ({"CONTAINER_ID": "7"}, "do not name one instance"),
        ({"COSTGUARD_VAST_API": NOTHING}, "Vast did not answer: no server is listening there"),
    ],
)
def test_a_container_that_cannot_end_itself_says_why(machine: Machine, change: dict[str, str], why: str) -> None:
    with contracts(machine) as (rig, mine):
        machine.env.update(change)
        way, reason = clouds.choose_shutdown_way(clouds.locate_machine(machine.around), "stop", machine.around)
        assert rig.state_of(mine) == "running"
    assert way is None
    assert why in reason


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        ({"kind": "did"}, "unknown"),
        ({"kind": "status", "status": 502}, "unknown"),
        ({"kind": "status", "status": 429, "body": b"API requests too frequent: endpoint threshold=1.0"}, "refused"),
        ({"kind": "body", "body": b'{"success": false, "error": "no_such_instance"}'}, "refused"),
        ({"kind": "html"}, "unknown"),
    ],
)
def test_what_vast_says_is_told_as_it_is_and_asked_once(machine: Machine, fault: dict[str, object], result: str) -> None:
    with contracts(machine) as (rig, _):
        way = certain(machine, "stop")
        rig.fake.fault("PUT", **fault)  # type: ignore[arg-type]
        assert clouds.end_machine(way, machine.around).result == result
        assert rig.fake.calls("PUT") == 1


# AWS and GCP


def metadata(**more: str) -> dict[str, object]:
    """IMDSv2: everything needs a token."""
    pages = {
        "dynamic/instance-identity/document": json.dumps({"instanceId": "i-0123456789abcdef0", "region": "eu-central-1"}),
        "meta-data/instance-life-cycle": "on-demand",
        "meta-data/block-device-mapping/": "ami\nephemeral0\nroot",
        **more,
    }

    def page(text: str) -> object:
        def answer(asked: Asked) -> Answer:
            right = asked.headers.get("x-aws-ec2-metadata-token") == "tok123=="
            return Answer(body=text.encode()) if right else Answer(status=401)

        return answer

    token = Answer(body=b"tok123==")
    return {"PUT /latest/api/token": token, **{f"GET /latest/{path}": page(text) for path, text in pages.items()}}


@contextmanager
def instance(machine: Machine, **more: str) -> Iterator[Server]:
    with answering(metadata(**more)) as (server, port):  # type: ignore[arg-type]
        machine.env["COSTGUARD_AWS_METADATA"] = f"http://127.0.0.1:{port}"
        yield server


def test_ec2_is_not_shut_down_before_somebody_stated_what_that_means(machine: Machine) -> None:
    with instance(machine):
        place = clouds.locate_machine(machine.around)
        ways = clouds.list_shutdown_ways(place, machine.around)
        assert [(way.act, way.certain) for way in ways] == [("stop", False), ("terminate", False)]
        assert [clouds.end_machine(way, machine.around).result for way in ways] == ["refused", "refused"]
    assert place == MachineIdentity("aws", "i-0123456789abcdef0", "", place.facts)
    assert "--shutdown-means" in ways[0].why
    assert off(machine) == []


def test_ec2_is_shut_down_as_was_stated_for_this_instance(machine: Machine) -> None:
    machine.file("etc/hostname", "box")
    with instance(machine):
        clouds.save_shutdown_meaning(clouds.locate_machine(machine.around), "stop", machine.around)
        assert clouds.choose_shutdown_way(clouds.locate_machine(machine.around), "terminate", machine.around)[0] is None
        way = certain(machine, "stop")
        assert "instance store" in way.loses
        assert clouds.end_machine(way, machine.around) == ("accepted", "the operating system shuts down")
    assert off(machine) == ["shutdown -h now"]


def test_a_pods_id_on_a_whole_machine_ends_no_pod(machine: Machine) -> None:
    machine.file("run/systemd/system/boot", "")
    with pods(machine) as (rig, _):
        way, reason = clouds.choose_shutdown_way(clouds.locate_machine(machine.around), "stop", machine.around)
        assert rig.fake.calls("/") == 0
    assert way is None
    assert "this is a whole machine" in reason


@pytest.mark.parametrize("stated", ["i-00000000000000000 stop", "stop"])
def test_an_image_does_not_carry_the_statement_to_another_instance(machine: Machine, stated: str) -> None:
    machine.file("etc/costguard-shutdown-means", f"{stated}\n")
    machine.env["COSTGUARD_SHUTDOWN_MEANS"] = stated
    with instance(machine):
        assert clouds.choose_shutdown_way(clouds.locate_machine(machine.around), "stop", machine.around)[0] is None


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        ({"meta-data/autoscaling/target-lifecycle-state": "InService"}, "auto-scaling group"),
        ({"meta-data/instance-life-cycle": "capacity-block"}, "paid for already"),
        ({"meta-data/instance-life-cycle": "spot"}, "one-time request cannot be stopped"),
        ({"dynamic/instance-identity/document": "<html>"}, "did not say which instance"),
    ],
)
def test_ec2_has_no_way_where_a_shutdown_would_do_something_else(machine: Machine, pages: dict[str, str], why: str) -> None:
    machine.env["COSTGUARD_SHUTDOWN_MEANS"] = "i-0123456789abcdef0 stop"
    with instance(machine, **pages):
        way, reason = clouds.choose_shutdown_way(clouds.locate_machine(machine.around), "stop", machine.around)
    assert way is None
    assert why in reason


def vm(machine: Machine, **more: object) -> dict[str, object]:
    said = {
        "id": 4520031799277581759,
        "name": "train",
        "zone": "projects/1/zones/us-central1-a",
        "attributes": {},
        "disks": [],
        **more,
    }

    def answer(asked: Asked) -> Answer:
        return Answer.of(said) if asked.headers.get("metadata-flavor") == "Google" else Answer(status=403)

    del machine
    return {"GET /computeMetadata/v1/instance/": answer}


def test_a_vm_of_gcp_stops_by_its_shutdown(machine: Machine) -> None:
    with answering(vm(machine, disks=[{"type": "LOCAL-SSD"}])) as (_, port):  # type: ignore[arg-type]
        machine.env["COSTGUARD_GCP_METADATA"] = f"http://127.0.0.1:{port}"
        assert clouds.choose_shutdown_way(clouds.locate_machine(machine.around), "terminate", machine.around)[0] is None
        way = certain(machine, "stop")
        assert "local SSDs" in way.loses
        assert clouds.end_machine(way, machine.around).result == "accepted"
    assert off(machine) == ["shutdown -h now"]


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        (
            {"created-by": "projects/1/zones/us-central1-a/instanceGroupManagers/pool"},
            "a managed instance group would start it again",
        ),
        ({"cluster-name": "gke-1"}, "its GKE cluster would start it again"),
    ],
)
def test_a_vm_that_would_be_started_again_has_no_way(machine: Machine, attributes: dict[str, str], why: str) -> None:
    with answering(vm(machine, attributes=attributes)) as (_, port):  # type: ignore[arg-type]
        machine.env["COSTGUARD_GCP_METADATA"] = f"http://127.0.0.1:{port}"
        assert why in clouds.choose_shutdown_way(clouds.locate_machine(machine.around), "stop", machine.around)[1]


@pytest.mark.parametrize("name", [".dockerenv", "run/.containerenv"])
def test_turning_off_a_container_is_no_way(machine: Machine, name: str) -> None:
    machine.file(name, "")
    with answering(vm(machine)) as (_, port):  # type: ignore[arg-type]
        machine.env["COSTGUARD_GCP_METADATA"] = f"http://127.0.0.1:{port}"
        assert "in a container" in clouds.choose_shutdown_way(clouds.locate_machine(machine.around), "stop", machine.around)[1]


def test_a_shutdown_that_fails_is_refused_and_one_that_hangs_is_unknown(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("costguard_agent.shutdown.WITHIN_S", 0.5)
    with answering(vm(machine)) as (_, port):  # type: ignore[arg-type]
        machine.env["COSTGUARD_GCP_METADATA"] = f"http://127.0.0.1:{port}"
        way = certain(machine, "stop")
        machine.command("shutdown", "echo 'Access denied' >&2; exit 1")
        assert clouds.end_machine(way, machine.around) == ("refused", "shutdown ended with 1: Access denied")
        machine.command("shutdown", "sleep 60")
        assert clouds.end_machine(way, machine.around).result == "unknown"


def test_an_unknown_place_has_no_way_and_says_why(machine: Machine) -> None:
    place = clouds.locate_machine(machine.around)
    assert (place.provider, clouds.list_shutdown_ways(place, machine.around)) == ("", [])
    assert "no way to end it from inside" in clouds.choose_shutdown_way(place, "stop", machine.around)[1]
    assert (
        clouds.end_machine(ShutdownWay("stop", "", "", "", "", certain=True, place=place), machine.around).result == "refused"
    )


def test_a_request_goes_out_in_one_piece_and_what_was_never_sent_is_known() -> None:
    """Half of one is what a server refuses (RELIABILITY, H30): head and body leave in one write."""
    with answering({"PUT /x": lambda asked: Answer.of({"heard": asked.body.decode()})}) as (server, port):
        reply = send_request(f"http://127.0.0.1:{port}/x", method="PUT", body=b'{"state":"stopped"}')
    assert (reply.parse_json(), server.cut_short) == ({"heard": '{"state":"stopped"}'}, 0)
    for address in (NOTHING, "ftp://127.0.0.1/x", "http://[::1/x", "http://127.0.0.1:99999/x", "http:///x", "\0"):
        with pytest.raises(UnansweredError) as caught:
            send_request(address, method="PUT", body=b"{}")
        assert caught.value.sent is False
