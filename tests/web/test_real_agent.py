"""The agent itself against the watchdog itself: it joins, reports and asks; what it measured is in the ledger then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from costguard.guard.policy import Rails
from costguard.ledger.agents.store import AgentStore
from costguard.ledger.guard.store import GuardStore
from costguard.services.serving import web_backend
from costguard.services.serving.agent_gateway import AgentGateway
from tests.metering.stories import key
from tests.web.stations import station

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-c", "import sys; from costguard_agent.cli import main; sys.exit(main(sys.argv[1:]))")


def test_an_agent_joins_reports_and_asks(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir(mode=0o700)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "agent")}
    environ["COSTGUARD_AGENT_DIR"] = str(tmp_path / "agent")
    with station(tmp_path) as watchdog, AgentStore(watchdog.url) as book:
        code = watchdog.enrol()
        url = f"http://{watchdog.at.shown}"
        joined = subprocess.run([*COMMAND, "join", url, code], env=environ, capture_output=True, text=True, check=False)
        assert joined.returncode == 0, joined.stderr
        (agent,) = book.load_agents()
        process = subprocess.Popen([*COMMAND, "run"], env=environ, stderr=subprocess.PIPE, text=True)
        try:
            for _ in range(200):
                found = book.load_agent(agent.id)
                if found is not None and found.beat_at is not None:
                    break
                time.sleep(0.2)  # another process is waited for
            assert found is not None
            assert found.beat_at is not None, "it never reported"
            assert found.version
            asked = subprocess.run(
                [*COMMAND, "phase", "download", "--for", "3h"], env=environ, capture_output=True, text=True, check=False
            )
            assert asked.returncode == 0, asked.stderr
        finally:
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=30)[1]
        assert "refuse" not in said, said
        with book.begin_transaction() as page:
            wishes = page.load_overrides_since(agent.joined_at)
        assert [(one.what, one.subject, one.who) for one in wishes] == [("phase", "download", "agent of train-0")]


@pytest.mark.proof
def test_an_agent_that_was_stopped_leaves_a_hole_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP, as a debugger, a container that is frozen or a starved machine does it: nobody knows what ran meanwhile."""
    monkeypatch.setattr(web_backend, "AgentGateway", partial(AgentGateway, every_s=1))
    (tmp_path / "agent").mkdir(mode=0o700)
    (tmp_path / "nvml.json").write_text(json.dumps({"gpus": [{"util": 0, "power": 60.0, "limit": 700.0}]}))
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COSTGUARD_AGENT_DIR": str(tmp_path / "agent")}
    environ.update(PYTHONPATH=f"{ROOT / 'agent'}:{ROOT / 'tests/agent/fake_nvml'}", FAKE_NVML=str(tmp_path / "nvml.json"))
    with station(tmp_path, more='[watch]\ninterval = "2s"') as watchdog, GuardStore(watchdog.url, rails=Rails()) as book:

        def idle() -> list[datetime]:
            found = book.load_samples_since(datetime.now(UTC) - timedelta(hours=1), [key("i-0")]).get(key("i-0"), ())
            return [one.at for one in found if one.signal == "gpu_util"]

        code = watchdog.enrol()
        joined = subprocess.run(
            [*COMMAND, "join", f"http://{watchdog.at.shown}", code], env=environ, capture_output=True, text=True, check=False
        )
        assert joined.returncode == 0, joined.stderr
        process = subprocess.Popen([*COMMAND, "run"], env=environ, stderr=subprocess.PIPE, text=True)
        try:
            until(lambda: len(idle()) > 1)
            process.send_signal(signal.SIGSTOP)
            stopped, end = datetime.now(UTC), time.monotonic() + 13
            until(lambda: time.monotonic() > end)
            process.send_signal(signal.SIGCONT)
            went_on = datetime.now(UTC)
            until(lambda: max(idle()) > went_on + timedelta(seconds=2))
        finally:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=30)[1]
        assert "no records for a gap: the agent did not run for" in said, said
        assert [at for at in idle() if stopped + timedelta(seconds=2) < at < went_on] == []
        assert "refuse" not in said, said


def until(ready: Callable[[], bool], within_s: float = 300.0) -> None:
    """Wait until something is so that other processes do."""
    end = time.monotonic() + within_s
    while not ready():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)  # another process is waited for
