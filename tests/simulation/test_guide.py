"""A machine that idles under the policy of docs/START.md, on each of the five fakes: its owner is told, asked, and served.

The bounds are those of the first edition's measurement: told within an hour, stopped or asked about within 65 minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.guide_world import play_guide
from tests.simulation.wired_plans import CLOUDS

TOLD_MIN, ACTED_MIN = 60, 65
BLIND = {"lambda"}
"""Clouds that measure nothing by themselves: their owners are told that nobody can judge."""
MEASURED = [pytest.param(cloud, marks=() if cloud == "runpod" else pytest.mark.proof) for cloud in CLOUDS]


@pytest.mark.proof
@pytest.mark.parametrize("cloud", CLOUDS)
def test_without_an_agent_the_owner_is_told_within_the_hour_and_asked(cloud: str, tmp_path: Path) -> None:
    served = play_guide(cloud, tmp_path, agent=False)
    assert served.stopped is None, "what its provider tells by itself proves too little for a stop"
    assert served.told is not None
    assert served.told <= TOLD_MIN
    if cloud not in BLIND:
        assert served.asked is not None
        assert served.told + 15 <= served.asked <= ACTED_MIN


@pytest.mark.parametrize("cloud", MEASURED)
def test_with_the_agent_the_machine_is_stopped_or_asked_about(cloud: str, tmp_path: Path) -> None:
    served = play_guide(cloud, tmp_path, agent=True)
    assert served.told is not None
    assert served.acted is not None
    assert served.told <= TOLD_MIN
    assert served.told + 15 <= served.acted <= ACTED_MIN
