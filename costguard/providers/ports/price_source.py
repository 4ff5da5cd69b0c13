"""Public prices: what a source that anybody can read, without an account, says and is handed.

A source turns the published answer of one feed into offers. It neither opens a connection nor keeps a cache: `PriceFetcher`
does both, so that size limits, conditional requests and caching are the same for all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:  # types and no more
    from costguard.quoting.offer import OfferListing
    from costguard.values.gpu import GpuNames

MOST_FEED_BYTES = 32 * 2**20
"""Of one answer of a feed once unpacked: the largest that is read whole is SkyPilot's catalogue of AWS, 2 to 4 MB
(`providers/public-prices.md`, 2026-11-23)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSourceFacts:
    """What is known of a source. `endpoint`: its address without a path, which settings may replace (a mirror, a test).

    `providers`: whose prices it states, in costguard's names. `terms`, `size` and `freshness`: in words, as of `checked_on`.
    `order`: of two sources that state the same offer the lower one counts. `fallback`: asked only for providers for which
    no other source answered. `prices_unsold`: it also prices machines in regions that do not have them, so that only GPUs
    which the market knows in a region are taken from it.
    """

    name: str
    title: str
    endpoint: str
    providers: tuple[str, ...]
    terms: str
    size: str
    freshness: str
    checked_on: date
    order: int
    fallback: bool = False
    prices_unsold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFeed:
    """One answer. `as_of`: the day of its content as HTTP states it (Last-Modified), None: not stated."""

    body: bytes
    as_of: date | None = None


class PriceFetcher(Protocol):
    """Fetches for one source, below its endpoint. `today` is the day of the refresh."""

    @property
    def today(self) -> date:
        """Return the day of the refresh, in UTC."""

    def get(self, path: str, *, most_bytes: int = MOST_FEED_BYTES) -> FetchedFeed:
        """Return the body at `path` (with its query) of the endpoint; from the cache where the feed says it is unchanged.

        ProviderError if it cannot be had, or is larger than `most_bytes`.
        """

    def post(self, path: str, body: bytes, *, most_bytes: int = MOST_FEED_BYTES) -> FetchedFeed:
        """Return the answer to `body`, a JSON document."""


class PublicPriceSource(Protocol):
    """What an entry point of `costguard.price_sources` names. Importing it must not import a network library."""

    @property
    def facts(self) -> PriceSourceFacts:
        """What is known of the source before it is asked anything."""

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return provider -> its offers. `OfferListing.why` names what was left out of it, "" if the listing is complete.

        A ProviderError if the feed cannot be asked, or if its answer is not of the published shape.
        """


@runtime_checkable
class SelectivePriceSource(Protocol):
    """A source with a feed for each provider, which can be asked for some of them."""

    def list_offers_of(self, fetch: PriceFetcher, gpus: GpuNames, providers: Collection[str]) -> Mapping[str, OfferListing]:
        """Return provider -> its offers, of `providers`; an empty listing with its `why` for one that cannot be had."""
