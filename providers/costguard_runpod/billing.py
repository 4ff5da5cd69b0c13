"""Translate RunPod's catalogue to offers, billing records to bill lines, and GraphQL's answer to a balance.

Pure. Example: `{"podId": "k3v9", "startTime": "2026-11-01T00:00:00Z", "gpuAmount": 0.69, "diskAmount": 0.01, "totalAmount":
0.7}` gives two lines, `pods:k3v9:2026-11-01T00:00:00Z:compute` of $0.69 and `...:storage` of $0.01. The same record fetched
again gives the same ids, so that the newer statement replaces the older.

Bill files are RunPod's billing answers stored as JSON. Records of `GET /v2/billing/pods` and `/network-volumes` are the same as
those fetched from the account and get the same ids: a file and an answer of one hour give one line. Records of `/serverless`,
`/clusters` and `/endpoints` are summed to the lines without a resource that an answer has for them. `/v2/billing` itself is a
separate statement of everything, which is never added to the others, and so are buckets longer than an hour, and the records of
REST v1 and of `runpodctl billing`, which state one amount per pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TypeVar

import msgspec

from costguard.bills.bill_files import BillFileFacts, BillFileRecord, BillFormat, BillLinePart, BillTally
from costguard.bills.bill_line import COMPUTE, OTHER, STORAGE, TRAFFIC, BillLine, parse_bill_amount
from costguard.errors import InputError, shorten
from costguard.metering.observation import parse_hourly_rate
from costguard.quoting.offer import Offer, OfferListing
from costguard.values.calendar import Period
from costguard.values.instant import EARLIEST, LATEST, MICROSECOND, parse_instant
from costguard.values.money import Money, PrepaidBalance, Rate
from costguard_runpod.translation import PROVIDER, REGION, TIERS, TranslationContext
from costguard_runpod.wire import BillRecord, CatalogueGpu, KeyOwner, OldBillRecord

MOST_COUNT = 16
"""GPUs of one offer: no machine of RunPod's has more than 8; a larger `maxCount` is not believed."""
LATE = timedelta(hours=1)
"""A bucket that ended less than this ago will change: invoices lag by up to 60 minutes (RunPod's documentation, 2026-08)."""
LARGEST = Decimal(10) ** 12
"""USD: a larger amount of one bucket or balance is a wrong unit."""

PODS, VOLUMES, TOTALS, ACCOUNT = "pods", "network-volumes", "", "account"
"""The statements: `GET /v2/billing/pods`, `/network-volumes`, and `/v2/billing` itself for what has no resource of its own, or
in files for everything."""

PARTS: Mapping[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    PODS: (("compute", COMPUTE, ("gpu_amount", "cpu_amount")), ("storage", STORAGE, ("disk_amount",))),
    VOLUMES: (("storage", STORAGE, ("standard_amount", "high_performance_amount")),),
    TOTALS: (
        ("serverless compute", COMPUTE, ("serverless_gpu_amount", "serverless_cpu_amount")),
        ("serverless storage", STORAGE, ("serverless_disk_amount",)),
        ("serverless fee", OTHER, ("serverless_fee_amount",)),
        ("public endpoints", OTHER, ("endpoint_amount",)),
        ("cluster compute", COMPUTE, ("cluster_gpu_amount",)),
        ("cluster storage", STORAGE, ("cluster_disk_amount",)),
        ("cluster network", TRAFFIC, ("cluster_networking_amount",)),
    ),
}
"""Statement -> its lines: what each is called, its charge, and the amounts it is the sum of."""
PARTS_OF_A_RESOURCE = (PODS, VOLUMES)
ACCOUNT_PARTS = (
    ("pod compute", COMPUTE, ("pod_gpu_amount", "pod_cpu_amount")),
    ("pod storage", STORAGE, ("pod_disk_amount",)),
    ("network volumes", STORAGE, ("storage_standard_amount", "storage_high_performance_amount")),
    *PARTS[TOTALS],
)


