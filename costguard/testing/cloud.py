"""A cloud with a clock of its own: machines, what they measure, acts that take their time or fail, listings that lie.

    clock = FakeClock(datetime(2026, 11, 6, 16, tzinfo=UTC))
    cloud = SimulatedCloud("aws", clock)
    box = cloud.add("box", rate="32.77", gpu="A100-80GB-SXM", gpus=8, stores=(Store(gb=500, running=80_000_000),))
    cloud.measures("box", busy(gpus=8)); cloud.measures("box", quiet(gpus=8), at=clock.now() + timedelta(hours=2))
    box.answers.append((clock.now(), DEAF, 1))          # the first stop is answered with 200, and nothing is done
    clock.advance(timedelta(hours=3))
    cloud.stop(box.key)                                 # Reception(said="accepted")
    cloud.acts                                          # what an independent judge reads: append-only
    cloud.spent(start, clock.now())                     # the truth, a Fraction of nano-dollars

`EndingCloud` has no stop (as Lambda), `PrepaidCloud` is paid in advance (as RunPod and Vast).

What may be wrong with a listing, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

from costguard.errors import InputError, UnreachableError
from costguard.guard.policy import START, STOP, TERMINATE
from costguard.metering.billing import BillingRule, TimeRule
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Handling, Observation, Price
from costguard.system.clock import Clock
from costguard.testing.machine import (
    COMPUTE,
    DEAF,
    DISKS,
    LOST,
    OBEYS,
    REFUSES,
    SILENT,
    UNCLEAR,
    WAITS,
    SampleRule,
    SimulatedDisk,
    SimulatedMachine,
    generate_samples,
)
from costguard.values.calendar import Period
from costguard.values.money import Money, PrepaidBalance, Rate
from costguard.values.provider import ACCEPTED, ALREADY, MISSING, REFUSED, ActionResponse
from costguard.values.provider import UNCLEAR as NO_ANSWER
from costguard.values.resource import ENDED, INSTANCE, RUNNING, STOPPED, ResourceKey, ScopeKey
from costguard.values.sample import Sample, UtilizationSamples

ENDED_SHOWN_FOR = timedelta(hours=1)
"""For so long a listing shows what is gone, as EC2's does."""
MINUTE = timedelta(minutes=1)
REGION = "east"


class ReceivedAction(NamedTuple):
    """One request as the cloud received it. `started_at`: of the run that it hit; `done`: whether it was really done."""

    at: datetime
    name: str
    key: ResourceKey
    act: str
    started_at: datetime | None
    said: str
    done: bool


