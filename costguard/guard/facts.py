"""The names that conditions may use, with their kind and meaning: one table, from which settings, docs and errors come."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

TEXT, NUMBER, TRUTH, DURATION, MONEY, RATE, LABELS = "text", "number", "truth", "duration", "money", "rate", "labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSpec:
    """A name that conditions may use. `told`: its meaning with its unit.

    `kind` is the type of its value: text str, number float, truth bool, duration timedelta, money Money, rate Rate, labels
    Mapping[str, str].
    """

    name: str
    kind: str
    told: str


def _index_facts(*rows: tuple[str, str, str]) -> Mapping[str, FactSpec]:
    return {name: FactSpec(name=name, kind=kind, told=description) for name, kind, description in rows}


FACTS: Mapping[str, FactSpec] = _index_facts(
    ("state", TEXT, "activity: warming, active, idle, hung or unknown"),
    ("confidence", NUMBER, "confidence of the activity, 0 to 1"),
    ("time_in_state", DURATION, "time in this activity"),
    ("wasted_share", NUMBER, "share of its GPUs that are idle while it is active, 0 to 1"),
    ("gpu_util", NUMBER, "time in which a kernel ran on its busiest GPU, 0 to 1; missing unless a sample is recent"),
    ("gpu_mem", NUMBER, "memory held on its fullest GPU, 0 to 1; missing unless a sample is recent"),
    ("sm_active", NUMBER, "share of multiprocessors at work on its busiest GPU, 0 to 1; missing unless DCGM measures it"),
    ("power_share", NUMBER, "power of its GPUs by their limit, 0 to 1; missing unless both are measured"),
    ("group", TEXT, "its group, the value of its group label (a cluster, a job array); empty without one"),
    ("group_state", TEXT, "activity of that group; its own activity without a group"),
    ("power", TEXT, "state at the provider: running, stopped, starting, ..."),
    ("stopped_for", DURATION, "time since it was stopped; missing unless it is stopped"),
    ("age", DURATION, "time since it was created"),
    ("uptime", DURATION, "time since its current run started; missing unless it runs"),
    ("lease_left", DURATION, "time until its lease ends; missing without a lease"),
    ("leased", TRUTH, "whether it has a lease"),
    ("lease_over", DURATION, "time since its last lease ended; missing without a lease and during one"),
    ("rate", RATE, "its cost per hour, with its disks; missing if the price is unknown"),
    ("spent_run", MONEY, "low bound of the cost of its current run, with its disks; missing if the price is unknown"),
    ("spent_day", MONEY, "low bound of its cost today, in the default time zone"),
    ("spent_month", MONEY, "low bound of its cost this month, in the default time zone"),
    ("waste", MONEY, "low bound of its cost since it became idle"),
    ("budget_fraction", NUMBER, "spent share of its budget with the least left (1: all); missing without a budget"),
    ("projected_end", NUMBER, "share of that budget that is spent at its period's end at least, nine of ten times"),
    ("time_to_cap", DURATION, "time until that budget is spent at the current burn; missing if it will not be"),
    ("until_label", TEXT, "its until label by the policy: passed, ahead or missing; without match.until_label unknown"),
    ("scheduled_on", TRUTH, "whether it should be on now by the policy's schedule; missing without a schedule"),
    ("provider", TEXT, "aws, gcp, runpod, lambda, vast, ..."),
    ("account", TEXT, "the provider's account"),
    ("region", TEXT, "the provider's region"),
    ("id", TEXT, "the provider's id"),
    ("name", TEXT, "its name"),
    ("kind", TEXT, "instance, volume or address"),
    ("instance_type", TEXT, "the provider's type"),
    ("gpu", TEXT, "canonical name of its GPU, empty without one"),
    ("gpu_count", NUMBER, "how many GPUs; may be a fraction"),
    ("tier", TEXT, "on-demand, spot, reserved, community or secure"),
    ("owner", TEXT, "its owner; empty if unknown"),
    ("labels", LABELS, 'its labels: labels["team"] == "vision", or "team" in labels'),
    ("controller", TEXT, "controller that would start it again; empty without one"),
    ("protected", TRUTH, "whether it is protected"),
    ("disk_gb", NUMBER, "GB of its disks"),
    ("loses", TEXT, "data that a stop would delete; empty if none"),
    ("price_age", DURATION, "age of its price, since its date or last listing; missing if undated"),
    ("runway", DURATION, "time until its account's prepaid balance is spent; missing if unknown"),
)


ACTIVITY_FACTS = frozenset(("state", "confidence", "time_in_state", "wasted_share", "waste", "group_state"))
"""Facts that depend on the activity."""
UTILIZATION_FACTS = ("gpu_util", "gpu_mem", "sm_active", "power_share")
"""Facts with a mean over a window: `gpu_util.mean("2h")`. They are measured, and say nothing of whether it is idle."""
MEAN_LEAST, MEAN_MOST = timedelta(minutes=5), timedelta(hours=48)
"""The windows of means: a few samples at least, and no longer than single samples are kept (`SAMPLE_LOOKBACK`)."""
MEAN_PATTERN = re.compile(r'(\w+)\.mean\("(\d+)([hms])"\)')
MEAN_UNITS = {"h": 3600, "m": 60, "s": 1}


def name_mean(fact: str, window: timedelta) -> str:
    """Return the name of the mean of `fact` over `window` of whole seconds, in its largest unit: `gpu_util.mean("90m")`."""
    seconds = int(window.total_seconds())
    unit = next(unit for unit, size in MEAN_UNITS.items() if seconds % size == 0)
    return f'{fact}.mean("{seconds // MEAN_UNITS[unit]}{unit}")'


@lru_cache(maxsize=1000)
def split_mean(name: str) -> tuple[str, timedelta | None]:
    """Return the fact and the window of a name that `name_mean` made; (`name`, None) for any other."""
    match = MEAN_PATTERN.fullmatch(name)
    return (match[1], timedelta(seconds=int(match[2]) * MEAN_UNITS[match[3]])) if match else (name, None)


def find_fact(name: str) -> FactSpec | None:
    """Return the fact `name`, also a mean; None: there is none of that name."""
    fact, window = split_mean(name)
    spec = FACTS.get(fact)
    if spec is None or window is None:
        return spec
    about = f"the mean of {fact} over this time; missing unless samples cover half of it"
    return FactSpec(name=name, kind=NUMBER, told=about) if fact in UTILIZATION_FACTS else None


def select_utilization(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of `names` that are of UTILIZATION_FACTS or means of them, sorted."""
    return tuple(sorted(name for name in names if split_mean(name)[0] in UTILIZATION_FACTS))


def select_measured(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of `names` that rest on samples: the activity and the utilisation, sorted."""
    return tuple(sorted(name for name in names if name in ACTIVITY_FACTS or split_mean(name)[0] in UTILIZATION_FACTS))
