"""Cyclenerd's pricing file of GCP, a fall-back: the whole machine in every region, on demand and spot, made weekly.

    GET /Cyclenerd/google-cloud-pricing-cost-calculator/master/pricing.yml

    about:
      timestamp: 1741233236
    compute:
      instance:
        a3-highgpu-8g:
          cost:
            us-central1:
              hour: 88.490000
              hour_spot: 35.395750
          cpu: 208
          h100-80gb: 8

The file is 2.5 MB of YAML written by one program with fixed indents of two blanks. It is read line by line: YAML libraries are
no dependency of costguard, read such a file in seconds, and unfold aliases into bombs (decision 0046). What does not stand
where it is expected is refused.

It prices every machine in every region, also where GCP has none: eight H100 as spot at $10.21 in europe-north1 on 2026-07-30,
and from $23 where there are any. So only GPUs that the market knows in a region are taken from it.

Source: Cyclenerd/google-cloud-pricing-cost-calculator pricing.yml @0166a59 (2025-03-06) and build/gcp.yml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from costguard.errors import InvalidAnswerError
from costguard.providers.ports.price_source import PriceFetcher, PriceSourceFacts
from costguard.quoting.offer import OfferListing
from costguard.values.gpu import GpuNames
from costguard.values.resource import SPOT
from costguard_public.catalogue import MOST_CATALOGUE_BYTES, CatalogueCollector, CatalogueRow
from costguard_public.rows import parse_count, parse_size

PATH = "/Cyclenerd/google-cloud-pricing-cost-calculator/master/pricing.yml"
MOST_LINES = 500_000
"""The file of 2025-03-06 has about 100,000."""

NAME = "cyclenerd"
LINE = re.compile(r"( *)([A-Za-z0-9_.-]{1,80}):(?: +(\S.*))?")
SECTION, MACHINE, KEY, REGION, PRICE = 2, 4, 6, 8, 10
"""Blanks before each kind of line."""

OTHER_KEYS = frozenset({"cost", "cpu", "ram", "local-ssd", "type", "bms", "sap"})
"""Keys of a machine that name no GPU."""
GPU_NAMES = {"a100": "A100 40GB", "a100-80gb": "A100 80GB", "h100-80gb": "H100 SXM", "h100-mega-80gb": "H100 SXM"}
"""GPUs whose key is no name that is known here."""


@dataclass(slots=True)
class _Machine:
    name: str
    keys: dict[str, str] = field(default_factory=dict)
    cost: dict[str, dict[str, str]] = field(default_factory=dict)


class CyclenerdSource:
    """See the module."""

    facts = PriceSourceFacts(
        name=NAME,
        title="Cyclenerd's GCP pricing file",
        endpoint="https://raw.githubusercontent.com",
        providers=("gcp",),
        terms="Apache-2.0, stated in the file",
        size="one file of 2.5 to 4 MB",
        freshness="weekly, on Thursdays; the file states its time",
        checked_on=date(2026, 11, 23),
        order=70,
        fallback=True,
        prices_unsold=True,
    )

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return GCP's machines with GPUs."""
        body = fetch.get(PATH, most_bytes=MOST_CATALOGUE_BYTES).body
        if body.lstrip()[:1] == b"<":
            raise InvalidAnswerError("pricing.yml is a web page", provider=NAME)
        if body.count(b"\n") > MOST_LINES:
            raise InvalidAnswerError(f"pricing.yml has more than {MOST_LINES} lines: refused", provider=NAME)
        try:
            lines = body.decode("utf-8").replace("\r\n", "\n").split("\n")
        except UnicodeDecodeError:
            raise InvalidAnswerError("pricing.yml is not text in UTF-8", provider=NAME) from None
        day = _find_day(lines)
        collector = CatalogueCollector(gpus=gpus, provider="gcp", source=f"Cyclenerd pricing.yml {day}", observed_on=day)
        for machine in _read_machines(lines):
            _add_machine(machine, collector)
        return {"gcp": collector.build_listing()}


def _find_day(lines: list[str]) -> date:
    for line in lines:
        match = re.fullmatch(r"  timestamp: (\d{9,11})", line)
        if match:
            return datetime.fromtimestamp(int(match[1]), UTC).date()
    raise InvalidAnswerError("pricing.yml states no time (about.timestamp)", provider=NAME)


def _read_machines(lines: list[str]) -> Iterator[_Machine]:
    """Yield every machine below compute.instance; InvalidAnswerError where it is missing, or nothing follows it."""
    machine, region = None, dict[str, str]()
    for depth, key, value in _read_instance_lines(lines):
        if depth == MACHINE:
            if machine is not None:
                yield machine
            machine = _Machine(key)
        elif machine is not None and depth == KEY:
            machine.keys[key] = value
        elif machine is not None and depth == REGION:
            region = machine.cost.setdefault(key, {})
        elif depth == PRICE:
            region[key] = value
    if machine is None:
        raise InvalidAnswerError("pricing.yml has no compute.instance", provider=NAME)
    yield machine


def _read_instance_lines(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """Yield depth, key and value of each line below compute.instance, which must be followed by something else."""
    inside = False
    for line in filter(None, lines):
        read = LINE.fullmatch(line)
        if read is None or len(read[1]) <= SECTION:
            if inside:
                return
            inside = line == "  instance:"
        elif inside:
            yield len(read[1]), read[2], read[3] or ""
    if inside:
        raise InvalidAnswerError("pricing.yml ends within compute.instance: it is cut short", provider=NAME)


def _add_machine(machine: _Machine, collector: CatalogueCollector) -> None:
    for key, value in machine.keys.items():
        count = parse_count(value)
        if key in OTHER_KEYS or count is None:
            continue
        for region, prices in machine.cost.items():
            for tier, field_name in (("on-demand", "hour"), (SPOT, "hour_spot")):
                if field_name in prices:
                    collector.add_row(
                        CatalogueRow(
                            region=region,
                            instance_type=machine.name,
                            gpu_names=(GPU_NAMES.get(key, key),),
                            gpu_count=count,
                            tier=tier,
                            price=prices[field_name],
                            vcpus=parse_size(machine.keys.get("cpu")),
                            ram_gb=parse_size(machine.keys.get("ram")),
                        )
                    )


source = CyclenerdSource()
