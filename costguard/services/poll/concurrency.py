"""Run many requests in parallel: a bounded number of daemon threads, answers returned one by one.

A thread that hangs in a library does not block the end of the command or the process. Answers that arrive after `close` are
dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from costguard.system.clock import is_simulated, pass_simulated_time, read_monotonic
from costguard.system.progress import report_progress

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
A = TypeVar("A")

THREADS_MAX = 100
"""Questions that are under way at once: 200 scopes that answer in 200 ms take two rounds of them, half a second."""

NamedAnswer = tuple[K, T | BaseException]


class QuestionPool(Generic[K, T]):
    """A pool of at most `most` threads for requests. Answers are queued in order of arrival."""

    def __init__(self, line: SimpleQueue[NamedAnswer[K, T]], most: int = THREADS_MAX) -> None:
        self._line, self._most, self._threads = line, most, 0
        self._questions: SimpleQueue[tuple[K, Callable[[], T]] | None] = SimpleQueue()
        self._over = threading.Event()

    def ask(self, name: K, question: Callable[[], T]) -> None:
        """Call `question` as soon as a thread is free; its result, or exception, is queued under `name`."""
        if is_simulated():
            self._answer(name, question)
            return
        self._questions.put((name, question))
        if self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True, name="costguard-asks").start()

    def close(self) -> None:
        """Start no more requests. Threads that wait for an answer end after it."""
        self._over.set()
        for _ in range(self._threads):
            self._questions.put(None)

    def _work(self) -> None:
        while (question := self._questions.get()) is not None and not self._over.is_set():
            self._answer(*question)

    def _answer(self, name: K, question: Callable[[], T]) -> None:
        answer: T | BaseException
        try:
            answer = question()
        except BaseException as broken:  # noqa: BLE001 - whatever it is, it is this question's answer
            answer = broken
        self._line.put((name, answer))


def wait_for_answer(line: SimpleQueue[A], seconds: float) -> A | None:
    """Return the next answer of `line`; None if none arrives within `seconds`."""
    try:
        return line.get(timeout=seconds) if seconds > 0 and not is_simulated() else line.get_nowait()
    except Empty:
        pass_simulated_time(max(seconds, 0.0))
        return None


def run_all(
    questions: Mapping[K, Callable[[], T]], *, limit_s: float, most: int = THREADS_MAX, doing: str = ""
) -> dict[K, T | BaseException]:
    """Return the result of each request, or its exception; TimeoutError for one without a result after `limit_s` in all.

    `doing`: what is reported as progress, with the number of results; "": nothing.
    """
    answers = dict[K, T | BaseException]()
    for name, answer in _collect_answers(questions, limit_s, most):
        answers[name] = answer
        if doing:
            report_progress(doing, len(answers), len(questions))
    return {name: answers.get(name, TimeoutError(f"no answer within {limit_s:g} s")) for name in questions}


def _collect_answers(questions: Mapping[K, Callable[[], T]], limit_s: float, most: int) -> Iterator[NamedAnswer[K, T]]:
    line: SimpleQueue[NamedAnswer[K, T]] = SimpleQueue()
    crew, until = QuestionPool(line, most), read_monotonic() + limit_s
    for name, question in questions.items():
        crew.ask(name, question)
    for _ in questions:
        answer = wait_for_answer(line, until - read_monotonic())
        if answer is None:
            break
        yield answer
    crew.close()
