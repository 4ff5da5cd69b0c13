"""The names that conditions may use, with their kind and meaning: one table, from which settings, docs and errors come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    ("state", TEXT, "state of work: warming, active, idle, hung or unknown"),
    ("confidence", NUMBER, "confidence of the state of work, 0 to 1"),
    ("time_in_state", DURATION, "how long it has been in that state of work"),
    ("wasted_share", NUMBER, "share of its GPUs that do nothing while it is active, 0 to 1"),
    ("group", TEXT, "the group it works in, by its label's value: a cluster, a job array; empty for none"),
    ("group_state", TEXT, "state of work of that group; of a machine in none its own"),
    ("power", TEXT, "the provider's state in our words: running, stopped, starting, ..."),
    ("stopped_for", DURATION, "how long it has been stopped; missing unless it is"),
    ("age", DURATION, "since it was created"),
    ("uptime", DURATION, "since its present run started; missing unless it runs"),
    ("lease_left", DURATION, "how long its lease goes on; missing without one"),
    ("leased", TRUTH, "whether it has a lease"),
    ("lease_over", DURATION, "since its last lease ended; missing without one, and while one holds"),
    ("rate", RATE, "what it burns an hour, with its disks; missing where the price is unknown"),
    ("spent_run", MONEY, "what its present run certainly cost so far, its disks too; missing where its price is unknown"),
    ("spent_day", MONEY, "what it certainly cost today, in the zone of the defaults"),
    ("spent_month", MONEY, "what it certainly cost this month, in the zone of the defaults"),
    ("waste", MONEY, "what it certainly cost since it became idle"),
    ("budget_fraction", NUMBER, "spent share of the tightest budget it counts in, 1 is all of it; missing without a budget"),
    ("projected_end", NUMBER, "forecast share of that budget at its period's end"),
    ("time_to_cap", DURATION, "until that budget is spent at the present burn; missing where it will not be"),
    ("scheduled_on", TRUTH, "whether the policy's schedule wants it on now; missing without a schedule"),
    ("provider", TEXT, "aws, gcp, runpod, lambda, vast, ..."),
    ("account", TEXT, "the provider's account"),
    ("region", TEXT, "the provider's region"),
    ("id", TEXT, "the provider's id"),
    ("name", TEXT, "what its owner calls it"),
    ("kind", TEXT, "instance, volume or address"),
    ("instance_type", TEXT, "the provider's type"),
    ("gpu", TEXT, "canonical name of its GPU, empty without one"),
    ("gpu_count", NUMBER, "how many GPUs; may be a fraction"),
    ("tier", TEXT, "on-demand, spot, reserved, community or secure"),
    ("owner", TEXT, "whose it is; empty where unknown"),
    ("labels", LABELS, 'its labels: labels["team"] == "vision", or "team" in labels'),
    ("controller", TEXT, "who would start it again; empty for nobody"),
    ("protected", TRUTH, "whether it is protected"),
    ("disk_gb", NUMBER, "GB of its disks"),
    ("loses", TEXT, "what a stop would lose for good, in words; empty for nothing"),
    ("price_age", DURATION, "how old its price is: since it was dated, or last listed; missing if undated"),
    ("runway", DURATION, "until its account's prepaid balance is gone; missing where that is not known"),
)
