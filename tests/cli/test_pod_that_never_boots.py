"""A RunPod pod that is STARTING for hours and states a price: a hard cap counts it and stops it, as a person can."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.watched import MACHINES, Before, Five, Watching, make_environ, time_goes_on, until
from tests.fakes.runpod import FakeRunpod
from tests.fakes.server import serving
from tests.providers.gcp.rig import GcpRig
from tests.providers.runpod.rig import RunpodRig

MINUTE = timedelta(minutes=1)
SETTINGS = """
[watch]
interval = "2s"
jitter = "0s"
[rails]
first_seen = "5s"
acts = { per_10m = 10, fleet_percent = 100, fleet_percent_day = 100 }
[[budget]]
name = "pods"
cap = "CAP USD"
period = "rolling 1d"
hard = true
allow_irreversible = true
match = { owners = ["eve"] }
"""


@pytest.fixture
def five(tmp_path: Path) -> Iterator[Five]:
    """RunPod and an empty GCP account; one of three pods is STARTING at $21.52 an hour since it is known."""
    five = Five(tmp_path, rigs={"gcp": GcpRig(), "runpod": RunpodRig()})
    five.set_clocks(datetime.now(UTC) - 40 * MINUTE)
    five.ids = {"gcp": [], "runpod": five.rigs["runpod"].put(MACHINES)}
    fake, pod = five.rigs["runpod"].fake, five.victim("runpod")
    assert isinstance(fake, FakeRunpod)
    fake.manners.status[pod] = "STARTING"
    five.rigs["runpod"].spoil(pod, price=21.52, started=None, owner="eve")
    fake.manners.spoilt[pod][("createdAt",)] = (datetime.now(UTC) - 40 * MINUTE).isoformat()
    (tmp_path / "home").mkdir()
    with ExitStack() as stack:
        five.bases = {name: stack.enter_context(serving(rig.fake)) for name, rig in five.rigs.items()}
        five.environ = make_environ(five)
        yield five


@pytest.mark.parametrize(
    ("cap", "stops"),
    [pytest.param("5", {"runpod": 1}, marks=pytest.mark.proof), ("500", {})],
    ids=["over the cap", "within it"],
)
def test_a_hard_cap_stops_a_pod_that_never_boots(five: Five, cap: str, stops: dict[str, int]) -> None:
    with ExitStack() as stack:
        before = Before(five, five.write(SETTINGS.replace("CAP", cap)), datetime.now(UTC) - 40 * MINUTE, 10 * MINUTE, stack)
        before.watch_until(datetime.now(UTC))
        assert five.stops() == {}
        stack.enter_context(time_goes_on(five))
        watching = Watching.started(five)
        stack.callback(watching.close)
        until(lambda: watching.said("does not start: starting since"), watching)
        before.judge(datetime.now(UTC))
        before.give_turn()
        until(lambda: five.stops() == stops and watching.said(" an hour, acting"), watching)


def let_stops_be_seen(five: Five, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pod be listed as it is once somebody stopped it: until then it is STARTING, whatever it does."""
    fake = five.rigs["runpod"].fake
    assert isinstance(fake, FakeRunpod)
    make = fake.let

    def let(id_: str, state: str) -> None:
        fake.manners.status.pop(id_, None)
        make(id_, state)

    monkeypatch.setattr(fake, "let", let)


def test_a_person_can_stop_a_pod_that_never_boots(five: Five, monkeypatch: pytest.MonkeyPatch) -> None:
    let_stops_be_seen(five, monkeypatch)
    with ExitStack() as stack:
        before = Before(five, five.write(SETTINGS.replace("CAP", "500")), datetime.now(UTC) - 2 * MINUTE, MINUTE, stack)
        before.watch_until(datetime.now(UTC))
        stack.enter_context(time_goes_on(five))
        words = [sys.executable, "-m", "costguard", "stop", five.victim("runpod"), "--yes"]
        ran = subprocess.run(words, cwd=five.folder, env=five.environ, text=True, capture_output=True, check=False)
        assert five.stops() == {"runpod": 1}, ran.stderr
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert five.resting() == {("runpod", five.victim("runpod"))}
