"""Public prices: asks all sources side by side, checks what they say against known prices, and merges it.

    choose_sources     which sources: those named, or all that are installed
    ask_public_sources first the sources proper, then fall-backs for providers nobody answered for
    check_answer       shape, days, and prices against the market: what is absurd is left out, or the whole source refused
    merge_listings     of two sources that state the same GPU, tier and region the one of lower order counts

Example: the market knows AWS's p5.48xlarge at $55.04 an hour. A row at $2.70 (a twentieth) is left out and named. If more than
a third of the rows that can be compared are so, the whole source is refused and the old rows are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial

from costguard.errors import InputError, ProviderError, ThrottledError, UnknownNameError, UnreachableError, shorten, to_one_line
from costguard.providers import plugins
from costguard.providers.ports.price_source import PriceSourceFacts, PublicPriceSource, SelectivePriceSource
from costguard.quoting.offer import Offer, OfferListing
from costguard.quoting.price_falls import GLOBAL_REGION
from costguard.services.poll.concurrency import run_all
from costguard.services.poll.configured_providers import open_transport
from costguard.services.poll.listing_validation import describe_failure
from costguard.services.quote.price_feeds import CachedPriceFetcher, FeedCache
from costguard.settings import Settings, get_cache_path
from costguard.system.progress import report_progress
from costguard.values.checks import find_nearest_names
from costguard.values.gpu import GpuNames
from costguard.values.resource import SPOT

LIMIT_S = 60.0
"""For all sources of one wave together. 20 s at 200 ms a request is the goal (issue 21)."""
SIDE_BY_SIDE = 12

ABSURD_FACTOR = 20
"""How far a price may lie from the known ones of the same machine: the largest true change in the histories of 2026-11 is 3.4
times in a year (GCP spot fell to 0.32)."""
ABSURD_SHARE = 1 / 3
"""Of the rows that can be compared: if more are absurd the whole source is refused."""
UNIT_GPUS = 4
"""From so many GPUs on a price per GPU and a price per machine can be told apart on a price list."""
UNIT_TOLERANCE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAnswer:
    """What one source answered. `listings`: what of it can be used. `failed`: why it cannot be used, "": it can.

    `remarks`: what was left out, a sentence each. `asked`: False for a fall-back that nobody needed.
    """

    facts: PriceSourceFacts
    endpoint: str
    listings: Mapping[str, OfferListing] = field(default_factory=dict)
    failed: str = ""
    remarks: tuple[str, ...] = ()
    asked: bool = True

    @property
    def offers(self) -> int:
        """Return the number of usable offers."""
        return sum(len(listing.offers) for listing in self.listings.values())

    @property
    def days(self) -> tuple[date, date] | None:
        """Return the oldest and the newest day of its prices (of undated ones the possible days); None: it has none."""
        offers = [offer for listing in self.listings.values() for offer in listing.offers]
        if not offers:
            return None
        return min(one.observed_on for one in offers), max(one.observed_to or one.observed_on for one in offers)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return a sentence for the source if it failed, and for each incomplete listing."""
        parts = (f"{self.facts.name}: {name}: {one.why}" for name, one in self.listings.items() if one.why)
        return (f"{self.facts.name}: {self.failed}",) if self.failed else tuple(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPrices:
    """The answers of all sources, and their offers merged by provider."""

    sources: tuple[SourceAnswer, ...] = ()
    listings: Mapping[str, OfferListing] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return a sentence for each failed source and each incomplete listing."""
        return tuple(sentence for source in self.sources for sentence in source.missing)


def choose_sources(
    settings: Settings, names: Collection[str] | None
) -> tuple[Mapping[str, PublicPriceSource], Mapping[str, str]]:
    """Return the sources to ask, and why each broken one cannot be. `names`: of `--source`; None: as the settings say."""
    installed = plugins.load_price_sources()
    known_names = sorted({*installed.found, *installed.broken})
    for field_name, chosen_names in (
        ("--source", names or ()),
        ("prices.only", settings.prices.only or ()),
        ("prices.sources", tuple(settings.prices.sources)),
    ):
        for name in chosen_names:
            if name not in known_names:
                hint = f"installed: {', '.join(known_names) or 'none'}"
                raise UnknownNameError(
                    "price source", name, field=field_name, nearest=find_nearest_names(name, known_names), hint=hint
                )
    chosen = names or settings.prices.only
    sources = {name: source for name, source in installed.found.items() if chosen is None or name in chosen}
    broken = {name: why for name, why in installed.broken.items() if chosen is None or name in chosen}
    if not sources and not broken:
        raise InputError(
            "no source of public prices is installed or chosen", field="prices.only", hint="costguard prices sources"
        )
    return sources, broken


def ask_public_sources(
    settings: Settings,
    known_prices: KnownPrices,
    *,
    names: Collection[str] | None = None,
    only: Collection[str] | None = None,
    now: datetime | None = None,
    limit_s: float = LIMIT_S,
) -> PublicPrices:
    """Ask the chosen sources for public prices, and check them against `known_prices`, the prices of the market in use.

    `names`: sources, None: as the settings say. `only`: providers whose prices are wanted, None: all.
    """
    from costguard.data import ShippedFacts

    now = now or datetime.now(UTC)
    sources, broken = choose_sources(settings, names)
    gpus = ShippedFacts().get_gpu_names()
    gpus.find("")  # builds its tables before threads share it
    cache = FeedCache(get_cache_path("prices"))
    cache.remove_old(now)
    transport = open_transport(settings)
    try:
        fetchers = {
            name: CachedPriceFetcher(
                transport, one.facts, _get_endpoint(settings, one.facts), cache=cache, now=now, limit_s=limit_s
            )
            for name, one in sources.items()
        }
        ask = partial(
            _ask_wave, sources, fetchers, gpus=gpus, prices=known_prices, settings=settings, today=now.date(), limit_s=limit_s
        )
        firsts = {
            name: _limit_providers(one.facts, only)
            for name, one in sources.items()
            if not one.facts.fallback or (names is not None and name in names)
        }
        answers = ask(asks={name: providers for name, providers in firsts.items() if providers})
        answered = {name for answer in answers for name, listing in answer.listings.items() if listing.offers}
        rest = {
            name: frozenset(_limit_providers(one.facts, only) - answered) for name, one in sources.items() if name not in firsts
        }
        answers += ask(asks={name: providers for name, providers in rest.items() if providers})
    finally:
        transport.close()
    source_names = {answer.facts.name for answer in answers}
    answers += tuple(
        SourceAnswer(facts=one.facts, endpoint=_get_endpoint(settings, one.facts), asked=False)
        for name, one in sources.items()
        if name not in source_names
    )
    answers += tuple(_make_broken_answer(name, why) for name, why in broken.items())
    ordered = tuple(sorted(answers, key=lambda answer: (answer.facts.order, answer.facts.name)))
    return PublicPrices(sources=ordered, listings=merge_listings([answer.listings for answer in ordered]))


def list_source_facts(settings: Settings) -> tuple[tuple[PriceSourceFacts, str, str], ...]:
    """Return each installed source: its facts, the endpoint in use, and why it cannot be used ("": it can)."""
    installed = plugins.load_price_sources()
    rows = [(one.facts, _get_endpoint(settings, one.facts), "") for one in installed.found.values()]
    broken = [_make_broken_answer(name, why) for name, why in installed.broken.items()]
    rows += [(answer.facts, "", answer.failed) for answer in broken]
    return tuple(sorted(rows, key=lambda row: (row[0].order, row[0].name)))


def _get_endpoint(settings: Settings, facts: PriceSourceFacts) -> str:
    return settings.prices.sources.get(facts.name, facts.endpoint)


def _limit_providers(facts: PriceSourceFacts, only: Collection[str] | None) -> frozenset[str]:
    return frozenset(facts.providers) if only is None else frozenset(facts.providers) & frozenset(only)


def _make_broken_answer(name: str, why: str) -> SourceAnswer:
    facts = PriceSourceFacts(
        name=name, title=name, endpoint="", providers=(), terms="", size="", freshness="", checked_on=date.min, order=LAST
    )
    return SourceAnswer(facts=facts, endpoint="", failed=f"its package cannot be used: {why}")


LAST = 1000
"""The order of a source that cannot be loaded: after all others."""


def _ask_wave(
    sources: Mapping[str, PublicPriceSource],
    fetchers: Mapping[str, CachedPriceFetcher],
    *,
    gpus: GpuNames,
    prices: KnownPrices,
    settings: Settings,
    today: date,
    limit_s: float,
    asks: Mapping[str, Collection[str]],
) -> tuple[SourceAnswer, ...]:
    """Ask the sources of `asks`, each for the providers stated there, and check what they answer."""
    questions = {name: partial(_ask_source, sources[name], fetchers[name], gpus, providers) for name, providers in asks.items()}
    answers = list[SourceAnswer]()
    for name, answer in run_all(questions, limit_s=limit_s, most=SIDE_BY_SIDE, doing="fetching public prices").items():
        facts = sources[name].facts
        endpoint = _get_endpoint(settings, facts)
        checked = check_answer(answer, facts, endpoint=endpoint, prices=prices, today=today, providers=asks[name])
        unusable = checked.failed and not isinstance(answer, UnreachableError | ThrottledError | TimeoutError)
        if unusable or any(one.why and not one.offers for one in checked.listings.values()):
            fetchers[name].forget_answers()
        answers.append(checked)
    return tuple(answers)


def _ask_source(
    source: PublicPriceSource, fetch: CachedPriceFetcher, gpus: GpuNames, providers: Collection[str]
) -> Mapping[str, OfferListing]:
    report_progress(f"asking {source.facts.title}")
    if isinstance(source, SelectivePriceSource):
        return source.list_offers_of(fetch, gpus, providers)
    return source.list_public_offers(fetch, gpus)


def check_answer(
    answer: object,
    facts: PriceSourceFacts,
    *,
    endpoint: str,
    prices: KnownPrices,
    today: date,
    providers: Collection[str],
) -> SourceAnswer:
    """Return what of `answer` can be used, with the reasons for the rest. `providers`: providers that were asked for."""
    build_answer = partial(SourceAnswer, facts=facts, endpoint=endpoint)
    if isinstance(answer, BaseException):
        why = answer.what if isinstance(answer, ProviderError) else None
        return build_answer(failed=why or (str(answer) if isinstance(answer, TimeoutError) else describe_failure(answer)))
    odd = _find_odd_shape(answer, facts)
    if odd or not isinstance(answer, Mapping):
        return build_answer(failed=odd or "it did not return offers")
    judged = {
        name: _judge_listing(listing, prices, today, sold_only=facts.prices_unsold)
        for name, listing in answer.items()
        if name in providers
    }
    compared, absurd = (sum(getattr(one, key) for one in judged.values()) for key in ("compared", "absurd"))
    if absurd > compared * ABSURD_SHARE:
        example = next(one.example for one in judged.values() if one.example)
        reason = f"{absurd} of {compared} comparable prices are implausible, such as {example}"
        return build_answer(failed=f"refused: {reason}; the old rows are kept")
    remarks = tuple(f"{name}: {remark}" for name, one in judged.items() for remark in one.remarks)
    listings = {name: one.listing for name, one in judged.items()}
    if not any(one.offers for one in listings.values()):
        whys = dict.fromkeys(listing.why for listing in listings.values() if listing.why)
        return build_answer(failed="; ".join((*whys, *remarks)) or "it has no offers")
    return build_answer(listings=listings, remarks=remarks)


def _find_odd_shape(answer: object, facts: PriceSourceFacts) -> str:
    """Return what is wrong with the shape of an answer; "" if it is one."""
    if not isinstance(answer, Mapping):
        return "it did not return offers"
    for name, listing in answer.items():
        if not isinstance(listing, OfferListing) or not all(isinstance(offer, Offer) for offer in listing.offers):
            return "it did not return offers"
        others = {offer.provider for offer in listing.offers} - {name}
        if name not in facts.providers or others:
            return (
                f"it returned offers of {shorten(to_one_line(str(min(others, default=name))), 40)}, which it must not contain"
            )
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    """A listing without the rows that are not believed. `compared`, `absurd`: rows. `example`: of an absurd one, "": none."""

    listing: OfferListing
    compared: int
    absurd: int
    example: str
    remarks: tuple[str, ...]


def _judge_listing(listing: OfferListing, prices: KnownPrices, today: date, *, sold_only: bool) -> _Judgement:
    offers, compared, future, unsold = list[Offer](), 0, list[Offer](), 0
    absurd = list[tuple[Offer, str]]()
    for offer in listing.offers:
        if offer.observed_on > today:
            future.append(offer)
            continue
        if sold_only and not prices.knows_place(offer):
            unsold += 1
            continue
        price_range = prices.find_range(offer)
        compared += price_range is not None
        why = describe_absurdity(offer, price_range) if price_range else ""
        if why:
            absurd.append((offer, why))
        else:
            offers.append(offer)
    example = _describe_row(*absurd[0]) if absurd else ""
    remarks = [f"{len(absurd)} rows with an implausible price left out, such as {example}"] if absurd else []
    if future:
        days = f"{max(offer.observed_on for offer in future)}"
        remarks.append(f"{len(future)} rows dated in the future ({days}) left out")
    if unsold:
        remarks.append(f"{unsold} rows left out: their region is not known to have the GPU")
    if listing.left_out:
        remarks.append(f"left out: {listing.left_out}")
    if listing.unnamed:
        shown = ", ".join(listing.unnamed[:MOST_NAMES]) + (" ..." if len(listing.unnamed) > MOST_NAMES else "")
        remarks.append(f"left out, unknown GPU names: {shown}")
    used = replace(listing, offers=tuple(offers))
    return _Judgement(listing=used, compared=compared, absurd=len(absurd), example=example, remarks=tuple(remarks))


MOST_NAMES = 6
"""Names of unknown GPUs in a message; JSON has all."""


def _describe_row(offer: Offer, why: str) -> str:
    rate = offer.rate.format() if offer.rate else "?"
    return f"{offer.provider} {offer.instance_type} in {offer.region} at ${rate} ({why})"


PriceRange = tuple[int, int, bool]
"""Lowest and highest known price of one GPU, nano-dollars an hour; True: of this provider and tier, not of others."""


class KnownPrices:
    """Ranges of known prices per GPU: of a machine, else of its provider's GPU and tier, else of the GPU anywhere.

    `markets`: offers, the most trusted first. What an earlier one knows a later one does not widen: else prices could creep, a
    little below the factor at each refresh.
    """

    def __init__(self, *markets: Iterable[Offer]) -> None:
        self._ranges = dict[tuple[object, ...], tuple[int, int]]()
        self._places = set[tuple[str, str, str]]()
        for offers in markets:
            ranges = dict[tuple[object, ...], tuple[int, int]]()
            for offer in offers:
                self._places.add((offer.provider, offer.gpu, offer.region))
                if offer.rate is not None:
                    per_gpu = offer.rate.nano_per_hour // offer.gpu_count
                    for key in _list_keys(offer):
                        low, high = ranges.get(key, (per_gpu, per_gpu))
                        ranges[key] = (min(low, per_gpu), max(high, per_gpu))
            self._ranges = ranges | self._ranges

    def knows_place(self, offer: Offer) -> bool:
        """Return whether the provider is known to have the GPU of `offer` in its region, in any tier."""
        return (offer.provider, offer.gpu, offer.region) in self._places

    def find_range(self, offer: Offer) -> PriceRange | None:
        """Return the known prices of what `offer` is; None: nobody sells such a GPU."""
        for number, key in enumerate(_list_keys(offer)):
            if key in self._ranges:
                return (*self._ranges[key], number < OWN_KEYS)
        return None

    def find_lowest(self, offer: Offer) -> int | None:
        """Return the lowest known price of one GPU of what `offer` is; None: nobody sells such a GPU."""
        price_range = self.find_range(offer)
        return price_range[0] if price_range else None


OWN_KEYS = 2


def _list_keys(offer: Offer) -> tuple[tuple[object, ...], ...]:
    return (
        (offer.provider, offer.tier, offer.gpu, offer.gpu_count, offer.instance_type),
        (offer.provider, offer.tier, offer.gpu),
        (offer.tier == SPOT, offer.gpu),
    )


def describe_absurdity(offer: Offer, price_range: PriceRange) -> str:
    """Return why the price of `offer` is not believed, beside the `price_range` prices of one such GPU; "" if it is.

    Example: 8 H100 for $6.88, where one costs $6.88 to $11.56, is the price of one GPU.
    """
    if offer.rate is None:
        return ""
    rate_nano, count = offer.rate.nano_per_hour, offer.gpu_count
    (low, high, own), per_gpu = price_range, rate_nano / count
    if not low / ABSURD_FACTOR <= per_gpu <= high * ABSURD_FACTOR:
        return f"known: {_format_range(low, high)} a GPU-hour"
    if own and offer.tier != SPOT and offer.pricing == "standard" and count >= UNIT_GPUS:
        least, most = low * (1 - UNIT_TOLERANCE), high * (1 + UNIT_TOLERANCE)
        if least <= rate_nano <= most and per_gpu < low / 2:
            return f"the price of one GPU: known are {_format_range(low, high)} a GPU-hour"
        if least <= per_gpu / count <= most and per_gpu > high * 2:
            return f"the price of a machine taken for one GPU's: known are {_format_range(low, high)} a GPU-hour"
    return ""


def _format_range(low: int, high: int) -> str:
    return f"${low / 1e9:.2f}" if low == high else f"${low / 1e9:.2f} to ${high / 1e9:.2f}"


def merge_listings(ordered: Sequence[Mapping[str, OfferListing]]) -> Mapping[str, OfferListing]:
    """Return one listing per provider. Where an earlier one states a GPU, tier and region, later rows of these are dropped.

    A row of the region "global" covers every region, and is covered by rows of any.
    """
    merged = dict[str, OfferListing]()
    for listings in ordered:
        for name, listing in listings.items():
            old_listing = merged.get(name)
            if old_listing is None or not old_listing.offers:
                merged[name] = listing
            elif listing.offers:
                merged[name] = _add_uncovered(old_listing, listing)
    return merged


def _add_uncovered(first: OfferListing, second: OfferListing) -> OfferListing:
    covered = dict[tuple[str, str], set[str]]()
    for offer in first.offers:
        covered.setdefault((offer.tier, offer.gpu), set()).add(offer.region)
    is_new = partial(_is_uncovered, covered)
    return OfferListing(
        offers=(*first.offers, *filter(is_new, second.offers)),
        why="; ".join(dict.fromkeys(filter(None, (first.why, second.why)))),
        unnamed=tuple(dict.fromkeys((*first.unnamed, *second.unnamed))),
        left_out="; ".join(filter(None, (first.left_out, second.left_out))),
    )


def _is_uncovered(covered: Mapping[tuple[str, str], set[str]], offer: Offer) -> bool:
    regions = covered.get((offer.tier, offer.gpu))
    return regions is None or not (offer.region in regions or GLOBAL_REGION in (offer.region, *regions))
