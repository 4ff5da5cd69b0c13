"""Thirty machines and one rule, told to a chat that shows 2,000 characters: no stop comes before a text that named it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from costguard.guard.policy import STOP
from costguard.notifiers import Channel
from costguard.notifiers.chat import notify
from costguard.settings import check_settings
from costguard.testing.cloud import SimulatedCloud
from costguard.testing.doubles import FakeClock
from costguard.testing.guarding import GuardedClouds
from costguard.testing.machine import make_quiet_rule
from tests.notifiers.test_split import CHATS, Accepted

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""What Apprise's plug-ins do when they are imported is theirs."""

STARTED = datetime(2026, 11, 6, 16, tzinfo=UTC)
SETTINGS = """
[[policy]]
name = "idle-gpu"
arm = "stop"
when = "state == 'idle' && confidence >= 0.9"
for = "45m"
match = { gpu = true }
then = [{ do = "notify" }, { after = "30m", do = "stop" }]
[rails]
acts = { per_run = 50, per_10m = 50, fleet_percent = 100, fleet_percent_day = 100 }
"""


@pytest.mark.parametrize("trouble", ["", "a part is refused"], ids=["all is well", "trouble"])
def test_no_machine_of_a_crowd_is_stopped_before_a_shown_text_named_it(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, shown, tries = FakeClock(STARTED), dict[str, datetime](), list[int]()

    def request(*_: object, **how: object) -> Accepted:
        tries.append(1)
        answer, text = Accepted(), str(json.loads(str(how["data"]))["content"])
        if trouble and len(tries) == 2:
            answer.status_code = 400
            return answer
        for name in re.findall(r"^(?:costguard: )?(node-\d\d)", text[:2000], re.MULTILINE):
            shown.setdefault(name, clock.now())
        return answer

    monkeypatch.setattr("requests.Session.request", request)
    monkeypatch.setattr("apprise.plugins.base.NotifyBase.throttle", lambda *_, **__: None)
    cloud = SimulatedCloud("aws", clock)
    for number in range(30):
        name = f"node-{number:02d}"
        machine = cloud.add(name, rate="32.77", gpu="A100-80GB-SXM", gpus=8, owner="ada", tier="on-demand")
        machine.families = frozenset(("duty", "cpu", "io"))
        cloud.measures(name, make_quiet_rule(gpus=8))
    watch = GuardedClouds(
        {"aws": cloud},
        check_settings(SETTINGS, "crowd"),
        clock=clock,
        notifier=partial(notify, channel=Channel(name="simulated", clock=clock, address=CHATS["discord"][0])),
        ledger_url=f"sqlite:///{tmp_path}/crowd.db",
        interval=timedelta(minutes=10),
    )
    for _ in range(13):
        watch.poll()
        watch.guard()
        clock.advance(timedelta(minutes=10))
    watch.close()
    stops = {one.name: one.at for one in cloud.acts if one.act == STOP}
    assert len(stops) == 30
    assert {name for name, at in stops.items() if at <= shown.get(name, at)} == set()
