"""A look that fails over the wire, between the plan and the stop: the RunPod adapter, its HTTP client, the fake API."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes.server import Answer, Asked
from tests.simulation.judge import violations
from tests.simulation.plans import DRILL, Box, Does, Plan
from tests.simulation.wired_clouds import WiredCloud
from tests.simulation.wired_net import Sent
from tests.simulation.wired_world import WiredWorld

RAILS = {"acts_per_10m": 3, "fleet_share_10m": 1.0, "fleet_share_day": 1.0, "breaker_least": 50}
PLAN = Plan(0, DRILL, 40, (Box("b0", "runpod", "2.99", (Does(0, "quiet"),)),), (), RAILS, wired=True)


class BrokenCloud(WiredCloud):
    """A RunPod whose answers are 500 from the second look at one pod on, for `lasts`; zero: that one answer."""

    lasts = timedelta()
    looks = 0
    since: datetime | None = None

    def _served(self, asked: Asked) -> Sent:
        self.looks += asked.method == "GET" and asked.path.count("/") == len(("v2", "pods", "id"))
        now = self.truth.now()
        if self.since is None and self.looks == len(("plan", "stop")):
            self.since = now
            return Sent(answer=Answer(status=500))
        if self.since is not None and now < self.since + self.lasts:
            return Sent(answer=Answer(status=500))
        return super()._served(asked)


class BrokenWorld(WiredWorld):
    """The world of it. `cloud`: the one that breaks."""

    cloud: BrokenCloud

    def found_clouds(self, used: object) -> None:  # noqa: ARG002 - there is one
        self.cloud = BrokenCloud("runpod", self.truth, self.log, self.broken)
        self.clouds["runpod"] = self.cloud


@pytest.mark.sampled(2, first=1)
@pytest.mark.parametrize("seconds", [0, 20])
def test_a_stop_whose_second_look_is_answered_with_500_is_sent_in_the_next_runs(
    seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokenCloud, "lasts", timedelta(seconds=seconds))
    world = BrokenWorld(PLAN, tmp_path)
    record = world.play()
    assert world.broken == []
    assert world.cloud.since is not None
    assert violations(record) == []
    assert [(one.act, one.done) for one in record.asked] == [("stop", True)]
