"""What a GPU is taken to cost at most, where nobody states a price or it moves by itself."""

from __future__ import annotations

from costguard.settings import Settings


def ceilings(settings: Settings) -> dict[str, int]:
    """Canonical GPU -> nano-dollars an hour that one is taken to cost at most, from the market that quotes use."""
    from costguard.data import MARKET  # whoever holds it as a function rarely needs it
    from costguard.ledger.market import Market
    from costguard.ledger.market_refresh import newest_market
    from costguard.settings import cache_file, path_of

    stated = settings.quote.market
    with Market(path_of(stated) if stated else newest_market(MARKET, cache_file("market.sqlite"))) as market:
        return market.ceilings()
