"""Groups: what a machine that idles by itself is while others of its group work, and that a group never makes anything idle."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.guard.context import GuardConfig, GuardSnapshot, build_contexts
from costguard.guard.evaluation import evaluate_snapshot
from costguard.guard.grouping import (
    GroupKey,
    GroupMember,
    apply_group_activity,
    combine_activities,
    counts_for_group,
    find_group,
)
from costguard.guard.policy import HOLDS
from costguard.guard.policy_evaluation import compute_waste
from costguard.guard.signals import ACTIVE, ACTIVITY_STATES, HUNG, IDLE, UNKNOWN, WARMING, Activity
from costguard.metering.spending import LiveResource
from costguard.settings import Settings
from costguard.values.resource import ResourceKey
from costguard.values.sample import CPU_CORES, DISK, GPU_UTIL, NETWORK
from tests.blank import blank_sight
from tests.guard.cases import friday, idle, machine, minutes, policy

EXP_7 = GroupKey("aws", "1", ("cluster",), ("exp-7",))
FROM = ("label:eks:cluster-name + label:eks:nodegroup-name", "label:cluster")


def member(name: str, work: Activity) -> GroupMember:
    return GroupMember(key=ResourceKey("aws", "1", "eu-west-1", f"i-{name}"), name=name, work=work)


def busy(**stated: Any) -> Activity:  # noqa: ANN401 - any field
    return Activity(
        **{"state": ACTIVE, "confidence": 0.97, "since": friday(8), "reasons": ("network up to 6100 kB/s",), **stated}
    )


def labelled(id_: str, *labels: tuple[str, str], **stated: Any) -> LiveResource:  # noqa: ANN401 - any field
    return machine(id_, labels=tuple(sorted(labels)), **stated)


# Which group


def test_a_group_is_the_first_label_that_is_carried_whatever_its_case() -> None:
    def named(*labels: tuple[str, str]) -> str:
        key = find_group(labelled("i-1", *labels).observation, FROM)
        return key.name if key else ""

    assert named(("cluster", "exp-7"), ("team", "vision")) == "exp-7"
    assert named(("Cluster", " exp-7 ")) == "exp-7"
    assert named(("cluster", "exp-7"), ("eks:cluster-name", "prod"), ("eks:nodegroup-name", "gpu")) == "prod/gpu"
    assert named(("cluster", "exp-7"), ("eks:cluster-name", "prod")) == "exp-7"
    assert named(("cluster", ""), ("team", "vision")) == ""
    assert named() == ""


def test_a_group_lies_within_one_account_and_over_its_regions() -> None:
    one = labelled("i-1", ("cluster", "exp-7")).observation
    there = replace(one, key=one.key._replace(region="us-east-1", id="i-2"))
    elsewhere = replace(one, key=one.key._replace(account="2"))
    assert find_group(one, FROM) == find_group(there, FROM)
    assert find_group(one, FROM) != find_group(elsewhere, FROM)
    assert find_group(replace(one, kind="volume"), FROM) is None
    assert find_group(one, ()) is None


def test_the_labels_that_tools_set_make_groups_without_being_stated() -> None:
    patterns = Settings().defaults.group_from
    for labels in (
        (("ray-cluster-name", "a"), ("skypilot-cluster-name", "a")),
        (("parallelcluster:cluster-name", "a"),),
        (("goog-k8s-cluster-name", "a"), ("goog-k8s-node-pool-name", "gpu")),
    ):
        assert find_group(labelled("i-1", *labels).observation, patterns) is not None
    assert find_group(labelled("i-1", ("goog-k8s-cluster-name", "a")).observation, patterns) is None


# Its state


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ((IDLE, ACTIVE, UNKNOWN), ACTIVE),
        ((IDLE, UNKNOWN, HUNG, WARMING), UNKNOWN),
        ((IDLE, WARMING, HUNG), WARMING),
        ((IDLE, HUNG, IDLE), HUNG),
        ((IDLE, IDLE), IDLE),
    ],
)
def test_a_group_works_where_one_of_it_does_and_idles_where_all_do(states: tuple[str, ...], state: str) -> None:
    found = combine_activities(EXP_7, [member(f"n{n}", Activity(state=one, since=friday(9))) for n, one in enumerate(states)])
    assert found is not None
    assert found.state == state


def test_a_node_that_waits_for_rank_0_works_with_all_of_its_gpus_wasted() -> None:
    waits = idle(friday(9))
    group = combine_activities(EXP_7, [member("rank0", busy()), member("rank1", waits)])
    found = apply_group_activity(waits, group, gpus=8)
    assert (found.state, found.wasted_share, found.since) == (ACTIVE, 1.0, friday(9))
    assert found.reasons == ("its group exp-7 works: rank0 (network up to 6100 kB/s)", "GPU duty 0 %")
    wasted = compute_waste(machine(), found, friday(11))
    assert wasted is not None
    assert wasted.format() == "65.54"
    assert apply_group_activity(waits, group, gpus=0).wasted_share == 0


def test_a_set_up_or_a_hang_of_another_is_that_of_the_group() -> None:
    starts = Activity(state=WARMING, confidence=0.5, since=friday(10), reasons=("no activity since it started at",))
    group = combine_activities(EXP_7, [member("n0", starts), member("n1", idle(friday(9)))])
    assert apply_group_activity(idle(friday(9)), group, gpus=8).state == WARMING
    hangs = Activity(state=HUNG, confidence=0.9, since=friday(8), reasons=("power 80 W",))
    group = combine_activities(EXP_7, [member("n0", hangs), member("n1", idle(friday(9)))])
    assert apply_group_activity(idle(friday(9)), group, gpus=8).since == friday(9)


# Whatever the members are

SINCE = st.none() | st.integers(0, 600).map(lambda n: friday(8) + timedelta(minutes=n))
WORKS = st.builds(
    Activity,
    state=st.sampled_from(tuple(ACTIVITY_STATES)),
    confidence=st.floats(0, 1),
    since=SINCE,
    coverage=st.none() | st.floats(0, 1),
    attended=st.booleans(),
    reasons=st.just(()) | st.just(("why",)),
)


def stoppable(work: Activity, at: datetime) -> bool:
    return work.state == IDLE and work.confidence >= 0.9 and work.since is not None and at - work.since >= minutes(45)


@given(st.lists(WORKS, min_size=1, max_size=6), WORKS)
def test_another_member_never_makes_one_idle_or_stoppable(works: list[Activity], more: Activity) -> None:
    members = [member(f"n{n}", work) for n, work in enumerate(works)]
    before, after = combine_activities(EXP_7, members), combine_activities(EXP_7, [*members, member("n9", more)])
    for own in works:
        first, second = apply_group_activity(own, before, 8), apply_group_activity(own, after, 8)
        assert first.state == IDLE or second.state != IDLE
        assert stoppable(first, friday(23)) or not stoppable(second, friday(23))
        if more.state == ACTIVE:
            assert second.state != IDLE


# In a survey

SIGNALS = (GPU_UTIL, CPU_CORES, NETWORK, DISK)
NOW = friday(12)


def sight(*of: LiveResource, works: frozenset[str] = frozenset(), blind: frozenset[str] = frozenset()) -> GuardSnapshot:
    """Three hours of quiet samples a minute; of `works` GPUs at 90 %, of `blind` none."""
    start = round((NOW - timedelta(hours=3)).timestamp()) * 10**6
    ats = [start + n * 60 * 10**6 for n in range(180)]
    columns = {
        one.observation.key: {
            name: (ats, [90.0 if name == GPU_UTIL and one.observation.key.id in works else 0.0] * len(ats)) for name in SIGNALS
        }
        for one in of
        if one.observation.key.id not in blind
    }
    return blank_sight(NOW, of, samples=columns)


def node(id_: str, **stated: Any) -> LiveResource:  # noqa: ANN401 - any field
    return labelled(id_, ("cluster", "exp-7"), **{"started_at": friday(8), "gpu": "A100", "gpu_count": 8, **stated})


def found_of(rules: GuardConfig, seen: GuardSnapshot) -> dict[str, tuple[str, str]]:
    cases = evaluate_snapshot(rules, seen).cases
    return {case.live.observation.key.id: (case.verdict.work.state, case.verdict.finding) for case in cases}


def test_a_survey_leaves_those_alone_whose_group_works() -> None:
    rules = GuardConfig(admin_route=True, policies=(policy(),), group_from=FROM)
    of = (node("i-0"), node("i-1"), machine("i-2", started_at=friday(8), gpu="A100", gpu_count=8))
    found = found_of(rules, sight(*of, works=frozenset(("i-0",))))
    assert found["i-1"][0] == ACTIVE
    assert found["i-1"][1] != HOLDS
    assert found["i-2"] == (IDLE, HOLDS)
    assert found_of(rules, sight(*of, blind=frozenset(("i-0",))))["i-1"][0] == UNKNOWN
    assert found_of(rules, sight(*of))["i-1"] == (IDLE, HOLDS)
    assert found_of(replace(rules, group_from=()), sight(*of, works=frozenset(("i-0",))))["i-1"] == (IDLE, HOLDS)


def test_a_policy_that_judges_alone_finds_it_idle_and_may_ask_for_its_group() -> None:
    of = sight(node("i-0"), node("i-1"), works=frozenset(("i-0",)))
    alone = GuardConfig(admin_route=True, policies=(policy(alone=True),), group_from=FROM)
    assert found_of(alone, of)["i-1"] == (IDLE, HOLDS)
    asks = policy(alone=True, when={"state": IDLE, "group": "exp-7", "group_state": ACTIVE})
    assert found_of(replace(alone, policies=(asks,)), of)["i-1"] == (IDLE, HOLDS)
    asks = policy(alone=True, when={"state": IDLE, "group_state": IDLE})
    assert found_of(replace(alone, policies=(asks,)), of)["i-1"][1] != HOLDS


def test_what_is_stopped_or_absent_is_waited_for_by_nobody() -> None:
    rules = GuardConfig(admin_route=True, policies=(policy(),), group_from=FROM)
    stopped, gone = node("i-0", state="stopped"), replace(node("i-3"), absent_at=friday(11))
    assert not counts_for_group(stopped)
    assert not counts_for_group(gone)
    seen = sight(stopped, node("i-1"), gone, works=frozenset(("i-0", "i-3")))
    assert found_of(rules, seen)["i-1"] == (IDLE, HOLDS)
    seats = build_contexts(rules, seen)
    assert {seat.inputs.group for seat in seats} == {"exp-7"}


def test_nothing_of_a_group_that_works_is_ever_stopped_by_an_idle_rule_whatever_its_condition() -> None:
    wasteful = policy(when={"wasted_share": 1.0}, hold=timedelta())
    rules = GuardConfig(admin_route=True, policies=(wasteful,), group_from=FROM)
    found = evaluate_snapshot(rules, sight(node("i-0"), node("i-1"), works=frozenset(("i-0",))))
    acts = [one for one in found.proposals if one.step.do == "stop"]
    assert {one.verdict.life.key.id for one in acts} == {"i-1"}
    assert all("working" in dict(one.held_by) for one in acts)
