"""What a new observation of a resource says about the time since the last one: a list of moments at which something changed.

Example: a machine was running since 10:00 when seen at 12:00; at 12:05 it is running since 12:03. It stopped at some moment
between 12:00 and 12:03, nobody knows when, and it started at 12:03 exactly: two moments.
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
    """From some instant within [earliest, latest] the resource was as `seen` says, priced at `price`; None: it was gone.

    `unseen`: between the two it may have been running or stopped, and nobody looked; at `latest` it was as `seen` says.
    `other`: from then on it may as well have been as this says (a disk that was changed at an unknown moment); of one that is
    gone and `unseen`, what may have run before. `moving`: its price moves by itself, and nobody knows how it did.
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
    def at(cls, when: datetime, seen: Observation | None, why: str) -> StateTransition:
        """A moment that the provider stated."""
        return cls(earliest=when, latest=when, seen=seen, price=find_price(seen, when) if seen else None, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationWindow:
    """When the change may have come: after `since`, when the resource (or its absence) was last seen, and by `at`.

    `since` None: nobody looked before. `gap`: longer than this between two looks, and a provider that states no start may have
    stopped and started a machine unseen.
    """

    since: datetime | None
    at: datetime
    gap: timedelta

    @property
    def begin(self) -> datetime:
        """`since`, or `at` where nobody looked before."""
        return self.at if self.since is None else min(self.since, self.at)

    @property
    def wide(self) -> bool:
        """Whether a run may have hidden in it."""
        return self.since is None or self.at - self.since > self.gap


def is_same_run(before: Observation, seen: Observation, restarts: str) -> bool | None:
    """Whether both belong to one run; None where the provider does not tell."""
    if before.kind != INSTANCE or restarts == "never":
        return True
    if before.started_at is None or seen.started_at is None:
        return None
    return before.started_at == seen.started_at


def is_outdated(before: Observation, seen: Observation) -> bool:
    """Whether `seen` tells of a run that is older than the one already known: an old page from a cache, or a mistake before."""
    return before.started_at is not None and seen.started_at is not None and seen.started_at < before.started_at


def list_first_transitions(seen: Observation, window: ObservationWindow, restarts: str) -> list[StateTransition]:
    """Of a resource that was not known."""
    started, born = seen.started_at, seen.created_at
    if started is None or seen.kind != INSTANCE:
        return _infer_start(seen, window, restarts)
    found: list[StateTransition] = []
    if born is not None and born < started:
        found.append(StateTransition.at(born, replace(seen, state=ARRIVING_STATE), "created_at stated"))
        if started - max(born, window.since or born) > window.gap:  # longer than a boot: it may have run before
            found.append(
                StateTransition(earliest=born, latest=started, seen=replace(seen, state=STOPPED), unseen=True, why="first seen")
            )
    return found + _list_run_transitions(seen, window)


def _infer_start(seen: Observation, window: ObservationWindow, restarts: str) -> list[StateTransition]:
    """Nobody stated a start. A stated creation bounds it; of volumes, addresses and what never started it is the start."""
    born = seen.created_at
    if born is None:
        return [StateTransition(earliest=window.begin, latest=window.at, seen=seen, why="first seen")]
    hidden = restarts == "unstated" and window.at - born > window.gap
    if seen.kind != INSTANCE or not (seen.state in UP_STATES | DOWN_STATES or hidden):
        return [StateTransition.at(born, seen, "created_at stated")]
    return [
        StateTransition(
            earliest=born, latest=max(born, window.at), seen=seen, unseen=True, why="created_at stated, start is not"
        )
    ]


def _list_run_transitions(seen: Observation, window: ObservationWindow) -> list[StateTransition]:
    """The present or last run of `seen`, which states its start."""
    started, stopped = seen.started_at, seen.stopped_at
    assert started is not None  # noqa: S101 - for the type checker; both callers ask before
    if seen.state not in UP_STATES and seen.state not in DOWN_STATES:
        return [StateTransition.at(started, seen, "started_at stated")]
    found = [StateTransition.at(started, replace(seen, state=RUNNING), "started_at stated")]
    if seen.state in DOWN_STATES and stopped is not None and stopped >= started:
        found.append(StateTransition.at(stopped, seen, "stopped_at stated"))
    elif seen.state != RUNNING:
        looked = max(started, window.since or started)
        found.append(StateTransition(earliest=looked, latest=max(looked, window.at), seen=seen, why="stop not stated"))
    return found


def list_next_transitions(
    before: Observation, seen: Observation, window: ObservationWindow, restarts: str
) -> list[StateTransition]:
    """Of a resource that was seen before and has not ended."""
    if is_new_run(before, seen):
        return _list_previous_stop(before, seen, window) + _list_run_transitions(seen, window)
    alike = {before.state, seen.state} <= UP_STATES or {before.state, seen.state} <= DOWN_STATES
    if window.wide and alike and is_same_run(before, seen, restarts) is None:
        return [StateTransition(earliest=window.begin, latest=window.at, seen=seen, unseen=True, why="not looked at")]
    if seen.state == before.state:
        return []
    stated = _find_stated_change(before, seen, window)
    if stated is not None:
        return [StateTransition.at(stated, seen, f"{'stopped_at' if seen.state in DOWN_STATES else 'started_at'} stated")]
    return [StateTransition(earliest=window.begin, latest=window.at, seen=seen, why=f"seen {seen.state}")]


def is_new_run(before: Observation, seen: Observation) -> bool:
    """Whether `seen` states the start of a run that was not known."""
    if seen.started_at is None or seen.kind != INSTANCE:
        return False
    if before.started_at is None:
        return before.state not in UP_STATES | DOWN_STATES
    return seen.started_at > before.started_at


def _list_previous_stop(before: Observation, seen: Observation, window: ObservationWindow) -> list[StateTransition]:
    """The end of the run before the one that `seen` tells of, if that was still on."""
    started, stopped = seen.started_at, seen.stopped_at
    if started is None:
        return []
    off, begin = replace(before, state=STOPPED), min(window.begin, started)
    if before.state not in UP_STATES or before.started_at is None:
        if stopped is not None and stopped == before.stopped_at:
            return []  # no run has ended since
        another = stopped if stopped is not None and begin < stopped <= started else None
        if another is None and not window.wide:
            return []
        return [StateTransition(earliest=begin, latest=another or started, seen=off, unseen=True, why="may have run unseen")]
    of_that_run = seen.state in UP_STATES and stopped is not None and before.started_at < stopped <= started
    if of_that_run and stopped is not None and not window.wide:
        return [StateTransition.at(stopped, off, "stopped_at stated")]
    end = stopped if of_that_run and stopped is not None else started
    return [StateTransition(earliest=begin, latest=max(begin, end), seen=off, why="restarted unseen")]


def make_gone_transition(before: Observation, begin: datetime, latest: datetime, *, hidden: bool) -> StateTransition:
    """It ended within [begin, latest]. `hidden`: a machine that was off may have run once more in it."""
    off = hidden and before.kind == INSTANCE and before.state not in UP_STATES
    return StateTransition(earliest=begin, latest=latest, seen=None, unseen=off, other=before if off else None, why="gone")


def add_disk_doubt(
    path: list[StateTransition], before: Observation, seen: Observation, window: ObservationWindow
) -> list[StateTransition]:
    """`path`, but with disks and undated prices that changed at some moment of `window`, not at the instants stated in it.

    A stated stop says when the machine stopped, and not when somebody made its disk larger.
    """
    dated = not seen.prices or seen.prices[-1].since is not None
    if not path or (before.disks == seen.disks and (dated or before.prices == seen.prices)):
        return path
    before = replace(before, prices=seen.prices) if dated else before
    first = StateTransition(earliest=window.begin, latest=window.begin, seen=before, why="changed unseen")
    return [_make_ambiguous(moment, before, seen) for moment in (first, *path)]


def _make_ambiguous(moment: StateTransition, before: Observation, seen: Observation) -> StateTransition:
    """`moment`, but with the disks and prices of `before` or of `seen`, whichever it does not have."""
    if moment.seen is None:
        return moment
    old = (moment.seen.disks, moment.seen.prices) == (before.disks, before.prices)
    source = seen if old else before
    return replace(moment, other=replace(moment.seen, disks=source.disks, prices=source.prices))


def _find_stated_change(before: Observation, seen: Observation, window: ObservationWindow) -> datetime | None:
    """The instant at which the state changed, where the provider says so; None otherwise."""
    if seen.state in DOWN_STATES:
        stopped = seen.stopped_at
        newly = stopped is not None and stopped != before.stopped_at
        if not newly or stopped is None or (before.started_at is not None and stopped < before.started_at):
            return None
        return stopped if before.started_at is not None or stopped > window.begin else None
    started = seen.started_at
    if seen.state not in UP_STATES or before.state in UP_STATES or started is None or before.started_at is not None:
        return None
    return started if started > window.begin or before.state in DOWN_STATES else None


def find_price(seen: Observation, when: datetime) -> Price | None:
    """The price of `seen` in force at `when`: the last one stated since before, else the oldest known; None: unknown."""
    known = None
    for price in seen.prices:
        if known is None or price.since is None or price.since <= when:
            known = price
    return known


def merge_prices(before: Observation, seen: Observation) -> Observation:
    """`seen`, but with the prices already known where it states none (RunPod of a stopped pod), or older ones.

    Older ones stand on an old page from a cache. A price that is unknown now is stated so, as a Price without a rate. Before
    the first day that is stated, the price held that was known before.
    """
    if not seen.prices and before.prices:
        return replace(seen, prices=before.prices)
    old, new = (o.prices[-1].since if o.prices else None for o in (before, seen))
    if old is not None and new is not None and new < old:
        return replace(seen, prices=before.prices)
    first = seen.prices[0].since if seen.prices else None
    earlier = [price for price in before.prices if first is not None and (price.since is None or price.since < first)]
    return replace(seen, prices=(earlier[-1], *seen.prices)) if earlier else seen


def find_highest_dated_price(seen: Observation, since: datetime) -> int:
    """The highest nano-units an hour of the prices that the provider dates and that were in force after `since`; 0: none."""
    ends = (*(price.since for price in seen.prices[1:]), None)
    dated = [
        price.rate.nano_per_hour
        for price, end in zip(seen.prices, ends, strict=False)
        if price.rate and price.since is not None and (end is None or end > since)
    ]
    return max(dated, default=0)


def list_price_transitions(seen: Observation, since: datetime, until: datetime) -> list[StateTransition]:
    """Changes of price that the provider dates between `since` and `until`, both left out."""
    dated = [price for price in seen.prices if price.since is not None and since < price.since < until]
    return [
        StateTransition(earliest=p.since, latest=p.since, seen=seen, price=p, why="price changed")
        for p in dated
        if p.since is not None
    ]
