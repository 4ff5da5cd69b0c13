"""Builds `costguard/data/market.sqlite` from price snapshots: `python scripts/build_market.py [FOLDER]`.

One CSV row is one observation of one price. The rules (from the snapshots' README): never average; of the same thing the newest
observation is kept; a blend of tiers (RunPod's "cheapest of community and secure") is no offer, and neither is what cannot be
rented; a price that cannot be true is unknown, shown and never ranked. A copy without a date has a first and a last possible
day. Every row that is not kept is counted under its reason.

Beside the snapshots, a history of prices is read for machines that they lack or know only from an earlier day.

Example: RunPod's H100, secure, was 3.49 on 2026-10-07, 3.99 on 2026-10-10 and 3.99 on 2026-11-09: the last is kept.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path

from costguard.ledger.market import write_market
from costguard.quoting.offer import MARKETPLACES, Offer
from costguard.values.gpu import GpuNames, read_gpus
from costguard.values.money import Rate
from costguard.values.resource import SPOT

ROOT = Path(__file__).parent.parent
PRICES = ROOT.parent / "shared" / "providers" / "prices"
HISTORY = ROOT.parent / "shared" / "data" / "price_history_dev.csv"
GPUS = ROOT / "costguard" / "data" / "gpus.csv"
MARKET = ROOT / "costguard" / "data" / "market.sqlite"

LEAST_USD_PER_GPU_HOUR, MOST_USD_PER_GPU_HOUR = Decimal("0.01"), Decimal(100)
"""Prices outside are mistakes of a collector: the cheapest real GPU is an RTX 3060 at 0.0556, the dearest a B300 at 17.8."""

BLEND = "cheapest of community and secure"
"""What a source says of a price that is of one of two tiers, and does not say which."""

LIST_COLLECTORS = frozenset("kh")
"""Collectors in the history whose rows are machines that can be rented: karpenter's tables and cherielilili's own calls
(`providers/public-prices.md`, 2026-11-23). Cyclenerd's also price machines in regions that do not have them: eight H100 as
spot at $10.21 in europe-north1, where GCP has none, and from $23 where it has."""

LEFT_TO_SNAPSHOTS = frozenset({"vast", "lambda", "sfcompute"})
"""Providers whose history is not read: asks of July 2026 say nothing by November; Lambda's rows there give the price of a
V100 to an A100, and its snapshot is newer; SF Compute's are an index."""

UNDATED_SINCE = date(2025, 8, 1)
"""The earliest day of a copy that only says how late it can be: SkyPilot's catalogue v8, whose oldest copy of AWS is of
2025-08 or later (it has g6f; the snapshots' README)."""

SOLD_BY_THE_GPU = {"runpod": (2, 4, 8)}
"""Whose machines are rented with as many GPUs as one asks for, each at the price of one: RunPod states prices per GPU and takes
`gpuCount` (`providers/runpod.md`); eight is what its hosts hold of most kinds.
Others' larger machines have prices of their own."""

TYPED = re.compile(r"\((Standard_\w+)\)|\((BM\.GPU[\w.-]+)|\b(gpu_\d+x_\w+)")
"""Instance types that a source names in its text: Azure's, OCI's, Lambda's."""

REMARKS = re.compile(
    r"\((median of \d+ offers|cheapest[^)]*|[^)]*approximate|[^)]*before the rise[^)]*)\)|; (median of \d zones?)$"
)
"""What a source says of a price that a person should know before renting."""

