"""The guard on fleets of mixed use, its rails one by one, and the rules of peers: `python -m bench.guard_fleets [--days 3]`.

Three fleets of `bench.fleet_traces`, played with the product's evaluation, plan, limits and last probe: a run every five
minutes, every minute while a limit holds an act. Notifications arrive at once, and nobody answers. A machine that was stopped
runs again when somebody needs it, or ten minutes after a wrong stop.

- wrong: stops of a machine that somebody needed at that step, a week. Precision: the share of the other stops.
- recall: the share of times of 75 minutes and more in which nobody needed a machine, in which it was stopped.
- saved: the share of what machines cost while nobody needed them.
- questions: messages a week that ask whether to stop.
- messages: all that one channel gets in four days of one fleet (`list_alerts`, `dispatch_alerts`), grouped by owner.
- hangs: those of which somebody was told within 15 minutes, and the share of their cost that was saved; machine-weeks of needed
  work with a state of `hung`.

    python -m bench.guard_fleets --broken frozen      # 60 machines whose source of signals breaks: who is stopped wrongly
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from unittest.mock import patch

from bench.fleet_traces import START, STEP, STEPS_A_DAY, FleetMachine, break_source, draw_fleet
from costguard.guard.action_intents import DONE, Intent
from costguard.guard.activity import probe_activity
from costguard.guard.alerts.alert import AlertRoute, AlertState, NoticeDelivery
from costguard.guard.alerts.dispatch import dispatch_alerts
from costguard.guard.alerts.rules import list_alerts
from costguard.guard.context import GuardConfig, GuardSnapshot, ResourceContext
from costguard.guard.escalation import mark_step_done
from costguard.guard.evaluation import GuardEvaluation, evaluate_snapshot
from costguard.guard.overrides import ARM, Override, join_arming
from costguard.guard.policy import ASK, DESTRUCTIVE, NOTIFY, Proposal, Rails
from costguard.guard.policy_evaluation import NO_COST_FACTS
from costguard.guard.run_facts import FirstSighting
from costguard.guard.signals import HUNG, Activity
from costguard.metering.meter import COMPUTE, Meter, PriceRange
from costguard.metering.observation import Handling, Observation, identify_incarnation
from costguard.metering.span import Span
from costguard.metering.spending import LiveResource
from costguard.settings import check_settings
from costguard.settings.first_file import POLICY_DRAFTS, FirstChoices, extend_settings
from costguard.values import sample as signals
from costguard.values.instant import to_micros
from costguard.values.money import Rate, make_zero_interval
from costguard.values.resource import RUNNING, STOPPED, ResourceKey, ScopeKey
from costguard.values.sample import Sample

CLOUDS = ("aws", "vast", "runpod")
LOOKBACK = 6 * 12
"""Steps of samples that a run reads: enough for every window (the product reads 48 h, and judges alike)."""
SEEDS = (1, 2, 3)
BROKEN_AT = STEPS_A_DAY + 16 * 12
"""The step at which a source breaks: the second day at 16:00."""
CLOUD_SIGNALS: Mapping[str, tuple[str, ...]] = {
    "aws": (signals.CPU_UTIL,),
    "gcp": (signals.CPU_UTIL, signals.NETWORK, signals.DISK),
    "vast": (signals.GPU_UTIL, signals.CPU_UTIL),
    "runpod": (signals.GPU_UTIL, signals.CPU_UTIL),
}
"""What each cloud measures by itself (its adapter, 2026-11)."""
OFF = Rails.unlimited()
RAILS: Mapping[str, Rails] = {
    "as shipped": Rails(),
    "no rails, no breaker": OFF,
    "no limit of a run and of 10 min": replace(Rails(), acts_per_run=10**9, acts_per_10m=10**9),
    "no limit of a day": replace(Rails(), acts_least_day=10**9),
    "no limit of losses": replace(Rails(), irreversible_per_h=10**9),
    "no breaker": replace(Rails(), breaker_least=10**9),
    "breaker alone": replace(OFF, breaker_least=Rails().breaker_least),
}


ROUTE = AlertRoute(name="all", channels=("slack",))
TOLD_WITHIN = timedelta(minutes=15)
RESTART_STEPS, EPISODE_STEPS = 2, 15
"""A wrong stop lasts ten minutes; a time without need counts for the recall from 75 minutes on."""


@dataclass(slots=True, kw_only=True)
class Score:
    """What came of a fleet. Money in dollars; `sent`: (step, number of the machine, whether somebody needed it)."""

    idle: float = 0
    saved: float = 0
    episodes: int = 0
    caught: int = 0
    questions: int = 0
    messages: int = 0
    hangs: int = 0
    hangs_told: int = 0
    hang_cost: float = 0
    hang_saved: float = 0
    false_hangs: int = 0
    sent: list[tuple[int, int, bool]] = field(default_factory=list)

    def __add__(self, other: Score) -> Score:
        """Return both together."""
        return Score(
            idle=self.idle + other.idle,
            saved=self.saved + other.saved,
            episodes=self.episodes + other.episodes,
            caught=self.caught + other.caught,
            questions=self.questions + other.questions,
            messages=self.messages + other.messages,
            hangs=self.hangs + other.hangs,
            hangs_told=self.hangs_told + other.hangs_told,
            hang_cost=self.hang_cost + other.hang_cost,
            hang_saved=self.hang_saved + other.hang_saved,
            false_hangs=self.false_hangs + other.false_hangs,
            sent=[*self.sent, *other.sent],
        )

    def format_messages(self, fleets: int, days: int) -> str:
        """Return the line about messages and hangs of a row."""
        saved = f"{self.hang_saved / self.hang_cost:.0%}" if self.hang_cost else "-"
        return (
            f"    {self.messages / fleets / days * 4:.0f} messages in four days; hangs told within 15 min {self.hangs_told} of "
            f"{self.hangs}, saved {saved}; false hangs {self.false_hangs}\n"
        )

    def format_row(self, name: str, weeks: float) -> str:
        """Return a row of the table."""
        wrong = sum(needed for _, _, needed in self.sent)
        precision = f"{1 - wrong / len(self.sent):.0%}" if self.sent else "-"
        recall, saved = f"{self.caught / self.episodes:.0%}", f"{self.saved / self.idle:.0%}"
        return f"{name:34} {wrong / weeks:7.1f} {precision:>9} {recall:>7} {saved:>7} {self.questions / weeks:10.0f}\n"


HEADER = f"{'':34} {'wrong/w':>7} {'precision':>9} {'recall':>7} {'saved':>7} {'questions':>10}\n"


class FleetPlay:
    """One fleet under a rule. `stopped_at`: the step of the last stop of each machine that rests; None: it runs."""

    def __init__(self, fleet: Sequence[FleetMachine]) -> None:
        self.fleet = fleet
        self.steps = len(fleet[0].uses)
        self.stopped_at: list[int | None] = [None] * len(fleet)
        self.started_at = [0] * len(fleet)
        self.score = Score()
        self._caught = [False] * len(fleet)
        self._idle_since: list[int | None] = [None] * len(fleet)

    def play(self, decide: Callable[[int], Iterator[int]]) -> Score:
        """Play all steps. `decide`: yields the numbers of the machines that are stopped in a step."""
        for step in range(self.steps):
            self._advance(step)
            for number in decide(step):
                needed = self.fleet[number].uses[step][1]
                self.stopped_at[number] = step
                self._caught[number] = self._caught[number] or not needed
                self.score.sent.append((step, number, needed))
        for number in range(len(self.fleet)):
            self._end_idle_time(number, self.steps)
        return self.score

    def _advance(self, step: int) -> None:
        for number, machine in enumerate(self.fleet):
            needed, stopped_at = machine.uses[step][1], self.stopped_at[number]
            if stopped_at is not None and needed and step - stopped_at >= RESTART_STEPS:
                self.stopped_at[number], self.started_at[number] = None, step
            if needed:
                self._end_idle_time(number, step)
            else:
                cost = float(machine.rate) * STEP / timedelta(hours=1)
                saved = cost if self.stopped_at[number] is not None else 0
                self.score.idle += cost
                self.score.saved += saved
                if machine.uses[step][0] == "hang":
                    self.score.hang_cost += cost
                    self.score.hang_saved += saved
                if self._idle_since[number] is None:
                    self._idle_since[number], self._caught[number] = step, self.stopped_at[number] is not None

    def _end_idle_time(self, number: int, step: int) -> None:
        since = self._idle_since[number]
        if since is not None and step - since >= EPISODE_STEPS:
            self.score.episodes += 1
            self.score.caught += self._caught[number]
        self._idle_since[number] = None


def play_peer(fleet: Sequence[FleetMachine], rests: Callable[[FleetMachine, int], bool], length: int) -> Score:
    """Play the rule of a peer: stop what `rests` in each of `length` steps."""
    play = FleetPlay(fleet)
    quiet = [0] * len(fleet)

    def decide(step: int) -> Iterator[int]:
        for number, machine in enumerate(fleet):
            runs = play.stopped_at[number] is None
            quiet[number] = quiet[number] + 1 if runs and rests(machine, step) else 0
            if quiet[number] >= length:
                yield number

    return play.play(decide)


QUEUED = frozenset(("train", "starved", "evaluate", "hang", "serve"))
"""What SkyPilot's queue knows as a job; a server and a hung job stay in it."""


