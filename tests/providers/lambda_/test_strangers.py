"""Another fake than ours, which speaks the same protocol: other addresses, odd fields, an audit log that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from costguard_lambda.account import parse_base_url

from costguard.errors import InvalidAnswerError
from costguard.metering.inventory import Complete
from costguard.metering.observation import Disk
from costguard.values.provider import POSTPONED
from tests.providers.lambda_.open_fake import account, items, polled
from tests.providers.lambda_.rig import LambdaRig


@pytest.mark.parametrize("path", ["", "/", "/api/v1", "/api/v1/"])
def test_the_address_may_be_the_host_alone_as_the_spec_has_it(path: str) -> None:
    assert parse_base_url(f"https://cloud.lambda.ai{path}") == "https://cloud.lambda.ai/api/v1"
    assert parse_base_url("http://127.0.0.1:8080/lambda") == "http://127.0.0.1:8080/lambda"


@pytest.mark.parametrize(("field", "value"), [("name", 5), ("tags", {"owner": "x"}), ("ssh_key_names", "a"), ("actions", [])])
def test_a_field_that_cannot_be_read_costs_neither_state_nor_price(
    rig: LambdaRig, tmp_path: Path, field: str, value: object
) -> None:
    (id_,) = rig.put(1)
    rig.spoil(id_, **{field: value})
    with account(rig, tmp_path) as source:
        poll = polled(source)
    assert isinstance(poll.inventory, Complete)
    one = items(poll)[id_]
    assert (one.state, [price.rate.format() if price.rate else None for price in one.prices]) == ("running", ["1.2900"])
    assert any(id_ in note and f"$.{field}" in note for note in poll.notes)


def test_a_filesystem_with_an_odd_name_still_bills(rig: LambdaRig, tmp_path: Path) -> None:
    rig.put(1)
    rig.fake.fault("/file-systems", "body", body=b'{"data":[{"id":"f1","name":5,"region":{"name":"x"},"bytes_used":1}]}')
    with account(rig, tmp_path) as source:
        poll = polled(source)
    assert isinstance(poll.inventory, Complete)
    assert items(poll)["f1"].disks == (Disk(1, "filesystem"),)


def test_nothing_is_ended_that_cannot_be_read_as_a_whole(rig: LambdaRig, tmp_path: Path) -> None:
    (id_,) = rig.put(1)
    rig.spoil(id_, actions="no")
    with account(rig, tmp_path) as source:
        (one,) = items(polled(source)).values()
        assert source.terminate(one.key).said == POSTPONED
    assert {one.method for one in rig.fake.asked} == {"GET"}


def test_an_audit_log_that_is_not_there_leaves_the_listing_whole(rig: LambdaRig, tmp_path: Path) -> None:
    rig.put(1)
    body = b'{"error":{"code":"global/not-found","message":"no route"}}'
    rig.fake.fault("/audit-events", "status", status=404, body=body)
    with account(rig, tmp_path) as source:
        assert isinstance(polled(source).inventory, Complete)
        assert source.fetch_identity() is None


def test_an_address_that_was_retired_proves_nothing_of_the_instance(rig: LambdaRig, tmp_path: Path) -> None:
    (id_,) = rig.put(1)
    with account(rig, tmp_path) as source:
        (one,) = items(polled(source)).values()
        rig.fake.fault(rig.one, "status", status=410, body=b"{}")
        rig.fake.fault(rig.terminates, "status", status=410, body=b"{}")
        assert source.terminate(one.key).said == POSTPONED
        with pytest.raises(InvalidAnswerError):
            source.look_up(one.key)
    assert one.key.id == id_
