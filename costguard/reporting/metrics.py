"""Metrics: what the ledger knows, as families of labelled figures for Prometheus.

The number of series is bounded, whatever a fleet looks like. Each label keeps the `LABEL_VALUES_MAX` values with the most
weight (money, or the number of machines), and the rest are summed as "other"; of the groups that remain, `GROUPS_MAX` are kept
and the rest are summed in one group whose labels are all "other". So a sum over a family is always the whole.

Example: 10,000 machines with a team each, at $1 an hour. `sum(costguard_burn_usd_per_hour{bound="expected"})` is 10,000, of
which 50 teams have a series each, and team="other" has $9,950.

Times are given as instants and not as ages: a figure that was computed before the guard stopped still ages in Prometheus
(`time() - costguard_guard_last_run_timestamp_seconds`). `docs/METRICS.md` lists every family.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from costguard.errors import shorten, to_one_line
from costguard.guard.run_facts import GuardRun
from costguard.guard.signals import IDLE
from costguard.metering.burn import list_burns
from costguard.metering.spending import Spending
from costguard.reporting.statement.waste import Waste
from costguard.reporting.status import FleetStatus, ResourceBurn
from costguard.values.agent import Agent, is_silent
from costguard.values.instant import SECOND_US, to_micros
from costguard.values.money import Money, MoneyInterval, make_zero_interval, sum_intervals
from costguard.values.resource import INSTANCE, RUNNING, Attribution

GAUGE, COUNTER = "gauge", "counter"
OTHER, NONE = "other", "none"
"""The label value of all groups past the limits, and of a group that lacks the label."""
LABEL_VALUES_MAX, GROUPS_MAX = 50, 200
"""Values of one label, and groups of one family: 200 groups of three bounds are 600 series. Assumptions, 2026-11."""
SCOPES_MAX = 500
"""Scopes with a series each; those that were not seen completely for longest come first."""
LABEL_CHARS_MAX = 120
BOUNDS = ("low", "expected", "high")

MONEY_LABELS = ("provider", "account", "team", "gpu")
Group = tuple[str, ...]
Number = Decimal | int | float


class MetricSample(NamedTuple):
    """One series: the values of its family's labels, and its figure."""

    labels: Group
    value: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """A family of series. `kind`: gauge or counter; a counter's name ends in `_total` and never falls."""

    name: str
    help: str
    kind: str = GAUGE
    labels: Group = ()
    samples: tuple[MetricSample, ...] = ()


class ChannelCount(NamedTuple):
    """What became of a channel's messages, ever: `sent`, `gave_up` (no further try), and tries that nobody confirmed."""

    sent: int
    gave_up: int
    tries_failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCounts:
    """What only the ledger can count.

    Counts that never fall: `polls` by provider and outcome, `acts` by act and outcome, `channels` by name in the order in which
    each was first used, `runs`, `writes`, `audit_entries`. As they stand now: `messages` of the last 30 days by outcome,
    `waiting` by channel, `intents` that are open by act and state, `oldest_waiting_at` of the undelivered messages (None: there
    are none), `size_bytes` of the ledger.
    """

    polls: Mapping[Group, int] = field(default_factory=dict)
    acts: Mapping[Group, int] = field(default_factory=dict)
    intents: Mapping[Group, int] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)
    channels: Mapping[str, ChannelCount] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    oldest_waiting_at: datetime | None = None
    runs: int = 0
    writes: int = 0
    audit_entries: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsInput:
    """All that the metrics are made of. `spending`: of the month of `status`; `wastes`: the part of it that was idle.

    `verdicts`: machines by policy and finding. `run`: the last guard run; None: there was none.

    `build`: labels of the build, by name. `build_s`: how many seconds the figures took to read.
    """

    status: FleetStatus
    spending: Sequence[Spending]
    counts: LedgerCounts
    run: GuardRun | None = None
    agents: Sequence[Agent] = ()
    wastes: Sequence[Waste] = ()
    verdicts: Mapping[Group, int] = field(default_factory=dict)
    build: Mapping[str, str] = field(default_factory=dict)
    build_s: float = 0.0


