"""Fetches the feeds of public prices: politely, within bounds, and from the cache while that is fresh.

An answer is used for `FRESH_FOR` (three hours, and not past midnight in UTC) without asking again. After that the feed is asked
whether it changed (If-None-Match, If-Modified-Since); 304 makes the kept answer fresh again. A source whose answer could not be
used forgets it, so that the next refresh asks anew. Requests name costguard in their User-Agent, carry no key, follow no
redirect and go through `providers/transport`, which bounds time, bytes and unpacking.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from pathlib import Path

from costguard import __version__
from costguard.errors import InvalidAnswerError, ProviderError, RefusedError, ThrottledError, UnreachableError
from costguard.providers.ports.price_source import MOST_FEED_BYTES, FetchedFeed, PriceSourceFacts
from costguard.providers.transport import (
    Deadline,
    HttpRequest,
    HttpResponse,
    ProviderChannel,
    Transport,
    make_status_fault_reader,
)
from costguard.system.atomic_file import write_file_atomically
from costguard.system.input_file import read_input_file

FRESH_FOR = timedelta(hours=3)
"""Catalogues are collected hourly at most; a market's asks are worth a day (issue 21). A polite client asks once an hour."""

FORGOTTEN_AFTER = timedelta(days=14)
"""Cached answers that were not used for so long are removed."""

REQUEST_S = 15.0
FAILURES_MOST = 2
"""After so many requests in a row without an answer a source is not asked further in this refresh."""
USER_AGENT = f"costguard/{__version__} (prices refresh; at most hourly)"
LONGEST_HEAD = 4096
"""Bytes of the line before a cached body."""

NOT_MODIFIED = 304
KEY_WANTED = (401, 403)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedFeed:
    """One answer as it lies on the disk. `at`: when the feed last confirmed it. `etag`, `modified`: its headers, "": none."""

    at: datetime
    body: bytes
    etag: str = ""
    modified: str = ""


class FeedCache:
    """The answers in `folder`: a line of JSON, then the body. A file that cannot be read is as good as none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str, most_bytes: int) -> CachedFeed | None:
        """Return the answer kept as `name`, if it has at most `most_bytes`."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            path = self._find_path(name)
            if path.stat().st_size <= most_bytes + LONGEST_HEAD:
                head, _, body = read_input_file(path, most_bytes + LONGEST_HEAD).partition(b"\n")
                header = json.loads(head)
                if header["name"] == name and header["bytes"] == len(body) <= most_bytes:
                    at = datetime.fromisoformat(header["at"]).astimezone(UTC)
                    return CachedFeed(at=at, body=body, etag=str(header["etag"]), modified=str(header["modified"]))
        return None

    def put(self, name: str, feed: CachedFeed) -> None:
        """Keep `feed`; a failure to store it (a full disk) is ignored."""
        head = {"name": name, "at": feed.at.isoformat(), "etag": feed.etag, "modified": feed.modified, "bytes": len(feed.body)}
        with suppress(OSError):
            write_file_atomically(self._find_path(name), json.dumps(head).encode() + b"\n" + feed.body)

    def forget(self, name: str) -> None:
        """Remove the answer kept as `name`."""
        with suppress(OSError):
            self._find_path(name).unlink(missing_ok=True)

    def remove_old(self, now: datetime) -> None:
        """Remove answers that were not confirmed for `FORGOTTEN_AFTER`, such as those of earlier versions of a catalogue."""
        with suppress(OSError):
            for path in self.folder.iterdir():
                with suppress(OSError):
                    if now.timestamp() - path.stat().st_mtime > FORGOTTEN_AFTER.total_seconds():
                        path.unlink()

    def _find_path(self, name: str) -> Path:
        return self.folder / sha256(name.encode()).hexdigest()[:40]


