"""A dry run, as `costguard plan` makes it: it holds nothing by itself, shows what holds each act, and does nothing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from costguard.guard.policy import DESTRUCTIVE, Rails
from costguard.ledger.guard.store import GuardStore
from costguard.services.guarding.act.executor import ActionExecutor
from costguard.services.guarding.guard import GuardRunner, GuardRunResult
from tests.services.deeds import START, intent
from tests.stories import play_story
from tests.stories.guard_player import GuardPlayer
from tests.stories.parser import parse_story
from tests.stories.player import StoryStage

FLEET = """
title: Four machines that idle, one of them protected
hazard: GUARD 6
start: 2026-11-02 08:26
end: 09:40
poll: 2m
machines
  a  aws 8xA100-80GB-SXM $32.77, owner ada
  b  aws 8xA100-80GB-SXM $32.77, owner ada
  c  aws 8xA100-80GB-SXM $32.77, owner ada
  d  aws 8xA100-80GB-SXM $32.77, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:26  a busy
  08:26  b busy
  08:26  c busy
  08:26  d busy
  08:30  a quiet
  08:30  b quiet
  08:30  c quiet
  08:30  d quiet
  09:18  protect d by ben
expect
  09:30-09:38  stop a
"""
Holds = dict[str, tuple[str, ...]]
"""The machine of each act -> the reasons that hold it."""


def list_holds(run: GuardRunResult) -> Holds:
    assert run.survey is not None, run.broken
    acts = (one for one in run.survey.proposals if one.step.do in DESTRUCTIVE)
    return {one.verdict.life.key.id: tuple(reason for reason, _ in one.held_by) for one in acts}


class PlannedGuard(GuardPlayer):
    """Makes a dry run right before each guard run. `pairs`: the holds of both."""

    pairs: list[tuple[Holds, Holds]]

    def _open(self) -> None:
        self.pairs = []
        super()._open()

    def plan(self) -> GuardRunResult:
        real = self._guard
        dry = GuardRunner(
            book=real.book,
            books=real.books,
            rules=real.rules,
            latest=real.latest,
            clock=real.clock,
            holder="plan",
            holds=real.holds,
            routes=real.routes,
            dry_run=True,
        )
        with pytest.MonkeyPatch.context() as patch:
            for name in ("confirm_all", "execute_plan"):
                patch.setattr(ActionExecutor, name, lambda *_: pytest.fail("a dry run reached the executor"))
            return dry.run()

    def guard(self) -> None:
        before = self._book.load_open_intents(), self._book.load_leader_lease(), self._book.load_last_run()
        dry = self.plan()
        assert (dry.acting, dry.notes) == (False, ())
        assert (self._book.load_open_intents(), self._book.load_leader_lease(), self._book.load_last_run()) == before
        super().guard()
        assert self.guarded is not None
        self.pairs.append((list_holds(dry), list_holds(self.guarded)))


def test_a_plan_shows_the_holds_of_the_next_run_and_does_nothing(tmp_path: Path) -> None:
    made = list[PlannedGuard]()

    def open_player(stage: StoryStage) -> PlannedGuard:
        made.append(PlannedGuard(stage))
        return made[-1]

    outcome = play_story(parse_story(FLEET), open_player, tmp_path)
    assert not outcome.faults, outcome.report()
    _, *pairs = made[0].pairs  # the first run of a process only observes
    assert [dry for dry, _ in pairs] == [real for _, real in pairs]
    shown = {reasons for dry, _ in pairs for reasons in dry.values()}
    assert shown >= {(), ("grace",), ("rate",)}
    assert any("protected" in held for held in shown)


def test_an_executor_without_the_lead_plans_nothing(tmp_path: Path) -> None:
    """The second wall: the epoch of a dry run is 0, which leads no ledger."""
    with GuardStore(f"sqlite:///{tmp_path}/ledger.db", rails=Rails()) as book:
        assert not book.plan_intent(intent(epoch=0))
        assert book.acquire_leader_lease("one", START, timedelta(minutes=2))
        assert not book.plan_intent(intent(epoch=0))