class TerminateOnlyCloud:
    """One account of a simulated provider that can only end machines. `delay`: how long acts take, where a cloud says so.

    `pass_time` is called with how long a slow look takes: whoever plays lets that much pass.

    Keeps InstanceSource, Inspector, Terminator and UtilizationSource.
    """

    def __init__(
        self, provider: str, clock: Clock, *, account: str = "acme", delay: Callable[[], timedelta] | None = None
    ) -> None:
        self._provider, self._clock, self._delay = provider, clock, delay
        self.scope = ScopeKey(provider, account, "all")
        self.machines: dict[str, SimulatedMachine] = {}
        self.faults: list[ListingFault] = []
        self.pass_time: Callable[[timedelta], object] = lambda _: None
        self._acts: list[ReceivedAction] = []
        self._past: list[tuple[Observation, ...]] = []
        self._told: dict[ResourceKey, datetime] = {}

    def add(
        self,
        name: str,
        *,
        rate: str | None = None,
        gpu: str = "",
        gpus: float = 1,
        stores: tuple[SimulatedDisk, ...] = (),
        at: datetime | None = None,
        handling: Handling | None = None,
        labels: Mapping[str, str] | None = None,
        **seen_as: object,
    ) -> SimulatedMachine:
        """A machine that runs since `at` (now). `rate`: dollars an hour, None: unknown. `seen_as`: of its Observation."""
        if name in self.machines:
            raise InputError(f"there is a machine '{name}' already", field="cloud.add", hint="give it another name")
        start = at or self._clock.now()
        key = ResourceKey(self._provider, self.scope.account, str(seen_as.pop("region", REGION)), f"i-{name}")
        fields: dict[str, object] = {"key": key, "state": RUNNING, "name": name, "gpu": gpu, "gpu_count": gpus if gpu else 0}
        machine = SimulatedMachine(
            key=key,
            name=name,
            created_at=start,
            rate=Rate.parse(rate) if rate else None,
            stores=stores,
            seen_as=Observation(**{**fields, **seen_as}),  # type: ignore[arg-type] # whatever fields a story states
            handling=handling or Handling(stops=self.can_stop, terminates=True),
            gpus=gpus if gpu else 0,
            can_start=hasattr(self, "start_instance"),
        )
        machine.labels.append((start, dict(labels or {})))
        machine.run(start)
        self.machines[name] = machine
        return machine

    def measures(self, name: str, rule: SampleRule, *, at: datetime | None = None) -> None:
        """From `at` (now) on the machine measures by `rule`."""
        self.machines[name].rules.append((at or self._clock.now(), rule))
        self.machines[name].rules.sort(key=lambda one: one[0])

    @property
    def can_stop(self) -> bool:
        """Whether it has a stop that keeps the disks."""
        return hasattr(self, "stop")

    @property
    def acts(self) -> tuple[ReceivedAction, ...]:
        """Every request to act that ever arrived, in order."""
        return tuple(self._acts)

    @property
    def providers(self) -> Sequence[str]:
        """Its one provider."""
        return (self._provider,)

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Its one scope."""
        return (self.scope,)

    def poll(self, scope: ScopeKey) -> Poll:
        """A listing, spoilt by the faults at work, with the samples of this instant."""
        at = self._clock.now()
        items = tuple(item for one in self.machines.values() if (item := one.observation(at)) and not _is_gone(item, at))
        inventory = apply_listing_faults(items, self._at_work(at), self._past)
        self._past.append(items)
        down = any(one.what == DOWN for one in self._at_work(at))
        return Poll(scope=scope, at=at, inventory=inventory, samples=() if down else tuple(self._samples(items, at)))

    def look_up(self, key: ResourceKey) -> Observation | None:
        """The machine as it is; None where it is gone. UnreachableError while the provider is down."""
        at = self._clock.now()
        if any(one.what == DOWN for one in self._at_work(at)):
            raise UnreachableError("the provider answered 503", provider=self._provider)
        machine = self._machine(key)
        takes = machine.count_look(at) if machine else timedelta()
        if takes is None:
            raise UnreachableError("the provider answered 503", provider=self._provider)
        if takes:
            self.pass_time(takes)
        observation = machine.observation(at) if machine else None
        return None if observation is None or _is_gone(observation, at) else observation

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """A sample of each signal for each whole minute of `period`, of those that run and measure something.

        What was told once is not told again. UnreachableError while the provider is down.
        """
        if any(one.what == DOWN for one in self._at_work(self._clock.now())):
            raise UnreachableError("the provider answered 503", provider=self._provider)
        samples, blind = list[Sample](), list[tuple[ResourceKey, str]]()
        for one in observations:
            at = max(period.start, self._told.get(one.key, period.start)).replace(second=0, microsecond=0)
            while at < period.end:
                samples += self._samples((one,), at) if at >= period.start else ()
                at += MINUTE
            self._told[one.key] = at
            machine = self._machine(one.key)
            if machine is None or not machine.rule(period.end).values:
                blind.append((one.key, "nothing measures it"))
        return UtilizationSamples(samples=tuple(samples), blind=tuple(blind))

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """End the machine for good, as it answers."""
        return self._do(key, TERMINATE, ("stopping", ENDED))

    def spent(
        self, start: datetime, end: datetime, what: tuple[str, ...] = (COMPUTE, DISKS), names: Sequence[str] | None = None
    ) -> Fraction:
        """What all machines (or those named) truly cost from `start` to `end`, in nano-units."""
        chosen = self.machines if names is None else names
        return sum((self.machines[name].spent(start, end, what) for name in chosen), Fraction(0))

    def rule(self) -> BillingRule:
        """How it bills: computing by the second until it is down; disks as stated with them."""
        return BillingRule(
            provider=self._provider,
            source="the simulated cloud",
            observed_on="2026-11",
            lag_s=0,
            restarts="stated",
            compute=TimeRule(bills=("running", "stopping"), free=("stopped", "pending", "starting", "suspended")),
        )

    def _do(self, key: ResourceKey, act: str, path: tuple[str, str], lose: frozenset[str] = frozenset()) -> ActionResponse:
        at, machine = self._clock.now(), self._machine(key)
        power = machine.now(at) if machine else None
        if machine is None or power is None or power.state == ENDED:
            self._acts.append(ReceivedAction(at, key.id, key, act, None, MISSING, done=False))
            return ActionResponse(said=MISSING, why="there is no such instance")
        reception, is_done = _answer_action(machine, act, power.state, at, lose)
        if is_done and act == START:
            takes = machine.starts_in if self._delay is None else self._delay()
            machine.turn(at, "starting")
            machine.turn(at + takes, RUNNING, started_at=at + takes)
        elif is_done:
            through, state = path
            through = STOPPED if power.state == STOPPED else through  # what is down already does not run again to end
            machine.leave(at, through, state, machine.stops_in if self._delay is None else self._delay())
        self._acts.append(ReceivedAction(at, machine.name, key, act, power.started_at, reception.said, is_done))
        return reception

    def _machine(self, key: ResourceKey) -> SimulatedMachine | None:
        return next((one for one in self.machines.values() if one.key == key), None)

    def _at_work(self, at: datetime) -> list[ListingFault]:
        return [one for one in self.faults if one.start <= at < one.end]

    def _samples(self, items: Sequence[Observation], at: datetime) -> list[Sample]:
        samples = list[Sample]()
        for observation in items:
            machine = self._machine(observation.key)
            rule = machine.rule(at) if machine else SILENT
            samples += generate_samples(rule, observation.key, at, machine.families) if machine else ()
        return samples


class SimulatedCloud(TerminateOnlyCloud):
    """One account of a simulated provider that can stop a machine and keep its disks, and start it: keeps Stopper, Starter."""

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """Stop the machine, as it answers."""
        return self._do(key, STOP, ("stopping", STOPPED), lose)

    def start_instance(self, key: ResourceKey) -> ActionResponse:
        """Start the machine, as it answers."""
        return self._do(key, START, ("starting", RUNNING))

    def fetch_start_price(self, key: ResourceKey) -> Price:
        """What it costs an hour now. UnreachableError while the provider is down."""
        observation = self.look_up(key)
        return observation.prices[-1] if observation is not None else Price(None)


class PrepaidCloud(SimulatedCloud):
    """One that is paid in advance, `paid` at `since`: keeps BalanceSource. `unknown` says why it cannot be asked."""

    paid: Money = Money(nano=0)
    since: datetime
    unknown: str = ""

    def fetch_balance(self) -> PrepaidBalance:
        """What is left of what was paid, less what all machines truly cost since."""
        at = self._clock.now()
        left = self.paid.nano - round(self.spent(self.since, at))
        amount = None if self.unknown else replace(self.paid, nano=left)
        return PrepaidBalance(provider=self._provider, account=self.scope.account, at=at, amount=amount, why=self.unknown)


def _answer_action(
    machine: SimulatedMachine, act: str, state: str, at: datetime, lose: frozenset[str]
) -> tuple[ActionResponse, bool]:
    """What the machine's provider says to `act`, and whether it is done."""
    if act in machine.handling.protected:
        return ActionResponse(said=REFUSED, why=f"it is protected from {act}"), False
    lost = set(machine.handling.stop_loses) - lose
    if act == STOP and lost:
        return ActionResponse(said=REFUSED, why=f"it would lose {', '.join(sorted(lost))}"), False
    if act == STOP and state in ("stopping", STOPPED):
        return ActionResponse(said=ALREADY), False
    if act == START and state != STOPPED:
        return ActionResponse(said=ALREADY if state in ("starting", RUNNING) else REFUSED, why=f"it is {state}"), False
    how = machine.answer(at)
    machine.waits = act == START and how == WAITS
    answer = {OBEYS: ACCEPTED, DEAF: ACCEPTED, WAITS: ACCEPTED, LOST: NO_ANSWER, UNCLEAR: NO_ANSWER, REFUSES: REFUSED}[how]
    return ActionResponse(said=answer, why="" if answer == ACCEPTED else "as it was told to answer"), how in (OBEYS, LOST)


