"""What holds for every cloud's own feed: its facts, what it imports, and that an answer of another shape is refused whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from costguard_public import akamai, aws_spot, azure, oci, runpod, vast, verda, vultr

from costguard.errors import InvalidAnswerError, ProviderError, UnreachableError
from costguard.providers.ports.price_source import PublicPriceSource
from costguard.quoting.offer import OfferListing
from tests.public_prices.answers import GPUS, TODAY, StubFetcher, read_capture

SOURCES: dict[str, tuple[PublicPriceSource, tuple[str, ...]]] = {
    "akamai": (akamai.source, ("akamai/types.json",)),
    "aws_spot": (aws_spot.source, ("aws_spot/spot.js",)),
    "azure": (azure.source, ("azure/page_1.json", "azure/page_2.json")),
    "oci": (oci.source, ("oci/products.json",)),
    "runpod": (runpod.source, ("runpod/gpu_types.json",)),
    "vast": (vast.source, ("vast/h100.json", "vast/none.json")),
    "verda": (verda.source, ("verda/instance_types.json",)),
    "vultr": (vultr.source, ("vultr/plans.json", "vultr/plans_metal.json")),
}
each_source = pytest.mark.parametrize("name", SOURCES)
OTHER_SHAPES = {
    "a web page": b"<!DOCTYPE html><html><body>Access denied</body></html>",
    "nothing": b"",
    "half a document": b'{"data": [{"id": "a"',
    "no text": b"\xff\xfe\x00\x01",
    "null": b"null",
    "a number": b"7",
    "an empty object": b"{}",
    "another object": b'{"error": "gone", "message": "this API was retired"}',
    "lists of lists": b'{"data": {"gpuTypes": "x"}, "offers": {}, "items": {}, "plans": {}, "Items": {}, "config": []}',
    "deep": b"[" * 100_000,
    "a number of 5,000 digits": b'{"data": ' + b"9" * 5000 + b"}",
}


@each_source
def test_facts_name_the_source_its_https_endpoint_and_its_terms(name: str) -> None:
    facts = SOURCES[name][0].facts
    assert facts.name == name
    assert facts.endpoint.startswith("https://")
    assert facts.endpoint.count("/") == 2
    assert facts.providers
    assert facts.terms
    assert facts.size
    assert facts.freshness
    assert facts.checked_on <= TODAY + timedelta(days=1)
    assert not facts.fallback


@each_source
def test_capture_gives_offers_of_the_stated_provider_dated_the_day_asked(name: str) -> None:
    source, captures = SOURCES[name]
    listings = source.list_public_offers(StubFetcher(tuple(map(read_capture, captures))), GPUS)
    assert tuple(listings) == source.facts.providers
    for provider, listing in listings.items():
        assert listing.offers
        for offer in listing.offers:
            assert (offer.provider, offer.observed_on, offer.observed_to) == (provider, TODAY, None)
            assert offer.source
            assert GPUS.resolve(offer.gpu).canonical == offer.gpu


@each_source
@pytest.mark.parametrize("shape", OTHER_SHAPES)
def test_answer_of_another_shape_is_refused_with_the_name_of_the_feed(name: str, shape: str) -> None:
    source, _ = SOURCES[name]
    with pytest.raises(InvalidAnswerError) as refused:
        source.list_public_offers(StubFetcher((OTHER_SHAPES[shape],)), GPUS)
    assert source.facts.title in str(refused.value)


@each_source
def test_feed_that_cannot_be_asked_raises_its_error(name: str) -> None:
    gone = UnreachableError("does not answer", provider=name)
    with pytest.raises(ProviderError) as raised:
        SOURCES[name][0].list_public_offers(StubFetcher((gone,)), GPUS)
    assert raised.value is gone


@each_source
def test_answer_with_too_many_rows_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, captures = SOURCES[name]
    monkeypatch.setattr("costguard_public.rows.MOST_ROWS", 1)
    with pytest.raises(InvalidAnswerError, match="more than 1: refused"):
        source.list_public_offers(StubFetcher(tuple(map(read_capture, captures))), GPUS)


ODD_VALUES: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    10**400,
    1e300,
    "",
    "x" * 5000,
    "\x1b[31m\n",
    "9" * 5000,
    [],
    [[]],
    {},
    {"a": 1},
)


def list_places(document: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every member of a document, lists and objects too."""
    members = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in members:
        yield (*place, key)
        yield from list_places(value, (*place, key))


def replace_member(document: object, place: tuple[str | int, ...], value: object) -> object:
    """Return a copy of `document` with `value` at `place`."""
    if not place:
        return value
    first, rest = place[0], place[1:]
    if isinstance(document, dict):
        return {**document, first: replace_member(document[first], rest, value)}
    assert isinstance(document, list)
    assert isinstance(first, int)
    return [*document[:first], replace_member(document[first], rest, value), *document[first + 1 :]]


def read_feed(name: str, *answers: bytes) -> OfferListing | None:
    """Return what a source makes of `answers`; None if it refuses them with a message."""
    try:
        (listing,) = SOURCES[name][0].list_public_offers(StubFetcher(answers), GPUS).values()
    except InvalidAnswerError:
        return None
    return listing


@each_source
def test_any_one_odd_member_gives_believable_offers_or_a_plain_refusal(name: str) -> None:
    first, *others = map(read_capture, SOURCES[name][1])
    document = json.loads(first.strip().removeprefix(b"callback(").removesuffix(b");"))
    good = read_feed(name, first, *others)
    assert good is not None
    whole = len(good.offers)
    for place in list_places(document):
        for value in ODD_VALUES:
            body = json.dumps(replace_member(document, place, value)).encode()
            listing = read_feed(name, body, *others)
            if listing is None:
                continue
            assert len(listing.offers) <= whole + 8
            for offer in listing.offers:
                assert offer.rate is not None
                assert 0 < offer.rate.nano_per_hour <= 100 * 10**9 * offer.gpu_count
                assert max(map(len, (offer.region, offer.instance_type, offer.note))) <= 200
                assert f"{offer.region}{offer.instance_type}{offer.note}".isprintable()
            assert all(text.isprintable() for text in (listing.why, listing.left_out, *listing.unnamed))
