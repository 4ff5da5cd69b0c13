"""Cloud Monitoring charges each read: a poll leaves out metrics that lately had no data, for a time that is bounded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from costguard_gcp.account import GcpAccount
from costguard_gcp.metric_memory import decode_absent_metrics

from costguard.values.calendar import Period
from costguard.values.sample import UtilizationSamples
from tests.providers.gcp.rig import GcpRig

MINUTE = timedelta(minutes=1)
HOST = "compute.googleapis.com/instance"
ALWAYS = (
    f"{HOST}/cpu/utilization",
    *(f"{HOST}/{name}_bytes_count" for name in ("network/received", "network/sent", "disk/read", "disk/write")),
)
OPS_AGENT = ("agent.googleapis.com/gpu/utilization", "agent.googleapis.com/gpu/memory/bytes_used")
Measure = Callable[..., tuple[int, UtilizationSamples]]


@pytest.fixture
def measure(rig: GcpRig, account: GcpAccount) -> Measure:
    """Advance the clock, and return how many reads the samples of the project took."""

    def measured(later: timedelta = MINUTE, *, before_act: bool = False) -> tuple[int, UtilizationSamples]:
        rig.clock.at += later
        items = account.poll(account.list_scopes()[0]).inventory.items  # type: ignore[union-attr]
        now, reads = rig.clock.now(), rig.fake.calls("timeSeries")
        ask = account.fetch_utilization if before_act else account.poll_utilization
        samples = ask(items, Period(start=now - 15 * MINUTE, end=now))
        return rig.fake.calls("timeSeries") - reads, samples

    return measured


def _measure_of(rig: GcpRig, numbers: list[str], *metrics: str) -> None:
    rig.fake.measures |= {metric: {**rig.fake.measures.get(metric, {}), **dict.fromkeys(numbers, 1.0)} for metric in metrics}


def test_a_metric_without_data_is_read_again_after_five_minutes_and_at_once_for_a_new_machine(
    rig: GcpRig, measure: Measure
) -> None:
    numbers = rig.put(2)
    _measure_of(rig, numbers, *ALWAYS)
    first, samples = measure()
    assert first == 8
    assert [measure()[0] for _ in range(6)] == [5, 5, 5, 5, 8, 5]
    assert measure()[1].blind[0][1] == samples.blind[0][1] != ""
    _measure_of(rig, rig.put(1), *ALWAYS)
    assert [measure()[0] for _ in range(2)] == [8, 5]
    assert measure(before_act=True)[0] == 8
    _measure_of(rig, numbers, *OPS_AGENT)
    assert "gpu_util" not in {sample.signal for sample in measure()[1].samples}
    _, later = measure(2 * MINUTE)
    assert {sample.key.id for sample in later.samples if sample.signal == "gpu_util"} == set(numbers)


def test_where_each_machine_has_its_signal_the_metrics_of_others_are_not_read(rig: GcpRig, measure: Measure) -> None:
    numbers = rig.put(2)
    _measure_of(rig, numbers, *ALWAYS, "workload.googleapis.com/dcgm.gpu.profiling.sm_utilization")
    reads = [measure()[0] for _ in range(61)]
    assert reads == [8, *[7 if n % 5 == 0 else 6 for n in range(1, 60)], 8]  # memory is lacking, GPU duty is not


def test_what_dcgm_measures_is_gpu_duty_and_the_share_of_multiprocessors_at_work(rig: GcpRig, measure: Measure) -> None:
    _measure_of(rig, rig.put(1), *ALWAYS, "workload.googleapis.com/dcgm.gpu.profiling.sm_utilization")
    values = {sample.signal: sample.value for sample in measure()[1].samples}
    assert values["sm_active"] == values["gpu_util"] == 100


def test_a_read_that_failed_is_no_absence(rig: GcpRig, measure: Measure) -> None:
    _measure_of(rig, rig.put(1), *ALWAYS)
    rig.fake.fault("metric.type%3D%22agent", "status", status=403)
    assert [measure()[0] for _ in range(2)] == [8, 7]  # of the three metrics of GPUs one was read, and had nothing


def test_two_polls_within_a_minute_read_the_same_samples(measure: Measure, rig: GcpRig) -> None:
    _measure_of(rig, rig.put(1), *ALWAYS)
    rig.clock.at = rig.clock.at.replace(second=7)
    first, second = measure(timedelta())[1], measure(timedelta(seconds=41))[1]
    assert first.samples == second.samples != ()
    assert {sample.at.second for sample in first.samples} == {0}


@pytest.mark.parametrize("data", [None, b"", b"[]", b'{"a": {"at": "2026-11-01T00:00:00", "ids": [], "lacks": false}}'])
def test_a_memory_that_cannot_be_read_is_none(data: bytes | None) -> None:
    assert decode_absent_metrics(data) == {}