def build_metrics(inputs: MetricsInput) -> tuple[MetricFamily, ...]:
    """Return every family, those without a series included, so that a scrape always names the same families."""
    return (
        *_build_money(inputs),
        *_build_budgets(inputs.status),
        *_build_machines(inputs.status),
        *_build_idle_month(inputs.wastes),
        *_build_scopes(inputs.status),
        *_build_guard(inputs),
        *_build_messages(inputs.counts),
        *_build_agents(inputs),
        *_build_ledger(inputs),
    )


def bound_groups(weights: Mapping[Group, Decimal | int]) -> dict[Group, Group]:
    """Return for each group the group that it is shown as, within `LABEL_VALUES_MAX` and `GROUPS_MAX`.

    The heaviest come first; equal ones in the order of their names, so that the same fleet gives the same series.
    """
    if not weights:
        return {}
    heaviest = [_list_heaviest_values(weights, place) for place in range(len(next(iter(weights))))]
    shown = {
        group: tuple(value if value in values else OTHER for value, values in zip(group, heaviest, strict=True))
        for group in weights
    }
    sums: dict[Group, Decimal] = defaultdict(Decimal)
    for group, weight in weights.items():
        sums[shown[group]] += weight
    most = frozenset(sorted(sums, key=lambda group: (-sums[group], group))[:GROUPS_MAX])
    return {group: one if one in most else (OTHER,) * len(one) for group, one in shown.items()}


def _list_heaviest_values(weights: Mapping[Group, Decimal | int], place: int) -> frozenset[str]:
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for group, weight in weights.items():
        sums[group[place]] += weight
    return frozenset(sorted(sums, key=lambda value: (-sums[value], value))[:LABEL_VALUES_MAX])


def clean_label(text: str) -> str:
    """Return `text` as a label value: one line of at most `LABEL_CHARS_MAX` printable characters, "none" if it is empty."""
    return shorten(to_one_line(text), LABEL_CHARS_MAX) or NONE


def _group_money(of: Attribution) -> Group:
    values = (of.provider, of.account, dict(of.labels).get("team", ""), of.gpu)
    return tuple(map(clean_label, values))


def _build_money(inputs: MetricsInput) -> Iterator[MetricFamily]:
    status = inputs.status
    spent: dict[str, dict[Group, MoneyInterval]] = defaultdict(dict)
    for part in inputs.spending:
        _add_money(spent, _group_money(part.attribution), part.money)
    burning: dict[str, dict[Group, MoneyInterval]] = defaultdict(dict)
    for burn in list_burns((one.live for one in status.resources), status.at):
        _add_money(burning, _group_money(burn.attribution), burn.hourly)
    forecasts = {one.currency: one.ahead for one in (status.usd, *status.others)}
    for currency in ("USD", *sorted({*spent, *burning, *forecasts} - {"USD"})):
        unit = currency.lower()
        yield _build_money_family(
            f"costguard_month_spend_{unit}", f"{currency} spent in the running month.", spent.get(currency, {})
        )
        yield _build_money_family(
            f"costguard_burn_{unit}_per_hour", f"{currency} an hour that bill now.", burning.get(currency, {})
        )
        ahead, zero = forecasts.get(currency), make_zero_interval(currency)
        says = f"{currency} that the running month will cost, four of five times between low and high."
        yield _build_intervals(f"costguard_month_forecast_{unit}", says, [((), ahead.total if ahead else zero)])
        says = f"{currency} that the running month will cost if the current burn continues."
        yield _build_intervals(f"costguard_month_if_unchanged_{unit}", says, [((), ahead.if_unchanged if ahead else zero)])
    for name, at in (("start", status.month.start), ("end", status.month.end)):
        says, samples = f"{name.capitalize()} of the running month.", [((), _to_seconds(at))]
        yield _build_gauge(f"costguard_month_{name}_timestamp_seconds", says, samples)


def _add_money(sums: dict[str, dict[Group, MoneyInterval]], group: Group, money: MoneyInterval) -> None:
    inner = sums[money.low.currency]
    inner[group] = inner[group].add(money) if group in inner else money


def _build_money_family(name: str, says: str, sums: Mapping[Group, MoneyInterval]) -> MetricFamily:
    shown = bound_groups({group: money.high.nano for group, money in sums.items()})
    bounded: dict[Group, MoneyInterval] = {}
    for group, money in sums.items():
        one = shown[group]
        bounded[one] = bounded[one].add(money) if one in bounded else money
    return _build_intervals(name, says, sorted(bounded.items()), MONEY_LABELS)