def _is_gone(observation: Observation, at: datetime) -> bool:
    return observation.state == ENDED and observation.stopped_at is not None and at - observation.stopped_at >= ENDED_SHOWN_FOR


__all__ = ["INSTANCE", "PrepaidCloud", "ReceivedAction", "SimulatedCloud", "TerminateOnlyCloud"]


DOWN, PARTIAL, EMPTY, STALE, HIDES = "down", "partial", "empty", "stale", "hides"
LISTING_FAULTS = {
    DOWN: "it cannot be asked at all",
    PARTIAL: "its second page is lost, and it says so",
    EMPTY: "it answers 200 with an empty list",
    STALE: "it answers from a cache, as it was some polls ago",
    HIDES: "it leaves out one machine, and does not say so",
}


class ListingFault(NamedTuple):
    """`what` (of LISTING_FAULTS) from `start` on and before `end`. `polls`: of a stale one; `name`: of one that hides."""

    start: datetime
    end: datetime
    what: str
    polls: int = 0
    name: str = ""


def apply_listing_faults(
    items: tuple[Observation, ...], faults: Sequence[ListingFault], past: Sequence[tuple[Observation, ...]]
) -> Inventory:
    """The answer of a cloud that holds `items`, with `faults` at work. `past`: what it truly held at earlier polls."""
    kinds = {one.what: one for one in faults}
    if DOWN in kinds:
        return Failed("the provider answered 503")
    if EMPTY in kinds:
        return Complete(())
    if STALE in kinds:
        items = past[-kinds[STALE].polls] if len(past) >= kinds[STALE].polls else (past or (items,))[0]
    hidden = {one.name for one in faults if one.what == HIDES}
    items = tuple(one for one in items if one.name not in hidden)
    return Partial(items[: len(items) // 2], "page 2 was lost") if PARTIAL in kinds else Complete(items)
