"""Metrics of the host: processor use, memory, bytes over the network and to disks.

Rates are differences of counters. In a container /proc shows the whole host with all its other tenants; then processors, memory
and disks are read from the control group instead (version 2 or 1), and the network from the container's own interfaces. A
counter that went down was restarted: its rate is missing once. A first reading gives no rate.

    network   interfaces with a device behind them (no loopback, bridge or tunnel: their bytes are counted already), all
              but loopback if none has one; InfiniBand ports, which no interface counts
    disks     whole block devices; NFS bytes to and from servers; and if another file system without a block device is
              mounted (FUSE, Lustre, Ceph, ...), what the GPU processes read and wrote, if that is more
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

SECTOR, LANES, PERCENT, USEC, NSEC = 512, 4, 100.0, 1e-6, 1e-9
"""Bytes of a sector in /proc/diskstats; an InfiniBand port counts in four bytes."""
VIRTUAL = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
UNSEEN = ("ceph", "lustre", "9p", "virtiofs", "beegfs", "gpfs", "cifs", "smb3", "wekafs", "fuse")
NO_DISK = ("fusectl", "fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal", "fuse.snapfuse")
LARGE = 2**20
Counters = Mapping[str, float]


def compute_rate(old_counters: Counters | None, new_counters: Counters | None, over_s: float) -> float | None:
    """Return units a second; None at the first reading and if a counter went down.

    Counters that are new in `new_counters` count from now on. Pure.
    """
    if old_counters is None or new_counters is None or over_s <= 0:
        return None
    steps = [value - old_counters[name] for name, value in new_counters.items() if name in old_counters]
    return None if any(step < 0 for step in steps) else sum(steps) / over_s


class HostMetrics:
    """Host metrics, read once a record.

    `contained`: whether this is a container.
    """

    def __init__(self, root: Path = Path("/"), *, contained: bool) -> None:
        self._root, self._contained = root, contained
        self._before: dict[str, Counters | None] = {}
        self._before_s = -1.0
        self.here = (root / "proc" / "stat").exists()

    def look(self, at_s: float, members: Iterable[int] = ()) -> dict[str, float]:
        """Return the known signals at `at_s` seconds after boot.

        `members`: pids of the GPU processes.
        """
        counters = {
            "busy": self._read_busy_s(),
            "network": self._read_network_bytes(),
            "disk": self._read_disk_bytes(),
            "calls": self._read_io_calls(members),
        }
        over_s = at_s - self._before_s if self._before_s >= 0 else 0.0
        rates = {name: compute_rate(self._before.get(name), now, over_s) for name, now in counters.items()}
        self._before, self._before_s = counters, at_s
        disk = rates["disk"]
        signals = {
            "cpu_util": None
            if rates["busy"] is None
            else min(PERCENT, PERCENT * rates["busy"] / max(self._count_cores(), 0.01)),
            "memory_used": self._read_memory_percent(),
            "network_bytes_s": rates["network"],
            "disk_bytes_s": None if disk is None else max(disk, rates["calls"] or 0.0),
        }
        return {name: value for name, value in signals.items() if value is not None}

    def forget(self) -> None:
        """Discard the last reading after a gap; the next one is a first one."""
        self._before, self._before_s = {}, -1.0

    def list_troubles(self) -> tuple[str, ...]:
        """Return what cannot be measured on this machine at all."""
        return () if self.here else ("no /proc here: processors, memory, network, disks and processes are not measured",)

    def _read_busy_s(self) -> Counters | None:
        """Return the seconds that processors were busy."""
        if self._contained:
            fields = dict(_parse_pairs(self._read_cgroup_v2("cpu.stat")))
            usage = fields.get("usage_usec")
            if usage is not None:
                return {"all": usage * USEC}
            old = _parse_number(self._read_cgroup_v1("cpuacct", "cpuacct.usage"))
            return None if old is None else {"all": old * NSEC}
        line = self._read_file("proc", "stat", most=4096).split("\n", 1)[0].split()
        if len(line) < 8 or line[0] != "cpu":  # noqa: PLR2004 - user nice system idle iowait irq softirq
            return None
        user, nice, system, _idle, _wait, irq, soft = (int(field) for field in line[1:8])
        return {"all": (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")}

    def _count_cores(self) -> float:
        if not self._contained:
            return float(os.cpu_count() or 1)
        quota = (self._read_cgroup_v2("cpu.max") or "").split()
        if len(quota) == 2 and quota[0].isdigit() and int(quota[1]):  # noqa: PLR2004 - quota and period
            return int(quota[0]) / int(quota[1])
        most, period = (
            _parse_number(self._read_cgroup_v1("cpu", "cpu.cfs_quota_us")),
            _parse_number(self._read_cgroup_v1("cpu", "cpu.cfs_period_us")),
        )
        if most and period and most > 0:
            return most / period
        return float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)

    def _read_memory_percent(self) -> float | None:
        """Return the memory in use, in percent; in a container with a limit, in percent of the control group's limit."""
        info = dict(_parse_pairs(self._read_file("proc", "meminfo").replace(":", "").replace(" kB", "")))
        total, free = info.get("MemTotal"), info.get("MemAvailable")
        if not total or free is None:
            return None
        limit = _parse_number(self._read_cgroup_v2("memory.max")) or _parse_number(
            self._read_cgroup_v1("memory", "memory.limit_in_bytes")
        )
        if self._contained and limit and limit < total * 1024:
            used = _parse_number(self._read_cgroup_v2("memory.current")) or _parse_number(
                self._read_cgroup_v1("memory", "memory.usage_in_bytes")
            )
            cached = dict(
                _parse_pairs(self._read_cgroup_v2("memory.stat") or self._read_cgroup_v1("memory", "memory.stat"))
            ).get("inactive_file", 0.0)
            return None if used is None else PERCENT * max(0.0, used - cached) / limit
        return PERCENT * (total - free) / total

    def _read_network_bytes(self) -> Counters | None:
        by_interface: dict[str, float] = {}
        for line in self._read_file("proc", "self", "net", "dev").splitlines()[2:]:
            name, _, rest = line.partition(":")
            fields = rest.split()
            if len(fields) >= 9 and name.strip() != "lo":  # noqa: PLR2004 - received is the first, sent the ninth
                by_interface[name.strip()] = float(int(fields[0]) + int(fields[8]))
        real = {
            name: value
            for name, value in by_interface.items()
            if (self._root / "sys" / "class" / "net" / name / "device").exists()
        }
        return {**(real or by_interface), **self._read_infiniband_bytes()} if by_interface else None

    def _read_infiniband_bytes(self) -> dict[str, float]:
        """Return bytes of RDMA; none in a container, where the counters are the host's."""
        base = self._root / "sys" / "class" / "infiniband"
        if self._contained or not base.is_dir():
            return {}
        by_port = {}
        for port in base.glob("*/ports/*/counters"):
            words = [_parse_number(_read_text(port / name)) for name in ("port_xmit_data", "port_rcv_data")]
            if None not in words:
                by_port[str(port)] = LANES * sum(filter(None, words))
        return by_port

    def _read_disk_bytes(self) -> Counters | None:
        if not self._contained:
            blocks: dict[str, float] | None = self._read_block_devices()
        else:
            blocks = self._read_cgroup_blocks()
        nfs = self._read_nfs_bytes()
        return nfs or None if blocks is None else {**blocks, **nfs}

    def _read_block_devices(self) -> dict[str, float] | None:
        block_folder = self._root / "sys" / "block"
        by_device: dict[str, float] = {}
        lines = self._read_file("proc", "diskstats", most=LARGE).splitlines()
        for fields in (line.split() for line in lines):
            if len(fields) >= 10 and not fields[2].startswith(VIRTUAL) and (block_folder / fields[2]).exists():  # noqa: PLR2004
                by_device[fields[2]] = float(SECTOR * (int(fields[5]) + int(fields[9])))
        return by_device if lines else None

    def _read_cgroup_blocks(self) -> dict[str, float] | None:
        new = self._read_cgroup_v2("io.stat")
        if new is not None:
            fields = [line.split() for line in new.splitlines()]
            return {line[0]: sum(_parse_field(field) for field in line[1:]) for line in fields if line}
        old = self._read_cgroup_v1("blkio", "blkio.throttle.io_service_bytes")
        if old is None:
            return None
        words = [line.split() for line in old.splitlines()]
        return {f"{w[0]} {w[1]}": float(w[2]) for w in words if len(w) == 3 and w[1] in {"Read", "Write"}}  # noqa: PLR2004

    def _read_nfs_bytes(self) -> dict[str, float]:
        """Return the bytes of each NFS mount to and from its server (nfsstat: the fifth and sixth of `bytes:`)."""
        by_mount, mount = {}, ""
        for line in self._read_file("proc", "self", "mountstats", most=LARGE).splitlines():
            words = line.split()
            if words[:1] == ["device"]:
                mount = line if "with fstype nfs" in line else ""
            elif mount and words[:1] == ["bytes:"] and len(words) >= 7:  # noqa: PLR2004
                by_mount[mount] = float(int(words[5]) + int(words[6]))
        return by_mount

    def _read_io_calls(self, members: Iterable[int]) -> Counters | None:
        """Return the bytes that GPU processes read and wrote by system calls; None unless a mount has no block device."""
        mounts = (line.split() for line in self._read_file("proc", "self", "mounts", most=LARGE).splitlines())
        if not any(len(m) > 2 and m[2].startswith(UNSEEN) and m[2] not in NO_DISK for m in mounts):  # noqa: PLR2004 - its type
            return None
        by_pid = {}
        for pid in members:
            fields = dict(_parse_pairs(self._read_file("proc", str(pid), "io").replace(":", "")))
            if "rchar" in fields and "wchar" in fields:
                by_pid[str(pid)] = fields["rchar"] + fields["wchar"]
        return by_pid

    def _read_file(self, *parts: str, most: int = 65536) -> str:
        return _read_text(self._root.joinpath(*parts), most) or ""

    def _read_cgroup_v2(self, name: str) -> str | None:
        """Return a file of the container's control group, version 2, in the group of its first process."""
        base = self._root / "sys" / "fs" / "cgroup"
        return _read_text(_join_inside(base, self._find_cgroup_of_first("0::")) / name)

    def _read_cgroup_v1(self, kind: str, name: str) -> str | None:
        """Return such a file of version 1."""
        base = self._root / "sys" / "fs" / "cgroup" / kind
        return _read_text(_join_inside(base, self._find_cgroup_of_first(f":{kind}:")) / name)

    def _find_cgroup_of_first(self, mark: str) -> str:
        lines = self._read_file("proc", "1", "cgroup").splitlines()
        line = next((line for line in lines if mark in f":{line}".replace(",", ":")), "")
        path = line.split(":", 2)[-1].strip("/")
        return "" if path == "init.scope" else path.removesuffix("/init.scope")


def _read_text(path: Path, most: int = 65536) -> str | None:
    """Return a whole file of /proc or /sys, which returns a page per read; None if it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pieces, left = [], most
        while left > 0:
            piece = os.read(handle, left)
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(handle)


def _join_inside(base: Path, path: str) -> Path:
    """Return the folder `path` below `base`, or `base` if it does not exist.

    A container that sees only its own group has it at the top.
    """
    return base / path if path and ".." not in path and (base / path).is_dir() else base


def _parse_pairs(text: str | None) -> Iterator[tuple[str, float]]:
    for line in (text or "").splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():  # noqa: PLR2004 - a name and its number
            yield words[0], float(words[1])


def _parse_number(text: str | None) -> float | None:
    stripped = (text or "").strip()
    return float(stripped) if stripped.lstrip("-").isdigit() else None


def _parse_field(field: str) -> float:
    name, _, value = field.partition("=")
    return float(value) if name in {"rbytes", "wbytes"} and value.isdigit() else 0.0
