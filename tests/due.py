"""The judge of what was not done: a wanted, unheld act is requested within three guard runs, or somebody is told.

    player = DuePlayer(stage); ...; player.find_unsent(), player.find_doubles()

An act is wanted in a run if it is due and nothing lasting holds it; or if its condition holds, its step counts as done, no
intent is open, and the machine truly runs on (a lost stop). Example: a stop due at 09:30, whose second look failed: by 09:33
its cloud has a request, or a message of 09:30 or later names the machine and says that it is held, late or not done. An
announcement that states 09:50 ("held by the limit of 3 in 10 min until 09:50") moves that to 09:50.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from costguard.guard.action_intents import DOUBTFUL_STATES, OPEN_STATES, Intent
from costguard.guard.action_plan import resolve_step
from costguard.guard.alerts.alert import ESCALATED, FIRST, INFO, RESOLVED, Alert, Notification
from costguard.guard.policy import DESTRUCTIVE, HOLDS
from costguard.services.guarding.guard import GuardRunResult
from costguard.testing.machine import SimulatedMachine
from costguard.values.resource import RUNNING, ResourceKey
from tests.stories.guard_player import GuardPlayer

RUNS_MAX = 3
PASSING = frozenset(("rate", "not_accepted", "breaker", "gap", "clock"))
"""Holds that nobody wished: whatever has them for longer than a run is told. All others last, or belong to the grace."""
BREAKER = "became idle or unknown at once"
"""A machine that the breaker holds is announced as held; the breaker's page and its question come besides."""
GRACE = frozenset(("grace", "untold"))
NOT_DONE = re.compile(
    r"\b(held|holds|late|overdue|not done|not stopped|waits|refused|failed|suspended|accept)\b|not confirmed", re.IGNORECASE
)


class DueAct(NamedTuple):
    """An act on one life that a run wanted. `since`: a request from then on is one for it. `budget`: of a hard cap, or "".

    `holds`: the ids of the reasons that hold it.
    """

    key: ResourceKey
    started_at: datetime | None
    act: str
    policy: str
    since: datetime
    why: str
    holds: frozenset[str] = frozenset()

    @property
    def budget(self) -> str:
        """The name of the hard cap that wants it."""
        return self.policy.removeprefix("budget:") if self.policy.startswith("budget:") else ""


class GuardedRun(NamedTuple):
    """What one guard run wanted, and the intents after it."""

    at: datetime
    due: tuple[DueAct, ...]
    intents: tuple[Intent, ...]


class DuePlayer(GuardPlayer):
    """Plays as `GuardPlayer` does, and keeps what each run wanted."""

    runs: list[GuardedRun]

    def guard(self) -> None:
        """Run, and note what was due."""
        super().guard()
        if not hasattr(self, "runs"):
            self.runs = []
        done = self.guarded
        if done is not None and done.acting:
            self.runs.append(GuardedRun(done.at, tuple(self._list_due(done)), done.intents))

    def find_unsent(self, runs_max: int = RUNS_MAX) -> Iterator[str]:
        """Yield a sentence for each act that was wanted in so many runs, neither requested nor told of."""
        waiting: dict[tuple[ResourceKey, datetime | None, str], list[datetime]] = {}
        for number, run in enumerate(self.runs):
            due = {(one.key, one.started_at, one.act): one for one in run.due if self._find_promise(one, run.at) <= run.at}
            waiting = {key: [*waiting.get(key, ()), run.at] for key in due}
            after = self.runs[number + 1].at if number + 1 < len(self.runs) else run.at + self.stage.story.poll
            for key, ats in waiting.items():
                one, since = due[key], ats[0]
                if len(ats) == runs_max and not self.is_sent(one, since, after) and not self._is_told(one, since, after):
                    yield f"{run.at:%d %H:%M} {one.act} of {one.key.id} for {one.policy}: due since {since:%H:%M}, {one.why}"

    def find_doubles(self) -> Iterator[str]:
        """Yield a sentence for each second intent, and each second announcement, of an act that is in doubt."""
        doubtful: dict[tuple[ResourceKey, datetime | None, str], Intent] = {}
        for run in self.runs:
            now = {(i.life.key, i.life.started_at, i.act): i for i in run.intents if i.state in DOUBTFUL_STATES and i.sends}
            still = {key: one for key, one in now.items() if key in doubtful}
            for one in run.intents:
                held = now.get((one.life.key, one.life.started_at, one.act))
                if held is not None and held is not one and one.created_at == run.at and one.state in OPEN_STATES:
                    yield f"{run.at:%d %H:%M} a second intent to {one.act} {one.life.key.id}, and the first is {held.state}"
            for message in self.stage.notifier.tries:
                if message.at == run.at and message.why_now in (FIRST, ESCALATED):
                    for key, one in still.items():
                        if any(names(notice, key[0]) and notice.due is not None for notice in message.notices):
                            yield f"{run.at:%d %H:%M} {key[0].id} is due again, and its {one.act} is {one.state}"
            doubtful = now

    def is_sent(self, one: DueAct, start: datetime, end: datetime) -> bool:
        """Whether its cloud received a request for it from `start` (or since its escalation began) and before `end`."""
        acts = (act for cloud in self.stage.clouds.values() for act in cloud.acts)
        return any(a.key == one.key and a.act == one.act and min(start, one.since) <= a.at < end for a in acts)

    def _is_told(self, one: DueAct, start: datetime, end: datetime) -> bool:
        tries = self.stage.notifier.tries
        mass = BREAKER in one.why and any(names(n, one.key) and BREAKER in read_notice(n) for m in tries for n in m.notices)
        pages = [m.why_now for m in tries if m.at < end and any(n.topic == "rail:accept" for n in m.notices)]
        waits = "not_accepted" in one.holds and pages and pages[-1] != RESOLVED  # this page says that no policy acts until then
        return bool(mass or waits) or any(start <= m.at < end and says_not_done(m, one) for m in tries)

    def _find_promise(self, one: DueAct, now: datetime) -> datetime:
        """When it will happen by the last announcement that somebody was told."""
        told = [notice for m in self.stage.notifier.tries if m.at < now for notice in m.notices if names(notice, one.key)]
        due = next((notice.due for notice in reversed(told) if notice.topic == f"policy:{one.policy}"), None)
        return due or now

    def _list_due(self, done: GuardRunResult) -> Iterator[DueAct]:
        assert done.survey is not None
        yield from list_due(done)
        now, planned = done.at, dict[str, set[tuple[ResourceKey, str]]]()
        for one in done.survey.proposals:
            planned.setdefault(one.verdict.policy.name, set()).add((one.verdict.life.key, one.step.do))
        busy = {(one.life.key, one.act) for one in done.intents if one.state in OPEN_STATES}
        for case in done.survey.cases:
            climb, policy, key = case.climb, case.verdict.policy, case.verdict.life.key
            if climb is None or case.verdict.finding != HOLDS or not self._runs(key, now):
                continue
            for number in climb.done:
                act = resolve_step(policy.then[number], case).do if number < len(policy.then) else ""
                if act in DESTRUCTIVE and (key, act) not in busy | self._list_questions(climb.started_at) | planned.get(
                    policy.name, set()
                ):
                    why = "its step counts as done, and it runs on"
                    yield DueAct(key, climb.life.started_at, act, policy.name, climb.started_at, why)

    def _list_questions(self, since: datetime) -> set[tuple[ResourceKey, str]]:
        """Acts that somebody was asked about since then: they read that without an answer it stays as it is."""
        asked = [notice for m in self.stage.notifier.tries if m.at >= since for notice in m.notices if notice.ask]
        return {(ResourceKey(*notice.subject.split("/")), notice.ask) for notice in asked}

    def _runs(self, key: ResourceKey, now: datetime) -> bool:
        machine = find_machine(self, key)
        here = machine.now(now) if machine else None
        return here is not None and here.state == RUNNING


