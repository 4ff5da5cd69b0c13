"""Prices of today: what can be rented now, beside the snapshot that is shipped, and a cache of it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime
from pathlib import Path

from costguard.data import MARKET
from costguard.errors import CostguardError, IncompleteError, InputError, NoAnswerError
from costguard.ledger.market import MarketReader
from costguard.ledger.market_refresh import refresh_market, select_newest_market
from costguard.quoting.offer import Offer, OfferSelection
from costguard.services import CommandAnswer
from costguard.services.live import LiveOffers, select_offers, sort_offers
from costguard.settings import Settings, expand_path, get_cache_path, read_settings
from costguard.views.document import Document


def answer_live_offers(
    source: MarketReader,
    selection: OfferSelection,
    settings: Settings | None,
    *,
    notes: tuple[str, ...],
    sort: str,
    limit: int | None,
    strict: bool,
    today: date,
) -> CommandAnswer:
    """`costguard offers --live`: live rows beside those of `source`. `settings` None: nobody is to be asked.

    What could not be asked is a warning; with `strict` it is refused.
    """
    from costguard.views.market import build_offers_document

    if settings is None or not settings.providers:
        why = "offline: nobody was asked" if settings is None else "no provider is configured: see costguard init"
        asked = LiveOffers(listings={}, failed={"live offers": why})
    else:
        asked = ask_configured_providers(settings, only=selection.providers, gpus=selection.gpus)
    found, fresh = merge_offers(asked, source, selection, sort=sort, limit=limit)
    warnings = (*notes, *list_live_offer_warnings(asked))
    document = build_offers_document(found, source.describe_file(), today=today, warnings=warnings, live=fresh)
    nothing = None if found else NoAnswerError("no offer matches", hint="leave out a filter; costguard offers lists all")
    return CommandAnswer(
        document=document, warnings=warnings, refusal=(explain_incomplete(asked) if strict else None) or nothing
    )


def ask_configured_providers(
    settings: Settings, *, only: Collection[str] | None = None, gpus: Collection[str] | None = None
) -> LiveOffers:
    """What the configured providers, or `only` these of them, rent out now."""
    from costguard.services.configured_providers import open_providers
    from costguard.services.live import ask_live_offers

    names = None if only is None else [name for name in only if name in settings.providers]
    with open_providers(settings, only=names) as clouds:
        found = ask_live_offers({cloud.name: cloud.sources for cloud in clouds if cloud.error is None}, gpus)
        closed = {
            cloud.name: "; ".join(str(cloud.error).removeprefix(f"{cloud.name}: ").splitlines())
            for cloud in clouds
            if cloud.error
        }
    return LiveOffers(listings=found.listings, failed={**found.failed, **closed}, unable=found.unable)


def choose_market_file(stated: str | None, settings: Settings) -> Path:
    """The market to use: as stated by a flag or the settings, else what was refreshed last, else what is shipped."""
    chosen = stated or settings.quote.market
    return expand_path(chosen) if chosen else select_newest_market(MARKET, get_refreshed_market_file())


def get_refreshed_market_file() -> Path:
    """Where `costguard prices refresh` keeps its market."""
    return get_cache_path("market.sqlite")


def merge_offers(
    live: LiveOffers, market: MarketReader, selection: OfferSelection, *, sort: str, limit: int | None
) -> tuple[tuple[Offer, ...], frozenset[Offer]]:
    """The offers of `market` and the live ones in one order, and which of them are live."""
    now = select_offers(live.offers, selection)
    fresh = frozenset(now)
    kept = (offer for offer in market.list_offers(selection) if offer not in fresh)
    return sort_offers((*now, *kept), sort, limit), fresh


def list_live_offer_warnings(live: LiveOffers) -> tuple[str, ...]:
    """What could not be asked, what lacks, and GPUs without a name here."""
    missing = tuple(f"not all offers are here: {sentence}" for sentence in live.missing)
    unable = tuple(f"{name} cannot be asked for offers" for name in live.unable)
    return (*missing, *unable, *live.unnamed)


def explain_incomplete(live: LiveOffers) -> IncompleteError | None:
    """Why `--strict` refuses: a provider that could not be asked, or said less than all; None where none is."""
    if not live.missing:
        return None
    return IncompleteError(f"{len(live.missing)} providers could not be asked in full", hint="; ".join(live.missing[:3]))


def answer_prices(*, market: str | None = None, config: str | None = None) -> CommandAnswer:
    """`costguard prices`: which prices are in use, and how old they are. It asks nobody."""
    settings = read_settings(config)
    with MarketReader(choose_market_file(market, settings)) as found:
        return CommandAnswer(document=_build_prices_document(found, None))


def refresh_prices(
    *, only: Collection[str] | None = None, strict: bool = False, offline: bool = False, config: str | None = None
) -> CommandAnswer:
    """`costguard prices refresh`: live offers into the cache, where quotes and offers find them."""
    settings = read_settings(config)
    if offline:
        raise InputError("prices can only be refreshed over the network", field="--offline", hint="leave it out")
    _check_configured(settings, only)
    live = ask_configured_providers(settings, only=only)
    target = get_refreshed_market_file()
    if live.offers:
        try:
            refresh_market(target, select_newest_market(MARKET, target), live.listings, datetime.now(UTC))
        except OSError as full:
            what = f"cannot be written: {full.strerror or type(full).__name__}"
            raise InputError(what, field=str(target), hint="make room there, or let this user write it") from None
    with MarketReader(select_newest_market(MARKET, target)) as found:
        document = _build_prices_document(found, live)
    refusal: CostguardError | None = explain_incomplete(live) if strict else None
    if not live.offers:
        refusal = refusal or NoAnswerError("nobody gave a price: nothing was changed", hint="costguard doctor says why")
    return CommandAnswer(document=document, warnings=_list_refresh_warnings(live, settings), refusal=refusal)


def _check_configured(settings: Settings, only: Collection[str] | None) -> None:
    missing = [name for name in only or () if name not in settings.providers]
    if missing or not settings.providers:
        what = f"{missing[0]} is not configured" if missing else "no provider is configured"
        raise InputError(what, field="providers", hint="costguard init writes [providers.NAME] for what it finds")


def _list_refresh_warnings(live: LiveOffers, settings: Settings) -> tuple[str, ...]:
    stated = settings.quote.market
    used = (f"[quote] market names {stated}, which quotes go on using",) if stated else ()
    return (*list_live_offer_warnings(live), *used)


def _build_prices_document(market: MarketReader, live: LiveOffers | None) -> Document:
    from costguard.views.prices import build_prices_document

    warnings = list_live_offer_warnings(live) if live else ()
    return build_prices_document(
        market.describe_file(), market.summarize_providers(), live, today=_get_today(), warnings=warnings
    )


def _get_today() -> date:
    return datetime.now(UTC).date()
