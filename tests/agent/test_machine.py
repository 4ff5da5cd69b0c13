"""The machine's own counters: rates are differences, a container is not its host, and what cannot be read is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from costguard_agent.host_metrics import HostMetrics, compute_rate

TICK = os.sysconf("SC_CLK_TCK")


class Box:
    """A /proc and a /sys of our own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file("proc/meminfo", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    250 kB\n")
        self.stat()
        self.net(eth0=(0, 0))
        self.disks(("nvme0n1", 0, 0))

    def file(self, path: str, text: str) -> None:
        made = self.root / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text)

    def stat(self, busy_s: float = 0.0, idle_s: float = 0.0) -> None:
        self.file("proc/stat", f"cpu  {round(busy_s * TICK)} 0 0 {round(idle_s * TICK)} 5 0 0 9 0 0\ncpu0 1 2 3\n")

    def net(self, *, real: tuple[str, ...] = ("eth0",), **counts: tuple[int, int]) -> None:
        lines = [f"  {name}: {got} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0" for name, (got, sent) in counts.items()]
        self.file("proc/self/net/dev", "Inter-|\n face |\n" + "\n".join(lines) + "\n")
        for name in real:
            (self.root / "sys/class/net" / name / "device").mkdir(parents=True, exist_ok=True)

    def disks(self, *counts: tuple[str, int, int], whole: tuple[str, ...] = ("nvme0n1", "sda", "loop0", "dm-0")) -> None:
        lines = [f" 8 0 {name} 1 0 {read} 1 1 0 {written} 1 0 0 0" for name, read, written in counts]
        self.file("proc/diskstats", "\n".join(lines) + "\n")
        for name in whole:
            (self.root / "sys/block" / name).mkdir(parents=True, exist_ok=True)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_rates_are_what_went_on_since(box: Box) -> None:
    machine = HostMetrics(box.root, contained=False)
    machine.look(10.0)
    box.stat(busy_s=3.0 * (os.cpu_count() or 1), idle_s=99)
    box.net(eth0=(1000, 500), lo=(9999, 9999))
    box.disks(("nvme0n1", 10, 20), ("nvme0n1p1", 10, 20), ("dm-0", 10, 20), ("loop0", 5, 0), ("sda", 1, 1))
    assert machine.look(20.0) == {"cpu_util": 30.0, "memory_used": 75.0, "network_bytes_s": 150.0, "disk_bytes_s": 1536.0}


def test_a_counter_that_began_anew_is_missing_once() -> None:
    assert compute_rate({"a": 500.0}, {"a": 20.0}, 10) is None
    assert compute_rate({"a": 20.0}, {"a": 60.0}, 10) == 4


def test_an_interface_or_disk_that_came_counts_from_then_and_one_that_went_no_longer() -> None:
    assert compute_rate({"a": 10.0, "gone": 99.0}, {"a": 20.0, "new": 1e12}, 10) == 1


def test_after_a_gap_the_next_reading_is_a_first_one(box: Box) -> None:
    machine = HostMetrics(box.root, contained=False)
    machine.look(10.0)
    machine.forget()
    assert "network_bytes_s" not in machine.look(20.0)


def test_a_bridge_or_tunnel_does_not_count_the_same_bytes_again(box: Box) -> None:
    machine = HostMetrics(box.root, contained=False)
    machine.look(0.0)
    box.net(eth0=(100, 0), docker0=(100, 0), veth1=(100, 0), lo=(100, 0), tun0=(100, 0))
    assert machine.look(1.0)["network_bytes_s"] == 100


def test_in_a_container_its_own_interface_counts_though_no_device_is_behind_it(tmp_path: Path) -> None:
    box = Box(tmp_path)
    (tmp_path / "sys/class/net/eth0/device").rmdir()
    machine = HostMetrics(tmp_path, contained=True)
    machine.look(0.0)
    box.net(real=(), eth0=(70, 7), lo=(100, 0))
    assert machine.look(1.0)["network_bytes_s"] == 77