def list_due(done: GuardRunResult) -> Iterator[DueAct]:
    """Yield the planned acts of a run that are due and that nothing lasting holds."""
    assert done.survey is not None
    climbs = {(c.verdict.policy.name, c.verdict.life.key): c.climb.started_at for c in done.survey.cases if c.climb}
    for one in done.survey.proposals:
        verdict, now, held = one.verdict, done.at, {reason for reason, _ in one.held_by}
        ripe = one.due_at <= now and held <= PASSING
        began = climbs.get((verdict.policy.name, verdict.life.key))  # its grace never begins while its settings wait
        ripe = ripe or bool(began and held & PASSING and held <= PASSING | GRACE and began + one.step.after <= now)
        if one.step.do in DESTRUCTIVE and ripe:
            why = "; ".join(says for _, says in one.held_by) or "acts are not held"
            yield DueAct(verdict.life.key, verdict.life.started_at, one.step.do, verdict.policy.name, now, why, frozenset(held))


def find_machine(player: GuardPlayer, key: ResourceKey) -> SimulatedMachine | None:
    """The machine of `key` on its cloud."""
    return next((m for cloud in player.stage.clouds.values() for m in cloud.machines.values() if m.key == key), None)


def names(notice: Alert, key: ResourceKey) -> bool:
    """Whether the notice is about the machine, or its text names it."""
    return notice.subject == "/".join(key) or bool(
        re.search(rf"\b{re.escape(key.id.removeprefix('i-'))}\b", read_notice(notice))
    )


def read_notice(notice: Alert) -> str:
    """All that it says, on one line."""
    return " ".join([notice.what, *(text for _, text in notice.facts), notice.keep])


def says_not_done(message: Notification, one: DueAct) -> bool:
    """Whether a warning or page says that it is not done: of the machine, of the budget that wants it, or of what holds it.

    A page of one cause may name only the first of many machines: then it names its policy, or says what holds it.
    """
    if message.severity == INFO or message.why_now == RESOLVED:
        return False
    for notice in message.notices:
        text = f"{notice.topic} {notice.subject} {read_notice(notice)}"
        about = names(notice, one.key) or (one.budget and re.search(rf"\bbudget[ :]{re.escape(one.budget)}\b", text))
        held = (one.policy, *one.why.split("; "))
        cause = notice.topic.startswith("held:") and any(words in text for words in held)
        if (about and NOT_DONE.search(f"{notice.topic.partition(':')[0]} {read_notice(notice)}")) or cause:
            return True
    return False
