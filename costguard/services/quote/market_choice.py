"""Which market file a command reads, and the limits of a job in that market's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from costguard.data import MARKET
from costguard.errors import InputError, UnknownNameError
from costguard.ledger.market import MarketReader, select_newest_market
from costguard.quoting.offer import Subscription
from costguard.quoting.own_hardware import LOCAL, OwnCosts
from costguard.quoting.places import CONTINENTS, expand_region
from costguard.settings import expand_path, get_cache_path, read_settings
from costguard.sizing.job import JobLimits
from costguard.sizing.job_flags import PROVIDER_NAMES
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
            if name not in provider_names and name != LOCAL:
                spellings = {one: one for one in provider_names}
                spellings |= {other: one for other, one in PROVIDER_NAMES.items() if one in spellings}
                near = tuple(dict.fromkeys(spellings[one] for one in checks.find_nearest_names(name, spellings)))
                raise UnknownNameError("provider", name, field=field, nearest=near, hint=f"known: {', '.join(provider_names)}")
    left_out = {*(limits.exclude or ()), *(PRIVATE_HOSTS if limits.secure_only else ())}
    providers, tiers = limits.providers, limits.tiers
    if left_out:
        providers = tuple(name for name in (provider_names if providers is None else providers) if name not in left_out)
    if limits.secure_only:
        tiers = tuple(tier for tier in (TIERS if tiers is None else tiers) if tier != COMMUNITY)
    regions = None if limits.regions is None else _expand_regions(limits.regions, market)
    return replace(limits, providers=providers, tiers=tiers, regions=regions, exclude=None, secure_only=False)


def choose_own_costs(costs: OwnCosts | None, limits: JobLimits, *, on_stated: bool) -> OwnCosts | None:
    """Return the costs of own hardware if the providers in `limits` may include it.

    `on_stated`: the job names its hardware. Raises InputError if `local` is asked for without hardware or without its costs.
    """
    if LOCAL in (limits.providers or ()):
        if not on_stated:
            what = "local is hardware of your own, which no market lists"
            raise InputError(what, field="limits.providers", hint="name it, for example --on RTX-4090")
        if costs is None:
            hint = "write usd_per_kwh = 0.30 in [providers.local] of the settings"
            raise InputError("local has no costs: the settings have no [providers.local]", field="limits.providers", hint=hint)
    return costs if LOCAL in (limits.providers or (LOCAL,)) and LOCAL not in (limits.exclude or ()) else None


def split_plan_sellers(limits: JobLimits, plans: Sequence[Subscription]) -> tuple[JobLimits, tuple[Subscription, ...]]:
    """Return `limits` without the sellers of subscriptions, and the plans of those that it names.

    If it names no other provider, every provider's machines with a GPU of these plans may tell how long the run takes there.
    """
    chosen_plans = tuple(plan for plan in plans if plan.provider in (limits.providers or ()))
    if not chosen_plans or limits.providers is None:
        return limits, ()
    sellers = {plan.provider for plan in chosen_plans}
    others = tuple(name for name in limits.providers if name not in sellers)
    if others:
        return replace(limits, providers=others), chosen_plans
    return replace(limits, providers=None, gpus=limits.gpus or tuple(dict.fromkeys(p.gpu for p in chosen_plans))), chosen_plans


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
