"""Cores in use by the trees of those that hold a GPU, by differences of what the kernel counts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from costguard_agent.gpu_processes import (
    DAEMONS,
    GpuProcessTrees,
    ProcessTimes,
    compute_used_s,
    is_holding_gpu,
    parse_stat,
    select_busy_sessions,
)
from hypothesis import given
from hypothesis import strategies as st

TICK = os.sysconf("SC_CLK_TCK")


def table(*processes: ProcessTimes) -> dict[int, ProcessTimes]:
    return {process.pid: process for process in processes}


def process(pid: int, parent: int = 1, own_s: float = 0.0, children_s: float = 0.0, began: int = 0) -> ProcessTimes:
    return ProcessTimes(pid, parent, began, own_s, children_s)


def test_a_worker_that_ended_is_counted_once() -> None:
    before = table(process(10), process(11, 10, own_s=3))
    after = table(process(10, children_s=5))
    assert compute_used_s(before, after, since_ticks=100) == {10: 2}


def test_workers_that_came_and_went_between_two_looks_count_through_their_parent() -> None:
    assert compute_used_s(table(process(10)), table(process(10, children_s=7)), since_ticks=100) == {10: 7}


def test_a_worker_and_its_own_worker_that_ended_together_count_once() -> None:
    before = table(process(10), process(11, 10, own_s=2, children_s=1), process(12, 11, own_s=4))
    after = table(process(10, children_s=2 + 1 + 4 + 0.5))
    assert compute_used_s(before, after, since_ticks=100) == {10: 0.5}


def test_who_began_since_counts_from_its_beginning() -> None:
    assert compute_used_s({}, table(process(10, own_s=2, children_s=1, began=150)), since_ticks=100) == {10: 3}


def test_a_number_that_another_process_got_is_another_process() -> None:
    after = table(process(10, own_s=1, began=150))
    assert compute_used_s(table(process(10, own_s=90)), after, since_ticks=100) == {10: 1}


def test_time_of_an_orphan_that_init_took_is_not_counted_again() -> None:
    before = table(process(1), process(10), process(11, 10, own_s=4000))
    assert compute_used_s(before, table(process(1, children_s=4001)), since_ticks=100) == {1: 1}


def test_a_child_whose_time_nobody_took_makes_no_negative_time() -> None:
    before = table(process(10, own_s=1), process(11, 10, own_s=50))
    assert compute_used_s(before, table(process(10, own_s=2)), since_ticks=100) == {10: 1}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=40), st.lists(st.integers(0, 39), max_size=6)
)
def test_whatever_a_tree_does_all_its_time_counts_once(deeds: list[tuple[int, int]], looks: list[int]) -> None:
    """A simulated tree: work, fork, end and be waited for; looked at wherever. The parts add up to the whole."""
    living, worked, counted, last, last_at = {1: process(1)}, 0.0, 0.0, table(process(1)), 0
    known = {1}
    for at, (what, whom) in enumerate(deeds):
        clock = at + 1
        pid = sorted(living)[whom % len(living)]
        one = living[pid]
        if what <= 1:
            living[pid] = one._replace(own_s=one.own_s + whom)
            worked += whom
        elif what == 2:
            new = max(known) + 1
            known.add(new)
            living[new] = process(new, pid, began=clock)
        elif pid != 1 and not any(child.parent == pid for child in living.values()):
            del living[pid]
            parent = living[one.parent]
            living[one.parent] = parent._replace(children_s=parent.children_s + one.own_s + one.children_s)
        if at in looks or at == len(deeds) - 1:
            counted += sum(compute_used_s(last, living, since_ticks=last_at + 0.5).values())
            last, last_at = dict(living), clock
    assert counted == worked


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            b"7 (a) b (c) S 3 7 6 0 -1 4194560 1 2 3 4 250 50 100 25 20 0 1 0 12345 0 0 0",
            ProcessTimes(7, 3, 12345, 3.0, 1.25, "a) b (c", 6),
        ),
        (b"7 (kswapd0) S 2 0 0 0 -1 2623552 1 2 3 4 250 50 0 0 20 0 1 0 12 0 0 0", None),
        (b"7 (cut off", None),
        (b"", None),
        (b"7 (x) S 3", None),
        (b"7 (x) S " + b"z " * 25, None),
    ],
)
def test_a_line_of_the_kernel_is_read_or_refused(line: bytes, said: ProcessTimes | None) -> None:
    assert parse_stat(line, 100) == said


BURN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass"
WORKERS = f"""
import subprocess, sys
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(3):
        subprocess.run([sys.executable, "-S", "-c", '''{BURN.format(0.1)}'''])
    print("done", flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
def test_real_workers_that_live_for_a_tenth_of_a_second_are_seen() -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", WORKERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        found = GpuProcessTrees()
        found.contained = False
        at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert found.look(at_s, frozenset([job.pid]), gpus=True) is None, "a first look is not a rate"
        job.stdin.write("go\n")
        job.stdin.flush()
        assert job.stdout.readline() == "done\n"
        cores = found.look(at_s + 10, frozenset([job.pid]), gpus=True)
        job.stdin.close()
    assert cores is not None
    assert 0.03 <= cores <= 0.3, "0.3 s and what starting three interpreters takes, in what is said to be 10 s"


class Proc:
    """A /proc of our own."""

    def __init__(self, root: Path, namespace: str = "pid:[4026532000]") -> None:
        self.root = root
        (root / "self" / "ns").mkdir(parents=True)
        (root / "self" / "ns" / "pid").symlink_to(namespace)

    def add(self, pid: int, name: str, ticks: int, *files: str, parent: int = 1, session: int = 0) -> None:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        leader = session or pid
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} 0 {leader} 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {pid} 0 0 0")
        for number, file in enumerate(files):
            (folder / "fd" / str(number)).unlink(missing_ok=True)
            (folder / "fd" / str(number)).symlink_to(file)