def _build_intervals(name: str, says: str, sums: Iterable[tuple[Group, MoneyInterval]], labels: Group = ()) -> MetricFamily:
    samples = [
        ((*group, bound), amount.to_decimal())
        for group, money in sums
        for bound, amount in zip(BOUNDS, (money.low, money.expected, money.high), strict=True)
    ]
    return _build_gauge(name, says, samples, (*labels, "bound"))


def _build_budgets(status: FleetStatus) -> Iterator[MetricFamily]:
    rates = {clean_label(one.budget.name): one for one in status.budgets[:GROUPS_MAX] if one.budget.is_rate}
    for currency in ("USD", *sorted({one.budget.cap.currency for one in rates.values()} - {"USD"})):
        running = [(name, one) for name, one in rates.items() if one.budget.cap.currency == currency]
        prefix, unit = "costguard_budget_hourly", currency.lower()
        caps, says = [((name,), one.budget.cap.to_decimal()) for name, one in running], f"in {currency} an hour"
        yield _build_gauge(f"{prefix}_limit_{unit}", f"Cap of what may run at once, {says}.", caps, ("budget",))
        burns = [((name,), one.spent) for name, one in running]
        yield _build_intervals(f"{prefix}_{unit}", f"What runs of a budget with such a cap, {says}.", burns, ("budget",))
    by_name = {clean_label(one.budget.name): one for one in status.budgets[:GROUPS_MAX] if not one.budget.is_rate}
    currencies = {one.budget.cap.currency for one in by_name.values()}
    for currency in ("USD", *sorted(currencies - {"USD"})):
        budgets = [(name, one) for name, one in by_name.items() if one.budget.cap.currency == currency]
        prefix, unit = "costguard_budget", currency.lower()
        limits = [((name,), one.budget.cap.to_decimal()) for name, one in budgets]
        yield _build_gauge(f"{prefix}_limit_{unit}", f"Limit of the budget for its period, in {currency}.", limits, ("budget",))
        holds = [((name,), one.holds.to_decimal()) for name, one in budgets]
        says = f"Held for admitted runs that have not been billed yet, in {currency}."
        yield _build_gauge(f"{prefix}_held_{unit}", says, holds, ("budget",))
        says, spent = f"Spent in the budget's period, in {currency}.", [((name,), one.spent) for name, one in budgets]
        yield _build_intervals(f"{prefix}_spent_{unit}", says, spent, ("budget",))
        says = f"What the budget's period will cost, four of five times between low and high, in {currency}."
        forecasts = [((name,), one.forecast) for name, one in budgets]
        yield _build_intervals(f"{prefix}_forecast_{unit}", says, forecasts, ("budget",))
    ends = [((name,), _to_seconds(one.period.end)) for name, one in by_name.items()]
    yield _build_gauge("costguard_budget_period_end_timestamp_seconds", "End of the budget's period.", ends, ("budget",))


def _build_machines(status: FleetStatus) -> Iterator[MetricFamily]:
    machines = [one for one in status.resources if one.live.observation.kind == INSTANCE]
    states, works, gpus, idle = (defaultdict[Group, Decimal](Decimal) for _ in range(4))
    for one in machines:
        observation = one.live.observation
        place = _clean(observation.key.provider, observation.key.account)
        states[*place, one.state] += 1
        if one.state != RUNNING:
            continue
        works[*place, one.work.state] += 1
        if observation.gpu:
            gpus[*place, clean_label(observation.gpu), one.work.state] += Decimal(str(observation.gpu_count))
            idle[*place, clean_label(observation.gpu)] += _count_idle_gpu_seconds(one, status.at)
    labels, says = ("provider", "account"), "Machines that are not known to have ended"
    yield _build_counted("costguard_machines", f"{says}, by state.", states, (*labels, "state"))
    yield _build_counted("costguard_machines_running", "Running machines, by activity.", works, (*labels, "activity"))
    says = "GPUs of running machines, by activity."
    yield _build_counted("costguard_gpus_running", says, gpus, (*labels, "gpu", "activity"))
    says = "GPU-seconds for which machines that are idle now have been idle without a break."
    yield _build_counted("costguard_idle_gpu_seconds", says, idle, (*labels, "gpu"))
    wasted = sum_intervals((one.get_burn().bounds for one in machines if one.work.state == IDLE), "USD")
    yield _build_intervals("costguard_idle_burn_usd_per_hour", "USD an hour of machines that are idle now.", [((), wasted)])
    unpriced = sum(one.unpriced for one in status.resources)
    yield _build_gauge("costguard_resources_unpriced", "Resources that are billed at an unknown price.", [((), unpriced)])


