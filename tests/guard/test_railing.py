"""Rails: they hold even where every policy says "stop everything"."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from costguard.guard.action_intents import VERIFYING, Intent
from costguard.guard.action_plan import build_action_plan
from costguard.guard.limits import (
    compute_headroom,
    compute_plan_fingerprint,
    count_fleet,
    explain_clock_doubt,
    explain_config_excess,
    explain_gap_doubt,
    find_churning_controllers,
    find_quarantined_scopes,
    is_config_undecided,
    update_breaker,
)
from costguard.guard.policy import STOP, TERMINATE, PolicyStep, Rails
from costguard.guard.signals import ACTIVE, Activity
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from tests.books import NOW
from tests.guard.cases import POLL, around, case, idle, machine, minutes, policy, wish

RAILS = Rails(
    acts_per_run=1, acts_per_10m=3, fleet_share_10m=Fraction(10, 100), fleet_share_day=Fraction(20, 100), acts_least_day=1
)
"""Three and a tenth in ten minutes and a fifth a day, as some settings say; the defaults: decision 0110."""


def sent(at: datetime, *, irreversible: bool = False) -> Intent:
    return Intent(
        id=f"{at}",
        life=identify_incarnation(machine().observation),
        act="stop",
        policy="p",
        rule="idle",
        why="",
        evidence="",
        state=VERIFYING,
        created_at=at,
        moved_at=at,
        sent_at=at,
        irreversible=irreversible,
    )


def fleet(count: int, **stated: Any) -> list[LiveResource]:  # noqa: ANN401 - any field
    return [machine(f"i-{n:03d}", **stated) for n in range(count)]


@pytest.mark.parametrize(
    ("machines", "minutes_ago", "acts"),
    [
        (1000, (), 1),
        (1000, (1, 2), 1),
        (1000, (1, 2, 9), 0),
        (1000, (1, 2, 10), 1),
        (10, (1,), 0),
        (10, (11,), 1),
        (10, (11, 700), 0),
        (10, (11, 1440), 1),
        (0, (), 1),
        (0, (600,), 0),
    ],
)
def test_h26_the_rails_leave_room_for_so_many_acts(machines: int, minutes_ago: tuple[int, ...], acts: int) -> None:
    assert compute_headroom([sent(NOW - minutes(m)) for m in minutes_ago], machines, RAILS, NOW).acts == acts


def test_h26_one_irreversible_act_an_hour() -> None:
    lost = sent(NOW - minutes(59), irreversible=True)
    assert compute_headroom([lost], 1000, RAILS, NOW).irreversible == 0
    assert compute_headroom([lost], 1000, RAILS, NOW + minutes(1)).irreversible == 1


def test_h26_an_act_dated_into_the_future_takes_room_as_well() -> None:
    assert compute_headroom([sent(NOW + timedelta(days=1))], 10, RAILS, NOW).acts == 0


@pytest.mark.parametrize("size", [1, 3, 5, 10, 20])
def test_a_small_fleet_whose_jobs_end_one_after_the_other_is_stopped_whole_within_half_an_hour_of_its_due_times(
    size: int,
) -> None:
    due = [NOW + number * timedelta(hours=8) / size for number in range(size)]
    done, at = list[datetime](), NOW
    while at < NOW + timedelta(hours=12):
        if len(done) < sum(one <= at for one in due):
            done += [at] * compute_headroom([sent(one) for one in done], size, Rails(), at).acts
        at += POLL
    assert len(done) == size
    assert all(at - one <= timedelta(minutes=30) for at, one in zip(done, due, strict=True))


def test_the_breaker_holds_only_what_turned_together_and_ends_after_a_day() -> None:
    machines = fleet(30)
    turned = {m.observation.key: NOW for m in machines[:10]}
    opened = update_breaker(None, turned, machines, RAILS, NOW)
    assert opened is not None
    assert [opened.holds(m.observation.key) for m in machines] == [True] * 10 + [False] * 20
    later = update_breaker(opened, turned, machines, RAILS, NOW + timedelta(hours=24))
    assert later is not None
    assert not later.holds(machines[0].observation.key)
    assert update_breaker(later, turned, machines, RAILS, NOW + timedelta(hours=25)) == replace(
        later, keys=(), shared="", opened_at=NOW + timedelta(hours=24)
    )


def test_a_quarter_of_the_fleet_turning_idle_at_once_opens_the_breaker_and_names_what_they_share() -> None:
    machines = fleet(20, instance_type="p4d.24xlarge")
    turned = {m.observation.key: NOW - n * minutes(2) for n, m in enumerate(machines[:5])}
    opened = update_breaker(None, turned, machines, RAILS, NOW)
    assert opened is not None
    assert "type p4d.24xlarge" in opened.shared
    assert len(opened.keys) == 5


@pytest.mark.parametrize(("count", "of", "apart"), [(4, 8, 1), (5, 21, 1), (5, 20, 3)])
def test_few_or_slow_turns_leave_the_breaker_closed(count: int, of: int, apart: int) -> None:
    machines = fleet(of)
    turned = {m.observation.key: NOW - n * minutes(apart) for n, m in enumerate(machines[:count])}
    assert update_breaker(None, turned, machines, RAILS, NOW) is None


def test_the_breaker_closes_after_30_min_of_recovery_or_by_hand() -> None:
    machines = fleet(20)
    turned = {m.observation.key: NOW for m in machines[:5]}
    opened = update_breaker(None, turned, machines, RAILS, NOW)
    still = update_breaker(opened, turned, machines, RAILS, NOW + minutes(60))
    assert still is not None
    better = update_breaker(still, {}, machines, RAILS, NOW + minutes(61))
    assert better is not None
    assert update_breaker(better, {}, machines, RAILS, NOW + minutes(90)) is not None
    over = update_breaker(better, {}, machines, RAILS, NOW + minutes(91))
    assert over is not None
    assert over.closed_at == NOW + minutes(91)
    assert not over.holds(machines[0].observation.key)
    closed = update_breaker(still, turned, machines, RAILS, NOW + minutes(61), reset_at=NOW + minutes(61))
    assert closed is not None
    assert not any(closed.holds(m.observation.key) for m in machines)
    relapsed = update_breaker(better, turned, machines, RAILS, NOW + minutes(62))
    assert relapsed is not None
    assert relapsed.recovering_since is None


def test_a_machine_that_was_stopped_on_approval_is_no_sign_that_the_others_are_measured_rightly() -> None:
    machines = fleet(5)
    turned = {m.observation.key: NOW for m in machines}
    opened = update_breaker(None, turned, machines, RAILS, NOW)
    left = machines[:4]
    for at in (NOW + minutes(10), NOW + minutes(60)):
        opened = update_breaker(opened, {m.observation.key: NOW for m in left}, left, RAILS, at)
    assert opened is not None
    assert all(opened.holds(m.observation.key) for m in left)
    none_left = [update_breaker(opened, {}, [], RAILS, NOW + minutes(70))]
    none_left.append(update_breaker(none_left[0], {}, [], RAILS, NOW + minutes(100)))
    assert none_left[1] is not None
    assert none_left[1].closed_at == NOW + minutes(100)


@pytest.mark.parametrize(("gone", "there", "doubted"), [(2, 1, False), (3, 3, False), (3, 2, True), (3, 0, True)])
def test_h01_more_than_half_of_a_scope_gone_at_once_is_doubted(gone: int, there: int, doubted: bool) -> None:  # noqa: FBT001 - a case
    absent = [machine(f"g-{n}") for n in range(gone)]
    found = find_quarantined_scopes([*(replace(m, absent_at=NOW) for m in absent), *fleet(there)])
    assert bool(found) is doubted


def test_h16_clocks_that_disagree_by_more_than_two_seconds_are_not_believed() -> None:
    assert explain_clock_doubt(POLL, POLL + timedelta(seconds=2), RAILS) == ""
    assert explain_clock_doubt(POLL + timedelta(seconds=3), POLL, RAILS) == "wall and boot clock disagree by 3 s"
    assert explain_clock_doubt(timedelta(hours=-1), POLL, RAILS)


def test_h17_the_first_run_after_a_start_or_a_gap_only_observes() -> None:
    assert explain_gap_doubt(None, POLL, RAILS, NOW)
    assert explain_gap_doubt(NOW - 3 * POLL, POLL, RAILS, NOW) == ""
    assert explain_gap_doubt(NOW - 3 * POLL - timedelta(seconds=1), POLL, RAILS, NOW)
    assert explain_gap_doubt(NOW + POLL, POLL, RAILS, NOW)


def test_h25_a_config_whose_first_run_would_stop_more_than_the_rails_allow_needs_a_yes() -> None:
    rule, machines = policy(), fleet(40)
    cases = [case(m, rule, idle(NOW - minutes(60)), NOW) for m in machines[:4]]
    four = build_action_plan(cases, around(NOW))
    assert explain_config_excess(four, count_fleet(machines), RAILS, NOW) == (
        "it would act on 4 of 40 machines, and [rails] allows new settings 3 in 10 min"
    )
    assert explain_config_excess(build_action_plan(cases[:3], around(NOW)), 40, RAILS, NOW) == ""
    assert explain_config_excess(four, 40, Rails(), NOW), "by default, too: 15 in 10 min are for what a person accepted"
    protected = build_action_plan(
        [*cases[:3], case(machines[3], rule, idle(NOW - minutes(60)), NOW, claimed=False, owner="")], around(NOW)
    )
    assert explain_config_excess(protected, 40, RAILS, NOW) == ""


def test_h25_two_acts_on_a_machine_are_one_machine_and_stopped_ones_are_not_of_those_that_run() -> None:
    steps = PolicyStep(do=STOP), PolicyStep(do=TERMINATE, after=minutes(5))
    both = policy(*steps, allow_irreversible=True, arm=TERMINATE)
    cases = [case(m, both, idle(NOW - minutes(60)), NOW, level=TERMINATE) for m in fleet(3)]
    plan = build_action_plan(cases, around(NOW))
    assert explain_config_excess(plan, 40, RAILS, NOW).startswith("it would act on 3 of 40 machines in 6 acts, and")
    assert explain_config_excess(plan, 2, RAILS, NOW).startswith("it would act on 3 machines (2 run) in 6 acts, and")


def test_story_20_three_replaced_members_in_an_hour_are_churn_and_three_new_ones_are_not() -> None:
    born = [("auto-scaling group train", NOW - minutes(n)) for n in (5, 20, 40, 70)]
    assert find_churning_controllers(born, born, NOW) == {"auto-scaling group train": 3}
    assert find_churning_controllers(born, [], NOW) == {}


def test_h25_acts_that_wait_only_for_evidence_count_for_the_first_run() -> None:
    rule, machines = policy(hold=minutes(0)), fleet(40)
    thin = [case(m, rule, idle(NOW - minutes(60), coverage=0.5), NOW) for m in machines[:4]]
    assert {reason for p in build_action_plan(thin, around(NOW)) for reason, _ in p.held_by} >= {"not_confident"}
    assert explain_config_excess(build_action_plan(thin, around(NOW)), 40, RAILS, NOW)


def test_h25_a_rule_that_holds_for_busy_machines_means_all_of_them_and_an_idle_rule_none() -> None:
    machines, busy = fleet(50), Activity(state=ACTIVE, confidence=0.9, reasons=("GPU duty 98 %",), since=NOW)
    old = policy(when={"provider": "aws"}, hold=minutes(0))
    proposals = build_action_plan([case(m, old, busy, NOW) for m in machines], around(NOW))
    assert {reason for p in proposals if p.step.do == "stop" for reason, _ in p.held_by} >= {"working"}
    excess = explain_config_excess(proposals, 50, RAILS, NOW)
    assert excess == "it would act on 50 of 50 machines, and [rails] allows new settings 3 in 10 min"
    quiet = build_action_plan([case(m, policy(), busy, NOW) for m in machines], around(NOW))
    assert explain_config_excess(quiet, 50, RAILS, NOW) == ""
    assert not is_config_undecided(quiet, 50, RAILS, NOW)


def test_h25_what_cannot_be_judged_yet_needs_no_yes_and_leaves_the_first_run_open() -> None:
    unknown = build_action_plan([case(m, policy(), Activity(), NOW) for m in fleet(50)], around(NOW))
    assert explain_config_excess(unknown, 50, RAILS, NOW) == ""
    assert is_config_undecided(unknown, 50, RAILS, NOW)
    assert not is_config_undecided(unknown[:3], 50, RAILS, NOW)


def test_h25_what_people_hold_back_needs_no_yes() -> None:
    machines = fleet(9)
    kept = [case(m, policy(), idle(NOW - minutes(60)), NOW, lease=wish("lease", m, NOW, NOW + minutes(60))) for m in machines]
    assert explain_config_excess(build_action_plan(kept, around(NOW)), 9, RAILS, NOW) == ""


KEPT = {
    *(
        *("breaker_share", "breaker_window", "breaker_recovery", "breaker_asks", "breaker_lasts", "clock_limit"),
        *("gap_polls", "caps"),
    ),
}
"""Fields that hold nothing back by themselves in a replay: the breaker never opens, and no gap or clock jump is recorded."""


def test_every_limit_is_lifted_in_a_replay_without_limits() -> None:
    usual, free = Rails(), Rails.unlimited()
    same = {field.name for field in fields(Rails) if getattr(usual, field.name) == getattr(free, field.name)}
    assert same == KEPT


def test_a_replay_without_limits_asks_nobody_to_wait() -> None:
    free = Rails.unlimited()
    assert (free.first_polls, free.first_seen.total_seconds()) == (0, 0)
    assert min(free.acts_per_run, free.acts_per_10m, free.irreversible_per_h, free.breaker_least) >= 10**9
    assert min(free.fleet_share_10m, free.fleet_share_day) >= 1


ACTS = 40


def test_the_acts_of_a_plan_are_hashed_in_order_whatever_a_process_makes_of_their_set() -> None:
    works = idle(NOW - timedelta(hours=1))
    cases = [case(machine(f"i-{n * 7919 % 1000:03d}"), policy(), works, NOW) for n in range(ACTS)]
    hashed = compute_plan_fingerprint(build_action_plan(cases, around(NOW)), bytes.decode).split("\n")
    assert len(hashed) == ACTS
    assert hashed == sorted(hashed)
