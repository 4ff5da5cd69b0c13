from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.providers.transport import Deadline, TokenBucket


class Hand:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def hand() -> Hand:
    return Hand()


def bucket(hand: Hand, per_s: float, burst: float = 1, kept: float = 0) -> TokenBucket:
    return TokenBucket(per_s, burst, reserve=kept, monotonic=hand.now, sleep=hand.sleep)


def wait(hand: Hand, seconds: float) -> Deadline:
    return Deadline(seconds, hand.now)


def test_a_burst_goes_at_once_and_the_rest_at_the_rate(hand: Hand) -> None:
    one = bucket(hand, 2, burst=3)
    assert all(one.acquire(wait(hand, 60)) for _ in range(3))
    assert hand.at == 0
    assert one.acquire(wait(hand, 60))
    assert hand.at == pytest.approx(0.5)


def test_what_cannot_come_before_the_deadline_is_refused_at_once(hand: Hand) -> None:
    one = bucket(hand, 0.1)
    assert one.acquire(wait(hand, 1))
    assert not one.acquire(wait(hand, 5))
    assert hand.at == 0


def test_reads_leave_the_kept_ones_to_acts(hand: Hand) -> None:
    one = bucket(hand, 1, burst=5, kept=2)
    assert [one.acquire(wait(hand, 0)) for _ in range(5)] == [True, True, True, False, False]
    assert [one.acquire(wait(hand, 0), act=True) for _ in range(3)] == [True, True, False]


def test_a_pause_holds_reads_and_not_acts(hand: Hand) -> None:
    one = bucket(hand, 10, burst=10)
    one.close_for(30)
    assert not one.acquire(wait(hand, 29))
    assert one.acquire(wait(hand, 1), act=True)
    assert one.acquire(wait(hand, 31))
    assert hand.at == pytest.approx(30)


def test_a_pause_that_an_act_was_told_holds_acts(hand: Hand) -> None:
    one = bucket(hand, 10, burst=10)
    one.close_for(30, act=True)
    assert not one.acquire(wait(hand, 20), act=True)


def test_a_shorter_pause_does_not_end_a_longer_one(hand: Hand) -> None:
    one = bucket(hand, 10)
    one.close_for(30)
    one.close_for(1)
    assert not one.acquire(wait(hand, 20))


def test_a_clock_that_stands_still_or_runs_back_gives_no_permissions(hand: Hand) -> None:
    one = bucket(hand, 1)
    assert one.acquire(wait(hand, 0))
    hand.at -= 100
    assert not one.acquire(wait(hand, 0))
    hand.at += 100.5
    assert not one.acquire(wait(hand, 0.2))


@settings(max_examples=200, deadline=None)
@given(
    per_s=st.floats(0.05, 1000),
    burst=st.integers(1, 50),
    kept=st.integers(0, 20),
    asked=st.lists(st.tuples(st.floats(0, 5), st.booleans(), st.floats(0, 3)), max_size=60),
)
def test_never_more_than_the_rate_allows(per_s: float, burst: int, kept: int, asked: list[tuple[float, bool, float]]) -> None:
    hand = Hand()
    one = bucket(hand, per_s, burst, kept)
    given_at = list[float]()
    for later, act, patience in asked:
        hand.at += later
        if one.acquire(wait(hand, patience), act=act):
            given_at.append(hand.at)
    for i, first in enumerate(given_at):
        for j in range(i, len(given_at)):
            assert j - i + 1 <= burst + (given_at[j] - first) * per_s + 1e-3


def _started(run: list[threading.Thread]) -> None:
    for thread in run:
        thread.start()


def test_reads_of_many_threads_come_in_the_order_in_which_they_asked() -> None:
    one, order = TokenBucket(50, 1), list[int]()
    assert one.acquire(Deadline(10))

    def take(n: int) -> None:
        one.acquire(Deadline(30))
        order.append(n)

    threads = [threading.Thread(target=take, args=(n,)) for n in range(12)]
    for waiting, thread in enumerate(threads, 1):
        thread.start()
        while len(one._reads) + len(order) < waiting:
            time.sleep(0.0005)
    for thread in threads:
        thread.join()
    assert sorted(order) == list(range(12))
    assert sum(abs(n - place) for place, n in enumerate(order)) <= 12, order


def test_an_act_overtakes_every_waiting_read() -> None:
    one, order = TokenBucket(20, 1), list[str]()
    assert one.acquire(Deadline(10))

    def take() -> None:
        one.acquire(Deadline(30))
        order.append("read")

    reads = [threading.Thread(target=take) for _ in range(10)]
    _started(reads)
    while len(one._reads) < 9:
        time.sleep(0.0005)
    assert one.acquire(Deadline(30), act=True)
    order.append("act")
    for thread in reads:
        thread.join()
    assert order.index("act") <= 3, order
