"""Perform the acts of a run: on different machines at the same time, on one account no faster than its provider allows.

Each act runs in one thread from its first look to its last commit (`send_action`), so its order stays: look, commit, look,
send once, commit. This module only decides which act begins when; it reads no ledger and sends nothing.

Example: 40 due stops each at Lambda (1 request a second, one act at a time) and at AWS (four at a time). The most urgent of
each begin at once. Lambda's take 4 s each, one after the other, and AWS's do not wait for them. Where `room` is 3, the first
three of `acts` keep these places: a later one on an idle account does not take the place of one whose account is busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

from costguard.guard.action_intents import Intent
from costguard.services.guarding.act.send_action import ActionResult
from costguard.services.poll.concurrency import NamedAnswer, QuestionPool, wait_for_answer
from costguard.system.clock import read_monotonic

Account = tuple[str, str]
"""Provider and account."""

THREADS_MAX = 12
"""Acts under way at once, on all accounts: each holds one connection to the ledger at most, of 15 in its pool."""
FAULTS_MAX = 3
"""After so many acts in a row on one account that failed for one kind of reason, its other acts wait for the next run."""
ANSWER_WITHIN_S = 35.0
"""How long after the last act may begin the results are waited for: one may be sent for 30 s.

An act that takes longer goes on in its thread; the run after this one finds its intent as that thread committed it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueAct:
    """One act to perform. `at_once`: how many acts of its account may be under way, 1 or more.

    `perform` returns None if its intent was moved by somebody else and nothing was tried.
    """

    intent: Intent
    account: Account
    at_once: int
    perform: Callable[[], ActionResult | None]

    def has_used_room(self, result: ActionResult | None) -> bool:
        """Return whether `result` counts against the limits: a request was sent, or may have been."""
        return result is not None and (result.sent or result.intent.sends > self.intent.sends)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneResults:
    """`results`: of each act that was tried, in the order of the acts. `notes`: why others were not, a sentence an account."""

    results: tuple[ActionResult, ...]
    notes: tuple[str, ...]


def perform_in_lanes(
    acts: Sequence[DueAct], *, room: int, may_begin: Callable[[], bool], begin_within_s: float = 40.0
) -> LaneResults:
    """Perform `acts`, the first ones first, until `room` of them have used it, `may_begin` says no, or the ledger is broken.

    `may_begin` is expected to say no after `begin_within_s`. An act that used no room leaves its place to the next. Raises what
    an act raised, after those under way have ended.
    """
    return _LaneRun(acts=acts, room=room, may_begin=may_begin, limit_s=begin_within_s + ANSWER_WITHIN_S).run()


@dataclass(slots=True, kw_only=True)
class _LaneRun:
    acts: Sequence[DueAct]
    room: int
    may_begin: Callable[[], bool]
    limit_s: float
    waiting: list[int] = field(default_factory=list)
    busy: Counter[Account] = field(default_factory=Counter)
    results: dict[int, ActionResult] = field(default_factory=dict)
    streaks: dict[Account, tuple[str, int, str]] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    broken: bool = False

    def run(self) -> LaneResults:
        line: SimpleQueue[NamedAnswer[int, ActionResult | None]] = SimpleQueue()
        pool, until_s = QuestionPool(line, THREADS_MAX), read_monotonic() + self.limit_s
        self.waiting = list(range(len(self.acts)))
        unanswered = set[int]()
        try:
            while True:
                while (number := self._find_next()) is not None:
                    act = self.acts[number]
                    self.waiting.remove(number)
                    self.busy[act.account] += 1
                    unanswered.add(number)
                    pool.ask(number, act.perform)
                    if (answer := wait_for_answer(line, 0)) is not None:
                        self._take_answer(answer, unanswered)
                answer = wait_for_answer(line, until_s - read_monotonic()) if unanswered else None
                if answer is None:
                    break
                self._take_answer(answer, unanswered)
        finally:
            pool.close()
        if self.errors:
            raise self.errors[0]
        return LaneResults(
            results=tuple(self.results[number] for number in sorted(self.results)),
            notes=(*self._list_stopped(), *(self._describe_overdue(number) for number in sorted(unanswered))),
        )

    def _find_next(self) -> int | None:
        """Return the first act that may begin now; None: none may before another one ends."""
        under_way = self.busy.total()
        places = self.room - under_way
        if self.broken or self.errors or under_way >= THREADS_MAX or not self.may_begin():
            return None
        for number in (one for one in self.waiting if not self._is_stopped(self.acts[one].account)):
            if places <= 0:
                return None
            act = self.acts[number]
            if self.busy[act.account] < max(act.at_once, 1):
                return number
            places -= 1
        return None

    def _take_answer(self, answer: NamedAnswer[int, ActionResult | None], unanswered: set[int]) -> None:
        number, result = answer
        act = self.acts[number]
        unanswered.discard(number)
        self.busy[act.account] -= 1
        if isinstance(result, BaseException):
            self.errors.append(result)
            return
        self.room -= act.has_used_room(result)
        if result is None:
            return
        self.results[number] = result
        self.broken = self.broken or bool(result.broken)
        self._count_fault(act.account, result)

    def _count_fault(self, account: Account, result: ActionResult) -> None:
        """Count faults of one kind in a row. What holds one machine (a lease, new work) says nothing about its account."""
        kind, count, _ = self.streaks.get(account, ("", 0, ""))
        if result.fault:
            why = result.held or result.intent.outcome
            self.streaks[account] = (result.fault, count + 1 if kind == result.fault else 1, why)
        elif result.sent:
            self.streaks.pop(account, None)

    def _is_stopped(self, account: Account) -> bool:
        return account in self.streaks and self.streaks[account][1] >= FAULTS_MAX

    def _list_stopped(self) -> list[str]:
        left = Counter(self.acts[number].account for number in self.waiting)
        return [
            f"{'/'.join(account)}: {left[account]} more wait for the next run, because {FAULTS_MAX} in a row failed: "
            f"{self.streaks[account][2]}"
            for account in sorted(left)
            if self._is_stopped(account)
        ]

    def _describe_overdue(self, number: int) -> str:
        intent = self.acts[number].intent
        return f"{intent.life.key.id}: its {intent.act} had not ended {self.limit_s:.0f} s after the run began to act"
