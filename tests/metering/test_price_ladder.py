"""What is expected of a machine whose provider does not state its price, and between which bounds it lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from costguard.data import MARKET, ShippedFacts
from costguard.ledger.market import MarketReader
from costguard.metering.accrual import accrue_poll
from costguard.metering.billing import CAREFUL_RULE
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import (
    GPU_MEDIAN,
    LAST_KNOWN,
    MACHINE_RATE,
    SAME_TYPE,
    SAME_TYPE_ELSEWHERE,
    TYPE_STATED,
    UNPRICED,
    Observation,
    Price,
)
from costguard.metering.price_ladder import (
    DISCOUNT_MOST,
    LearnedRate,
    PriceLadder,
    apply_learned_rates,
    estimate_missing_prices,
)
from costguard.metering.scope_state import ScopeState
from costguard.quoting.offer import Offer, OfferSelection
from costguard.values.money import NANO, Rate
from costguard.values.resource import ResourceKey, ScopeKey
from tests.ledger.fleet import machine as fleet_machine
from tests.metering.stories import TEN, minute

FACTS = ShippedFacts()
TODAY = date(2026, 11, 25)


def offer(usd: str, region: str = "here-1", **stated: object) -> Offer:
    """An offer of one H100 that was seen yesterday."""
    usual: dict[str, object] = {
        "provider": "aws",
        "instance_type": "p9.large",
        "gpu": "H100-SXM",
        "gpu_count": 1,
        "tier": "on-demand",
        "observed_on": TODAY - timedelta(days=1),
        "source": "a list",
    }
    return Offer(region=region, rate=Rate.parse(usd), **{**usual, **stated})  # type: ignore[arg-type]  # a test's own fields


def ladder(*offers: Offer) -> PriceLadder:
    """A ladder over `offers` and the shipped rates of machines."""
    return PriceLadder(
        drift=FACTS.get_price_drift(),
        find_offers=lambda gpu: [one for one in offers if one.gpu == gpu],
        rates=FACTS.get_machine_rates(),
        ceilings={"H100-SXM": 15 * NANO},
    )


def seen(name: str = "i-1", region: str = "here-1", **stated: object) -> Observation:
    """A machine whose price nobody states."""
    usual: dict[str, object] = {
        "state": "running",
        "instance_type": "p9.large",
        "gpu": "H100-SXM",
        "gpu_count": 1,
        "prices": (Price(None),),
        "started_at": TEN,
    }
    provider = str(stated.pop("provider", "aws"))
    return Observation(key=ResourceKey(provider, "lab", region, name), **{**usual, **stated})  # type: ignore[arg-type]


def scope() -> ScopeState:
    """A scope that was never polled."""
    return ScopeState(scope=ScopeKey("aws", "lab", "here-1"))


def estimate(one: Observation, made: PriceLadder, state: ScopeState | None = None, today: date = TODAY) -> Price:
    """The price of `one` after the ladder."""
    return estimate_missing_prices((one,), state or scope(), made, today)[0].prices[-1]


def get_step(price: Price) -> tuple[str, Decimal | int]:
    """Which step answered, and dollars expected; 0 for nothing."""
    assert price.estimate is not None
    expected = price.rate.nano_per_hour if price.rate else 0
    assert price.estimate.low <= expected <= price.estimate.high
    return price.estimate.step, Decimal(expected).scaleb(-9)


def test_the_market_prices_the_same_type_in_the_same_region_or_zone() -> None:
    made = ladder(offer("4", "here-1"), offer("6", "there-2"))
    assert get_step(estimate(seen(), made)) == (SAME_TYPE, 4)
    assert get_step(estimate(seen(region="here-1-a"), made)) == (SAME_TYPE, 4)


def test_another_region_gives_the_median_and_a_wider_interval() -> None:
    made = ladder(offer("4", "b-1"), offer("5", "c-1"), offer("9", "d-1"))
    found = estimate(seen(), made)
    assert get_step(found)[0] == SAME_TYPE_ELSEWHERE
    assert found.estimate is not None
    assert found.estimate.low < 4 * NANO * 0.6
    assert found.estimate.high >= 9 * NANO


def test_a_gpu_of_an_unknown_type_is_expected_at_the_median_of_its_gpu() -> None:
    made = ladder(offer("4"), offer("10", instance_type="p9.huge", gpu_count=2), offer("100", provider="azure"))
    assert get_step(estimate(seen(instance_type="new.type", gpu_count=3), made)) == (GPU_MEDIAN, Decimal("13.5"))


def test_what_the_account_never_stated_may_be_discounted_and_another_machine_proves_next_to_nothing() -> None:
    """A hard cap counts the low end."""
    market = estimate(seen(), ladder(offer("4"))).estimate
    median = estimate(seen(instance_type="new.type"), ladder(offer("4"))).estimate
    assert market is not None
    assert median is not None
    assert market.low == round(4 * NANO * (1 - DISCOUNT_MOST))
    assert (median.step, median.low) == (GPU_MEDIAN, 1)


def test_nothing_known_is_nothing_expected_and_bounded() -> None:
    found = estimate(seen(), ladder())
    assert (found.rate, get_step(found)) == (None, (UNPRICED, 0))
    assert found.estimate is not None
    assert (found.estimate.low, found.estimate.high) == (0, 15 * NANO)


def test_a_machine_without_a_gpu_is_bounded_by_its_vcpus_and_memory() -> None:
    small = seen(instance_type="zz9.large", gpu="", gpu_count=0, vcpus=2, ram_gb=8)
    large = replace(small, vcpus=64, ram_gb=512)
    bounds = [estimate(one, ladder()).estimate for one in (small, large)]
    assert all(bounds)
    assert [bound.high for bound in bounds if bound] == [3_440_000_000, 66_560_000_000]


@pytest.mark.parametrize(
    ("provider", "region", "type_", "vcpus", "ram_gb", "usd"),
    [
        ("aws", "us-east-1", "m5.large", 2, 8, "0.096"),
        ("aws", "eu-west-1", "m5.large", 2, 8, "0.107"),
        ("aws", "us-east-1", "t3.medium", 2, 4, "0.0416"),
        ("aws", "us-west-2", "c6i.4xlarge", 16, 32, "0.68"),
        ("aws", "us-east-1", "r7i.metal-24xl", 96, 768, "6.3504"),
        ("gcp", "us-central1-a", "e2-small", 0, 0, "0.01675"),
        ("gcp", "europe-west1-b", "e2-standard-2", 2, 8, "0.0737"),
        ("gcp", "us-east1-c", "n2-custom-6-20480", 6, 20, "0.288"),
    ],
)
def test_machines_without_a_gpu_are_expected_at_the_rate_of_their_family(  # noqa: PLR0917 - a table of cases
    provider: str, region: str, type_: str, vcpus: float, ram_gb: float, usd: str
) -> None:
    one = seen(provider=provider, region=region, instance_type=type_, gpu="", gpu_count=0, vcpus=vcpus, ram_gb=ram_gb)
    step, expected = get_step(estimate(one, ladder()))
    assert step == MACHINE_RATE
    assert abs(Decimal(expected) / Decimal(usd) - 1) < Decimal("0.1")


def test_reservations_and_hosts_are_never_estimated_from_list_prices() -> None:
    host, reserved = seen(prices=(Price(None, special=True),)), seen(tier="reserved")
    assert [get_step(estimate(one, ladder(offer("4"))))[0] for one in (host, reserved)] == [UNPRICED, UNPRICED]


def test_paid_software_costs_what_the_plain_machine_does_at_least_and_a_licence_more_at_most() -> None:
    plain, windows = seen(vcpus=8), seen(vcpus=8, prices=(Price(None, surcharged=True),))
    one, other = (estimate(each, ladder(offer("4"))) for each in (plain, windows))
    assert one.estimate is not None
    assert other.estimate is not None
    assert (other.rate, other.estimate.low) == (one.rate, one.estimate.low)
    assert other.estimate.high == one.estimate.high + 8 * 450_000_000
    assert "paid software" in other.source


def test_a_spot_machine_costs_at_most_what_it_costs_on_demand() -> None:
    old = offer("3", tier="spot", observed_on=TODAY - timedelta(days=200))
    made = ladder(offer("4"), old)
    found, on_demand = estimate(seen(tier="spot"), made), estimate(seen(), made)
    assert found.estimate is not None
    assert on_demand.estimate is not None
    assert get_step(found)[0] == SAME_TYPE
    assert found.estimate.high <= on_demand.estimate.high
    alone = estimate(seen(tier="spot"), ladder(offer("4")))
    assert (alone.rate, alone.estimate and alone.estimate.high) == (None, on_demand.estimate.high)


def poll(at: float, *items: Observation) -> Poll:
    """A complete listing."""
    return Poll(scope=ScopeKey("aws", "lab", "here-1"), at=minute(at), inventory=Complete(items))


def play(made: PriceLadder, polls: Sequence[Poll]) -> ScopeState:
    """The scope after `polls`."""
    state = scope()
    for one in polls:
        state = accrue_poll(state, one, CAREFUL_RULE, {}, ladder=made).state
    return state


def test_a_price_list_that_answers_half_prices_the_others_of_its_types() -> None:
    stated = seen("i-1", prices=(Price(Rate.parse("4"), source="AWS price list"),))
    items = (stated, seen("i-2"), seen("i-3", instance_type="other"))
    found = estimate_missing_prices(items, scope(), ladder(offer("8")), TODAY)
    assert found[0] is stated
    assert get_step(found[1].prices[-1]) == (TYPE_STATED, 4)
    assert get_step(found[2].prices[-1]) == (GPU_MEDIAN, 8)


def test_a_price_that_is_lost_stays_expected_and_its_bounds_widen_with_its_age() -> None:
    stated = seen(prices=(Price(Rate.parse("4"), source="AWS price list"),))
    state = play(ladder(offer("8")), [poll(0, stated), poll(1, seen())])
    first = state.resources[stated.key].observation.prices[-1]
    assert get_step(first) == (LAST_KNOWN, 4)
    assert "AWS price list, 2026-11-02" in first.source
    later = estimate(seen(), ladder(offer("8")), state, date(2029, 11, 1))
    assert get_step(later) == (LAST_KNOWN, 4)
    assert first.estimate is not None
    assert later.estimate is not None
    assert later.source == first.source
    assert later.estimate.low <= first.estimate.low


def test_an_estimate_changes_nothing_while_the_day_passes_and_gives_way_to_a_stated_price() -> None:
    made = ladder(offer("4"))
    state = play(made, [poll(0, seen()), poll(1, seen())])
    again = accrue_poll(state, poll(2, seen()), CAREFUL_RULE, {}, ladder=made)
    assert not again.logged
    span = state.resources[seen().key].open["compute", ""]
    assert span.meter.price.estimated
    assert not span.meter.price.known
    after = accrue_poll(again.state, poll(3, seen(prices=(Price(Rate.parse("5")),))), CAREFUL_RULE, {}, ladder=made)
    price = after.state.resources[seen().key].open["compute", ""].meter.price
    assert (price.low, price.high, price.known) == (5 * NANO, 5 * NANO, True)


def test_machines_of_the_shipped_market_are_expected_within_a_tenth() -> None:
    """Every on-demand machine of the snapshot whose type and region are known, at its newest price."""
    with MarketReader(MARKET) as market:
        offers = [one for one in market.list_offers(OfferSelection(tiers=("on-demand",))) if one.rate]
        made = replace(ladder(), find_offers=lambda gpu: list(market.list_offers(OfferSelection(gpus=(gpu,)))))
        newest = {(o.provider, o.region, o.instance_type, o.gpu_count): o for o in sorted(offers, key=lambda o: o.observed_on)}
        missed = []
        for one in newest.values():
            machine = seen(
                provider=one.provider,
                region=one.region,
                instance_type=one.instance_type.partition("+")[0],
                gpu=one.gpu,
                gpu_count=one.gpu_count,
            )
            found = estimate(machine, made)
            assert one.rate is not None
            truth = one.rate.nano_per_hour
            if found.rate is None or abs(found.rate.nano_per_hour / truth - 1) > 0.1:
                missed.append(one)
            else:
                assert found.estimate is not None
                assert found.estimate.low <= truth <= found.estimate.high
    assert not missed


DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("share", "at", "cents"),
    [
        (580, DECEMBER - timedelta(seconds=1), (116, 200, 200)),
        (580, DECEMBER, (116, 116, 200)),
        (1100, DECEMBER - timedelta(seconds=1), (200, 200, 220)),
        (1100, DECEMBER, (200, 220, 220)),
    ],
)
def test_a_learned_rate_is_the_low_end_at_once_and_expected_from_the_next_month_on(
    share: int, at: datetime, cents: tuple[int, int, int]
) -> None:
    """0.580 of $2 is $1.16; a share above 1 raises the high end, and never the low one."""
    rates = {("h1", "on-demand", "H100-SXM", 1.0): LearnedRate(share, share, DECEMBER)}
    (price,) = apply_learned_rates(rates, fleet_machine(usd="2"), at).prices
    assert price.rate is not None
    assert price.estimate is not None
    nano = (price.estimate.low, price.rate.nano_per_hour, price.estimate.high)
    assert nano == tuple(cent * 10**7 for cent in cents)
    spot = fleet_machine(usd="2", tier="spot")
    assert apply_learned_rates(rates, spot, at) == spot, "of another tier the bills said nothing"