class CachedPriceFetcher:
    """The `PriceFetcher` of one source. `endpoint`: where it is asked. `now`: the instant of the refresh."""

    def __init__(
        self, transport: Transport, facts: PriceSourceFacts, endpoint: str, *, cache: FeedCache, now: datetime, limit_s: float
    ) -> None:
        self._name, self._cache, self._now = facts.name, cache, now
        self._deadline = Deadline(limit_s)
        self._used = set[str]()
        self._failures = 0
        self._channel = ProviderChannel(
            transport,
            provider=facts.name,
            base_url=endpoint.rstrip("/"),
            headers={"User-Agent": USER_AGENT},
            fault=self._find_fault,
        )

    @property
    def today(self) -> date:
        """Return the day of the refresh, in UTC."""
        return self._now.date()

    def get(self, path: str, *, most_bytes: int = MOST_FEED_BYTES) -> FetchedFeed:
        """Return the body at `path` of the endpoint, from the cache where it is fresh or the feed says it is unchanged."""
        return self._fetch(self._channel.build_request("GET", path), most_bytes)

    def post(self, path: str, body: bytes, *, most_bytes: int = MOST_FEED_BYTES) -> FetchedFeed:
        """Return the answer to `body`, a JSON document, from the cache where it is fresh."""
        request = self._channel.build_request("POST", path, body=body)
        return self._fetch(replace(request, headers={**request.headers, "Content-Type": "application/json"}), most_bytes)

    def forget_answers(self) -> None:
        """Remove what this fetcher returned from the cache: it could not be used."""
        for name in self._used:
            self._cache.forget(name)

    def _fetch(self, request: HttpRequest, most_bytes: int) -> FetchedFeed:
        name = f"{self._name} {request.method} {request.url} {sha256(request.body).hexdigest()}"
        self._used.add(name)
        cached_feed = self._cache.get(name, most_bytes)
        if cached_feed is not None and self._is_fresh(cached_feed):
            return _make_feed(cached_feed)
        query = replace(request, headers={**request.headers, **(_ask_for_change(cached_feed) if cached_feed else {})})
        reply = self._ask(query, most_bytes)
        if reply.status == NOT_MODIFIED and cached_feed is None:
            raise InvalidAnswerError(f"{request.place} answered 304 without an earlier request", provider=self._name)
        body = cached_feed.body if reply.status == NOT_MODIFIED and cached_feed else reply.body
        etag, modified = (reply.headers.get(one, "") for one in ("etag", "last-modified"))
        if reply.status == NOT_MODIFIED and cached_feed:
            etag, modified = etag or cached_feed.etag, modified or cached_feed.modified
        fresh = CachedFeed(at=self._now, body=body, etag=etag[:500], modified=modified[:100])
        self._cache.put(name, fresh)
        return _make_feed(fresh)

    def _ask(self, request: HttpRequest, most_bytes: int) -> HttpResponse:
        """Return the reply, after retries. A source that is down is not hammered with all its requests."""
        if self._failures >= FAILURES_MOST:
            raise UnreachableError(
                f"{request.place} gets no request: the last {FAILURES_MOST} requests failed", provider=self._name
            )
        try:
            reply = self._channel.ask(request, deadline=self._deadline.limit_to(REQUEST_S), most_bytes=most_bytes)
        except (UnreachableError, ThrottledError):
            self._failures += 1
            raise
        self._failures = 0
        return reply

    def _is_fresh(self, cached_feed: CachedFeed) -> bool:
        """Return whether `cached_feed` needs no question: a source dates what it got by the day of the refresh."""
        return timedelta() <= self._now - cached_feed.at < FRESH_FOR and cached_feed.at.date() == self.today

    def _find_fault(self, reply: HttpResponse) -> ProviderError | None:
        if reply.status == NOT_MODIFIED:
            return None
        if reply.status in KEY_WANTED:
            what = f"answers {reply.status}: it may need a key now"
            return RefusedError(what, provider=self._name, status=reply.status)
        return make_status_fault_reader(self._name)(reply)


def _ask_for_change(cached_feed: CachedFeed) -> Mapping[str, str]:
    """Return the headers of a conditional request; characters that no header can hold leave them out."""
    headers = {"If-None-Match": cached_feed.etag, "If-Modified-Since": cached_feed.modified}
    return {header: text for header, text in headers.items() if text and text.isascii() and text.isprintable()}


def _make_feed(cached_feed: CachedFeed) -> FetchedFeed:
    return FetchedFeed(body=cached_feed.body, as_of=_read_day(cached_feed.modified))


def _read_day(text: str) -> date | None:
    try:
        at = parsedate_to_datetime(text)
        return (at.astimezone(UTC) if at.tzinfo else at).date()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