def list_offers(
    catalogues: Mapping[str, Iterable[CatalogueGpu]], gpu_names: Collection[str] | None, words: TranslationContext, today: date
) -> OfferListing:
    """Return the current offers of each cloud ("SECURE", "COMMUNITY") for the canonical GPUs `gpu_names`, None: all."""
    offers: list[Offer] = []
    unnamed: dict[str, None] = {}
    for cloud, gpus in catalogues.items():
        for gpu in gpus:
            if gpu.id == "unknown" or not gpu.id or not _is_offered(gpu, cloud):
                continue
            name, is_known = words.find_gpu(gpu.id, gpu.memory)
            if not is_known:
                unnamed[name] = None
            elif gpu_names is None or name in gpu_names:
                offers += _list_gpu_offers(gpu, name, cloud, today)
    return OfferListing(offers=tuple(offers), unnamed=tuple(unnamed))


def _is_offered(gpu: CatalogueGpu, cloud: str) -> bool:
    is_listed = gpu.secure if cloud == "SECURE" else gpu.community
    return is_listed is not False and gpu.availability != "NONE"


def _list_gpu_offers(gpu: CatalogueGpu, name: str, cloud: str, today: date) -> Iterator[Offer]:
    """Yield one offer per GPU count; the list price is for one GPU, and a pod costs it times the count."""
    each = (gpu.price.secure if cloud == "SECURE" else gpu.price.community) if gpu.price else None
    most = (gpu.max_count.secure if cloud == "SECURE" else gpu.max_count.community) if gpu.max_count else None
    rate, _ = parse_hourly_rate(each)
    stock = f"stock for one GPU: {gpu.availability.lower()}" if gpu.availability else "stock is not stated"
    for count in range(1, (1 if most is None or most > MOST_COUNT else most) + 1):
        yield Offer(
            provider=PROVIDER,
            region=REGION,
            instance_type=f"{name} x{count}",
            gpu=name,
            gpu_count=count,
            tier=TIERS[cloud],
            rate=rate.multiply(count) if rate else None,
            observed_on=today,
            source="GET /v2/catalog/gpus",
            note=stock if count == 1 else f"{stock}; {count} times the price of one",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BillStatement:
    """One billing answer: `kind` is PODS, VOLUMES or TOTALS, `now` the time of the answer."""

    kind: str
    account: str
    now: datetime
    period: Period


def parse_bill_lines(records: Iterable[BillRecord], about: BillStatement) -> tuple[list[BillLine], int]:
    """Return the lines of the records that overlap the period, and how many records could not be read."""
    lines: list[BillLine] = []
    unread = 0
    for record in records:
        start, end = parse_instant(record.start_time), parse_instant(record.end_time)
        whose = {PODS: record.pod_id, VOLUMES: record.network_volume_id}.get(about.kind, "")
        if (
            start is None
            or end is None
            or whose is None
            or (about.kind in PARTS_OF_A_RESOURCE and not (whose and _states_amount(record, about.kind)))
        ):
            unread += 1
        elif start < about.period.end and end > about.period.start:
            try:
                lines += _split_record(record, whose, start, end, about)
            except InputError:
                unread += 1
    return lines, unread


def _states_amount(record: BillRecord, kind: str) -> bool:
    """Return whether a record of one resource states an amount: without one it is unknown, not zero."""
    names = ("total_amount", *(name for _, _, names in PARTS[kind] for name in names))
    return any(getattr(record, name) is not None for name in names)


def _split_record(record: BillRecord, whose: str, start: datetime, end: datetime, about: BillStatement) -> list[BillLine]:
    """Return a line for each part that is not zero, and one for the rest of the total, if it is stated.

    A pod's computing also has a line if the record states it as zero: so the pod did not run in that bucket.
    """
    named_parts = ACCOUNT_PARTS if about.kind == ACCOUNT else PARTS[about.kind]
    parts = [(word, charge, _sum_amounts(record, names)) for word, charge, names in named_parts]
    total = record.total_amount
    if about.kind == VOLUMES and total is not None:
        parts = [("storage", STORAGE, _parse_amount(total))]
    elif about.kind in (PODS, ACCOUNT) and total is not None:
        parts.append(("rest", OTHER, _parse_amount(total) - sum(amount for _, _, amount in parts)))
    kind, idle = about.kind or "totals", about.kind == PODS and _states_no_computing(record, parts)
    return [
        BillLine(
            id=f"{kind}:{whose}:{start.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}:{word}",
            provider=PROVIDER,
            account=about.account,
            start=start,
            end=end,
            amount=Money(nano=int(amount.scaleb(9))),
            charge=charge,
            resource_id=whose,
            region=REGION if whose else "",
            estimated=end > about.now - LATE,
            source=f"GET /v2/billing{f'/{about.kind}' if about.kind in (PODS, VOLUMES) else ''}",
            description=f"{kind} {word}" if about.kind else word,
        )
        for word, charge, amount in parts
        if amount or (idle and charge == COMPUTE)
    ]


def _states_no_computing(record: BillRecord, parts: list[tuple[str, str, Decimal]]) -> bool:
    """Return whether a pod's record states zero for computing, and a total that the other amounts explain."""
    has_computing = record.gpu_amount is not None or record.cpu_amount is not None
    return has_computing and record.total_amount is not None and not any(amount for word, _, amount in parts if word == "rest")


def _sum_amounts(record: BillRecord, names: tuple[str, ...]) -> Decimal:
    return sum((_parse_amount(getattr(record, name)) for name in names), Decimal(0))


def _parse_amount(amount: Decimal | None) -> Decimal:
    """Round an amount to the nano-dollar, since a bill's binary fractions are longer; 0 if it is absent.

    Raises InputError for an impossible amount.
    """
    if amount is None:
        return Decimal(0)
    if not amount.is_finite() or not -LARGEST <= amount <= LARGEST:
        raise InputError("is not an amount of money", field="bill")
    return amount.quantize(Decimal("1e-9"), ROUND_HALF_EVEN)


def parse_balance(owner: KeyOwner | None, account: str, at: datetime) -> PrepaidBalance:
    """Return the balance.

    `spendLimit` is USD an hour (RunPod's documentation, 2026-08).
    """
    if owner is None:
        return make_unknown_balance(account, at, "GraphQL answers without the account")
    left = owner.client_balance
    if left is None or not left.is_finite() or not -LARGEST <= left <= LARGEST:
        return make_unknown_balance(account, at, "GraphQL does not state a balance")
    amount = Money(nano=int(_parse_amount(left).scaleb(9)))
    burn, limit = _parse_rate(owner.current_spend_per_hr), _parse_rate(owner.spend_limit)
    return PrepaidBalance(provider=PROVIDER, account=account, at=at, amount=amount, burn=burn, burn_limit=limit)


def make_unknown_balance(account: str, at: datetime, why: str) -> PrepaidBalance:
    """Return an unknown balance with its reason."""
    return PrepaidBalance(provider=PROVIDER, account=account, at=at, amount=None, why=why)


def _parse_rate(rate: Decimal | None) -> Rate | None:
    """Return a rate in USD an hour; None if it is zero, absent or impossible."""
    if rate is None or not rate.is_finite() or not 0 < rate < LARGEST:
        return None
    nano = int(rate.scaleb(9))
    return Rate(nano_per_hour=nano) if nano else None


T = TypeVar("T")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
OF_A_RESOURCE = frozenset(("gpuAmount", "cpuAmount", "diskAmount", "standardAmount", "highPerformanceAmount"))
"""Amounts that no total of an account has: without an id their money would be of nobody, and be left out."""
EVER = Period(start=EARLIEST, end=LATEST - MICROSECOND)


SUMMED = {
    "serverlessId": ("serverless", {"gpu": "gpu_amount", "cpu": "cpu_amount", "disk": "disk_amount", "fee": "fee_amount"}),
    "clusterId": ("cluster", {"gpu": "gpu_amount", "disk": "disk_amount", "networking": "networking_amount"}),
}
"""Id of a record that becomes a part of the account's totals -> what they call it, and the record's amounts by their names."""


def is_bill_record(record: BillFileRecord) -> bool:
    """Return whether a record is one bucket of pods, network volumes or the whole account."""
    return _is_bucket(record) and not is_summed_record(record)


def is_summed_record(record: BillFileRecord) -> bool:
    """Return whether a record is one bucket of serverless endpoints, clusters or public endpoints."""
    amounts = {key for key in record if key.endswith("Amount")}
    return _is_bucket(record) and (
        any(name in record for name in SUMMED) or (amounts == {"totalAmount"} and not _IDS & set(record))
    )


_IDS = {"podId", "networkVolumeId"}


def _is_bucket(record: BillFileRecord) -> bool:
    return "startTime" in record and "endTime" in record and any(key.endswith("Amount") for key in record)


def read_bill_record(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """Yield a line for each part of a bucket that is not zero."""
    bucket = _decode(record, BillRecord)
    names = {name for name, value in record.items() if value is not None}
    if bucket.pod_id is None and bucket.network_volume_id is None and (OF_A_RESOURCE & names or _IDS & set(record)):
        hint = "podId or networkVolumeId is wanted: export it again, without grouping it"
        raise InputError("has amounts without a resource", field="record", hint=hint)
    kind = PODS if bucket.pod_id is not None else VOLUMES if bucket.network_volume_id is not None else ACCOUNT
    yield from _list_bucket_lines(bucket, kind, about)


def read_summed_record(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """Yield what a bucket adds to the account's lines without a resource."""
    bucket = _decode(record, BillRecord)
    kind, fields = next((kinds for name, kinds in SUMMED.items() if name in record), ("", {}))
    amounts = {f"{kind}_{name}_amount": getattr(bucket, own) for name, own in fields.items()}
    if not kind:
        amounts = {"endpoint_amount": bucket.total_amount}
    yield from _list_bucket_lines(BillRecord(bucket.start_time, bucket.end_time, **amounts), TOTALS, about)
    rest = (bucket.total_amount or Decimal(0)) - sum((one or Decimal(0) for one in amounts.values()), Decimal(0))
    if abs(rest) >= LEAST_REST:
        raise InputError(f"is {rest:f} more than its parts", field="totalAmount", hint="report it: RunPod has a new amount")


LEAST_REST = Decimal("0.000001")
"""USD by which a total may differ from its parts: they are binary fractions."""


def _list_bucket_lines(bucket: BillRecord, kind: str, about: BillFileFacts) -> Iterator[BillLinePart]:
    lines, unread = parse_bill_lines([bucket], BillStatement(kind=kind, account=about.account, now=about.as_of, period=EVER))
    if unread:
        raise InputError("has no time, no resource or no amount", field="record")
    for line in lines:
        hours = line.end - line.start
        names = ("account totals" if kind == ACCOUNT else "", "" if hours == HOUR else f"buckets of {hours // HOUR} h")
        yield replace(line, statement=", ".join(filter(None, names))), Decimal(0)


def _decode(record: BillFileRecord, kind: type[T]) -> T:
    try:
        return msgspec.convert(record, kind, strict=False)
    except (msgspec.ValidationError, ArithmeticError, ValueError) as odd:  # ValueError: a signalling NaN as a number
        raise InputError(f"is not a bucket of a bill: {shorten(str(odd), 80)}", field="record") from None


def check_pages(pages: Sequence[BillFileRecord], tally: BillTally) -> None:
    """Note the totals of the answers; raise InputError if records are missing, or an answer is of one endpoint or cluster."""
    counts = list[int]()
    for page in pages:
        its = page.get("metadata")
        totals, query = (its.get(name) if isinstance(its, Mapping) else None for name in ("totals", "query"))
        if isinstance(totals, Mapping) and "totalAmount" in totals:
            tally.add_own_total("USD", parse_bill_amount(totals["totalAmount"], "metadata.totals.totalAmount"))
        if isinstance(its, Mapping) and isinstance(its.get("recordCount"), int):
            counts.append(its["recordCount"])
        for name in SUMMED:
            if isinstance(query, Mapping) and query.get(name):
                hint = "export it without the filter: what it states would replace the sum of all"
                raise InputError("is of one resource", field=f"metadata.query.{name}", hint=hint)
    if counts and len(counts) == len(pages) and sum(counts) != tally.records:
        what = f"states {sum(counts)} records, and {tally.records} are there"
        raise InputError(what, field="metadata.recordCount", hint="the file may be cut short: export it again")


OLD_STATEMENT = "v1"


def is_old_record(record: BillFileRecord) -> bool:
    """Return whether a record is one bucket of REST v1, or of `runpodctl billing`."""
    return {"time", "amount"} <= record.keys() and bool(record.keys() & OLD_KEYS)


OLD_KEYS = {"podId", "endpointId", "gpuTypeId", "timeBilledMs", "diskSpaceBilledGb", "highPerformanceStorageAmount"}


def measure_buckets(records: Iterable[BillFileRecord]) -> timedelta:
    """Return an hour if any bucket starts within a day, else a day, RunPod's default: no record states how long it is."""
    return DAY if all((at := parse_instant(one.get("time"))) is None or at.hour == 0 for one in records) else HOUR


def read_old_record(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """Yield the amount of a bucket: of a pod with its disks, of an endpoint, of a type of GPU, or of network volumes."""
    bucket = _decode(record, OldBillRecord)
    start, whose = parse_instant(bucket.time), bucket.pod_id or bucket.endpoint_id or ""
    if start is None:
        raise InputError("is not a time", field="time")
    if bucket.pod_id and bucket.time_billed_ms is not None and bucket.time_billed_ms > about.bucket / timedelta(milliseconds=1):
        hint = "export it with bucketSize=hour or bucketSize=day"
        raise InputError(f"is more than its bucket of {about.bucket // HOUR} h has", field="timeBilledMs", hint=hint)
    by_type = bucket.gpu_type_id is not None and not whose
    charge = COMPUTE if bucket.endpoint_id else OTHER if whose or by_type else STORAGE
    names = (OLD_STATEMENT, "by GPU type" if by_type else "", "" if about.bucket == HOUR else "by day")
    yield (
        BillLine(
            id=f"v1:{charge}:{whose or bucket.gpu_type_id or ''}:{start:%Y-%m-%dT%H:%M:%SZ}",
            provider=PROVIDER,
            account=about.account,
            start=start,
            end=start + about.bucket,
            amount=Money(nano=int(_parse_amount(bucket.amount).scaleb(9))),
            charge=charge,
            resource_id=whose,
            region=REGION if whose else "",
            estimated=start + about.bucket > about.as_of - LATE,
            source="REST v1 or runpodctl",
            statement=" ".join(filter(None, names)),
            description=bucket.gpu_type_id or "",
        ),
        Decimal(0),
    )


BILL_FORMAT = BillFormat(
    name="RunPod billing (JSON)",
    known=is_bill_record,
    read=read_bill_record,
    sums=False,
    omits="buckets in which nothing was charged",
    finish=check_pages,
)
SUMMED_FORMAT = replace(
    BILL_FORMAT,
    name="RunPod serverless, clusters or endpoints (JSON)",
    known=is_summed_record,
    read=read_summed_record,
    sums=True,
)
OLD_FORMAT = BillFormat(
    name="RunPod REST v1 or runpodctl billing (JSON)",
    known=is_old_record,
    read=read_old_record,
    sums=False,
    survey=measure_buckets,
)
