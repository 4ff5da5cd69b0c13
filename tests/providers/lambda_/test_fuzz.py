"""Real answers with anything changed in them: no crash, and no number in what comes out that did not go in.

COSTGUARD_FUZZ sets the number of tries of each test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any, cast

from costguard_lambda.account import LambdaAccount
from costguard_lambda.api import LambdaApi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costguard.errors import ProviderError
from costguard.metering.inventory import Complete, Failed, Poll
from costguard.metering.observation import Observation
from costguard.providers.api_keys import KeyedAccount
from costguard.providers.transport import HttpResponse, ProviderChannel, ProviderContext, Secret, Transport
from costguard.quoting.offer import OfferListing
from costguard.values.instant import parse_instant
from tests.campaign import examples
from tests.contract.edits import paths, put
from tests.contract.rig import BILLS, NAMES, NoCache
from tests.fakes.lambda_ import GIB
from tests.fakes.server import Hands
from tests.providers.lambda_.test_spec import ask, cloud

TRIES = settings(
    max_examples=int(os.environ.get("COSTGUARD_FUZZ") or examples(200)),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ANSWERS = {
    path: json.loads(ask(cloud(), "GET", f"/api/v1{path}").body)
    for path in ("/instances", "/file-systems", "/audit-events", "/instance-types")
}
PATHS = {path: list(paths(value)) for path, value in ANSWERS.items()}
WORDS = st.sampled_from(
    [
        "active",
        "booting",
        "gone",
        "",
        "NaN",
        "sNaN",
        "-1",
        "1e999999999",
        "129",
        "0",
        "2026-11-21T10:00:00+02:00",
        "H100 (80 GB)",
    ]
)
NUMBERS = st.one_of(st.integers(), st.integers(0, 2 * 10**18), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS, st.text(max_size=20), st.just("a\ud800b"), st.just("\0"))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


class Canned(ProviderChannel):
    """Answers from memory."""

    def __init__(self, bodies: Mapping[str, bytes]) -> None:
        super().__init__(cast("Transport", None), provider="lambda", base_url="https://x", account="default")
        self.bodies = bodies

    def read(self, path: str, params: Mapping[str, str] | None = None, **_: Any) -> HttpResponse:  # noqa: ANN401, ARG002
        return HttpResponse(status=200, body=self.bodies[path])


def account(bodies: Mapping[str, bytes]) -> LambdaAccount:
    around = ProviderContext(
        transport=cast("Transport", None),
        clock=Hands(),
        gpus=NAMES,
        bills=BILLS,
        cache=NoCache(),
        environ={},
        home=Path("/nowhere"),
    )
    key = KeyedAccount(account="default", key=Secret("x" * 20), source="a test")
    return LambdaAccount(name="default", api=LambdaApi(Canned(bodies)), key=key, around=around, timeout_s=60)


@st.composite
def changed(draw: st.DrawFn, path: str) -> bytes:
    """An answer with up to four things in it replaced or left out."""
    value = ANSWERS[path]
    for _ in range(draw(st.integers(1, 4))):
        where = draw(st.sampled_from(PATHS[path]))
        new = draw(st.one_of(st.just(...), VALUES))
        try:
            value = put(value, where, new)
        except (KeyError, IndexError, TypeError):
            continue
    return json.dumps(value).encode()


@st.composite
def clouds(draw: st.DrawFn) -> dict[str, bytes]:
    """All answers, at least one of them changed."""
    spoilt = draw(st.sets(st.sampled_from(sorted(ANSWERS)), min_size=1))
    return {path: draw(changed(path)) if path in spoilt else json.dumps(right).encode() for path, right in ANSWERS.items()}


def scalars(value: Any) -> Iterator[Any]:  # noqa: ANN401 - whatever was sent
    """Everything in `value` that is no container."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from scalars(inner)
    else:
        yield value


def numbers(found: list[Any]) -> set[Fraction]:
    """Every number among them, written as text or not."""
    stated: set[Fraction] = set()
    for one in found:
        try:
            number = Decimal(str(one)) if not isinstance(one, bool) else Decimal("NaN")
        except (InvalidOperation, ValueError):
            continue
        if number.is_finite() and abs(number.adjusted()) < 500:
            stated.add(Fraction(number))
    return stated


def instants(found: list[Any]) -> set[datetime]:
    """Every time that could be meant by one of them, to the microsecond."""
    times: set[datetime] = set()
    for one in found:
        if isinstance(one, str):
            times |= {at for at in [parse_instant(one)] if at}
    for number in numbers(found):
        for per in (1, 10**3, 10**6, 10**9):
            us = int(number * 10**6 / per)
            if 0 < us < 10**16:
                times.add(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us))
    return times


def stands_in(seen: Observation, stated: set[Fraction], times: set[datetime]) -> None:
    """Every number of `seen` was stated."""
    for price in seen.prices:
        assert price.rate is None or Fraction(price.rate.nano_per_hour, 10**7) in stated or _rounded(price.rate, stated)
    assert seen.gpu_count in stated or not seen.gpu_count
    for disk in seen.disks:
        assert disk.gb is None or any(ceil(n) == disk.gb or ceil(n / GIB) == disk.gb for n in stated)
    assert seen.started_at is None
    assert seen.created_at is None or seen.created_at in times


def _rounded(rate: Any, stated: set[Fraction]) -> bool:  # noqa: ANN401
    """A price of more digits than a nano-dollar has."""
    return any(abs(n * 10**7 - rate.nano_per_hour) < 1 for n in stated)


@TRIES
@given(clouds())
def test_no_listing_however_changed_crashes_it_or_makes_it_invent_a_number(bodies: dict[str, bytes]) -> None:
    source = account(bodies)
    poll = source.poll(source.list_scopes()[0])
    assert isinstance(poll, Poll)
    if isinstance(poll.inventory, Failed):
        assert poll.inventory.why
        return
    found = [one for body in bodies.values() for one in scalars(json.loads(body))]
    stated, times = numbers(found), instants(found)
    for seen in poll.inventory.items:
        stands_in(seen, stated, times)
    listed = json.loads(bodies["/instances"])["data"]
    if isinstance(poll.inventory, Complete):
        assert len([one for one in poll.inventory.items if one.kind == "instance"]) == len(listed)


@TRIES
@given(clouds())
def test_no_offers_however_changed_crash_it_or_make_it_invent_a_price(bodies: dict[str, bytes]) -> None:
    source = account(bodies)
    try:
        listing = source.list_live_offers(None)
    except ProviderError:
        return
    assert isinstance(listing, OfferListing)
    stated = numbers(list(scalars(json.loads(bodies["/instance-types"]))))
    for one in listing.offers:
        assert one.rate is None or _rounded(one.rate, stated)
        assert one.gpu_count in stated


@TRIES
@given(st.binary(max_size=200))
def test_no_bytes_at_all_crash_it(body: bytes) -> None:
    source = account(dict.fromkeys(ANSWERS, body))
    assert isinstance(source.poll(source.list_scopes()[0]), Poll)


@TRIES
@given(st.one_of(st.text(max_size=40), NUMBERS, VALUES))
def test_every_time_is_within_reason_or_none(value: object) -> None:
    at = parse_instant(value)
    assert at is None or (at.tzinfo is UTC and 2000 <= at.year < 2200)
