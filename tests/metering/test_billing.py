"""What bills in which state at each provider, what it comes to, and what nobody can say."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.metering.billing import (
    CAREFUL_RULE,
    CEILING_PER_GPU,
    HIGHEST_PER_GB,
    BillingRule,
    StorageRule,
    TimeRule,
    get_billing_rule,
    list_meters,
    list_unpriced_parts,
    make_traffic_meter,
)
from costguard.metering.billing_table import read_billing_rules
from costguard.metering.meter import GB, GB_MONTH, GB_MONTH_730, LARGEST_PRICE, Line, Meter, PriceRange
from costguard.metering.observation import MOST_GPUS, Disk, Observation, Price, TrafficCounter
from costguard.metering.span import Span, compute_amounts, compute_charge
from costguard.values.calendar import Period
from costguard.values.money import NANO, Rate
from costguard.values.resource import STATES, ResourceKey

RULES = ShippedFacts().get_billing_rules()
CENT = NANO // 100
HOMES = {"aws": "us-east-1", "gcp": "us-central1-a", "sim-aws": "us-east-1"}


def seen(provider: str, *disks: Disk, state: str = "running", usd: str | None = "2", **more: object) -> Observation:
    key = ResourceKey(provider, "team", HOMES.get(provider, ""), "i-1")
    prices = (Price(Rate.parse(usd)),) if usd else ()
    plain = Observation(key=key, state=state, gpu="H100-SXM", gpu_count=1, prices=prices, disks=disks)
    return replace(plain, **more)  # type: ignore[arg-type]


def billed(provider: str, *disks: Disk, state: str = "running", usd: str | None = "2", **more: object) -> dict[Line, Meter]:
    return list_meters(
        seen(provider, *disks, state=state, usd=usd, **more), get_billing_rule(RULES, provider), {"H100-SXM": 15 * NANO}
    )


def only(provider: str, disk: Disk, **more: object) -> Meter:
    """The meter of one disk."""
    found = [meter for meter in billed(provider, disk, **more).values() if meter.charge == "storage"]  # type: ignore[arg-type]
    assert len(found) == 1
    return found[0]


def cell(meter: Meter | None) -> str:
    """A price in dollars: one where it is sure, low/expected/high where not, - for nothing."""
    if meter is None:
        return "-"
    ends = [f"{Decimal(nano).scaleb(-9).normalize():f}" for nano in (meter.price.low, meter.price.expected, meter.price.high)]
    return ends[0] if len(set(ends)) == 1 else "/".join(ends)


def cost(meter: Meter, start: datetime, end: datetime) -> tuple[str, str, str]:
    """Low, expected and high of a run of `meter`, in dollars to the cent."""
    found = compute_charge(span(meter, start, end), Period(start=start, end=end))
    return found.low.format(), found.expected.format(), found.high.format()


def span(meter: Meter, start: datetime, end: datetime) -> Span:
    item = seen("acme")
    return Span(key=item.key, attribution=item.attribution, meter=meter, start=start, anchor=start, end=end)


def day(month: int, number: int = 1, year: int = 2026) -> datetime:
    return datetime(year, month, number, tzinfo=UTC)


# What bills at $2 an hour: computing, then each disk, state by state.

GOLDEN = {
    "aws": (
        ("gp3", "instance-store"),
        """
        pending    -      0.08  -
        starting   -      0.08  -
        running    2      0.08  -
        paused     0/2/2  0.08  -
        stopping   -      0.08  -
        stopped    -      0.08  -
        suspended  -      0.08  -
        failed     0/2/2  0.08  -
        repairing  0/2/2  0.08  -
        ended      -      -     -
        unknown    0/2/2  0.08  -
        """,
    ),
    "gcp": (
        ("pd-balanced", "local-ssd"),
        """
        pending    -      0.1  -
        starting   -      0.1  -
        running    2      0.1  0.08
        paused     0/2/2  0.1  0/0.08/0.08
        stopping   0/2/2  0.1  0/0.08/0.08
        stopped    -      0.1  -
        suspended  -      0.1  -
        failed     0/2/2  0.1  0/0.08/0.08
        repairing  -      0.1  0/0.08/0.08
        ended      -      -    -
        unknown    0/2/2  0.1  0/0.08/0.08
        """,
    ),
    "runpod": (
        ("container", "volume"),
        """
        pending    0/2/2  0/0/0.1    0/0/0.2
        starting   0/2/2  0/0/0.1    0/0/0.2
        running    2      0.1        0.1
        paused     0/2/2  0/0.1/0.1  0/0.1/0.1
        stopping   0/2/2  0/0.1/0.1  0/0.1/0.2
        stopped    -      -          0.2
        suspended  -      -          0.2
        failed     0/2/2  0/0.1/0.1  0/0.1/0.2
        repairing  -      -          -
        ended      -      -          -
        unknown    0/2/2  0/0.1/0.1  0/0.1/0.2
        """,
    ),
    "lambda": (
        ("local-ssd",),
        """
        pending    -      -
        starting   -      -
        running    2      -
        paused     0/2/2  -
        stopping   0/0/2  -
        stopped    0/2/2  -
        suspended  0/2/2  -
        failed     0/2/2  -
        repairing  0/2/2  -
        ended      -      -
        unknown    0/2/2  -
        """,
    ),
}


@pytest.mark.parametrize("provider", GOLDEN)
def test_what_bills_in_each_state_is_as_its_source_says(provider: str) -> None:
    types, golden = GOLDEN[provider]
    disks = [Disk(100, type_) for type_ in types]
    expected = {state: cells for state, *cells in (line.split() for line in golden.split("\n") if line.strip())}
    found = {state: billed(provider, *disks, state=state) for state in expected}
    lines = [("compute", ""), *(("storage", type_) for type_ in types)]
    assert {state: [cell(runs.get(line)) for line in lines] for state, runs in found.items()} == expected
    assert set(expected) == set(STATES)


VAST = """
    pending    -      0/0.15/0.15
    starting   -      0/0.15/0.15
    running    2      0.15
    paused     2      0.15
    stopping   0/2/2  0.15
    stopped    -      0.15
    suspended  -      0.15
    failed     0/2/2  0.15
    repairing  -      -
    ended      -      -
    unknown    0/2/2  0/0.15/0.15
