"""Replay policies over recorded history: each resource by itself, then all together under the limits.

    records -> each resource replayed without limits -> limits applied over all of it -> stops, and what each saves

No provider is asked, and nothing is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.data import ShippedFacts
from costguard.errors import InputError, UnknownNameError
from costguard.guard.context import GuardConfig
from costguard.guard.grouping import GroupKey, find_group
from costguard.guard.overrides import find_armed_level
from costguard.guard.policy import HOOK, TERMINATE, Policy
from costguard.guard.policy_evaluation import BUDGET_FACTS, RUNWAY
from costguard.guard.replay.checkpoints import GROWING_FACTS, INTERVALS_BETWEEN_LOOKS
from costguard.guard.replay.engine import HeldAct, ReplayResult, ResourceReplay
from costguard.guard.replay.history import ReplayedResource, ReplaySetup, ScopeListings, find_gaps, rebuild_listing
from costguard.guard.replay.simulation import (
    LimitedAct,
    PolicySimulation,
    SimulatedHold,
    SimulatedStop,
    Simulation,
    apply_limits,
    build_blind_time,
    build_simulated_stop,
)
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.spans.observations import HistoryReader
from costguard.metering.billing import BillingRule
from costguard.metering.inventory import COMPLETE
from costguard.metering.observation import Handling
from costguard.metering.spending import LiveResource, PollStretch
from costguard.providers import plugins
from costguard.services import CommandAnswer
from costguard.services.guarding.guard_inputs import build_guard_config, read_measurement_lags
from costguard.settings import read_settings, resolve_ledger_url
from costguard.settings.fields import parse_duration
from costguard.system.progress import report_progress
from costguard.values.calendar import Period
from costguard.values.checks import find_nearest_names, require
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.views.simulation import build_simulation_document, list_simulation_warnings

COVERAGE_PAUSE = timedelta(minutes=5)
"""A longer pause between two polls breaks the coverage of a scope, and so is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationFacts:
    """Facts that are not in the ledger: lags of measurements, acts of each provider, billing rules."""

    lags: Mapping[str, timedelta]
    handling: Mapping[str, Handling]
    billing: Mapping[str, BillingRule]


def simulate_policies(
    records: HistoryReader,
    rules: GuardConfig,
    period: Period,
    at: datetime,
    facts: SimulationFacts,
    *,
    every_step: bool = False,
) -> Simulation:
    """Return what the policies of `rules` would have done in `period`.

    `at`: now. `every_step`: evaluate at every interval.
    """
    stretches, overrides = records.load_stretches(), tuple(records.load_overrides())
    back = ReplaySetup(
        rules=rules,
        period=period,
        origin=_find_origin(stretches, period),
        wishes=overrides,
        gaps=find_gaps(
            (one for of in stretches.values() for one in of), max(COVERAGE_PAUSE, rules.rails.gap_polls * rules.interval)
        ),
        lags=facts.lags,
        handling=facts.handling,
        billing=facts.billing,
        every_step=every_step,
    )
    lookouts = {scope: ScopeListings(stretches=tuple(of)) for scope, of in stretches.items()}
    scenes, replays = dict[ResourceKey, ReplayedResource](), dict[ResourceKey, ReplayResult]()
    hourly: list[datetime] = []
    keys = list(records.load_resources(period))
    for number, key in enumerate(keys):
        report_progress("replaying machines", number, len(keys))
        past = records.load_history(key, period, rules.interval)
        hourly += [past.hourly_until] if past.hourly_until and past.hourly_until > period.start else []
        scene = ReplayedResource(
            past=past, lookout=lookouts.get(past.scope, ScopeListings()), backdrop=back, wishes=back.select_overrides(past)
        )
        replays[key] = ResourceReplay(scene=scene).run()
        scenes[key] = replace(scene, past=replace(past, samples={}))
    lets = apply_limits(
        [one for of in replays.values() for one in of.wanted],
        {key: of.turned for key, of in replays.items() if of.turned},
        lambda when: _list_fleet(scenes.values(), when),
        lambda key, when: scenes[key].lookout.count_listings(scenes[key].past.first_seen_at, when),
        back,
    )
    return Simulation(
        period=period,
        at=at,
        interval=rules.interval,
        resources=len(scenes),
        policies=_summarize_policies(back, lets, replays, scenes, at),
        hourly_until=max(hourly, default=None),
        not_replayed=(*_list_not_replayed(rules), *_list_ungrouped(rules, scenes.values())),
    )


