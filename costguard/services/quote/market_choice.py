"""Which market file a command reads, and the limits of a job in that market's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from costguard.data import MARKET
from costguard.errors import UnknownNameError
from costguard.ledger.market import MarketReader, select_newest_market
from costguard.quoting.places import CONTINENTS, expand_region
from costguard.settings import expand_path, get_cache_path, read_settings
from costguard.sizing.job import JobLimits
from costguard.values import checks
from costguard.values.resource import COMMUNITY, TIERS

PRIVATE_HOSTS = frozenset(("vast",))
"""Marketplaces on which private persons rent their machines out; the tier `community` is the same of other providers."""


def find_market_file(market: str | None, config: str | None) -> Path:
    """Return the market file to use."""
    settings = read_settings(config)  # read even where a flag wins, so that a slip in it is said
    chosen = market or settings.quote.market
    return expand_path(chosen) if chosen else select_newest_market(MARKET, get_cache_path("market.sqlite"))


def resolve_limits(limits: JobLimits, market: MarketReader) -> JobLimits:
    """Return `limits` in the names of the market: places become their regions, and excluded providers are left out.

    Raises UnknownNameError for a provider or region that the market does not have: it is probably a typo.
    """
    provider_names = market.providers() if limits.providers or limits.exclude or limits.secure_only else ()
    for field, names in (("limits.providers", limits.providers), ("limits.exclude", limits.exclude)):
        for name in names or ():
            if name not in provider_names:
                near = checks.find_nearest_names(name, provider_names)
                raise UnknownNameError("provider", name, field=field, nearest=near, hint=f"known: {', '.join(provider_names)}")
    left_out = {*(limits.exclude or ()), *(PRIVATE_HOSTS if limits.secure_only else ())}
    providers, tiers = limits.providers, limits.tiers
    if left_out:
        providers = tuple(name for name in (provider_names if providers is None else providers) if name not in left_out)
    if limits.secure_only:
        tiers = tuple(tier for tier in (TIERS if tiers is None else tiers) if tier != COMMUNITY)
    regions = None if limits.regions is None else _expand_regions(limits.regions, market)
    return replace(limits, providers=providers, tiers=tiers, regions=regions, exclude=None, secure_only=False)


def _expand_regions(names: Sequence[str], market: MarketReader) -> tuple[str, ...]:
    if not names:
        return ()
    known_regions = market.regions()
    regions: dict[str, None] = {}
    for name in names:
        matches = expand_region(name, known_regions)
        if not matches:
            near = checks.find_nearest_names(name, (*known_regions, *CONTINENTS))
            hint = "costguard offers lists the market; eu, europe, us, de and other places name all regions in them"
            raise UnknownNameError("region", name, field="limits.regions", nearest=near, hint=hint)
        regions |= dict.fromkeys(matches)
    return tuple(regions)
