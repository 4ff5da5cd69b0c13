"""Records outlive outages, restarts and full disks; a number is never used twice."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from costguard_agent import daemon
from costguard_agent import spool as spools
from costguard_agent.clock import Moment, RecordClock
from costguard_agent.sender import ANSWERED, REFUSED, UNREACHABLE, BeatResult
from costguard_agent.spool import RecordSpool, SequenceNumbers
from hypothesis import given, settings
from hypothesis import strategies as st

NOW = 1_795_000_000_000


def record(number: int, **signals: float) -> dict[str, Any]:
    return {"at": NOW + number, "over_s": 15.0, "signals": signals or {"step": float(number)}}


def told(spool: RecordSpool) -> list[int]:
    return [json.loads(line)["at"] - NOW for line in spool.read_head(10**6, 10**9)]


def test_what_was_not_told_is_there_after_a_restart_in_its_order(tmp_path: Path) -> None:
    spool = RecordSpool(tmp_path, NOW)
    for number in range(5):
        spool.add(record(number), NOW)
    spool.acknowledge(spool.read_head(2, 10**6), 0)
    assert told(RecordSpool(tmp_path, NOW)) == [2, 3, 4]


def test_a_torn_line_and_what_is_no_record_are_passed_over(tmp_path: Path) -> None:
    spool = RecordSpool(tmp_path, NOW)
    spool.add(record(1), NOW)
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'\0\0\0\n{"at": 5}\n[]\n' + path.read_bytes() + b'{"at": 17950000')
    again = RecordSpool(tmp_path, NOW)
    again.add(record(2), NOW)
    assert told(RecordSpool(tmp_path, NOW)) == [1, 2]


def test_the_oldest_go_first_and_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = len(json.dumps(record(1), separators=(",", ":"))) + 1
    monkeypatch.setattr(spools, "BYTES_MOST", 3 * line)
    spool = RecordSpool(tmp_path, NOW)
    for number in range(1, 6):
        spool.add(record(number), NOW)
    assert (told(spool), spool.dropped) == ([3, 4, 5], 2)
    assert told(RecordSpool(tmp_path, NOW)) == [3, 4, 5]
    spool.acknowledge([], 2)
    assert spool.dropped == 0


def test_the_head_fits_into_a_message(tmp_path: Path) -> None:
    spool = RecordSpool(tmp_path, NOW)
    for number in range(10):
        spool.add(record(number), NOW)
    size = len(json.dumps(record(1), separators=(",", ":"))) + 1
    assert len(spool.read_head(100, 4 * size)) == 4
    assert len(spool.read_head(3, 10**6)) == 3


def test_a_clock_that_was_wrong_dates_all_anew(tmp_path: Path) -> None:
    spool = RecordSpool(tmp_path, NOW)
    spool.add(record(5), NOW)
    spool.shift_times(-3)
    assert told(spool) == told(RecordSpool(tmp_path, NOW)) == [2]


def bare(folder: Path) -> Any:  # noqa: ANN401 - an agent with nothing but what dates records, and a switch that listens
    agent: Any = daemon.AgentDaemon.__new__(daemon.AgentDaemon)
    agent._calendar, agent._spool, agent._log = RecordClock(), RecordSpool(folder, NOW), SimpleNamespace(say=lambda _: None)
    agent._measuring, agent._switch = SimpleNamespace(forget=lambda _: None), None
    return agent


def test_a_clock_that_was_set_moves_the_records_that_wait_with_it(tmp_path: Path) -> None:
    """Else the watchdog's own clock, learnt later, would move an idle hour onto one of work."""
    agent = bare(tmp_path)
    agent._spool.add(record(5), NOW)
    agent._handle_gap("the clock was set", Moment(NOW, 10, 10), Moment(NOW - 3_599_000, 11, 11))
    assert told(agent._spool) == [5 - 3_600_000]
    agent._calendar.correct(-3_600_000)  # what the watchdog said, after which all is dated by its clock
    agent._spool.shift_times(3_600_000)
    agent._handle_gap("the clock was set", Moment(NOW, 20, 20), Moment(NOW + 3_601_000, 21, 21))
    assert (told(agent._spool), agent._calendar.ahead_ms) == ([5], 0)


