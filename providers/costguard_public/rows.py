"""Reads the JSON of a price feed within bounds: its shape strictly, its rows leniently, counting those that are left out.

Example: the row `{"securePrice": 2.69, "memoryInGb": 80, ...}` becomes an offer at $2.69 an hour. A row at 0, -1, 1e9 or NaN,
or in euros, is left out, and the listing says "2 rows without a price above zero". A web page instead of JSON, or an object
where a list is published, refuses the whole feed: an InvalidAnswerError that names it.

Prices are read as decimals from the text of the feed, never as floats: 2.69 stays 2_690_000_000 nano-dollars.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation

from costguard.errors import InvalidAnswerError, shorten, to_one_line
from costguard.quoting.offer import Offer, OfferListing
from costguard.values.gpu import GpuNameMatch, GpuNames
from costguard.values.money import Rate

MOST_ROWS = 100_000
"""Of one answer: ten times what the largest of these feeds holds (spot.js: about 10,000 sizes in all regions)."""

HIGHEST_PER_GPU_HOUR = Decimal(100)
"""Dollars. The dearest known list price is $27.04, of Azure's GB200 (a public collector's answer of 2026-09-06)."""

MOST_GPUS = 128
"""Of one machine; the largest sold as one has 72 (NVL72)."""

MIB = 2**20
"""Sources bound their answers well below the port's bound: a million numbers of a poisoned answer take 100 MB once read."""

LONGEST_TEXT = 80
MOST_UNNAMED = 200
LONGEST_NUMBER, MOST_DIGITS = 40, 15
"""Characters of a number that is stated as text, and digits before or zeros behind the point: no price or size has more."""

NANO = 10**9

NO_PRICE, TOO_DEAR, OTHER_CURRENCY, OTHER_UNIT, NOT_YET, UNREADABLE, PLACEHOLDER = (
    "without a price above zero",
    f"above {HIGHEST_PER_GPU_HOUR} dollars a GPU-hour",
    "in another currency than dollars",
    "in another unit than hours",
    "with a price of a later day",
    "that cannot be read",
    "with a placeholder for a price",
)
"""Why rows are left out; each ends the sentence "3 rows ..."."""

Row = Mapping[str, object]


def decode_json(body: bytes, feed: str) -> object:
    """Return the document, its numbers with decimals as Decimal; an InvalidAnswerError that names `feed` if it is no JSON."""
    try:
        document: object = json.loads(body, parse_float=Decimal, parse_constant=Decimal)
    except (ValueError, RecursionError, MemoryError):  # ValueError: no UTF-8, no JSON, or an integer of more than 4,300 digits
        what = "a web page" if body.lstrip()[:1] == b"<" else "no JSON"
        raise InvalidAnswerError(f"answered with {what} instead of prices", provider=feed) from None
    return document


def take_rows(document: object, keys: Sequence[str], feed: str) -> list[Row]:
    """Return the objects in the list at `keys` of `document`; an InvalidAnswerError if no list is there, or a too long one.

    Members that are no objects are returned as empty ones, which no parser can read and each counts.
    """
    value = document
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, list):
        where = ".".join(keys) or "the answer"
        raise InvalidAnswerError(f"published a different format: {where} is no list", provider=feed)
    if len(value) > MOST_ROWS:
        raise InvalidAnswerError(f"holds {len(value)} rows, more than {MOST_ROWS}: refused", provider=feed)
    return [row if isinstance(row, dict) else {} for row in value]


def take_object(row: Row, key: str) -> Row:
    """Return the object at `key`, an empty one if there is none."""
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def take_text(row: Row, key: str) -> str:
    """Return the text at `key` on one line, cut to LONGEST_TEXT; "" if there is none."""
    value = row.get(key)
    return shorten(to_one_line(value.strip()), LONGEST_TEXT) if isinstance(value, str) else ""


