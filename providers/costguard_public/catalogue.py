"""Reads published catalogues within bounds: zip and CSV, prices, GPU names, and the rows that are left out, counted by reason.

Example: a row of gpuhunt's aws.csv, `p5.48xlarge,us-east-1,55.04,192,2048.0,nvidia,8,H100,80.0,False,...`, is the offer of 8
H100-SXM on demand at $55.04 an hour. The same row at 0, at 1e9 or in euros is left out and counted.

What a catalogue says is not believed further than its bounds: a file that unpacks to more than `MOST_FEED_BYTES`, or a feed of
more than `MOST_ROWS` rows, is refused whole, so that no time or memory goes into a poisoned one.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal, InvalidOperation

from costguard.errors import InvalidAnswerError, shorten, to_one_line
from costguard.providers.ports.price_source import MOST_FEED_BYTES
from costguard.quoting.offer import Offer, OfferListing
from costguard.values.gpu import GpuNames
from costguard.values.money import Rate

MOST_ROWS = 250_000
"""Of one feed. The largest known is SkyPilot's catalogue of AWS: 3.7 MB, about 45,000 rows (stored copy of 2026-05)."""

MOST_ZIP_ENTRIES = 16
MOST_ZIP_RATIO = 200
"""How many times larger than its packed form an entry may be. Price lists shrink 10 to 40 times; a bomb a thousand times."""
RATIO_COUNTS_FROM = 2**20
"""Bytes of an unpacked entry below which its ratio does not matter."""

HIGHEST_PER_GPU_HOUR = Decimal(100)
"""Dollars. The dearest list price of the market file of 2026-11 is $17 for a GPU and hour."""
MOST_GPUS = 1024
NANO = 10**9
LONGEST_TEXT = 80

NO_PRICE, TOO_DEAR, OTHER_CURRENCY, UNREADABLE = (
    "without a price above zero",
    f"above {HIGHEST_PER_GPU_HOUR} dollars a GPU-hour",
    "in another currency",
    "that cannot be read",
)
"""Why rows are left out; each is used in the sentence "N rows ..."."""


