"""When the dead-man switch ends a machine, and above all when it does not: the judgement, and the evidence of idleness."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from costguard_agent.deadman_policy import (
    AFTER_S,
    BLIND,
    DELAY_MOST_S,
    HOUR_S,
    IDLE,
    JOB,
    LEASE_ENDED,
    NOT_IDLE_YET,
    PROTECTED,
    PROTECTION_UNKNOWN,
    REQUIRED,
    SILENT_TOO_SHORT,
    TRIED,
    UNCHECKED,
    WISHED,
    WORKING,
    DeadmanFacts,
    DeadmanSettings,
    IdleEvidence,
    IdleHistory,
    compute_delay_s,
    decide_shutdown,
    parse_settings,
)
from hypothesis import given, settings
from hypothesis import strategies as st

CHOSEN = DeadmanSettings("stop", "runpod", "k3v9x2m7q1w8ab", AFTER_S, HOUR_S, 660.0)
IDLE_HOUR = IdleEvidence(3600.0, (), (), 3600.0)
FIRES = DeadmanFacts(silent_s=AFTER_S + 661, evidence=IDLE_HOUR, checked=True, protected=False, job=False)
STILL = {"gpu_util": 0.0, "cpu_cores": 0.01, "cpu_util": 0.1, "network_bytes_s": 900.0, "disk_bytes_s": 5e3, "input_age_s": 9e4}
"""One record of a machine with nothing to do."""
RECORD_S = 15.0


def test_a_silent_idle_unprotected_machine_is_ended() -> None:
    judged = decide_shutdown(FIRES, CHOSEN)
    assert (judged.end, judged.reason) == (True, IDLE)
    assert judged.text == "idle for 1.0 h, and the watchdog silent for 6.2 h"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"silent_s": AFTER_S + 660}, SILENT_TOO_SHORT), ({"silent_s": float("nan")}, SILENT_TOO_SHORT),
        ({"checked": False}, UNCHECKED), ({"protected": None}, PROTECTION_UNKNOWN), ({"protected": True}, PROTECTED),
        ({"wishes": ("keep",)}, WISHED), ({"lease_left_s": 1.0}, WISHED), ({"job": True}, JOB), ({"attempts": 2}, TRIED),
        ({"evidence": IdleEvidence(0.0, ("cpu_cores",), (), 3600.0)}, WORKING),
        ({"evidence": IdleEvidence(0.0, (), ("gpu_util",), 3600.0)}, BLIND),
        ({"evidence": IdleEvidence(0.0, (), ("records",))}, BLIND),
        ({"evidence": IdleEvidence(3600.0, (), ("gpu_util",), 3600.0)}, BLIND),
        ({"evidence": IdleEvidence(3599.0, (), (), 3599.0)}, NOT_IDLE_YET),
    ],
)  # fmt: skip
def test_each_thing_that_keeps_it_has_a_name(change: dict[str, object], reason: str) -> None:
    judged = decide_shutdown(FIRES._replace(**change), CHOSEN)  # type: ignore[arg-type]
    assert (judged.end, judged.reason) == (False, reason)
    assert judged.text


@pytest.mark.parametrize(
    ("change", "end"),
    [
        ({}, True),
        ({"lease_left_s": None}, False),
        ({"lease_left_s": 60.0}, False),
        ({"job": True}, False),
        ({"evidence": IdleEvidence(0.0, (), ("gpu_util",), 3500.0)}, False),
        ({"evidence": IdleEvidence(0.0, ("network_bytes_s",), ("gpu_util",), 3600.0)}, False),
        ({"evidence": IdleEvidence(0.0, (), ("cpu_util", "gpu_util"), 3600.0)}, False),
    ],
)
def test_an_ended_lease_stands_in_for_what_is_missing_and_never_against_work(change: dict[str, object], end: bool) -> None:  # noqa: FBT001
    facts = FIRES._replace(evidence=IdleEvidence(0.0, (), ("gpu_util",), 3600.0), lease_left_s=-1.0)
    judged = decide_shutdown(facts._replace(**change), CHOSEN)  # type: ignore[arg-type]
    assert judged.end == end
    assert not end or judged.reason == LEASE_ENDED


FACTS = st.builds(
    DeadmanFacts,
    silent_s=st.floats(0, 90 * 86400),
    evidence=st.builds(
        IdleEvidence,
        st.floats(0, 86400),
        st.sets(st.sampled_from(REQUIRED), max_size=2).map(tuple),
        st.sets(st.sampled_from((*REQUIRED, "records")), max_size=2).map(tuple),
        st.floats(0, 86400),
    ),
    checked=st.booleans(),
    protected=st.sampled_from((None, False, True)),
    wishes=st.sampled_from(((), ("keep",), ("phase download",))),
    job=st.booleans(),
    lease_left_s=st.none() | st.floats(-1e6, 1e6),
    attempts=st.integers(0, 3),
)


@given(FACTS)
def test_whatever_is_known_nothing_that_keeps_a_machine_is_overruled(facts: DeadmanFacts) -> None:
    if not decide_shutdown(facts, CHOSEN).end:
        return
    assert facts.silent_s > AFTER_S
    assert facts.checked
    assert facts.protected is False
    assert (facts.wishes, facts.job, facts.evidence.working) == ((), False, ())
    assert facts.attempts < 2
    assert facts.lease_left_s is None or facts.lease_left_s <= 0
    assert not facts.evidence.missing or facts.lease_left_s is not None


@given(FACTS.filter(lambda facts: facts.lease_left_s is None), st.sampled_from(REQUIRED))
def test_without_a_lease_one_missing_family_is_enough_to_keep_it(facts: DeadmanFacts, family: str) -> None:
    blind = facts._replace(evidence=facts.evidence._replace(missing=(family,)))
    assert not decide_shutdown(blind, CHOSEN).end


def test_agents_do_not_end_at_once() -> None:
    delays = sorted(compute_delay_s(f"agent-{n}") for n in range(1000))
    assert delays[0] >= 0
    assert DELAY_MOST_S / 2 < delays[-1] <= DELAY_MOST_S
    assert compute_delay_s("agent-7") == compute_delay_s("agent-7")
    busiest = max(sum(low <= delay < low + 60 for delay in delays) for low in range(0, 1800, 60))
    assert busiest < 70


@pytest.mark.parametrize(
    "change",
    [
        {"act": None}, {"act": ""}, {"id": ""}, {"after_s": 60}, {"after_s": "6h"}, {"idle_s": 59}, {"idle_s": 86400},
        {"after_s": float("nan")},
    ],
)  # fmt: skip
def test_settings_that_are_torn_or_out_of_bounds_are_off(change: dict[str, object]) -> None:
    kept = {"act": "stop", "provider": "vast", "id": "7", "after_s": 21600, "idle_s": 3600}
    assert parse_settings(kept, "a") is not None
    assert parse_settings({**kept, **change}, "a") is None


# Evidence


def filled(
    hours: float, more: Mapping[str, float] | None = None, *, begin_s: float = 1000.0, quiet: IdleHistory | None = None
) -> tuple[IdleHistory, float]:
    """A machine that is still for so long, but for `more`; and the moment at which that ends."""
    made = quiet or IdleHistory(cpus=16)
    now_s = begin_s
    while now_s < begin_s + hours * 3600:
        now_s += RECORD_S
        made.add(now_s, RECORD_S, {**STILL, **(more or {})})
    return made, now_s


def test_an_hour_of_nothing_is_an_hour_of_idleness() -> None:
    quiet, now_s = filled(1)
    assert quiet.collect_evidence(now_s, 3600.0) == IdleEvidence(3600.0, (), (), 3600.0)


@pytest.mark.parametrize(
    ("signals", "family"),
    [
        ({"gpu_util": 6.0}, "gpu_util"), ({"gpu_busy_count": 1.0}, "gpu_util"), ({"cpu_cores": 0.2}, "cpu_cores"),
        ({"cpu_util": 3.2}, "cpu_util"), ({"network_bytes_s": 6.1e6}, "network_bytes_s"),
        ({"disk_bytes_s": 1e6}, "disk_bytes_s"), ({"input_age_s": 1799.0}, "input_age_s"),
        ({"queue_jobs": 1.0}, "queue_jobs"),
    ],
)  # fmt: skip
def test_each_family_alone_shows_work(signals: dict[str, float], family: str) -> None:
    quiet, now_s = filled(1, signals)
    seen = quiet.collect_evidence(now_s, 3600.0)
    assert (seen.over_s, seen.working) == (0.0, (family,))


def test_three_minutes_of_work_in_an_hour_are_work() -> None:
    quiet, now_s = filled(0.5)
    quiet, now_s = filled(0.05, {"cpu_cores": 4.0}, begin_s=now_s, quiet=quiet)
    quiet, now_s = filled(0.4, begin_s=now_s, quiet=quiet)
    assert quiet.collect_evidence(now_s, 3600.0).working == ("cpu_cores",)


@pytest.mark.parametrize(("name", "value"), [("input_age_s", 20.0), ("gpu_util", 40.0), ("queue_jobs", 2.0)])
def test_one_record_of_these_is_work(name: str, value: float) -> None:
    usual = {"queue_jobs": 0.0}
    quiet, now_s = filled(0.5, usual)
    quiet.add(now_s + RECORD_S, RECORD_S, {**STILL, **usual, name: value})
    quiet, now_s = filled(0.45, usual, begin_s=now_s + RECORD_S, quiet=quiet)
    assert quiet.collect_evidence(now_s, 3600.0).working == (name,)


def test_a_trickle_that_comes_to_two_gigabytes_is_work() -> None:
    quiet, now_s = filled(1, {"network_bytes_s": 6e5})
    assert quiet.collect_evidence(now_s, 3600.0).working == ("network_bytes_s",)


@pytest.mark.parametrize("name", ["step", "heartbeat"])
def test_a_counter_that_moved_is_work_and_one_that_stands_is_not(name: str) -> None:
    quiet, now_s = filled(0.5, {name: 7.0})
    quiet, now_s = filled(0.4, {name: 8.0}, begin_s=now_s, quiet=quiet)
    assert quiet.collect_evidence(now_s, 3600.0).working == (name,)
    quiet, now_s = filled(1, {name: 8.0}, begin_s=now_s, quiet=quiet)
    assert quiet.collect_evidence(now_s, 3000.0).working == ()


@pytest.mark.parametrize("name", ["step", "queue_jobs", "server_tokens"])
def test_what_was_there_and_is_gone_is_missing(name: str) -> None:
    quiet, now_s = filled(0.5, {name: 0.0})
    quiet, now_s = filled(0.5, begin_s=now_s, quiet=quiet)
    assert quiet.collect_evidence(now_s, 3600.0).missing == (name,)


@pytest.mark.parametrize("family", REQUIRED)
def test_one_record_without_a_family_breaks_the_window(family: str) -> None:
    quiet, now_s = filled(0.5)
    quiet.add(now_s + RECORD_S, RECORD_S, {name: value for name, value in STILL.items() if name != family})
    quiet, now_s = filled(0.45, begin_s=now_s + RECORD_S, quiet=quiet)
    seen = quiet.collect_evidence(now_s, 3600.0)
    assert (seen.over_s, seen.missing) == (0.0, (family,))
    quiet, now_s = filled(1.2, begin_s=now_s, quiet=quiet)
    assert quiet.collect_evidence(now_s, 3600.0).missing == ()


def test_a_scheduler_that_does_not_answer_breaks_the_window() -> None:
    quiet, now_s = filled(1)
    quiet.add(now_s + RECORD_S, RECORD_S, STILL, ("queue_jobs",))
    assert quiet.collect_evidence(now_s + RECORD_S, 3600.0).missing == ("queue_jobs",)


def test_after_a_gap_nothing_before_it_counts() -> None:
    quiet, now_s = filled(1)
    quiet, now_s = filled(0.1, begin_s=now_s + 6, quiet=quiet)
    assert quiet.collect_evidence(now_s, 3600.0).over_s == pytest.approx(360.0)


def test_records_that_stopped_coming_are_no_evidence() -> None:
    quiet, now_s = filled(1)
    assert quiet.collect_evidence(now_s + 61, 3600.0) == IdleEvidence(0.0, (), ("records",))
    assert IdleHistory(8).collect_evidence(5.0, 3600.0).missing == ("records",)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(sorted(STILL)), min_size=1, max_size=3, unique=True), st.integers(0, 239))
def test_dropping_any_signal_of_any_record_never_makes_idle(dropped: list[str], at: int) -> None:
    quiet = IdleHistory(cpus=8)
    for number in range(240):
        signals: Mapping[str, float] = {n: v for n, v in STILL.items() if number != at or n not in dropped}
        quiet.add(1000.0 + 15.0 * number, 15.0, signals)
    seen = quiet.collect_evidence(1000.0 + 15.0 * 239, 3600.0)
    assert seen.over_s == 0.0
    assert set(seen.missing) == set(dropped)