def test_infiniband_is_network_and_of_the_host_in_a_container(box: Box) -> None:
    machine, inside = HostMetrics(box.root, contained=False), HostMetrics(box.root, contained=True)
    for number, value in ((0, 0), (1, 250)):
        for name in ("port_xmit_data", "port_rcv_data"):
            box.file(f"sys/class/infiniband/mlx5_0/ports/1/counters/{name}", f"{value}\n")
        found = [each.look(float(number)).get("network_bytes_s") for each in (machine, inside)]
    assert found == [2000, 0]


def test_nfs_is_a_disk_that_no_block_device_counts(box: Box) -> None:
    machine = HostMetrics(box.root, contained=False)
    for number, value in ((0, 1000), (1, 4000)):
        text = f"device srv:/a mounted on /data with fstype nfs4 statvers=1.1\n\tbytes:\t9 9 9 9 {value} {value} 1 1\n"
        box.file("proc/self/mountstats", "device sda mounted on / with fstype ext4\n" + text)
        found = machine.look(float(number))
    assert found["disk_bytes_s"] == 6000


def test_what_jobs_read_from_a_fuse_mount_counts_where_it_is_more(box: Box) -> None:
    machine = HostMetrics(box.root, contained=False)
    for number, value in ((0, 0), (1, 5_000_000)):
        box.file("proc/77/io", f"rchar: {value}\nwchar: {value}\nread_bytes: 0\n")
        box.file("proc/self/mounts", "mfs#volume /workspace fuse rw 0 0\n")
        found = machine.look(float(number), [77])
    assert found["disk_bytes_s"] == 10_000_000
    box.file("proc/self/mounts", "lxcfs /proc/cpuinfo fuse.lxcfs rw 0 0\n")
    assert machine.look(2.0, [77])["disk_bytes_s"] == 0


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_is_not_its_host(box: Box, version: int) -> None:
    machine, group = HostMetrics(box.root, contained=True), "sys/fs/cgroup"
    for number, (busy, read) in enumerate(((0, 0), (4_000_000, 8192))):
        box.stat(busy_s=1e6 * number)
        box.disks(("nvme0n1", 10**9 * number, 0))
        if version == 2:
            box.file("proc/1/cgroup", "0::/\n")
            box.file(f"{group}/cpu.stat", f"usage_usec {busy}\nuser_usec 1\n")
            box.file(f"{group}/cpu.max", "400000 100000\n")
            box.file(f"{group}/io.stat", f"8:0 rbytes={read} wbytes=0 rios=1\n259:0 \n")
            box.file(f"{group}/memory.max", "102400\n")
            box.file(f"{group}/memory.current", "61440\n")
            box.file(f"{group}/memory.stat", "anon 1\ninactive_file 10240\n")
        else:
            box.file("proc/1/cgroup", "4:cpu,cpuacct:/docker/abc\n3:blkio:/docker/abc\n")
            box.file(f"{group}/cpuacct/docker/abc/cpuacct.usage", f"{busy * 1000}\n")
            box.file(f"{group}/cpu/cpu.cfs_quota_us", "400000\n")
            box.file(f"{group}/cpu/cpu.cfs_period_us", "100000\n")
            box.file(f"{group}/blkio/docker/abc/blkio.throttle.io_service_bytes", f"8:0 Read {read}\n8:0 Total 9\nTotal 9\n")
            box.file(f"{group}/memory/memory.limit_in_bytes", "102400\n")
            box.file(f"{group}/memory/memory.usage_in_bytes", "61440\n")
            box.file(f"{group}/memory/memory.stat", "inactive_file 10240\n")
        found = machine.look(10.0 * number)
    assert found == {"cpu_util": 10.0, "memory_used": 50.0, "network_bytes_s": 0.0, "disk_bytes_s": 819.2}


def test_no_proc_is_said_and_nothing_is_measured(tmp_path: Path) -> None:
    machine = HostMetrics(tmp_path, contained=False)
    assert [machine.look(at) for at in (0.0, 1.0)] == [{}, {}]
    assert machine.list_troubles() == ("no /proc here: processors, memory, network, disks and processes are not measured",)
