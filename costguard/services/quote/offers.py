"""Offers: the market snapshot filtered and sorted, live offers of all providers, and the price cache.

Live offers are requested from every provider in parallel; a failed one is reported in a sentence and does not affect the
others. Prices are taken from the shipped snapshot or its refreshed cache. A refresh asks accounts, public sources or both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.data import MARKET
from costguard.errors import CostguardError, IncompleteError, InputError, NoAnswerError, UnknownNameError
from costguard.ledger.market import MarketReader, select_newest_market
from costguard.ledger.market_refresh import refresh_market
from costguard.providers.ports import InstanceSource, LiveOfferSource
from costguard.quoting.offer import Offer, OfferListing, OfferSelection
from costguard.quoting.price_drift import PriceDrift
from costguard.quoting.price_falls import FallJudge, describe_doubts
from costguard.services import CommandAnswer
from costguard.services.poll.concurrency import run_all
from costguard.services.poll.listing_validation import describe_failure, may_speak_for
from costguard.services.poll.ports import OfferSource
from costguard.settings import Settings, expand_path, get_cache_path, read_settings
from costguard.values.checks import find_nearest_names
from costguard.views.document import Document

if TYPE_CHECKING:  # types and no more: commands that refresh nothing do not pay for it
    from costguard.services.quote.public_prices import KnownPrices, PublicPrices, SourceAnswer
    from costguard.views.price_sources import SourceRow

OFFER_SORTS = ("usd_per_hour", "usd_per_gpu_hour", "age", "provider")


def list_market_offers(
    selection: OfferSelection, *, market: OfferSource, sort: str = "usd_per_hour", limit: int | None = None
) -> tuple[Offer, ...]:
    """Return selected offers; those of unknown price come last in every order."""
    offers = market.list_offers(selection, sort=sort, limit=limit if selection.least_reliability is None else None)
    return tuple(filter(selection.accepts_host, offers))[:limit]


LIVE_OFFERS_LIMIT_S = 60.0
"""How long all may take together: somebody waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOffers:
    """The answers of the providers. `listings`: by provider. `failed`: a sentence for each failed provider.

    `unable`: providers that offer no such request.
    """

    listings: Mapping[str, OfferListing]
    failed: Mapping[str, str]
    unable: tuple[str, ...] = ()

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Return all offers."""
        return tuple(offer for listing in self.listings.values() for offer in listing.offers)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return a sentence for each failed provider and each incomplete listing."""
        parts = [f"{name}: {listing.why}" for name, listing in self.listings.items() if listing.why]
        return (*(f"{name}: {why}" for name, why in self.failed.items()), *parts)

    @property
    def unnamed(self) -> tuple[str, ...]:
        """Return a sentence per provider with GPUs that match no canonical name."""
        return tuple(
            f"{name}: left out, unknown GPU names: {', '.join(listing.unnamed)}"
            for name, listing in self.listings.items()
            if listing.unnamed
        )


def ask_live_offers(
    sources: Mapping[str, Sequence[InstanceSource]], gpus: Collection[str] | None, *, limit_s: float = LIVE_OFFERS_LIMIT_S
) -> LiveOffers:
    """Request the current offers of each of `sources` for `gpus`, None: for all.

    The accounts of one provider are tried until one answers.
    """
    able = {name: [one for one in accounts if isinstance(one, LiveOfferSource)] for name, accounts in sources.items()}
    questions = {name: _build_question(accounts, gpus) for name, accounts in able.items() if accounts}
    answers = {
        name: _check_answer(answer, name)
        for name, answer in run_all(questions, limit_s=limit_s, doing="fetching prices").items()
    }
    return LiveOffers(
        listings={name: answer for name, answer in answers.items() if isinstance(answer, OfferListing)},
        failed={name: _explain_failure(answer) for name, answer in answers.items() if not isinstance(answer, OfferListing)},
        unable=tuple(name for name, accounts in able.items() if not accounts),
    )


def select_offers(offers: Iterable[Offer], selection: OfferSelection) -> tuple[Offer, ...]:
    """Return those of `offers` that match `selection`, without duplicates."""
    return tuple(dict.fromkeys(offer for offer in offers if _matches_selection(offer, selection)))


