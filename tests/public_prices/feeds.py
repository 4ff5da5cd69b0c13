"""A server of price feeds on this machine: pages by path, with ETags, as the published feeds answer; and a fetcher in memory.

The captures beside this file are a few rows each in the published formats, written for these tests.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from costguard.errors import MissingError
from costguard.providers.ports.price_source import MOST_FEED_BYTES, FetchedFeed
from tests.fakes.server import Answer, Asked, FakeCloud

CAPTURES = Path(__file__).parent / "captures"
YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)
SLUGS = ("aws", "azure", "cloudrift", "gcp", "lambdalabs", "nebius", "oci", "runpod", "verda")
CLOUDS = ("aws", "azure", "hyperstack", "lambda", "nebius", "oci", "runpod", "verda")
PRICING = "/Cyclenerd/google-cloud-pricing-cost-calculator/master/pricing.yml"


def capture(name: str) -> bytes:
    return (CAPTURES / name).read_bytes()


def pack(name: str, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as file:
        file.writestr(name, content)
    return packed.getvalue()


def gpuhunt_pages(day: date = YESTERDAY) -> dict[str, bytes]:
    pages = dict[str, bytes]()
    for slug in SLUGS:
        version = f"{day:%Y%m%d}-42"
        pages[f"/v3/{slug}/version"] = f"{version}\n".encode()
        pages[f"/v3/{slug}/{version}/catalog.zip"] = pack(f"{slug}.csv", capture(f"gpuhunt_{slug}.csv"))
    return pages


def skypilot_pages() -> dict[str, bytes]:
    named = {cloud: CAPTURES / f"skypilot_{cloud}.csv" for cloud in CLOUDS}
    return {f"/catalogs/v8/{cloud}/vms.csv": path.read_bytes() for cloud, path in named.items() if path.is_file()}


def cyclenerd_pages(day: date = YESTERDAY) -> dict[str, bytes]:
    stamp = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
    return {PRICING: capture("cyclenerd_pricing.yml").replace(b"1794700800", str(stamp).encode())}


class Feeds(FakeCloud):
    """Answers with `pages` by path; `modified`: the Last-Modified of all, "": none is stated."""

    def __init__(self, pages: Mapping[str, bytes], modified: str = "") -> None:
        super().__init__()
        self.pages, self.modified = dict(pages), modified

    def answer(self, asked: Asked) -> Answer:
        body = self.pages.get(asked.path)
        if body is None:
            return Answer(status=404, body=b"<Error><Code>NoSuchKey</Code></Error>")
        etag = f'"{sha256(body).hexdigest()[:16]}"'
        headers = {"ETag": etag, **({"Last-Modified": self.modified} if self.modified else {})}
        if asked.headers.get("if-none-match") == etag:
            return Answer(status=304, headers=headers)
        return Answer(headers=headers, body=body)


@dataclass
class MemoryFetcher:
    """A PriceFetcher over pages in memory."""

    pages: dict[str, bytes]
    today: date = YESTERDAY
    as_of: date | None = None
    asked: list[str] = field(default_factory=list)

    def get(self, path: str, *, most_bytes: int = MOST_FEED_BYTES) -> FetchedFeed:
        self.asked.append(path)
        if path not in self.pages or len(self.pages[path]) > most_bytes:
            raise MissingError("has no such resource", provider="memory", status=404)
        return FetchedFeed(body=self.pages[path], as_of=self.as_of)

    def post(self, path: str, body: bytes, *, most_bytes: int = MOST_FEED_BYTES) -> FetchedFeed:  # noqa: ARG002 - the port's
        return self.get(path, most_bytes=most_bytes)
