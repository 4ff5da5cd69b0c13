"""live: every provider asked at once what it rents out now; one that cannot be asked is a sentence, and hides no other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from costguard.errors import CostguardError
from costguard.providers.ports import InstanceSource, LiveOfferSource
from costguard.quoting.offer import Offer, OfferListing, OfferSelection
from costguard.services.concurrency import run_all
from costguard.services.listing_validation import describe_failure, may_speak_for

LIVE_OFFERS_LIMIT_S = 60.0
"""How long all may take together: somebody waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOffers:
    """What the providers said. `listings`: by provider. `failed`: a sentence for each that could not be asked.

    `unable`: providers that have no way to be asked.
    """

    listings: Mapping[str, OfferListing]
    failed: Mapping[str, str]
    unable: tuple[str, ...] = ()

    @property
    def offers(self) -> tuple[Offer, ...]:
        """All of them together."""
        return tuple(offer for listing in self.listings.values() for offer in listing.offers)

    @property
    def missing(self) -> tuple[str, ...]:
        """What lacks, a sentence each: providers that failed, and parts of listings."""
        parts = [f"{name}: {listing.why}" for name, listing in self.listings.items() if listing.why]
        return (*(f"{name}: {why}" for name, why in self.failed.items()), *parts)

    @property
    def unnamed(self) -> tuple[str, ...]:
        """GPUs that no name here fits, a sentence a provider."""
        return tuple(
            f"{name}: left out, because no GPU is called so here: {', '.join(listing.unnamed)}"
            for name, listing in self.listings.items()
            if listing.unnamed
        )


def ask_live_offers(
    sources: Mapping[str, Sequence[InstanceSource]], gpus: Collection[str] | None, *, limit_s: float = LIVE_OFFERS_LIMIT_S
) -> LiveOffers:
    """What each of `sources` rents out now of `gpus`, None: of all. Accounts of one provider are asked until one answers."""
    able = {name: [one for one in accounts if isinstance(one, LiveOfferSource)] for name, accounts in sources.items()}
    questions = {name: _build_question(accounts, gpus) for name, accounts in able.items() if accounts}
    answers = {name: _check_answer(answer, name) for name, answer in run_all(questions, limit_s=limit_s).items()}
    return LiveOffers(
        listings={name: answer for name, answer in answers.items() if isinstance(answer, OfferListing)},
        failed={name: _explain_failure(answer) for name, answer in answers.items() if not isinstance(answer, OfferListing)},
        unable=tuple(name for name, accounts in able.items() if not accounts),
    )


def select_offers(offers: Iterable[Offer], selection: OfferSelection) -> tuple[Offer, ...]:
    """Those of `offers` that `selection` asks for, each once."""
    return tuple(dict.fromkeys(offer for offer in offers if _matches_selection(offer, selection)))


def sort_offers(offers: Iterable[Offer], sort: str, limit: int | None) -> tuple[Offer, ...]:
    """`offers` as `Market.offers` orders them; those of unknown price last."""
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
    """`answer`, unless it has another shape than its plug-in promised, or tells what another provider rents out."""
    if isinstance(answer, BaseException):
        return answer
    shaped = isinstance(answer, OfferListing) and isinstance(answer.why, str) and isinstance(answer.offers, tuple | list)
    if not shaped or not all(isinstance(offer, Offer) for offer in answer.offers):
        return CostguardError("it answered something else than offers")
    others = sorted({offer.provider for offer in answer.offers if not may_speak_for(name, offer.provider)})
    return CostguardError(f"it tells of offers of {others[0]}") if others else answer


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
    return fits and all(allowed is None or value in allowed for allowed, value in limits)
