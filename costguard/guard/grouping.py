"""Classify machines that share a label (a cluster) together.

Example: four nodes carry `skypilot-cluster-name=exp-7`. Rank 0 downloads 110 GB, and the other three wait for it at a barrier
with GPUs at 0 %. The group is active, so each of the three is active with all of its GPUs wasted. When rank 0 ends at 10:30,
all four are idle since 10:30. If rank 0 were not measured, the three would be unknown.

Without such a label, nodes of several GPUs that one owner launched together count as one job while a process holds their GPU
memory: `find_launch`.

A group lies within one account and spans its regions. Only members that are idle alone are changed (decision 0026).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from costguard.errors import shorten
from costguard.guard.signal_summary import format_clock
from costguard.guard.signals import ACTIVE, HUNG, IDLE, UNKNOWN, WARMING, Activity
from costguard.metering.observation import Observation
from costguard.metering.spending import LiveResource
from costguard.values.instant import to_micros
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey

STATE_PRECEDENCE = (ACTIVE, UNKNOWN, WARMING, HUNG, IDLE)
"""The state of a group is the first of these that any member is in."""
STATE_WORDS = {ACTIVE: "works", UNKNOWN: "cannot be judged", WARMING: "is being set up", HUNG: "hangs"}
BEGINNING = datetime.min.replace(tzinfo=UTC)
_AND = re.compile(r" \+ (?=(?:label|tag):)")


class GroupKey(NamedTuple):
    """Identity of a group: account, label keys and the values that its members share."""

    provider: str
    account: str
    keys: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        """Display name: "exp-7", or "prod/gpu-nodes" for two labels."""
        return "/".join(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A running machine of a group with its own activity, before the group is applied."""

    key: ResourceKey
    name: str
    work: Activity


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupActivity:
    """Activity of a group. `by`, `why`: the member that decides its state, and that member's first reason.

    `since`: start of the state of member `by` (idle: the last member to become idle); None: unknown. `confidence`, `coverage`
    (None: not measured): lowest of the members in that state. `attended`: a user is connected to a member. `as_of`: when the
    first of its members was judged; None: all now.
    """

    name: str
    state: str
    by: str
    why: str
    since: datetime | None
    confidence: float
    coverage: float | None
    attended: bool
    as_of: datetime | None = None


def find_group(observation: Observation, patterns: Sequence[str]) -> GroupKey | None:
    """Return the group of an instance by the first of `patterns` that its labels match; None if none does.

    "label:a + label:b" needs both labels. An exact key wins over one that differs in case only.
    """
    if not observation.labels or observation.kind != INSTANCE:
        return None
    patterns = tuple(patterns)
    keys = _list_group_keys(patterns)
    group_labels = tuple([pair for pair in observation.labels if pair[0].casefold() in keys])
    name_parts = _match_labels(group_labels, patterns) if group_labels else None
    return None if name_parts is None else GroupKey(observation.key.provider, observation.key.account, *name_parts)


def counts_for_group(live: LiveResource) -> bool:
    """Return whether `live` counts for its group: an instance that is listed and running."""
    return live.absent_at is None and live.observation.kind == INSTANCE and live.observation.state == RUNNING


def combine_activities(key: GroupKey, members: Iterable[GroupMember]) -> GroupActivity | None:
    """Combine the activities of the members; None if there are no members."""
    every = sorted(members, key=lambda one: one.key)
    if not every:
        return None
    state = min((one.work.state for one in every), key=STATE_PRECEDENCE.index)
    state_members = [one for one in every if one.work.state == state]
    last = max(state_members, key=lambda one: (one.work.since is None, one.work.since or BEGINNING, one.key))
    by = last if state == IDLE else state_members[0]
    coverages = [one.work.coverage for one in state_members if one.work.coverage is not None]
    return GroupActivity(
        name=shorten(key.name),
        state=state,
        by=shorten(by.name or by.key.id),
        why=next(iter(by.work.reasons), "reason unknown"),
        since=by.work.since,
        confidence=min(one.work.confidence for one in state_members),
        coverage=min(coverages, default=None),
        attended=any(one.work.attended for one in every),
        as_of=_find_earliest(*(one.work.as_of for one in every)),
    )


