"""dstack's catalogue (gpuhunt): nine clouds, whole machines, on demand and spot, each cloud in a zip of its own.

    GET /v3/{cloud}/version                 20260818-42: the day of the collection, and its run
    GET /v3/{cloud}/{version}/catalog.zip   {cloud}.csv, a row for each machine, place and tier

A cloud that dstack's collector fails to read keeps its old file, so rows are dated by the version and never by the download.

Rows that are no offer are left out: prices of GCP's calendar mode (flag gcp-dws-calendar-mode: reserved in advance), edge
appliances (a3-edgegpu), RunPod's clusters (two machines or more). GCP's A3 on demand is left out because it is wrong:
a3-highgpu-8g in us-east4 stands at $43.79 there, and at $78.37 to $88.56 in Cloud Billing (a reader's comparison of
2026-09-15; Cyclenerd's file of 2026-07-30). GCP attaches GPUs to every N1 machine; only the smallest N1 of the usual size for
them is taken.

Sources: dstackai/gpuhunt src/gpuhunt/_internal/catalog.py and models.py @3584151 (2026-08-19); providers/gcp.py, runpod.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import date, datetime

from costguard.errors import InvalidAnswerError, ProviderError, shorten, to_one_line
from costguard.providers.ports.price_source import PriceFetcher, PriceSourceFacts
from costguard.quoting.offer import OfferListing
from costguard.values.gpu import GpuNames
from costguard.values.resource import COMMUNITY, SPOT
from costguard_public.catalogue import MOST_CATALOGUE_BYTES, CatalogueCollector, CatalogueRow, read_csv_rows, unpack_file
from costguard_public.rows import parse_count, parse_size

SLUGS = {
    "aws": "aws",
    "azure": "azure",
    "cloudrift": "cloudrift",
    "gcp": "gcp",
    "lambda": "lambdalabs",
    "nebius": "nebius",
    "oci": "oci",
    "runpod": "runpod",
    "verda": "verda",
}
"""Provider -> what the catalogue calls it."""

COLUMNS = ("instance_name", "location", "price", "gpu_count", "gpu_name", "spot")
VERSION = re.compile(r"(\d{8})-\d{1,9}")
LONGEST_VERSION = 1024
"""Bytes of the answer that states the version."""

NO_OFFER_FLAGS = ("dws", "runpod-cluster")
NO_OFFER_MACHINES = re.compile(r"a3-edgegpu", re.IGNORECASE)
WRONG_ON_DEMAND = re.compile(r"a3-(?:high|mega)gpu-\d+g")
WRONG = "of GCP's A3 on demand, which the catalogue states too low"

FORMS = (
    (re.compile(r"Standard_NC\d+ads_A100_v4"), "A100 PCIe"),
    (re.compile(r"Standard_NC(?:C)?\d+ad[is]s?_H100_v5"), "H100 NVL"),
    (re.compile(r"gpu_[124]x_a100"), "A100 PCIe"),
    (re.compile(r"gpu_\d+x_h100_pcie"), "H100 PCIe"),
)
"""Machines whose GPU is of another form than the first of its name: azure.md and lambda.md, 2026-11."""

ZONE = re.compile(r"-[a-z]$")
COUNTRY = re.compile(r"[A-Z]{2}")
"""RunPod's community machines stand under a country, its secure ones under a data centre (EU-RO-1)."""

N1 = re.compile(r"n1-([a-z]+)-(\d+)")
N1_VCPUS_PER_GPU = 4
"""n1-standard-4 for one GPU, -8 for two: as in the shipped market."""


