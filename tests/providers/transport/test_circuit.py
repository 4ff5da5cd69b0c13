from __future__ import annotations

import threading

from costguard.providers.transport.channel import CIRCUIT_FAILURES, CIRCUIT_OPEN_S, CircuitBreakers


class Hand:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at


def opened(hand: Hand) -> CircuitBreakers:
    circuits = CircuitBreakers(hand.now)
    for _ in range(CIRCUIT_FAILURES):
        assert circuits.reserve_probe("a") == 0
        circuits.record_answer("a", good=False)
    return circuits


def test_a_scope_that_failed_often_is_left_alone() -> None:
    hand = Hand()
    assert opened(hand).reserve_probe("a") == CIRCUIT_OPEN_S


def test_another_scope_is_asked_all_the_same() -> None:
    assert opened(Hand()).reserve_probe("b") == 0


def test_after_the_pause_exactly_one_question_is_let_through() -> None:
    hand = Hand()
    circuits = opened(hand)
    hand.at += CIRCUIT_OPEN_S
    let = list[bool]()
    threads = [threading.Thread(target=lambda: let.append(circuits.reserve_probe("a") == 0)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(let) == 1


def test_its_success_lets_everybody_through_and_forgets_the_failures() -> None:
    hand = Hand()
    circuits = opened(hand)
    hand.at += CIRCUIT_OPEN_S
    assert circuits.reserve_probe("a") == 0
    circuits.record_answer("a", good=True)
    assert circuits.reserve_probe("a") == 0
    circuits.record_answer("a", good=False)
    assert circuits.reserve_probe("a") == 0


def test_its_failure_begins_another_pause() -> None:
    hand = Hand()
    circuits = opened(hand)
    hand.at += CIRCUIT_OPEN_S
    assert circuits.reserve_probe("a") == 0
    circuits.record_answer("a", good=False)
    assert circuits.reserve_probe("a") == CIRCUIT_OPEN_S


def test_a_question_that_was_not_put_after_all_is_the_next_ones() -> None:
    hand = Hand()
    circuits = opened(hand)
    hand.at += CIRCUIT_OPEN_S
    assert circuits.reserve_probe("a") == 0
    circuits.cancel_probe("a")
    assert circuits.reserve_probe("a") == 0
    assert circuits.reserve_probe("a") > 0


def test_a_success_between_failures_starts_the_count_anew() -> None:
    circuits = CircuitBreakers(Hand().now)
    for n in range(3 * CIRCUIT_FAILURES):
        circuits.record_answer("a", good=n % CIRCUIT_FAILURES == 0)
        assert circuits.reserve_probe("a") == 0
