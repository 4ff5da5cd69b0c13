"""Looks become a record by what each signal means; what is missing is never zero."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from costguard_agent.clock import Moment, RecordClock, explain_gap
from costguard_agent.signals import SignalReading, merge_readings
from hypothesis import given
from hypothesis import strategies as st

BUSY, QUIET = {"util": 100.0, "power_w": 600.0}, {"util": 0.0, "power_w": 70.0}


def of_gpus(*looks: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return merge_readings([SignalReading(float(at), 0.0, {}, gpus) for at, gpus in enumerate(looks)], at_s=15.0)


def of(*looks: tuple[float, float, dict[str, float]], at_s: float = 15.0) -> dict[str, float]:
    return merge_readings([SignalReading(at, over, signals) for at, over, signals in looks], at_s=at_s)


def test_the_busiest_gpu_stands_for_the_machine_never_the_mean_over_gpus() -> None:
    looks = [{"0": BUSY, **{str(n): QUIET for n in range(1, 8)}}] * 5 + [{str(n): QUIET for n in range(8)}] * 10
    found = of_gpus(*looks)
    assert found["gpu_util"] == 33.333
    assert found["gpu_busy_count"] == 1
    assert found["gpu_power_w"] == round((5 * (600 + 7 * 70) + 10 * 8 * 70) / 15, 3)
    assert found["gpu_power_busiest_w"] == round((5 * 600 + 10 * 70) / 15, 3)


def test_two_gpus_that_take_turns_are_half_busy_and_not_busy_all_the_time() -> None:
    assert of_gpus({"0": BUSY, "1": QUIET}, {"0": QUIET, "1": BUSY})["gpu_util"] == 50


def test_a_gpu_that_cannot_be_read_might_be_the_busy_one() -> None:
    assert "gpu_util" not in of_gpus({"0": QUIET, "1": {}})
    assert "gpu_busy_count" not in of_gpus({"0": QUIET, "1": {}})


def test_work_that_is_seen_is_told_though_another_gpu_cannot_be_read() -> None:
    found = of_gpus({"0": BUSY, "1": {}})
    assert (found["gpu_util"], found["gpu_busy_count"]) == (100, 1)
    assert "gpu_power_w" not in found, "a sum without one of them is not a sum"


def test_a_value_that_was_missing_in_some_looks_is_the_mean_of_the_others() -> None:
    assert of_gpus({"0": {"util": 80.0}}, {"0": {}}, {"0": {"util": 40.0}})["gpu_util"] == 60


@pytest.mark.parametrize(("read", "known"), [(1, False), (7, False), (8, True), (15, True)])
def test_a_gpu_that_was_read_in_less_than_half_of_the_looks_is_no_quiet_one(read: int, known: bool) -> None:  # noqa: FBT001
    looks = [{"0": QUIET, "1": QUIET}] * read + [{"0": QUIET, "1": {}}] * (15 - read)
    found = of_gpus(*looks)
    assert ("gpu_util" in found, "gpu_power_w" in found, "gpu_busy_count" in found) == (known, known, known)
    assert of_gpus({"0": QUIET, "1": BUSY}, *[{"0": QUIET, "1": {}}] * 14)["gpu_util"] == 100, "work is told by one look"


@pytest.mark.parametrize(("hangs_s", "known"), [(0, True), (5, True), (14, False)])
def test_a_driver_that_hung_for_most_of_a_record_makes_no_quiet_one(hangs_s: int, known: bool) -> None:  # noqa: FBT001
    looks = [SignalReading(float(at), 0.0, {}, {"0": QUIET}) for at in range(15 - hangs_s)]
    found = merge_readings([*looks, SignalReading(15.0, 15.0, {"cpu_util": 1.0})], at_s=15.0)
    assert (("gpu_util" in found), ("gpu_power_w" in found), "cpu_util" in found) == (known, known, True)
    busy = [SignalReading(0.0, 0.0, {}, {"0": BUSY}), SignalReading(15.0, 15.0, {})]
    assert merge_readings(busy, at_s=15.0)["gpu_util"] == 100


def test_memory_and_heat_are_the_most_and_the_limit_is_the_lowest_of_the_last() -> None:
    one, two = {"memory_used": 10.0, "temperature_c": 40.0, "limit_w": 700.0}, {"memory_used": 30.0, "temperature_c": 35.0}
    found = of_gpus({"0": one, "1": {**two, "limit_w": 400.0}}, {"0": one, "1": {**two, "limit_w": 350.0}})
    assert (found["gpu_memory_used"], found["gpu_temperature_c"], found["gpu_power_limit_w"]) == (30, 40, 350)


def test_input_counts_from_its_latest_moment_though_the_terminal_is_gone() -> None:
    found = of((5.0, 5.0, {"input_age_s": 1.0}), (15.0, 10.0, {"input_age_s": 9000.0}), at_s=20.0)
    assert found["input_age_s"] == 16


def test_what_is_no_number_or_no_signal_is_left_out() -> None:
    assert of((1.0, 1.0, {"cpu_util": float("nan"), "step": float("inf"), "humour": 3.0, "cpu_cores": 1.0})) == {"cpu_cores": 1}


@given(
    st.dictionaries(
        st.sampled_from("abc"), st.dictionaries(st.sampled_from(["util", "power_w"]), st.floats(0, 100)), min_size=1
    )
)
def test_a_gpu_that_goes_unread_never_makes_a_working_machine_idle(gpus: dict[str, dict[str, float]]) -> None:
    whole = of_gpus(gpus).get("gpu_busy_count")
    for name in gpus:
        told = of_gpus({**gpus, name: {}}).get("gpu_busy_count")
        assert not whole or told is None or told > 0


def moment(wall_s: float = 0.0, boot_s: float = 0.0, awake_s: float = 0.0) -> Moment:
    return Moment(round(wall_s * 1000), boot_s, awake_s)


def test_a_machine_that_slept_makes_no_record_of_the_night() -> None:
    assert explain_gap(moment(), moment(3600, 3600, 1), most_s=11) == "the machine slept for 3599 s"


def test_an_agent_that_was_held_up_makes_no_record_either() -> None:
    assert explain_gap(moment(), moment(300, 300, 300), most_s=11) == "the agent did not run for 300 s"


def test_a_clock_that_was_set_is_noticed_either_way() -> None:
    assert explain_gap(moment(), moment(-7199, 1, 1), most_s=11) == "the clock was set by -7200 s"
    assert explain_gap(moment(), moment(7201, 1, 1), most_s=11) == "the clock was set by +7200 s"
    assert explain_gap(moment(), moment(1.4, 1, 1), most_s=11) == ""


def test_records_go_on_by_the_watchdogs_clock_though_the_machines_is_set_right() -> None:
    calendar = RecordClock()
    calendar.correct(3_600_000)
    assert calendar.to_unix_ms(moment(7200)) == 3_600_000
    assert calendar.detect_jump(moment(7200, 10, 10), moment(3601, 11, 11)) == 0, "and records stay as they are dated"
    assert (calendar.ahead_ms, calendar.to_unix_ms(moment(3601))) == (0, 3_601_000)


def test_a_clock_that_counts_and_is_set_is_followed_and_so_are_records_that_it_dated() -> None:
    calendar = RecordClock()
    assert calendar.detect_jump(moment(7200, 10, 10), moment(3601, 11, 11)) == -3_600_000
    assert calendar.detect_jump(moment(3601, 11, 11), moment(3603, 12, 12)) == 0, "a second is not an other clock"
    assert calendar.to_unix_ms(moment(3601)) == 3_601_000