def test_a_refusal_is_told_to_the_dead_man_switch_as_one(tmp_path: Path) -> None:
    agent, heard = bare(tmp_path), list[str]()
    agent._switch = SimpleNamespace(
        handle_answer=lambda *_: heard.append("answered"), handle_refusal=lambda _: heard.append("refused")
    )
    agent._answers, agent._ended, agent._troubles = deque(maxlen=1), threading.Event(), ()
    agent._status, agent._listener = SimpleNamespace(record_beat=lambda *_, **__: None), None
    agent._log.log_state, agent._measuring.set_interval = lambda *_: None, lambda _: None
    for one in (BeatResult(REFUSED, alive=True), BeatResult(UNREACHABLE), BeatResult(ANSWERED), BeatResult(REFUSED)):
        agent._sender = SimpleNamespace(send_beat=lambda *_, said=one, **__: said, every_s=15)
        agent._send_beat()
        agent._pass_answers_to_switch()
    assert heard == ["refused", "answered"]


def test_what_an_earlier_process_dated_by_another_clock_is_not_dated_anew(tmp_path: Path) -> None:
    before = RecordSpool(tmp_path, NOW)
    before.add(record(1), NOW)
    before.add(record(2), NOW)
    spool = RecordSpool(tmp_path, NOW)
    spool.add(record(3), NOW)
    spool.shift_times(60_000)
    assert told(spool) == [60_001, 60_002, 60_003], "a minute is what a beat may be off"
    spool.shift_times(3_600_000)
    assert told(spool) == told(RecordSpool(tmp_path, NOW)) == [3_660_003]
    assert spool.dropped == 2
    spool.add(record(4_000_000), NOW)
    spool.shift_times(-3_600_000)
    assert told(spool) == [60_003, 400_000], "what this process dated moves as a whole"


def test_a_folder_that_cannot_be_written_keeps_records_in_memory_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    spool = RecordSpool(folder, NOW)
    spool.add(record(1), NOW)
    assert told(spool) == [1]
    assert "records are kept only in memory" in spool.trouble
    folder.mkdir()
    spool.add(record(2), NOW)
    assert (spool.trouble, told(RecordSpool(folder, NOW))) == ("", [1, 2])


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A disk of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip("mounting is not allowed here")
    return disk


def test_on_a_full_disk_nothing_is_lost_and_it_is_written_once_there_is_room(small_disk: Path) -> None:
    try:
        spool, numbers = RecordSpool(small_disk, NOW), SequenceNumbers(small_disk)
        (small_disk / "fill").write_bytes(bytes(60 * 1024))
        for number in range(200):
            spool.add(record(number, gpu_util=99.5, network_bytes_s=12345678.9), NOW)
        assert "No space left" in spool.trouble
        assert told(spool) == list(range(200))
        first = numbers.take_next(NOW)
        assert first == NOW
        (small_disk / "fill").unlink()
        spool.add(record(200), NOW)
        assert (spool.trouble, told(RecordSpool(small_disk, NOW))) == ("", list(range(201)))
    finally:
        subprocess.run(["umount", "-l", str(small_disk)], check=True)


def test_numbers_rise_with_the_clock_and_never_fall(tmp_path: Path) -> None:
    numbers = SequenceNumbers(tmp_path)
    assert [numbers.take_next(NOW), numbers.take_next(NOW), numbers.take_next(NOW - 999), numbers.take_next(NOW + 50)] == [
        NOW, NOW + 1, NOW + 2, NOW + 50,
    ]  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(-(10**7), 10**7)), max_size=15))
def test_no_crash_and_no_clock_makes_a_number_come_twice(deeds: list[tuple[bool, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        numbers, seen, now = SequenceNumbers(Path(folder)), [0], NOW
        for crash, step in deeds:
            now += step
            if crash:
                numbers = SequenceNumbers(Path(folder))
            seen.append(numbers.take_next(now))
        assert seen == sorted(set(seen))


@pytest.mark.parametrize("torn", [b"", b"x", b"-5", b"9" * 40, b"\xff\xff"])
def test_a_torn_number_goes_by_the_clock(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "seq").write_bytes(torn)
    assert SequenceNumbers(tmp_path).take_next(NOW) == NOW
