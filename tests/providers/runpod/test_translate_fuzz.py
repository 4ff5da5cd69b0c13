"""Mutated real shapes: whatever RunPod answers, nothing crashes, and no number comes out that did not go in.

COSTGUARD_FUZZ=10000 raises the number of examples.
"""

from __future__ import annotations

import json
import os
from copy import deepcopy
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from costguard_runpod import billing
from costguard_runpod.pagination import UNREADABLE, decode_pods, decode_volumes
from costguard_runpod.translation import ListingResult, TranslationContext, is_billed_unpriced, observe_all
from costguard_runpod.wire import BillPage, CatalogueGpu, GpuCatalogue
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import json as mjson

from costguard.errors import InputError
from costguard.metering.observation import drop_impossible_times
from costguard.values.calendar import Period
from costguard.values.instant import EARLIEST, parse_instant
from tests.campaign import examples
from tests.contract.edits import paths
from tests.contract.rig import NAMES
from tests.fakes.runpod import CATALOGUE

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
MANY = settings(
    max_examples=int(os.environ.get("COSTGUARD_FUZZ") or examples(200)),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
POD: dict[str, Any] = {
    "id": "k3v9x2m7q1w8ab",
    "name": "llm-train-alice",
    "status": "RUNNING",
    "actions": ["stop", "restart", "terminate"],
    "image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
    "args": "",
    "disk": 50,
    "mounts": {"persistent": {"size": 20, "path": "/workspace"}},
    "gpu": {"id": "NVIDIA GeForce RTX 4090", "count": 2},
    "cloud": "SECURE",
    "dataCenterId": "EU-RO-1",
    "cudaVersion": "12.8",
    "ports": ["8888/http", "22/tcp"],
    "env": {"COSTGUARD_OWNER": "alice"},
    "registry": None,
    "template": None,
    "cost": 1.38,
    "locked": False,
    "globalNetworking": {"enabled": False},
    "ssh": {
        "proxy": {"host": "ssh.runpod.io", "port": 22, "username": "k3v9x2m7q1w8ab-64411eb2", "command": "..."},
        "direct": None,
    },
    "runtime": {
        "uptime": 3600,
        "gpus": [{"util": 94, "memoryUtil": 78}, {"util": 0, "memoryUtil": 1}],
        "cpu": {"util": 45},
        "memory": {"util": 61},
        "ports": [{"private": 22, "public": 34446, "type": "tcp", "ip": "203.0.113.9"}],
    },
    "createdAt": "2026-10-01T12:00:00Z",
    "startedAt": "2026-10-01T12:02:00Z",
}
"""The pod of the provider's notes (runpod.md, section 3), field for field."""
VOLUME = {"id": "2q9m7x4cab", "name": "datasets", "size": 100, "dataCenter": "EU-RO-1", "type": "STANDARD"}
RECORD = {
    "startTime": "2026-11-01T00:00:00Z",
    "endTime": "2026-11-02T00:00:00Z",
    "podId": "k3v9x2m7q1w8ab",
    "totalAmount": 12.34,
    "gpuAmount": 11.10,
    "cpuAmount": 0,
    "diskAmount": 1.24,
}

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=30),
    st.sampled_from(
        [*("RUNNING", "EXITED", "TERMINATED", "ERROR", "COMMUNITY", "1e9", "NaN", "-1", "2.5"), 0, -1, 1000, 1001, 0.5]
    ),
    st.sampled_from(["2026-11-21T09:30:15+05:30", 1_795_253_415, 1_795_253_415_000.5, "9999-12-31T23:59:59Z", "\0", "\u202e"]),
    st.just([]),
    st.just({}),
    st.lists(st.integers(-5, 200), max_size=3),
)


@st.composite
def mutated(draw: st.DrawFn, right: dict[str, Any]) -> dict[str, Any]:
    """`right` with a few fields changed, left out, or put where they do not belong."""
    value: Any = deepcopy(right)
    for _ in range(draw(st.integers(0, 4))):
        every = list(paths(value))
        if not every:
            break
        *outer, last = draw(st.sampled_from(every))
        inner = value
        for key in outer:
            inner = inner[key]
        how = draw(st.integers(0, 3))
        if how == 0:
            del inner[last]
        else:
            inner[last] = draw(ODD)
    found: dict[str, Any] = value
    return found


def numbers(value: Any) -> set[Decimal]:  # noqa: ANN401 - any JSON
    """Every number in `value`, those written as text too."""
    if isinstance(value, dict):
        return {one for inner in value.values() for one in numbers(inner)}
    if isinstance(value, list):
        return {one for inner in value for one in numbers(inner)}
    try:
        return set() if isinstance(value, bool) or value is None else {Decimal(str(value))}
    except InvalidOperation:
        return set()


def nanos(found: set[Decimal]) -> set[int]:
    """Those that could be money, in nano-dollars."""
    return {int(one.scaleb(9).to_integral_value()) for one in found if one.is_finite() and abs(one) <= 10**12}