def rests_for_skypilot(machine: FleetMachine, step: int) -> bool:
    """Whether no job of its queue runs and nobody is connected (`wait_for: jobs_and_ssh`)."""
    waits = machine.uses[step][0] == "waits" and machine.kind.endswith("server")
    connected = signals.CONNECTIONS in machine.values and machine.values[signals.CONNECTIONS][step] > 0
    return machine.uses[step][0] not in QUEUED and not waits and not connected


def rests_by_duty(machine: FleetMachine, step: int, below: float) -> bool:
    """Whether its GPU is used less than `below` percent."""
    return machine.values[signals.GPU_UTIL][step] < below


PEERS: Mapping[str, tuple[Callable[[FleetMachine, int], bool], int]] = {
    "SkyPilot autostop, 60 min": (rests_for_skypilot, 12),
    "dstack utilization 10 %, 1 h": (partial(rests_by_duty, below=10), 12),
    "nvidia-smi script, 5 %, 30 min": (partial(rests_by_duty, below=5), 6),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is seen of a fleet: by an agent on each machine, or by the clouds alone. `cloud`: all are there; "": on three."""

    agents: bool = True
    cloud: str = ""
    policies: str = ""

    def get_cloud(self, number: int) -> str:
        """Return the cloud of a machine."""
        return self.cloud or CLOUDS[number % len(CLOUDS)]


class GuardedFleet:
    """A fleet with costguard, its policies armed as their text says."""

    def __init__(self, fleet: Sequence[FleetMachine], rails: Rails, sight: Sight, memory: dict[object, Activity]) -> None:
        self.play, self.fleet, self._sight, self._memory = FleetPlay(fleet), fleet, sight, memory
        policies = check_settings(sight.policies, "fleet").policies
        self.rules = GuardConfig(admin_route=True, policies=policies, rails=rails, interval=STEP, claims=CLOUDS)
        self._arming = tuple(
            Override(
                id=one.name, what=ARM, who="bench", why="", at=START - timedelta(days=1), subject=one.name,
                value=join_arming(one.arm, one.digest),
            )
            for one in policies
        )  # fmt: skip
        self.keys = [ResourceKey(sight.get_cloud(n), "main", "all", machine.name) for n, machine in enumerate(fleet)]
        self.number_of = {key: number for number, key in enumerate(self.keys)}
        self._ats = [to_micros(START + k * STEP) for k in range(self.play.steps)]
        self._intents = list[Intent]()
        self._deliveries = dict[tuple[str, str], tuple[NoticeDelivery, ...]]()
        self._last: GuardEvaluation | None = None
        self._alert_states: Sequence[AlertState] = ()
        self._hung_since = dict[int, int]()
        self._false_hangs = set[int]()

    def run(self) -> Score:
        """Play it."""
        return self.play.play(self._decide)

    def _decide(self, step: int) -> Iterator[int]:
        for minute in range(5):
            now = START + step * STEP + timedelta(minutes=minute)
            evaluation = self._evaluate(step, now)
            for proposal in evaluation.proposals:
                goes = proposal.step.do in DESTRUCTIVE and proposal.is_ready(now)
                if goes and (number := self._send(proposal, step, now)) is not None:
                    yield number
            due = [one for one in evaluation.proposals if one.step.do in DESTRUCTIVE and one.due_at <= now]
            limits = [one.held_by[0][1] for one in due if [reason for reason, _ in one.held_by] == ["rate"]]
            if all("in a day" in limit or "an hour" in limit for limit in limits):
                return

    def _evaluate(self, step: int, now: datetime) -> GuardEvaluation:
        live = tuple(self._list(number, now) for number in range(len(self.fleet)))
        day_ago, last = now - timedelta(days=1), self._last
        snapshot = GuardSnapshot(
            now=now, live=live, standings=(), samples=_LazySamples(self, step),
            known=dict.fromkeys(self.keys, FirstSighting(at=START - timedelta(days=1), polls=999)),
            protections={}, wishes=self._arming, climbs=last.climbs if last else (),
            intents=tuple(one for one in self._intents if one.moved_at > now - timedelta(hours=3)),
            sent=tuple(one for one in self._intents if one.moved_at > day_ago),
            hooks=(), reactions=(), lags={}, balances=(), members=(), agents=(), asked=NO_COST_FACTS, gap_ended_at=None,
            apart=None, gap_began_at=None, breaker=last.breaker if last else None, held=(), deliveries=self._deliveries,
            start_histories={}, started=(), raised=frozenset(), last_run_at=last.at if last else None, ready_since={},
            restarts=(),
        )  # fmt: skip
        with remembered_activities(self._memory):
            evaluation = self._mark_notices(evaluate_snapshot(self.rules, snapshot), now)
        self._last = evaluation
        self._count_messages(evaluation, snapshot)
        self._count_hangs(evaluation, step)
        return evaluation

    def _count_messages(self, evaluation: GuardEvaluation, snapshot: GuardSnapshot) -> None:
        alerts = list_alerts(evaluation, self.rules, snapshot, (), {})
        states = self._alert_states
        messages, self._alert_states = dispatch_alerts(alerts, states, now=snapshot.now, routes=(ROUTE,))
        self.play.score.messages += len(messages)
        for alert in (alert for message in messages for alert in message.notices):
            if "hung" not in alert.topic or alert.subject.count("/") != len(ResourceKey._fields) - 1:
                continue
            number = self.number_of.get(ResourceKey(*alert.subject.split("/")), -1)
            since = self._hung_since.get(number, -1)
            if since >= 0 and snapshot.now - START - since * STEP <= TOLD_WITHIN:
                self.play.score.hangs_told += 1
                self._hung_since[number] = -1

    def _count_hangs(self, evaluation: GuardEvaluation, step: int) -> None:
        for number, machine in enumerate(self.fleet):
            use, needed = machine.uses[step]
            if use != "hang":
                self._hung_since.pop(number, None)
            elif number not in self._hung_since and self.play.stopped_at[number] is None:
                self._hung_since[number] = step
                self.play.score.hangs += 1
            is_false = needed and evaluation.works[self.keys[number]].state == HUNG
            self.play.score.false_hangs += is_false and number not in self._false_hangs
            (self._false_hangs.add if is_false else self._false_hangs.discard)(number)

    def _list(self, number: int, now: datetime) -> LiveResource:
        machine, key, stopped_at = self.fleet[number], self.keys[number], self.play.stopped_at[number]
        started = START + self.play.started_at[number] * STEP
        loses = ("the container disk",) if key.provider == "runpod" else ()
        observation = Observation(
            key=key,
            state=RUNNING if stopped_at is None else STOPPED,
            name=machine.name,
            gpu="H100",
            gpu_count=machine.gpus,
            owner=f"owner-{number % 9}",
            created_at=START - timedelta(days=1),
            started_at=started,
            stopped_at=None if stopped_at is None else START + stopped_at * STEP,
            handling=Handling(stops=True, terminates=True, starts=stopped_at is not None, stop_loses=loses),
        )
        nano = Rate.parse(machine.rate).nano_per_hour
        meter = Meter(charge=COMPUTE, price=PriceRange(low=nano, expected=nano, high=nano))
        spans = (Span(key=key, attribution=observation.attribution, meter=meter, start=started, anchor=started),)
        return LiveResource(
            scope=ScopeKey(key.provider, "main", "all"), observation=observation, first_seen_at=START - timedelta(days=1),
            seen_at=now, open=spans if stopped_at is None else (), spent=make_zero_interval(),
        )  # fmt: skip

    def get_columns(self, number: int, step: int, reach: int = LOOKBACK) -> Mapping[str, tuple[Sequence[int], Sequence[float]]]:
        """Return the samples of a machine that runs, up to `step`."""
        if self.play.stopped_at[number] is not None:
            return {}
        first, values = max(self.play.started_at[number], step - reach + 1), self.fleet[number].values
        ats = self._ats[first : step + 1]
        names = values if self._sight.agents else CLOUD_SIGNALS[self.keys[number].provider]
        return {name: (ats, values[name][first : step + 1]) for name in names}

    def _mark_notices(self, evaluation: GuardEvaluation, now: datetime) -> GuardEvaluation:
        """Deliver what is due, as the service does with each run."""
        climbs = {(climb.policy, climb.life): climb for climb in evaluation.climbs}
        policies = {policy.name: policy for policy in self.rules.policies}
        for one in evaluation.proposals:
            place = one.verdict.policy.name, one.verdict.life
            if one.step.do not in (NOTIFY, ASK) or not one.is_ready(now) or place not in climbs:
                continue
            self.play.score.questions += one.step.do == ASK and one.number not in climbs[place].done
            climbs[place] = mark_step_done(climbs[place], policies[place[0]], one.number, now)
        for (name, life), climb in climbs.items():
            if climb.done:
                topic = f"policy:{name}", "/".join(life.key)
                sent = self._deliveries.get(topic, ())
                since = max(climb.started_at, climb.announced_from or climb.started_at)
                if not any(one.notice_at >= since for one in sent) and since <= now:
                    delivery = NoticeDelivery(channel="slack", notice_at=now, delivered_at=now)
                    self._deliveries[topic] = (*sent[-2:], delivery)
        return replace(evaluation, climbs=tuple(climbs.values()))

    def _send(self, proposal: Proposal, step: int, now: datetime) -> int | None:
        """Look once more, and stop the machine; None: it works."""
        verdict = proposal.verdict
        number = self.number_of[verdict.life.key]
        live = self._list(number, now)
        samples = [
            Sample(key=verdict.life.key, signal=name, at=START + (step - len(ats) + 1 + k) * STEP, value=value)
            for name, (ats, values) in self.get_columns(number, step, 4).items()
            for k, value in enumerate(values)
        ]
        if not samples or probe_activity(samples, now, STEP, live.observation, hung=verdict.work.state == HUNG):
            return None
        intent = Intent(
            id=f"{len(self._intents)}", life=identify_incarnation(live.observation), act=proposal.step.do,
            policy=verdict.policy.name, rule=verdict.policy.rule, why="", evidence="", state=DONE, created_at=now, moved_at=now,
            irreversible=bool(live.observation.handling.stop_loses), sends=1, sent_at=now,
        )  # fmt: skip
        self._intents.append(intent)
        return number


class _LazySamples(Mapping[ResourceKey, Mapping[str, tuple[Sequence[int], Sequence[float]]]]):
    """The samples of a fleet at a step, cut out when they are asked for."""

    def __init__(self, guarded: GuardedFleet, step: int) -> None:
        self._guarded, self._step = guarded, step
        self._columns = dict[ResourceKey, Mapping[str, tuple[Sequence[int], Sequence[float]]]]()

    def __getitem__(self, key: ResourceKey) -> Mapping[str, tuple[Sequence[int], Sequence[float]]]:
        if key not in self._columns:
            self._columns[key] = self._guarded.get_columns(self._guarded.number_of[key], self._step)
        return self._columns[key]

    def __iter__(self) -> Iterator[ResourceKey]:
        return iter(self._guarded.keys)

    def __len__(self) -> int:
        return len(self._guarded.fleet)


_classify = ResourceContext._classify  # noqa: SLF001 - remembered across the rows of the table, which see the same samples


@contextmanager
def remembered_activities(memory: dict[object, Activity]) -> Iterator[None]:
    """While it is open, evaluations take an activity from `memory` if the same samples were judged before."""

    def classify(self: ResourceContext, window: timedelta, needs: tuple[str, ...], warmup: timedelta) -> Activity:
        at = self.sight.now - (self.sight.now - START) % STEP
        place = (self.key, self.live.observation.started_at, at, window, needs, warmup)
        if place not in memory:
            memory[place] = _classify(self, window, needs, warmup)
        return memory[place]

    with patch.object(ResourceContext, "_classify", classify):
        yield


def write_policies(*, lossy: bool = True) -> str:
    """Return what `init --guard` writes, armed. `lossy`: a stop may lose the container disk, as a person allowed."""
    providers = [provider for draft in POLICY_DRAFTS.values() for provider in draft.providers]
    text = extend_settings("", {}, FirstChoices(providers=providers, to="console", agents=True))
    text = text.partition("[providers.")[0]
    return text.replace('arm = "stop"', 'arm = "stop"\nallow_irreversible = true') if lossy else text


def main(arguments: Sequence[str]) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard_fleets", description=__doc__)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--broken", choices=("frozen", "zeroed", "swapped", "rescaled", "all"))
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    options = parser.parse_args(arguments)
    gc.set_threshold(10**6)
    if options.broken:
        return show_broken(("frozen", "zeroed", "swapped", "rescaled") if options.broken == "all" else (options.broken,))
    fleets = [draw_fleet(seed, options.days) for seed in options.seeds]
    weeks = len(fleets) * options.days / 7
    sys.stdout.write(f"{len(fleets)} fleets of {len(fleets[0])} machines, {options.days} days\n{HEADER}")
    rows: dict[str, Callable[[Sequence[FleetMachine], dict[object, Activity]], Score]] = {}
    for name, rails in RAILS.items():
        rows[f"agents, {name}"] = partial(play_guarded, rails=rails, sight=Sight(policies=write_policies()))
    for cloud in ("aws", "gcp", "vast", "runpod"):
        rows[f"no agent, {cloud}"] = partial(
            play_guarded, rails=Rails(), sight=Sight(agents=False, cloud=cloud, policies=write_policies())
        )
    for name, (rests, length) in PEERS.items():
        rows[name] = partial(_play_peer, rests=rests, length=length)
    memories: dict[str, list[dict[object, Activity]]] = {}
    for name, play in rows.items():
        if options.rows in name:
            known_activities = memories.setdefault(name if name.startswith("no agent") else "agents", [{} for _ in fleets])
            total = Score()
            for fleet, memory in zip(fleets, known_activities, strict=True):
                total += play(fleet, memory)
            sys.stdout.write(total.format_row(name, weeks))
            if total.messages:
                sys.stdout.write(total.format_messages(len(fleets), options.days))
            sys.stdout.flush()
    return 0


def play_guarded(fleet: Sequence[FleetMachine], memory: dict[object, Activity], *, rails: Rails, sight: Sight) -> Score:
    """Play a fleet with costguard."""
    return GuardedFleet(fleet, rails, sight, memory).run()


def _play_peer(
    fleet: Sequence[FleetMachine], memory: dict[object, Activity], *, rests: Callable[[FleetMachine, int], bool], length: int
) -> Score:
    del memory
    return play_peer(fleet, rests, length)


def show_broken(ways: Sequence[str]) -> int:
    """Print, for 60 machines whose source of signals breaks, how many that somebody needed were stopped within a day."""
    for how in ways:
        for name in ("as shipped", "no rails, no breaker"):
            fleet = [*draw_fleet(7), *draw_fleet(8)[:18]]
            fleet = [replace(one, name=f"{number}-{one.name}") for number, one in enumerate(fleet)]
            broken = break_source(fleet, how, BROKEN_AT)
            score = play_guarded(broken, {}, rails=RAILS[name], sight=Sight(policies=write_policies()))
            wrong = {number for step, number, needed in score.sent if needed and step >= BROKEN_AT}
            before = {number for step, number, needed in score.sent if needed and step < BROKEN_AT}
            sys.stdout.write(f"{how:9} {name:22} {len(wrong):3} of {len(fleet)} stopped wrongly after ({len(before)} before)\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
