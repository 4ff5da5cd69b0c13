"""The same worlds through a real ledger, on both databases: what is read back is what was worked out in memory.

So what ten thousand worlds prove of the metering holds for the ledger, whatever the grouping of polls into transactions.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from costguard_sim.plan import PlannedListing
from costguard_sim.view import make_poll

from costguard.ledger.db.maintenance import check_ledger
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.accrual import accrue_poll
from costguard.metering.inventory import Complete, Failed, Partial, Poll
from costguard.metering.observation import Observation
from costguard.metering.scope_state import ScopeState
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import ScopeKey
from tests.ledger.conftest import *  # noqa: F403 - the fixture `url`, for both databases
from tests.providers.sim import books as memory
from tests.providers.sim import worlds

SEEDS = range(300)

pytestmark = pytest.mark.usefixtures("any_date")


def of_world(seed: int, poll: Poll) -> Poll:
    """`poll` under an account of the world's own, so that many worlds fit one ledger."""

    def named(account: str) -> str:
        return f"{account}-{seed}"

    def item(seen: Observation) -> Observation:
        return replace(seen, key=seen.key._replace(account=named(seen.key.account)))

    found = poll.inventory
    if isinstance(found, Complete):
        found = Complete(tuple(map(item, found.items)))
    elif isinstance(found, Partial):
        found = Partial(tuple(map(item, found.items)), found.why)
    gone = frozenset(key._replace(account=named(key.account)) for key in poll.gone)
    return replace(poll, scope=poll.scope._replace(account=named(poll.scope.account)), inventory=found, gone=gone)


def polls_of(seed: int) -> list[Poll]:
    world, plan = worlds.draw(seed)
    return [of_world(seed, make_poll(world, entry, plan.hidden)) for entry in plan.entries if isinstance(entry, PlannedListing)]


@pytest.mark.proof
def test_the_ledger_says_what_memory_says(url: str) -> None:
    rng, rules, mine = random.Random(0), worlds.rules(), memory.Books()  # noqa: S311 - a grouping is drawn, not secret
    polls = [poll for seed in SEEDS for poll in polls_of(seed)]
    with LedgerWriter(url, rules=rules, ceilings=worlds.CEILINGS) as ledger:
        todo = list(polls)
        while todo:
            count = rng.randint(1, 200)
            ledger.record_polls(todo[:count])
            todo = todo[count:]
        assert not any(one.fresh for one in ledger.record_polls(polls[-50:]))
    for poll in polls:
        state = mine.states.get(poll.scope) or ScopeState(scope=poll.scope)
        mine.write(accrue_poll(state, poll, rules[poll.scope.provider], worlds.CEILINGS))
    assert mine.faults == []
    at = from_micros(max(to_micros(poll.at) for poll in polls))
    with SpendingReader(url, rules=rules) as books:
        said = {one.key: one.money for one in books.spent(at)}
    for poll in polls:
        if isinstance(poll.inventory, Failed):
            continue
        for key in {item.key for item in poll.inventory.items}:
            sums = mine.sums(key, ScopeKey(*poll.scope), rules[poll.scope.provider], at)
            expected = tuple(sum(part[i] for part in sums.values()) for i in range(3))
            found = said.get(key)
            assert (found is None and expected == (0, 0, 0)) or (
                found is not None and (found.low.nano, found.expected.nano, found.high.nano) == expected
            ), key
    assert check_ledger(url) == []


def test_a_folder_of_its_own(tmp_path: Path) -> None:
    """SQLite again, one poll a transaction: the grouping leaves no trace."""
    rules, rows = worlds.rules(), []
    for grouping in (1, 1000):
        url = f"sqlite:///{tmp_path}/{grouping}.db"
        polls = [poll for seed in range(8) for poll in polls_of(seed)]
        with LedgerWriter(url, rules=rules, ceilings=worlds.CEILINGS) as ledger:
            for start in range(0, len(polls), grouping):
                ledger.record_polls(polls[start : start + grouping])
        with SpendingReader(url, rules=rules) as books:
            rows.append((books.spent(polls[-1].at), books.list_scopes(), books.load_live(polls[-1].at)))
    assert rows[0] == rows[1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [3, 17])
def test_a_fresh_process_knows_what_the_last_one_knew(url: str, seed: int) -> None:
    rules, polls = worlds.rules(), polls_of(seed)
    for poll in polls:
        with LedgerWriter(url, rules=rules, ceilings=worlds.CEILINGS) as ledger:
            ledger.record_polls([poll])
    mine = memory.Books()
    for poll in polls:
        state = mine.states.get(poll.scope) or ScopeState(scope=poll.scope)
        mine.write(accrue_poll(state, poll, rules[poll.scope.provider], worlds.CEILINGS))
    with SpendingReader(url, rules=rules) as books:
        for one in books.spent(polls[-1].at):
            scope = next(scope for scope, state in mine.states.items() if one.key in state.resources)
            sums = mine.sums(one.key, scope, rules[scope.provider], polls[-1].at)
            assert (one.money.low.nano, one.money.high.nano) == (
                sum(s.low for s in sums.values()),
                sum(s.high for s in sums.values()),
            )
