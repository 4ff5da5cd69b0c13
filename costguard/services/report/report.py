"""Build the statement of a period: sums from the ledger, their coverage, and the further sections.

Sections: top resources, waste, previous period, savings, forecast, chart data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Protocol, TypeVar

from costguard.bills.drift import ReconciliationRecord
from costguard.budgets.budget import MATCH_ALL, ResourceFilter, matches_filter
from costguard.budgets.hold import is_hold_within
from costguard.budgets.spend_forecast import NO_PAST, SpendForecast, forecast_spend
from costguard.guard.alerts.alert import Alert
from costguard.guard.grouping import GroupKey, find_group
from costguard.metering.billing import BillingRule, get_billing_rule
from costguard.metering.burn import list_line_burns
from costguard.metering.inventory import POLL_AHEAD_MAX, UncoveredScope, find_uncovered_scopes
from costguard.metering.meter import COMPUTE
from costguard.metering.observation import Observation
from costguard.metering.spending import BilledResource, PollStretch, Spending
from costguard.reporting.statement.gpu_hours import measure_gpu_use
from costguard.reporting.statement.groups import (
    LABEL_PREFIX,
    CurrencySums,
    needs_resources,
    sum_by_currency,
    sum_unallocated,
)
from costguard.reporting.statement.history import CostByDay, WeeklyBurn, choose_day_key, compute_weekly_burn, sum_by_day
from costguard.reporting.statement.period import ReportPeriod
from costguard.reporting.statement.savings import HIGH_FOR, ConfirmedAction, Savings, compute_savings
from costguard.reporting.statement.sections import (
    PreviousPeriod,
    ResourceCost,
    TopResource,
    build_top_resource,
    compute_stopped_disk_cost,
    find_stopped_with_disks,
    list_quoted_runs,
    rank_top_resources,
    sum_by_price_source,
    sum_resource_costs,
)
from costguard.reporting.statement.statement import Statement, list_providers
from costguard.reporting.statement.waste import (
    ComputeRun,
    Waste,
    combine_group_stretches,
    judge_hours,
    judge_stretches,
    list_power_ranges,
    list_undecided_ranges,
    sum_waste,
    sum_waste_by_day,
)
from costguard.services.guarding.status import load_past_of
from costguard.services.poll.ports import Books
from costguard.values.calendar import Period
from costguard.values.instant import HOUR_US, MICROSECOND, to_micros
from costguard.values.money import Money, sum_intervals
from costguard.values.resource import RUNNING, Attribution, ScopeKey
from costguard.values.sample import GPU_BUSY_COUNT, GPU_UTIL

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.reports.reader import ReportReader


class AttributedPart(Protocol):
    """A part of the spending."""

    @property
    def attribution(self) -> Attribution:
        """Return whose it is."""


P = TypeVar("P", bound=AttributedPart)


def build_full_statement(
    *, accounts: ReportReader, question: ReportQuestion, rules: Mapping[str, BillingRule], with_sections: bool = True
) -> Statement:
    """Build the statement with the sections (`with_sections`), all from one snapshot of the ledger."""
    with accounts.read_one_snapshot():
        if not with_sections or question.period.start > question.as_of:
            return _build_plain_statement(accounts, accounts.load_spending(question.period, question.as_of), question, rules)
        costs = accounts.load_costs(question.period, question.as_of)
        spending = sum_resource_costs(costs)
        plain = _build_plain_statement(accounts, spending, question, rules)
        return _add_sections(plain, question.select(spending), question.select(costs), accounts, question)


def _build_plain_statement(
    books: Books, spending: Sequence[Spending], question: ReportQuestion, rules: Mapping[str, BillingRule]
) -> Statement:
    period, as_of, match = question.period, question.as_of, question.match
    coverages = [one for one in books.list_scopes() if period.start <= as_of and _is_of(one.scope, match)]
    scopes = [scope.scope for scope in coverages]
    unallocated = sum_unallocated(spending, match, question.by)
    spending = question.select(spending)
    usd, others = sum_by_currency(spending, question.by)
    return Statement(
        period=period,
        label=question.asked.label,
        zone=str(question.zone),
        as_of=as_of,
        by=question.by,
        match=match,
        usd=usd,
        others=others,
        unallocated=unallocated,
        not_modelled=tuple(
            (provider, sentence)
            for provider in list_providers(spending, scopes)
            for sentence in get_billing_rule(rules, provider).not_counted
        ),
        unseen=find_uncovered_scopes(scopes, _load_stretches(books, period, match), period, as_of=as_of, pause=question.pause),
        scopes=len(scopes),
        misdated=tuple(sorted((scope for scope in coverages if scope.at > as_of + POLL_AHEAD_MAX), key=lambda s: s.scope)),
    )


def _add_sections(
    statement: Statement,
    spending: Sequence[Spending],
    outlays: Sequence[ResourceCost],
    accounts: ReportReader,
    question: ReportQuestion,
) -> Statement:
    period, as_of, by = question.period, question.as_of, question.by
    each, bearers = load_spending_by(accounts, outlays, question) if needs_resources(by) else (spending, {})
    wastes, idle_days = measure_waste(accounts, outlays, bearers, question)
    usd, others = sum_by_currency(each, by, wastes)
    previous_period = load_previous_period(accounts, question)
    days, burn = load_chart_data(accounts, question)
    return replace(
        statement,
        usd=_add_previous_sums(usd, previous_period),
        others=others,
        before=previous_period,
        forecast=forecast_running_period(accounts, spending, question),
        spenders=load_top_resources(accounts, outlays),
        rest=compute_stopped_disk_cost(
            (lines for _, lines in accounts.load_lines(find_stopped_with_disks(outlays), period, as_of)), period
        ),
        saved=load_savings(accounts, question),
        quotes=list_quoted_runs(
            (one for one in accounts.load_committed_holds(period) if is_hold_within(one, question.match)), period
        ),
        prices=sum_by_price_source(outlays),
        days=days,
        burn=burn,
        idle_days=idle_days,
        beside=True,
        held=tuple(one for one in accounts.load_reconciliations(period) if _is_of(one, question.match)),
        spent_at=list_providers(spending, ()),
        unusual=tuple(one for one in accounts.load_unusual_alerts(period) if _is_within(one, question.match)),
    )


def _add_previous_sums(usd: CurrencySums, previous_period: PreviousPeriod | None) -> CurrencySums:
    """Add to each group the cost of the same group in the period before."""
    if previous_period is None or not previous_period.part_seen:
        return usd
    was = {tuple(group.by.values()): group.money.expected for group in previous_period.part.groups}
    groups = (replace(group, before=was.get(tuple(group.by.values()), Money(nano=0))) for group in usd.groups)
    return replace(usd, groups=tuple(groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportQuestion:
    """The parameters of a report. `by`: keys to group by, in `zone`, as known at `as_of`.

    `pause`: longest gap between polls that counts as observed. `group_from`: labels that mark machines working together.
    `drawn`: whether chart data is wanted. `match`: the spending to report.
    """

    asked: ReportPeriod
    by: tuple[str, ...]
    zone: tzinfo
    as_of: datetime
    pause: timedelta
    group_from: tuple[str, ...] = ()
    drawn: bool = False
    match: ResourceFilter = MATCH_ALL

    def select(self, parts: Iterable[P]) -> list[P]:
        """Return the parts that the report is about."""
        return [one for one in parts if self.match == MATCH_ALL or matches_filter(self.match, one.attribution)]

    @property
    def period(self) -> Period:
        """Return the requested period."""
        return self.asked.period

    @property
    def passed(self) -> Period:
        """Return the elapsed part of the period."""
        return Period(start=self.period.start, end=max(self.period.start, min(self.period.end, self.as_of)))

    @property
    def running(self) -> bool:
        """Return whether the period has begun and not ended."""
        return self.period.start <= self.as_of < self.period.end


def load_spending_by(
    accounts: ReportReader, outlays: Sequence[ResourceCost], question: ReportQuestion
) -> tuple[list[Spending], dict[int, BilledResource]]:
    """Return the costs as spending with resources, and those resources, with the attributes that the keys need."""
    labels = [key.removeprefix(LABEL_PREFIX) for key in question.by if key.startswith(LABEL_PREFIX)]
    labels += _list_group_labels(question.group_from) if "job" in question.by else []
    bearers = accounts.load_billed_resources({one.number for one in outlays}, labels=labels)
    if "job" in question.by:
        bearers = {number: replace(of, job=_name_job(of, question.group_from)) for number, of in bearers.items()}
    return [one.to_spending(bearers.get(one.number)) for one in outlays], bearers


def load_previous_period(accounts: ReportReader, question: ReportQuestion) -> PreviousPeriod | None:
    """Return the period before the requested one; None: there is none."""
    period, by, as_of = question.asked.before, question.by, question.as_of
    if period is None:
        return None

    def spent(of: Period) -> list[Spending]:
        if not needs_resources(by):
            return question.select(accounts.load_spending(of, as_of))
        return load_spending_by(accounts, question.select(accounts.load_costs(of, as_of)), question)[0]

    spendings = spent(period)
    part = (
        Period(start=period.start, end=min(period.end, period.start + question.passed.length)) if question.running else period
    )
    names = [scope.scope for scope in accounts.list_scopes() if _is_of(scope.scope, question.match)]
    stretches = _load_stretches(accounts, period, question.match)
    usd, parted = sum_by_currency(spendings, by)[0], spent(part) if question.running else spendings
    holes = find_uncovered_scopes(names, stretches, part, as_of=as_of, pause=question.pause)
    blank = find_uncovered_scopes(names, stretches, period, as_of=as_of, pause=question.pause)
    return PreviousPeriod(
        period=period,
        label=question.asked.before_label,
        usd=usd,
        part=sum_by_currency(parted, by)[0] if question.running else usd,
        seen=bool(spendings) or not _is_never_seen(blank, names),
        part_seen=bool(parted) or not _is_never_seen(holes, names),
        complete=bool(names) and not holes,
    )


def _is_of(one: ScopeKey | ReconciliationRecord, match: ResourceFilter) -> bool:
    """Return whether an account may have spending of `match`: owners and labels may be anywhere."""
    is_selected = match.providers is None or one.provider in match.providers
    return is_selected and (match.accounts is None or one.account in match.accounts)


def _load_stretches(books: Books, period: Period, match: ResourceFilter) -> list[PollStretch]:
    return [one for one in books.load_stretches(period) if _is_of(one.scope, match)]


def _is_within(one: Alert, match: ResourceFilter) -> bool:
    """Return whether what was unusual is of an owner whom `match` selects: others are not shown what another team does."""
    return match == MATCH_ALL or (match.owners is not None and one.owner in match.owners)


def _is_act_within(act: ConfirmedAction, match: ResourceFilter) -> bool:
    """Return whether the act ended spending of `match`, by what billed last when it was confirmed."""
    last = max((one for one in act.spans if one.start <= act.confirmed_at), key=lambda one: one.start, default=None)
    return match == MATCH_ALL or (last is not None and matches_filter(match, last.attribution))


def _is_never_seen(holes: Sequence[UncoveredScope], names: Sequence[ScopeKey]) -> bool:
    """Return whether no scope was ever listed completely."""
    return len(holes) == len(names) and all(hole.never for hole in holes)


def load_top_resources(accounts: ReportReader, outlays: Sequence[ResourceCost]) -> tuple[TopResource, ...]:
    """Return the resources with the highest cost."""
    places = rank_top_resources(outlays)
    top_places = set(places)
    costs_by_place: dict[tuple[int, str], list[ResourceCost]] = defaultdict(list)
    for one in outlays:
        place = (one.number, one.currency)
        if place in top_places:
            costs_by_place[place].append(one)
    bearers = accounts.load_billed_resources({number for number, _ in places})
    return tuple(build_top_resource(bearers[number], costs_by_place[number, currency]) for number, currency in places)


def measure_waste(
    accounts: ReportReader, outlays: Sequence[ResourceCost], bearers: Mapping[int, BilledResource], question: ReportQuestion
) -> tuple[list[Waste], dict[int, tuple[int, int]]]:
    """Return the wasted part of the compute cost, if it could be judged; by resource for `bearers`.

    With chart data also by day.
    """
    period, as_of, group_from = question.period, question.as_of, question.group_from
    gpus = {one.number: one.attribution.gpu_count for one in outlays if one.computes and one.us}
    measured = accounts.load_sampled_hours(gpus, question.passed)
    if not measured:
        return [], {}
    groups = _list_groups(accounts, gpus, measured, group_from)
    ran = dict[int, list[ComputeRun]]()
    for number, lines in accounts.load_lines({*measured, *(n for of in groups for n in of)}, period, as_of):
        ran[number] = [
            ComputeRun(span, to_micros(span.end or (reach.expected if reach else span.start)))
            for span, reach in lines
            if span.meter.charge == COMPUTE
        ]
    hours = {n: judge_hours(measured[n], ran.get(n, ()), gpus[n]) for n in measured}
    single = accounts.has_single_samples(question.passed)
    undecided = {n: list_undecided_ranges(measured[n], hours[n], ran.get(n, ()), gpus[n]) for n in measured if single}
    samples = accounts.load_samples_within(undecided)
    judged = {n: judge_stretches(hours[n], measured[n], samples.get(n, {}), ran.get(n, ()), gpus[n]) for n in measured}
    stretches = combine_group_stretches(judged, groups, ran)
    power = {n: list_power_ranges(measured[n], hours[n], samples.get(n, {})) for n in measured}
    use = {n: measure_gpu_use(of.get(GPU_UTIL, ()), of.get(GPU_BUSY_COUNT, ()), float(gpus[n])) for n, of in measured.items()}
    start_us, end_us = to_micros(period.start), to_micros(period.end)
    days: dict[int, tuple[int, int]] = {}
    for number in measured if question.drawn else ():
        for day, (known_us, wasted) in sum_waste_by_day(ran.get(number, ()), stretches[number], start_us, end_us).items():
            old_sums = days.get(day, (0, 0))
            days[day] = old_sums[0] + known_us, old_sums[1] + wasted
    wastes = [
        replace(waste, bearer=bearers.get(number)) if bearers else waste
        for number in measured
        for waste in sum_waste(ran.get(number, ()), stretches[number], start_us, end_us, power[number], use=use[number])
    ]
    return wastes, days


def load_savings(accounts: ReportReader, question: ReportQuestion) -> Savings:
    """Return the savings of the guard's acts in the period."""
    passed = question.passed
    if passed.start == passed.end:
        return Savings()
    acts = accounts.load_actions(passed.start - HIGH_FOR, passed.end)
    return compute_savings((one for one in acts if _is_act_within(one, question.match)), passed, question.as_of)


