"""A look at the clouds before an answer is given: one round of polls into the ledger, unless there was one just now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from costguard.app.clouds import Now, Unopened, opened, sources_of
from costguard.app.kept import FileCache
from costguard.core.metering.inventory import FAILED
from costguard.core.metering.resource import ScopeKey
from costguard.data import MARKET, Facts
from costguard.errors import CostguardError, InputError, one_line
from costguard.ledger.market import Market
from costguard.ledger.market_refresh import newest_market
from costguard.ledger.reading import Books
from costguard.ports import InstanceSource
from costguard.settings import Settings, cache_file, ledger_url, path_of

JUST_NOW = timedelta(seconds=60)
"""A scope that was asked less long ago is not asked again: machines are billed by the second, and nobody reads faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What came of it beside what the ledger now holds. `refused`: what could not be asked or recorded, a sentence each.

    `notes`: what whole listings could not tell.
    """

    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """All of it."""
        return (*self.refused, *self.notes)


def look(settings: Settings) -> Looked:
    """Poll what is configured into the ledger, and say what could not be asked and what could not be learned.

    InputError where two accounts of the settings are one: which of them stays is for a person to say.
    """
    from costguard.flows.poll import poll
    from costguard.ledger.writing import Ledger

    url, rules, last = ledger_url(settings), Facts().billing_rules(), LastRound(settings)
    with opened(settings) as clouds:
        sources, now = sources_of(clouds), Now().now()
        notes = last.notes(now - JUST_NOW)
        if not sources or (notes is not None and asked_just_now(url, sources, now)):
            refused = tuple("; ".join(str(cloud.error).splitlines()) for cloud in clouds if cloud.error)
            return Looked(refused=refused, notes=notes or ())
        with Ledger(url, rules=rules, ceilings=ceilings(settings)) as ledger:
            polled = poll(sources, ledger, Now())
    if polled.twins:
        hint = "take one of the two out of the settings: both would be charged"
        raise InputError("; ".join(polled.twins), field="providers", hint=hint)
    if not polled.refused:
        last.keep(polled.notes)
    return Looked(refused=polled.refused, notes=polled.notes)


class LastRound:
    """The notes of the last round over these very settings in which nobody was refused; what else it found, the ledger holds.

    Where they cannot be kept, the next command asks again.
    """

    def __init__(self, settings: Settings) -> None:
        asked = repr((ledger_url(settings), sorted(settings.providers.items()), settings.network))
        self._cache, self._name = FileCache(cache_file("rounds")), sha256(asked.encode()).hexdigest()

    def notes(self, youngest: datetime) -> tuple[str, ...] | None:
        """Its notes; None where there was none at or after `youngest`."""
        kept = self._cache.get(self._name, youngest)
        return None if kept is None else tuple(kept.decode(errors="replace").splitlines())

    def keep(self, notes: Sequence[str]) -> None:
        """Remember that there was one, just now."""
        self._cache.put(self._name, "\n".join(map(one_line, notes)).encode(errors="replace"))


def ceilings(settings: Settings) -> dict[str, int]:
    """Canonical GPU -> nano-dollars an hour that one is taken to cost at most, from the market that quotes use."""
    stated = settings.quote.market
    with Market(path_of(stated) if stated else newest_market(MARKET, cache_file("market.sqlite"))) as market:
        return market.ceilings()


def asked_just_now(url: str, sources: Sequence[InstanceSource], now: datetime) -> bool:
    """Whether every scope that the ledger knows of these answered within JUST_NOW, and there is one of each provider.

    One that failed is asked again: whoever mended the key wants to see it.

    A provider that cannot be opened has none to ask: it counts only for the scopes that are known of it.
    """
    try:
        with Books(url, rules={}) as books:
            asked = {scope.scope: None if scope.outcome == FAILED else scope.at for scope in books.scopes()}
    except CostguardError:
        return False  # there is none yet, or it has to be brought up first: whoever writes says so
    return all(_asked(source, asked, now) for source in sources)


def _asked(source: InstanceSource, asked: Mapping[ScopeKey, datetime | None], now: datetime) -> bool:
    """`asked`: None for a scope that failed."""
    names: Collection[str] = set(source.providers)
    times = [at for scope, at in asked.items() if scope.provider in names]
    recent = all(at is not None and timedelta(0) <= now - at < JUST_NOW for at in times)
    return recent and (bool(times) or isinstance(source, Unopened))
