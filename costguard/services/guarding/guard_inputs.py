"""Inputs of a guard run besides the ledger: settings, lags of measurements, and the last listings.

`watch`, `plan`, `status` and `simulate` all take the lags from here: no account is opened, so they are known offline and
for providers that the settings no longer name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from costguard.guard.alerts.alert import is_admin_route
from costguard.guard.context import GuardConfig
from costguard.guard.evaluation import is_claimed
from costguard.guard.policy import Policy, Rails
from costguard.guard.reach import compute_reach, describe_reach
from costguard.guard.signals import IO
from costguard.metering.observation import Handling, Observation
from costguard.metering.spending import LiveResource
from costguard.providers import plugins
from costguard.providers.ports import InstanceSource, UtilizationSource
from costguard.settings import Settings
from costguard.settings.notify import CONSOLE_CHANNEL, is_journal
from costguard.values.agent import Agent
from costguard.values.money import PrepaidBalance
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import DISK, NETWORK


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
        zone=settings.defaults.timezone,
        interval=interval or settings.watch.interval,
        claims=settings.watch.claims,
        ownerless=frozenset(name for name, one in plugins.load_providers().found.items() if not one.manifest.names_owners),
        hooks=settings.hooks,
    )


def read_measured_families(settings: Settings) -> Mapping[str, tuple[str, ...]]:
    """Return provider -> families of signals that it measures without an agent, with those that its section turns on.

    Network and disk are measured outside the machine. GPU signals of a section come from an agent of the cloud's: not counted.
    """
    families = {name: one.manifest.measures for name, one in plugins.load_providers().found.items()}
    for name, table in settings.providers.items():
        signals = table.get("signals")
        if isinstance(signals, list) and not {NETWORK, DISK}.isdisjoint(signals):
            families[name] = tuple(dict.fromkeys((*families.get(name, ()), IO)))
    return families


def read_measurement_lags() -> Mapping[str, timedelta]:
    """Return provider -> least age of its newest measurement; 0 if measurements come with the listing."""
    return {name: one.manifest.measures_late for name, one in plugins.load_providers().found.items()}


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
    measures, is_ours = read_measured_families(settings), partial(is_claimed, build_guard_config(settings))
    owner_from, machines = settings.defaults.owner_from, list(live)
    return [
        sentence
        for policy in policies
        for sentence in describe_reach(
            policy, compute_reach(policy, machines, measures=measures, agents=agents, owner_from=owner_from, is_ours=is_ours)
        )
    ]
