"""People, notebooks and schedulers around this agent, for its loop: one call a look, which never waits.

    around = Around(Surroundings.real())
    seen = around.look(time.time())       # at each look: seen.signals (input_age_s, connections, queue_jobs), seen.troubles

Terminals are read at each look. Notebook servers and schedulers are asked once a minute by a thread of its own; what they said
counts for three minutes. One that hangs is asked no further, and its signals are missing then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from costguard_agent import notebooks, schedulers
from costguard_agent.host import HostView
from costguard_agent.pace import CpuThrottle
from costguard_agent.seen import CONNECTIONS, INPUT_AGE, QUEUE_JOBS, ProbeResult, merge_probe_results
from costguard_agent.user_sessions import SessionProbe

EVERY_S, KEPT_S = 60.0, 180.0
PEOPLE_EVERY_S, PEOPLE_SHARE = 5.0, 0.001
"""All processes are read for it, so it is bounded by what it costs, too: a share of a core."""


class BackgroundQuery:
    """One question, asked by a thread of its own at most once a minute."""

    def __init__(self, name: str, ask: Callable[[float], ProbeResult], unknown: tuple[str, ...]) -> None:
        self._name, self._ask, self._unknown = name, ask, unknown
        self._asked_s, self._answered_s = float("-inf"), float("-inf")
        self._begun_s = time.monotonic()
        self._answer = ProbeResult()
        self._thread: threading.Thread | None = None

    def read_latest(self, now: float) -> ProbeResult:
        """The last answer, grown older; asks again where it is time. An answer that is too old is none."""
        at_s = time.monotonic()
        if at_s - self._asked_s >= EVERY_S and (self._thread is None or not self._thread.is_alive()):
            self._asked_s = at_s
            self._thread = threading.Thread(target=self._run_once, args=(now,), name=self._name, daemon=True)
            self._thread.start()
        old_s = at_s - self._answered_s
        if old_s <= KEPT_S:
            return _age_signals(self._answer, old_s)
        late = (f"{self._name} did not answer for {at_s - max(self._answered_s, self._begun_s):.0f} s",)
        return ProbeResult({}, self._unknown, late if at_s - self._begun_s > KEPT_S else ())

    def wait(self, within_s: float) -> None:
        """Until the answer that was asked for last is there, at most so long."""
        if self._thread is not None:
            self._thread.join(within_s)

    def _run_once(self, now: float) -> None:
        try:
            self._answer = self._ask(now)
        except Exception as error:  # noqa: BLE001 - whatever stands in others' files: it is told, and asked again
            self._answer = ProbeResult({}, self._unknown, (f"{self._name} could not be asked: {type(error).__name__}",))
        self._answered_s = time.monotonic()


class ActivityProbe:
    """All of it as one look."""

    def __init__(self, surroundings: HostView) -> None:
        self._people, self._pace = SessionProbe(surroundings), CpuThrottle(PEOPLE_EVERY_S, PEOPLE_SHARE)
        self._seen, self._seen_s = ProbeResult(), 0.0
        self._inquiries = (
            BackgroundQuery(
                "notebook servers", lambda now: notebooks.probe_notebooks(surroundings, now), (CONNECTIONS, INPUT_AGE)
            ),
            BackgroundQuery("schedulers", lambda _: schedulers.probe_schedulers(surroundings), (QUEUE_JOBS,)),
        )

    def look(self, now: float, *, within_s: float = 0.0) -> ProbeResult:
        """What is known at `now` (Unix seconds); `within_s`: wait so long for first answers (a command that looks once)."""
        answers = [one.read_latest(now) for one in self._inquiries]
        if within_s > 0:
            for one in self._inquiries:
                one.wait(within_s)
            answers = [one.read_latest(now) for one in self._inquiries]
        return merge_probe_results([self._probe_people(now), *answers])

    def _probe_people(self, now: float) -> ProbeResult:
        at_s = time.monotonic()
        if self._pace.is_due(at_s):
            self._seen, self._seen_s = self._pace.run_measured(at_s, lambda: self._people.look(now)), at_s
        return _age_signals(self._seen, at_s - self._seen_s)


def _age_signals(seen: ProbeResult, by_s: float) -> ProbeResult:
    """What was seen `by_s` seconds ago, as it is now: only the age grows."""
    return seen._replace(signals={n: v + (by_s if n == INPUT_AGE else 0.0) for n, v in seen.signals.items()})