def unpack_file(body: bytes, name: str, source: str) -> bytes:
    """Return the entry `name` of a zip; an InvalidAnswerError if there is none, or if it is damaged or too large unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as packed:
            entries = packed.infolist()
            _require(len(entries) <= MOST_ZIP_ENTRIES, f"the zip holds {len(entries)} files", source)
            entry = next((one for one in entries if one.filename == name), None)
            if entry is None:
                raise InvalidAnswerError(f"the zip holds no {name}", provider=source)
            ratio = entry.file_size / max(entry.compress_size, 1)
            bomb = entry.file_size > MOST_FEED_BYTES or (entry.file_size > RATIO_COUNTS_FROM and ratio > MOST_ZIP_RATIO)
            _require(not bomb, f"{name} would unpack to {entry.file_size} bytes, {ratio:.0f} times its size", source)
            with packed.open(entry) as file:  # the stated size proves nothing: no more than it is read
                content = file.read(MOST_FEED_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError) as broken:
        what = "a web page" if body.lstrip()[:1] == b"<" else f"no whole zip ({shorten(to_one_line(str(broken)), 60)})"
        raise InvalidAnswerError(f"it answered with {what}", provider=source) from None
    _require(len(content) <= MOST_FEED_BYTES, f"{name} unpacks to more than {MOST_FEED_BYTES} bytes", source)
    return content


def read_csv_rows(body: bytes, columns: Collection[str], name: str, source: str) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a CSV that has at least `columns`; an InvalidAnswerError where it is none, or has too many rows."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidAnswerError(f"{name} is not text in UTF-8", provider=source) from None
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(rows, [])
        if not set(columns) <= set(header):
            page = text.lstrip()[:1] == "<"
            what = "is a web page" if page else f"lacks the columns {', '.join(sorted(set(columns) - set(header)))}"
            raise InvalidAnswerError(f"{name} {what}", provider=source)
        for number, row in enumerate(rows, 1):
            _require(number <= MOST_ROWS, f"{name} has more than {MOST_ROWS} rows", source)
            yield dict(zip(header, row, strict=False))
    except csv.Error as broken:
        what = f"{name} cannot be read ({shorten(to_one_line(str(broken)), 60)})"
        raise InvalidAnswerError(what, provider=source) from None


def _require(truth: bool, what: str, source: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not truth:
        raise InvalidAnswerError(f"{what}: refused", provider=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueRow:
    """One price as a catalogue states it. `gpu_names`: what the GPU may be called, the most exact name first.

    `price`: of the whole machine in dollars an hour, as text. `vram_gb` of one GPU, `vcpus` and `ram_gb` of the machine; None:
    not stated.
    """

    region: str
    instance_type: str
    gpu_names: tuple[str, ...]
    gpu_count: int
    tier: str
    price: str
    vram_gb: float | None = None
    vcpus: float | None = None
    ram_gb: float | None = None


@dataclass(slots=True, kw_only=True)
class OfferCollector:
    """Turns the rows of one provider's catalogue into a listing.

    Of several rows of one machine in one region and tier (its zones) the cheapest is kept. `observed_to`: see `Offer`.
    """

    gpus: GpuNames
    provider: str
    source: str
    observed_on: date
    observed_to: date | None = None
    _offers: dict[tuple[str, str, str, int, str], Offer] = field(default_factory=dict)
    _left_out: Counter[str] = field(default_factory=Counter)
    _unnamed: dict[str, None] = field(default_factory=dict)
    _known: dict[tuple[tuple[str, ...], float | None], str | None] = field(default_factory=dict)

    def add(self, row: CatalogueRow) -> None:
        """Add the offer of `row`, or count why it is none."""
        rate = parse_rate(row.price, row.gpu_count)
        if isinstance(rate, str):
            self._left_out[rate] += 1
            return
        region, instance_type = (shorten(to_one_line(text.strip()), LONGEST_TEXT) for text in (row.region, row.instance_type))
        if not region or not instance_type or not 1 <= row.gpu_count <= MOST_GPUS:
            self._left_out[UNREADABLE] += 1
            return
        gpu = self._find_gpu(row.gpu_names, row.vram_gb)
        if gpu is None:
            self._unnamed.setdefault(shorten(to_one_line(row.gpu_names[-1]), LONGEST_TEXT))
            return
        key = (region, instance_type, gpu, row.gpu_count, row.tier)
        before = self._offers.get(key)
        if before is None or before.rate is None or rate.nano_per_hour < before.rate.nano_per_hour:
            self._offers[key] = Offer(
                provider=self.provider,
                region=region,
                instance_type=instance_type,
                gpu=gpu,
                gpu_count=row.gpu_count,
                tier=row.tier,
                rate=rate,
                observed_on=self.observed_on,
                observed_to=self.observed_to,
                source=self.source,
                vcpus=row.vcpus,
                ram_gb=row.ram_gb,
            )

    def leave_out(self, why: str) -> None:
        """Count a row that is left out because it is one "`why`"."""
        self._left_out[why] += 1

    def build_listing(self) -> OfferListing:
        """Return what was collected; `left_out` counts the rows that are missing, by reason."""
        told = "; ".join(f"{count} rows {why}" for why, count in sorted(self._left_out.items()))
        return OfferListing(offers=tuple(self._offers.values()), left_out=told, unnamed=tuple(self._unnamed))

    def _find_gpu(self, names: tuple[str, ...], vram_gb: float | None) -> str | None:
        if (names, vram_gb) not in self._known:
            self._known[names, vram_gb] = find_gpu(self.gpus, names, vram_gb)
        return self._known[names, vram_gb]


RUN_TOGETHER = re.compile(r"^(RTX)(PRO)?[ -]?(?=A?\d)", re.IGNORECASE)
BARE_SIZE = re.compile(r"(?<=\d)G(?=-|$)")
QUADRO = re.compile(r"(?:RTX[ -]?|Quadro[ -]RTX[ -]?)([68]000)", re.IGNORECASE)
QUADRO_VRAM_GB = {"6000": 24.0, "8000": 48.0}


def find_gpu(gpus: GpuNames, names: tuple[str, ...], vram_gb: float | None) -> str | None:
    """Return the canonical GPU that one of `names` refers to, with the stated memory if any GPU fits it; None: unknown.

    Catalogues write names without blanks (RTXPRO6000) and sizes without a unit (A100-80G-PCIe). RTX6000 with 24 GB is the
    Turing card; without a size it names three cards, and none is taken.
    """
    for name in names:
        quadro = QUADRO.fullmatch(name)
        if quadro and vram_gb == QUADRO_VRAM_GB[quadro[1]]:
            name = f"Quadro RTX {quadro[1]}"  # noqa: PLW2901 - the same name as it is known here
        spelled = BARE_SIZE.sub("GB", RUN_TOGETHER.sub(lambda m: f"RTX {'PRO ' if m[2] else ''}", name))
        for text in dict.fromkeys((name, spelled)):
            for size in (vram_gb,) if vram_gb is not None else (None,):
                found = gpus.find(text, vram_gb=size)
                if found is not None:
                    return found.canonical
    return None


def parse_rate(text: str, gpu_count: int) -> Rate | str:
    """Return the hourly rate of a machine of `gpu_count` GPUs, or the reason why the row is left out."""
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        return OTHER_CURRENCY if re.search(r"[€£¥₹]|\b(?:EUR|GBP|CNY|INR|JPY)\b", text) else NO_PRICE
    if not amount.is_finite() or amount <= 0:
        return NO_PRICE
    if amount > HIGHEST_PER_GPU_HOUR * max(gpu_count, 1):
        return TOO_DEAR
    nano = int((amount * NANO).to_integral_value())
    return Rate(nano_per_hour=nano) if nano else NO_PRICE


def parse_number(text: str | None) -> float | None:
    """Return a finite number above zero; None for anything else."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 < number < 1e9 else None  # noqa: PLR2004 - beyond any size of a machine


def parse_count(text: str | None) -> int | None:
    """Return the whole GPUs that `text` states ("8", "8.0"); None for a share of a GPU, none, or no number."""
    number = parse_number(text)
    return int(number) if number is not None and number == int(number) else None


def mark_incomplete(listing: OfferListing, why: str) -> OfferListing:
    """Return `listing` with `why` as what is missing."""
    return replace(listing, why="; ".join(filter(None, (listing.why, why))))
