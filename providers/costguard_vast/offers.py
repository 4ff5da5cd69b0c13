"""Offers of Vast's hosts: each host's offer becomes two, on demand and interruptible.

A broad search returns few rows, so GPUs are searched in groups, and a group whose answer looks truncated is halved. Ten
searches a minute and a daily quota limit the searches of one listing. Source: the project's provider notes (vast.md, section 4,
2026-11-21).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from costguard.errors import ProviderError, RefusedError, shorten, to_one_line
from costguard.metering.observation import parse_hourly_rate
from costguard.quoting.offer import Offer, OfferListing
from costguard.values.money import Rate
from costguard.values.resource import SPOT
from costguard_vast.api import QUOTA, SEARCH_ROWS, format_reason
from costguard_vast.translation import PROVIDER, VastGpuNames
from costguard_vast.wire import HostOffer, parse_finite, parse_gpu_count, parse_positive

if TYPE_CHECKING:
    from costguard_vast.account import VastAccount

NAMES = (
    "A10", "A30", "A40", "A100 PCIE", "A100 SXM4", "A800 PCIE", "B200", "B300", "GH200 SXM", "GTX 1080 Ti", "H100 NVL",
    "H100 PCIE", "H100 SXM", "H200", "H200 NVL", "L4", "L40", "L40S", "Q RTX 6000", "Q RTX 8000", "RTX 2080 Ti",
    "RTX 3060", "RTX 3060 Ti",
    "RTX 3070", "RTX 3070 Ti", "RTX 3080", "RTX 3080 Ti", "RTX 3090", "RTX 3090 Ti", "RTX 4000Ada", "RTX 4060", "RTX 4060 Ti",
    "RTX 4070", "RTX 4070S", "RTX 4070 Ti", "RTX 4070S Ti", "RTX 4080", "RTX 4080S", "RTX 4090", "RTX 4090D", "RTX 4500Ada",
    "RTX 5000Ada", "RTX 5060 Ti", "RTX 5070", "RTX 5070 Ti", "RTX 5080", "RTX 5090", "RTX 5880Ada", "RTX 6000Ada",
    "RTX A2000", "RTX A4000", "RTX A4500", "RTX A5000", "RTX A6000", "RTX PRO 4000", "RTX PRO 4500", "RTX PRO 5000",
    "RTX PRO 6000 S", "RTX PRO 6000 WS", "Tesla P40", "Tesla P100", "Tesla T4", "Tesla V100", "Titan RTX",
)  # fmt: skip
"""What Vast calls GPUs on the wire: those of vast.md, and the family of each by the same spelling (2026-11-21)."""

BROAD_ROWS = 64
"""Near so many rows a broad search ends."""
GROUP = 8
SOURCE = "POST /api/v0/bundles"


def list_live_offers(account: VastAccount, gpus: Collection[str] | None) -> OfferListing:
    """Return offers of the canonical `gpus`, None: of every GPU whose Vast name is known.

    Raises a ProviderError if no search succeeded.
    """
    gpu_names = None if gpus is None else frozenset(gpus)
    names, whys = list_wire_names(account.naming, gpu_names), list[str]()
    asks = list(_search_groups(account, names, whys)) if names else []
    today = account.clock.now().date()
    return parse_offers(asks, account.naming, gpu_names, today, whys)


def parse_offers(
    asks: Sequence[HostOffer], naming: VastGpuNames, gpu_names: frozenset[str] | None, today: date, whys: Sequence[str]
) -> OfferListing:
    """Return `asks` as offers of the GPUs `gpu_names` (None: of all)."""
    offers, unnamed, unreadable = list[Offer](), dict[str, None](), 0
    for ask in asks:
        gpu = naming.find_gpu(ask.gpu_name, ask.gpu_ram) if ask.gpu_name else None
        count = parse_gpu_count(ask.num_gpus)
        if not ask.gpu_name or not count:
            unreadable += 1
        elif gpu is None:
            unnamed.setdefault(shorten(to_one_line(ask.gpu_name), 80))
        elif (gpu_names is None or gpu in gpu_names) and ask.rentable is not False:
            offers += _make_offers(ask, gpu, count, today)
    odd = (f"{unreadable} offers cannot be read",) if unreadable else ()
    return OfferListing(offers=tuple(offers), why="; ".join(dict.fromkeys((*whys, *odd))), unnamed=tuple(unnamed))


def list_wire_names(naming: VastGpuNames, gpu_names: frozenset[str] | None) -> tuple[str, ...]:
    """Return Vast's names of the GPUs `gpu_names`: both sizes of an A100 have one name."""
    if gpu_names is None:
        return NAMES
    return tuple(name for name in NAMES if gpu_names.intersection(_find_canonical_gpus(naming, name)))