SOLD_AS = re.compile(r"per GPU; sold as (\d+)x")
EVERYWHERE = re.compile(r"all \d+ listed (regions|zones)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nuance:
    """What is known of some rows beyond what they say. `gpu` renames, `refused` drops with that reason, `note` is added."""

    provider: str
    matches: str
    tier: str = ""
    gpu: str = ""
    refused: str = ""
    note: str = ""

    def holds(self, row: Row) -> bool:
        """Whether `row` is meant: `matches` is searched in its instance type, or in its GPU's name where it has no type."""
        same = row.provider == self.provider and self.tier in ("", row.tier)
        return same and re.fullmatch(self.matches, row.instance_type or row.gpu) is not None


NUANCES = (
    Nuance(provider="aws", matches=r"g7e\..*", gpu="RTX-PRO-6000-Blackwell-Server"),
    Nuance(provider="gcp", matches=r"g4-.*", gpu="RTX-PRO-6000-Blackwell-Server"),
    Nuance(
        provider="gcp",
        matches=r"a3-highgpu-[124]g",
        tier="on-demand",
        refused="a list price only: sold as Spot or Flex-start, not on demand",
    ),
    Nuance(
        provider="gcp",
        matches=r"a3-ultragpu-8g|a4-highgpu-8g",
        tier="on-demand",
        note="needs a reservation, Flex-start or a MIG resize request",
    ),
    Nuance(provider="aws", matches=r"g5g\..*", note="arm64 machine"),
    Nuance(provider="lambda", matches=r"gpu_[124]x_a100", gpu="A100-40GB-PCIe"),
    Nuance(provider="lambda", matches=r"gpu_8x_a100", gpu="A100-40GB-SXM", note="SXM by memory, not stated by the source"),
)
"""From the snapshots' README and `providers/gcp.md` (what A3, A4 are sold as); Lambda's 8x A100 from memory, 2026-11."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One observation. `usd_per_hour` is for all its GPUs, "" unknown; `instance_type` is "" where the source names none."""

    provider: str
    gpu: str
    gpu_count: int
    region: str
    tier: str
    usd_per_hour: str
    observed_on: date
    observed_to: date | None
    source: str
    instance_type: str
    vcpus: float | None
    ram_gb: float | None
    disk_gb: float | None
    vram_gb: float | None
    note: str = ""

    @property
    def kind(self) -> tuple[str, ...]:
        """What an observation must share with another to be one of the same thing, tier aside."""
        return (self.provider, self.gpu, str(self.gpu_count), self.region)

    @property
    def place(self) -> tuple[date, Decimal]:
        """Of the same thing the newest counts, and of one day the cheapest, an unknown price last."""
        price = usd(self.usd_per_hour)
        return (self.observed_on, Decimal("-Infinity") if price is None else -price)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The offers, and how many rows went which way: reason to count."""

    offers: tuple[Offer, ...]
    rows: int
    superseded: Counter[str]
    dropped: Counter[str]


def main() -> None:
    """Build the file and say what was done."""
    parser = argparse.ArgumentParser(description="Builds costguard/data/market.sqlite from price snapshots.")
    parser.add_argument("prices", nargs="?", type=Path, default=PRICES, help="folder of CSV files (%(default)s)")
    parser.add_argument("--history", type=Path, default=HISTORY, help="a CSV file of dated prices (%(default)s)")
    parser.add_argument("--output", type=Path, default=MARKET, help="the file to write (%(default)s)")
    asked = parser.parse_args()
    files = sorted(asked.prices.glob("*.csv"))
    if not files:
        parser.error(f"no *.csv in {asked.prices}")
    if not asked.history.is_file():
        parser.error(f"no file {asked.history}")
    built = build(files, asked.history)
    write_market(asked.output, built.offers, {"built_from": ", ".join(file.name for file in (*files, asked.history))})
    asked.output.chmod(0o644)  # it is shipped, and everybody may read it
    print(report(built, asked.output))


def build(files: Sequence[Path], history: Path | None = None) -> Built:
    """The offers that the rows of the snapshots `files` amount to, and those of `history` that tell more."""
    with GPUS.open(encoding="utf-8", newline="") as file:
        names = GpuNames(read_gpus(csv.DictReader(file)))
    dropped: Counter[str] = Counter()
    superseded: Counter[str] = Counter()
    seen = [nuanced(row, names) for file in files for row in observations(file)]
    seen += [nuanced(row, names) for row in newest_in_history(history)] if history else []
    rows = end_open_ranges(seen)
    sold = [row for row in rows if not _counted(refusal(row), dropped)]
    sold = list(typed(sold))
    newest = newest_of_each(sold, superseded)
    everywhere = newest_everywhere(newest)
    kept = [row for row in newest if not _counted(said_better(row, everywhere), superseded)]
    stated = {(*row.kind, row.tier) for row in kept}
    kept += [row for one in kept for row in several(one) if (*row.kind, row.tier) not in stated]
    return Built(offers=tuple(map(offer, kept)), rows=len(rows), superseded=superseded, dropped=dropped)


def observations(file: Path) -> Iterator[Row]:
    """The rows of one snapshot, each price for all GPUs of the row."""
    with file.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            source, sold_as = line["source"], SOLD_AS.search(line["source"])
            count = int(line["gpu_count"])
            named = TYPED.search(source)
            price = usd(line["usd_per_hour"])
            first, last = days(line["observed_on"], source)
            if sold_as and price is not None:
                price, count = price * int(sold_as[1]) / count, int(sold_as[1])
            yield Row(
                provider=line["provider"],
                gpu=line["gpu"],
                gpu_count=count,
                region="global" if EVERYWHERE.fullmatch(line["region"]) else line["region"],
                tier=line["tier"],
                usd_per_hour="" if price is None else str(price),
                observed_on=first,
                observed_to=last,
                source=source,
                instance_type=line.get("instance_type") or (next(filter(None, named.groups())) if named else ""),
                vcpus=figure(line["vcpus"]),
                ram_gb=figure(line["ram_gb"]),
                disk_gb=figure(line["disk_gb"]),
                vram_gb=figure(line["vram_gb"]),
                note=next(filter(None, ((found := REMARKS.search(source)) and found.groups()) or ()), ""),
            )


def newest_in_history(file: Path) -> list[Row]:
    """The newest row of each machine in a history of prices; regions such as `cheapest` are no places."""
    newest: dict[tuple[str, ...], dict[str, str]] = {}
    with file.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            placed = line["region"] not in ("cheapest", "median")
            if placed and line["collector"] in LIST_COLLECTORS and line["provider"] not in LEFT_TO_SNAPSHOTS:
                key = tuple(line[name] for name in ("provider", "gpu", "gpu_count", "tier", "region", "instance_type"))
                newest[key] = max(newest.get(key, line), line, key=lambda row: row["observed_on"])
    return [
        Row(
            provider=line["provider"],
            gpu=line["gpu"],
            gpu_count=int(line["gpu_count"]),
            region=line["region"],
            tier=line["tier"],
            usd_per_hour=line["usd_per_hour"],
            observed_on=date.fromisoformat(line["observed_on"]),
            observed_to=None,
            source=line["source"],
            instance_type=line["instance_type"],
            vcpus=None,
            ram_gb=None,
            disk_gb=None,
            vram_gb=None,
        )
        for line in newest.values()
    ]


def end_open_ranges(rows: Sequence[Row]) -> list[Row]:
    """`rows` in which a range without a last day ends on the newest day of all: a copy is no younger than the collection."""
    last = max((row.observed_on for row in rows), default=date.min)
    return [replace(row, observed_to=max(last, row.observed_on)) if row.observed_to == date.max else row for row in rows]


def nuanced(row: Row, names: GpuNames) -> Row:
    """`row` under its canonical GPU, with what is known of it beyond its words."""
    for nuance in NUANCES:
        if nuance.holds(row) and not nuance.refused:
            notes = "; ".join(filter(None, (row.note, nuance.note)))
            row = replace(row, gpu=nuance.gpu or row.gpu, note=notes)
    return replace(row, gpu=names.resolve(row.gpu, vram_gb=row.vram_gb, field=f"{row.provider} gpu").canonical)


def refusal(row: Row) -> str | None:
    """Why `row` is no offer; None where it is one."""
    if row.tier == SPOT and "equals on-demand" in row.source:
        return "spot price equals on-demand: the product is being removed"
    if BLEND in row.source:
        return "a blend of tiers, of which one cannot be rented by name"
    return next((nuance.refused for nuance in NUANCES if nuance.refused and nuance.holds(row)), None)


def typed(rows: Sequence[Row]) -> Iterator[Row]:
    """Rows with an instance type each: a row without one is of the only type sold of that kind, where there is only one."""
    types: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for row in rows:
        types[row.kind].add(row.instance_type)
    for row in rows:
        known = types[row.kind] - {""}
        only = next(iter(known)) if len(known) == 1 else f"{row.gpu} x{row.gpu_count}"
        yield row if row.instance_type else replace(row, instance_type=only)


def newest_of_each(rows: Iterable[Row], superseded: Counter[str]) -> list[Row]:
    """The newest row of each thing; facts about the machine that it does not state come from the newest row that does."""
    things: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        things[(*row.kind, row.tier, row.instance_type)].append(row)
    newest = []
    for same in things.values():
        first, *older = sorted(same, key=lambda row: row.place, reverse=True)
        for row in older:
            superseded["older" if row.observed_on < first.observed_on else "of the same day and dearer"] += 1
            first = replace(
                first,
                vcpus=row.vcpus if first.vcpus is None else first.vcpus,
                ram_gb=row.ram_gb if first.ram_gb is None else first.ram_gb,
                disk_gb=row.disk_gb if first.disk_gb is None else first.disk_gb,
            )
        newest.append(first)
    return newest


def newest_everywhere(rows: Iterable[Row]) -> dict[tuple[str, ...], date]:
    """The day of the newest price that holds in every region, by provider, GPU, count and tier."""
    days: dict[tuple[str, ...], date] = {}
    for row in rows:
        if row.region == "global":
            key = (row.provider, row.gpu, str(row.gpu_count), row.tier)
            days[key] = max(row.observed_on, days.get(key, row.observed_on))
    return days


def said_better(row: Row, everywhere: Mapping[tuple[str, ...], date]) -> str | None:
    """Why a region's price gives way: one for every region is newer; None where it stays."""
    newest = everywhere.get((row.provider, row.gpu, str(row.gpu_count), row.tier))
    return "a newer price holds in every region" if newest and newest > row.observed_on else None


def several(one: Row) -> Iterator[Row]:
    """`one` GPU's row as the machines of more that are sold by the GPU, at that many times its price."""
    for count in SOLD_BY_THE_GPU.get(one.provider, ()) if one.gpu_count == 1 and rate(one) else ():
        yield replace(
            one,
            gpu_count=count,
            usd_per_hour=str(Decimal(one.usd_per_hour) * count),
            instance_type=f"{one.gpu} x{count}",
            vcpus=None,
            ram_gb=None,
            disk_gb=None,
            note="; ".join(filter(None, (one.note, f"{count} times the price of one GPU"))),
        )


def offer(row: Row) -> Offer:
    """`row` as an offer."""
    return Offer(
        provider=row.provider,
        region=row.region,
        instance_type=row.instance_type,
        gpu=row.gpu,
        gpu_count=row.gpu_count,
        tier=row.tier,
        rate=rate(row),
        observed_on=row.observed_on,
        observed_to=row.observed_to,
        source=row.source,
        pricing="dynamic" if row.tier == SPOT or row.provider in MARKETPLACES else "standard",
        vcpus=row.vcpus,
        ram_gb=row.ram_gb,
        disk_gb=row.disk_gb,
        note=row.note,
    )


def rate(row: Row) -> Rate | None:
    """The rate, or None where none is stated or it cannot be true."""
    price = usd(row.usd_per_hour)
    if price is None or not LEAST_USD_PER_GPU_HOUR <= price / row.gpu_count <= MOST_USD_PER_GPU_HOUR:
        return None
    return Rate.parse(round(price, 9))


def usd(text: str) -> Decimal | None:
    """A stated price; None where it is no number."""
    try:
        price = Decimal(text)
    except InvalidOperation:
        return None
    return price if price.is_finite() else None


RANGE = re.compile(r"undated copy: (?:(\d{4}-\d\d) (?:to (\d{4}-\d\d)|(or later))|no later than (\d{4}-\d\d))")
FETCHED = re.compile(r"fetched (\d{4}-\d\d-\d\d) or (\d{4}-\d\d-\d\d)")


def days(text: str, source: str) -> tuple[date, date | None]:
    """The first and the last day on which a price may have been seen; None: the first is exact, date.max: no last day is known.

    Example: "2026-01" of a source with "undated copy: 2026-01 to 2026-05" is 2026-01-01 to 2026-05-31.
    """
    if len(text) == len("2026-01-01") and text[-1].isdigit():
        return date.fromisoformat(text), None
    if fetched := FETCHED.search(source):
        return date.fromisoformat(fetched[1]), date.fromisoformat(fetched[2])
    if found := RANGE.search(source):
        first, last, later, by = found.groups()
        if by:
            return UNDATED_SINCE, _end_of_month(by)
        return date.fromisoformat(f"{first}-01"), date.max if later else _end_of_month(last)
    if text.endswith(" (undated)"):
        return date(int(text.removesuffix(" (undated)")), 1, 1), date.max
    return date.fromisoformat(f"{text}-01"), _end_of_month(text)


def _end_of_month(text: str) -> date:
    year, month = map(int, text.split("-"))
    return date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)


def figure(text: str) -> float | None:
    """A number, or None for an empty cell."""
    return float(text) if text else None


def report(built: Built, path: Path) -> str:
    """What was kept, superseded and dropped, for people."""
    of_each = Counter(offer.provider for offer in built.offers)
    unpriced = sum(offer.rate is None for offer in built.offers)
    return "\n".join(
        [
            f"{built.rows} rows read, {len(built.offers)} offers kept ({unpriced} without a usable price) in {path}",
            *(f"  {count:5} {provider}" for provider, count in sorted(of_each.items())),
            f"{built.superseded.total()} superseded",
            *(f"  {count:5} {reason}" for reason, count in sorted(built.superseded.items())),
            f"{built.dropped.total()} dropped",
            *(f"  {count:5} {reason}" for reason, count in sorted(built.dropped.items())),
        ]
    )


def _counted(reason: str | None, counter: Counter[str]) -> bool:
    if reason is not None:
        counter[reason] += 1
    return reason is not None


if __name__ == "__main__":
    main()
