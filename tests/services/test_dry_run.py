"""A dry run, as `costguard plan` makes it: it holds nothing by itself, shows what holds each act, and does nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from costguard.guard.context import GuardConfig
from costguard.guard.policy import DESTRUCTIVE, Rails
from costguard.ledger.guard.store import GuardStore
from costguard.reporting.status import annotate_resources, build_fleet_status
from costguard.services.guarding.act.executor import ActionExecutor
from costguard.services.guarding.guard import GuardRunner, GuardRunResult
from costguard.services.guarding.plan_view import build_plan_view
from costguard.values.calendar import Period
from costguard.views.plan import build_plan_document
from costguard.views.status import build_status_document
from tests.services.deeds import START, intent
from tests.stories import play_story, read_story
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

    story = parse_story(FLEET)
    story = replace(story, config=f"{story.config}\n[rails]\nacts = {{ per_run = 1 }}\n")
    outcome = play_story(story, open_player, tmp_path)
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


STORY = Path(__file__).parent.parent / "scenarios" / "26-starts-again.story"


class _Kept(GuardPlayer):
    """One whose last run can be looked at."""

    last: list[tuple[GuardConfig, GuardRunResult]] = []  # noqa: RUF012 - of this test alone

    def guard(self) -> None:
        super().guard()
        if self.guarded is not None:
            self.last[:] = [(self._guard.rules, self.guarded)]


def test_the_plan_and_the_status_say_when_it_starts(tmp_path: Path) -> None:
    cut = tmp_path / "cut.story"
    head = STORY.read_text().partition("expect\n")[0].replace("end: 21:40", "end: 20:30")
    cut.write_text(f"{head}expect\n  never start box\n")
    outcome = play_story(read_story(cut), partial(_Kept, folder=tmp_path), tmp_path)
    assert not outcome.faults, outcome.report()
    ((rules, guarded),) = _Kept.last
    assert guarded.sight is not None
    annotated = annotate_resources(rules, guarded.sight)
    (beside,) = annotated.values()
    assert beside.starts_at is not None
    assert f"{beside.starts_at:%H:%M}" == "20:00", "21:00 in Berlin"
    now = guarded.sight.now
    month = Period(start=now - timedelta(days=1), end=now + timedelta(days=1))
    status = build_fleet_status(
        at=now, month=month, zone=UTC, spending=(), live=guarded.sight.live, scopes=(), annotations=annotated
    )
    (shown,) = cast("Any", build_status_document(status).data["resources"])
    assert (shown["state"], shown["starts_at"]) == ("stopped", "2026-11-03T20:00:00Z")
    (row,) = cast("Any", build_plan_document(build_plan_view(guarded, rules, ())).data["rows"])
    (step,) = [one for one in row["steps"] if one["do"] == "start"]
    assert (step["due_at"], step["goes"]) == ("2026-11-03T20:00:00Z", False)
    assert [one["reason"] for one in step["held_by"]] == ["grace"]
