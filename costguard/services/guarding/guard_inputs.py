"""Inputs of a guard run besides the ledger: settings, lags of measurements, price ceilings, and the last listings.

`watch`, `plan`, `status`, `top` and `simulate` all take the lags from here: no account is opened, so they are known offline and
for providers that the settings no longer name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from costguard.errors import CostguardError
from costguard.guard.alerts.alert import is_admin_route
from costguard.guard.context import GuardConfig
from costguard.guard.policy import Policy, Rails
from costguard.guard.reach import compute_reach, describe_reach
from costguard.metering.observation import Handling, Observation
from costguard.metering.price_ladder import PriceLadder
from costguard.metering.spending import LiveResource
from costguard.providers import plugins
from costguard.providers.ports import InstanceSource, UtilizationSource
from costguard.quoting.offer import Offer, OfferSelection
from costguard.settings import Settings
from costguard.settings.notify import CONSOLE_CHANNEL, is_journal
from costguard.values.agent import Agent
from costguard.values.money import PrepaidBalance
from costguard.values.resource import ResourceKey, ScopeKey

if TYPE_CHECKING:  # a type and no more: whoever asks for no price opens no market
    from costguard.ledger.market import MarketReader


def build_guard_config(settings: Settings, interval: timedelta | None = None) -> GuardConfig:
    """Build the guard's configuration from the settings."""
    names = {CONSOLE_CHANNEL, *(name for route in settings.routes for name in route.channels)}
    journals = frozenset() if settings.console_is_delivery else frozenset(name for name in names if is_journal(name))
    return GuardConfig(
        admin_route=any(is_admin_route(route) and not journals.issuperset(route.channels) for route in settings.routes)
        or (settings.console_is_delivery and not settings.routes),
        journals=journals,
        policies=settings.policies,
        budgets=settings.budgets,
        rails=settings.rails or Rails(),
        owner_from=settings.defaults.owner_from,
        group_from=settings.defaults.group_from,
        protect=settings.defaults.protect,
        zone=settings.defaults.zone,
        interval=interval or settings.watch.every,
        claims=settings.watch.claims,
        ownerless=frozenset(name for name, one in plugins.load_providers().found.items() if not one.manifest.names_owners),
        hooks=settings.hooks,
    )


def read_measurement_lags() -> Mapping[str, timedelta]:
    """Return provider -> least age of its newest measurement; 0 if measurements come with the listing."""
    return {name: one.manifest.measures_late for name, one in plugins.load_providers().found.items()}


def read_price_ceilings(settings: Settings) -> dict[str, int]:
    """Return canonical GPU -> highest price of one in nano-dollars an hour, from the market that quotes use."""
    with _open_market(settings) as market:
        return market.load_price_ceilings()


def _open_market(settings: Settings) -> MarketReader:
    from costguard.data import MARKET  # whoever holds it as a function rarely needs it
    from costguard.ledger.market import MarketReader, select_newest_market
    from costguard.settings import expand_path, get_cache_path

    stated = settings.quote.market
    return MarketReader(expand_path(stated) if stated else select_newest_market(MARKET, get_cache_path("market.sqlite")))


def open_price_ladder(settings: Settings, ceilings: Mapping[str, int]) -> PriceLadder:
    """Return the ladder that estimates prices which listings do not state, from the market that quotes use.

    The market is read when a listing lacks a price, so that a refreshed one counts at once: 5 ms a GPU. `ceilings`: of
    `read_price_ceilings`.
    """
    from costguard.data import ShippedFacts

    facts = ShippedFacts()
    return PriceLadder(
        drift=facts.get_price_drift(),
        find_offers=partial(_list_offers, settings),
        rates=facts.get_machine_rates(),
        ceilings=ceilings,
    )


def _list_offers(settings: Settings, gpu: str) -> Sequence[Offer]:
    """Return the market's offers of one canonical GPU; none if the file cannot be read now, which must not stop a poll."""
    try:
        with _open_market(settings) as market:
            return tuple(market.list_offers(OfferSelection(gpus=(gpu,))))
    except CostguardError:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResults:
    """Data of the last listings that the ledger does not store, and the source of each scope. No field has a default.

    `balances`: of prepaid accounts, as last fetched. `members`: resources started by controllers, ended ones too. `lags`: by
    provider; a missing one is 0. `measures`: sources of samples besides the providers. `agents`: those that may report.
    """

    handling: Mapping[ResourceKey, Handling]
    sources: Mapping[ScopeKey, InstanceSource]
    balances: tuple[PrepaidBalance, ...]
    members: tuple[Observation, ...]
    lags: Mapping[str, timedelta]
    measures: tuple[UtilizationSource, ...]
    agents: tuple[Agent, ...]

    def find_source(self, key: ResourceKey, scope: ScopeKey | None) -> InstanceSource | None:
        """Return the source to query about `key`, listed in `scope`; None: any scope of its account."""
        if scope is not None:
            return self.sources.get(scope)
        return next((source for one, source in self.sources.items() if one[:2] == key[:2]), None)


def describe_machines(
    settings: Settings, policies: Sequence[Policy], live: Iterable[LiveResource], agents: frozenset[ResourceKey]
) -> list[str]:
    """Return sentences on how many of the machines `live` each acting policy can act on, and what prevents it on the others.

    `agents`: the machines with an agent.
    """
    measures = {name: one.manifest.measures for name, one in plugins.load_providers().found.items()}
    owner_from, machines = settings.defaults.owner_from, list(live)
    return [
        sentence
        for policy in policies
        for sentence in describe_reach(
            policy, compute_reach(policy, machines, measures=measures, agents=agents, owner_from=owner_from)
        )
    ]
