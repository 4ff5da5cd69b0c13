"""What another watchdog judged: samples that came after it, how long its idleness counts, and what is asked of it again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from costguard.guard.context import GuardConfig, build_activity_query, build_contexts
from costguard.guard.grouping import GroupKey, GroupMember, apply_group_activity, combine_activities
from costguard.guard.judged_machine import EvidenceTerms, JudgedMachine
from costguard.guard.judgement import has_worked_since
from costguard.guard.signals import IDLE, WARMING, Activity, SampleColumns
from costguard.values.instant import to_micros
from costguard.values.resource import Incarnation
from costguard.values.sample import GPU_UTIL, STEP
from tests.blank import blank_sight
from tests.guard.cases import friday, idle, machine, policy

NODE = machine("i-1", started_at=friday(8), gpu="A100", gpu_count=8)
JUDGED_AT = friday(11)
TEN_S, FIVE_MIN = timedelta(seconds=10), timedelta(minutes=5)


def judged(*, idle_since: Activity) -> JudgedMachine:
    terms = EvidenceTerms(Incarnation(NODE.observation.key, friday(8)), 8, friday(8), None, timedelta())
    return JudgedMachine(
        at=JUDGED_AT,
        terms=terms,
        seen_at=JUDGED_AT,
        interval=TEN_S,
        bounds=(friday(8), JUDGED_AT),
        agent="1:1 ",
        works={(timedelta(minutes=45), (), timedelta(minutes=30)): idle_since},
    )


def columns(*steps: tuple[timedelta, float]) -> SampleColumns:
    """A GPU that reports zero every ten seconds until half a minute after the judgement, and `steps` by their time after it."""
    duty = [JUDGED_AT + n * TEN_S for n in range(-2, 4)]
    found: SampleColumns = {GPU_UTIL: ([to_micros(at) for at in duty], [0.0] * len(duty))}
    if steps:
        found = {**found, STEP: ([to_micros(JUDGED_AT + at) for at, _ in steps], [value for _, value in steps])}
    return found


def test_a_slow_counter_beside_a_fast_signal_has_the_machine_judged_anew() -> None:
    known, now = judged(idle_since=idle(friday(9))), JUDGED_AT + 3 * TEN_S
    assert not has_worked_since(known, NODE, columns(), now)
    assert has_worked_since(known, NODE, columns((TEN_S, 7.0)), now), "what it was before, nobody read"
    assert not has_worked_since(known, NODE, columns((-TEN_S, 7.0), (TEN_S, 7.0)), now), "it has not moved"
    assert has_worked_since(known, NODE, columns((-TEN_S, 6.0), (TEN_S, 7.0)), now)
    assert not has_worked_since(known, NODE, columns((-TEN_S, 6.0)), now), "it is not later"


def test_in_a_group_idleness_counts_until_the_first_time_that_anything_of_it_was_judged() -> None:
    early, late = (replace(idle(friday(9)), as_of=at) for at in (friday(10), friday(11)))
    key = GroupKey("aws", "1", ("cluster",), ("exp-7",))

    def grouped(own: Activity, *others: Activity) -> Activity:
        members = [
            GroupMember(key=NODE.observation.key._replace(id=f"i-{n}"), name=f"n{n}", work=work)
            for n, work in enumerate(others)
        ]
        return apply_group_activity(own, combine_activities(key, members), gpus=8)

    assert grouped(late, early).as_of == friday(10)
    assert grouped(early, idle(friday(9))).as_of == friday(10), "a member that does not count for its group was judged first"
    assert grouped(idle(friday(9)), idle(friday(9))).as_of is None
    assert grouped(early, Activity(state=WARMING, confidence=0.9, since=friday(9))).as_of == friday(10)


def test_what_another_judged_is_still_known_after_the_policies_of_the_machine() -> None:
    rules = GuardConfig(admin_route=True, policies=(policy(),))
    sight = blank_sight(JUDGED_AT, (NODE,))
    (asked,) = build_contexts(rules, sight)
    work = idle(friday(9))
    known = replace(judged(idle_since=work), works={build_activity_query(rules.policies[0]): work})
    (seat,) = build_contexts(rules, replace(sight, judged={NODE.observation.key: known}))
    assert seat.classify(rules.policies[0], rules, sight).state == IDLE
    seat.release_evidence()
    assert seat.classify(rules.policies[0], rules, sight).state == IDLE
    assert asked.classify(rules.policies[0], rules, sight).state != IDLE, "no sample is here"
