"""Mutated real shapes: no crash, and no number that the answer did not state. COSTGUARD_FUZZ=10000 tries more."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from costguard_gcp.inventory import CLIENTS, AggregatedList, read_aggregated
from costguard_gcp.machine_types import TABLE
from costguard_gcp.price_list import collect_prices, compute_rate
from costguard_gcp.translation import ListingContext, observe_disk, observe_instance
from costguard_gcp.wire import SkuPage
from google.cloud import compute_v1
from google.protobuf.json_format import ParseError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costguard.errors import InputError, ProviderError
from costguard.metering.observation import Observation
from costguard.values.instant import parse_instant
from tests.campaign import examples
from tests.contract import edits
from tests.fakes.gcp_prices import Listed, price_list
from tests.providers.gcp.test_translate import RATE, READING, ZONE

TRIES = int(os.environ.get("COSTGUARD_FUZZ") or examples(200))
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(
        ["NaN", "-1", "1e999", "\0", "2026-11-21T00:00:00Z", "RUNNING", "TERMINATED", "x" * 5000, [], {}, [None], ...]
    ),
)
MACHINE = {
    "id": "4610212943271111111",
    "name": "trainer",
    "zone": ZONE,
    "machineType": f"{ZONE}/machineTypes/g2-standard-24",
    "status": "RUNNING",
    "creationTimestamp": "2026-11-20T01:02:03.004-08:00",
    "lastStartTimestamp": "2026-11-20T01:02:13.500-08:00",
    "lastStopTimestamp": "2026-11-19T01:02:13.500-08:00",
    "guestAccelerators": [{"acceleratorType": "x/nvidia-l4", "acceleratorCount": 2}],
    "scheduling": {"provisioningModel": "STANDARD", "maxRunDuration": {"seconds": "600"}, "preemptible": False},
    "labels": {"owner": "ann", "goog-gke-node": ""},
    "deletionProtection": False,
    "metadata": {"items": [{"key": "created-by", "value": "projects/1/zones/z/instanceGroupManagers/t"}]},
    "disks": [{"type": "SCRATCH", "diskSizeGb": "375"}, {"type": "PERSISTENT", "diskSizeGb": "50", "autoDelete": True}],
    "reservationAffinity": {"consumeReservationType": "ANY_RESERVATION"},
}
DISK = {
    "id": "77",
    "name": "d",
    "sizeGb": "500",
    "type": "x/pd-ssd",
    "status": "READY",
    "creationTimestamp": "2026-11-20T00:00:00Z",
}


@st.composite
def mutated(draw: st.DrawFn, right: dict[str, Any]) -> Any:  # noqa: ANN401 - whatever comes of it
    """`right` with up to four of its parts replaced or left out."""
    value: Any = right
    for _ in range(draw(st.integers(1, 4))):
        every = list(edits.paths(value)) if isinstance(value, dict | list) else []
        if every:
            value = edits.put(value, draw(st.sampled_from(every)), draw(ODD))
    return value


def _listed(what: str, value: Any) -> AggregatedList:  # noqa: ANN401 - whatever came of it
    body = {"kind": "compute#xAggregatedList", "items": {"zones/us-central1-a": {what: [value]}}}
    return _read(what, json.dumps(body).encode())


def _read(what: str, body: bytes) -> AggregatedList:
    """The list of one page, as the SDK reads it, else as it is repaired."""
    _, _, page_kind, kind = (getattr(compute_v1, name, None) for name in CLIENTS[what])
    assert page_kind is not None

    def ask(_token: str, repair: Callable[[bytes], Any]) -> Any:  # noqa: ANN401 - a message of the SDK
        try:
            return page_kind.from_json(body, ignore_unknown_fields=True)
        except (ParseError, ValueError, TypeError, RecursionError):
            return repair(body)

    return read_aggregated(ask, what, page_kind, kind)


@settings(max_examples=TRIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated(MACHINE))
def test_a_mutated_machine_is_read_or_said_and_invents_nothing(value: Any) -> None:  # noqa: ANN401
    found = _listed("instances", value)
    assert len(found.items) + len(found.named) + len(found.why) == 1
    for where, one in found.items:
        try:
            seen, _ = observe_instance(one, where, READING)
        except InputError:
            continue
        _stated(seen, value)


def _stated(seen: Observation, value: Any) -> None:  # noqa: ANN401
    """Every number of what was seen stands in what was answered, or in the table of machine types."""
    times = {at for path in edits.paths(value) if (at := parse_instant(_at(value, path))) is not None}
    assert {seen.created_at, seen.started_at, seen.stopped_at} - {None} <= times
    counts = {float(n) for path in edits.paths(value) if type(n := _at(value, path)) is int and 0 <= n <= 1000}
    assert seen.gpu_count in counts | {0.0} | {one.gpus for one in TABLE.values()}
    sizes = {str(_at(value, path)) for path in edits.paths(value)}
    assert all(str(disk.gb) in sizes for disk in seen.disks if disk.gb is not None)
    assert all(price.rate in (None, RATE) for price in seen.prices)


def _at(value: Any, path: edits.Path) -> Any:  # noqa: ANN401
    for key in path:
        value = value[key]
    return None if isinstance(value, dict | list) else value


@settings(max_examples=TRIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated(DISK))
def test_a_mutated_disk_is_read_or_said_and_invents_nothing(value: Any) -> None:  # noqa: ANN401
    found = _listed("disks", value)
    assert len(found.items) + len(found.named) + len(found.why) == 1
    for where, one in found.items:
        try:
            seen, _ = observe_disk(one, where, "p")
        except InputError:
            continue
        known = [disk.gb for disk in seen.disks if disk.gb is not None]
        assert all(str(gb) == str(value["sizeGb"]) or gb == int(value["sizeGb"]) for gb in known)


@settings(max_examples=TRIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2), mutated(price_list([Listed("g2-standard-8", "us-central1", "on-demand", 853_624_000)])[0]))
def test_a_mutated_sku_gives_the_right_price_another_or_none(place: int, value: Any) -> None:  # noqa: ANN401
    import msgspec

    right = price_list([Listed("g2-standard-8", "us-central1", "on-demand", 853_624_000)])[:3]
    skus = [*right[:place], value, *right[place + 1 :]]
    prices: dict[str, int] = {}
    page = msgspec.json.decode(json.dumps({"skus": skus}).encode("utf-8", "replace"), type=SkuPage)
    collect_prices(page.skus, prices)
    rate, why = compute_rate(TABLE["g2-standard-8"], (), "on-demand", "us-central1", prices)
    assert (rate is None) == bool(why)
    assert all(nano >= 0 for nano in prices.values())


@settings(max_examples=TRIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    mutated(
        {
            "kind": "compute#instanceAggregatedList",
            "items": {"zones/z-a-b": {"instances": [MACHINE]}},
            "unreachables": ["zones/q"],
        }
    )
)
def test_a_mutated_page_is_an_error_or_a_listing(value: Any) -> None:  # noqa: ANN401
    try:
        found = _read("instances", json.dumps(value).encode())
    except ProviderError:
        return
    assert found.pages >= 1
    assert isinstance(READING, ListingContext)