class GpuhuntSource:
    """See the module."""

    facts = PriceSourceFacts(
        name="gpuhunt",
        title="gpuhunt's catalogue (dstack)",
        endpoint="https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com",
        providers=tuple(sorted(SLUGS)),
        terms="published for dstack's own clients, readable by everybody; code MPL-2.0, nothing is said of the data",
        size="9 zips, below 2 MB each",
        freshness="collected hourly; a cloud that fails keeps its old file; dated by its version",
        checked_on=date(2026, 11, 23),
        order=50,
    )

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return the offers of all nine clouds."""
        return self.list_offers_of(fetch, gpus, self.facts.providers)

    def list_offers_of(self, fetch: PriceFetcher, gpus: GpuNames, providers: Collection[str]) -> Mapping[str, OfferListing]:
        """Return the offers of `providers`; of one that cannot be had an empty listing that says why."""
        listings, failures = dict[str, OfferListing](), list[ProviderError]()
        for provider in sorted(SLUGS.keys() & set(providers)):
            try:
                listings[provider] = _list_cloud(provider, fetch, gpus)
            except ProviderError as failed:
                failures.append(failed)
                listings[provider] = OfferListing(offers=(), why=failed.what)
        if failures and len(failures) == len(listings):
            raise failures[0]
        return listings


def _list_cloud(provider: str, fetch: PriceFetcher, gpus: GpuNames) -> OfferListing:
    slug, name = SLUGS[provider], "gpuhunt"
    text = fetch.get(f"/v3/{slug}/version", most_bytes=LONGEST_VERSION).body.decode("utf-8", "replace").strip()
    version = VERSION.fullmatch(text)
    day = _read_day(version[1]) if version else None
    if day is None:
        raise InvalidAnswerError(
            f"{slug}'s version is '{shorten(to_one_line(text), 40)}': expected a day and a run", provider=name
        )
    packed = fetch.get(f"/v3/{slug}/{text}/catalog.zip", most_bytes=MOST_CATALOGUE_BYTES)
    body = unpack_file(packed.body, f"{slug}.csv", name)
    collector = CatalogueCollector(gpus=gpus, provider=provider, source=f"gpuhunt catalogue v3 {slug} {text}", observed_on=day)
    for row in read_csv_rows(body, COLUMNS, f"{slug}.csv", name):
        _add_row(row, provider, collector)
    return collector.build_listing()


def _read_day(text: str) -> date | None:
    try:
        return datetime.strptime(f"{text}+0000", "%Y%m%d%z").date()
    except ValueError:
        return None


def _add_row(row: Mapping[str, str], provider: str, collector: CatalogueCollector) -> None:
    """Add a row that offers GPUs; machines without one, and what is no offer, are passed over."""
    count, gpu, machine = parse_count(row.get("gpu_count")), (row.get("gpu_name") or "").strip(), row.get("instance_name") or ""
    if count is None or not gpu or NO_OFFER_MACHINES.match(machine) or _is_odd_n1(machine, count):
        return
    if any(flag in (row.get("flags") or "") for flag in NO_OFFER_FLAGS):
        return
    spot, place = (row.get("spot") or "").strip().lower() == "true", row.get("location") or ""
    if provider == "gcp" and not spot and WRONG_ON_DEMAND.fullmatch(machine):
        collector.leave_out(WRONG)
        return
    collector.add_row(
        CatalogueRow(
            region=ZONE.sub("", place) if provider == "gcp" else place,
            instance_type=machine,
            gpu_names=_list_gpu_names(provider, machine, gpu),
            gpu_count=count,
            tier=_name_tier(provider, place, spot=spot),
            price=row.get("price") or "",
            vram_gb=parse_size(row.get("gpu_memory")),
            vcpus=parse_size(row.get("cpu")),
            ram_gb=parse_size(row.get("memory")),
        )
    )


def _is_odd_n1(machine: str, count: int) -> bool:
    """Return whether it is an N1 of another size than the usual one for `count` GPUs."""
    n1 = N1.fullmatch(machine)
    return n1 is not None and (n1[1] != "standard" or int(n1[2]) != N1_VCPUS_PER_GPU * count)


def _list_gpu_names(provider: str, machine: str, gpu: str) -> tuple[str, ...]:
    """Return the names to look for: the catalogue says H100 of every form, and some machines' names say which."""
    if provider == "runpod":
        return (machine, gpu)  # RunPod's id is NVIDIA's name of the GPU: "NVIDIA H100 PCIe"
    return (*(form for pattern, form in FORMS if pattern.fullmatch(machine)), gpu)


def _name_tier(provider: str, place: str, *, spot: bool) -> str:
    if spot:
        return SPOT
    if provider == "runpod":
        return COMMUNITY if COUNTRY.fullmatch(place) else "secure"
    return "on-demand"


source = GpuhuntSource()
