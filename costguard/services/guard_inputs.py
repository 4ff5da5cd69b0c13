"""What the settings say to the guard.

How late the measures of each provider come, as its manifest says: the same for every command, whoever is asked now.

`watch`, `plan`, `status`, `top` and `simulate` all take it from here. It opens no account and asks nobody, so it holds offline
too, and for machines that the ledger knows of a provider which the settings name no more.

What a GPU is taken to cost at most, where nobody states a price or it moves by itself.

What a guard run is told beside the ledger: what listings say that is not kept, who can be asked, measures, may speak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from costguard.guard.context import GuardConfig
from costguard.guard.policy import Rails
from costguard.metering.observation import Handling, Observation
from costguard.providers import plugins
from costguard.providers.ports import InstanceSource, UtilizationSource
from costguard.settings import Settings
from costguard.values.agent import Agent
from costguard.values.money import PrepaidBalance
from costguard.values.resource import ResourceKey, ScopeKey


def build_guard_config(settings: Settings, interval: timedelta | None = None) -> GuardConfig:
    """What the settings say to the guard."""
    return GuardConfig(
        policies=settings.policies,
        budgets=settings.budgets,
        rails=settings.rails or Rails(),
        owner_from=settings.defaults.owner_from,
        group_from=settings.defaults.group_from,
        protect=settings.defaults.protect,
        zone=settings.defaults.zone,
        interval=interval or settings.watch.every,
        claims=settings.watch.claims,
        hooks=settings.hooks,
    )


def read_measurement_lags() -> Mapping[str, timedelta]:
    """Provider -> how old its newest measure is at best; 0 where the listing itself brings the measures."""
    return {name: one.manifest.measures_late for name, one in plugins.load_providers().found.items()}


def read_price_ceilings(settings: Settings) -> dict[str, int]:
    """Canonical GPU -> nano-dollars an hour that one is taken to cost at most, from the market that quotes use."""
    from costguard.data import MARKET  # whoever holds it as a function rarely needs it
    from costguard.ledger.market import MarketReader, select_newest_market
    from costguard.settings import expand_path, get_cache_path

    stated = settings.quote.market
    with MarketReader(
        expand_path(stated) if stated else select_newest_market(MARKET, get_cache_path("market.sqlite"))
    ) as market:
        return market.load_price_ceilings()


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResults:
    """What the last listings told that the ledger does not keep, and who can be asked about each scope. No field has a default.

    `balances`: of accounts that are paid in advance, as last asked. `members`: what controllers bring up, ended ones as well.
    `lags`: how late the measures of a provider may come that is asked for them apart; one that is missing is not late.
    `measures`: who measures machines beside their providers. `agents`: those that may speak.
    """

    handling: Mapping[ResourceKey, Handling]
    sources: Mapping[ScopeKey, InstanceSource]
    balances: tuple[PrepaidBalance, ...]
    members: tuple[Observation, ...]
    lags: Mapping[str, timedelta]
    measures: tuple[UtilizationSource, ...]
    agents: tuple[Agent, ...]

    def find_source(self, key: ResourceKey, scope: ScopeKey | None) -> InstanceSource | None:
        """Who can be asked about `key`, which was listed in `scope`; None: any scope of its account."""
        if scope is not None:
            return self.sources.get(scope)
        return next((source for one, source in self.sources.items() if one[:2] == key[:2]), None)
