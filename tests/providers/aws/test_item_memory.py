"""A watchdog that recognises items by their text says what a process says that reads everything for the first time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from costguard_aws import translation
from costguard_aws.account import AwsAccount
from costguard_aws.ec2_xml import read_text
from costguard_aws.translation import guess_price_key

from costguard.metering.inventory import Complete
from costguard.metering.observation import Observation
from costguard.providers.transport import Transport
from costguard.values.resource import INSTANCE, RUNNING
from tests.contract.rig import poll_of
from tests.fakes.server import serving
from tests.providers.aws.rig import AwsRig

TYPES = ("g5.xlarge", "p4d.24xlarge", "g5.xlarge", "c7i.4xlarge", "p99.48xlarge")


@pytest.fixture
def rig() -> AwsRig:
    return AwsRig()


@pytest.fixture
def make_account(rig: AwsRig, tmp_path: Path) -> Iterator[Callable[[], AwsAccount]]:
    """Accounts of one key, as processes that begin: they share nothing."""
    transport = Transport()
    with serving(rig.fake) as base:

        def make() -> AwsAccount:
            made = rig.accounts(base, transport, tmp_path)[0]
            assert isinstance(made, AwsAccount)
            return made

        yield make
    transport.close()


def change(rig: AwsRig, chance: random.Random, ids: list[str]) -> None:
    """Something that may happen between two polls."""
    id_ = chance.choice(ids)
    more = rig.fake.ec2.more.setdefault(id_, {})
    match chance.randrange(10):
        case 0:
            rig.fake.ec2.tags.setdefault(id_, {})["owner"] = chance.choice(["bob", "x & y", "<item>", ""])
        case 1:
            rig.let(id_, chance.choice(["stopped", "running", "ended"]))
        case 2:
            more["instanceType"] = chance.choice(TYPES)
        case 3:
            more["launchTime"] = chance.choice(["never", "2026-11-20T01:02:03.000Z"])
        case 4:
            ids += rig.put(1)
        case 5:
            rig.fake.pricing.rates["g5.xlarge", "us-east-1"] = Decimal(chance.randrange(1, 9))
            rig.clock.at += timedelta(hours=25)
        case 6:
            rig.page(chance.choice([5, 1000]))
        case 7:
            rig.fake.pricing.storage["gp3", "us-east-1"] = chance.choice(["0.08", "0.09"])
            rig.clock.at += timedelta(days=40)
        case _:
            rig.clock.at += timedelta(minutes=1)


def test_a_watchdog_says_what_a_new_process_says_whatever_changes(rig: AwsRig, make_account: Callable[[], AwsAccount]) -> None:
    chance, ids = random.Random(84), rig.put(6)  # noqa: S311 - a test
    resident = make_account()
    for _ in range(12):
        for _ in range(4):
            change(rig, chance, ids)
            ours = poll_of(resident)
        theirs = poll_of(make_account())
        assert isinstance(ours.inventory, Complete)
        assert ours.inventory == theirs.inventory
        new_types = {note for note in theirs.notes if "does not know this type" in note}  # told when EC2 was asked for it
        assert set(theirs.notes) - new_types <= set(ours.notes) <= set(theirs.notes)
        prices = [[price.special for price in item.prices] for item in ours.inventory.items]
        assert prices == [[price.special for price in item.prices] for item in theirs.inventory.items]  # not compared above


def test_what_did_not_change_is_neither_parsed_nor_translated_again(
    rig: AwsRig, make_account: Callable[[], AwsAccount], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = rig.put(5)
    resident, read = make_account(), list[str]()
    poll_of(resident)

    def observe(item: Element, *more: Any) -> Observation:  # noqa: ANN401 - as the translation's
        read.append(read_text(item, "instanceId"))
        return translation.observe_instance(item, *more)

    monkeypatch.setattr("costguard_aws.listing.observe_instance", observe)
    poll_of(resident)
    assert read == []
    rig.fake.ec2.tags.setdefault(ids[2], {})["owner"] = "bob"
    poll_of(resident)
    assert read == [ids[2]]


def test_a_note_about_a_machine_is_told_at_each_poll(rig: AwsRig, make_account: Callable[[], AwsAccount]) -> None:
    rig.fake.ec2.more[rig.put(1)[0]] = {"launchTime": "never"}
    resident = make_account()
    assert [len(poll_of(resident).notes) for _ in range(3)] == [1, 1, 1]


def test_types_and_prices_of_a_large_fleet_are_asked_for_together(rig: AwsRig, make_account: Callable[[], AwsAccount]) -> None:
    for number, id_ in enumerate(rig.put(250)):
        rig.fake.ec2.more[id_] = {"instanceType": TYPES[number // 60]}
    poll = poll_of(make_account())
    assert isinstance(poll.inventory, Complete)
    assert sum(item.kind == INSTANCE and item.state == RUNNING for item in poll.inventory.items) == 250
    asked = [one.line for one in rig.fake.asked]
    assert sum("DescribeInstanceTypes" in line for line in asked) == 1


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (b"<item><instanceType>g5.xlarge</instanceType></item>", ("g5.xlarge", "us-east-1", "RunInstances", "default")),
        (b"<item><platform>Windows</platform></item>", ("", "us-east-1", "RunInstances:0002", "default")),
        (b"<instanceType>a<b</instanceType><tenancy>host</tenancy>", ("a", "us-east-1", "RunInstances", "host")),
        (b"<instanceType>", ("", "us-east-1", "RunInstances", "default")),
        (b"<instanceType>\xff\xff</instanceType>", ("", "us-east-1", "RunInstances", "default")),
    ],
)
def test_a_price_that_will_be_needed_is_guessed_from_the_text(piece: bytes, expected: tuple[str, ...]) -> None:
    assert guess_price_key(piece, "us-east-1") == expected
