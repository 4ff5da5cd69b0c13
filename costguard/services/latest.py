"""What a guard run is told beside the ledger: what listings say that is not kept, who can be asked, measures, may speak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from costguard.metering.observation import Handling, Observation
from costguard.providers.ports import InstanceSource, UtilizationSource
from costguard.values.agent import Agent
from costguard.values.balance import PrepaidBalance
from costguard.values.resource import ResourceKey, ScopeKey


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