def apply_group_activity(own: Activity, group: GroupActivity | None, gpus: float) -> Activity:
    """Return the activity of a machine within its group: an idle machine takes the state of its group, others keep `own`.

    `group`: None for no group. `gpus`: GPU count of the machine; all are wasted while only the rest of the group works.
    """
    if group is None or own.state != IDLE:
        return own
    attended = own.attended or group.attended
    if group.state == IDLE:
        return _merge_idle(own, group, attended=attended)
    reason = f"its group {group.name} {STATE_WORDS[group.state]}: {group.by} ({group.why})"
    if group.state == UNKNOWN:
        return replace(own, state=UNKNOWN, confidence=0, reasons=(reason,), since=None, attended=attended)
    since = own.since
    if group.state in (WARMING, HUNG):
        since = max(own.since, group.since) if own.since and group.since else None
    return replace(
        own,
        state=group.state,
        confidence=group.confidence,
        reasons=(reason, *own.reasons),
        since=since,
        attended=attended,
        wasted_share=1.0 if group.state == ACTIVE and gpus > 0 else 0.0,
        as_of=_find_earliest(own.as_of, group.as_of),
    )


LAUNCH_GPUS_MIN = 2
"""GPUs of a node that may belong to a job of several nodes: of single GPUs rented together each mostly has a job of its own."""
LAUNCH_WITHIN = timedelta(minutes=10)
LAUNCH_WAIT_MAX = timedelta(hours=6)
"""How long a node may wait for those that were launched with it, before its own idleness counts."""


class LaunchKey(NamedTuple):
    """What the nodes of a job share if nothing names it. They were also created within LAUNCH_WITHIN of each other."""

    provider: str
    account: str
    region: str
    owner: str
    instance_type: str
    gpu: str
    gpu_count: float


def find_launch(observation: Observation, owner: str) -> LaunchKey | None:
    """Return by what an instance is known to be launched with others; None if it has fewer than two GPUs or no owner."""
    key = observation.key
    if observation.created_at is None or not owner or observation.gpu_count < LAUNCH_GPUS_MIN:
        return None
    shape = (observation.instance_type, observation.gpu, observation.gpu_count)
    return LaunchKey(key.provider, key.account, key.region, owner, *shape)


def is_launched_with(one: Observation, other: Observation) -> bool:
    """Return whether two instances of the same LaunchKey were created at about the same time."""
    times = one.created_at, other.created_at
    return times[0] is not None and times[1] is not None and abs(times[0] - times[1]) <= LAUNCH_WITHIN


def apply_launch_activity(own: Activity, mates: Iterable[tuple[Observation, Activity]], now: datetime) -> Activity:
    """Return the activity of an idle machine whose process holds GPU memory: active while one of its `mates` is.

    `mates`: the active ones of those that were launched with it.

    Example: four nodes without a label train; rank 0 downloads for 100 min, and the other three hold their memory and wait.
    """
    if own.since is None or now - own.since > LAUNCH_WAIT_MAX:
        return own
    mate, work = next(iter(mates), (None, own))
    if mate is None:
        return own
    name, why = shorten(mate.name or mate.key.id), next(iter(work.reasons), "reason unknown")
    reasons = (f"its GPU memory is held, and {name}, launched with it, works ({why})", *own.reasons)
    return replace(own, state=ACTIVE, confidence=work.confidence, reasons=reasons, wasted_share=1.0, gpu_memory="")


def _merge_idle(own: Activity, group: GroupActivity, *, attended: bool) -> Activity:
    """Date idleness from the last member to become idle, with the lower confidence of machine and group."""
    shares = [one for one in (own.coverage, group.coverage) if one is not None]
    activity = replace(
        own,
        since=group.since,
        confidence=min(own.confidence, group.confidence),
        coverage=min(shares, default=None),
        attended=attended,
        as_of=_find_earliest(own.as_of, group.as_of),
    )
    if (own.since, own.confidence) == (activity.since, activity.confidence):
        return activity
    when = format_clock(to_micros(group.since)) if group.since is not None else "an unknown time"
    return replace(activity, reasons=(f"its group {group.name} idles since {when}, {group.by} last", *own.reasons))


def _find_earliest(*times: datetime | None) -> datetime | None:
    """Return the first of `times` that are known; None: none is."""
    return min((at for at in times if at is not None), default=None)


@lru_cache(maxsize=20_000)
def _match_labels(
    labels: tuple[tuple[str, str], ...], patterns: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    exact = {key: value.strip() for key, value in labels if value.strip()}
    folded = {key.casefold(): value for key, value in exact.items()}
    for keys in _split_patterns(patterns):
        values = tuple(exact.get(key) or folded.get(key.casefold(), "") for key in keys)
        if all(values):
            return keys, values
    return None


@lru_cache(maxsize=100)
def _list_group_keys(patterns: tuple[str, ...]) -> frozenset[str]:
    """Return the label keys of all patterns, without their case."""
    return frozenset(key.casefold() for keys in _split_patterns(patterns) for key in keys)


@lru_cache(maxsize=100)
def _split_patterns(patterns: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the label keys of each pattern."""
    return tuple(tuple(part.partition(":")[2] or part for part in _AND.split(pattern)) for pattern in patterns)
