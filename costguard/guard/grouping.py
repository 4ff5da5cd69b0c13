"""Groups: machines that work together, by a label that they share, and what that means for the work of each.

Example: four nodes carry `skypilot-cluster-name=exp-7`. Rank 0 downloads 110 GB, and the other three wait for it at a barrier
with GPUs at 0 %. The group works, so none of the three is idle: each is active, with all of its GPUs wasted. When rank 0 ends
at 10:30, all four are idle since 10:30. Were rank 0 not measured, nobody could say whether the three idle.

A group lies within one account, over all of its regions. What does not idle by itself is left as it was judged (decision 0026).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from costguard.errors import shorten
from costguard.guard.signal_summary import format_clock
from costguard.guard.work import ACTIVE, HUNG, IDLE, UNKNOWN, WARMING, Activity
from costguard.metering.observation import Observation
from costguard.metering.spending import LiveResource
from costguard.values.instant import to_micros
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey

STATE_PRECEDENCE = (ACTIVE, UNKNOWN, WARMING, HUNG, IDLE)
"""The state of a group is the first of these that one of its members is in: one that works, else one that may, ..."""
STATE_WORDS = {ACTIVE: "works", UNKNOWN: "cannot be judged", WARMING: "is being set up", HUNG: "hangs"}
BEGINNING = datetime.min.replace(tzinfo=UTC)
_AND = re.compile(r" \+ (?=(?:label|tag):)")


class GroupKey(NamedTuple):
    """A group for as long as its members carry the label: which `keys`, and their `values`."""

    provider: str
    account: str
    keys: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        """As people know it: "exp-7"; of several labels "prod/gpu-nodes"."""
        return "/".join(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A machine of a group that runs, and its work as if it were alone."""

    key: ResourceKey
    name: str
    work: Activity


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupActivity:
    """What a group comes to. `by`, `why`: the member that its state rests on, and that one's weightiest reason.

    `since`: of a group that idles, since the last of its members does; None: not known. `confidence`, `coverage`: the least of
    the members in that state. `attended`: somebody is connected to a member.
    """

    name: str
    state: str
    by: str
    why: str
    since: datetime | None
    confidence: float
    coverage: float | None
    attended: bool


def find_group(seen: Observation, patterns: Sequence[str]) -> GroupKey | None:
    """The group of an instance: by the first of `patterns` that it carries ("label:cluster"; "label:a + label:b": both).

    A key as it is written comes before one that differs in case only.
    """
    if not seen.labels or seen.kind != INSTANCE:
        return None
    found = _match_labels(seen.labels, tuple(patterns))
    return None if found is None else GroupKey(seen.key.provider, seen.key.account, *found)


def counts_for_group(live: LiveResource) -> bool:
    """Whether the work of a member says anything about its group: only what is there and runs works, or may."""
    return live.absent_at is None and live.observation.kind == INSTANCE and live.observation.state == RUNNING


def combine_activities(key: GroupKey, members: Iterable[GroupMember]) -> GroupActivity | None:
    """The state of a group from those of its members; None: none of them runs."""
    every = sorted(members, key=lambda one: one.key)
    if not every:
        return None
    state = min((one.work.state for one in every), key=STATE_PRECEDENCE.index)
    meant = [one for one in every if one.work.state == state]
    last = max(meant, key=lambda one: (one.work.since is None, one.work.since or BEGINNING, one.key))
    by = last if state == IDLE else meant[0]
    known = [one.work.coverage for one in meant if one.work.coverage is not None]
    return GroupActivity(
        name=shorten(key.name),
        state=state,
        by=shorten(by.name or by.key.id),
        why=next(iter(by.work.reasons), "nobody knows why"),
        since=by.work.since,
        confidence=min(one.work.confidence for one in meant),
        coverage=min(known, default=None),
        attended=any(one.work.attended for one in every),
    )


def apply_group_activity(own: Activity, group: GroupActivity | None, gpus: float) -> Activity:
    """The work of a machine, `own` as if it were alone, in its group: what idles alone is in the state of its group.

    `gpus`: how many it has, all of which are wasted while its group works.
    """
    if group is None or own.state != IDLE:
        return own
    attended = own.attended or group.attended
    if group.state == IDLE:
        return _merge_idle(own, group, attended=attended)
    told = f"its group {group.name} {STATE_WORDS[group.state]}: {group.by} ({group.why})"
    if group.state == UNKNOWN:
        return replace(own, state=UNKNOWN, confidence=0, reasons=(told,), since=None, attended=attended)
    since = own.since
    if group.state in (WARMING, HUNG):
        since = max(own.since, group.since) if own.since and group.since else None
    return replace(
        own,
        state=group.state,
        confidence=group.confidence,
        reasons=(told, *own.reasons),
        since=since,
        attended=attended,
        wasted_share=1.0 if group.state == ACTIVE and gpus > 0 else 0.0,
    )


def _merge_idle(own: Activity, group: GroupActivity, *, attended: bool) -> Activity:
    """Idle since the last of its group is, and no more surely than any of it."""
    shares = [one for one in (own.coverage, group.coverage) if one is not None]
    found = replace(
        own,
        since=group.since,
        confidence=min(own.confidence, group.confidence),
        coverage=min(shares, default=None),
        attended=attended,
    )
    if (own.since, own.confidence) == (found.since, found.confidence):
        return found
    when = format_clock(to_micros(group.since)) if group.since is not None else "an unknown time"
    return replace(found, reasons=(f"its group {group.name} idles since {when}, {group.by} last", *own.reasons))


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
def _split_patterns(patterns: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The label keys of each pattern."""
    return tuple(tuple(part.partition(":")[2] or part for part in _AND.split(pattern)) for pattern in patterns)
