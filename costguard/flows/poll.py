"""Poll: ask every provider what it has, and hand the answers to the ledger.

A provider that fails is itself a fact, and never stops the others: its scopes are recorded as not seen. Where a listing
lacks more than half of what was there, each that is missing is looked up by itself before anything is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from costguard.core.metering.accrued import Accrued
from costguard.core.metering.inventory import Failed, Partial, Poll
from costguard.core.metering.observation import Observation
from costguard.core.metering.resource import ResourceKey
from costguard.errors import CostguardError
from costguard.ports import Inspector, InstanceSource, Ledger

LOOKED_UP = 100
"""Single look-ups of one poll: with more missing at once, the listing is wrong or the account is, and a rate limit is near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """What one round of polls came to."""

    accrued: tuple[Accrued, ...]

    @property
    def unseen(self) -> tuple[Accrued, ...]:
        """Scopes that were not seen completely."""
        return tuple(one for one in self.accrued if one.fresh and one.outcome != "complete")


def poll(sources: Iterable[InstanceSource], ledger: Ledger) -> Polled:
    """One round over every scope of every source, a transaction a source."""
    return Polled(accrued=tuple(one for source in sources for one in ledger.record(list(_polls(source, ledger)))))


def _polls(source: InstanceSource, ledger: Ledger) -> Iterator[Poll]:
    for scope in source.scopes():
        answer = source.poll(scope)
        missing = ledger.suspects(answer)
        yield looked_up(answer, missing, source) if missing and isinstance(source, Inspector) else answer


def looked_up(answer: Poll, missing: Iterable[ResourceKey], source: Inspector) -> Poll:
    """`answer` with what single look-ups say of the missing. One that is there after all makes the listing partial."""
    gone, there = set[ResourceKey](), list[Observation]()
    for key in list(missing)[:LOOKED_UP]:
        try:
            found = source.look(key)
        except CostguardError:
            continue  # unknown stays unknown: it is neither gone nor there
        if found is None:
            gone.add(key)
        else:
            there.append(found)
    if not there or isinstance(answer.inventory, Failed):
        return replace(answer, gone=frozenset(gone))
    why = f"the listing lacks {len(there)} that answer by themselves"
    items = (*answer.inventory.items, *there)
    return replace(answer, inventory=Partial(items, why), gone=frozenset(gone))