def parse_decimal(value: object) -> Decimal | None:
    """Return a finite number of usable size, stated as a number or as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        return None
    if isinstance(value, str) and len(value) > LONGEST_NUMBER:
        return None
    try:
        number = Decimal(value.strip() if isinstance(value, str) else value)
    except InvalidOperation:
        return None
    return number if number == 0 or (number.is_finite() and abs(number.adjusted()) <= MOST_DIGITS) else None


def parse_size(value: object, divisor: int = 1) -> float | None:
    """Return a size of a machine (cores, GB) over `divisor`; None if it is missing, zero, negative or impossible."""
    number = parse_decimal(value)
    return float(number / divisor) if number is not None and 0 < number < NANO else None


def parse_count(value: object) -> int | None:
    """Return a number of whole GPUs from 1 to MOST_GPUS, for 2 as well as 2.0; None for anything else."""
    number = parse_decimal(value)
    return int(number) if number is not None and 1 <= number <= MOST_GPUS and number == int(number) else None


def parse_rate(value: object, gpu_count: int) -> Rate | str:
    """Return the hourly rate in dollars of a machine of `gpu_count` GPUs, or the reason why its row is left out."""
    amount = parse_decimal(value)
    if amount is None or amount <= 0:
        return NO_PRICE
    if amount > HIGHEST_PER_GPU_HOUR * gpu_count:
        return TOO_DEAR
    nano = int((amount * NANO).to_integral_value())
    return Rate(nano_per_hour=nano) if nano else NO_PRICE


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePrice:
    """One price of a feed. `gpu` is canonical; `price`: dollars an hour for the whole machine, as the feed states it.

    `on_demand_price`: of a spot machine, the same on demand. The other fields are those of `Offer`.
    """

    region: str
    instance_type: str
    gpu: str
    gpu_count: int
    tier: str
    price: object
    on_demand_price: object = None
    pricing: str = "standard"
    drift: str = ""
    vcpus: float | None = None
    ram_gb: float | None = None
    disk_gb: float | None = None
    note: str = ""


@dataclass(slots=True, kw_only=True)
class RowCollector:
    """Turns the rows of one feed into the listing of one provider. `source`: what its offers name as their source.

    `observed_to`: of an undated feed the last possible day of its prices; None: they are of `observed_on`.
    """

    gpus: GpuNames
    provider: str
    source: str
    observed_on: date
    observed_to: date | None = None
    _offers: dict[tuple[str, str, str, int, str], Offer] = field(default_factory=dict)
    _left_out: Counter[str] = field(default_factory=Counter)
    _unnamed: dict[str, None] = field(default_factory=dict)
    _known: dict[tuple[str, float | None], GpuNameMatch | None] = field(default_factory=dict)

    def find_gpu(self, name: str, *, vram_gb: float | None = None) -> GpuNameMatch | None:
        """Return the GPU that the feed calls `name`; None for an unknown one, which the listing will name."""
        match = self.match_gpu(name, vram_gb=vram_gb)
        if match is None:
            self.report_unknown(name)
        return match

    def match_gpu(self, name: str, *, vram_gb: float | None = None) -> GpuNameMatch | None:
        """Return the GPU that the feed calls `name`; None for an unknown one, which is not reported."""
        if (name, vram_gb) not in self._known:
            self._known[name, vram_gb] = self.gpus.find(name, vram_gb=vram_gb)
        return self._known[name, vram_gb]

    def report_unknown(self, name: str) -> None:
        """Have the listing name a GPU, or a type of machine, that is not known here; of very many the first MOST_UNNAMED."""
        if len(self._unnamed) < MOST_UNNAMED:
            self._unnamed.setdefault(shorten(to_one_line(name), LONGEST_TEXT))

    def add(self, machine: MachinePrice) -> None:
        """Add the offer of `machine`, or count why there is none; of one machine in one region and tier keep the cheapest."""
        offer = self.make_offer(machine)
        if offer is None:
            return
        key = (offer.region, offer.instance_type, offer.gpu, offer.gpu_count, offer.tier)
        old_offer = self._offers.get(key)
        if old_offer is None or get_nano(offer) < get_nano(old_offer):
            self._offers[key] = offer

    def make_offer(self, machine: MachinePrice) -> Offer | None:
        """Return the offer of `machine`; None if it is left out, which is counted."""
        rate = parse_rate(machine.price, machine.gpu_count)
        if isinstance(rate, str):
            self.leave_out(rate)
            return None
        if not machine.region or not machine.instance_type:
            self.leave_out(UNREADABLE)
            return None
        on_demand = parse_rate(machine.on_demand_price, machine.gpu_count)
        return Offer(
            provider=self.provider,
            region=machine.region,
            instance_type=machine.instance_type,
            gpu=machine.gpu,
            gpu_count=machine.gpu_count,
            tier=machine.tier,
            rate=rate,
            observed_on=self.observed_on,
            observed_to=self.observed_to,
            source=self.source,
            pricing=machine.pricing,
            vcpus=machine.vcpus,
            ram_gb=machine.ram_gb,
            disk_gb=machine.disk_gb,
            note=machine.note,
            drift=machine.drift,
            on_demand_rate=None if isinstance(on_demand, str) else on_demand,
        )

    def leave_out(self, why: str) -> None:
        """Count a row that is left out because it is one "`why`"."""
        self._left_out[why] += 1

    def build_listing(self, *, offers: Sequence[Offer] = (), why: str = "") -> OfferListing:
        """Return the offers added, and `offers`. `why`: what is missing beyond rows, "" if the whole feed was read."""
        counted = (f"{count} row{'s' * (count > 1)} {reason}" for reason, count in sorted(self._left_out.items()))
        return OfferListing(
            offers=(*self._offers.values(), *offers), why=why, unnamed=tuple(self._unnamed), left_out="; ".join(counted)
        )


def get_nano(offer: Offer) -> int:
    """Return the rate of an offer that has one, in nano-dollars an hour."""
    return offer.rate.nano_per_hour if offer.rate else 0
