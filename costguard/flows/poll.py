"""Poll: ask every provider what it has, and hand the answers to the ledger.

A provider that fails is itself a fact, and never stops the others: its scopes are recorded as not seen, whether it answered
so or broke. Where a listing lacks more than half of what was there, each that is missing is looked up by itself before
anything is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from costguard.core.metering.accrued import Accrued
from costguard.core.metering.inventory import AHEAD, COMPLETE, Failed, Partial, Poll
from costguard.core.metering.observation import Observation
from costguard.core.metering.resource import ResourceKey, ScopeKey
from costguard.errors import CostguardError
from costguard.ports import Clock, Inspector, InstanceSource, Ledger

LOOKED_UP = 100
"""Single look-ups of one poll: with more missing at once, the listing is wrong or the account is, and a rate limit is near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """What one round of polls came to. `refused`: what was not recorded at all, a sentence each."""

    accrued: tuple[Accrued, ...]
    refused: tuple[str, ...] = ()

    @property
    def unseen(self) -> tuple[Accrued, ...]:
        """Scopes that were not seen completely; those whose poll lies not after their last one, and was dropped, too."""
        return tuple(one for one in self.accrued if one.outcome != COMPLETE)


def poll(sources: Iterable[InstanceSource], ledger: Ledger, clock: Clock) -> Polled:
    """One round over every scope of every source, a transaction a source. `clock` dates what broke.

    A poll dated ahead of `clock` is refused: once recorded, it would make the ledger ignore every other until then.
    """
    accrued, refused = list[Accrued](), list[str]()
    for source in sources:
        polls = list[Poll]()
        for found in _polls(source, ledger, clock):
            if isinstance(found, Poll):
                polls.append(found)
            else:
                refused.append(found)
        accrued += ledger.record(polls)
    return Polled(accrued=tuple(accrued), refused=tuple(refused))


def _polls(source: InstanceSource, ledger: Ledger, clock: Clock) -> Iterator[Poll | str]:
    """A poll of each scope, or why there is none."""
    try:
        scopes = tuple(source.scopes())
    except Exception as broken:  # noqa: BLE001 - a plug-in may raise anything, and stops no other
        why = f"its scopes cannot be listed: {_told(broken)}"
        yield from _failed(source, ledger, clock, why)
        return
    for scope in scopes:
        answer = _answer(source, scope, clock)
        now = clock.now()
        if answer.seen_at > now + AHEAD:
            name, dated = "/".join(scope), f"{answer.seen_at:%Y-%m-%d %H:%M} UTC"
            yield f"{name}: its listing is dated {dated}, ahead of this clock ({now:%Y-%m-%d %H:%M} UTC): not recorded"
            continue
        missing = ledger.suspects(answer)
        yield looked_up(answer, missing, source) if missing and isinstance(source, Inspector) else answer


def _failed(source: InstanceSource, ledger: Ledger, clock: Clock, why: str) -> Iterator[Poll | str]:
    """Every scope that the ledger knows of the providers of `source`, as not seen; where it knows of none, a sentence."""
    known = [scope for provider in source.providers for scope in ledger.scopes_of(provider)]
    if not known:
        yield f"{', '.join(source.providers)}: {why}"
    for scope in known:
        yield Poll(scope=scope, at=clock.now(), inventory=Failed(why))


def _answer(source: InstanceSource, scope: ScopeKey, clock: Clock) -> Poll:
    try:
        return source.poll(scope)
    except Exception as broken:  # noqa: BLE001 - a plug-in may raise anything, and stops no other
        return Poll(scope=scope, at=clock.now(), inventory=Failed(_told(broken)))


def _told(broken: Exception) -> str:
    """What to say of `broken` on one line. The words of an unexpected one are left out: they may hold a secret."""
    if isinstance(broken, CostguardError):
        return "; ".join(str(broken).splitlines())
    return f"unexpected {type(broken).__name__}"


def looked_up(answer: Poll, missing: Iterable[ResourceKey], source: Inspector) -> Poll:
    """`answer` with what single look-ups say of the missing. One that is there after all makes the listing partial."""
    gone, there = set[ResourceKey](), list[Observation]()
    for key in list(missing)[:LOOKED_UP]:
        try:
            found = source.look(key)
        except Exception:  # noqa: BLE001, S112 - a plug-in may raise anything
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
