"""`costguard start` against RunPod's and Lambda's fakes: the price first, then one request, or none and the reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from costguard.guard.action_intents import DONE
from costguard.guard.policy import PERSON_RULE, START
from costguard.services.guarding.act import by_hand
from tests.cli.test_stop import POD_STOP, Lab, lab
from tests.fakes.runpod import gpu_type
from tests.fakes.server import Answer

__all__ = ["lab"]


def _stopped(lab: Lab) -> str:
    """A pod that was stopped by hand, and whose price the catalogue has."""
    lab.pods.fake.catalogue.append(gpu_type("NVIDIA L40S", 48, 0.89, 0.79))  # type: ignore[attr-defined]
    pod = str(lab.pod()["id"])
    assert lab.run("stop", pod, "--yes").code == 0
    return pod


def test_a_start_shows_its_price_is_sent_once_and_proven(lab: Lab) -> None:
    pod = _stopped(lab)
    ran = lab.run("start", pod, "--yes", "--reason", "the next run")
    assert ran.code == 0, ran.err
    assert "done; verified after" in ran.out
    assert "Costs $1.7800 an hour while it runs" in ran.out or "Costs $1.78 an hour while it runs" in ran.out, ran.out
    assert lab.pods.state_of(pod) == "running"
    assert lab.stops == 2, "one stop and one start: both are actions of the pod"
    with lab.book() as book:
        *_, intent = book.load_intents_since(datetime.now(UTC) - timedelta(minutes=5))
        assert (intent.state, intent.rule, intent.act, intent.sends) == (DONE, PERSON_RULE, START, 1)
        assert "the next run" in intent.why
    again = lab.run("start", pod, "--yes")
    assert (again.code, lab.stops) == (3, 2)
    assert "it is running; nothing was sent" in again.err


def test_a_running_machine_and_one_that_its_provider_cannot_start_are_refused(lab: Lab) -> None:
    assert lab.run("start", str(lab.pod()["id"]), "--yes").code == 3
    ran = lab.run("--offline", "status", "--json")
    machine = next(one for one in json.loads(ran.out)["resources"] if one["provider"] == "lambda" and one["kind"] == "instance")
    refused = lab.run("start", machine["id"], "--yes")
    assert refused.code == 3
    assert "lambda cannot start machines" in refused.err
    assert lab.stops == 0


@pytest.mark.parametrize(("before", "code"), [("protect", 3), ("freeze", 3), ("keep", 0)])
def test_a_freeze_and_a_protection_hold_a_start_and_a_lease_does_not(lab: Lab, before: str, code: int) -> None:
    pod = _stopped(lab)
    rest = ("--for", "4h", "--why", "more") if before == "keep" else ()
    assert lab.run(before, *([] if before == "freeze" else [pod]), *rest).code == 0
    ran = lab.run("start", pod, "--yes")
    assert ran.code == code, ran.err
    assert lab.stops == (2 if code == 0 else 1)


def test_a_refusal_and_a_start_without_effect_are_said(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = _stopped(lab)
    lab.pods.fake.fault(POD_STOP, "status", status=403, times=1)
    refused = lab.run("start", pod, "--yes")
    assert refused.code == 3
    assert "it was not started" in refused.err
    monkeypatch.setattr(by_hand, "PROVE_WITHIN_S", 0.3)
    lab.pods.fake.deaf = True
    ran = lab.run("start", pod, "--yes")
    assert ran.code == 4
    assert "is not verified" in ran.err


@pytest.mark.parametrize("left", [0, 1])
def test_a_pod_that_comes_back_with_fewer_gpus_is_said_and_paged(lab: Lab, left: int) -> None:
    pod = _stopped(lab)

    def lose_gpus(answer: Answer) -> Answer:
        lab.pods.fake.manners.spoilt[pod] = {("gpu", "count"): left}  # type: ignore[attr-defined]
        return answer

    lab.pods.fake.fault(POD_STOP, "edit", edit=lose_gpus, times=1)
    ran = lab.run("start", pod, "--yes")
    assert ran.code == 0, ran.err
    assert f"it came back with {left} of its 2 GPUs: run costguard stop runpod/default/global/{pod}" in " ".join(
        (ran.out + ran.err).split()
    )
    guarded = lab.run("watch", "--once")
    assert f"UTC with {left} of its 2 GPUs" in " ".join((guarded.out + guarded.err).split()), guarded.out + guarded.err