def sort_offers(offers: Iterable[Offer], sort: str, limit: int | None) -> tuple[Offer, ...]:
    """Sort `offers` as the market does; those of unknown price come last."""
    keys: Mapping[str, Callable[[Offer], tuple[object, ...]]] = {
        "usd_per_hour": lambda o: (_get_rate_nano(o),),
        "usd_per_gpu_hour": lambda o: (_get_rate_nano(o) // o.gpu_count,),
        "age": lambda o: (-o.observed_on.toordinal(), _get_rate_nano(o)),
        "provider": lambda o: (o.provider, _get_rate_nano(o)),
    }
    ordered = sorted(offers, key=lambda o: (o.rate is None, *keys[sort](o), o.provider, o.region, o.instance_type))
    return tuple(ordered[:limit])


def _build_question(accounts: Sequence[LiveOfferSource], gpus: Collection[str] | None) -> Callable[[], OfferListing]:
    return lambda: _ask_until_answered(accounts, gpus)


def _ask_until_answered(accounts: Sequence[LiveOfferSource], gpus: Collection[str] | None) -> OfferListing:
    *others, last = accounts
    for account in others:
        try:
            return account.list_live_offers(gpus)
        except Exception:  # noqa: BLE001, S112 - another account may still be able to say
            continue
    return last.list_live_offers(gpus)


def _check_answer(answer: OfferListing | BaseException, name: str) -> OfferListing | BaseException:
    """Return `answer`, or an error if it has the wrong shape or contains offers of another provider."""
    if isinstance(answer, BaseException):
        return answer
    shaped = isinstance(answer, OfferListing) and isinstance(answer.why, str) and isinstance(answer.offers, tuple | list)
    if not shaped or not all(isinstance(offer, Offer) for offer in answer.offers):
        return CostguardError("it did not return offers")
    others = sorted({offer.provider for offer in answer.offers if not may_speak_for(name, offer.provider)})
    return CostguardError(f"it returned offers of {others[0]}") if others else answer


def _explain_failure(answer: object) -> str:
    return str(answer) if isinstance(answer, TimeoutError) else describe_failure(answer)


def _get_rate_nano(offer: Offer) -> int:
    return offer.rate.nano_per_hour if offer.rate else 0


def _matches_selection(offer: Offer, selection: OfferSelection) -> bool:
    limits = (
        (selection.providers, offer.provider),
        (selection.regions, offer.region),
        (selection.tiers, offer.tier),
        (selection.gpus, offer.gpu),
        (selection.gpu_counts, offer.gpu_count),
    )
    least, most = selection.least_gpus or 0, selection.most_gpus
    fits = offer.gpu_count >= least and (most is None or offer.gpu_count <= most)
    fits = fits and (selection.observed_since is None or offer.observed_on >= selection.observed_since)
    return fits and selection.accepts_host(offer) and all(allowed is None or value in allowed for allowed, value in limits)


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
    drift: Mapping[str, PriceDrift],
    every: bool = False,
) -> CommandAnswer:
    """Answer `costguard offers --live`: live rows beside those of `source`. `settings` None: no provider is asked.

    A failed provider causes a warning; with `strict` a refusal.
    """
    from costguard.views.market import build_offers_document

    if settings is None or not settings.providers:
        why = "offline: no provider was queried" if settings is None else "no provider is configured: run costguard init"
        live_offers = LiveOffers(listings={}, failed={"live offers": why})
    else:
        live_offers = ask_configured_providers(settings, only=selection.providers, gpus=selection.gpus)
        known_offers, known_prices = _load_known_prices(source.path)
        judge = FallJudge(known_offers, _list_statements(live_offers, None), known_prices.find_lowest, datetime.now(UTC))
        live_offers = replace(live_offers, listings=judge_listings(live_offers.listings, judge))
    offers, fresh = merge_offers(live_offers, source, selection, sort=sort, limit=limit)
    warnings = (*notes, *list_live_offer_warnings(live_offers), *describe_doubts(offers))
    document = build_offers_document(
        offers, source.describe_file(), drift=drift, today=today, warnings=warnings, live=fresh, every=every
    )
    nothing = None if offers else NoAnswerError("no offer matches", hint="remove a filter; costguard offers lists all")
    return CommandAnswer(
        document=document, warnings=warnings, refusal=(explain_incomplete(live_offers) if strict else None) or nothing
    )


def ask_configured_providers(
    settings: Settings, *, only: Collection[str] | None = None, gpus: Collection[str] | None = None
) -> LiveOffers:
    """Request the current offers of the configured providers, or of `only` these."""
    from costguard.services.poll.configured_providers import open_providers

    names = None if only is None else [name for name in only if name in settings.providers]
    with open_providers(settings, only=names) as clouds:
        live_offers = ask_live_offers({cloud.name: cloud.sources for cloud in clouds if cloud.error is None}, gpus)
        closed = {
            cloud.name: "; ".join(str(cloud.error).removeprefix(f"{cloud.name}: ").splitlines())
            for cloud in clouds
            if cloud.error
        }
    return LiveOffers(listings=live_offers.listings, failed={**live_offers.failed, **closed}, unable=live_offers.unable)


def choose_market_file(market: str | None, settings: Settings) -> Path:
    """Return the market file: stated by a flag or the settings, else the newer of the refreshed and the shipped one."""
    chosen = market or settings.quote.market
    return expand_path(chosen) if chosen else select_newest_market(MARKET, get_refreshed_market_file())


