"""Clouds whose price lists cannot be asked, over real HTTP: what `status` expects of their machines.

14 machines of five clouds whose type and region are known: each is expected within a tenth of the truth.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from costguard_sim.world import Rate as SimRate
from costguard_sim.world import Shape, to_us

from costguard.data import ShippedFacts
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.spending import LiveResource
from costguard.reporting.status import FleetStatus, build_fleet_status
from costguard.services.poll.market_prices import open_price_ladder, read_price_ceilings
from costguard.services.poll.poll import poll_sources
from costguard.settings import read_settings
from costguard.values.calendar import find_month
from costguard.values.resource import INSTANCE
from costguard.views.status import build_status_document
from tests.contract.rig import Rig
from tests.providers.aws.rig import AwsRig, machine
from tests.providers.gcp.rig import GcpRig, resource
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.runpod.rig import RunpodRig
from tests.providers.vast.rig import VastRig

TRUTH = {"m5.large": "0.096", "t3.medium": "0.0416", "p3.2xlarge": "3.06", "g5.xlarge": "1.006"}
"""AWS's list prices in eu-west-1 (from memory, 2026-11), as those of TRUTH are in us-east-1."""
GOOGLE = {"e2-small": "0.01675", "n1-standard-2": "0.095", "n2-highmem-8": "0.5241", "g2-standard-8": "0.8536"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings and no refreshed market of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def look(rig: Rig, tmp_path: Path, region: str) -> tuple[list[LiveResource], FleetStatus]:
    """What one poll into a new ledger knows, and its status."""
    settings, rules, url = read_settings(None), ShippedFacts().get_billing_rules(), f"sqlite:///{tmp_path / 'ledger.db'}"
    most, now = read_price_ceilings(settings), rig.clock.now()
    opened = rig.opened(tmp_path, regions=[region]) if region else rig.opened(tmp_path)
    with opened as source, LedgerWriter(url, rules=rules, ceilings=most, ladder=open_price_ladder(settings, most)) as ledger:
        poll_sources([source], ledger, rig.clock)
    month = find_month(now, UTC)
    with SpendingReader(url, rules=rules, ceilings=lambda: most) as books:
        live, spent = books.load_live(now), books.load_spending(month, now)
        status = build_fleet_status(at=now, month=month, zone=UTC, spending=spent, live=live, scopes=books.list_scopes())
    return [one for one in live if one.observation.kind == INSTANCE], status


def check_expected(live: list[LiveResource], truth: dict[str, str]) -> None:
    """Every machine of `truth` is expected within a tenth, inside its interval, and never as if the price were stated."""
    found = {one.observation.instance_type: one.open[0].meter.price for one in live if one.open}
    for name, usd in truth.items():
        price, nano = found[name], int(Decimal(usd).scaleb(9))
        assert abs(price.expected / nano - 1) <= 0.1, name
        assert price.low <= nano <= price.high
        assert price.estimated


def test_aws_without_its_price_list_is_priced_from_the_market_and_public_rates(tmp_path: Path) -> None:
    rig = AwsRig()
    start = to_us(rig.clock.now()) - 600 * 10**6
    rig.fake.resources.extend(machine(n, start_us=start, kind=kind) for n, kind in enumerate((*TRUTH, "zz9.large"), 1))
    rig.fake.pricing.rates.clear()
    live, status = look(rig, tmp_path, "us-east-1")
    check_expected(live, TRUTH)
    data = build_status_document(status).data
    assert isinstance(data, dict)
    assert data["unpriced"]["resources"] == 1
    rows = {one["price"]["step"]: one for one in data["resources"] if one["kind"] == INSTANCE and one["price"]}
    assert rows["machine-rate"]["usd_per_hour_interval"]["expected"] == rows["machine-rate"]["usd_per_hour"]
    assert rows["unpriced"]["usd_per_hour"] is None
    assert rows["same-type"]["price"]["observed_on"] < rig.clock.now().date().isoformat()


def test_a_google_project_without_the_billing_api_is_priced_from_public_prices_and_says_how_to_do_better(
    tmp_path: Path,
) -> None:
    rig = GcpRig()
    now = to_us(rig.clock.now())
    plain = resource("x", now)
    for number, (kind, usd) in enumerate((*GOOGLE.items(), ("c9-standard-8", "1"))):
        shape = Shape(at_us=0, type=kind, gpu="L4" if kind.startswith("g2") else "", gpus=int(kind.startswith("g2")))
        rates = (SimRate(at_us=0, nano=int(Decimal(usd).scaleb(9))),)
        rig.fake.resources.append(replace(plain, id=f"vm-{number}", name=f"vm-{number}", shapes=(shape,), rates=rates))
    rig.fake.fault("/v1/services", "status", status=403)
    live, status = look(rig, tmp_path, "")
    check_expected(live, GOOGLE)
    text = "\n".join(build_status_document(status).lead)
    assert "1 unpriced, at most $14.0800 an hour" in text
    assert status.usd.burn.stated.nano < 3 * 10**9


@pytest.mark.parametrize(
    ("rig", "priced_before"), [(LambdaRig, False), (LambdaRig, True), (RunpodRig, True), (VastRig, True)], ids=str
)
def test_a_listing_that_states_no_price_is_priced_from_the_market_or_from_the_listing_before(
    rig: type[Rig], tmp_path: Path, *, priced_before: bool
) -> None:
    """Machines of Lambda are in the shipped market; a pod of RunPod and a host of Vast are known from their last listing."""
    made = rig()
    ids = made.put(1)
    if priced_before:
        look(made, tmp_path, "")
        made.clock.at += timedelta(minutes=1)
    made.spoil(ids[0], price=...)
    live, _ = look(made, tmp_path, "")
    truth = made.fake.resources[-1].rates[-1].nano  # type: ignore[attr-defined]  # every fake of a cloud has them
    (price,) = (one.open[0].meter.price for one in live)
    assert abs(price.expected / truth - 1) <= 0.1
    assert price.low <= truth <= price.high
    assert price.estimated