def _find_canonical_gpus(naming: VastGpuNames, name: str) -> frozenset[str]:
    """Return every canonical GPU with the name `name`, in any size."""
    sizes = (None, *(Decimal(gb * 1024) for gb in SIZES_GB))
    return frozenset(gpu for ram in sizes if (gpu := naming.find_gpu(name, ram)) is not None)


SIZES_GB = (6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 94, 96, 141, 180, 192, 288)


def _search_groups(account: VastAccount, names: Sequence[str], whys: list[str]) -> Iterator[HostOffer]:
    """Yield every row, group by group; failed or truncated searches are noted in `whys`."""
    groups = [tuple(names[i : i + GROUP]) for i in range(0, len(names), GROUP)]
    deadline, learned = account.make_deadline(), False
    while groups:
        group = groups.pop(0)
        try:
            _check_quota(account)
            rows = account.api.search(group, deadline, verified=not account.unverified)
        except ProviderError as broken:
            _note_quota(account, broken)
            if not learned:
                raise
            whys.append(
                f"not queried for {', '.join(name for one in (group, *groups) for name in one)}: {format_reason(broken)}"
            )
            return
        learned, full = True, len(rows) == BROAD_ROWS or len(rows) >= SEARCH_ROWS
        if full and len(group) > 1:
            groups[:0] = [group[: len(group) // 2], group[len(group) // 2 :]]
            continue
        if full:
            whys.append(f"only the {len(rows)} cheapest of {group[0]} were listed")
        yield from rows


def _check_quota(account: VastAccount) -> None:
    """Raise RefusedError while the day's quota is known to be used up."""
    until = account.searches_closed_until
    if until is not None and account.clock.now() < until:
        raise RefusedError(f"has no searches left until {until:%Y-%m-%d %H:%M} UTC", provider=PROVIDER, code=QUOTA)


def _note_quota(account: VastAccount, broken: ProviderError) -> None:
    if broken.code == QUOTA and broken.status:
        midnight = account.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
        account.searches_closed_until = midnight + timedelta(days=1)


def _make_offers(ask: HostOffer, gpu: str, count: int, today: date) -> Iterator[Offer]:
    """Yield a host's offers: at its price, and at its minimum bid.

    An offer without a price is kept with an unknown one.
    """
    base = ask.dph_base
    total, disk = parse_positive(ask.dph_total), parse_finite(ask.storage_total_cost)
    if base is None and total is not None and disk is not None and 0 <= disk < total:
        base = total - disk
    yield _make_offer(ask, gpu, today, "on-demand", parse_hourly_rate(base, gpus=count)[0])
    least = parse_hourly_rate(ask.min_bid, gpus=count)[0]
    if least is not None:
        yield _make_offer(ask, gpu, today, SPOT, least)


def _make_offer(ask: HostOffer, gpu: str, today: date, tier: str, rate: Rate | None) -> Offer:
    cores, ram = parse_positive(ask.cpu_cores_effective), _compute_ram_gb(ask)
    disk, count = parse_positive(ask.disk_space), parse_gpu_count(ask.num_gpus) or 0
    return Offer(
        provider=PROVIDER,
        region=shorten(to_one_line((ask.geolocation or "").strip()), 80) or "unknown",
        instance_type=f"{gpu} x{count}",
        gpu=gpu,
        gpu_count=count,
        tier=tier,
        rate=rate,
        observed_on=today,
        source=SOURCE,
        pricing="dynamic",
        vcpus=None if cores is None else float(cores),
        ram_gb=ram,
        disk_gb=None if disk is None else float(disk),
        note=_write_note(ask, tier),
        reliability=_read_reliability(ask),
        verified=ask.verification == "verified" if ask.verification else None,
    )


def _read_reliability(ask: HostOffer) -> float | None:
    """Return the host's reliability, 0 to 1; None if it states none, or no such number."""
    value = parse_finite(ask.reliability2)
    return float(value) if value is not None and 0 <= value <= 1 else None


def _compute_ram_gb(ask: HostOffer) -> float | None:
    """Return the main memory of the offer: its share of the machine's, by cores.

    `cpu_cores` may be null.
    """
    ram, cores, all_cores = parse_positive(ask.cpu_ram), parse_positive(ask.cpu_cores_effective), parse_positive(ask.cpu_cores)
    return float(ram * min(cores / all_cores, Decimal(1)) / 1000) if ram and cores and all_cores else None


def _write_note(ask: HostOffer, tier: str) -> str:
    """Return a note for people: the machine, its verification, and what a bid means."""
    kind = "datacenter" if ask.hosting_type == 1 else ""
    checked = shorten(to_one_line((ask.verification or "").strip()), 20)
    machine = f"machine {shorten(to_one_line(str(ask.machine_id)), 20)}" if ask.machine_id is not None else ""
    bid = "the least bid that is taken; outbid, it stops" if tier == SPOT else "disk and traffic extra"
    return ", ".join(filter(None, (machine, checked, kind, bid)))
