"""A scheduled start that is ahead is to be seen: in the plan with what holds it, and in the status of its machine."""

from __future__ import annotations

from datetime import UTC, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

from costguard.guard.context import GuardConfig
from costguard.reporting.status import annotate_resources, build_fleet_status
from costguard.services.guarding.guard import GuardRunResult
from costguard.services.guarding.plan_view import build_plan_view
from costguard.values.calendar import Period
from costguard.views.plan import build_plan_document
from costguard.views.status import build_status_document
from tests.stories import play_story, read_story
from tests.stories.guard_player import GuardPlayer

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