"""


def test_a_vast_host_states_the_price_of_its_disk_and_is_paid_for_it_while_it_is_there() -> None:
    expected = {state: cells for state, *cells in (line.split() for line in VAST.split("\n") if line.strip())}
    found = {state: billed("vast", Disk(64, "disk", 15 * CENT), state=state) for state in STATES}
    lines = [("compute", ""), ("storage", "disk")]
    assert {state: [cell(runs.get(line)) for line in lines] for state, runs in found.items()} == expected


@pytest.mark.parametrize(
    ("provider", "quantum_s", "minimum_s"),
    [("aws", 1, 60), ("gcp", 1, 60), ("runpod", 1, 0), ("lambda", 60, 0), ("vast", 1, 0)],
)
def test_computing_is_counted_in_the_steps_that_the_provider_counts(provider: str, quantum_s: int, minimum_s: int) -> None:
    for name in (provider, f"sim-{provider}"):
        found = billed(name)["compute", ""]
        assert (found.quantum_s, found.minimum_s, found.quantity) == (quantum_s, minimum_s, 1), name
        assert found.price == PriceRange.exactly(2 * NANO)


@pytest.mark.parametrize(
    ("provider", "simulated_lag_s", "restarts"),
    [("aws", 30, "stated"), ("gcp", 0, "stated"), ("runpod", 0, "stated"), ("lambda", 0, "never"), ("vast", 0, "unstated")],
)
def test_every_shipped_rule_says_how_its_listing_lags_and_restarts(provider: str, simulated_lag_s: int, restarts: str) -> None:
    for name, lag_s in ((provider, 60), (f"sim-{provider}", simulated_lag_s)):
        rule = RULES[name]
        assert (rule.lag_s, rule.restarts, rule.provider) == (lag_s, restarts, name)
        assert rule.source
        assert rule.observed_on >= "2026"


# Money, by the hour and by the month.


def test_a_stopped_pod_with_200_gb_of_its_own_pays_13_15_for_ten_days() -> None:
    found = only("runpod", Disk(200, "volume"), state="stopped")
    assert cost(found, day(11), day(11, 11)) == ("13.15",) * 3


@pytest.mark.parametrize(("year", "month"), [(2026, 2), (2028, 2), (2026, 4), (2026, 12)])
def test_500_gb_of_gp3_cost_40_dollars_in_a_month_of_any_length(year: int, month: int) -> None:
    end = day(month % 12 + 1, year=year + month // 12)
    found = only("aws", Disk(500, "gp3"), state="stopped")
    assert found.unit == GB_MONTH
    assert cost(found, day(month, year=year), end) == ("40.00",) * 3


def test_1500_gb_of_network_volume_cost_the_lower_price_above_the_first_1000() -> None:
    volume = seen("runpod", Disk(1500, "network"), usd=None, kind="volume", gpu="", gpu_count=0)
    found = list_meters(volume, RULES["runpod"], {})
    assert {line: (m.quantity, cell(m), m.quantum_s) for line, m in found.items()} == {
        ("storage", "network"): (1000, "0.07", 3600),
        ("storage", "network above 1 TB"): (500, "0.05", 3600),
    }
    end = day(11) + timedelta(hours=730)
    assert sum(compute_amounts(span(m, day(11), end), 0, 10**18)[1] for m in found.values()) == 95 * NANO


def test_61_seconds_on_lambda_cost_two_minutes_and_30_on_aws_one() -> None:
    start = day(11)
    lambda_ = compute_amounts(span(billed("lambda")["compute", ""], start, start + timedelta(seconds=61)), 0, 10**18)
    aws = compute_amounts(span(billed("aws")["compute", ""], start, start + timedelta(seconds=30)), 0, 10**18)
    assert lambda_ == (66_666_667,) * 3
    assert aws == (33_333_333,) * 3


def test_the_hour_of_a_vast_disk_is_what_vast_itself_shows() -> None:
    """64 GB at $0.15 a month: `storage_total_cost` 0.0133 in its own sample."""
    found = only("vast", Disk(64, "disk", 15 * CENT))
    assert compute_amounts(span(found, day(11), day(11) + timedelta(hours=1)), 0, 10**18)[1] == 13_333_333


def test_a_lambda_filesystem_has_an_example_for_a_price_so_it_lies_between_nothing_and_twice_that() -> None:
    found = only("lambda", Disk(100, "filesystem"), kind="volume", usd=None)
    assert cell(found) == "0/0.2/0.4"
    assert not found.price.known
    assert found.quantum_s == 3600


@pytest.mark.parametrize("state", [s for s in STATES if s != "ended"])
def test_a_volume_bills_in_every_state_until_it_is_gone(state: str) -> None:
    for provider, type_, price in (("aws", "gp3", "0.08"), ("gcp", "pd-ssd", "0.17"), ("runpod", "network", "0.07")):
        assert [cell(m) for m in billed(provider, Disk(50, type_), kind="volume", state=state).values()] == [price]
        assert billed(provider, Disk(50, type_), kind="volume", state="ended") == {}


def test_a_volume_bills_whatever_its_rule_says_of_the_machine_it_was_in() -> None:
    assert billed("gcp", Disk(375, "local-ssd"), state="stopped") == {}
    assert list(billed("gcp", Disk(375, "local-ssd"), kind="volume", state="stopped")) == [("storage", "local-ssd")]


@pytest.mark.parametrize(("provider", "price"), [("aws", "0.005"), ("gcp", "0.004/0.005/0.01"), ("sim-aws", "0.005")])
def test_an_address_bills_by_the_hour_used_or_not(provider: str, price: str) -> None:
    for state in ("running", "stopped", "unknown"):
        found = billed(provider, kind="address", usd=None, state=state)
        assert {line: cell(m) for line, m in found.items()} == {("address", ""): price}
    assert billed(provider, kind="address", usd=None, state="ended") == {}


# Disks of many kinds.


def test_two_disks_of_one_type_are_two_lines_whatever_the_order_of_the_listing() -> None:
    one, other, third = Disk(100, "gp3"), Disk(200, "gp3"), Disk(50, "gp2")
    found = billed("aws", one, other, third)
    assert {line: m.quantity for line, m in found.items() if line[0] == "storage"} == {
        ("storage", "gp2"): 50,
        ("storage", "gp3"): 100,
        ("storage", "gp3#2"): 200,
    }
    assert billed("aws", third, other, one) == found


def test_a_price_stated_with_the_disk_goes_before_the_rule() -> None:
    found = only("aws", Disk(100, "gp3", 9 * CENT))
    assert (cell(found), found.source, found.unit) == ("0.09", "listing", GB_MONTH)


def test_a_disk_nobody_knows_bills_at_the_price_stated_with_it() -> None:
    found = only("acme", Disk(100, "floppy", 9 * CENT), state="stopped")
    assert (cell(found), found.part, found.unit, found.source) == ("0.09", "floppy", GB_MONTH_730, "listing")


@pytest.mark.parametrize("nano", [0, -1, HIGHEST_PER_GB + 1, 10**30])
def test_a_disk_price_that_cannot_be_is_not_believed_and_said(nano: int) -> None:
    item = seen("aws", Disk(100, "gp3", nano))
    assert [line for line in list_meters(item, RULES["aws"], {}) if line[0] == "storage"] == []
    assert list_unpriced_parts(item, RULES["aws"]) == ("100 GB of disk 'gp3' while running: its price is not known",)


@pytest.mark.parametrize(("provider", "type_", "state"), [("vast", "disk", "stopped"), ("lambda", "filesystem", "running")])
def test_a_disk_of_unknown_size_is_no_free_one(provider: str, type_: str, state: str) -> None:
    item = seen(provider, Disk(None, type_), state=state)
    assert [line for line in list_meters(item, RULES[provider], {}) if line[0] == "storage"] == []
    assert list_unpriced_parts(item, RULES[provider]) == (f"disk '{type_}' while {state}: its size is not known",)
    assert list_unpriced_parts(seen(provider, Disk(None, type_), state="ended"), RULES[provider]) == ()


def test_a_disk_of_unknown_size_takes_no_name_of_another() -> None:
    known = billed("aws", Disk(100, "gp3"), Disk(200, "gp3"))
    assert billed("aws", Disk(None, "gp3"), Disk(200, "gp3"), Disk(100, "gp3")) == known


def test_a_disk_type_without_a_price_is_bounded_and_one_in_the_machines_price_costs_nothing_more() -> None:
    item = seen("runpod", Disk(100, "network-high-performance"), Disk(20, "container"), state="stopped")
    assert list_unpriced_parts(item, RULES["runpod"]) == ()
    bound = list_meters(item, RULES["runpod"], {})["storage", "network-high-performance"].price
    assert (bound.unpriced, bound.low, bound.expected, bound.high) == (True, 0, 0, NANO)
    assert list_unpriced_parts(seen("aws", Disk(900, "instance-store"), Disk(8, "gp3")), RULES["aws"]) == ()
    assert list_unpriced_parts(seen("lambda", Disk(900, "local-ssd")), RULES["lambda"]) == ()


def test_an_address_and_traffic_without_a_price_are_listed_and_what_is_gone_is_not() -> None:
    address = seen("runpod", usd=None, kind="address")
    assert list_unpriced_parts(address, RULES["runpod"]) == ("an address: its price is not known",)
    assert list_meters(address, RULES["runpod"], {}) == {}
    busy = seen("aws", counters=(TrafficCounter("traffic", 5),))
    assert list_unpriced_parts(busy, RULES["aws"]) == ("traffic 'traffic': its price is not known",)
    assert list_unpriced_parts(replace(busy, state="ended"), RULES["aws"]) == ()


@pytest.mark.parametrize(
    ("provider", "region", "disk", "prices"),
    [
        ("aws", "us-east-1", "gp3", "0.08"),
        ("aws", "sa-east-1", "gp3", "0.08/0.12752/0.16"),
        ("aws", "eu-west-1", "gp2", "0.1/0.1115/0.2"),
        ("aws", "new-region-1", "gp3", "0.08/0.09336/0.16"),
        ("gcp", "europe-west3-b", "pd-ssd", "0.17/0.21896/0.34"),
        ("gcp", "us-west1-a", "pd-balanced", "0.1/0.1/0.2"),
    ],
)
def test_a_disk_in_another_region_costs_what_the_cheapest_region_does_at_least(
    provider: str, region: str, disk: str, prices: str
) -> None:
    """EBS gp3 is $0.08 in us-east-1 and up to about $0.15 elsewhere."""
    there = ResourceKey(provider, "team", region, "i-1")
    found = list_meters(replace(seen(provider, Disk(100, disk)), key=there), RULES[provider], {})["storage", disk]
    assert cell(found) == prices
    assert found.price.known == (region == "us-east-1")
    assert found.price.estimated != found.price.known


# Prices nobody knows.


@pytest.mark.parametrize(
    ("gpu", "count", "most"),
    [("H100-SXM", 1, 15), ("H100-SXM", 8, 120), ("H100-SXM", 0.125, 15), ("H100-SXM", 1.5, 30), ("", 0, 1000), ("X1", 2, 2000)],
)
def test_an_unknown_price_lies_between_nothing_and_the_dearest_on_the_market(gpu: str, count: float, most: int) -> None:
    found = billed("aws", usd=None, gpu=gpu, gpu_count=count)["compute", ""]
    assert found.price == PriceRange(0, 0, most * NANO, known=False)
    assert found.price.unpriced
    assert found.source.startswith("unpriced")


def test_a_ceiling_that_cannot_be_is_no_ceiling_and_the_largest_machine_has_one() -> None:
    item = seen("aws", usd=None, gpu_count=MOST_GPUS)
    found = list_meters(item, RULES["aws"], {"H100-SXM": 10**30})["compute", ""]
    assert found.price.high == LARGEST_PRICE < CEILING_PER_GPU * MOST_GPUS


def test_a_price_of_a_whole_machine_that_no_machine_costs_is_not_believed_however_many_gpus_it_has() -> None:
    found = billed("aws", usd="34001", gpu_count=MOST_GPUS)["compute", ""]
    assert (found.price.known, found.price.high) == (False, 15_000 * NANO)
    assert billed("aws", usd="34000", gpu_count=MOST_GPUS)["compute", ""].price.known


def test_a_disk_that_would_cost_more_than_any_resource_is_named_and_not_counted() -> None:
    disk = Disk(10**7, "gp3", nano_per_gb_month=10 * NANO)
    assert [line for line in billed("aws", disk) if line[0] == "storage"] == []
    assert list_unpriced_parts(seen("aws", disk), RULES["aws"]) == (
        "10000000 GB of disk 'gp3' while running: its price is not known",
    )


def test_the_last_price_observed_counts_unless_another_is_given() -> None:
    old, new = Price(Rate.parse("1")), Price(Rate.parse("3"), source="list")
    item = seen("aws", prices=(old, new))
    found = list_meters(item, RULES["aws"], {})["compute", ""]
    assert (cell(found), found.source) == ("3", "list")
    assert cell(list_meters(item, RULES["aws"], {}, price=old)["compute", ""]) == "1"
    unknown = list_meters(item, RULES["aws"], {"H100-SXM": NANO}, price=Price(None))["compute", ""]
    assert unknown.price == PriceRange(0, 0, NANO, known=False)


def test_the_currency_of_computing_is_that_of_its_price() -> None:
    found = billed("aws", Disk(10, "gp3"), prices=(Price(Rate.parse("2", "EUR")),))
    assert (found["compute", ""].price.currency, found["storage", "gp3"].price.currency) == ("EUR", "USD")


# A provider without a rule.

CARELESSLY_FREE = ("stopped", "suspended", "ended")


@pytest.mark.parametrize("state", STATES)
def test_a_provider_without_a_rule_is_taken_to_bill_where_it_may(state: str) -> None:
    found = billed("acme", state=state).get(("compute", ""))
    if state in CARELESSLY_FREE:
        assert found is None
    else:
        assert found is not None
        assert found.price.high == 2 * NANO
        assert found.price.low == (2 * NANO if state == "running" else 0)
        assert found.price.expected == (0 if state == "pending" else 2 * NANO)


def test_the_careful_rule_names_its_provider_and_says_what_it_leaves_out() -> None:
    rule = get_billing_rule(RULES, "acme")
    assert (rule.provider, rule.lag_s, rule.restarts) == ("acme", 60, "unstated")
    assert rule.not_counted == CAREFUL_RULE.not_counted
    assert get_billing_rule(RULES, "aws") is RULES["aws"]
    assert list_unpriced_parts(seen("acme", Disk(None, "ssd")), rule) == ("disk 'ssd' while running: its size is not known",)
    assert list_meters(seen("acme", Disk(9, "ssd")), rule, {})["storage", "ssd"].price.unpriced


# Traffic.


def test_traffic_is_counted_in_mb_and_priced_by_the_gb() -> None:
    found = make_traffic_meter(TrafficCounter("traffic", 12_345, 4_000_001), RULES["vast"])
    assert found == Meter("traffic", PriceRange.exactly(4_000_001), unit=GB, quantity=12_345, source="listing")
    assert (
        compute_amounts(span(found, day(11), day(11, 2)), 0, 10**18) == (49_380_012,) * 3
    )  # 12.345 * 4,000,001 = 49,380,012.345


@pytest.mark.parametrize("nano", [None, 0, -5, HIGHEST_PER_GB + 1])
def test_traffic_without_a_price_that_can_be_has_no_meter(nano: int | None) -> None:
    assert make_traffic_meter(TrafficCounter("traffic", 5, nano), RULES["vast"]) is None


def test_traffic_takes_the_rules_price_where_none_is_stated() -> None:
    rule = replace(RULES["vast"], traffic=PriceRange.exactly(CENT))
    found = make_traffic_meter(TrafficCounter("traffic", 5), rule)
    assert found is not None
    assert (cell(found), found.source) == ("0.01", rule.words)


# Whatever is seen.

disks = st.builds(
    Disk,
    gb=st.integers(0, 10**7),
    type=st.sampled_from(("", "gp3", "container", "volume", "network", "filesystem", "disk", "nobody")),
    nano_per_gb_month=st.none() | st.integers(-(10**12), 10**12),
)
observations = st.builds(
    Observation,
    key=st.builds(
        ResourceKey, st.sampled_from((*RULES, "acme")), st.just("team"), st.sampled_from(("", "us-east-1")), st.just("i")
    ),
    state=st.sampled_from(STATES),
    kind=st.sampled_from(("instance", "volume", "address")),
    gpu=st.sampled_from(("", "H100-SXM", "X1")),
    gpu_count=st.floats(0, MOST_GPUS),
    prices=st.lists(st.builds(Price, st.none() | st.builds(Rate, nano_per_hour=st.integers(1, 10**30))), max_size=2).map(tuple),
    disks=st.lists(disks, max_size=5).map(tuple),
)


@given(observations)
def test_whatever_is_seen_has_meters_in_order_and_all_that_is_left_out_is_named(item: Observation) -> None:
    rule = get_billing_rule(RULES, item.key.provider)
    found = list_meters(item, rule, {"H100-SXM": 15 * NANO})
    for line, meter in found.items():
        assert meter.line == line
        assert 0 <= meter.price.low <= meter.price.expected <= meter.price.high
        assert 0 < meter.price.high <= LARGEST_PRICE
        in_thirty_years = 30 * 8766 if meter.unit == "Hours" else 366  # months of 720 h, the shortest that is counted
        assert meter.price.high * meter.quantity * in_thirty_years < 2**63
    assert item.state != "ended" or not found
    if item.kind != "address" and item.state == "running":
        counted = sum(m.quantity for m in found.values() if m.charge == "storage")
        silent = [d for d in item.disks if any(f"disk '{d.type}'" in s for s in list_unpriced_parts(item, rule))]
        assert sum(d.gb or 0 for d in item.disks if d.type != "container") <= counted + sum(d.gb or 0 for d in silent)
        sized = [d for d in item.disks if d.gb is None and rule.find_storage_rules(d.type)]
        assert all(any(f"disk '{d.type}'" in s for s in list_unpriced_parts(item, rule)) for d in sized)


# Reading rules.

WHOLE = """
[acme]
source = "acme.example/prices"
observed_on = "2026-11-21"
lag_s = 60
restarts = "stated"
compute = { bills = ["running"], free = ["pending", "starting", "stopped"], minimum_s = 60 }
storage.ssd = { usd_per_gb_month = "0.10" }
"""


def read(text: str, rows: list[dict[str, str]] | None = None) -> Mapping[str, BillingRule]:
    return read_billing_rules(tomllib.loads(text), "acme.toml", rows or [])


def test_a_new_providers_rule_is_a_few_lines() -> None:
    assert read(WHOLE)["acme"] == BillingRule(
        provider="acme",
        source="acme.example/prices",
        observed_on="2026-11-21",
        lag_s=60,
        restarts="stated",
        compute=TimeRule(bills=("running",), free=("pending", "starting", "stopped"), minimum_s=60),
        storage=(
            StorageRule(part="ssd", type="ssd", running=PriceRange.exactly(10 * CENT), stopped=PriceRange.exactly(10 * CENT)),
        ),
    )


def test_a_disk_may_take_its_prices_from_a_row() -> None:
    row = {"provider": "acme", "disk": "fast SSD", "region": "eu", "source": "acme.example", "observed_on": "2026-11"}
    row |= {"usd_per_gb_month_running": "0.10", "usd_per_gb_month_stopped": ""}
    (disk,) = read(WHOLE.replace('usd_per_gb_month = "0.10"', 'row = "fast SSD"'), [row])["acme"].storage
    assert (disk.running, disk.stopped, disk.region) == (PriceRange.exactly(10 * CENT), None, "eu")
    assert disk.source == "fast SSD: acme.example, 2026-11"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("lag_s = 60", "lag_s = 60\nlags = 1", ("acme.toml acme.lags", "unknown key", "lag_s")),
        ("minimum_s", "minimum", ("acme.toml acme.compute.minimum", "minimum_s")),
        ("lag_s = 60", "", ("acme.toml acme.lag_s", "missing")),
        ("lag_s = 60", "lag_s = -1", ("acme.toml acme.lag_s", "at least 0")),
        ('"stated"', '"maybe"', ("acme.toml acme.restarts", "unstated")),
        ('["running"]', '["runing"]', ("acme.toml acme.compute.bills", "did you mean running")),
        ('["running"]', '["running", "stopped"]', ("acme.toml acme.compute", "'stopped' in two lists")),
        ('["running"]', '["ended"]', ("acme.toml acme.compute.bills", "'ended'")),
        ("minimum_s = 60", "step_s = 0", ("acme.toml acme.compute.step_s", "at least 1")),
        ('"0.10"', "0.10", ("acme.toml acme.storage.ssd.usd_per_gb_month", "decimal string")),
        ('"0.10"', '"-0.10"', ("acme.toml acme.storage.ssd.usd_per_gb_month", "from 0 to 10")),
        ('"0.10"', '"11"', ("acme.toml acme.storage.ssd.usd_per_gb_month", "from 0 to 10")),
        ('"0.10"', '["0.3", "0.2", "0.1"]', ("acme.toml acme.storage.ssd.usd_per_gb_month", "low before")),
        ('"0.10" }', '"0.10", from_gb = 9, to_gb = 9 }', ("acme.toml acme.storage.ssd.to_gb", "at least 10")),
        ('usd_per_gb_month = "0.10"', 'row = "EBS gp3"', ("acme.toml acme.storage.ssd.row", "usd_per_gb_month")),
        ('storage.ssd = { usd_per_gb_month = "0.10" }', 'storage.ssd = "0.10"', ("acme.toml acme.storage.ssd", "table")),
        ('storage.ssd = { usd_per_gb_month = "0.10" }', 'month = "30 d"', ("acme.toml acme.month", "730 h")),
    ],
)
def test_a_bad_rule_names_its_file_provider_and_key(old: str, new: str, words: tuple[str, ...]) -> None:
    assert old in WHOLE
    with pytest.raises(InputError) as refused:
        read(WHOLE.replace(old, new))
    for word in words:
        assert word in str(refused.value)
    assert len(str(refused.value).splitlines()) <= 5


def test_a_row_nobody_wrote_offers_the_nearest() -> None:
    row = {"provider": "acme", "disk": "fast SSD"}
    with pytest.raises(InputError, match="did you mean fast SSD"):
        read(WHOLE.replace('usd_per_gb_month = "0.10"', 'row = "fast sdd"'), [row])


def test_the_prices_of_the_real_clouds_disks_stand_in_one_file() -> None:
    """What a row of storage_rates.csv states is what a quote and a ledger take."""
    quoted = ShippedFacts().get_storage_rates()
    for provider, type_ in (("aws", "gp3"), ("gcp", "pd-balanced"), ("runpod", "container")):
        (rule,) = RULES[provider].find_storage_rules(type_)
        assert rule.running == PriceRange.exactly(quoted[provider].nano_per_gb_month)
        assert quoted[provider].source == rule.source


def test_an_hour_of_what_was_paid_in_advance_costs_nothing_more_and_is_said() -> None:
    block = (Price(None, prepaid=True, source="capacity block"),)
    assert billed("aws", usd=None, prices=block) == {}
    told = list_unpriced_parts(seen("aws", usd=None, prices=block), get_billing_rule(RULES, "aws"))
    assert any("prepaid computing" in sentence for sentence in told)


def test_an_unknown_price_is_not_taken_for_one_paid_in_advance() -> None:
    meter = billed("aws", usd=None)["compute", ""]
    assert meter.price.high == 15 * NANO
    with pytest.raises(InputError, match="paid in advance"):
        Price(Rate.parse("2"), prepaid=True)
