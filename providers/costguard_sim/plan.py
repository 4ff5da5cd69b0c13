"""The plan of a watch: when every scope is listed, and the fault of each listing, as plain data for JSON.

A seed produces a plan once; after that the plan alone determines what happens, so that a failing one can be reduced by hand or
by machine. Each plan first draws which faults occur and how often (swarm testing): a plan with a little of every fault finds
less.

Declared limits, in addition to those of `world.py`:

- A listing is at most the cloud's lag old when it is requested.
- Each page of a listing is no older than that and no newer than the answer.
- A complete listing that is wrongly empty ("empty") omits more than two resources of the last clean listing that still exist.
- It also omits more than half of all that the scope ever held. A smaller omission cannot be detected.
- There are at most `LIES_MOST` wrongly empty listings in a row.
- No scope goes longer than `longest_s` without a clean listing, however many fail in between.
- A price that a plan hides is hidden in every listing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from costguard_sim.world import LAG_S, SCOPES, SECOND_US, SIM_INSTANCE, Resource, World

FAULTS = ("timeout", "500", "429", "page", "empty", "stale", "late", "slow", "order", "twice")
"""timeout, 500, 429: nothing is learned. page: some of it is lost, and that is said. empty: none of it is there, and that is
not said. stale: the whole answer is old. late: single items are. slow: the answer takes long. order, twice: as they say."""

FAILS = ("timeout", "500", "429")
LIES_MOST = 3
SLOW_MOST_S = 30

ScopeName = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedListing:
    """One listing of `scope` (cloud, account, name) and its faults.

    It is requested at `asked_us`, answered at `at_us`, and shows the state at `view_us`. `fault`: "" or one of `FAILS`, "page",
    "empty". `late`: (id, time of the state that is shown for it). `lost`: ids of a lost page. `twice`: ids that appear twice.
    `salt`: seed of the items' order, 0: unchanged. `looked`: whether missing ids are looked up singly.
    """

    scope: ScopeName
    at_us: int
    asked_us: int
    view_us: int
    fault: str = ""
    lost: tuple[str, ...] = ()
    late: tuple[tuple[str, int], ...] = ()
    twice: tuple[str, ...] = ()
    salt: int = 0
    looked: bool = False

    @property
    def clean(self) -> bool:
        """Whether it shows everything."""
        return not self.fault

    def find_view_us(self, id_: str) -> int | None:
        """Return the time of the state that it shows for `id_`; None if it does not show it."""
        if self.fault in FAILS or self.fault == "empty" or id_ in self.lost:
            return None
        return next((us for late, us in self.late if late == id_), self.view_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """Entries in the order of their answers.

    `hidden`: ids whose price no listing states.
    """

    seed: int
    entries: tuple[PlannedListing, ...]
    hidden: tuple[str, ...] = ()

    def to_document(self) -> dict[str, object]:
        """Return the plan as data for JSON; `parse_plan` reads it."""
        return asdict(self)


def parse_plan(document: Mapping[str, Any]) -> WatchPlan:
    """Return the plan of `WatchPlan.to_document`, also after JSON turned its tuples into lists."""
    entries = tuple(PlannedListing(**{key: _to_tuples(value) for key, value in entry.items()}) for entry in document["entries"])
    return WatchPlan(seed=document["seed"], entries=entries, hidden=tuple(document["hidden"]))


def make_plan(
    seed: int, world: World, *, polls: int = 40, pace_s: tuple[float, float] = (45, 75), longest_s: float = 86_400
) -> WatchPlan:
    """Return `polls` listings of each scope that ever contains a resource, `pace_s` apart, from the world's start on.

    `longest_s`: the longest time without a clean listing, in seconds.
    """
    rng = random.Random(f"plan {seed}")  # noqa: S311 - a plan is drawn, not secret
    drawn = {fault: rng.choice((0.03, 0.1, 0.4)) if rng.random() < 0.4 else 0.0 for fault in FAULTS}  # noqa: PLR2004 - a draw
    chances = _Chances(of=drawn, looks=rng.choice((0.0, 0.0, 0.5, 1.0)), longest_us=int(longest_s * SECOND_US))
    entries: list[PlannedListing] = []
    for scope in [(cloud, *name) for cloud in sorted(SCOPES) for name in SCOPES[cloud]]:
        resources = [r for r in world.resources if (r.cloud, r.account, r.scope) == scope]
        if resources:
            entries += _plan_scope(rng, scope, resources, _draw_times(rng, world, polls, pace_s, longest_s), chances)
    instances = [r.id for r in world.resources if r.kind == SIM_INSTANCE]
    hidden = tuple(id_ for id_ in instances if rng.random() < 0.25) if rng.random() < 0.25 else ()  # noqa: PLR2004 - a draw
    return WatchPlan(seed=seed, entries=tuple(sorted(entries, key=lambda e: (e.at_us, e.scope))), hidden=hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chances:
    """The probability of each fault and of look-ups of missing ids, and the longest time without a clean listing."""

    of: Mapping[str, float]
    looks: float
    longest_us: int


def _draw_times(rng: random.Random, world: World, polls: int, pace_s: tuple[float, float], longest_s: float) -> list[int]:
    """Return when a scope's listings are answered, in microseconds."""
    at = world.start_us + rng.randrange(int(min(pace_s[0], longest_s) * SECOND_US) + 1)
    times = [at]
    low, high = math.log(pace_s[0]), math.log(max(pace_s))
    for _ in range(polls - 1):
        at += int(min(math.exp(rng.uniform(low, high)), longest_s) * SECOND_US)
        times.append(at)
    return times


