"""Time that passes only where somebody waits, in a world of one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from costguard.providers.transport import Deadline, TokenBucket
from costguard.services.poll.concurrency import run_all
from costguard.system import clock


class Hand:
    """A clock that moves when somebody waits."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += max(seconds, 1e-6)


def test_whoever_waits_for_a_permission_lets_simulated_time_pass() -> None:
    hand = Hand()
    with clock.use_simulated_clock(hand):
        bucket = TokenBucket(1 / 5.5)
        assert [bucket.acquire(Deadline(60)) for _ in range(3)] == [True] * 3
        assert hand.at == pytest.approx(11)
        assert not bucket.acquire(Deadline(5))
    assert not clock.is_simulated()


def test_questions_are_answered_in_order_and_by_whoever_asks() -> None:
    hand, asked = Hand(), list[tuple[str, int]]()

    def question(name: str) -> Callable[[], str]:
        def answer() -> str:
            asked.append((name, threading.get_ident()))
            clock.pass_simulated_time(30)
            return name

        return answer

    with clock.use_simulated_clock(hand):
        found = run_all({name: question(name) for name in "cab"}, limit_s=45)
    assert [name for name, _ in asked] == ["c", "a", "b"]
    assert {thread for _, thread in asked} == {threading.get_ident()}
    assert found == {"c": "c", "a": "a", "b": "b"}


def test_what_is_done_beside_is_done_at_once_and_its_errors_are_its_own() -> None:
    with clock.use_simulated_clock(Hand()), clock.make_executor(2, "beside") as beside:
        assert beside.submit(divmod, 7, 2).result() == (3, 1)
        with pytest.raises(ZeroDivisionError):
            beside.submit(divmod, 7, 0).result()
