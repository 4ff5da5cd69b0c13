"""A PriceFetcher that hands out given answers in turn, and captures of the clouds' own feeds with changed rows.

The captures in `captures/<source>/` are a few rows each, written for these tests in the published formats.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from costguard.data import ShippedFacts
from costguard.errors import ProviderError
from costguard.providers.ports.price_source import MOST_FEED_BYTES, FetchedFeed, PublicPriceSource
from costguard.quoting.offer import Offer, OfferListing
from costguard.values.gpu import GpuNames

CAPTURES = Path(__file__).parent / "captures"
TODAY = date(2026, 11, 23)
GPUS = GpuNames(ShippedFacts().get_gpus())

BAD_PRICES: tuple[object, ...] = (0, -1, 1e9, "NaN", "Infinity", "-0.5", "ten", "", True, [], {}, "1e999999", "9" * 5000)
"""What no machine costs."""


@dataclass
class StubFetcher:
    """Hands out `answers` in turn, the last one for ever; one that is an error is raised. `asked`: method, path and body."""

    answers: tuple[bytes | ProviderError, ...]
    today: date = TODAY
    as_of: date | None = None
    asked: list[tuple[str, str, bytes]] = field(default_factory=list)

    def get(self, path: str, *, most_bytes: int = MOST_FEED_BYTES) -> FetchedFeed:
        return self._answer("GET", path, b"", most_bytes)

    def post(self, path: str, body: bytes, *, most_bytes: int = MOST_FEED_BYTES) -> FetchedFeed:
        return self._answer("POST", path, body, most_bytes)

    def _answer(self, method: str, path: str, body: bytes, most_bytes: int) -> FetchedFeed:
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append((method, path, body))
        if isinstance(answer, ProviderError):
            raise answer
        assert len(answer) <= most_bytes
        return FetchedFeed(body=answer, as_of=self.as_of)


def read_capture(name: str) -> bytes:
    return (CAPTURES / name).read_bytes()


def load_capture(name: str) -> Any:  # noqa: ANN401 - JSON
    return json.loads(read_capture(name))


def change_capture(name: str, change: Callable[[Any], None]) -> bytes:
    """Return a capture after `change` was made to its document."""
    document = load_capture(name)
    change(document)
    return json.dumps(document).encode()


def list_offers(source: PublicPriceSource, *answers: bytes | ProviderError, today: date = TODAY) -> OfferListing:
    """Return the one listing of a source that states one provider."""
    (listing,) = source.list_public_offers(StubFetcher(answers, today=today), GPUS).values()
    return listing


def get_dollars(offer: Offer) -> Decimal:
    assert offer.rate is not None
    assert offer.rate.currency == "USD"
    return Decimal(offer.rate.nano_per_hour).scaleb(-9)


def sum_up(listing: OfferListing) -> set[tuple[str, str, str, int, str, Decimal]]:
    """Return type, region, GPU, count, tier and dollars of every offer."""
    return {(o.instance_type, o.region, o.gpu, o.gpu_count, o.tier, get_dollars(o)) for o in listing.offers}
