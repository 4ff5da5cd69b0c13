"""Days with an outage of providers, short ones. Whole days: `python -m tests.simulation outages`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.outage_world import CLOUDS, KINDS, Day
from tests.simulation.outages import calm, days, result, taking_outages_for_the_end

SHORT = 144
"""Minutes."""
ALL_DOWN, SOME_EMPTY = Day(CLOUDS, "down", lasts=SHORT), Day(("aws", "vast"), "empty", lasts=SHORT)


@pytest.fixture
def calm_day() -> None:
    """The day without an outage is played by the product as it is."""
    calm(replace(ALL_DOWN, out=(), how=""))


@pytest.mark.proof
@pytest.mark.usefixtures("calm_day")
def test_an_outage_of_all_providers_leaves_no_trace_where_times_are_stated_and_else_as_much_doubt_as_is_written() -> None:
    found = result(ALL_DOWN).outcome
    assert found.wrong == ()
    assert found.exact[0] == found.exact[1] > len(CLOUDS)
    assert found.bounded[0] == found.bounded[1] > len(CLOUDS)
    assert found.notices == (len(CLOUDS), 0, len(CLOUDS))


@pytest.mark.proof
@pytest.mark.usefixtures("calm_day")
def test_empty_lists_of_two_of_them_do_not_either() -> None:
    assert result(SOME_EMPTY).outcome.wrong == ()


@pytest.mark.proof
@pytest.mark.usefixtures("calm_day")
def test_the_judge_notices_a_ledger_that_takes_an_outage_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    taking_outages_for_the_end(monkeypatch)
    found = result(ALL_DOWN).outcome
    assert any("was said" in one for one in found.wrong)
    assert found.exact[1] < found.exact[0]


def test_each_provider_each_pair_and_all_are_out_in_each_way() -> None:
    found = days(tick=4)
    assert len(found) == len(set(found)) == (5 + 10 + 1) * len(KINDS)
