"""Holds in the ledger, on both databases: who is admitted, what counts, how a hold ends, and two who ask at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from queue import Empty
from typing import Any

import pytest

from costguard.budgets.budget import RATE_THRESHOLDS, Budget, ResourceFilter
from costguard.budgets.budget_status import Admission
from costguard.budgets.hold import Hold
from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.ledger.db.connection import open_engine
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.db.session import open_query
from costguard.ledger.holds import HoldStore, load_open_holds
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation, Price
from costguard.values.money import Money, Rate
from costguard.values.resource import ResourceKey, ScopeKey
from tests.processes import BESIDE

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
RULES = ShippedFacts().get_billing_rules()
AGENT = Budget(name="agent", cap=Money.parse("10"), period="day", match=ResourceFilter(owners=("agent",)))
EVERYBODY = Budget(name="all", cap=Money.parse("100"))
ROUNDS = 40
"""How often two processes ask at once, on each database."""


def usd(text: str) -> Money:
    return Money.parse(text)


def hold(hold_id: str = "h1", amount: str = "6", **change: Any) -> Hold:  # noqa: ANN401 - any field of a hold
    plain = Hold(id=hold_id, money=usd(amount), who="agent", why="run", owner="agent", taken_at=NOON, expires_at=NOON + HOUR)
    return replace(plain, **change)


@pytest.fixture
def holds(url: str) -> Iterator[HoldStore]:
    with HoldStore(url, rules=RULES) as opened:
        yield opened


def spend(url: str, hourly: str = "6", *, currency: str = "USD") -> None:
    """A machine of the agent that has run since 11:00, listed at 11:30 and not since."""
    seen = Observation(
        key=ResourceKey("sim-runpod", "main", "eu", "pod"),
        state="running",
        owner="agent",
        gpu="H100-SXM",
        gpu_count=1,
        created_at=NOON - HOUR,
        started_at=NOON - HOUR,
        prices=(Price(Rate.parse(hourly, currency)),),
    )
    at = NOON - HOUR / 2
    with LedgerWriter(url, rules=RULES, ceilings={}) as ledger:
        ledger.record_polls([Poll(scope=ScopeKey("sim-runpod", "main", "main"), at=at, inventory=Complete((seen,)))])


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    engine = open_engine(url)
    with engine.connect() as connection:
        found = [tuple(row) for row in open_query(connection)(sql, ())]
    engine.dispose()
    return found


def open_ones(url: str) -> list[Hold]:
    """Those that somebody sees who only reads."""
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        return load_open_holds(ask, NOON)


def revision(url: str) -> int:
    ((number,),) = rows(url, "SELECT revision FROM ledger_state")
    assert isinstance(number, int)
    return number


def test_a_hold_comes_back_as_it_was(url: str, holds: HoldStore) -> None:
    whole = hold(
        who="Zoë",
        why="a 'quoted' run; DROP TABLE hold",
        provider="sim-aws",
        account="main",
        gpu="H100-SXM",
        labels=(("project", "x"), ("team", "vision")),
    )
    assert holds.take(whole, [AGENT, EVERYBODY], NOON).admitted
    assert holds.open_holds(NOON) == open_ones(url) == [whole]
    assert sorted(rows(url, "SELECT hold_id, budget FROM hold_budget")) == [("h1", "agent"), ("h1", "all")]


def test_the_cap_is_reached_to_the_nano_and_not_passed(holds: HoldStore) -> None:
    assert holds.take(hold("h1", "9.999999999"), [AGENT], NOON).admitted
    assert not holds.take(hold("h2", "0.000000002"), [AGENT], NOON).admitted
    assert holds.take(hold("h3", "0.000000001"), [AGENT], NOON).admitted
    refused = holds.take(hold("h4", "0.000000001"), [AGENT], NOON)
    assert (refused.reason, refused.budget, refused.exposure, refused.left) == ("budget_cap", "agent", usd("10"), usd("0"))


def test_a_refused_hold_writes_nothing_and_says_how_much_is_left(url: str, holds: HoldStore) -> None:
    holds.take(hold("h1", "6"), [AGENT, EVERYBODY], NOON)
    before = revision(url)
    refused = holds.take(hold("h2", "4.01"), [EVERYBODY, AGENT], NOON)
    assert refused.says == "budget agent: $4.00 of $10.00 left, not enough for 4.01 USD"
    assert revision(url) == before
    assert [h.id for h in holds.open_holds(NOON)] == ["h1"]
    assert rows(url, "SELECT count(*) FROM hold_budget") == [(2,)]


def test_the_tightest_of_nested_budgets_decides(holds: HoldStore) -> None:
    tight = Budget(name="tight", cap=usd("7"))
    assert holds.take(hold("h1"), [EVERYBODY, tight, AGENT], NOON).budget == "tight"
    assert holds.take(hold("h2", "3"), [EVERYBODY, tight, AGENT], NOON).budget == "tight"


def test_what_is_spent_counts_with_its_high_end_up_to_now(url: str, holds: HoldStore) -> None:
    spend(url)
    refused = holds.take(hold(amount="4.01"), [AGENT], NOON)
    assert (refused.exposure, refused.left) == (usd("6"), usd("4"))
    assert holds.take(hold(amount="4"), [AGENT], NOON).admitted
    assert not holds.take(hold("h2", amount="0.01"), [AGENT], NOON).admitted


def test_spending_and_holds_count_in_the_period_that_holds_now(url: str, holds: HoldStore) -> None:
    spend(url)
    holds.take(hold(amount="4"), [AGENT], NOON)
    morrow = datetime(2026, 11, 22, 0, 30, tzinfo=UTC)
    late = hold("h2", amount="7", taken_at=morrow, expires_at=morrow + HOUR)
    assert holds.take(late, [AGENT], morrow).exposure == usd("3")


def test_a_hold_in_another_currency_than_its_budget_is_refused(holds: HoldStore) -> None:
    refused = holds.take(hold(money=Money.parse("1", "EUR")), [AGENT], NOON)
    assert (refused.admitted, refused.reason) == (False, "currency")
    assert holds.open_holds(NOON) == []


def test_an_expired_hold_counts_no_more_before_anybody_has_marked_it(url: str, holds: HoldStore) -> None:
    holds.take(hold("h1", "10"), [AGENT], NOON)
    assert not holds.take(hold("h2"), [AGENT], NOON + HOUR - timedelta(microseconds=1)).admitted
    assert holds.open_holds(NOON + HOUR) == []
    assert rows(url, "SELECT ended_us FROM hold") == [(None,)]
    late = hold("h2", "10", expires_at=NOON + 2 * HOUR)
    assert holds.take(late, [AGENT], NOON + HOUR).admitted
    ended = int((NOON + HOUR).timestamp() * 1_000_000)
    assert rows(url, "SELECT id, ended_us, ended_by FROM hold ORDER BY id") == [("h1", ended, "expired"), ("h2", None, None)]


def test_ending_a_hold_in_two_ways_is_refused(holds: HoldStore) -> None:
    holds.take(hold("h1"), [], NOON)
    holds.take(hold("h2"), [], NOON)
    holds.release("h1", NOON)
    holds.commit("h2", usd("1"), NOON)
    with pytest.raises(InputError, match="hold h1: was released"):
        holds.commit("h1", usd("1"), NOON)
    with pytest.raises(InputError, match="hold h2: was committed"):
        holds.release("h2", NOON)
    with pytest.raises(InputError, match="with another amount"):
        holds.commit("h2", usd("2"), NOON)
    with pytest.raises(InputError, match="is not a hold of this ledger"):
        holds.release("h3", NOON)


def test_a_hold_that_is_asked_for_again_is_admitted_and_counted_once(url: str, holds: HoldStore) -> None:
    assert holds.take(hold("h1", "10"), [AGENT], NOON).reason == "within_budget"
    again = holds.take(hold("h1", "10"), [AGENT], NOON)
    assert (again.admitted, again.reason, again.says) == (True, "already_held", "10.00 USD is held already")
    assert rows(url, "SELECT count(*) FROM hold") == [(1,)]


@pytest.mark.parametrize(("price", "left"), [("10", "0"), ("7.5", "2.5"), ("2", "8")], ids=["to the cap", "dearer", "cheaper"])
def test_a_hold_that_is_asked_for_again_at_another_price_replaces_the_old_one(
    url: str, holds: HoldStore, price: str, left: str
) -> None:
    holds.take(hold("h1", "6"), [AGENT, EVERYBODY], NOON)
    later = NOON + HOUR / 2
    again = hold("h1", price, taken_at=later, expires_at=later + HOUR)
    renewed = holds.take(again, [AGENT], later)
    assert (renewed.admitted, renewed.reason, renewed.was, renewed.until) == (True, "renewed", usd("6"), later + HOUR)
    assert renewed.says.startswith(f"{usd(price).format()} USD is held instead of 6.00 USD")
    assert holds.open_holds(later) == [again]
    assert rows(url, "SELECT hold_id, budget FROM hold_budget") == [("h1", "agent")]
    assert holds.take(again, [AGENT], later).reason == "already_held"
    more = holds.take(hold("h2", "8.01", taken_at=later), [AGENT], later)
    assert (more.admitted, more.left) == (False, usd(left))


def test_a_renewal_that_does_not_fit_leaves_the_old_hold_and_says_so(url: str, holds: HoldStore) -> None:
    holds.take(hold("h1", "6"), [AGENT], NOON)
    holds.take(hold("h2", "3"), [AGENT], NOON)
    refused = holds.take(hold("h1", "7.01"), [AGENT], NOON)
    assert (refused.admitted, refused.reason, refused.left, refused.was) == (False, "budget_cap", usd("7"), usd("6"))
    assert refused.says == ("budget agent: $7.00 of $10.00 left, not enough for 7.01 USD; the earlier hold of 6.00 USD stays")
    assert rows(url, "SELECT id, nano FROM hold ORDER BY id") == [("h1", 6 * 10**9), ("h2", 3 * 10**9)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"who": "bob"}, "is the id of another hold"),
        ({"gpu": "A100-SXM-80GB"}, r"is open for a run with another gpu \(none, now A100-SXM-80GB\)"),
        ({"labels": (("team", "nlp"),), "owner": ""}, r"another owner \(agent, now none\) and labels \(none, now team=nlp\)"),
        ({"money": Money.parse("7", "EUR")}, r"another currency \(USD, now EUR\)"),
    ],
    ids=["holder", "gpu", "labels", "currency"],
)
def test_an_id_of_another_run_is_refused_with_what_differs(
    url: str, holds: HoldStore, change: dict[str, Any], said: str
) -> None:
    holds.take(hold("h1", "6"), [], NOON)
    with pytest.raises(InputError, match=said):
        holds.take(hold("h1", **{"amount": "7", **change}), [], NOON)
    assert rows(url, "SELECT nano, currency FROM hold") == [(6 * 10**9, "USD")]


def test_several_that_ask_at_once_count_one_after_the_other_in_one_transaction(url: str, holds: HoldStore) -> None:
    spend(url)  # 3 to 6 of the agent
    wanted = [hold(f"h{n}", "1") for n in range(12)]
    wanted[1] = hold("h0", "1", expires_at=NOON + 2 * HOUR)  # the first one asks again, a little later
    wanted[2] = hold("h0", "2")
    came = holds.take_all(wanted, [AGENT, EVERYBODY], NOON)
    said = [one.what if isinstance(one, InputError) else one.reason for one in came]
    left = 10 - 6
    assert said[:3] == ["within_budget", "already_held", "renewed"]  # h0 asked for 1, and for 2 after it
    assert said[3:] == ["within_budget"] * (left - 2) + ["budget_cap"] * (9 - left + 2)
    refused = came[-1]
    assert not isinstance(refused, InputError)
    assert refused.left == usd("0")
    assert refused.left_range is not None
    assert refused.left_range.low <= refused.left_range.expected <= refused.left_range.high
    assert sum(one.money.nano for one in open_ones(url)) == left * 10**9


def ask_at_once(url: str, name: str, start: Any, answers: Any) -> None:  # noqa: ANN401 - a Barrier and a Queue of processes beside this one
    """Ask for 6 of 10 in every round, at the same moment as the others do."""
    with HoldStore(url, rules=RULES) as opened:
        for number in range(ROUNDS):
            owner = f"agent {number}"
            budget = replace(AGENT, match=ResourceFilter(owners=(owner,)))
            start.wait(timeout=60)
            admission = opened.take(hold(f"{name} {number}", owner=owner), [EVERYBODY_LARGE, budget], NOON)
            answers.put((number, name, admission.admitted, admission.budget))


EVERYBODY_LARGE = replace(EVERYBODY, cap=usd("100000"))


def test_of_two_processes_that_ask_at_once_exactly_one_is_admitted(url: str) -> None:
    spend(url)
    start, answers = BESIDE.Barrier(2), BESIDE.Queue()
    processes = [BESIDE.Process(target=ask_at_once, args=(url, name, start, answers)) for name in ("left", "right")]
    for process in processes:
        process.start()
    found = [_next(answers, processes) for _ in range(2 * ROUNDS)]
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0, 0]
    for number in range(ROUNDS):
        of_round = [(admitted, budget) for n, _, admitted, budget in found if n == number]
        assert sorted(of_round) == [(False, "agent"), (True, "agent")], number
    admitted = {f"{name} {number}" for number, name, yes, _ in found if yes}
    assert {h.id for h in open_ones(url)} == admitted
    assert len(admitted) == ROUNDS


def _next(answers: Any, processes: list[Any]) -> tuple[int, str, bool, str]:  # noqa: ANN401 - see above
    """The next answer, as long as anybody is there to give one."""
    while any(process.exitcode is None for process in processes):
        try:
            answer: tuple[int, str, bool, str] = answers.get(timeout=60)
        except Empty:
            continue
        return answer
    last: tuple[int, str, bool, str] = answers.get(timeout=60)
    return last


def test_a_run_that_would_pass_a_cap_an_hour_is_refused(holds: HoldStore, url: str) -> None:
    """The agent's pod bills $6 an hour since 11:00, and $12 an hour are allowed."""
    spend(url)
    at = NOON - HOUR / 2
    cap = Budget(name="an hour", cap=usd("12"), period="hour", match=AGENT.match, warn=RATE_THRESHOLDS)
    budgets = (EVERYBODY, cap)

    def ask(name: str, hourly: str | None, amount: str = "20", now: datetime = at) -> Admission:
        return holds.take(hold(name, amount, hourly=None if hourly is None else usd(hourly), taken_at=now), budgets, now)

    assert ask("h1", "4").reason == "within_budget", "a budget of money says what is left"
    refused = ask("h2", "4")
    assert (refused.admitted, refused.reason, refused.budget) == (False, "rate_cap", "an hour")
    assert refused.says == "budget an hour: $2.00 of $12.00 an hour left, not enough for 4.00 USD an hour"
    unknown = ask("h2", None)
    assert (unknown.admitted, unknown.reason) == (False, "rate_unknown")
    assert unknown.says == "budget an hour is $12.00 an hour, and what the run costs an hour is not known: state its hours"
    assert ask("h3", "0").admitted, "a job on a machine that bills already"
    assert ask("h1", "4").reason == "already_held"
    assert ask("h1", "7", "30").says.startswith(
        "budget an hour: $6.00 of $12.00 an hour left, not enough for 7.00 USD an hour; "
    )
    assert ask("h1", "6", "30").reason == "renewed"
    assert ask("h1", "6.01", "5").admitted is False, "less money, and more an hour"
    assert ask("h1", "5", "70").reason == "renewed", "more money that fits, and less an hour"
    assert ask("h1", "6", "30").reason == "renewed"
    holds.release("h1", at)
    assert ask("h4", "6").admitted
    later = ask("h5", "0.01", now=at + HOUR / 4)
    assert not later.admitted, "what nobody looked at for a quarter of an hour still counts at most"
    with LedgerReader(url) as reader, reader.snapshot() as query:
        assert {one.id: one.hourly for one in load_open_holds(query, at)} == {"h3": usd("0"), "h4": usd("6")}


def test_an_hour_of_what_no_budget_caps_is_free(holds: HoldStore) -> None:
    cap = Budget(name="an hour", cap=usd("12"), period="hour", match=AGENT.match, warn=RATE_THRESHOLDS)
    assert holds.take(hold("h1", hourly=usd("12")), (cap,), NOON).says == (
        "budget an hour: $12.00 of $12.00 an hour left, enough for 12.00 USD an hour"
    )
    assert holds.take(hold("h2", owner="bob", hourly=usd("99")), (cap,), NOON).reason == "no_budget"
