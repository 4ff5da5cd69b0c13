from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from costguard_aws import cloudwatch
from costguard_aws.cloudwatch import CloudWatchMetrics, align_window
from costguard_aws.errors import AwsClients, read_pages
from costguard_aws.session import AwsSession
from hypothesis import given
from hypothesis import strategies as st

from costguard.errors import InvalidAnswerError
from costguard.metering.observation import Observation
from costguard.values.calendar import Period
from costguard.values.resource import ResourceKey
from costguard.values.sample import CPU_UTIL, GPU_POWER, GPU_UTIL, NETWORK, UtilizationSamples
from tests.fakes.aws_wire import amz_json_error
from tests.fakes.server import START
from tests.providers.aws.fuzz import FUZZ, mutated
from tests.providers.aws.services import ACCOUNT, OnePage, Services

HOUR, FIVE = timedelta(hours=1), timedelta(minutes=5)
LAST_HOUR = Period(start=START - HOUR, end=START)


@pytest.fixture
def services() -> Services:
    return Services()


@pytest.fixture(params=["json", "smithy-rpc-v2-cbor"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Botocore speaks either to CloudWatch, by its version: 1.43 the second, 1.44 the first."""
    spoken: str = request.param
    monkeypatch.setattr("botocore.model.PRIORITY_ORDERED_SUPPORTED_PROTOCOLS", (spoken, "json", "query", "ec2"))
    return spoken


@pytest.fixture
def session(services: Services, tmp_path: Path) -> Iterator[AwsSession]:
    with services.session(tmp_path) as made:
        yield made


@pytest.fixture
def metrics(session: AwsSession, services: Services) -> CloudWatchMetrics:
    return CloudWatchMetrics(session, services.clock)


def machine(number: int = 1, *, gpus: float = 1, state: str = "running", region: str = "us-east-1") -> Observation:
    key = ResourceKey("aws", ACCOUNT, region, f"i-{number:017x}")
    return Observation(key=key, state=state, gpu="A10G" if gpus else "", gpu_count=gpus)


def always(value: float) -> Callable[[datetime], float | None]:
    return lambda _: value


def values(measured: UtilizationSamples, signal: str) -> list[float]:
    return [sample.value for sample in measured.samples if sample.signal == signal]


def test_a_machine_is_as_busy_as_its_busiest_gpu(protocol: str, metrics: CloudWatchMetrics, services: Services) -> None:
    one = machine(gpus=2)
    services.cloudwatch.gpu(one.key.id, 0, always(3))
    services.cloudwatch.gpu(one.key.id, 1, always(97))
    measured = metrics.fetch_utilization([one], LAST_HOUR)
    assert values(measured, GPU_UTIL) == [97.0] * 11
    assert measured.blind == ()
    assert {sample.key for sample in measured.samples} == {one.key}
    assert [sample.at for sample in measured.samples][:2] == [START - HOUR, START - HOUR + FIVE]
    assert all(("/operation/" in asked.line) is (protocol != "json") for asked in services.asked)


def test_where_one_gpu_is_silent_there_is_no_sample_as_it_may_be_busy(metrics: CloudWatchMetrics, services: Services) -> None:
    one = machine(gpus=2)
    services.cloudwatch.gpu(one.key.id, 0, always(0))
    services.cloudwatch.gpu(one.key.id, 1, lambda at: 90.0 if at < START - HOUR / 2 else None)
    measured = metrics.fetch_utilization([one], LAST_HOUR)
    assert values(measured, GPU_UTIL) == [90.0] * 6
    services.later(hours=1)
    services.cloudwatch.gpu(one.key.id, 0, always(0))
    measured = metrics.fetch_utilization([one], Period(start=START, end=START + HOUR))
    assert measured.samples == ()
    assert measured.blind == (
        (one.key, "the CloudWatch agent reported 2 GPU series within 3 h, but not every GPU has data for the period"),
    )


def test_a_gpu_that_the_agent_never_reports_makes_the_machine_blind(metrics: CloudWatchMetrics, services: Services) -> None:
    one = machine(gpus=8)
    services.cloudwatch.gpu(one.key.id, 0, always(0))
    measured = metrics.fetch_utilization([one], LAST_HOUR)
    assert values(measured, GPU_UTIL) == []
    assert measured.blind[0][0] == one.key


def test_a_roll_up_over_all_gpus_serves_where_there_is_nothing_else(metrics: CloudWatchMetrics, services: Services) -> None:
    one = machine(gpus=4)
    services.cloudwatch.put("CWAgent", "nvidia_smi_utilization_gpu", always(42), InstanceId=one.key.id)
    measured = metrics.fetch_utilization([one], LAST_HOUR)
    assert values(measured, GPU_UTIL) == [42.0] * 11
    assert values(measured, GPU_POWER) == []


def test_no_data_is_blind_and_never_idle(metrics: CloudWatchMetrics) -> None:
    measured = metrics.fetch_utilization([machine(), machine(2, gpus=0)], LAST_HOUR)
    assert measured.samples == ()
    assert "no GPU metrics in CWAgent" in dict(measured.blind)[machine().key]
    assert dict(measured.blind)[machine(2).key] == "CloudWatch has no data of it in the period"


def test_without_an_agent_the_cpu_is_known_and_the_gpu_is_not(metrics: CloudWatchMetrics, services: Services) -> None:
    one = machine()
    services.cloudwatch.put("AWS/EC2", "CPUUtilization", always(0.5), InstanceId=one.key.id)
    measured = metrics.fetch_utilization([one], LAST_HOUR)
    assert values(measured, CPU_UTIL) == [0.5] * 11
    assert measured.blind[0][1].endswith("its CPU alone is known")


@pytest.mark.parametrize("odd", [nan, inf, -1.0, 100.5, 1e300])
def test_a_value_that_cannot_be_is_no_sample(metrics: CloudWatchMetrics, services: Services, odd: float) -> None:
    services.cloudwatch.gpu(machine().key.id, 0, always(odd))
    services.cloudwatch.put("AWS/EC2", "CPUUtilization", always(odd), InstanceId=machine(2).key.id)
    assert metrics.fetch_utilization([machine(), machine(2, gpus=0)], LAST_HOUR).samples == ()


def test_network_is_both_ways_and_by_the_second(session: AwsSession, services: Services) -> None:
    one = machine(gpus=0)
    services.cloudwatch.put("AWS/EC2", "NetworkIn", always(3000), InstanceId=one.key.id)
    asked = CloudWatchMetrics(session, services.clock, (NETWORK,))
    assert values(asked.fetch_utilization([one], LAST_HOUR), NETWORK) == []
    services.cloudwatch.put("AWS/EC2", "NetworkOut", always(600), InstanceId=one.key.id)
    assert values(asked.fetch_utilization([one], LAST_HOUR), NETWORK) == pytest.approx([12.0] * 11)


def test_the_last_five_minutes_are_left_for_later(metrics: CloudWatchMetrics) -> None:
    assert align_window(LAST_HOUR, START) == Period(start=START - HOUR, end=START - FIVE)
    odd = Period(start=START - timedelta(minutes=13), end=START - timedelta(minutes=1))
    assert align_window(odd, START) == Period(start=START - timedelta(minutes=10), end=START - FIVE)
    measured = metrics.fetch_utilization([machine()], Period(start=START - FIVE, end=START))
    assert "CloudWatch data ends 5 minutes ago; the period is later" in measured.blind[0][1]


@pytest.mark.usefixtures("protocol")
def test_answers_cut_into_pages_are_put_together_by_id(metrics: CloudWatchMetrics, services: Services) -> None:
    machines = [machine(n, gpus=0) for n in range(20)]
    for n, one in enumerate(machines):
        services.cloudwatch.put("AWS/EC2", "CPUUtilization", always(n), InstanceId=one.key.id)
    whole = metrics.fetch_utilization(machines, LAST_HOUR)
    services.cloudwatch.most_points = 7
    services.cloudwatch.listed = 3
    assert metrics.fetch_utilization(machines, LAST_HOUR) == whole
    assert len(whole.samples) == 20 * 11


def test_four_thousand_running_machines_take_nine_calls(metrics: CloudWatchMetrics, services: Services) -> None:
    machines = [machine(n, gpus=8, state="running" if n % 5 else "stopped") for n in range(5000)]
    for one in machines:
        services.cloudwatch.put("AWS/EC2", "CPUUtilization", always(3), InstanceId=one.key.id)
    began = time.process_time()
    measured = metrics.fetch_utilization(machines, Period(start=START - 3 * FIVE, end=START))
    assert len(services.asked) == 9
    assert len(measured.samples) == 4000 * 2
    assert time.process_time() - began < 60  # a loop within a loop would take minutes


def test_a_region_that_cannot_be_asked_blinds_its_own_machines_alone(metrics: CloudWatchMetrics, services: Services) -> None:
    here, there = machine(gpus=0), machine(2, gpus=0, region="eu-west-1")
    for one in (here, there):
        services.cloudwatch.put("AWS/EC2", "CPUUtilization", always(1), InstanceId=one.key.id)
    services.fault("POST", "status", status=500, times=3, skip=1)
    measured = metrics.fetch_utilization([here, there], LAST_HOUR)
    assert {sample.key for sample in measured.samples} == {there.key}
    assert measured.blind[0][0] == here.key
    assert "could not be queried" in measured.blind[0][1]


def test_a_key_that_may_not_list_metrics_still_measures_cpus(metrics: CloudWatchMetrics, services: Services) -> None:
    one = machine()
    services.cloudwatch.put("AWS/EC2", "CPUUtilization", always(1), InstanceId=one.key.id)
    denied = amz_json_error("AccessDeniedException", "not allowed")
    services.fault("POST", "status", status=400, headers=denied.headers, body=denied.body, times=1)
    measured = metrics.fetch_utilization([one], LAST_HOUR)
    assert values(measured, CPU_UTIL) == [1.0] * 11
    assert "GPU metrics could not be listed" in measured.blind[0][1]


@pytest.mark.parametrize("kind", ["html", "truncated", "redirect", "reset", "body"])
def test_an_odd_answer_blinds_and_breaks_nothing(metrics: CloudWatchMetrics, services: Services, kind: str) -> None:
    services.fault("POST", kind, status=200, skip=1)
    measured = metrics.fetch_utilization([machine(gpus=0)], LAST_HOUR)
    assert measured.samples == ()
    assert len(measured.blind) == 1


class Told:
    """An account whose CloudWatch answers what a test says."""

    account = ACCOUNT

    def __init__(self, metrics: Any, data: Any) -> None:  # noqa: ANN401 - any shape
        self.metrics, self.data = metrics, data

    def client(self, service: str, region: str) -> Told:  # noqa: ARG002 - the seam's signature
        return self

    def get_paginator(self, operation: str) -> OnePage:
        return OnePage(getattr(self, operation))

    def list_metrics(self, **_: Any) -> Any:  # noqa: ANN401 - as botocore's
        return {"Metrics": self.metrics}

    def get_metric_data(self, **_: Any) -> Any:  # noqa: ANN401 - as botocore's
        return {"MetricDataResults": self.data}


METRIC = {
    "Namespace": "CWAgent",
    "MetricName": "nvidia_smi_utilization_gpu",
    "Dimensions": [{"Name": "InstanceId", "Value": machine().key.id}, {"Name": "index", "Value": "0"}],
}
RESULT = {"Id": "q0", "Label": "x", "Timestamps": [START - HOUR], "Values": [12.5], "StatusCode": "Complete"}


@FUZZ
@given(st.data())
def test_whatever_cloudwatch_says_no_measure_is_invented(data: st.DataObject) -> None:
    metrics, results = mutated(data, [METRIC]), mutated(data, [RESULT])
    told = Told(metrics, results)
    measured = CloudWatchMetrics(told, Services().clock, (GPU_UTIL,)).fetch_utilization([machine()], LAST_HOUR)
    numbers = [value for result in results if isinstance(result, dict) for value in _list(result.get("Values"))]
    for sample in measured.samples:
        assert any(isinstance(n, int | float) and float(n) == sample.value for n in numbers)
        assert sample.at == datetime(2026, 11, 21, 11, tzinfo=UTC)
        assert 0 <= sample.value <= 100


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


@pytest.fixture
def polled(session: AwsSession, services: Services) -> CloudWatchMetrics:
    return CloudWatchMetrics(session, services.clock, (GPU_UTIL,), cache=services.cache)


def varied(number: int) -> Callable[[datetime], float | None]:
    return lambda at: float((at.minute * 7 + number) % 100)


def poll(metrics: CloudWatchMetrics, services: Services, *machines: Observation) -> UtilizationSamples:
    now = services.clock.now()
    return metrics.poll_utilization(machines, Period(start=now - 3 * FIVE, end=now))


def test_a_poll_each_minute_says_the_same_as_asking_for_everything(
    polled: CloudWatchMetrics, services: Services, session: AwsSession
) -> None:
    machines = [machine(n) for n in range(1, 4)]
    for n, one in enumerate(machines):
        services.cloudwatch.gpu(one.key.id, 0, varied(n))
    whole = CloudWatchMetrics(session, services.clock, (GPU_UTIL,))
    for _ in range(11):
        services.later(minutes=1)
        now = services.clock.now()
        assert poll(polled, services, *machines) == whole.fetch_utilization(machines, Period(start=now - 3 * FIVE, end=now))
    assert services.asked_for("GetMetricData") == 11 + 3
    assert services.asked_for("ListMetrics") == 11 + 1


def test_a_value_that_came_late_is_seen_by_the_next_poll(polled: CloudWatchMetrics, services: Services) -> None:
    one, other = machine(), machine(2)
    came = {one.key.id: False}
    services.cloudwatch.gpu(one.key.id, 0, lambda at: 7.0 if came[one.key.id] or at < START - 3 * FIVE else None)
    services.cloudwatch.gpu(other.key.id, 0, always(9))
    services.later(minutes=1)
    assert {sample.key for sample in poll(polled, services, one, other).samples} == {other.key}
    came[one.key.id] = True
    services.later(minutes=1)
    measured = poll(polled, services, one, other)
    assert {sample.key for sample in measured.samples} == {one.key, other.key}
    assert measured.blind == ()


def test_before_an_act_everything_is_asked_for(polled: CloudWatchMetrics, services: Services) -> None:
    services.cloudwatch.gpu(machine().key.id, 0, always(0))
    assert values(poll(polled, services, machine()), GPU_UTIL) == [0.0] * 2
    services.cloudwatch.gpu(machine().key.id, 0, always(80))
    assert values(polled.fetch_utilization([machine()], LAST_HOUR), GPU_UTIL)[-1] == 80.0


def test_a_new_machine_is_asked_for_when_the_list_of_series_is_five_minutes_old(
    polled: CloudWatchMetrics, services: Services
) -> None:
    services.cloudwatch.gpu(machine().key.id, 0, always(50))
    assert poll(polled, services, machine()).blind == ()
    services.cloudwatch.gpu(machine(2).key.id, 0, always(60))
    for minute in range(1, 6):
        services.later(minutes=1)
        blind = poll(polled, services, machine(), machine(2)).blind
        assert [key for key, _ in blind] == ([machine(2).key] if minute < 5 else [])
    assert services.asked_for("ListMetrics") == 2


def test_series_that_changed_blind_a_machine_for_five_minutes_and_make_it_idle_never(
    polled: CloudWatchMetrics, services: Services
) -> None:
    reports = {"old": True}
    services.cloudwatch.gpu(machine().key.id, 0, lambda _: 50.0 if reports["old"] else None, host="old")
    services.cloudwatch.gpu(machine().key.id, 0, lambda _: None if reports["old"] else 60.0, host="new")
    services.cloudwatch.gpu(machine(2).key.id, 0, always(1))
    assert poll(polled, services, machine(), machine(2)).blind == ()
    reports["old"] = False
    found = set[float]()
    for _ in range(12):
        services.later(minutes=1)
        found.update(values(poll(polled, services, machine()), GPU_UTIL))
    assert found == {50.0, 60.0}


@pytest.mark.parametrize("odd", [b"", b"[]", b'{"at": 1}', b"\xff", b'{"at": "2026-11-21T12:00:00", "ids": [], "series": {}}'])
def test_a_cached_list_that_cannot_be_read_is_listed_again(polled: CloudWatchMetrics, services: Services, odd: bytes) -> None:
    services.cloudwatch.gpu(machine().key.id, 0, always(50))
    services.cache.put(f"aws-series-{ACCOUNT}-us-east-1-CWAgent", odd)
    assert values(poll(polled, services, machine()), GPU_UTIL) == [50.0] * 2


def test_a_list_of_series_that_failed_is_not_remembered(polled: CloudWatchMetrics, services: Services) -> None:
    services.cloudwatch.gpu(machine().key.id, 0, always(50))
    denied = amz_json_error("AccessDeniedException", "not allowed")
    services.fault("POST", "status", status=400, headers=denied.headers, body=denied.body, times=1)
    assert "could not be listed" in poll(polled, services, machine()).blind[0][1]
    services.later(minutes=1)
    assert poll(polled, services, machine()).blind == ()


def test_where_a_type_is_unknown_each_poll_looks_for_more_gpus(polled: CloudWatchMetrics, services: Services) -> None:
    unknown = machine(gpus=0)
    services.cloudwatch.gpu(unknown.key.id, 0, always(0))
    assert values(poll(polled, services, unknown), GPU_UTIL) == [0.0] * 2
    services.cloudwatch.gpu(unknown.key.id, 1, always(90))
    services.later(minutes=5)
    assert values(poll(polled, services, unknown), GPU_UTIL)[-1] == 90.0
    assert services.asked_for("ListMetrics") == 2


def test_a_listed_gpu_without_a_value_counts_where_the_type_is_unknown(metrics: CloudWatchMetrics, services: Services) -> None:
    one = machine(gpus=0)
    services.cloudwatch.gpu(one.key.id, 0, always(0))
    services.cloudwatch.gpu(one.key.id, 1, lambda at: 97.0 if at < START - HOUR else None)
    assert values(metrics.fetch_utilization([one], LAST_HOUR), GPU_UTIL) == []


def test_a_machine_of_which_a_part_could_not_be_fetched_has_no_value(
    session: AwsSession, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("costguard_aws.cloudwatch.QUERIES", 4)
    asked, one, answers = CloudWatchMetrics(session, services.clock, (GPU_UTIL,)), machine(gpus=0), count()
    for gpu in range(8):
        services.cloudwatch.gpu(one.key.id, gpu, always(0 if gpu < 4 else 99))
    fetch = CloudWatchMetrics._fetch_batch

    def fetch_first_half(self: CloudWatchMetrics, *stated: Any) -> None:  # noqa: ANN401 - its own
        if next(answers) == 1:
            raise InvalidAnswerError("throttled", provider="aws")
        fetch(self, *stated)

    monkeypatch.setattr(CloudWatchMetrics, "_fetch_batch", fetch_first_half)
    measured = asked.poll_utilization([one], LAST_HOUR)
    assert (values(measured, GPU_UTIL), [key for key, _ in measured.blind]) == ([], [one.key])


def test_an_incomplete_list_counts_no_gpus_of_an_unknown_type(
    session: AwsSession, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, one = CloudWatchMetrics(session, services.clock, (GPU_UTIL,)), machine(gpus=0)
    services.cloudwatch.listed = 1
    for gpu in range(2):
        services.cloudwatch.gpu(one.key.id, gpu, always(0 if gpu < 1 else 99))
    pages = read_pages

    def cut(aws: AwsClients, service: str, region: str, operation: str, **stated: Any) -> Iterator[Any]:  # noqa: ANN401 - its own
        for number, page in enumerate(pages(aws, service, region, operation, **stated)):
            if operation == "list_metrics" and number == 1:
                raise InvalidAnswerError("throttled", provider="aws")
            yield page

    monkeypatch.setattr(cloudwatch, "read_pages", cut)
    assert values(asked.poll_utilization([one], LAST_HOUR), GPU_UTIL) == []


def test_an_agent_that_starts_later_is_found_by_any_gpu_signal(session: AwsSession, services: Services) -> None:
    asked = CloudWatchMetrics(session, services.clock, signals=(GPU_POWER, CPU_UTIL))
    one = replace(machine(gpus=1), vcpus=8)
    services.cloudwatch.put("AWS/EC2", "CPUUtilization", always(1), InstanceId=one.key.id)

    def ask() -> set[str]:
        now = services.clock.now()
        return {sample.signal for sample in asked.poll_utilization([one], Period(start=now - 3 * FIVE, end=now)).samples}

    ask()
    services.cloudwatch.gpu(one.key.id, 0, always(97))
    services.cloudwatch.gpu(one.key.id, 0, always(300), metric="power_draw")
    found = set[str]()
    for _ in range(3):
        services.later(minutes=5)
        found = ask()
    assert GPU_POWER in found
