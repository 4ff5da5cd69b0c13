"""The installed console script is ended at any moment, with a real ledger and a fake RunPod over HTTP.

COSTGUARD_COLD_KILLS=200 makes a campaign of it, as `python -m tests.crashes --story watching --kills 200` does.
"""

from __future__ import annotations

import os

import pytest

from tests.crashes.campaign import STORIES
from tests.crashes.watching import play

KILLS, SEED = int(os.environ.get("COSTGUARD_COLD_KILLS", "4")), 3


@pytest.mark.proof
def test_the_installed_script_ended_at_any_moment_acts_only_as_it_wrote_and_ends_well_when_asked() -> None:
    size = STORIES["watching"].chunk
    for number, at in enumerate(range(0, KILLS, size)):
        line = play(None, SEED, number, min(size, KILLS - at))
        print(f"\n{line}")  # noqa: T201 - who looks on wants to see it
        assert line["wrong"] == [], f"python -m tests.crashes --story watching --seed {SEED} --chunk {number}"
        assert line["counts"]["calls"]
        assert line["counts"]["a call too many, and seen"] == 1