def get_refreshed_market_file() -> Path:
    """Return the file in which `costguard prices refresh` stores its market."""
    return get_cache_path("market.sqlite")


def merge_offers(
    live: LiveOffers, market: MarketReader, selection: OfferSelection, *, sort: str, limit: int | None
) -> tuple[tuple[Offer, ...], frozenset[Offer]]:
    """Merge the offers of `market` and the live ones in one order; also return which are live."""
    now = select_offers(live.offers, selection)
    fresh = frozenset(now)
    market_offers = (one for one in market.list_offers(selection) if one not in fresh and selection.accepts_host(one))
    return sort_offers((*now, *market_offers), sort, limit), fresh


def list_live_offer_warnings(live: LiveOffers) -> tuple[str, ...]:
    """Return warnings on failed providers, incomplete listings, and GPUs without a canonical name."""
    missing = tuple(f"some offers are missing: {sentence}" for sentence in live.missing)
    unable = tuple(f"{name} cannot list offers" for name in live.unable)
    return (*missing, *unable, *live.unnamed)


def explain_incomplete(live: LiveOffers) -> IncompleteError | None:
    """Return the refusal of `--strict` for failed providers or incomplete listings; None if all are complete."""
    if not live.missing:
        return None
    return IncompleteError(f"{len(live.missing)} providers could not be queried completely", hint="; ".join(live.missing[:3]))


def answer_prices(*, market: str | None = None, config: str | None = None) -> CommandAnswer:
    """Answer `costguard prices`: the prices in use, and their age. No provider is asked."""
    settings = read_settings(config)
    with MarketReader(choose_market_file(market, settings)) as market_reader:
        document, doubts = _build_prices_document(market_reader, None)
        return CommandAnswer(document=document, warnings=doubts)


def refresh_prices(
    *,
    only: Collection[str] | None = None,
    public: bool = False,
    sources: Collection[str] | None = None,
    strict: bool = False,
    offline: bool = False,
    config: str | None = None,
    settings: Settings | None = None,
) -> CommandAnswer:
    """Answer `costguard prices refresh`: write fresh offers to the cache that quotes and offers use.

    `only`: providers, None: all. `public`: ask the public sources, too; without a configured provider they alone are asked.
    `sources`: ask these public sources and no account, unless `public` is given, too. `settings`: instead of those of `config`.
    """
    from costguard.services.quote.public_prices import ask_public_sources, merge_listings

    settings = settings or read_settings(config)
    if offline:
        raise InputError("prices can only be refreshed over the network", field="--offline", hint="leave it out")
    keyless = public or sources is not None or not settings.providers
    accounts = bool(settings.providers) and (public or sources is None)
    _check_providers(settings, only, keyless=keyless)
    live = ask_configured_providers(settings, only=only) if accounts else LiveOffers(listings={}, failed={})
    target = get_refreshed_market_file()
    base = select_newest_market(MARKET, target)
    offers, known_prices = _load_known_prices(base)
    public_prices = ask_public_sources(settings, known_prices, names=sources, only=only) if keyless else None
    listings = merge_listings([live.listings, public_prices.listings if public_prices else {}])
    statements = _list_statements(live, public_prices)
    listings = judge_listings(listings, FallJudge(offers, statements, known_prices.find_lowest, datetime.now(UTC)))
    unrecorded = _write_fresh_market(target, base, live, listings)
    with MarketReader(select_newest_market(MARKET, target)) as market:
        document, doubts = _build_prices_document(market, live if accounts else None, public_prices)
    return CommandAnswer(
        document=document,
        warnings=(*_list_refresh_warnings(live, public_prices, settings), *doubts, *unrecorded),
        refusal=_explain_refresh(live, public_prices, strict=strict),
    )


def _check_providers(settings: Settings, only: Collection[str] | None, *, keyless: bool) -> None:
    """Raise an error if one of `only` is neither configured nor, where public sources are asked, known to one of them."""
    missing = [name for name in only or () if name not in settings.providers]
    if missing and not keyless:
        hint = "costguard init writes [providers.NAME] for each key that it finds; --public needs no key"
        raise InputError(f"{missing[0]} is not configured", field="providers", hint=hint)
    if missing:
        from costguard.providers.plugins import load_price_sources

        names = sorted({name for one in load_price_sources().found.values() for name in one.facts.providers})
        for name in missing:
            if name not in names:
                hint = f"public sources state prices of {', '.join(names)}"
                raise UnknownNameError("provider", name, field="--provider", nearest=find_nearest_names(name, names), hint=hint)


