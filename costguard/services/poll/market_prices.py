"""What the market that quotes use says of prices which listings do not state: the highest of each GPU, and the price ladder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from costguard.budgets.agreement import apply_agreements
from costguard.errors import CostguardError
from costguard.metering.price_ladder import PriceLadder
from costguard.quoting.offer import Offer, OfferSelection
from costguard.settings import Settings

if TYPE_CHECKING:  # a type and no more: whoever asks for no price opens no market
    from costguard.ledger.market import MarketReader


def read_price_ceilings(settings: Settings) -> dict[str, int]:
    """Return canonical GPU -> highest price of one in nano-dollars an hour, from the market that quotes use."""
    with _open_market(settings) as market:
        return market.load_price_ceilings()


def _open_market(settings: Settings) -> MarketReader:
    from costguard.data import MARKET  # whoever holds it as a function rarely needs it
    from costguard.ledger.market import MarketReader, select_newest_market
    from costguard.settings import expand_path, get_cache_path

    market = settings.quote.market
    return MarketReader(expand_path(market) if market else select_newest_market(MARKET, get_cache_path("market.sqlite")))


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
        agree=partial(apply_agreements, settings.agreements),
    )


def _list_offers(settings: Settings, gpu: str) -> Sequence[Offer]:
    """Return the market's offers of one canonical GPU; none if the file cannot be read now, which must not stop a poll."""
    try:
        with _open_market(settings) as market:
            return tuple(market.list_offers(OfferSelection(gpus=(gpu,))))
    except CostguardError:
        return ()
