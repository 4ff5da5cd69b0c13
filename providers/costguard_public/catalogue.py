"""Reads published catalogues within bounds: zip, CSV and the names of GPUs; prices and counts are read by `rows`.

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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from costguard.errors import InvalidAnswerError, shorten, to_one_line
from costguard.providers.ports.price_source import MOST_FEED_BYTES
from costguard_public.rows import LONGEST_TEXT, OTHER_CURRENCY, MachinePrice, RowCollector

MOST_ROWS, MOST_COLUMNS = 250_000, 100
"""Of one feed. The largest known is SkyPilot's catalogue of AWS: 3.7 MB, about 45,000 rows (stored copy of 2026-05)."""

MOST_CATALOGUE_BYTES = 16 * 2**20
"""Of one file as it is sent: four times the largest known one."""

MOST_DIRECTORY_BYTES = 4096
"""Of a zip's list of its files: such a zip holds one. A list of a million files would take a gigabyte once read."""
MOST_ZIP_RATIO = 200
"""How many times larger than its packed form an entry may be. Price lists shrink 10 to 40 times; a bomb a thousand times."""
RATIO_COUNTS_FROM = 2**20
"""Bytes of an unpacked entry below which its ratio does not matter."""


def unpack_file(body: bytes, name: str, source: str) -> bytes:
    """Return the entry `name` of a zip; an InvalidAnswerError if there is none, or if it is damaged or too large unpacked."""
    _check_directory(body, source)
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as packed:
            entry = next((one for one in packed.infolist() if one.filename == name), None)
            if entry is None:
                raise InvalidAnswerError(f"the zip holds no {name}", provider=source)
            ratio = entry.file_size / max(entry.compress_size, 1)
            bomb = entry.file_size > MOST_FEED_BYTES or (entry.file_size > RATIO_COUNTS_FROM and ratio > MOST_ZIP_RATIO)
            _require(not bomb, f"{name} would unpack to {entry.file_size} bytes, {ratio:.0f} times its size", source)
            with packed.open(entry) as file:  # the stated size proves nothing: no more than it is read
                content = file.read(MOST_FEED_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError) as broken:
        raise InvalidAnswerError(f"not a valid zip ({shorten(to_one_line(str(broken)), 60)})", provider=source) from None
    _require(len(content) <= MOST_FEED_BYTES, f"{name} unpacks to more than {MOST_FEED_BYTES} bytes", source)
    return content


END_RECORD, ZIP64_LOCATOR = b"PK\x05\x06", b"PK\x06\x07"
END_RECORD_BYTES, ZIP64_LOCATOR_BYTES = 22, 20


def _check_directory(body: bytes, source: str) -> None:
    """Raise InvalidAnswerError unless `body` ends as a plain zip with a short list of files, before anything reads that list.

    A comment behind the end, and sizes of 64 bits, would make two readers disagree on where the list is.
    """
    _require(body.lstrip()[:1] != b"<", "it answered with a web page", source)
    end = body[-END_RECORD_BYTES:]
    plain = end[:4] == END_RECORD and end[-2:] == b"\0\0"
    wide = body[-END_RECORD_BYTES - ZIP64_LOCATOR_BYTES :][:4] == ZIP64_LOCATOR
    _require(plain and not wide, "not a valid zip", source)
    size = int.from_bytes(end[12:16], "little")
    _require(size <= MOST_DIRECTORY_BYTES, f"the zip's list of files has {size} bytes", source)


def read_csv_rows(body: bytes, columns: Collection[str], name: str, source: str) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a CSV that has at least `columns`; an InvalidAnswerError where it is none, or has too many rows."""
    rows = csv.reader(io.TextIOWrapper(io.BytesIO(body), "utf-8-sig", newline=""))  # decoded piece by piece
    try:
        header = next(rows, [])
        if not set(columns) <= set(header):
            page = body.lstrip()[:1] == b"<"
            what = "is a web page" if page else f"lacks the columns {', '.join(sorted(set(columns) - set(header)))}"
            raise InvalidAnswerError(f"{name} {what}", provider=source)
        _require(len(header) <= MOST_COLUMNS, f"{name} has more than {MOST_COLUMNS} columns", source)
        for number, row in enumerate(rows, 1):
            _require(number <= MOST_ROWS, f"{name} has more than {MOST_ROWS} rows", source)
            if row:  # not a blank line; cells that are missing at its end are empty
                yield dict(zip(header, row + [""] * (len(header) - len(row)), strict=False))
    except UnicodeDecodeError:
        raise InvalidAnswerError(f"{name} is not text in UTF-8", provider=source) from None
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
class CatalogueCollector(RowCollector):
    """Turns the rows of one provider's catalogue into a listing. Of the zones of a region the cheapest is kept."""

    def add_row(self, row: CatalogueRow) -> None:
        """Add the offer of `row`, or count why it is none."""
        gpu = self._find_gpu(row.gpu_names, row.vram_gb)
        if gpu is None:
            self.report_unknown(row.gpu_names[-1])
        elif CURRENCY.search(row.price):
            self.leave_out(OTHER_CURRENCY)
        else:
            region, machine = (shorten(to_one_line(text.strip()), LONGEST_TEXT) for text in (row.region, row.instance_type))
            self.add(
                MachinePrice(
                    region=region,
                    instance_type=machine,
                    gpu=gpu,
                    gpu_count=row.gpu_count,
                    tier=row.tier,
                    price=row.price,
                    vcpus=row.vcpus,
                    ram_gb=row.ram_gb,
                )
            )

    def _find_gpu(self, names: tuple[str, ...], vram_gb: float | None) -> str | None:
        """Return the canonical GPU that one of `names` refers to, with the stated memory if any; None: unknown.

        Catalogues write names without blanks (RTXPRO6000) and sizes without a unit (A100-80G-PCIe). RTX6000 with 24 GB is the
        Turing card; without a size it names three cards, and none is taken.
        """
        for name in names:
            quadro = QUADRO.fullmatch(name)
            if quadro and vram_gb == QUADRO_VRAM_GB[quadro[1]]:
                name = f"Quadro RTX {quadro[1]}"  # noqa: PLW2901 - the same name as it is known here
            spelled = BARE_SIZE.sub("GB", RUN_TOGETHER.sub(lambda m: f"RTX {'PRO ' if m[2] else ''}", name))
            for text in dict.fromkeys((name, spelled)):
                match = self.match_gpu(text, vram_gb=vram_gb)
                if match is not None:
                    return match.canonical
        return None


CURRENCY = re.compile(r"[€£¥₹]|\b(?:EUR|GBP|CNY|INR|JPY)\b")
RUN_TOGETHER = re.compile(r"^(RTX)(PRO)?[ -]?(?=A?\d)", re.IGNORECASE)
BARE_SIZE = re.compile(r"(?<=\d)G(?=-|$)")
QUADRO = re.compile(r"(?:RTX[ -]?|Quadro[ -]RTX[ -]?)([68]000)", re.IGNORECASE)
QUADRO_VRAM_GB = {"6000": 24.0, "8000": 48.0}
