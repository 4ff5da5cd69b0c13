"""A list that is longer than anybody reads is partial, and says so: what lies behind the cap is not taken to be gone."""

from __future__ import annotations

import pytest
from costguard_runpod import pagination
from costguard_runpod.account import RunpodAccount

from costguard.metering.inventory import Partial
from tests.contract.rig import poll_of
from tests.providers.runpod.rig import RunpodRig


def test_a_list_of_more_pods_than_are_read_is_partial_and_says_how_many_were(
    account: RunpodAccount, rig: RunpodRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pagination.MOST_ITEMS == 10_000
    monkeypatch.setattr(pagination, "MOST_ITEMS", 5)
    rig.put(7)
    rig.page(2)
    inventory = poll_of(account).inventory
    assert isinstance(inventory, Partial)
    assert len(inventory.items) == 5
    assert "holds more than 5 items; the rest was not read" in inventory.why


def test_a_list_of_more_pages_than_are_read_is_partial(
    account: RunpodAccount, rig: RunpodRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pagination.MOST_PAGES == 1_000
    monkeypatch.setattr(pagination, "MOST_PAGES", 2)
    rig.put(7)
    rig.page(2)
    inventory = poll_of(account).inventory
    assert isinstance(inventory, Partial)
    assert len(inventory.items) == 4
    assert "has more than 2 pages" in inventory.why