def listed(pods: list[Any], volumes: list[Any], catalogue: dict[str, CatalogueGpu]) -> ListingResult | None:
    """What the adapter makes of it; None where the page cannot be read."""
    try:
        pod_page = decode_pods(json.dumps({"pods": pods}).encode())
        volume_page = decode_volumes(json.dumps({"networkVolumes": volumes}).encode())
    except UNREADABLE:
        return None
    any(map(is_billed_unpriced, pod_page.items))
    words = TranslationContext(account="default", names=NAMES, catalogue=catalogue)
    told = observe_all(pod_page.items, volume_page.items, words, AT)
    told.lost += pod_page.lost + volume_page.lost
    return told


@MANY
@given(pod=mutated(POD), volume=mutated(VOLUME), with_catalogue=st.booleans())
def test_no_listing_crashes_and_no_number_is_invented(
    pod: dict[str, Any], volume: dict[str, Any], *, with_catalogue: bool
) -> None:
    gpus = mjson.decode(json.dumps({"gpus": CATALOGUE}).encode(), type=GpuCatalogue).gpus
    told = listed([pod, POD], [volume], {one.id: one for one in gpus} if with_catalogue else {})
    assert told is not None
    assert len(told.items) + told.lost == 3, "an item is lost in silence"
    written = numbers([pod, volume, POD])
    prices = nanos(written) | (
        {nano * n for nano in nanos(numbers([*CATALOGUE])) for n in range(1, 1001)} if with_catalogue else set()
    )
    for seen in told.items:
        assert all(price.rate is None or price.rate.nano_per_hour in prices for price in seen.prices), seen.prices
        assert seen.gpu_count in (0, 1) or Decimal(str(seen.gpu_count)) in written
        assert all(Decimal(disk.gb) in written for disk in seen.disks if disk.gb is not None)
        times = {
            parse_instant(stated)
            for one in (pod, POD)
            for stated in (one.get("createdAt"), one.get("startedAt"))
            if stamp(stated)
        }
        for at in (seen.created_at, seen.started_at):
            assert at is None or at in times
            assert at is None or at.tzinfo is UTC
        drop_impossible_times(seen, AT)
    assert all(Decimal(str(sample.value)) in written and 0 <= sample.value <= 100 for sample in told.samples)


def stamp(value: object) -> bool:
    """Whether `time_stated` takes it: the decoder lets nothing else through."""
    return isinstance(value, str | int | float)


@MANY
@given(record=mutated(RECORD), kind=st.sampled_from([billing.PODS, billing.VOLUMES, billing.TOTALS]))
def test_no_bill_crashes_and_no_amount_is_invented(record: dict[str, Any], kind: str) -> None:
    body = json.dumps({"records": [record, RECORD]}).encode()
    try:
        records = mjson.decode(body, type=BillPage).records
    except UNREADABLE:
        return
    period = Period(start=EARLIEST, end=datetime(2100, 1, 1, tzinfo=UTC))
    about = billing.BillStatement(kind=kind, account="default", now=AT, period=period)
    lines, unread = billing.parse_bill_lines(records, about)
    assert unread <= 2
    written = nanos(numbers([record, RECORD])) | {0}
    sums = {a + b for a in written for b in written}
    sums |= {a - b for a in sums for b in sums}
    for line in lines:
        assert any(abs(line.amount.nano - one) <= 2 for one in sums), line
        assert line.start < line.end


@MANY
@given(gpu=mutated(CATALOGUE[0]), cloud=st.sampled_from(["SECURE", "COMMUNITY"]))
def test_no_catalogue_crashes_and_no_price_is_invented(gpu: dict[str, Any], cloud: str) -> None:
    try:
        gpus = mjson.decode(json.dumps({"gpus": [gpu, CATALOGUE[1]]}).encode(), type=GpuCatalogue).gpus
        listing = billing.list_offers({cloud: gpus}, None, TranslationContext(account="default", names=NAMES), AT.date())
    except UNREADABLE:
        return
    each = nanos(numbers([gpu, CATALOGUE[1]]))
    for offer in listing.offers:
        assert offer.rate is None or offer.rate.nano_per_hour in {nano * offer.gpu_count for nano in each}
        assert 1 <= offer.gpu_count <= billing.MOST_COUNT


@MANY
@given(
    body=st.one_of(
        st.binary(max_size=60),
        st.recursive(
            ODD,
            lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["pods", "id", "pagination", "cost"]), inner),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_no_page_crashes_but_in_the_ways_that_are_caught(body: bytes) -> None:
    try:
        page = decode_pods(body)
    except UNREADABLE:
        return
    try:
        observe_all(page.items, (), TranslationContext(account="default", names=NAMES), AT)
    except InputError as odd:
        raise AssertionError(body) from odd
