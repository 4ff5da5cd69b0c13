"""A refresh of all public price sources without a key, over loopback at 200 ms a request: wall time and peak memory.

    python -m bench.prices_refresh [LATENCY_MS]

The captures of `tests/public_prices` are blown up to the sizes of the published feeds (providers/public-prices.md, 2026-11-23):
gpuhunt's zips of 200 to 40,000 rows, SkyPilot's file of AWS of 3.7 MB, Cyclenerd's of 2.5 MB, five pages of Azure. Each refresh
is a process of its own with an empty cache; then one more from the cache. Targets: 20 s and 200 MB (issue 21).
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.measured import Measured, table
from tests.fakes.server import Answer, Asked, serving
from tests.public_prices.feeds import (
    CAPTURES,
    CLOUDS,
    PRICING,
    YESTERDAY,
    Feeds,
    cyclenerd_pages,
    gpuhunt_pages,
    pack,
    skypilot_pages,
)

LATENCY_MS = 200
MOST_S, MOST_MB = 20, 200
MB_OF_KIB = 1024 / 10**6

ROWS = {"aws": 8_000, "azure": 8_000, "gcp": 40_000, "runpod": 12_000, "skypilot-aws": 45_000, "skypilot-runpod": 10_000}
OTHER_ROWS = 200
AZURE_PAGES, AZURE_ROWS = 5, 1000
GCP_REGIONS, GCP_MACHINES = 40, 250

SINGLE_PAGES = {
    "/graphql": "runpod/gpu_types.json",
    "/api/v0/bundles/": "vast/h100.json",
    "/pls/apex/cetools/api/v1/products/": "oci/products.json",
    "/spot.js": "aws_spot/spot.js",
    "/v2/plans": "vultr/plans.json",
    "/v2/plans-metal": "vultr/plans_metal.json",
    "/v4/linode/types": "akamai/types.json",
    "/v1/instance-types": "verda/instance_types.json",
}
"""Path -> capture of the sources whose answer is one small page."""


class LargeFeeds(Feeds):
    """All feeds in the sizes of the published ones."""

    def answer(self, asked: Asked) -> Answer:
        """Return a page of Azure, made for its place in the chain, or the page at the path."""
        if asked.path == "/api/retail/prices":
            return Answer(headers={"Content-Type": "application/json"}, body=_make_azure_page(int(asked.one("$skip", "0"))))
        return super().answer(asked)


def _make_azure_page(skip: int) -> bytes:
    page: dict[str, Any] = json.loads((CAPTURES / "azure" / "page_1.json").read_bytes())
    rows, number = [row for row in page["Items"] if row["retailPrice"] > 1], skip // AZURE_ROWS  # no placeholders
    page["Items"] = [{**rows[i % len(rows)], "armRegionName": f"region{number}-{i // len(rows)}"} for i in range(AZURE_ROWS)]
    following = f"https://prices.azure.com/api/retail/prices?$skip={skip + AZURE_ROWS}"
    page["NextPageLink"] = following if number + 1 < AZURE_PAGES else None
    return json.dumps(page).encode()


def _repeat_rows(text: bytes, column: str, rows: int) -> bytes:
    """Return a CSV of `rows` rows: those of `text` again and again, each time in other places."""
    head, *lines = text.decode().splitlines()
    at = head.split(",").index(column)
    made = [head]
    for number in range(rows):
        cells = lines[number % len(lines)].split(",")
        cells[at] = f"{cells[at]}{number // len(lines) or ''}"
        made.append(",".join(cells))
    return "\n".join(made).encode()


def build_pages() -> dict[str, bytes]:
    """Return every page by its path."""
    pages = gpuhunt_pages()
    for path in [one for one in pages if one.endswith(".zip")]:
        slug = path.split("/")[2]
        text = (CAPTURES / f"gpuhunt_{slug}.csv").read_bytes()
        pages[path] = pack(f"{slug}.csv", _repeat_rows(text, "location", ROWS.get(slug, OTHER_ROWS)))
    captured = skypilot_pages()
    hyperstack = captured["/catalogs/v8/hyperstack/vms.csv"]
    for path in (f"/catalogs/v8/{cloud}/vms.csv" for cloud in CLOUDS):
        text = captured.get(path, hyperstack)
        cloud = path.split("/")[3]
        column = "AvailabilityZone" if cloud == "runpod" else "Region"
        pages[path] = _repeat_rows(_move_first(text, column), column, ROWS.get(f"skypilot-{cloud}", OTHER_ROWS))
    pages[PRICING] = _repeat_machines(cyclenerd_pages(YESTERDAY)[PRICING].decode()).encode()
    pages |= {path: (CAPTURES / name).read_bytes() for path, name in SINGLE_PAGES.items() if (CAPTURES / name).is_file()}
    return pages


def _move_first(text: bytes, column: str) -> bytes:
    """Return a CSV with `column` first, before the quoted cells that hold commas."""
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    out = io.StringIO()
    writer = csv.DictWriter(out, [column, *(name for name in rows[0] if name != column)])
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().replace("\r\n", "\n").encode()


def _repeat_machines(text: str) -> str:
    """Return the pricing file with `GCP_REGIONS` regions a machine, and `GCP_MACHINES` machines without a GPU."""
    lines = list[str]()
    region = list[str]()
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        if region and depth <= 8:  # the end of a region
            lines += [one.replace("us-central1", f"region-{i}") for i in range(GCP_REGIONS) for one in region]
            region = []
        if line == "        us-central1:" or (region and depth > 8):
            region.append(line)
        else:
            lines.append(line)
    start = lines.index("    e2-micro:")
    end = next(i for i in range(start + 1, len(lines)) if lines[i].startswith("    ") and lines[i][4] != " ")
    return "\n".join([*lines[:start], *(lines[start:end] * GCP_MACHINES), *lines[end:]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """One process: wall seconds, peak megabytes, and the document that it printed."""

    wall_s: float
    peak_mb: float
    data: Mapping[str, Any]


def _run_refresh(folder: Path, *flags: str) -> Refresh:
    environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "COSTGUARD_CONFIG": str(folder / "costguard.toml")}
    command = [sys.executable, "-m", "costguard", "prices", "refresh", "--public", "--json", *flags]
    began = time.monotonic()
    with (folder / "out.json").open("wb") as out:
        child = subprocess.Popen(command, stdout=out, env=environ)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"prices refresh ended with {child.returncode}")
    data = json.loads((folder / "out.json").read_bytes())
    return Refresh(wall_s=time.monotonic() - began, peak_mb=usage.ru_maxrss * MB_OF_KIB, data=data)


def measure(latency_ms: int) -> Iterator[Measured]:
    """Yield wall time and peak memory of a refresh of all sources, of one with the fall-backs, and of one from the cache."""
    from costguard.providers.plugins import load_price_sources

    names = sorted(load_price_sources().found)
    feeds = LargeFeeds(build_pages())
    feeds.fault(".", "delay", seconds=latency_ms / 1000)
    every = [part for name in names for part in ("--source", name)]
    with serving(feeds) as url:
        for what, flags in (("all sources", []), ("all sources, and the fall-backs for all clouds", every)):
            with TemporaryDirectory() as made:
                folder = Path(made)
                tables = "".join(f'[prices.sources.{name}]\nendpoint = "{url}"\n' for name in names)
                (folder / "costguard.toml").write_text(tables)
                asked = len(feeds.asked)
                first = _run_refresh(folder, *flags)
                calls = len(feeds.asked) - asked
                again = _run_refresh(folder, *flags)
                size = (folder / "cache" / "costguard" / "market.sqlite").stat().st_size / 10**6
            yield from _compare(what, calls, size, first, again)


def _compare(what: str, calls: int, size: float, first: Refresh, again: Refresh) -> Iterator[Measured]:
    rows = sum(one["offers"] for one in first.data["sources"])
    failed = [f"{one['source']}: {one['failed']}" for one in first.data["sources"] if one["failed"]]
    told = f"{what}: {calls} requests, {rows:,} offers, a market of {size:.1f} MB"
    yield Measured(what=told, reached="; ".join(failed) or "none failed")
    wall, peak = first.wall_s, max(first.peak_mb, again.peak_mb)
    yield Measured(what=f"{what}: wall", target=f"<= {MOST_S} s", reached=f"{wall:.1f} s", met=wall <= MOST_S)
    yield Measured(what=f"{what}: again, from the cache", reached=f"{again.wall_s:.1f} s")
    yield Measured(
        what=f"{what}: peak memory of both", target=f"<= {MOST_MB} MB", reached=f"{peak:.0f} MB", met=peak <= MOST_MB
    )


def main() -> int:
    """0 where every target is met."""
    return int(table(measure(int(sys.argv[1]) if len(sys.argv) > 1 else LATENCY_MS)) > 0)


if __name__ == "__main__":
    sys.exit(main())