def forecast_running_period(
    accounts: ReportReader, spending: Sequence[Spending], question: ReportQuestion
) -> tuple[SpendForecast, ...]:
    """Forecast a running period as `status` does, dollars first; empty for other periods."""
    if not question.running:
        return ()
    now = question.as_of
    burns = question.select(list_line_burns(*accounts.load_burning(now), now))
    past = load_past_of(accounts, spending, burns, now, question.match)
    return tuple(
        forecast_spend(
            sum_intervals((part.money for part in spending if part.money.low.currency == currency), currency),
            past.get(currency, NO_PAST),
            [one for one in burns if one.hourly.low.currency == currency],
            now=now,
            left=question.period.end - now,
        )
        for currency in ("USD", *sorted({*past} - {"USD"}))
    )


def load_chart_data(accounts: ReportReader, question: ReportQuestion) -> tuple[CostByDay | None, WeeklyBurn | None]:
    """Return the cost of the elapsed part of the period by day and by hour; (None, None) if no chart is drawn.

    Hours count from the first poll or the first charge: before that the cost is unknown, not zero.
    """
    passed, as_of = question.passed, question.as_of
    if not question.drawn or passed.start == passed.end:
        return None, None
    by = choose_day_key(question.by)
    costs = accounts.load_daily_costs(question.period, as_of, by, question.match)
    days = sum_by_day(costs, by, passed.start.date(), (passed.end - MICROSECOND).date())
    if question.match != MATCH_ALL:
        return days, None  # the ledger keeps the hours of all spending together
    rates = accounts.load_rate_changes(passed, as_of)
    starts_us = [*(to_micros(one.start) for one in accounts.load_stretches(passed)), *(hour * HOUR_US for hour in rates)]
    since = max(to_micros(passed.start), min(starts_us, default=to_micros(passed.start)))
    return days, compute_weekly_burn(rates, since, to_micros(passed.end), question.zone)


