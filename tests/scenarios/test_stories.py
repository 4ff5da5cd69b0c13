"""Every story beside this file, played with the real guard, the real ledger and simulated clouds."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from costguard.testing import play, read_file
from costguard.testing.guarding import GuardPlay

STORIES = sorted(Path(__file__).parent.glob("*.story"))
NOT_YET: dict[str, str] = {}
"""Stories that are not true yet, by name, with the reason. One that becomes true must leave this list."""


def _story(path: Path) -> object:
    marks = [pytest.mark.xfail(reason=NOT_YET[path.stem], strict=True)] if path.stem in NOT_YET else []
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", [_story(path) for path in STORIES])
def test_the_story_comes_out_as_it_is_told(path: Path, tmp_path: Path) -> None:
    outcome = play(read_file(path), partial(GuardPlay, folder=path.parent), tmp_path)
    assert not outcome.faults, outcome.report()
