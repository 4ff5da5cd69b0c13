"""The ledger's figures as Prometheus reads them: how many series there are, what they sum to, and what a hostile name does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, timedelta
from decimal import Decimal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import compute_budget_status
from costguard.guard.signals import IDLE, Activity
from costguard.metering.burn import list_burns
from costguard.metering.spending import LiveResource, ScopeCoverage, Spending
from costguard.reporting.metrics import (
    COUNTER,
    GROUPS_MAX,
    LABEL_VALUES_MAX,
    OTHER,
    SCOPES_MAX,
    ChannelCount,
    LedgerCounts,
    MetricFamily,
    MetricsInput,
    _build_messages,
    build_metrics,
    clean_label,
)
from costguard.reporting.statement.waste import Waste
from costguard.reporting.status import ResourceAnnotations, build_fleet_status
from costguard.services.report.metrics import render_metrics
from costguard.values.calendar import find_month
from costguard.values.money import Money
from costguard.values.resource import Attribution, ScopeKey
from tests.books import NOW, attribution, live, meter, money, scope_now, spent

DOLLAR = 10**9
HOSTILE = 'a"b\\c\nd\x1b[2J\u202e} 1\ncostguard_forged 1'


def given(
    *resources: LiveResource,
    spending: Sequence[Spending] = (),
    scopes: Sequence[ScopeCoverage] = (),
    idle: bool = False,
    **stated: object,
) -> MetricsInput:
    work = Activity(state=IDLE, confidence=1, reasons=("",), since=NOW - timedelta(hours=3))
    beside = {one.observation.key: ResourceAnnotations(work=work) for one in resources} if idle else {}
    budget = Budget(name="vision", cap=Money.parse("100"))
    euros = Budget(name="euros", cap=Money.parse("50", "EUR"))
    burns, zero = list_burns(resources, NOW), Money(nano=0)
    budgets = [
        compute_budget_status(one, spending, burns, holds=replace(zero, currency=one.cap.currency), now=NOW)
        for one in (budget, euros)
    ]
    status = build_fleet_status(
        at=NOW,
        month=find_month(NOW, UTC),
        zone=UTC,
        spending=spending,
        live=resources,
        scopes=scopes,
        annotations=beside,
        budgets=budgets,
    )
    return MetricsInput(status=status, spending=spending, counts=LedgerCounts(), **stated)  # type: ignore[arg-type]


def find(families: Sequence[MetricFamily], name: str) -> dict[tuple[str, ...], Decimal]:
    family = next(one for one in families if one.name == name)
    assert len({labels for labels, _ in family.samples}) == len(family.samples), "two series of the same labels"
    return {labels: Decimal(value) for labels, value in family.samples}


def test_idle_time_of_the_month_is_summed_by_group_and_verdicts_are_counted() -> None:
    place = {"provider": "aws", "account": "123", "region": "us-east-1", "kind": "instance"}
    of = Attribution(**place, gpu="H100-80GB-SXM", gpu_count=8, labels=(("team", "vision"),))
    one = Waste(attribution=of, currency="USD", judged=9 * 10**9, idle=3 * 10**9, partly=10**9, idle_us=1800 * 10**6)
    verdicts = {("idle-gpu", "holds"): 2, ("idle-gpu", "cannot_say"): 1}
    found = build_metrics(given(wastes=(one, one), verdicts=verdicts))
    group = ("aws", "123", "vision", "H100-80GB-SXM")
    assert find(found, "costguard_month_idle_gpu_seconds") == {group: 2 * 8 * 1800}
    assert find(found, "costguard_month_idle_usd") == {group: 8}
    assert find(found, "costguard_verdicts") == {("idle-gpu", "holds"): 2, ("idle-gpu", "cannot_say"): 1}


def test_spend_and_burn_are_given_by_provider_account_team_and_gpu_with_both_ends() -> None:
    team = attribution(labels=(("team", "vision"),))
    found = build_metrics(given(live("i-1", meter(2 * DOLLAR)), spending=[spent(money("1", "2", "4"), team)]))
    group = ("aws", "123", "vision", "H100-80GB-SXM")
    assert find(found, "costguard_month_spend_usd") == {(*group, "low"): 1, (*group, "expected"): 2, (*group, "high"): 4}
    assert find(found, "costguard_burn_usd_per_hour")["aws", "123", "none", "H100-80GB-SXM", "expected"] == 2


def test_thousands_of_machines_of_as_many_teams_and_accounts_stay_within_the_limits_and_sum_to_the_whole() -> None:
    fleet, spending = [], []
    for number in range(3_000):
        name, gpu = f"{number:05}", f"GPU-{number % 300}"
        labels, scope = (("team", f"team-{name}"),), ScopeKey("aws", f"account-{name}", f"region-{name}")
        fleet.append(live(f"i-{name}", meter(DOLLAR), scope=scope, labels=labels, gpu=gpu, gpu_count=1))
        spending.append(spent(money("1"), attribution(account=f"account-{name}", labels=labels, gpu=gpu)))
    scopes = [scope_now(one.scope, complete_at=NOW - timedelta(seconds=place)) for place, one in enumerate(fleet)]
    found = build_metrics(given(*fleet, spending=spending, scopes=scopes))
    assert sum(len(family.samples) for family in found) < 3500
    for name in ("costguard_month_spend_usd", "costguard_burn_usd_per_hour"):
        series = find(found, name)
        assert len(series) <= 3 * (GROUPS_MAX + 1)
        assert sum(value for labels, value in series.items() if labels[-1] == "expected") == 3_000
        assert len({labels[2] for labels in series}) <= LABEL_VALUES_MAX + 1
    assert sum(find(found, "costguard_machines").values()) == 3_000
    scopes_shown = find(found, "costguard_scope_last_complete_timestamp_seconds")
    assert len(scopes_shown) == SCOPES_MAX + 1
    assert ("aws", "account-02999", "region-02999") in scopes_shown, "the scope that was not seen for longest has a series"
    assert scopes_shown[OTHER, OTHER, OTHER] == Decimal(str((NOW - timedelta(seconds=2499)).timestamp()))


def test_a_hostile_name_is_one_label_value_of_one_series() -> None:
    fleet = live("i-1", meter(DOLLAR), labels=(("team", HOSTILE),), scope=ScopeKey("aws", HOSTILE, "x"))
    found = build_metrics(given(fleet, spending=[spent(money("1"), attribution(labels=(("team", HOSTILE),)))]))
    text = render_metrics(found).decode()
    assert "costguard_forged 1" not in text.splitlines()
    parsed = {family.name: family for family in text_string_to_metric_families(text)}
    assert {sample.labels["team"] for sample in parsed["costguard_month_spend_usd"].samples} == {clean_label(HOSTILE)}
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_budgets_are_given_in_their_own_currency() -> None:
    found = build_metrics(given(spending=[spent(money("10", "20", "30"))]))
    assert find(found, "costguard_budget_limit_usd") == {("vision",): 100}
    assert find(found, "costguard_budget_spent_usd")["vision", "high"] == 30
    assert find(found, "costguard_budget_limit_eur") == {("euros",): 50}


def test_idle_gpus_are_counted_with_their_time_and_money() -> None:
    found = build_metrics(given(live("i-1", meter(2 * DOLLAR)), idle=True))
    assert find(found, "costguard_gpus_running") == {("aws", "123", "H100-80GB-SXM", IDLE): 8}
    assert find(found, "costguard_idle_gpu_seconds") == {("aws", "123", "H100-80GB-SXM"): 8 * 3 * 3600}
    assert find(found, "costguard_idle_burn_usd_per_hour")["expected",] == 2


def test_a_scope_and_a_guard_that_were_never_complete_have_the_instant_zero() -> None:
    found = build_metrics(given(scopes=[scope_now(outcome="failed", complete_at=None)]))
    assert find(found, "costguard_scope_last_complete_timestamp_seconds") == {("aws", "123", "us-east-1"): 0}
    assert find(found, "costguard_guard_last_run_timestamp_seconds") == {(): 0}


@pytest.mark.parametrize("family", build_metrics(given()), ids=lambda family: family.name)
def test_names_follow_the_conventions(family: MetricFamily) -> None:
    assert family.name.startswith("costguard_")
    assert family.name.endswith("_total") == (family.kind == COUNTER)
    assert family.help.endswith(".")


def test_a_counter_of_a_channel_never_falls_however_many_channels_come() -> None:
    seen = {f"env:CHAT_{n}": ChannelCount(n, 0, 0) for n in range(LABEL_VALUES_MAX + 20)}
    before = _sent_by_channel(seen)
    assert len(before) == LABEL_VALUES_MAX + 1
    assert sum(before.values()) == sum(one.sent for one in seen.values())
    later = {**{name: one._replace(sent=one.sent + 1) for name, one in seen.items()}, "env:NEW": ChannelCount(10**6, 0, 0)}
    after = _sent_by_channel(later)
    assert all(after[name] > number for name, number in before.items())


def _sent_by_channel(channels: dict[str, ChannelCount]) -> dict[str, float]:
    families = {one.name: one for one in _build_messages(LedgerCounts(channels=channels))}
    return {labels[0]: float(value) for labels, value in families["costguard_messages_sent_total"].samples}
