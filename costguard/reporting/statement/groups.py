"""Cost groups that add up to the total to the nano-unit.

Example: by provider and owner, $12.00 of aws/ada and $3.50 of vast/bob are two groups of a total of $15.50. Currencies are
never added: each has sums of its own, US dollars first.

Attributes that the ledger stores with each amount (`LEDGER_KEYS`) are those of the time of billing. Attributes of a resource
(`RESOURCE_KEYS`, and labels outside of `GROUPED_LABELS`) are those last seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

from costguard.budgets.budget import ResourceFilter, matches_filter
from costguard.metering.meter import COMPUTE
from costguard.metering.spending import BilledResource, Spending
from costguard.reporting.statement.waste import Waste, add_wastes
from costguard.values.checks import describe_value, require, require_one_of
from costguard.values.money import Money, MoneyInterval, sum_intervals
from costguard.values.resource import GROUPED_LABELS, INSTANCE, Attribution

DEFAULT_GROUP_KEYS = ("provider", "account", "owner", "gpu")
LABEL_PREFIX = "label:"
LONGEST_LABEL_KEY = 300
"""Characters of a label's key: no cloud takes more."""


class CostPart(Protocol):
    """A part to be grouped: money, or waste."""

    @property
    def attribution(self) -> Attribution:
        """Return its attribution at the time of billing."""

    @property
    def charge(self) -> str:
        """Return the kind of charge."""

    @property
    def bearer(self) -> BilledResource | None:
        """Return its resource; None if resources are not distinguished."""


LEDGER_KEYS: Mapping[str, Callable[[CostPart], str]] = {
    "provider": lambda s: s.attribution.provider,
    "account": lambda s: s.attribution.account,
    "region": lambda s: s.attribution.region,
    "kind": lambda s: s.attribution.kind,
    "charge": lambda s: s.charge,
    "gpu": lambda s: s.attribution.gpu,
    "instance_type": lambda s: s.attribution.instance_type,
    "tier": lambda s: s.attribution.tier,
    "owner": lambda s: s.attribution.owner,
}
"""What the ledger keeps with each amount, beside the labels of `GROUPED_LABELS`."""

RESOURCE_KEYS: Mapping[str, Callable[[BilledResource], str]] = {
    "resource": lambda of: "/".join(of.key),
    "name": lambda of: of.name,
    "job": lambda of: of.job,
}
"""What is known of each resource. A job is a group of machines that work together ([defaults] group_from)."""

