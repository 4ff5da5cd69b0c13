"""Filesystems, which bill by what they hold, and what can be rented now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from costguard.errors import ProviderError
from costguard.metering.inventory import Partial
from costguard.metering.observation import Disk
from costguard.values.money import Rate
from tests.fakes.lambda_ import wire_id
from tests.fakes.server import START, Answer
from tests.providers.lambda_.open_fake import account, items, key, polled
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.lambda_.test_spec import filesystem


def test_a_filesystem_bills_by_the_gib_it_holds_rounded_up(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.resources = [filesystem()]
    rig.spoil("vol-1", bytes_used=52_428_800_001)
    with account(rig, tmp_path) as source:
        (seen,) = items(polled(source)).values()
    assert (seen.kind, seen.state, seen.owner) == ("volume", "running", "alice@example.com")
    assert seen.disks == (Disk(49, "filesystem"),)
    assert seen.created_at == START - timedelta(days=1)


@pytest.mark.parametrize("used", [..., None, -1, "NaN", 10**30])
def test_a_filesystem_of_unknown_size_is_noted_and_not_of_size_zero(rig: LambdaRig, tmp_path: Path, used: Any) -> None:  # noqa: ANN401
    rig.fake.resources = [filesystem()]
    rig.spoil("vol-1", bytes_used=used)
    with account(rig, tmp_path) as source:
        poll = polled(source)
    (seen,) = items(poll).values()
    assert seen.disks == (Disk(None, "filesystem"),)
    assert "bytes_used" in poll.notes[0]


@pytest.mark.parametrize("kind", ["status", "html", "reset", "truncated"])
def test_filesystems_that_cannot_be_listed_make_the_listing_partial(rig: LambdaRig, tmp_path: Path, kind: str) -> None:
    ids = rig.put(2)
    rig.fake.fault("/file-systems", kind)
    with account(rig, tmp_path) as source:
        poll = polled(source)
    assert isinstance(poll.inventory, Partial)
    assert set(items(poll)) == set(ids)
    assert "filesystems" in poll.inventory.why


def test_a_filesystem_that_cannot_be_read_makes_the_listing_partial(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.resources = [filesystem("vol-1"), filesystem("vol-2")]
    rig.spoil("vol-1", region=17)
    with account(rig, tmp_path) as source:
        poll = polled(source)
    assert isinstance(poll.inventory, Partial)
    assert set(items(poll)) == {wire_id("vol-2")}


def test_a_filesystem_is_looked_up_in_its_listing(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.resources = [filesystem()]
    with account(rig, tmp_path) as source:
        found = source.look_up(key("vol-1"))
        rig.fake.fault("/file-systems", "status", status=500)
        with pytest.raises(ProviderError):
            source.look_up(key("vol-2"))
    assert found is not None
    assert found.kind == "volume"


def test_offers_are_the_types_with_room_in_each_region(rig: LambdaRig, tmp_path: Path) -> None:
    with account(rig, tmp_path) as source:
        listing = source.list_live_offers(None)
        only = source.list_live_offers({"H100-SXM"})
    told = {(one.instance_type, one.region, one.gpu, one.gpu_count): one for one in listing.offers}
    assert set(told) == {
        ("gpu_1x_a10", "us-west-1", "A10", 1),
        ("gpu_1x_a10", "us-east-1", "A10", 1),
        ("gpu_8x_h100_sxm5", "us-west-1", "H100-SXM", 8),
    }
    eight = told["gpu_8x_h100_sxm5", "us-west-1", "H100-SXM", 8]
    assert eight.rate == Rate(nano_per_hour=31_920_000_000)
    assert (eight.vcpus, eight.ram_gb, eight.disk_gb) == (208, 1800, 22528)
    assert eight.observed_on == datetime(2026, 11, 21, tzinfo=UTC).date()
    assert listing.unnamed == ("Z900 (512 GB)",)
    assert only.offers == (eight,)


def test_an_offer_without_a_price_is_unknown_and_never_free(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.fault(
        "/instance-types", "edit", edit=lambda right: Answer(body=right.body.replace(b'"price_cents_per_hour": 129', b'"x": 1'))
    )
    with account(rig, tmp_path) as source:
        found = [one for one in source.list_live_offers(None).offers if one.gpu == "A10"]
    assert found
    assert all(one.rate is None and one.note for one in found)
