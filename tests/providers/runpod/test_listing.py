"""What a listing of RunPod means, over HTTP: states, prices, disks, clusters, volumes, measures, pages and rates."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from costguard_runpod.account import RunpodAccount
from costguard_runpod.api import compute_pause
from costguard_sim.world import SIM_VOLUME, Disk, Resource, Shape, to_us

from costguard.errors import InvalidAnswerError
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Disk as Held
from costguard.metering.observation import Observation
from costguard.providers.transport import HttpResponse
from tests.contract.rig import poll_of
from tests.fakes.runpod import gpu_type
from tests.fakes.server import Answer
from tests.providers.runpod.rig import RunpodRig, plain


def pod_of(account: RunpodAccount) -> Observation:
    """The one pod there is."""
    inventory = poll_of(account).inventory
    assert not isinstance(inventory, Failed), inventory
    (found,) = inventory.items
    return found


def nano(seen: Observation) -> int | None:
    rate = seen.prices[-1].rate if seen.prices else None
    return rate.nano_per_hour if rate else None


def why(inventory: Inventory) -> str:
    assert not isinstance(inventory, Complete), inventory
    return inventory.why


def now_us(rig: RunpodRig) -> int:
    return to_us(rig.clock.now())


def a_volume(rig: RunpodRig, *, kind: str = "network", id_: str = "volume000001") -> Resource:
    return replace(plain(id_, now_us(rig)), kind=SIM_VOLUME, runs=(), disks=(Disk(gb=100, type=kind, nano=1),))


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("PROVISIONING", "pending"),
        ("STARTING", "starting"),
        ("RUNNING", "running"),
        ("EXITED", "stopped"),
        ("ERROR", "failed"),
        ("TERMINATED", "ended"),
        ("PAUSED", "unknown"),
        ("running", "unknown"),
    ],
)
def test_every_status_has_one_state(account: RunpodAccount, rig: RunpodRig, status: str, state: str) -> None:
    rig.fake.manners.status[rig.put(1)[0]] = status
    seen = pod_of(account)
    assert (seen.state, seen.why) == (state, status)


def test_a_running_pod_is_what_its_owner_sees(account: RunpodAccount, rig: RunpodRig) -> None:
    (id_,) = rig.put(1)
    seen = pod_of(account)
    assert seen.key == ("runpod", "default", "global", id_)
    assert (seen.gpu, seen.gpu_count, seen.instance_type, seen.tier) == ("L40S", 2, "NVIDIA L40S x2", "secure")
    assert (seen.owner, dict(seen.labels)) == ("ana", {"data_center": "EU-RO-1"})
    assert nano(seen) == 1_720_000_000
    assert seen.disks == (Held(50, "container"), Held(20, "volume"))
    assert seen.started_at == rig.clock.now() - timedelta(days=1)
    assert seen.handling.terminate_loses == ("50 GB of container disk", "20 GB of volume disk")
    assert seen.handling.restart_doubtful


def test_a_stopped_pod_has_no_price_and_keeps_its_disks(account: RunpodAccount, rig: RunpodRig) -> None:
    (id_,) = rig.put(1)
    rig.let(id_, "stopped")
    poll = poll_of(account)
    assert isinstance(poll.inventory, Complete)
    (seen,) = poll.inventory.items
    assert seen.prices == ()
    assert poll.notes == ()
    assert [disk.type for disk in seen.disks] == ["container", "volume"]
    assert seen.handling.stop_loses == ()
    assert seen.handling.terminate_loses == ("20 GB of volume disk",)


@pytest.mark.parametrize("cost", [0, None, -3, "NaN", 10**7, ...])
@pytest.mark.parametrize(("cloud", "rate"), [("SECURE", 1_380_000_000), ("COMMUNITY", 680_000_000), ("MOON", None)])
def test_a_running_pod_without_a_price_takes_that_of_the_catalogue(
    account: RunpodAccount,
    rig: RunpodRig,
    cost: Any,  # noqa: ANN401
    cloud: str,
    rate: int | None,
) -> None:
    shape = Shape(at_us=0, type="NVIDIA GeForce RTX 4090", gpu="RTX-4090", gpus=2)
    rig.fake.resources = [plain("pod400000001", now_us(rig), shapes=(shape,))]
    rig.spoil("pod400000001", price=cost)
    rig.fake.manners.spoilt["pod400000001"][("cloud",)] = cloud
    poll = poll_of(account)
    assert isinstance(poll.inventory, Complete)
    assert nano(poll.inventory.items[0]) == rate
    assert poll.inventory.items[0].prices[0].source == ("catalogue" if rate else "listing")
    assert any("cost" in note for note in poll.notes)


def test_the_catalogue_is_asked_once_an_hour(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.spoil(rig.put(1)[0], price=0)
    for minutes in (0, 1, 59, 61):
        rig.clock.at = rig.clock.at.replace(minute=0) + timedelta(minutes=minutes % 60, hours=minutes // 60)
        poll_of(account)
    assert rig.fake.calls("catalog") == 2


def test_without_a_catalogue_the_price_is_unknown_and_the_listing_whole(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.spoil(rig.put(1)[0], price=0)
    rig.fake.fault("catalog", "html", status=503)
    poll = poll_of(account)
    assert isinstance(poll.inventory, Complete)
    assert nano(poll.inventory.items[0]) is None
    assert any("catalogue" in note for note in poll.notes)


@pytest.mark.parametrize(("pods", "requests"), [(1, 2), (100, 2), (1000, 2), (1001, 3)])
def test_a_poll_takes_few_requests(account: RunpodAccount, rig: RunpodRig, pods: int, requests: int) -> None:
    rig.put(pods)
    assert isinstance(poll_of(account).inventory, Complete)
    assert len(rig.fake.asked) == requests


def test_a_full_page_that_says_nothing_of_the_next_is_partial(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.put(1000)
    rig.fake.paging = False
    assert "does not say whether more follows" in why(poll_of(account).inventory)


def test_more_without_a_cursor_is_partial(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.put(1)
    odd = {"pods": [], "pagination": {"nextCursor": None, "hasNextPage": True}}
    rig.fake.fault(rig.lists, "body", body=json.dumps(odd).encode())
    assert "has more pages without a next link" in why(poll_of(account).inventory)


def test_a_cursor_without_a_word_of_more_is_followed(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.put(3)
    rig.page(2)

    def edit(right: Answer) -> Answer:
        value = json.loads(right.body)
        del value["pagination"]["hasNextPage"]
        return Answer.of(value)

    rig.fake.fault(rig.lists, "edit", edit=edit)
    assert len(poll_of(account).inventory.items) == 3  # type: ignore[union-attr]


def test_members_of_clusters_are_seen_and_left_to_their_cluster(account: RunpodAccount, rig: RunpodRig) -> None:
    (id_,) = rig.put(1)
    rig.fake.manners.cluster[id_] = "cluster_7"
    about = pod_of(account).handling
    assert (about.controller, about.stops, about.terminates) == ("cluster cluster_7", False, False)


def test_a_locked_pod_is_protected_from_both_acts(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.fake.manners.locked.update(rig.put(1))
    about = pod_of(account).handling
    assert about.protected == ("stop", "terminate")
    assert about.stops is False


def test_what_actions_do_not_say_is_not_known(account: RunpodAccount, rig: RunpodRig) -> None:
    (id_,) = rig.put(1)
    rig.fake.manners.spoilt[id_] = {("actions",): ...}
    about = pod_of(account).handling
    assert (about.stops, about.terminates) == (None, None)


def test_network_volumes_are_listed_whether_a_pod_has_them_or_not(account: RunpodAccount, rig: RunpodRig) -> None:
    (pod,) = rig.put(1)
    rig.fake.resources += [a_volume(rig), a_volume(rig, kind="network high-performance", id_="volume000002")]
    rig.fake.manners.volume[pod] = "volume000001"
    inventory = poll_of(account).inventory
    assert isinstance(inventory, Complete)
    seen = {item.key.id: item for item in inventory.items}
    one, two = seen["volume000001"], seen["volume000002"]
    assert (one.kind, one.state, one.disks, one.prices) == ("volume", "running", (Held(100, "network"),), ())
    assert dict(one.labels) == {"data_center": "EU-RO-1", "attached_to": pod}
    assert two.disks == (Held(100, "network high-performance"),)
    assert "attached_to" not in dict(two.labels)
    assert dict(seen[pod].labels)["network_volume"] == "volume000001"
    assert seen[pod].disks == (Held(50, "container"),)


@pytest.mark.parametrize(("kind", "disk"), [("COLD", "network cold"), (None, "network of unknown type")])
def test_a_type_of_volume_that_nobody_knows_gets_no_known_price(
    account: RunpodAccount, rig: RunpodRig, kind: str | None, disk: str
) -> None:
    rig.fake.resources = [a_volume(rig)]
    rig.fake.manners.spoilt["volume000001"] = {("type",): kind}
    assert pod_of(account).disks == (Held(100, disk),)


@pytest.mark.parametrize("status", [403, 404, 500])
def test_volumes_that_cannot_be_listed_leave_the_listing_partial(account: RunpodAccount, rig: RunpodRig, status: int) -> None:
    rig.put(2)
    rig.fake.fault("network-volumes", "status", status=status)
    inventory = poll_of(account).inventory
    assert isinstance(inventory, Partial)
    assert len(inventory.items) == 2
    assert "network volumes" in inventory.why


def test_a_pod_without_a_readable_id_leaves_the_listing_partial(account: RunpodAccount, rig: RunpodRig) -> None:
    one, _ = rig.put(2)
    rig.fake.manners.spoilt[one] = {("id",): 7}
    inventory = poll_of(account).inventory
    assert isinstance(inventory, Partial)
    assert len(inventory.items) == 1


def samples_of(poll: Poll) -> dict[str, float]:
    return {sample.signal: sample.value for sample in poll.samples}


def test_a_pod_that_measures_nothing_is_unknown_and_not_idle(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.fake.manners.silent.update(rig.put(1))
    poll = poll_of(account)
    assert poll.samples == ()
    assert any("unknown, not idle" in note for note in poll.notes)


@pytest.mark.parametrize(
    "gpus", [[], [{"util": 0}], [{"util": 0}, {}], [{"util": 0}, {"util": None}], [{"util": 0}, {"util": 101}]]
)
def test_gpus_of_which_one_was_not_measured_give_no_sample(account: RunpodAccount, rig: RunpodRig, gpus: list[Any]) -> None:
    (id_,) = rig.put(1)
    rig.fake.manners.spoilt[id_] = {("runtime", "gpus"): gpus}
    assert "gpu_util" not in samples_of(poll_of(account))


def test_secrets_of_the_environment_are_not_even_read(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.put(1)
    assert "canary-jupyter" not in repr(poll_of(account))


def test_a_lookup_finds_volumes_too(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.fake.resources = [a_volume(rig)]
    (seen,) = poll_of(account).inventory.items  # type: ignore[union-attr]
    assert account.look_up(seen.key) == replace(seen)
    assert account.look_up(seen.key._replace(id="volume000009")) is None


def test_a_lookup_that_gives_another_pod_is_odd(account: RunpodAccount, rig: RunpodRig) -> None:
    one, _ = rig.put(2)
    seen = next(item for item in poll_of(account).inventory.items if item.key.id == one)  # type: ignore[union-attr]
    rig.fake.manners.spoilt[one] = {("id",): "another00001"}
    with pytest.raises(InvalidAnswerError, match="another pod"):
        account.look_up(seen.key)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ('"minute";r=41;t=12, "hour";r=2800;t=1812, "day";r=49500;t=45012', 0),
        ('"minute";r=0;t=12, "hour";r=2800;t=1812', 12),
        ('"minute";r=0;t=12, "hour";r=0;t=1812, "day";r=49500;t=45012', 1812),
        ('"minute"; r=0 ; t=9', 9),
        ('"minute";t=7;r=0', 7),
        ('"minute";r=0', 0),
        ("r=0;t=5", 0),
        ("", 0),
        ('"' * 5000, 0),
    ],
)
def test_the_longest_window_that_is_used_up_is_waited_for(header: str, seconds: float) -> None:
    assert compute_pause(HttpResponse(status=200, headers={"ratelimit": header})) == seconds


def test_a_window_used_up_by_a_good_answer_closes_the_way_before_the_next(rig: RunpodRig, tmp_path: Path) -> None:
    rig.put(1)
    rig.fake.fault(rig.lists, "edit", edit=lambda right: replace(right, headers={"RateLimit": '"minute";r=0;t=30'}))
    with rig.opened(tmp_path, timeout_s=1) as account:
        assert "over the provider's rate limit" in why(poll_of(account).inventory)
    assert rig.fake.calls("network-volumes") == 0


def test_a_gpu_that_costs_nothing_in_the_catalogue_stays_unknown(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.fake.catalogue.append(gpu_type("NVIDIA L40S", 48, 0, 0))
    rig.spoil(rig.put(1)[0], price=0)
    assert nano(pod_of(account)) is None
