"""Another fake than ours, which speaks the same protocol: other addresses, odd fields, fewer endpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from costguard_vast.account import parse_base_url
from costguard_vast.actions import is_instance_id

from costguard.errors import ProviderError
from costguard.metering.inventory import Complete, Failed, Partial
from costguard.providers.transport import ProviderContext, Transport
from tests.contract.rig import BILLS, NAMES, NoCache, poll_of
from tests.fakes.server import serving
from tests.providers.vast.rig import VastRig

LIST, USER = r"GET /api/v1/instances/", "users/current"


@pytest.mark.parametrize("path", ["", "/", "/api", "/api/v0/", "/api/v1", "/api/v1/"])
def test_the_address_may_end_in_a_version_or_not(path: str) -> None:
    assert parse_base_url(f"https://console.vast.ai{path}") == "https://console.vast.ai"
    assert parse_base_url("http://127.0.0.1:8080/vast/api/v0") == "http://127.0.0.1:8080/vast"


def test_a_stated_account_is_enough_where_nobody_can_be_asked_who_it_is(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.put(1)
    rig.fake.fault(USER, "status", status=404, body=b"404 page not found")
    assert isinstance(poll_of(source).inventory, Complete)
    checks = {check.subject: check for check in source.examine()}
    assert {check.outcome for check in checks.values()} == {"good", "unsure"}
    assert checks["identity"].outcome == "unsure"


def test_an_account_that_nobody_states_is_asked_for_by_name(rig: VastRig, tmp_path: Path) -> None:
    rig.fake.fault(USER, "status", status=404)
    transport = Transport()
    try:
        with serving(rig.fake) as base:
            table = {name: value for name, value in rig.table(base).items() if name != "account"}
            around = ProviderContext(
                transport=transport,
                clock=rig.clock,
                gpus=NAMES,
                bills=BILLS,
                cache=NoCache(),
                environ=rig.environ(),
                home=tmp_path,
            )
            (one,) = rig.plugin().open(table, around)
            with pytest.raises(ProviderError) as caught:
                one.list_scopes()
    finally:
        transport.close()
    assert "account =" in str(caught.value)


def test_a_count_that_is_reached_ends_a_list_without_a_token(rig: VastRig, source: Any) -> None:  # noqa: ANN401
    rig.fake.fault(LIST, "body", body=b'{"success":true,"instances":[{"id":1}],"total_instances":1}')
    assert isinstance(poll_of(source).inventory, Complete)
    rig.fake.faults.clear()
    rig.fake.fault(LIST, "body", body=b'{"success":true,"instances":[{"id":1}],"total_instances":2}')
    assert isinstance(poll_of(source).inventory, Partial)


@pytest.mark.parametrize(("field", "value"), [("num_gpus", "2"), ("label", 5), ("instance", []), ("start_date", {})])
def test_a_field_that_cannot_be_read_costs_neither_state_nor_price(
    rig: VastRig,
    source: Any,  # noqa: ANN401
    field: str,
    value: object,
) -> None:
    (id_,) = rig.put(1)
    rig.fake.extra[id_] = {field: value}
    poll = poll_of(source)
    assert isinstance(poll.inventory, Complete)
    (one,) = poll.inventory.items
    assert (one.state, one.prices[0].rate.format() if one.prices[0].rate else None) == ("running", "0.7600")
    assert any(field in note for note in poll.notes)


def test_only_the_number_as_vast_writes_it_is_put_into_an_address() -> None:
    assert is_instance_id("24815377")
    assert not any(map(is_instance_id, ("007", "0", "", "7 ", "7/", "-7", "\u0667")))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b'{"error":"internal","msg":"try later","instances":[],"next_token":null}'),
        (202, b'{"success":true,"instances":[],"next_token":null}'),
        (206, b'{"success":true,"instances":[],"next_token":null}'),
    ],
)
def test_an_empty_list_beside_an_error_is_not_believed(rig: VastRig, source: Any, status: int, body: bytes) -> None:  # noqa: ANN401
    rig.fake.fault(LIST, "status", status=status, body=body)
    assert isinstance(poll_of(source).inventory, Failed)