def _load_known_prices(base: Path) -> tuple[tuple[Offer, ...], KnownPrices]:
    """Return the offers of the market in use, and the ranges of their prices and of those that were shipped."""
    from costguard.services.quote.public_prices import KnownPrices

    with MarketReader(MARKET) as shipped, MarketReader(base) as market:
        offers = tuple(market.list_offers(OfferSelection()))
        return offers, KnownPrices(shipped.list_offers(OfferSelection()), offers)


def _list_statements(live: LiveOffers, public: PublicPrices | None) -> Mapping[str, Sequence[Offer]]:
    """Return what each source states, by provider or address: two public sources at one address are one source."""
    statements: dict[str, Sequence[Offer]] = {name: listing.offers for name, listing in live.listings.items()}
    for answer in public.sources if public else ():
        offers = [offer for listing in answer.listings.values() for offer in listing.offers]
        statements[answer.endpoint] = [*statements.get(answer.endpoint, ()), *offers]
    return statements


def judge_listings(listings: Mapping[str, OfferListing], judge: FallJudge) -> Mapping[str, OfferListing]:
    """Return `listings` with the prices that are to be used: a price that fell far is doubted until it is confirmed."""
    return {name: replace(one, offers=tuple(map(judge.judge, one.offers))) for name, one in listings.items()}


def _write_fresh_market(target: Path, base: Path, live: LiveOffers, listings: Mapping[str, OfferListing]) -> tuple[str, ...]:
    """Write the market file and the history if anything came; return warnings."""
    from costguard.services.quote.price_history import record_prices

    if not any(listing.offers for listing in listings.values()):
        return ()
    own = {name for name, listing in live.listings.items() if listing.offers}
    try:
        refresh_market(target, base, listings, datetime.now(UTC), public=set(listings) - own)
    except OSError as full:
        what = f"cannot be written: {full.strerror or type(full).__name__}"
        raise InputError(what, field=str(target), hint="free disk space, or make it writable for this user") from None
    return record_prices(offer for listing in listings.values() for offer in listing.offers)


def _explain_refresh(live: LiveOffers, public: PublicPrices | None, *, strict: bool) -> CostguardError | None:
    """Return the refusal of a refresh from which nothing came, or, with `strict`, not everything."""
    missing = (*live.missing, *(public.missing if public else ()))
    if strict and missing:
        return IncompleteError(f"{len(missing)} providers could not be queried completely", hint="; ".join(missing[:3]))
    if live.offers or (public and any(listing.offers for listing in public.listings.values())):
        return None
    hint = "costguard prices sources lists the sources" if public else "costguard doctor shows why"
    who = "source" if public else "provider"
    return NoAnswerError(f"no {who} returned a price: nothing was changed", hint=hint)


def _list_refresh_warnings(live: LiveOffers, public: PublicPrices | None, settings: Settings) -> tuple[str, ...]:
    market = settings.quote.market
    used = (f"[quote] market names {market}, which quotes still use",) if market else ()
    return (*list_live_offer_warnings(live), *_list_public_warnings(public), *used)


def _list_public_warnings(public: PublicPrices | None) -> tuple[str, ...]:
    return tuple(f"some prices are missing: {sentence}" for sentence in public.missing) if public else ()


def answer_price_sources(*, config: str | None = None) -> CommandAnswer:
    """Answer `costguard prices sources`: the installed sources of public prices. None is asked."""
    from costguard.services.quote.public_prices import list_source_facts
    from costguard.views.price_sources import build_price_sources_document

    return CommandAnswer(document=build_price_sources_document(list_source_facts(read_settings(config))))


def _build_prices_document(
    market: MarketReader, live: LiveOffers | None, public: PublicPrices | None = None
) -> tuple[Document, tuple[str, ...]]:
    """Return the document, and the warnings about doubted prices that it holds."""
    from costguard.views.market import build_prices_document

    doubts = describe_doubts(market.list_fallen_offers())
    document = build_prices_document(
        market.describe_file(),
        market.summarize_providers(),
        live,
        today=_get_today(),
        warnings=(*(list_live_offer_warnings(live) if live else ()), *_list_public_warnings(public), *doubts),
        sources=None if public is None else tuple(map(_make_source_row, public.sources)),
    )
    return document, doubts


def _make_source_row(answer: SourceAnswer) -> SourceRow:
    from costguard.views.price_sources import SourceRow

    return SourceRow(
        source=answer.facts.name,
        title=answer.facts.title,
        endpoint=answer.endpoint,
        offers={name: len(listing.offers) for name, listing in answer.listings.items()},
        days=answer.days,
        failed=answer.failed,
        incomplete=tuple(answer.missing) if not answer.failed else (),
        remarks=answer.remarks,
        unnamed={name: listing.unnamed for name, listing in answer.listings.items() if listing.unnamed},
        asked=answer.asked,
    )


def _get_today() -> date:
    return datetime.now(UTC).date()