def _find_origin(stretches: Mapping[ScopeKey, Sequence[PollStretch]], period: Period) -> datetime:
    """Return the first complete listing; guard runs are assumed to follow it at every interval."""
    every = [one for of in stretches.values() for one in of if one.outcome == COMPLETE]
    within = [one.start for one in every if one.end >= period.start and one.start < period.end]
    if not within:
        extent = "no account was ever listed completely"
        if every:
            extent = f"it holds {min(one.start for one in every):%Y-%m-%d} to {max(one.end for one in every):%Y-%m-%d}"
        raise InputError("the ledger holds nothing of this period", field="--since", hint=f"{extent}; state another period")
    return min(within)


def _list_fleet(scenes: Iterable[ReplayedResource], when: datetime) -> list[LiveResource]:
    return [one for scene in scenes if (one := rebuild_listing(scene.past, scene.lookout, when)) is not None]


def _summarize_policies(
    back: ReplaySetup,
    lets: Sequence[LimitedAct],
    replays: Mapping[ResourceKey, ReplayResult],
    scenes: Mapping[ResourceKey, ReplayedResource],
    at: datetime,
) -> tuple[PolicySimulation, ...]:
    stops, holds = defaultdict[str, list[SimulatedStop]](list), defaultdict[str, list[SimulatedHold]](list)
    for one in lets:
        name, scene = one.wanted.proposal.verdict.policy.name, scenes[one.wanted.case.live.observation.key]
        if one.at is None:
            holds[name].append(_to_never_sent(one))
        else:
            rests = one.wanted.proposal.step.do != TERMINATE
            rest = scene.list_rest_spans(one.wanted.case.live.observation, one.at) if rests else ()
            stops[name].append(build_simulated_stop(one, scene.past.spans, rest))
    for of in replays.values():
        for back_ in of.held:
            holds[back_.proposal.verdict.policy.name].append(_to_held(back_))
    return tuple(
        PolicySimulation(
            name=policy.name,
            level=find_armed_level(policy, back.wishes, at).level,
            stops=tuple(stops[policy.name]),
            held=tuple(sorted(holds[policy.name], key=lambda one: (one.since, one.life.key))),
            notices=sum(of.notices.get(policy.name, 0) for of in replays.values()),
            questions=sum(of.questions.get(policy.name, 0) for of in replays.values()),
            blind=build_blind_time(_sum_blind_time(policy.name, replays)),
        )
        for policy in back.rules.policies
    )


def _to_never_sent(one: LimitedAct) -> SimulatedHold:
    """Convert an act that the limits never let run."""
    return _to_held(
        HeldAct(
            case=one.wanted.case,
            proposal=one.wanted.proposal,
            since=one.wanted.at,
            until=one.wanted.until,
            reasons=one.held,
        ),
        rails=True,
    )


def _to_held(one: HeldAct, *, rails: bool = False) -> SimulatedHold:
    verdict, observation = one.proposal.verdict, one.case.live.observation
    return SimulatedHold(
        life=verdict.life,
        name=observation.name,
        owner=one.case.owner,
        policy=verdict.policy.name,
        act=one.proposal.step.do,
        since=one.since,
        until=one.until,
        reasons=one.reasons,
        rails=rails,
    )


def _sum_blind_time(policy: str, replays: Mapping[ResourceKey, ReplayResult]) -> dict[str, timedelta]:
    lengths: dict[str, timedelta] = defaultdict(timedelta)
    for of in replays.values():
        for (name, reason), length in of.blind.items():
            if name == policy:
                lengths[reason] += length
    return lengths


def _list_not_replayed(rules: GuardConfig) -> Iterator[str]:
    """Yield what the history lacks and these settings use."""
    hard = [budget.name for budget in rules.budgets if budget.hard]
    if hard:
        yield f"what hard budgets would have stopped ({', '.join(hard)}): past budget statuses are not recorded"
    for policy in rules.policies:
        lacking = sorted(policy.when.names & (BUDGET_FACTS | {RUNWAY}))
        if lacking:
            yield f"{policy.name} asks for {', '.join(lacking)}, which is not recorded: unknown, so never true"
        if policy.when.names & GROWING_FACTS or policy.schedule:
            yield (
                f"{policy.name} uses facts that change with time alone: they are evaluated every {INTERVALS_BETWEEN_LOOKS} "
                "intervals, with bisection between them"
            )
        if any(step.do == HOOK for step in policy.then):
            yield f"the hooks of {policy.name}: each is assumed to succeed at once"
    yield "data loss and controllers: every act that a provider offers is assumed possible"


