from __future__ import annotations

from itertools import product

import pytest

from tests import campaign


@pytest.mark.parametrize("every", [2, 3, 6])
def test_of_adapters_times_cases_each_adapter_and_each_case_is_in_the_sample(every: int) -> None:
    kept = [places for places in product(range(6), range(12)) if campaign.is_in_sample(places, every)]
    assert len(kept) == 72 // every
    assert ({one for one, _ in kept}, {one for _, one in kept}) == (set(range(6)), set(range(12)))


def test_a_sample_may_begin_elsewhere() -> None:
    assert [place for place in range(9) if campaign.is_in_sample([place], 4, first=3)] == [3, 7]


def test_a_test_without_parameters_is_always_in_its_sample() -> None:
    assert campaign.is_in_sample([], 5)


def test_all_examples_are_tried_in_a_campaign_and_a_few_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "FULL", True)
    assert campaign.examples(200) == 200
    monkeypatch.setattr(campaign, "FULL", False)
    assert [campaign.examples(full) for full in (200, 12)] == [40, 4]


@pytest.mark.parametrize(("letter", "word"), [("a", "one"), ("b", "two")])
@pytest.mark.parametrize("number", [0, 1])
def test_names_that_are_given_values_together_stand_at_one_place(
    request: pytest.FixtureRequest, letter: str, word: str, number: int
) -> None:
    assert sorted(campaign.case_places(request.node)) == sorted(["ab".index(letter), number])
    assert word == {"a": "one", "b": "two"}[letter]


def test_the_parts_of_a_campaign_are_all_of_it_and_none_twice() -> None:
    names = [f"tests/a/test_b.py::test_c[{number}]" for number in range(300)]
    parts = [{name for name in names if campaign.is_in_part(name, f"{number}/3")} for number in (1, 2, 3)]
    assert set.union(*parts) == set(names)
    assert sum(map(len, parts)) == len(names)
    assert min(map(len, parts)) > 60