def _plan_scope(
    rng: random.Random, scope: ScopeName, resources: list[Resource], times: list[int], chances: _Chances
) -> Iterator[PlannedListing]:
    """Yield the listings of one scope."""
    lag_us = LAG_S[scope[0]] * SECOND_US
    previous_at = clean_us = times[0]
    lies, shown_resources = 0, list[Resource]()
    for at, following in zip(times, [*times[1:], times[-1]], strict=True):
        asked_us = at - _draw_delay(rng, chances, at - previous_at)
        living = sum(r.ended_us is None or r.ended_us > at for r in shown_resources)
        lie = lies < LIES_MOST and living > 2 and 2 * living > sum(r.created_us <= at for r in resources)  # noqa: PLR2004 - as declared
        must = following - clean_us > chances.longest_us
        fault = "" if must else _draw_fault(rng, chances, lie=lie, lying=lies > 0)
        entry = _make_entry(rng, (scope, at, asked_us, asked_us - lag_us), [r.id for r in resources], fault, chances)
        yield entry
        previous_at, lies = at, lies + 1 if fault == "empty" else 0
        if entry.clean:
            clean_us = at
            shown_resources = [
                r for r in resources if r.created_us <= asked_us - lag_us and (r.ended_us is None or r.ended_us > at)
            ]
        elif fault != "empty":
            shown_resources = []


def _draw_delay(rng: random.Random, chances: _Chances, since_last: int) -> int:
    """Return microseconds from request to answer; a request waits for the previous answer."""
    longest = min(SLOW_MOST_S * SECOND_US, since_last // 2)
    return rng.randrange(longest) if longest > 0 and rng.random() < chances.of["slow"] else 0


def _draw_fault(rng: random.Random, chances: _Chances, *, lie: bool, lying: bool) -> str:
    """Return the fault of one listing, "" for none.

    A wrongly empty listing is likely to be followed by another.
    """
    if lie and chances.of["empty"] and rng.random() < (0.6 if lying else chances.of["empty"]):
        return "empty"
    return next((fault for fault in (*FAILS, "page") if rng.random() < chances.of[fault]), "")


def _make_entry(
    rng: random.Random, when: tuple[ScopeName, int, int, int], ids: list[str], fault: str, chances: _Chances
) -> PlannedListing:
    """Return one listing.

    `when`: the scope, the answer, the request, and the oldest time whose state may be shown.
    """
    scope, at, asked_us, oldest = when
    of = chances.of
    return PlannedListing(
        scope=scope,
        at_us=at,
        asked_us=asked_us,
        view_us=rng.randint(oldest if rng.random() < of["stale"] else asked_us, at),
        fault=fault,
        lost=_draw_some(rng, ids, 0.5) if fault == "page" else (),
        late=tuple((id_, rng.randint(oldest, at)) for id_ in _draw_some(rng, ids, of["late"])),
        twice=_draw_some(rng, ids, 0.3) if rng.random() < of["twice"] else (),
        salt=rng.randrange(1, 2**32) if rng.random() < of["order"] else 0,
        looked=rng.random() < chances.looks,
    )


def _draw_some(rng: random.Random, ids: list[str], chance: float) -> tuple[str, ...]:
    return tuple(id_ for id_ in ids if rng.random() < chance)


def _to_tuples(value: object) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return lists, at any depth, as tuples."""
    return tuple(_to_tuples(inner) for inner in value) if isinstance(value, list | tuple) else value
