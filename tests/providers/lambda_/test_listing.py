"""What Lambda lists: every state, what is missing, secrets, and how often it is asked."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from costguard_sim.world import SECOND_US, to_us

from costguard.errors import ProviderError
from costguard.metering.inventory import Complete, Partial
from costguard.metering.observation import Disk, Price
from costguard.values.money import Rate
from tests.fakes.lambda_ import JUPYTER
from tests.fakes.server import START, Answer
from tests.providers.lambda_.open_fake import account, items, key, polled
from tests.providers.lambda_.rig import LambdaRig, machine

NOW = to_us(START)
HOUR_US = 3600 * SECOND_US


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("booting", "starting"),
        ("active", "running"),
        ("unhealthy", "failed"),
        ("terminating", "stopping"),
        ("terminated", "ended"),
        ("preempted", "stopping"),
        ("hibernating", "unknown"),
        (None, "unknown"),
    ],
)
def test_each_word_for_a_state_has_one_here(rig: LambdaRig, tmp_path: Path, word: str | None, state: str) -> None:
    (id_,) = rig.put(1)
    rig.spoil(id_, status=word)
    with account(rig, tmp_path) as source:
        poll = polled(source)
    assert items(poll)[id_].state == state
    assert items(poll)[id_].why == (word or "")
    assert bool(poll.notes) == (state == "unknown")


def test_a_machine_is_told_with_its_price_gpu_owner_and_launch_and_no_start(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.resources = [machine("i-1", start_us=NOW - HOUR_US, kind="gpu_8x_h100_sxm5", cents=3192)]
    with account(rig, tmp_path) as source:
        (seen,) = items(polled(source)).values()
    assert seen.key == key("i-1")
    assert (seen.gpu, seen.gpu_count, seen.instance_type) == ("H100-SXM", 8, "gpu_8x_h100_sxm5")
    assert seen.prices == (Price(Rate(nano_per_hour=31_920_000_000)),)
    assert (seen.owner, seen.labels) == ("alice", (("owner", "alice"), ("project", "llm")))
    assert seen.created_at == START - timedelta(minutes=61)
    assert seen.started_at is None
    assert seen.disks == (Disk(22528, "local-ssd"),)
    assert seen.handling.stops is False
    assert seen.handling.terminates is True
    assert seen.handling.terminate_loses == ("22528 GiB of local disk",)


def test_a_booting_machine_without_name_address_and_tags_is_told_and_cannot_be_ended_yet(
    rig: LambdaRig, tmp_path: Path
) -> None:
    rig.fake.resources = [machine("i-1", start_us=NOW + HOUR_US, boot_us=2 * HOUR_US)]
    rig.spoil("i-1", name=..., tags=..., jupyter_url=...)
    with account(rig, tmp_path) as source:
        poll = polled(source)
    (seen,) = items(poll).values()
    assert isinstance(poll.inventory, Complete)
    assert (seen.state, seen.name, seen.labels) == ("starting", "", ())
    assert seen.owner == "alice-laptop", "the one key that logs in is a hint"
    assert seen.handling.terminates is False


def test_a_machine_without_a_gpu_has_none_and_is_not_noted(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.resources = [machine("i-1", start_us=NOW - HOUR_US, kind="cpu_4x_general", cents=12)]
    with account(rig, tmp_path) as source:
        poll = polled(source)
    (seen,) = items(poll).values()
    assert (seen.gpu, seen.gpu_count) == ("", 0)
    assert poll.notes == ()


def test_a_gpu_that_stands_only_in_the_description_is_found_there(rig: LambdaRig, tmp_path: Path) -> None:
    (id_,) = rig.put(1)
    rig.spoil(id_, gpu=...)
    with account(rig, tmp_path) as source:
        assert items(polled(source))[id_].gpu == "A10"


def test_a_reserved_machine_is_told_as_committed(rig: LambdaRig, tmp_path: Path) -> None:
    (id_,) = rig.put(1)
    rig.spoil(id_, is_reserved=True)
    with account(rig, tmp_path) as source:
        assert "reserved" in items(polled(source))[id_].handling.committed


def test_a_machine_whose_type_cannot_be_read_runs_at_an_unknown_price(rig: LambdaRig, tmp_path: Path) -> None:
    one, two = rig.put(2)
    rig.spoil(one, instance_type="a lot")
    with account(rig, tmp_path) as source:
        poll = polled(source)
    assert isinstance(poll.inventory, Complete)
    assert (items(poll)[one].state, items(poll)[one].prices) == ("running", (Price(None),))
    assert items(poll)[two].state == "running"
    assert one in poll.notes[0]


@pytest.mark.parametrize("region", [None, ..., {"name": None}, "us-west-1"])
def test_a_machine_without_its_region_is_only_said(rig: LambdaRig, tmp_path: Path, region: Any) -> None:  # noqa: ANN401
    one, two = rig.put(2)
    rig.spoil(one, region=region)
    with account(rig, tmp_path) as source:
        poll = polled(source)
    assert isinstance(poll.inventory, Partial)
    assert set(items(poll)) == {two}
    assert one in poll.inventory.why


def test_no_secret_of_a_machine_leaves_the_decoder(rig: LambdaRig, tmp_path: Path) -> None:
    rig.put(2)
    with account(rig, tmp_path) as source:
        assert JUPYTER not in repr(polled(source))
    assert "GET /api/v1/instances" in rig.fake.asked[0].line


def test_a_machine_that_ends_is_stopping_then_gone_and_known_by_its_id(rig: LambdaRig, tmp_path: Path) -> None:
    (id_,) = rig.put(1)
    with account(rig, tmp_path) as source:
        rig.fake.end(id_)
        assert items(polled(source))[id_].state == "stopping"
        rig.clock.at += timedelta(minutes=1)
        assert not items(polled(source))
        found = source.look_up(key(id_))
        assert found is not None
        assert found.state == "ended"
        rig.clock.at += timedelta(hours=1)
        assert source.look_up(key(id_)) is None


def test_a_404_that_is_not_lambdas_proves_nothing(rig: LambdaRig, tmp_path: Path) -> None:
    (id_,) = rig.put(1)
    rig.fake.fault(rig.one, "html", status=404)
    with account(rig, tmp_path) as source, pytest.raises(ProviderError, match="base_url"):
        source.look_up(key(id_))


def test_an_answer_about_another_machine_proves_nothing(rig: LambdaRig, tmp_path: Path) -> None:
    one, two = rig.put(2)
    rig.fake.fault(rig.one, "edit", edit=lambda right: Answer(body=right.body.replace(one.encode(), two.encode())))
    with account(rig, tmp_path) as source, pytest.raises(ProviderError, match="another"):
        source.look_up(key(one))


def test_a_steady_poll_makes_two_calls(rig: LambdaRig, tmp_path: Path) -> None:
    rig.put(20)
    with account(rig, tmp_path) as source:
        polled(source)
        before = len(rig.fake.asked)
        for _ in range(10):
            rig.clock.at += timedelta(minutes=1)
            polled(source)
    assert len(rig.fake.asked) - before == 20
