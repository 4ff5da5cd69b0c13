"""Rules that need no evidence of idleness, whose a machine is, and the order in which a group is stopped."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from costguard.budgets.budget import ResourceFilter
from costguard.errors import InputError
from costguard.guard.context import GuardConfig
from costguard.guard.evaluation import is_claimed
from costguard.guard.overrides import is_group_head
from costguard.guard.policy import CAP_RULE, IDLE_RULE, LIMIT_RULE, PolicyTarget
from costguard.guard.reach import ACTS, ASKS, BLIND, TELLS, compute_reach, describe_provider_reach, describe_reach
from costguard.guard.signals import ACTIVE, UNKNOWN, Activity
from costguard.metering.observation import Handling
from costguard.settings import check_settings
from tests.guard.cases import machine, policy
from tests.guard.test_planning import DUE, due, last, reasons

WORKS = Activity(state=ACTIVE, confidence=0.9, reasons=("GPU duty 90 %",), coverage=1.0)
BLINDED = Activity(state=UNKNOWN, reasons=("no signals",))
OURS = {"tier": "on-demand"}


@pytest.mark.parametrize(
    ("rule", "work", "held"),
    [(LIMIT_RULE, WORKS, []), (LIMIT_RULE, BLINDED, []), (IDLE_RULE, WORKS, ["working"]), (IDLE_RULE, BLINDED, [])],
)
def test_a_limit_is_held_back_by_no_doubt_about_work(rule: str, work: Activity, held: list[str]) -> None:
    found = due(rule=policy(rule=rule, when=OURS, hold=timedelta()), one=machine(tier="on-demand"), work=work)
    assert reasons(last(found)) == held


def limit(when: str) -> str:
    return f"""
