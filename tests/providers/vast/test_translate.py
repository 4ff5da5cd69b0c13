"""From Vast's words to costguard's: every state, price and quirk of the project's notes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from costguard_vast.prices import UNCOUNTED
from costguard_vast.translation import ItemReader, PollNotes, VastGpuNames, build_samples
from costguard_vast.wire import Instance

from costguard.metering.observation import Disk, Observation, TrafficCounter
from costguard.values.resource import ResourceKey
from tests.contract.rig import NAMES
from tests.fakes.vast import FakeVast, machine

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
RIGHT: dict[str, Any] = {
    **FakeVast(resources=(machine(24815377),)).wire(machine(24815377)),
    "start_date": 1763000000.12,
    "end_date": 1769000000.0,
}


def seen(unit: str = "", **fields: Any) -> tuple[Observation, PollNotes]:  # noqa: ANN401 - as the wire has them
    """The contract of the notes, with `fields` in place of its own."""
    wire = {k: v for k, v in {**RIGHT, **fields}.items() if v is not ...}
    telling = PollNotes()
    found, _ = ItemReader(account="1", naming=VastGpuNames(NAMES), traffic_unit=unit).read_instance(_raw(wire), telling)
    assert found is not None
    return found, telling


def _raw(wire: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(wire).encode())


def rate(one: Observation) -> str | None:
    found = one.prices[-1].rate
    return None if found is None else found.format(6)


STATES = {
    # actual, cur, intended, next, is_bid: state
    (None, "running", "running", "running", False): "starting",
    ("loading", "running", "running", "running", False): "starting",
    ("created", "running", "running", "running", False): "starting",
    ("running", "running", "running", "running", False): "running",
    (" Running\n", "running", "running", "running", False): "running",
    ("rebooting", "running", "running", "running", False): "running",
    ("recycling", "running", "running", "running", False): "running",
    ("frozen", "running", "frozen", "running", False): "paused",
    ("exited", "running", "running", "running", False): "failed",
    ("exited", "stopped", "stopped", "stopped", False): "stopped",
    ("stopped", "stopped", "stopped", "stopped", False): "stopped",
    ("stopped", "stopped", "stopped", "stopped", True): "stopped",
    ("running", "stopped", "stopped", "stopped", True): "stopped",
    ("stopped", "unloaded", "stopped", "unloaded", False): "stopped",
    ("stopped", "stopped", "running", "running", False): "stopped",
    ("scheduling", "stopped", "running", "running", False): "stopped",
    (None, "stopped", "stopped", "stopped", False): "stopped",
    ("stopped", "running", "running", "running", False): "starting",
    ("stopped", "running", "stopped", "stopped", False): "stopping",
    ("running", "running", "stopped", "stopped", False): "stopping",
    ("running", "stopped", "running", "running", False): "stopping",
    ("unknown", "running", "running", "running", False): "unknown",
    ("unknown", "stopped", "stopped", "stopped", False): "stopped",
    ("offline", "running", "running", "running", False): "repairing",
    ("quantum", "running", "running", "running", False): "unknown",
    (None, None, None, None, False): "unknown",
}


@pytest.mark.parametrize(("words", "state"), STATES.items(), ids=str)
def test_every_state_has_a_word_of_ours(words: tuple[Any, ...], state: str) -> None:
    actual, cur, intended, nxt, bid = words
    one, _ = seen(actual_status=actual, cur_state=cur, intended_status=intended, next_state=nxt, is_bid=bid)
    assert one.state == state


def test_the_contract_of_the_notes_is_read_whole() -> None:
    one, telling = seen()
    assert one.key == ResourceKey("vast", "1", "global", "24815377")
    assert (one.gpu, one.gpu_count, one.instance_type, one.tier) == ("RTX-4090", 2, "2x RTX 4090", "on-demand")
    assert (one.owner, one.labels) == ("alice", (("owner", "alice"), ("project", "llm")))
    assert one.created_at == datetime(2025, 11, 13, 2, 13, 20, 120000, tzinfo=UTC)
    assert one.started_at is None
    assert (rate(one), one.disks) == ("0.760000", (Disk(64, "disk", 150_000_000),))
    assert one.handling.ends_at == datetime(2026, 1, 21, 12, 53, 20, tzinfo=UTC)
    assert one.handling.terminate_loses == ("64.0 GB of disk",)
    assert (one.handling.stop_loses, one.handling.restart_doubtful) == ((), True)
    assert not telling.notes


@pytest.mark.parametrize(
    ("fields", "price"),
    [
        ({"dph_base": 0.5, "instance": None}, "0.500000"),
        ({"dph_base": 0.5}, "0.760000"),
        ({"dph_base": 0.7601}, "0.760100"),
        ({"dph_base": None}, "0.760000"),
        (
            {"dph_base": None, "instance": None, "dph_total": 0.7733, "storage_cost": None, "storage_total_cost": 0.0133},
            "0.760000",
        ),
        ({"dph_base": None, "instance": None, "dph_total": None}, None),
        ({"dph_base": 0, "instance": None}, None),
        ({"dph_base": -1, "instance": {"gpuCostPerHour": 0}}, None),
        ({"dph_base": 2001, "instance": None}, None),
        ({"dph_base": "0.42", "instance": ...}, "0.420000"),
    ],
    ids=str,
)
def test_what_computing_costs_is_the_gpu_part(fields: dict[str, Any], price: str | None) -> None:
    one, telling = seen(**fields)
    assert rate(one) == price
    assert bool(telling.notes) == (price is None)


def test_a_stopped_one_keeps_its_price_and_zero_is_none() -> None:
    stopped = dict.fromkeys(("actual_status", "cur_state", "intended_status", "next_state"), "stopped")
    one, telling = seen(**stopped, instance={"gpuCostPerHour": 0, "diskHour": 0.0133, "totalHour": 0.0133})
    assert (rate(one), one.disks, list(telling.notes)) == ("0.760000", (Disk(64, "disk", 150_000_000),), [])


def test_a_host_that_takes_more_for_a_stopped_disk_and_shows_it_is_believed() -> None:
    stopped = dict.fromkeys(("actual_status", "cur_state", "intended_status", "next_state"), "stopped")
    one, telling = seen(**stopped, instance={"gpuCostPerHour": 0, "diskHour": 0.0266667})
    (disk,) = one.disks
    assert disk.nano_per_gb_month == pytest.approx(300_000_375, abs=1)
    assert any("now that it is stopped" in note for note in telling.notes)


@pytest.mark.parametrize(
    ("fields", "disk"),
    [
        ({"disk_space": 10.08}, Disk(10, "disk", 151_200_000)),
        ({"disk_space": 0.2}, Disk(1, "disk", 30_000_000)),
        ({"storage_cost": None, "storage_total_cost": 0.01}, Disk(64, "disk", 112_500_000)),
        ({"storage_cost": 0, "storage_total_cost": 0, "instance": None}, Disk(64, "disk")),
        ({"storage_cost": 150}, Disk(64, "disk")),
    ],
    ids=str,
)
def test_a_disk_costs_what_its_exact_size_costs(fields: dict[str, Any], disk: Disk) -> None:
    assert seen(**fields)[0].disks == (disk,)


@pytest.mark.parametrize("size", [None, -1, 1e9, ...])
def test_a_disk_without_a_size_is_of_unknown_size_and_said(size: object) -> None:
    one, telling = seen(disk_space=size)
    assert one.disks == (Disk(None, "disk"),)
    assert any("disk_space" in note for note in telling.notes)


def test_a_reserved_one_costs_its_discounted_price_and_says_what_is_locked() -> None:
    one, _ = seen(credit_balance=4792.99, credit_discount=0.37, instance={"discountedTotalPerHour": 0.5})
    assert one.tier == "reserved"
    assert rate(one) == "0.486667"
    assert "credit stays locked" in one.handling.committed
    assert len(one.handling.terminate_loses) == 2


def test_traffic_without_a_unit_is_said_and_not_counted() -> None:
    one, telling = seen(inet_down_billed=1500.5, inet_up_billed=None)
    assert one.counters == ()
    assert any(UNCOUNTED in note for note in telling.notes)


@pytest.mark.parametrize(("unit", "mb"), [("GB", 1_500_500), ("MB", 1500)])
def test_traffic_with_a_stated_unit_is_counted(unit: str, mb: int) -> None:
    one, _ = seen(unit, inet_down_billed=1500.5, inet_up_billed=None, inet_down_cost=0.002)
    assert one.counters == (TrafficCounter("traffic down", mb, 2_000_000),)


@pytest.mark.parametrize(
    ("name", "ram", "gpu"),
    [
        ("A100 SXM4", 40960, "A100-40GB-SXM"),
        ("A100 SXM4", 79000, "A100-80GB-SXM"),
        ("A100 PCIE", 81920, "A100-80GB-PCIe"),
        ("H100 SXM", 81559, "H100-SXM"),
        ("RTX 4070S Ti", 16376, "RTX-4070-Ti-SUPER"),
        ("RTX PRO 6000 S", 97887, "RTX-PRO-6000-Blackwell-Server"),
        ("Q RTX 8000", 49152, "Quadro-RTX-8000"),
        ("RTX 4090", 1, "RTX-4090"),
        ("RTX 4090", None, "RTX-4090"),
        ("Zebra Z9000", 1000, "Zebra Z9000"),
        (None, None, ""),
    ],
)
def test_gpu_names_are_vasts(name: str | None, ram: int | None, gpu: str) -> None:
    one, telling = seen(gpu_name=name, gpu_ram=ram)
    assert one.gpu == gpu
    assert any("no name here" in note for note in telling.notes) == (name == "Zebra Z9000")


@pytest.mark.parametrize("label", [None, "", "my run", "a=b=c", "=x", "Owner=bob; team=x"])
def test_a_label_is_one_text_that_may_hold_pairs(label: str | None) -> None:
    one, _ = seen(label=label)
    assert one.name == (label or "")
    assert one.owner == ("bob" if label and "bob" in label else "")


def _samples(**fields: Any) -> tuple[dict[str, float], list[str]]:  # noqa: ANN401
    one = msgspec.json.decode(_raw({**RIGHT, **fields}), type=Instance)
    said: list[str] = []
    found = build_samples(one, ResourceKey("vast", "1", "global", "1"), AT, set(), said.append)
    return {sample.signal: round(sample.value, 3) for sample in found}, said


@pytest.mark.parametrize("value", [None, -1, -1.0, 100.5])
def test_a_measure_without_a_heartbeat_is_missing_and_not_zero(value: object) -> None:
    assert _samples(gpu_util=value, cpu_util=value, gpu_temp=value if value != 100.5 else 400, mem_usage=value)[0] == {}


def test_a_hot_gpu_that_never_had_more_than_one_percent_is_unknown_and_not_idle() -> None:
    found, said = _samples(gpu_util=0.8, gpu_temp=71)
    assert "gpu_util" not in found
    assert "scale suspicious" in said[0]
    assert _samples(gpu_util=0.8, gpu_temp=40)[0]["gpu_util"] == 0.8


def test_one_that_had_more_than_one_percent_states_percent() -> None:
    proven: set[str] = set()
    key = ResourceKey("vast", "1", "global", "1")
    for util, expected in ((55.0, 2), (0.5, 2)):
        one = msgspec.json.decode(_raw({"id": 1, "gpu_util": util, "gpu_temp": 65}), type=Instance)
        assert len(build_samples(one, key, AT, proven, lambda _: None)) == expected


def test_what_cannot_be_read_is_unknown_by_its_id_and_lost_without_one() -> None:
    reader, telling = ItemReader(account="1", naming=VastGpuNames(NAMES)), PollNotes()
    one, _ = reader.read_instance(_raw({"id": 7, "actual_status": []}), telling)
    assert one is not None
    assert (one.state, one.prices, telling.lost) == ("unknown", (), {})
    assert reader.read_instance(_raw({"label": "x"}), telling)[0] is None
    assert reader.read_volume(_raw({"id": 8, "disk_space": {}}), telling) is not None
    assert list(telling.lost) == ["an item without an id cannot be read (Object missing required field `id`)"]


def test_a_volume_bills_by_the_hour_that_vast_states() -> None:
    telling = PollNotes()
    wire = {"id": 2001, "status": "x", "disk_space": 50.0, "storage_total_cost": 0.0104, "start_date": 1747341046.4}
    one = ItemReader(account="1", naming=VastGpuNames(NAMES)).read_volume(_raw(wire), telling)
    assert one is not None
    assert (one.key.id, one.kind, one.state) == ("volume-2001", "volume", "running")
    assert one.disks == (Disk(50, "volume", int(Decimal("0.0104") * 720 / 50 * 10**9)),)
