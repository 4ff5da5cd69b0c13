"""Derive from a new observation of a resource the list of changes since the last one, each with the time it happened.

Example: a machine was running since 10:00 when seen at 12:00; at 12:05 it is running since 12:03. It stopped at an unknown
instant between 12:00 and 12:03, and started at 12:03 exactly: two transitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.metering.observation import Observation, Price
from costguard.values.resource import ENDED, INSTANCE, RUNNING, STOPPED

UP_STATES = frozenset((RUNNING, "paused", "stopping", "failed", "repairing", "unknown"))
"""States within a run: `started_at` is the start of this one."""
DOWN_STATES = frozenset((STOPPED, "suspended", ENDED))
"""States after a run: `started_at` and `stopped_at` are of the last one."""
ARRIVING_STATE = "starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTransition:
    """A change at some instant within [earliest, latest]: from then on the resource was as in `seen` (None: it was gone).

    `price`: the price of computing from then on, None: that of `seen`. `unseen`: between the two instants the resource was not
    observed and may have been running or stopped; at `latest` it was as in `seen`. `other`: an alternative to `seen` from then
    on (a disk that was changed at an unknown instant); for a resource that is gone and `unseen`, what may have run before.
    `moving`: its price changes by itself, and the changes are unknown.
    """

    earliest: datetime
    latest: datetime
    seen: Observation | None
    price: Price | None = None
    unseen: bool = False
    other: Observation | None = None
    moving: bool = False
    why: str = ""

    @classmethod
    def at(cls, when: datetime, observation: Observation | None, why: str) -> StateTransition:
        """Return a transition at an instant that the provider stated."""
        price = find_price(observation, when) if observation else None
        return cls(earliest=when, latest=when, seen=observation, price=price, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationWindow:
    """The time in which a change may have happened: after `since` and until `at`.

    `since`: when the resource (or its absence) was last seen; None: never before. `gap`: if the window is longer than this and
    the provider states no start, a machine may have stopped and started unobserved.
    """

    since: datetime | None
    at: datetime
    gap: timedelta

    @property
    def begin(self) -> datetime:
        """`since`, or `at` if the resource was never seen before."""
        return self.at if self.since is None else min(self.since, self.at)

    @property
    def wide(self) -> bool:
        """Whether a whole run may have happened unobserved within the window."""
        return self.since is None or self.at - self.since > self.gap


def is_same_run(previous: Observation, observation: Observation, restarts: str) -> bool | None:
    """Return whether both observations belong to one run; None if the provider does not state it."""
    if previous.kind != INSTANCE or restarts == "never":
        return True
    if previous.started_at is None or observation.started_at is None:
        return None
    return previous.started_at == observation.started_at


def is_outdated(previous: Observation, observation: Observation) -> bool:
    """Return whether `observation` shows a run older than the known one: a stale cached page, or an earlier mistake."""
    old, new = previous.started_at, observation.started_at
    return old is not None and new is not None and new < old


def list_first_transitions(
    observation: Observation, window: ObservationWindow, restarts: str, longest_boot: timedelta | None = None
) -> list[StateTransition]:
    """List the transitions of a resource that was not known before.

    `longest_boot`: how long after its creation a machine bills at the latest; None: unknown.
    """
    started, born = observation.started_at, observation.created_at
    if started is None or observation.kind != INSTANCE:
        return _infer_start(observation, window, restarts, longest_boot)
    transitions: list[StateTransition] = []
    if born is not None and born < started:
        transitions.append(StateTransition.at(born, replace(observation, state=ARRIVING_STATE), "created_at stated"))
        if started - max(born, window.since or born) > window.gap:  # longer than a boot: it may have run before
            off = replace(observation, state=STOPPED)
            transitions.append(StateTransition(earliest=born, latest=started, seen=off, unseen=True, why="first seen"))
    return transitions + _list_run_transitions(observation, window)


def _infer_start(
    observation: Observation, window: ObservationWindow, restarts: str, longest_boot: timedelta | None
) -> list[StateTransition]:
    """Bound an unstated start by the stated creation, if any.

    For volumes, addresses and machines that never started, the creation is the start. A machine that cannot stop and start
    again has run since its boot, which ended at most `longest_boot` after its creation.
    """
    born = observation.created_at
    if born is None:
        return [StateTransition(earliest=window.begin, latest=window.at, seen=observation, why="first seen")]
    hidden = restarts == "unstated" and window.at - born > window.gap
    if observation.kind != INSTANCE or not (observation.state in UP_STATES | DOWN_STATES or hidden):
        return [StateTransition.at(born, observation, "created_at stated")]
    latest = max(born, window.at)
    if longest_boot is not None and restarts == "never" and observation.state in UP_STATES:
        latest = min(latest, born + longest_boot)
    return [StateTransition(earliest=born, latest=latest, seen=observation, unseen=True, why="created_at stated, start is not")]


def _list_run_transitions(observation: Observation, window: ObservationWindow) -> list[StateTransition]:
    """List the transitions of the present or last run of `observation`, which states its start."""
    started, stopped = observation.started_at, observation.stopped_at
    assert started is not None  # noqa: S101 - for the type checker; both callers ask before
    if observation.state not in UP_STATES and observation.state not in DOWN_STATES:
        return [StateTransition.at(started, observation, "started_at stated")]
    transitions = [StateTransition.at(started, replace(observation, state=RUNNING), "started_at stated")]
    if observation.state in DOWN_STATES and stopped is not None and stopped >= started:
        transitions.append(StateTransition.at(stopped, observation, "stopped_at stated"))
    elif observation.state != RUNNING:
        looked = max(started, window.since or started)
        transitions.append(
            StateTransition(earliest=looked, latest=max(looked, window.at), seen=observation, why="stop not stated")
        )
    return transitions


def list_next_transitions(
    previous: Observation, observation: Observation, window: ObservationWindow, restarts: str
) -> list[StateTransition]:
    """List the transitions of a resource that was seen before and has not ended."""
    if is_new_run(previous, observation):
        return _list_previous_stop(previous, observation, window) + _list_run_transitions(observation, window)
    alike = {previous.state, observation.state} <= UP_STATES or {previous.state, observation.state} <= DOWN_STATES
    if window.wide and alike and is_same_run(previous, observation, restarts) is None:
        return [StateTransition(earliest=window.begin, latest=window.at, seen=observation, unseen=True, why="not looked at")]
    if observation.state == previous.state:
        return []
    changed_at = _find_stated_change(previous, observation, window)
    if changed_at is not None:
        field = "stopped_at" if observation.state in DOWN_STATES else "started_at"
        return [StateTransition.at(changed_at, observation, f"{field} stated")]
    return [StateTransition(earliest=window.begin, latest=window.at, seen=observation, why=f"seen {observation.state}")]


def is_new_run(previous: Observation, observation: Observation) -> bool:
    """Return whether `observation` states the start of a run that was not known."""
    if observation.started_at is None or observation.kind != INSTANCE:
        return False
    if previous.started_at is None:
        return previous.state not in UP_STATES | DOWN_STATES
    return observation.started_at > previous.started_at


def _list_previous_stop(previous: Observation, observation: Observation, window: ObservationWindow) -> list[StateTransition]:
    """List the end of the run before the one in `observation`, if that run was still active."""
    started, stopped = observation.started_at, observation.stopped_at
    if started is None:
        return []
    off, begin = replace(previous, state=STOPPED), min(window.begin, started)
    if previous.state not in UP_STATES or previous.started_at is None:
        if stopped is not None and stopped == previous.stopped_at:
            return []  # no run has ended since
        another = stopped if stopped is not None and begin < stopped <= started else None
        if another is None and not window.wide:
            return []
        return [StateTransition(earliest=begin, latest=another or started, seen=off, unseen=True, why="may have run unseen")]
    of_that_run = observation.state in UP_STATES and stopped is not None and previous.started_at < stopped <= started
    if of_that_run and stopped is not None and not window.wide:
        return [StateTransition.at(stopped, off, "stopped_at stated")]
    end = stopped if of_that_run and stopped is not None else started
    return [StateTransition(earliest=begin, latest=max(begin, end), seen=off, why="restarted unseen")]


def make_gone_transition(previous: Observation, begin: datetime, latest: datetime, *, hidden: bool) -> StateTransition:
    """Return the end of a resource within [begin, latest].

    `hidden`: a stopped machine may have run once more in it.
    """
    off = hidden and previous.kind == INSTANCE and previous.state not in UP_STATES
    return StateTransition(earliest=begin, latest=latest, seen=None, unseen=off, other=previous if off else None, why="gone")


def add_disk_doubt(
    path: list[StateTransition], previous: Observation, observation: Observation, window: ObservationWindow
) -> list[StateTransition]:
    """Return `path` with disks and undated prices that changed at an unknown instant of `window`.

    A stated stop dates the stop of the machine, and not the resizing of its disk.
    """
    dated = not observation.prices or observation.prices[-1].since is not None
    if not path or (previous.disks == observation.disks and (dated or previous.prices == observation.prices)):
        return path
    previous = replace(previous, prices=observation.prices) if dated else previous
    first = StateTransition(earliest=window.begin, latest=window.begin, seen=previous, why="changed unseen")
    return [_make_ambiguous(moment, previous, observation) for moment in (first, *path)]


def _make_ambiguous(moment: StateTransition, previous: Observation, observation: Observation) -> StateTransition:
    """Return `moment` with an alternative: the disks and prices of `previous` or `observation`, whichever it lacks."""
    if moment.seen is None:
        return moment
    old = (moment.seen.disks, moment.seen.prices) == (previous.disks, previous.prices)
    source = observation if old else previous
    return replace(moment, other=replace(moment.seen, disks=source.disks, prices=source.prices))


def _find_stated_change(previous: Observation, observation: Observation, window: ObservationWindow) -> datetime | None:
    """Return the instant of the state change where the provider states it; None otherwise."""
    if observation.state in DOWN_STATES:
        stopped = observation.stopped_at
        newly = stopped is not None and stopped != previous.stopped_at
        if not newly or stopped is None or (previous.started_at is not None and stopped < previous.started_at):
            return None
        return stopped if previous.started_at is not None or stopped > window.begin else None
    started = observation.started_at
    if observation.state not in UP_STATES or previous.state in UP_STATES or started is None or previous.started_at is not None:
        return None
    return started if started > window.begin or previous.state in DOWN_STATES else None


def find_price(observation: Observation, when: datetime) -> Price | None:
    """Return the price of `observation` in force at `when`: the last one stated until then, else the oldest; None: unknown."""
    latest = None
    for price in observation.prices:
        if latest is None or price.since is None or price.since <= when:
            latest = price
    return latest


def merge_prices(previous: Observation, observation: Observation) -> Observation:
    """Return `observation` with the prices already known, where it states none (a stopped RunPod pod) or older ones.

    Older prices come from a stale cached page. A price that has become unknown is stated as a Price without a rate. Before the
    first dated price, the price that was known before applies.
    """
    if not observation.prices and previous.prices:
        return replace(observation, prices=previous.prices)
    old, new = (o.prices[-1].since if o.prices else None for o in (previous, observation))
    if old is not None and new is not None and new < old:
        return replace(observation, prices=previous.prices)
    first = observation.prices[0].since if observation.prices else None
    earlier = [price for price in previous.prices if first is not None and (price.since is None or price.since < first)]
    return replace(observation, prices=(earlier[-1], *observation.prices)) if earlier else observation


def find_highest_dated_price(observation: Observation, since: datetime) -> int:
    """Return the highest dated price that was in force after `since`, in nano-units an hour; 0: none."""
    ends = (*(price.since for price in observation.prices[1:]), None)
    dated = [
        price.rate.nano_per_hour
        for price, end in zip(observation.prices, ends, strict=False)
        if price.rate and price.since is not None and (end is None or end > since)
    ]
    return max(dated, default=0)


def list_price_transitions(observation: Observation, since: datetime, until: datetime) -> list[StateTransition]:
    """List the price changes that the provider dates after `since` and before `until`."""
    dated = [price for price in observation.prices if price.since is not None and since < price.since < until]
    return [
        StateTransition(earliest=p.since, latest=p.since, seen=observation, price=p, why="price changed")
        for p in dated
        if p.since is not None
    ]