[[policy]]
name = "old"
rule = "limit"
when = '{when}'
then = [{{ do = "notify" }}, {{ after = "30m", do = "stop" }}]
"""


def test_a_limit_that_asks_about_work_is_refused_with_what_to_write() -> None:
    (fine,) = check_settings(limit('age > duration("72h")'), "costguard.toml").policies
    assert (fine.rule, len(fine.digest)) == (LIMIT_RULE, 16)
    with pytest.raises(InputError, match="asks for confidence, state, and a limit needs no evidence of work"):
        check_settings(limit('state == "idle" && confidence > 0.5'), "costguard.toml")


@pytest.mark.parametrize(
    ("workers", "rule", "held"), [(3, IDLE_RULE, ["workers_first"]), (0, IDLE_RULE, []), (3, CAP_RULE, [])]
)
def test_the_head_of_a_group_waits_for_its_workers_but_not_where_money_runs_out(
    workers: int, rule: str, held: list[str]
) -> None:
    leads = due(rule=policy(rule=rule))
    assert reasons(last(replace(leads, workers=workers))) == held


@pytest.mark.parametrize(
    ("stated", "head"),
    [
        ({"labels": (("ray-node-type", "head"),)}, True),
        ({"labels": (("ray-node-type", "worker"),)}, False),
        ({"name": "sky-exp-7-head"}, True),
        ({"name": "headless"}, False),
        ({"labels": (("skypilot-head-node", "1"),)}, True),
    ],
)
def test_the_head_of_a_cluster_is_known_by_its_marks(stated: dict[str, Any], head: bool) -> None:  # noqa: FBT001 - a case
    assert is_group_head(machine(**stated).observation) is head


NAMED = PolicyTarget(names=("i-*",))
BY_ACCOUNT = PolicyTarget(match=ResourceFilter(accounts=("123",)))


@pytest.mark.parametrize(
    ("claims", "ownerless", "target", "claimed"),
    [
        (None, (), PolicyTarget(), True),
        (None, ("aws",), PolicyTarget(), False),
        (None, ("aws",), PolicyTarget(gpu=True), False),
        (None, ("aws",), NAMED, True),
        (None, ("aws",), BY_ACCOUNT, True),
        (("aws/123",), ("aws",), PolicyTarget(), True),
        (("gcp",), (), NAMED, False),
    ],
)
def test_where_no_machine_tells_its_owner_an_account_must_be_claimed_or_a_policy_name_the_machine(
    claims: tuple[str, ...] | None,
    ownerless: tuple[str, ...],
    target: PolicyTarget,
    claimed: bool,  # noqa: FBT001 - a case
) -> None:
    rules = GuardConfig(admin_route=True, claims=claims, ownerless=frozenset(ownerless))
    assert is_claimed(rules, machine(), policy(target=target)) is claimed


SURE = policy(when={"state": "idle", "confidence": 0.9})
MEASURES = {"aws": ("duty", "cpu")}


def reach(handling: Handling, *, agents: bool = False, measures: dict[str, tuple[str, ...]] | None = None) -> tuple[str, str]:
    one = replace(machine(handling=handling), seen_at=DUE)
    (found,) = compute_reach(
        SURE,
        [one],
        measures=MEASURES if measures is None else measures,
        agents=[one.observation.key] if agents else [],
        owner_from=(),
    )
    return found.outcome, found.why


def test_what_a_policy_can_reach_follows_from_what_is_measured_and_what_a_stop_loses() -> None:
    stops = Handling(stops=True, terminates=True)
    assert reach(stops) == (
        ASKS,
        "aws without an agent reaches 0.8, as network, disk or PCIe is not measured; this policy acts from 0.9 on",
    )
    assert reach(stops, measures={}) == (BLIND, "aws without an agent measures nothing")
    assert reach(replace(stops, stops=False))[0] == ASKS
    exact = policy(when={"state": "idle", "confidence": 0.97})
    assert describe_provider_reach(exact, "lambda", ()).startswith("idle-gpu: lambda measures nothing")
    found = compute_reach(exact, [machine(handling=stops)], measures={}, agents=[machine().observation.key], owner_from=())
    assert [one.outcome for one in found] == [ACTS]
    assert list(describe_reach(exact, found)) == ["idle-gpu can act by itself on 1 of 1 running machine."]


def test_a_machine_that_nobody_owns_or_claims_is_not_counted_as_one_to_act_on() -> None:
    for ours, outcome in ((True, ACTS), (False, TELLS)):
        (found,) = compute_reach(
            policy(when={"state": "idle", "confidence": 0.9}),
            [machine(handling=Handling(stops=True), owner="")],
            measures={"aws": ("duty", "cpu", "io")},
            agents=(),
            owner_from=(),
            is_ours=lambda *_, ours=ours: ours,
        )
        assert (found.outcome, "claims" in found.why) == (outcome, not ours)


@pytest.mark.parametrize(
    ("when", "needs", "hold", "families", "says"),
    [
        ("idle", ("duty", "cpu", "io"), 1, ("duty", "cpu"), "does not measure network, disk or PCIe: this policy judges"),
        ("idle", ("cpu", "io"), 4, ("cpu", "io"), ""),
        ("idle", ("cpu", "io"), 1, ("cpu", "io"), "GPU duty is not measured"),
        ("hung", (), 1, ("duty", "cpu"), ""),
        ("hung", (), 1, ("cpu", "io"), "and this policy acts from 0.5 on"),
    ],
)
def test_lint_says_of_each_cloud_what_a_policy_cannot_do_there(
    when: str, needs: tuple[str, ...], hold: int, families: tuple[str, ...], says: str
) -> None:
    rule = policy(when={"state": when, "confidence": 0.5}, needs=needs, hold=timedelta(hours=hold))
    remark = describe_provider_reach(rule, "gcp", families)
    assert says in remark
    assert bool(remark) == bool(says)


def test_lint_says_nothing_of_clouds_that_a_policy_does_not_select() -> None:
    rule = replace(SURE, target=PolicyTarget(match=ResourceFilter(providers=("vast",))))
    assert describe_provider_reach(rule, "lambda", ()) == ""
    assert describe_provider_reach(rule, "vast", ()) != ""