def _build_idle_month(wastes: Iterable[Waste]) -> Iterator[MetricFamily]:
    seconds, money = defaultdict[Group, Decimal](Decimal), defaultdict[Group, Decimal](Decimal)
    for one in wastes:
        group = _group_money(one.attribution)
        seconds[group] += Decimal(str(one.attribution.gpu_count)) * (one.idle_us // SECOND_US)
        if one.currency == "USD":
            money[group] += Money(nano=one.wasted).to_decimal()
    says = "GPU-seconds of the running month for which whole machines were idle, where activity is measured."
    yield _build_counted("costguard_month_idle_gpu_seconds", says, seconds, MONEY_LABELS)
    says = "USD of the running month for machines, or a part of their GPUs, that were idle, where activity is measured."
    yield _build_counted("costguard_month_idle_usd", says, money, MONEY_LABELS)


def _count_idle_gpu_seconds(one: ResourceBurn, at: datetime) -> Decimal:
    if one.work.state != IDLE or one.work.since is None:
        return Decimal(0)
    return Decimal(str(one.live.observation.gpu_count)) * max(int((at - one.work.since).total_seconds()), 0)


def _build_counted(name: str, says: str, counted: Mapping[Group, Decimal | int], labels: Group) -> MetricFamily:
    shown, sums = bound_groups(counted), defaultdict[Group, Decimal](Decimal)
    for group, number in counted.items():
        sums[shown[group]] += number
    return _build_gauge(name, says, sorted(sums.items()), labels)


def _build_scopes(status: FleetStatus) -> Iterator[MetricFamily]:
    ranked = sorted(status.scopes, key=lambda one: (_to_seconds(one.now.last_complete_at), one.now.scope))
    complete: dict[Group, Decimal] = {}
    states = Counter[Group]()
    for place, one in enumerate(ranked):
        group = _clean(*one.now.scope) if place < SCOPES_MAX else (OTHER,) * 3
        at = _to_seconds(one.now.last_complete_at)
        complete[group] = min(complete.get(group, at), at)
        states[_clean(one.now.scope.provider, one.state)] += 1
    labels, says = ("provider", "account", "scope"), "When the scope was last listed completely; 0: never."
    yield _build_gauge("costguard_scope_last_complete_timestamp_seconds", says, sorted(complete.items()), labels)
    yield _build_counted("costguard_scopes", "Scopes by the state of their last listing.", states, ("provider", "state"))


def _build_guard(inputs: MetricsInput) -> Iterator[MetricFamily]:
    run, counts = inputs.run, inputs.counts
    says, last = "When the guard last judged and recorded it; 0: never.", _to_seconds(run.at if run else None)
    yield _build_gauge("costguard_guard_last_run_timestamp_seconds", says, [((), last)])
    intervals = [((), run.interval.total_seconds())] if run else []
    yield _build_gauge("costguard_guard_interval_seconds", "How often the guard is meant to run.", intervals)
    samples = [((), int(run.outcome != "acting"))] if run else []
    yield _build_gauge("costguard_guard_acts_held", "1 while all acts of the guard are held, else 0.", samples)
    yield _build_counter("costguard_guard_runs_total", "Guard runs that were recorded.", {(): counts.runs})
    yield _build_counter("costguard_polls_total", "Polls of scopes, by outcome.", counts.polls, ("provider", "outcome"))
    yield _build_counter("costguard_acts_total", "Finished acts, by outcome.", counts.acts, ("act", "outcome"))
    says = "Machines by the finding of a policy or a hard cap."
    yield _build_counted("costguard_verdicts", says, inputs.verdicts, ("policy", "finding"))
    intents = {_clean(*key): number for key, number in counts.intents.items()}
    yield _build_gauge("costguard_intents", "Acts that are planned or under way.", sorted(intents.items()), ("act", "state"))


def _build_messages(counts: LedgerCounts) -> Iterator[MetricFamily]:
    messages = [((outcome,), number) for outcome, number in sorted(counts.messages.items())]
    yield _build_gauge("costguard_messages", "Messages of the last 30 days, by outcome.", messages, ("outcome",))
    channels = dict.fromkeys(list(counts.channels)[:LABEL_VALUES_MAX])  # the first ones stay: a counter must not fall
    sums = defaultdict[str, list[int]](lambda: [0, 0, 0])
    for channel, count in counts.channels.items():
        group = channel if channel in channels else OTHER
        sums[group] = [a + b for a, b in zip(sums[group], count, strict=True)]
    for name, text, place in (
        ("costguard_messages_sent_total", "Messages that the channel confirmed.", 0),
        ("costguard_messages_failed_total", "Messages that were given up after failed deliveries.", 1),
        ("costguard_message_tries_failed_total", "Delivery attempts that the channel did not confirm.", 2),
    ):
        yield _build_counter(name, text, {(group,): numbers[place] for group, numbers in sums.items()}, ("channel",))
    waiting: dict[Group, int] = {(clean_label(channel),): number for channel, number in counts.waiting.items()}
    yield _build_counted("costguard_messages_waiting", "Messages that are yet to be sent, by channel.", waiting, ("channel",))
    oldest = counts.oldest_waiting_at
    yield _build_gauge(
        "costguard_outbox_oldest_timestamp_seconds",
        "When the oldest pending message was written; no value if none is pending.",
        [((), _to_seconds(oldest))] if oldest else [],
    )


def _build_agents(inputs: MetricsInput) -> Iterator[MetricFamily]:
    counts = dict.fromkeys(("reporting", "silent"), 0)
    for one in inputs.agents:
        counts["silent" if is_silent(one, inputs.status.at) else "reporting"] += 1
    samples = [((state,), number) for state, number in sorted(counts.items())]
    yield _build_gauge("costguard_agents", "Agents that joined, by whether they report.", samples, ("state",))
    blind = sum(bool(one.troubles) for one in inputs.agents)
    yield _build_gauge("costguard_agents_blind", "Agents that cannot measure a part of their machine.", [((), blind)])


def _build_ledger(inputs: MetricsInput) -> Iterator[MetricFamily]:
    counts = inputs.counts
    yield _build_gauge("costguard_ledger_size_bytes", "Size of the ledger on its disk.", [((), counts.size_bytes)])
    yield _build_counter("costguard_ledger_writes_total", "Transactions of polls that changed the ledger.", {(): counts.writes})
    yield _build_counter("costguard_audit_entries_total", "Entries of the audit log.", {(): counts.audit_entries})
    names = tuple(sorted(inputs.build))
    values = tuple(clean_label(inputs.build[name]) for name in names)
    yield _build_gauge("costguard_build_info", "The version that computed these figures.", [(values, 1)], names)
    yield _build_gauge(
        "costguard_metrics_built_timestamp_seconds", "When these figures were computed.", [((), _to_seconds(inputs.status.at))]
    )
    yield _build_gauge("costguard_metrics_build_seconds", "How long that took.", [((), round(inputs.build_s, 6))])


def _build_gauge(name: str, says: str, samples: Iterable[tuple[Group, Number]], labels: Group = ()) -> MetricFamily:
    return MetricFamily(name=name, help=says, labels=labels, samples=tuple(MetricSample(*one) for one in samples))


def _build_counter(name: str, says: str, counted: Mapping[Group, int], labels: Group = ()) -> MetricFamily:
    cleaned = sorted((_clean(*group), number) for group, number in counted.items())
    samples = tuple(MetricSample(*one) for one in cleaned)
    return MetricFamily(name=name, help=says, kind=COUNTER, labels=labels, samples=samples)


def _clean(*values: str) -> Group:
    return tuple(map(clean_label, values))


def _to_seconds(at: datetime | None) -> Decimal:
    """Return the seconds since 1970, exact to the microsecond; 0 for None."""
    return Decimal(to_micros(at)) / SECOND_US if at else Decimal(0)