def test_in_a_container_who_has_a_gpu_open_holds_it_whatever_nvml_calls_it(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.add(20, "python", 0, "/dev/null", "/dev/nvidia3")
    proc.add(30, "nvidia-smi", 0, "/dev/nvidiactl", "/dev/nvidia-uvm")
    found = GpuProcessTrees(tmp_path)
    assert found.contained
    assert found.look(100.0, frozenset([999]), gpus=True) is None
    proc.add(20, "python", 5 * TICK, "/dev/null", "/dev/nvidia3")
    proc.add(30, "nvidia-smi", 5 * TICK)
    assert found.look(110.0, frozenset([30]), gpus=True) == 0.5
    assert found.members == (20,)


def test_who_holds_no_gpu_uses_no_core_of_one(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.add(20, "python", 0, "/dev/null")
    found = GpuProcessTrees(tmp_path)
    found.look(100.0, None, gpus=True)
    assert found.look(110.0, None, gpus=True) == 0.0
    assert found.look(120.0, None, gpus=False) is None, "no GPU, no such signal"


@pytest.mark.parametrize(
    ("cores", "counted"),
    [
        ({(30, 30): 1.0}, {30}),
        ({(30, 30): 0.2, (31, 30): 0.2, (32, 30): 0.2}, {30, 31, 32}),
        ({(30, 30): 0.4, (31, 31): 0.4, (32, 32): 0.4}, set()),
        ({(30, 30): 0.3, (31, 31): 2.0}, {31}),
    ],
    ids=["one busy core", "a session's processes together", "daemons that each use little", "one session of two"],
)
def test_processes_without_a_gpu_count_where_a_session_uses_more_than_half_a_core(
    cores: dict[tuple[int, int], float], counted: set[int]
) -> None:
    now = table(*(process(pid)._replace(session=session) for pid, session in cores))
    assert select_busy_sessions(now, {pid: 10 * used for (pid, _), used in cores.items()}, 10.0) == counted


def test_a_tokeniser_without_a_gpu_is_seen_beside_a_holder_at_rest_and_a_busy_daemon_is_not(tmp_path: Path) -> None:
    proc = Proc(tmp_path, "pid:[4026531836]")
    found = GpuProcessTrees(tmp_path)
    for at, ticks in ((100.0, 0), (110.0, 10 * TICK)):
        proc.add(20, "python", 0)
        proc.add(30, "bash", 0)
        proc.add(31, "tokenise", ticks, parent=30, session=30)
        proc.add(40, "dcgm-exporter", ticks)
        cores = found.look(at, frozenset([20]), gpus=True)
    assert (cores, found.members) == (1.0, (20,))
    assert (found.sum_cores([30]), found.sum_cores([20, 40, 999])) == (1.0, 0.0)


def test_who_may_not_be_asked_counts_unless_it_runs_beside_every_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = Proc(tmp_path)
    for pid, name in ((20, "python"), (30, "sshd")):
        proc.add(pid, name, 0)
    assert "sshd" in DAEMONS
    monkeypatch.setattr("costguard_agent.gpu_processes.is_holding_gpu", lambda _: None)
    found = GpuProcessTrees(tmp_path)
    found.look(100.0, None, gpus=True)
    assert found.members == (20,)
    assert found.troubles == (
        "the processes on the GPUs cannot be identified: 1 processes of other users count as GPU processes",
    )


def test_who_left_its_tree_belongs_to_it_until_it_ends(tmp_path: Path) -> None:
    proc = Proc(tmp_path, "pid:[4026531836]")
    proc.add(20, "python", 0)
    proc.add(21, "worker", 0, parent=20)
    found = GpuProcessTrees(tmp_path)
    found.look(100.0, frozenset([20]), gpus=True)
    proc.add(20, "python", 0)
    proc.add(21, "worker", TICK, parent=1)
    assert found.look(110.0, frozenset([20]), gpus=True) == 0.1


def test_no_proc_is_no_cores(tmp_path: Path) -> None:
    found = GpuProcessTrees(tmp_path / "none")
    assert [found.look(at, frozenset([1]), gpus=True) for at in (1.0, 2.0)] == [None, None]
    assert is_holding_gpu(tmp_path / "none") is False
