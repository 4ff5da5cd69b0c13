"""The door is a process of its own: whatever becomes of it, the watchdog polls and judges on time, and starts another one."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from datetime import timedelta
from itertools import cycle
from pathlib import Path

import pytest

from costguard.web.keeper import STEADY_S
from tests.web.doors import INTERVAL_S, KILLED, NO_MEMORY, STOPPED, Watch, watching

ENDS = int(os.environ.get("COSTGUARD_DOOR_ENDS", "9"))
"""Each end costs a start of the server: 100 of them are half an hour."""


def ended(watch: Watch, how: str) -> None:
    """End the door, and wait until another one takes beats."""
    before = watch.end_door(how)

    def is_another() -> bool:
        if how == NO_MEMORY:  # what it has serves beats: pages and the agent's file need more
            for path in ("/costguard-agent.pyz", "/login/x"):
                watch.ask("GET", path)
        return watch.door() not in (0, before)

    watch.until(is_another)
    watch.until(watch.takes_beats)


def judged(watch: Watch) -> None:
    """What holds however often the door ended."""
    assert watch.lost == [], "answered, and not in the ledger"
    assert watch.list_late() == []
    assert watch.longest_gap() < timedelta(seconds=2 * INTERVAL_S + 1)


def test_a_door_that_is_killed_delays_nothing_and_loses_no_acknowledged_beat(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        watch.until(watch.takes_beats)
        ended(watch, KILLED)
        judged(watch)
        log = watch.log.read_text()
        assert "it was ended by SIGKILL" in log
        last = watch.door()
        watch.process.kill()
        watch.process.wait()
        assert gone(last), "no orphan, though the watchdog could say nothing"


def gone(pid: int) -> bool:
    """Whether a process ends within ten seconds; a zombie that nobody waits for has ended."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)  # another process is waited for
    return False


@pytest.mark.proof
def test_many_ends_of_the_door_delay_no_poll_and_lose_no_acknowledged_beat(tmp_path: Path) -> None:
    with watching(tmp_path) as watch, (tmp_path / "ends").open("w", buffering=1) as told:
        for number, how in zip(range(ENDS), cycle((KILLED, STOPPED, NO_MEMORY)), strict=False):
            began = time.monotonic()
            ended(watch, how)
            time.sleep(max(0.0, STEADY_S - 5))  # a door that ran so long is started again at once
            counts = f"acknowledged {len(watch.acked)}, lost {len(watch.lost)}, late {len(watch.list_late())}"
            told.write(f"{number + 1}: {how}, {time.monotonic() - began:.1f} s: {counts}, gap {watch.longest_gap()}\n")
        judged(watch)


@pytest.mark.proof
def test_a_door_that_is_stopped_while_the_watchdog_dies_leaves_no_orphan(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        pid = watch.end_door(STOPPED)
        watch.process.kill()
        watch.process.wait()
        assert gone(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
