"""The demo's weekend and a few days of its fortnight, each played once in a test process: that takes seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache, partial

import pytest

from costguard.services import CommandAnswer
from costguard.testing import demo, weekend

WEEKEND, FORTNIGHT = weekend.play_weekend, demo.play_fortnight
"""The real ones."""
NOW = datetime(2026, 11, 11, 12, tzinfo=UTC)
"""A Wednesday: the weekend before it began on the sixth."""


@cache
def played() -> CommandAnswer:
    """The weekend."""
    return WEEKEND(now=NOW)


@cache
def _fortnight() -> CommandAnswer:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "play_world", partial(demo.play_world, days=4, size=12))
        return FORTNIGHT()


def tell_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `costguard demo` tell of those; a fortnight that is to be kept is played anew."""
    monkeypatch.setattr(weekend, "play_weekend", lambda **_: played())
    monkeypatch.setattr(
        demo, "play_fortnight", lambda *, ledger=None: _fortnight() if ledger is None else FORTNIGHT(ledger=ledger)
    )
