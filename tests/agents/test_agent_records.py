"""Records of agents merged to samples: each signal by its meaning, nothing twice, nothing over a gap."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from costguard.agents.messages import AgentRecord
from costguard.agents.samples import TimedRecord, align_records, merge_records
from costguard.values.instant import SECOND_US, to_micros
from costguard.values.resource import ResourceKey

KEY = ResourceKey("aws", "1", "us-east-1", "i-1")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MIN, S = timedelta(minutes=1), timedelta(seconds=1)
LONG_AGO = NOON - timedelta(days=9)


def moment(at_s: float, over_s: float = 15.0, **signals: float) -> TimedRecord:
    return TimedRecord(to_micros(NOON) + round(at_s * SECOND_US), round(over_s * SECOND_US), tuple(signals.items()))


def test_each_signal_is_merged_by_what_it_means() -> None:
    lot = [
        moment(15, gpu_util=100.0, gpu_busy_count=1.0, step=5.0, input_age_s=600.0, queue_jobs=2.0, gpu_temperature_c=61.0),
        moment(30, gpu_util=0.0, gpu_busy_count=0.0, step=6.0, input_age_s=3.0, queue_jobs=0.0, gpu_temperature_c=70.0),
        moment(60, 30.0, gpu_util=50.0, gpu_busy_count=0.0, step=6.0, input_age_s=33.0, queue_jobs=0.0, gpu_temperature_c=65.0),
    ]
    found = {one.signal: one.value for one in merge_records(KEY, lot, MIN).samples}
    assert found == {
        "gpu_util": 50.0, "gpu_busy_count": 1.0, "step": 6.0, "input_age_s": 33.0, "queue_jobs": 2.0,
        "gpu_temperature_c": 70.0,
    }  # fmt: skip


def test_of_a_server_the_most_requests_the_last_count_and_the_mean_of_its_cores_are_kept() -> None:
    lot = [moment(30, 30.0, server_requests=3.0, server_tokens=900.0, server_cores=1.0)]
    lot += [moment(60, 30.0, server_requests=0.0, server_tokens=40.0, server_cores=0.0)]
    found = {one.signal: one.value for one in merge_records(KEY, lot, MIN).samples}
    assert found == {"server_requests": 3.0, "server_tokens": 40.0, "server_cores": 0.5}


def test_what_is_missing_in_a_record_is_missing_in_the_mean_and_no_zero() -> None:
    lot = [moment(15, gpu_util=80.0), moment(30), moment(45), moment(60, cpu_util=4.0)]
    assert {one.signal: one.value for one in merge_records(KEY, lot, MIN).samples} == {"gpu_util": 80.0, "cpu_util": 4.0}


@pytest.mark.parametrize(
    ("signal", "quiet", "works"),
    [
        ("gpu_util", 0.0, 80.0), ("gpu_busy_count", 0.0, 1.0), ("cpu_cores", 0.01, 3.0), ("network_bytes_s", 0.0, 5e6),
        ("queue_jobs", 0.0, 2.0), ("input_age_s", 7200.0, 60.0),
    ],
)  # fmt: skip
def test_what_one_record_of_four_says_is_no_quiet_minute_but_work_is_told(signal: str, quiet: float, works: float) -> None:
    """A GPU that falls off the bus in the middle, a driver that answers now and then: the rest could be work."""

    def said(value: float, records: int) -> list[str]:
        lot = [moment(15 * k, **({signal: value} if k <= records else {}), agent_alive=1.0) for k in range(1, 5)]
        return [one.signal for one in merge_records(KEY, lot, MIN).samples]

    assert [said(quiet, records) for records in (1, 2, 3)] == [["agent_alive"]] * 3
    assert signal in said(quiet, 4)
    assert signal in said(works, 1)


def test_power_of_a_part_of_an_interval_is_missing_whatever_it_is() -> None:
    lot = [moment(15, gpu_power_w=700.0), moment(30), moment(45), moment(60)]
    assert merge_records(KEY, lot, MIN).samples == (), "what is work depends on the floor, which is not known here"


def test_what_an_agent_says_of_the_time_before_it_joined_does_not_count() -> None:
    now_ms = to_micros(NOON) // 1000
    records = [AgentRecord(now_ms - ago * 60_000, 15.0, (("gpu_util", 0.0),)) for ago in (300, 11, 10, 9, 1)]
    found, last = align_records(records, after_ms=0, sent_ms=now_ms, now=NOON, since=NOON - 10 * MIN)
    assert [one.at_us for one in found] == [to_micros(NOON - ago * MIN) for ago in (10, 9, 1)]
    assert last == now_ms - 60_000


def test_a_record_that_was_told_by_a_clock_ahead_does_not_hold_up_those_of_the_right_one() -> None:
    now_ms = to_micros(NOON) // 1000
    (one,), last = align_records(
        [AgentRecord(now_ms, 15.0, ())], after_ms=now_ms + 3_600_000, sent_ms=now_ms, now=NOON, since=LONG_AGO
    )
    assert (one.at_us, last) == (to_micros(NOON), now_ms)


def test_an_interval_that_is_not_over_waits_and_one_before_a_gap_counts_where_half_of_it_is_there() -> None:
    half, short = [moment(15, gpu_util=1.0), moment(30, gpu_util=3.0)], [moment(15, gpu_util=1.0)]
    assert merge_records(KEY, half, MIN).samples == ()
    assert merge_records(KEY, half, MIN).rest == tuple(half)
    after = moment(600, gpu_util=9.0)
    found = merge_records(KEY, [*half, after], MIN)
    assert [(one.at, one.value) for one in found.samples] == [(NOON + 30 * S, 2.0)]
    assert found.rest == (after,)
    assert merge_records(KEY, [*short, after], MIN).samples == ()


def test_a_guard_that_runs_more_often_than_agents_report_gets_each_record() -> None:
    lot = [moment(15 * k, gpu_util=float(k)) for k in range(1, 5)]
    assert [one.value for one in merge_records(KEY, lot, 5 * S).samples] == [1.0, 2.0, 3.0, 4.0]


def test_records_that_were_here_lie_ahead_or_are_too_old_do_not_count() -> None:
    now_ms = to_micros(NOON) // 1000
    ends = (now_ms - 48 * 3_600_000, now_ms - 30_000, now_ms - 15_000, now_ms + 1_000, now_ms + 60_000)
    records = [AgentRecord(at, 15.0, (("gpu_util", 1.0),)) for at in ends]
    found, last = align_records(records, after_ms=now_ms - 30_000, sent_ms=now_ms, now=NOON, since=LONG_AGO)
    assert [one.at_us for one in found] == [to_micros(NOON - 15 * S), to_micros(NOON)]
    assert last == now_ms + 1_000
    again, same = align_records(records, after_ms=last, sent_ms=now_ms, now=NOON, since=LONG_AGO)
    assert (again, same) == ((), last)
