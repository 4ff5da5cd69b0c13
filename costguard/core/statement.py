"""A statement: what a period cost, in groups that add up to its total to the nano-unit.

Example: by provider and owner, $12.00 of aws/ada and $3.50 of vast/bob are two groups of a total of $15.50. Currencies are
never added: each has sums of its own, US dollars first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from costguard.core.checks import described, one_of, require
from costguard.core.coverage import Unseen
from costguard.core.instant import EARLIEST, LATEST
from costguard.core.metering.meter import COMPUTE
from costguard.core.metering.resource import GROUPED_LABELS, ScopeKey
from costguard.core.money import Money, MoneyInterval
from costguard.core.period import Period
from costguard.core.spending import ScopeNow, Spending

DEFAULT_BY = ("provider", "account", "owner", "gpu")

READ: Mapping[str, Callable[[Spending], str]] = {
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
"""What spending can be grouped by, beside the labels of `GROUPED_LABELS`."""

BY = (*READ, *GROUPED_LABELS)
MONTH = re.compile(r"(\d{4})-(\d{2})", re.ASCII)
MONTHS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What one group cost. `by`: its keys with their values, "" where nobody stated one.

    `us`: microseconds that instances probably computed, summed over instances; `gpu_milli_us`: the same, each times a
    thousand times its GPUs. Disks, addresses and traffic have money here and no time. `unknown`: the part of `money` whose
    price nobody stated, None where there is none.
    """

    by: Mapping[str, str]
    money: MoneyInterval
    us: int
    gpu_milli_us: int
    unknown: MoneyInterval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """One currency: the total, and the groups that add up to it, dearest first."""

    total: MoneyInterval
    groups: tuple[Group, ...] = ()

    @property
    def currency(self) -> str:
        """ISO 4217."""
        return self.total.low.currency


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What `report` says of `period`, named `label` in the time zone `zone`, as known at `as_of`.

    `not_modelled`: for each provider that the period has to do with, what its billing rule leaves out. `unseen`: the scopes
    that were not seen completely all through. `scopes`: how many there are. `misdated`: those whose last poll lies ahead of
    `as_of`, since a wrong clock dated it.
    """

    period: Period
    label: str
    zone: str
    as_of: datetime
    by: tuple[str, ...]
    usd: Sums
    others: tuple[Sums, ...] = ()
    not_modelled: tuple[tuple[str, str], ...] = ()
    unseen: tuple[Unseen, ...] = ()
    scopes: int = 0
    misdated: tuple[ScopeNow, ...] = ()

    @property
    def ahead(self) -> bool:
        """Whether all of the period lies in the future."""
        return self.period.start > self.as_of

    @property
    def running(self) -> bool:
        """Whether the period has begun and not ended."""
        return self.period.start <= self.as_of < self.period.end

    @property
    def incomplete(self) -> bool:
        """Whether something that has passed was not looked at: a scope, or everything where the ledger knows of none."""
        return not self.ahead and (self.scopes == 0 or bool(self.unseen))

    @property
    def blank(self) -> bool:
        """Whether the ledger holds nothing of the part that has passed: no spending, and no scope was seen in it."""
        spent = any(sums.groups for sums in (self.usd, *self.others))
        return not self.ahead and not spent and len(self.unseen) == self.scopes and all(u.never for u in self.unseen)


def sums_of(spending: Iterable[Spending], by: Sequence[str]) -> tuple[Sums, tuple[Sums, ...]]:
    """The sums in US dollars, and those of every other currency by its code."""
    by_currency: dict[str, list[Spending]] = defaultdict(list)
    for part in spending:
        by_currency[part.money.low.currency].append(part)
    usd = _sums(by_currency.pop("USD", []), by, "USD")
    return usd, tuple(_sums(parts, by, currency) for currency, parts in sorted(by_currency.items()))


def total_of(parts: Iterable[MoneyInterval], currency: str = "USD") -> MoneyInterval:
    """The sum of `parts`, zero where there are none. All must be of `currency`."""
    total = nothing(currency)
    for part in parts:
        total = total.plus(part)
    return total


def nothing(currency: str = "USD") -> MoneyInterval:
    """Zero, three times."""
    zero = Money(nano=0, currency=currency)
    return MoneyInterval(low=zero, expected=zero, high=zero)


def keys_stated(text: str | None) -> tuple[str, ...]:
    """The keys of `--by`, as "provider,owner"; each once. None: the usual ones."""
    if text is None:
        return DEFAULT_BY
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    require(bool(names), "--by", "names nothing to group by", f"write some of: {', '.join(BY)}")
    return tuple(dict.fromkeys(one_of(name, BY, "--by") for name in names))


def month_stated(text: str) -> tuple[int, int]:
    """(year, month) of "2026-10"."""
    found = MONTH.fullmatch(text.strip())
    hint = "write --month 2026-10"
    require(found is not None, "--month", f"must be a year and a month, not {described(text)}", hint)
    year, month = (int(part) for part in found.groups()) if found else (0, 0)
    require(1 <= month <= MONTHS, "--month", f"there is no month {month:02d} in {described(text)}", "write 01 to 12")
    known = EARLIEST.year <= year < LATEST.year
    require(known, "--month", f"lies not between {EARLIEST.year} and {LATEST.year - 1}: {described(text)}", hint)
    return year, month


def providers_of(spending: Iterable[Spending], scopes: Iterable[ScopeKey]) -> tuple[str, ...]:
    """Every provider with spending or a scope, by name."""
    return tuple(sorted({*(s.attribution.provider for s in spending), *(scope.provider for scope in scopes)}))


def _sums(parts: Sequence[Spending], by: Sequence[str], currency: str) -> Sums:
    gathered: dict[tuple[str, ...], list[Spending]] = defaultdict(list)
    for part in parts:
        if part.us or part.money.high.nano:
            gathered[tuple(_value(part, key) for key in by)].append(part)
    groups = [_group(dict(zip(by, values, strict=True)), own, currency) for values, own in sorted(gathered.items())]
    groups.sort(key=lambda g: (-g.money.expected.nano, -g.money.high.nano))
    return Sums(total=total_of((g.money for g in groups), currency), groups=tuple(groups))


def _value(part: Spending, key: str) -> str:
    return READ[key](part) if key in READ else dict(part.attribution.labels).get(key, "")


def _group(by: Mapping[str, str], parts: Sequence[Spending], currency: str) -> Group:
    computing = [part for part in parts if part.charge == COMPUTE]
    guessed = [part.money for part in parts if not part.known]
    return Group(
        by=by,
        money=total_of((part.money for part in parts), currency),
        us=sum(part.us for part in computing),
        gpu_milli_us=sum(part.us * round(part.attribution.gpu_count * 1000) for part in computing),
        unknown=total_of(guessed, currency) if guessed else None,
    )
