"""Measure a machine and its group once more, right before an act on its idleness: what is not measured counts as active."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from costguard.errors import shorten, to_one_line
from costguard.guard.activity import find_probe_start, probe_activity
from costguard.guard.context import estimate_interval_of_samples
from costguard.guard.grouping import GroupKey, counts_for_group, find_group
from costguard.metering.observation import Observation
from costguard.metering.spending import LiveResource
from costguard.providers.ports import InstanceSource, UtilizationSource
from costguard.values.calendar import Period
from costguard.values.resource import ResourceKey
from costguard.values.sample import Sample

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.guard.store import GuardStore

FindSource = Callable[[ResourceKey], InstanceSource | None]


def find_group_members(
    observation: Observation, live: Iterable[LiveResource], group_from: Sequence[str]
) -> tuple[GroupKey | None, list[Observation]]:
    """Return the group of `observation` and its other running machines, as last listed."""
    key = find_group(observation, group_from)
    if key is None:
        return None, []
    others = (one.observation for one in live if counts_for_group(one) and one.observation.key != observation.key)
    return key, [one for one in others if find_group(one, group_from) == key]


def recheck_activity(
    observation: Observation,
    group: GroupKey | None,
    others: Sequence[Observation],
    *,
    book: GuardStore,
    source_of: FindSource,
    interval: timedelta,
    lags: Mapping[str, timedelta],
    now: datetime,
    also: Sequence[UtilizationSource] = (),
    hung: bool = False,
) -> str:
    """Explain why `observation` or one of the `others` of its `group` may be active; "" if all are certainly inactive.

    `lags`: as in GuardSnapshot. `also`: sources that measure machines of any provider; each of their samples counts.
    `hung`: the act is on a hang.
    """
    late = {one.key: lags.get(one.key.provider, timedelta()) for one in (observation, *others)}
    samples, broken = _measure_now(
        [observation, *others], book, source_of, find_probe_start(now, max(late.values())), now, also=also
    )
    for one in (observation, *others):
        of = sorted(samples[one.key], key=lambda sample: (sample.signal, sample.at))
        reason = broken.get(one.key, "") or _recheck_machine(one, of, interval, late[one.key], now, hung=hung)
        if reason and one is observation:
            return f"it {reason}"
        if reason:
            return f"{shorten(one.name or one.key.id)} of its group {shorten(group.name) if group else ''} {reason}"
    return ""


def _recheck_machine(
    observation: Observation, samples: Sequence[Sample], interval: timedelta, lag: timedelta, now: datetime, *, hung: bool
) -> str:
    if not samples:
        return "is not measured now"
    working = probe_activity(samples, now, estimate_interval_of_samples(samples, interval), observation, lag=lag, hung=hung)
    return f"is active: {working}" if working else ""


def _measure_now(
    observations: Sequence[Observation],
    book: GuardStore,
    source_of: FindSource,
    since: datetime,
    now: datetime,
    *,
    also: Sequence[UtilizationSource] = (),
) -> tuple[Mapping[ResourceKey, set[Sample]], Mapping[ResourceKey, str]]:
    """Return the samples of each of `observations` since `since`; and the machines that could not be measured, with reasons."""
    stored_samples = book.load_samples_since(since, [one.key for one in observations])
    samples = {one.key: set(stored_samples.get(one.key, ())) for one in observations}
    by_source: dict[int, tuple[UtilizationSource, list[Observation]]] = {}
    for one in observations:
        for source in (source_of(one.key), *also):
            if isinstance(source, UtilizationSource):
                by_source.setdefault(id(source), (source, []))[1].append(one)
    broken = dict[ResourceKey, str]()
    for measures, of in by_source.values():
        try:
            fresh = measures.fetch_utilization(of, Period(start=since, end=now)).samples
        except Exception as error:  # noqa: BLE001 - a broken adapter is one that cannot be asked, whatever it raises
            broken |= {one.key: f"cannot be measured now: {to_one_line(str(error) or repr(error))}" for one in of}
            continue
        for sample in fresh:
            if sample.key in samples:
                samples[sample.key].add(sample)
    return samples, broken