def _list_groups(
    accounts: ReportReader, computed: Collection[int], measured: Collection[int], group_from: Sequence[str]
) -> list[list[int]]:
    """Return the groups of machines that work together, if one of them was measured. Usually there are none."""
    if not _find_group_members(accounts, measured, group_from):
        return []
    groups = _find_group_members(accounts, computed, group_from).values()
    return [of for of in groups if len(of) > 1 and any(number in measured for number in of)]


def _find_group_members(
    accounts: ReportReader, numbers: Collection[int], group_from: Sequence[str]
) -> dict[GroupKey, list[int]]:
    """Return the machines of `numbers` by the group that their labels name."""
    members = defaultdict[GroupKey, list[int]](list)
    for number, bearer in (
        accounts.load_billed_resources(numbers, labels=_list_group_labels(group_from)).items() if group_from else ()
    ):
        if bearer.labels and (group := find_group(_to_observation(bearer), group_from)) is not None:
            members[group].append(number)
    return members


def _list_group_labels(group_from: Sequence[str]) -> list[str]:
    """Return the label keys in `group_from`."""
    return [part.partition(":")[2] for pattern in group_from for part in pattern.split(" + ")]


def _name_job(bearer: BilledResource, group_from: Sequence[str]) -> str:
    group = find_group(_to_observation(bearer), group_from) if bearer.labels else None
    return group.name if group is not None else ""


def _to_observation(bearer: BilledResource) -> Observation:
    return Observation(key=bearer.key, state=RUNNING, labels=bearer.labels)
