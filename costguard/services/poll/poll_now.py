"""Poll the configured providers once, before a command answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.metering.inventory import Failed
from costguard.metering.observation import Handling, Observation
from costguard.metering.spending import ScopeCoverage
from costguard.providers.ports import BalanceSource, InstanceSource
from costguard.services.poll.configured_providers import SystemClock, list_sources, open_providers
from costguard.services.poll.market_prices import open_price_ladder, read_price_ceilings
from costguard.settings import Settings, resolve_ledger_url
from costguard.values.money import PrepaidBalance
from costguard.values.resource import ResourceKey

BALANCE_LIMIT_S = 20.0
"""How long all balances together are waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollNowResult:
    """Result of the poll besides the ledger. `refused`: what could not be polled or recorded, a sentence each.

    `notes`: what complete listings left out. `handling`: of each listed resource. `members`: resources started by controllers,
    ended ones too. `balances`: of the prepaid accounts that answered. `unreached`: failed scopes without a name, of which
    `refused` also tells.
    """

    refused: tuple[str, ...]
    notes: tuple[str, ...]
    handling: Mapping[ResourceKey, Handling]
    members: tuple[Observation, ...]
    balances: tuple[PrepaidBalance, ...]
    unreached: tuple[ScopeCoverage, ...] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """Return all sentences."""
        return (*self.refused, *self.notes)


def poll_providers_now(settings: Settings) -> PollNowResult:
    """Poll the configured providers into the ledger, and report what failed or is incomplete.

    Raises InputError if two accounts of the settings are the same, because a person must choose which one to keep.
    """
    from costguard.ledger.spans.writer import LedgerWriter
    from costguard.services.poll.kubernetes_view import open_kubernetes_view
    from costguard.services.poll.poll import poll_sources

    with open_providers(settings) as clouds:
        sources = list_sources(clouds)
        if not sources:
            return PollNowResult(refused=(), notes=(), handling={}, members=(), balances=())
        most = read_price_ceilings(settings)
        with LedgerWriter(
            resolve_ledger_url(settings),
            rules=ShippedFacts().get_billing_rules(),
            ceilings=most,
            ladder=open_price_ladder(settings, most),
        ) as ledger:
            clock = SystemClock()
            with closing(open_kubernetes_view(settings, clock)) as clusters:
                polled = clusters.poll(partial(poll_sources, sources, ledger, clock), every_account=True)
        balances = _fetch_balances([one for one in sources if not any(one is other for other in polled.others)])
    if polled.twins:
        hint = "remove one of the two from the settings: its costs would be counted twice"
        raise InputError("; ".join(polled.twins), field="providers", hint=hint)
    listed = (one.poll.inventory for one in polled.seen if not isinstance(one.poll.inventory, Failed))
    items = [item for inventory in listed for item in inventory.items]
    return PollNowResult(
        refused=polled.refused,
        notes=polled.notes,
        handling={item.key: item.handling for item in items},
        members=tuple(item for item in items if item.handling.controller),
        balances=balances,
        unreached=tuple(one.coverage for one in polled.unreached),
    )


def _fetch_balances(sources: Sequence[InstanceSource]) -> tuple[PrepaidBalance, ...]:
    """Fetch the balances of prepaid accounts. A failed request gives no balance and stops nothing."""
    from costguard.services.poll.concurrency import run_all

    prepaid = {number: one for number, one in enumerate(sources) if isinstance(one, BalanceSource)}
    balances = run_all(
        {number: one.fetch_balance for number, one in prepaid.items()}, limit_s=BALANCE_LIMIT_S, doing="reading balances"
    )
    return tuple(one for one in balances.values() if isinstance(one, PrepaidBalance))
