"""How feeds are fetched: from the cache, by conditional requests, and within bounds, over a server on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest
from costguard_public.gpuhunt import source

from costguard.errors import InvalidAnswerError, ProviderError, RefusedError, ThrottledError, UnreachableError
from costguard.providers.transport import Transport
from costguard.services.quote.price_feeds import FORGOTTEN_AFTER, CachedPriceFetcher, FeedCache
from tests.fakes.server import serving
from tests.public_prices.feeds import Feeds

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MODIFIED = "Fri, 20 Nov 2026 10:00:00 GMT"


@dataclass
class Rig:
    feeds: Feeds
    url: str
    transport: Transport
    cache: FeedCache

    def fetcher(self, now: datetime = NOON, limit_s: float = 10.0) -> CachedPriceFetcher:
        return CachedPriceFetcher(self.transport, source.facts, self.url, cache=self.cache, now=now, limit_s=limit_s)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    feeds = Feeds({"/a": b"one", "/b": b"two"}, modified=MODIFIED)
    transport = Transport()
    with serving(feeds) as url:
        yield Rig(feeds, url, transport, FeedCache(tmp_path / "prices"))
    transport.close()


def test_an_answer_is_used_for_three_hours_without_asking_again(rig: Rig) -> None:
    for hours in (0, 1, 2.9):
        feed = rig.fetcher(NOON + timedelta(hours=hours)).get("/a")
        assert (feed.body, feed.as_of) == (b"one", date(2026, 11, 20))
    assert rig.feeds.calls("/a") == 1


def test_an_older_answer_is_asked_for_by_its_etag_and_304_makes_it_fresh(rig: Rig) -> None:
    rig.fetcher().get("/a")
    for hours in (3.1, 5.0):
        assert rig.fetcher(NOON + timedelta(hours=hours)).get("/a").body == b"one"
    first, second = rig.feeds.asked
    assert "if-none-match" not in first.headers
    assert second.headers["if-modified-since"] == MODIFIED
    assert second.headers["if-none-match"].startswith('"')


def test_an_answer_of_yesterday_is_asked_for_again_since_sources_date_it_today(rig: Rig) -> None:
    late = NOON.replace(hour=23, minute=30)
    rig.fetcher(late).get("/a")
    rig.fetcher(late + timedelta(hours=1)).get("/a")
    rig.fetcher(late - timedelta(minutes=1)).get("/a")  # a clock that was set back
    assert rig.feeds.calls("/a") == 3


def test_an_answer_that_could_not_be_used_is_forgotten(rig: Rig) -> None:
    fetcher = rig.fetcher()
    fetcher.get("/a")
    fetcher.forget_answers()
    rig.fetcher().get("/a")
    assert rig.feeds.calls("/a") == 2


@pytest.mark.parametrize("content", [b"", b"no json\nbody", b'{"name": 1}\nx', b"{}\n", b'{"name"' + b"x" * 9000])
def test_a_damaged_cache_is_asked_anew(rig: Rig, content: bytes) -> None:
    rig.fetcher().get("/a")
    (kept,) = rig.cache.folder.iterdir()
    kept.write_bytes(content)
    assert rig.fetcher().get("/a").body == b"one"
    assert rig.feeds.calls("/a") == 2


def test_answers_that_nobody_used_for_weeks_are_removed(rig: Rig) -> None:
    rig.fetcher().get("/a")
    rig.cache.remove_old(datetime.now(UTC) + FORGOTTEN_AFTER - timedelta(hours=1))
    assert len(list(rig.cache.folder.iterdir())) == 1
    rig.cache.remove_old(datetime.now(UTC) + FORGOTTEN_AFTER + timedelta(hours=1))
    assert list(rig.cache.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        ({"kind": "status", "status": 429, "headers": {"Retry-After": "3600"}}, ThrottledError, "429"),
        ({"kind": "status", "status": 403}, RefusedError, "may need a key now"),
        ({"kind": "status", "status": 500}, UnreachableError, "500"),
        ({"kind": "redirect"}, InvalidAnswerError, "a redirect"),
        ({"kind": "short"}, UnreachableError, "in the middle of its answer"),
        ({"kind": "bomb"}, InvalidAnswerError, "more than"),
        ({"kind": "reset"}, UnreachableError, "without an answer"),
        ({"kind": "status", "status": 304}, InvalidAnswerError, "without an earlier request"),
    ],
)
def test_what_goes_wrong_is_said_and_nothing_is_kept(
    rig: Rig, fault: dict[str, object], error: type[ProviderError], said: str
) -> None:
    rig.feeds.fault("/a", **fault)  # type: ignore[arg-type]
    with pytest.raises(error, match=said):
        rig.fetcher(limit_s=5).get("/a", most_bytes=1000)
    assert not rig.cache.folder.exists()


def test_a_feed_larger_than_allowed_is_refused_while_it_is_read(rig: Rig) -> None:
    rig.feeds.pages["/a"] = b"x" * 2000
    with pytest.raises(InvalidAnswerError, match="more than 1000 bytes"):
        rig.fetcher().get("/a", most_bytes=1000)


def test_a_feed_that_trickles_is_given_up_at_the_deadline(rig: Rig) -> None:
    rig.feeds.fault("/a", "drip", seconds=60)
    began = monotonic()
    with pytest.raises(UnreachableError, match="in time"):
        rig.fetcher(limit_s=0.5).get("/a")
    assert monotonic() - began < 45


def test_a_source_that_is_down_is_not_asked_for_everything(rig: Rig) -> None:
    rig.feeds.fault("/", "status", status=429, headers={"Retry-After": "900"})
    fetcher = rig.fetcher()
    for number in range(9):
        with pytest.raises(ThrottledError if number < 2 else UnreachableError):
            fetcher.get(f"/{number}")
    assert len(rig.feeds.asked) == 2


def test_a_kept_answer_outlives_a_feed_that_fails_only_while_it_is_fresh(rig: Rig) -> None:
    rig.fetcher().get("/a")
    rig.feeds.fault("/a", "status", status=500)
    assert rig.fetcher(NOON + timedelta(hours=1)).get("/a").body == b"one"
    with pytest.raises(UnreachableError):
        rig.fetcher(NOON + timedelta(hours=4), limit_s=1).get("/a")