GROUP_KEYS = (*LEDGER_KEYS, *GROUPED_LABELS, *RESOURCE_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostGroup:
    """The cost of one group. `by`: its keys with their values, "" for a missing value.

    `us`: microseconds that instances probably ran, summed over instances; `gpu_milli_us`: the same, each times a thousand times
    its GPUs. Disks, addresses and traffic have money here and no time. `unknown`: the part of `money` whose price nobody
    states, None if there is none; `unpriced`: the part of that of which only an upper bound is known. `computing`: the expected
    compute cost. `waste`: the judged and the wasted part of it; None: nothing could be judged. `before`: the expected cost of
    the same group in the period before; None: not requested.
    """

    by: Mapping[str, str]
    money: MoneyInterval
    us: int
    gpu_milli_us: int
    unknown: MoneyInterval | None = None
    unpriced: MoneyInterval | None = None
    computing: int = 0
    waste: Waste | None = None
    before: Money | None = None

    @property
    def judged_share(self) -> Fraction | None:
        """Return the share of the compute cost with known activity; None: no compute cost."""
        return Fraction(self.waste.judged if self.waste else 0, self.computing) if self.computing else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrencySums:
    """The total of one currency, and the groups that add up to it, the highest cost first."""

    total: MoneyInterval
    groups: tuple[CostGroup, ...] = ()

    @property
    def currency(self) -> str:
        """Return the ISO 4217 code."""
        return self.total.low.currency

    @property
    def computing(self) -> int:
        """Return the expected compute cost in nano-units."""
        return sum(group.computing for group in self.groups)

    @property
    def waste(self) -> Waste | None:
        """Return the waste of all groups; None: nothing could be judged."""
        return add_wastes(group.waste for group in self.groups if group.waste)

    @property
    def judged_share(self) -> Fraction | None:
        """Return the share of the compute cost with known activity; None: no compute cost."""
        return Fraction(self.waste.judged if self.waste else 0, self.computing) if self.computing else None


def sum_by_currency(
    spending: Iterable[Spending], by: Sequence[str], wastes: Iterable[Waste] = ()
) -> tuple[CurrencySums, tuple[CurrencySums, ...]]:
    """Return the sums in US dollars, and those of every other currency, ordered by code."""
    by_currency: dict[str, list[Spending]] = defaultdict(list)
    for part in spending:
        by_currency[part.money.low.currency].append(part)
    wasted: dict[str, list[Waste]] = defaultdict(list)
    for waste in wastes:
        wasted[waste.currency].append(waste)
    usd = _group_currency(by_currency.pop("USD", []), by, "USD", wasted["USD"])
    return usd, tuple(_group_currency(parts, by, currency, wasted[currency]) for currency, parts in sorted(by_currency.items()))


def sum_unallocated(
    spending: Iterable[Spending], match: ResourceFilter, by: Sequence[str]
) -> tuple[tuple[str, MoneyInterval], ...]:
    """Return the spending that has no owner (or label) where the report is about owners (or that label), dollars first.

    A pair for each key and currency: what a report of one owner leaves out, and everybody's machines may be a part of.
    """
    keys = [key for key, _ in match.labels or ()] + (["owner"] if match.owners is not None else [])
    sums: dict[tuple[str, str], MoneyInterval] = {}
    parts = list(spending)
    for key in keys or [one for one in by if one == "owner" or one in GROUPED_LABELS]:
        labels = tuple((name, values) for name, values in match.labels or () if name != key) or None
        other = replace(match, owners=None if key == "owner" else match.owners, labels=labels)
        for part in parts:
            if not get_group_value(part, key) and matches_filter(other, part.attribution) and part.money.high.nano:
                place = (key, part.money.low.currency)
                sums[place] = sums[place].add(part.money) if place in sums else part.money
    return tuple((key, sums[key, currency]) for key, currency in sorted(sums, key=lambda one: (one[1] != "USD", one)))


def parse_group_keys(text: str | None) -> tuple[str, ...]:
    """Parse `--by`, such as "provider,label:run"; duplicates are dropped. None: the default keys.

    The key of a label is taken as written.
    """
    if text is None:
        return DEFAULT_GROUP_KEYS
    names = [name.strip() for name in text.split(",") if name.strip()]
    hint = f"write some of: {', '.join(GROUP_KEYS)}, label:KEY"
    require(bool(names), "--by", "is empty", hint)
    return tuple(dict.fromkeys(_parse_group_key(name, hint) for name in names))


def needs_resources(by: Sequence[str]) -> bool:
    """Return whether these keys need attributes of single resources."""
    return any(key not in LEDGER_KEYS and key not in GROUPED_LABELS for key in by)


def get_group_value(part: CostPart, key: str) -> str:
    """Return the value of `part` for `key`, "" if there is none."""
    if key in LEDGER_KEYS:
        return LEDGER_KEYS[key](part)
    if key in GROUPED_LABELS:
        return dict(part.attribution.labels).get(key, "")
    if part.bearer is None:
        return ""
    return (
        RESOURCE_KEYS[key](part.bearer)
        if key in RESOURCE_KEYS
        else _get_label(part.bearer.labels, key.removeprefix(LABEL_PREFIX))
    )


def _parse_group_key(name: str, hint: str) -> str:
    kind, separator, key = name.partition(":")
    if separator and f"{kind.lower()}:" == LABEL_PREFIX:
        key = key.strip()
        require(
            0 < len(key) <= LONGEST_LABEL_KEY,
            "--by",
            f"names no label: {describe_value(name)}",
            "write label:KEY, as label:run",
        )
        return key.lower() if key.lower() in GROUPED_LABELS else f"{LABEL_PREFIX}{key}"
    if separator:
        require(truth=False, field="--by", what=f"knows no {describe_value(name)}", hint=hint)
    return require_one_of(name.lower(), (*GROUP_KEYS, "label:KEY"), "--by")


def _get_label(labels: Sequence[tuple[str, str]], key: str) -> str:
    """Return the label `key`; if there is none with that spelling, one that differs only in case."""
    exact = next((value for name, value in labels if name == key), None)
    return exact if exact is not None else next((v for name, v in labels if name.casefold() == key.casefold()), "")


def _group_currency(parts: Sequence[Spending], by: Sequence[str], currency: str, wastes: Sequence[Waste]) -> CurrencySums:
    gathered: dict[tuple[str, ...], list[Spending]] = defaultdict(list)
    for part in parts:
        if part.us or part.money.high.nano:
            gathered[tuple(get_group_value(part, key) for key in by)].append(part)
    wasted: dict[tuple[str, ...], list[Waste]] = defaultdict(list)
    for waste in wastes:
        wasted[tuple(get_group_value(waste, key) for key in by)].append(waste)
    groups = [
        _build_group(dict(zip(by, values, strict=True)), own, currency, wasted.get(values, []))
        for values, own in sorted(gathered.items())
    ]
    groups.sort(key=lambda g: (-g.money.expected.nano, -g.money.high.nano))
    return CurrencySums(total=sum_intervals((g.money for g in groups), currency), groups=tuple(groups))


def _build_group(by: Mapping[str, str], parts: Sequence[Spending], currency: str, wastes: Sequence[Waste]) -> CostGroup:
    computing = [part for part in parts if part.charge == COMPUTE]
    guessed = [part.money for part in parts if not part.known]
    unpriced = [part.money for part in parts if part.unpriced]
    return CostGroup(
        by=by,
        money=sum_intervals((part.money for part in parts), currency),
        us=sum(part.us for part in computing),
        gpu_milli_us=sum(part.us * round(part.attribution.gpu_count * 1000) for part in computing),
        unknown=sum_intervals(guessed, currency) if guessed else None,
        unpriced=sum_intervals(unpriced, currency) if unpriced else None,
        computing=sum(part.money.expected.nano for part in computing if part.attribution.kind == INSTANCE),
        waste=add_wastes(wastes),
    )
