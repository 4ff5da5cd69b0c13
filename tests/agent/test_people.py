"""People: real terminals with real processes, and machines as /proc and utmp show them."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from pathlib import Path

import pytest
from costguard_agent.host import HostView
from costguard_agent.user_sessions import (
    UTMP_32,
    UTMP_64,
    SessionProbe,
    format_terminal,
    list_terminal_processes,
    parse_utmp,
    write_to_terminals,
)

from tests.agent.near import Machine

NOW = 1_764_000_000.0
PTS = 136 << 8


def test_somebody_who_typed_ten_minutes_ago_is_told_by_the_terminal(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(700, "bash", parent=600, tty=PTS | 3)
    machine.terminal("pts/3", NOW - 600)
    seen = SessionProbe(machine.around).look(NOW)
    assert seen.signals == {"input_age_s": 600.0, "connections": 1.0}
    assert seen.unknown == ()


@pytest.mark.parametrize("server", ["tmux: server", "screen", "zellij"])
def test_a_detached_pane_is_nobody(tmp_path: Path, server: str) -> None:
    machine = Machine(tmp_path)
    machine.process(500, server)
    machine.process(501, "bash", parent=500, tty=PTS | 7)
    machine.process(502, "python", parent=501, session=501, tty=PTS | 7)
    machine.terminal("pts/7", NOW - 5)
    people = SessionProbe(machine.around)
    people.look(NOW - 7200)
    assert people.look(NOW).signals == {"input_age_s": 7200.0, "connections": 0.0}


def test_who_looks_at_a_pane_types_into_a_terminal_of_their_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(500, "tmux: server")
    machine.process(501, "bash", parent=500, tty=PTS | 7)
    machine.process(600, "sshd", parent=1, words=("sshd: anna@pts/1",))
    machine.process(601, "bash", parent=600, tty=PTS | 1)
    machine.process(602, "tmux: client", parent=601, session=601, tty=PTS | 1)
    machine.terminal("pts/7", NOW - 5)
    machine.terminal("pts/1", NOW - 40)
    assert SessionProbe(machine.around).look(NOW).signals == {"input_age_s": 40.0, "connections": 1.0}


def test_one_connection_with_two_terminals_and_an_editor_without_one_are_two_sessions(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(600, "sshd-session", words=("sshd-session: anna@pts/1,pts/2",))
    machine.process(601, "bash", parent=600, tty=PTS | 1)
    machine.process(602, "bash", parent=600, tty=PTS | 2)
    machine.process(610, "sshd", words=("sshd: ben@notty",))
    machine.process(611, "sshd", words=("sshd: ben [priv]",))
    machine.process(620, "sshd", words=("sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups",))
    machine.terminal("pts/1", NOW - 4000)
    machine.terminal("pts/2", NOW - 9000)
    assert SessionProbe(machine.around).look(NOW).signals == {"input_age_s": 4000.0, "connections": 2.0}


def test_a_login_prompt_is_nobody_and_a_console_with_a_shell_is_somebody(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(400, "agetty", tty=(4 << 8) | 1)
    machine.process(401, "bash", tty=(4 << 8) | 64)
    machine.terminal("tty1", NOW - 1)
    machine.terminal("ttyS0", NOW - 90)
    assert SessionProbe(machine.around).look(NOW).signals == {"input_age_s": 90.0, "connections": 1.0}


def test_input_is_remembered_when_the_terminal_closes(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(700, "bash", tty=PTS | 3)
    machine.terminal("pts/3", NOW - 100)
    people = SessionProbe(machine.around)
    people.look(NOW)
    machine.process(700, "bash", tty=0)
    assert people.look(NOW + 500).signals == {"input_age_s": 600.0, "connections": 0.0}


def test_without_proc_nothing_is_known_of_people(tmp_path: Path) -> None:
    seen = SessionProbe(HostView({}, tmp_path)).look(NOW)
    assert seen.signals == {}
    assert seen.unknown == ("input_age_s", "connections")
    assert seen.troubles


def test_where_others_processes_are_hidden_utmp_says_who_is_logged_in(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for file in (tmp_path / "proc" / "1").iterdir():
        file.unlink()
    shape = UTMP_64 if os.uname().machine in ("aarch64", "arm64", "riscv64") else UTMP_32
    entries = [
        entry(shape, 7, 900, "pts/4", "198.51.100.7"),
        entry(shape, 7, 901, "pts/5", "tmux(900).%0"),
        entry(shape, 8, 902, "pts/6", ""),
    ]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "utmp").write_bytes(b"".join(entries) + b"torn")
    machine.terminal("pts/4", NOW - 77)
    machine.terminal("pts/5", NOW - 1)
    machine.terminal("pts/6", NOW - 1)
    assert SessionProbe(machine.around).look(NOW).signals == {"input_age_s": 77.0, "connections": 1.0}


@pytest.mark.parametrize(("machine", "shape"), [("x86_64", UTMP_32), ("aarch64", UTMP_64)])
def test_utmp_has_384_bytes_an_entry_and_400_where_there_never_were_32_bits(machine: str, shape: struct.Struct) -> None:
    assert shape.size == (400 if machine == "aarch64" else 384)
    data = entry(shape, 7, 4242, "pts/12", "host") + entry(shape, 6, 1, "tty1", "") + entry(shape, 7, 1, "../../etc", "")
    assert [(one.pid, one.line, one.host) for one in parse_utmp(data, machine)] == [(4242, "pts/12", "host")]


def entry(shape: struct.Struct, kind: int, pid: int, device: str, host: str) -> bytes:
    return shape.pack(kind, pid, device.encode(), b"id", b"anna", host.encode(), *[0] * 9, b"")


@pytest.mark.parametrize(
    ("device", "name"),
    [(PTS | 3, "pts/3"), (136 << 8 | 300 & 0xFF | (300 & 0xFFF00) << 12, "pts/300"), (0, ""), ((4 << 8) | 2, "tty2"),
     ((4 << 8) | 65, "ttyS1"), ((204 << 8) | 64, "ttyAMA0"), ((229 << 8) | 0, "hvc0"), ((5 << 8) | 1, "")],
)  # fmt: skip
def test_terminals_are_named_by_their_device_number(device: int, name: str) -> None:
    assert format_terminal(device) == name


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="terminals and /proc as Linux has them")
def test_a_real_terminal_of_a_real_process_is_seen_and_told() -> None:
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs).removeprefix("/dev/")
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        os.read(theirs, 100)
        os.write(theirs, b"read\r\n")
        time.sleep(60)
        os._exit(0)
    try:
        os.write(ours, b"hello\n")
        wait_for(ours, b"read")
        around = HostView.real()
        found = list_terminal_processes(around)
        assert found[child].line == name
        age = SessionProbe(around).look(time.time()).signals["input_age_s"]
        assert 0 <= age < 60
        assert write_to_terminals(around, "costguard: last call") >= 1
        wait_for(ours, b"last call")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(ours)
        os.close(theirs)


def wait_for(handle: int, word: bytes) -> None:
    seen = b""
    while word not in seen:
        assert select.select([handle], [], [], 20)[0], seen
        seen += os.read(handle, 1000)
