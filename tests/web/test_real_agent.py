"""The agent itself against the watchdog itself: it joins, reports and asks; what it measured is in the ledger then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from costguard.ledger.agents.store import AgentStore
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
