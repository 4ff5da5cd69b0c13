"""The watch over random worlds has eyes: books that are wrong on purpose are found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from costguard.metering.billing import BillingRule
from costguard.metering.scope_state import AccrualResult
from tests.providers.sim import books as memory
from tests.providers.sim import worlds

SEEDS = range(40)


def found(gap_free: range = SEEDS) -> int:
    return sum(bool(worlds.run(seed).failures) for seed in gap_free)


def all_of(change: Callable[[BillingRule], BillingRule]) -> dict[str, BillingRule]:
    return {name: change(rule) for name, rule in worlds.rules().items()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "change",
    [
        lambda rule: replace(rule, compute=replace(rule.compute, minimum_s=0)),
        lambda rule: replace(rule, compute=replace(rule.compute, quantum_s=61)),
        lambda rule: replace(rule, compute=replace(rule.compute, bills=(*rule.compute.bills, "stopped"), free=())),
        lambda rule: replace(rule, storage=tuple(replace(each, unit="GB-Months (720 h)") for each in rule.storage)),
    ],
    ids=["no minimum", "longer steps", "stopped machines bill", "short months"],
)
def test_a_wrong_rule_is_found_out(change: Callable[[BillingRule], BillingRule], monkeypatch: pytest.MonkeyPatch) -> None:
    before = found()
    wrong = all_of(change)
    monkeypatch.setattr(worlds, "rules", lambda: wrong)
    assert found() > before + 5


def test_books_that_forget_corrections_and_ends_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    before, write = found(), memory.Books.write

    def forgetful(self: memory.Books, accrued: AccrualResult) -> None:
        write(self, replace(accrued, closed=()))

    monkeypatch.setattr(memory.Books, "write", forgetful)
    assert found() > before + 5


def test_a_seed_gives_the_same_result_twice() -> None:
    assert [worlds.run(seed) for seed in range(10)] == [worlds.run(seed) for seed in range(10)]


def test_the_watch_looks_at_enough() -> None:
    results = [worlds.run(seed) for seed in SEEDS]
    assert sum(result.steps for result in results) > 500
    assert sum(result.checks for result in results) > 1000
    assert sum(result.points for result in results) > 50
