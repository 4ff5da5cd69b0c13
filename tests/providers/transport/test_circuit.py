from __future__ import annotations

import threading

from costguard.providers.transport.circuit import FAILURES, OPEN_S, Circuits


class Hand:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at


def opened(hand: Hand) -> Circuits:
    circuits = Circuits(hand.now)
    for _ in range(FAILURES):
        assert circuits.closed_for("a") == 0
        circuits.told("a", good=False)
    return circuits


def test_a_scope_that_failed_often_is_left_alone() -> None:
    hand = Hand()
    assert opened(hand).closed_for("a") == OPEN_S


def test_another_scope_is_asked_all_the_same() -> None:
    assert opened(Hand()).closed_for("b") == 0


def test_after_the_pause_exactly_one_question_is_let_through() -> None:
    hand = Hand()
    circuits = opened(hand)
    hand.at += OPEN_S
    let = list[bool]()
    threads = [threading.Thread(target=lambda: let.append(circuits.closed_for("a") == 0)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(let) == 1


def test_its_success_lets_everybody_through_and_forgets_the_failures() -> None:
    hand = Hand()
    circuits = opened(hand)
    hand.at += OPEN_S
    assert circuits.closed_for("a") == 0
    circuits.told("a", good=True)
    assert circuits.closed_for("a") == 0
    circuits.told("a", good=False)
    assert circuits.closed_for("a") == 0


def test_its_failure_begins_another_pause() -> None:
    hand = Hand()
    circuits = opened(hand)
    hand.at += OPEN_S
    assert circuits.closed_for("a") == 0
    circuits.told("a", good=False)
    assert circuits.closed_for("a") == OPEN_S


def test_a_question_that_was_not_put_after_all_is_the_next_ones() -> None:
    hand = Hand()
    circuits = opened(hand)
    hand.at += OPEN_S
    assert circuits.closed_for("a") == 0
    circuits.unasked("a")
    assert circuits.closed_for("a") == 0
    assert circuits.closed_for("a") > 0


def test_a_success_between_failures_starts_the_count_anew() -> None:
    circuits = Circuits(Hand().now)
    for n in range(3 * FAILURES):
        circuits.told("a", good=n % FAILURES == 0)
        assert circuits.closed_for("a") == 0
