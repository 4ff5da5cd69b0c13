"""Idle stops of costguard that somebody undid within the hour, as the ledger shows them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from costguard.guard.action_intents import DONE, EXECUTING, FAILED, VERIFYING
from costguard.guard.policy import PERSON_RULE, SCHEDULE_RULE, START
from costguard.guard.run_facts import Restart, explain_undone_stop
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.values.resource import Incarnation
from tests.ledger import fleet
from tests.ledger.acts import DAY, FLEET, HOUR, WIDE, planned
from tests.ledger.fleet import CEILINGS, RULES, machine, poll

FIRST = fleet.START
KEY = fleet.key("i-1")
LIFE = Incarnation(KEY, None, FIRST - DAY)
STOPPED_AT = FIRST + timedelta(minutes=2)


def carry_out(book: GuardStore, minutes: float, end: str = DONE, **change: Any) -> None:  # noqa: ANN401 - any field
    """An act that is sent `minutes` after the beginning, and ends so a minute later."""
    at = FIRST + timedelta(minutes=minutes)
    one = planned(book, **{"life": LIFE, "created_at": at, "moved_at": at, **change})
    for state, after in ((EXECUTING, 0), (VERIFYING, 0), (end, 1)):
        moved = book.move_intent(one, state, at + timedelta(minutes=after), fleet=FLEET)
        assert moved is not None
        one = moved


def read(url: str, restarted_after: float, *, stop: dict[str, Any] | None = None, start: str = "") -> list[Restart]:
    """What is read of a machine that was stopped, and listed as running so many minutes after its stop."""
    with GuardStore(url, rails=WIDE) as book, LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        assert book.acquire_leader_lease("a", FIRST - HOUR, 6 * HOUR) == 1
        ledger.record_polls([poll(0, machine())])
        carry_out(book, 1, **(stop or {}))
        ledger.record_polls([poll(2, machine(state="stopped"))])
        if start:
            carry_out(book, 2.5, id="a start", act=START, rule=start)
        ledger.record_polls([poll(2 + restarted_after, machine())])
        ledger.record_polls([poll(2 + restarted_after + 5, machine(owner="ada"))])
        return list(book.load_restarts(FIRST - HOUR))


@pytest.mark.parametrize(
    ("after", "how", "counts"),
    [
        (50, {}, True),
        (50, {"start": PERSON_RULE}, True),
        (50, {"start": SCHEDULE_RULE}, False),
        (50, {"stop": {"rule": SCHEDULE_RULE}}, False),
        (50, {"stop": {"end": FAILED}}, False),
        (61, {}, False),
    ],
    ids=[
        "by somebody", "by a person through costguard", "by our own schedule", "after a scheduled stop", "after a failed stop",
        "later",
    ],
)  # fmt: skip
def test_a_restart_within_the_hour_is_read_where_somebody_else_undid_an_idle_stop(
    url: str, after: float, how: dict[str, Any], *, counts: bool
) -> None:
    at = STOPPED_AT + timedelta(minutes=after)
    assert read(url, after, **how) == ([Restart(key=KEY, stopped_at=STOPPED_AT, at=at)] if counts else [])


@pytest.mark.parametrize(
    ("within", "since", "says"),
    [
        (timedelta(minutes=60), 30 * DAY, "was undone within the hour"),
        (timedelta(minutes=61), DAY, ""),
        (timedelta(minutes=20), 30 * DAY + timedelta(minutes=1), ""),
    ],
)
def test_a_stop_undone_within_the_hour_counts_for_thirty_days(within: timedelta, since: timedelta, says: str) -> None:
    one = Restart(key=KEY, stopped_at=STOPPED_AT, at=STOPPED_AT + within)
    now = one.at + since
    assert says in explain_undone_stop([one], KEY, now)
    assert bool(explain_undone_stop([one], KEY, now)) == bool(says)
    assert not explain_undone_stop([one], fleet.key("i-2"), now)