def _list_ungrouped(rules: GuardConfig, scenes: Iterable[ReplayedResource]) -> Iterator[str]:
    """Yield a note on groups: each resource is replayed by itself, so more is stopped than in reality."""
    members = defaultdict[GroupKey, set[ResourceKey]](set)
    for scene in scenes:
        for one in scene.past.said:
            group = find_group(one.seen, rules.group_from) if one.seen is not None else None
            if group is not None:
                members[group].add(scene.past.key)
    groups = sum(len(of) > 1 for of in members.values())
    if groups and not all(policy.alone for policy in rules.policies):
        many = "1 group" if groups == 1 else f"{groups} groups"
        yield f"{many} of machines: each machine is judged alone, so one that waited for its group may be among the stops"


DEFAULT_SINCE = "30d"
SINCE_MIN = timedelta(minutes=1)


def answer_simulate(
    *, since: str | None, start: str | None, end: str | None, policies: Sequence[str], config: str | None
) -> CommandAnswer:
    """Answer `costguard simulate`: the machines that would have been stopped. No cloud is asked, nothing is written."""
    settings, now = read_settings(config), _get_now()
    rules = build_guard_config(settings)
    rules = replace(rules, policies=_choose_policies(rules.policies, policies))
    period = _choose_period(since, start, end, now, settings.defaults.timezone)
    with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
        simulation = simulate_policies(HistoryReader(ask), rules, period, now, collect_facts())
    return CommandAnswer(document=build_simulation_document(simulation), warnings=list_simulation_warnings(simulation))


def _choose_policies(policies: Sequence[Policy], names: Sequence[str]) -> tuple[Policy, ...]:
    """Return the policies of `names`, each by its exact name; all if none is named."""
    require(bool(policies), "policy", "there is none in the settings", "write a [[policy]]; config/costguard.toml shows one")
    policy_names = [policy.name for policy in policies]
    for name in names:
        if name not in policy_names:
            near = find_nearest_names(name, policy_names)
            raise UnknownNameError("policy", name, field="--policy", nearest=near, hint=f"or one of: {', '.join(policy_names)}")
    return tuple(policy for policy in policies if not names or policy.name in names)


def _choose_period(since: str | None, start: str | None, end: str | None, now: datetime, zone: tzinfo) -> Period:
    if since is not None and (start is not None or end is not None):
        raise InputError("cannot be given together with --from", field="--since", hint="write --since, or --from and --to")
    until = _parse_moment(end, "--to", zone) if end is not None else now
    begin = (
        until - parse_duration(since or DEFAULT_SINCE, "--since", least=SINCE_MIN)
        if start is None
        else _parse_moment(start, "--from", zone)
    )
    if begin >= now:
        raise InputError("is in the future: nothing is recorded yet", field="--from", hint="history ends now")
    until = min(until, now)
    require(begin < until, "--to", "is before the start", "state an earlier --from, or a later --to")
    return Period(start=begin, end=until)


def _parse_moment(text: str, field: str, zone: tzinfo) -> datetime:
    """Parse an instant: a day begins in the zone of the settings; a time without a zone is in that zone."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(
            f"is not a day or a time: '{text[:40]}'", field=field, hint="write 2026-10-01, or 2026-10-01T18:00"
        ) from None
    try:
        return at.replace(tzinfo=zone).astimezone(UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        raise InputError("is out of range", field=field, hint="write a day of this century") from None


def collect_facts() -> SimulationFacts:
    """Collect the facts of the installed providers."""
    providers = plugins.load_providers().found
    manifests = {name: one.manifest for name, one in providers.items()}
    return SimulationFacts(
        lags=read_measurement_lags(),
        handling={
            name: Handling(stops="stop" in one.abilities, terminates="terminate" in one.abilities)
            for name, one in manifests.items()
        },
        billing=ShippedFacts().get_billing_rules(),
    )


def _get_now() -> datetime:
    return datetime.now(UTC)
