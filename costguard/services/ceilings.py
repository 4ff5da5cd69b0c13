"""What a GPU is taken to cost at most, where nobody states a price or it moves by itself."""

from __future__ import annotations

from costguard.settings import Settings


def read_price_ceilings(settings: Settings) -> dict[str, int]:
    """Canonical GPU -> nano-dollars an hour that one is taken to cost at most, from the market that quotes use."""
    from costguard.data import MARKET  # whoever holds it as a function rarely needs it
    from costguard.ledger.market import MarketReader
    from costguard.ledger.market_refresh import select_newest_market
    from costguard.settings import expand_path, get_cache_path

    stated = settings.quote.market
    with MarketReader(
        expand_path(stated) if stated else select_newest_market(MARKET, get_cache_path("market.sqlite"))
    ) as market:
        return market.load_price_ceilings()
