"""The watchdog's end of the channel to its door: one thread that never waits for a door, and whose work has a budget.

A door that sends without end, or does not read its answers, costs the watchdog a bounded part of one core and of memory:

- frames are read as fast as RATE and CPU_SHARE allow, and at most IN_FLIGHT_MOST of one door wait for their commit; the rest
  waits in the door;
- answers that a door does not read are kept up to OUTBOX_MOST bytes, then its connection is closed;
- a frame of another form, or with a value that no verified message can have, closes the connection.

The watchdog's own door has an inherited socket. A door that somebody else started comes by a Unix-domain socket in a folder
that this user alone can enter, beside the ledger.
"""

from __future__ import annotations

import os
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from costguard.ledger.db.address import parse_ledger_address
from costguard.services.door_messages import (
    AdmitOffer,
    AdmitReply,
    BeatOffer,
    BeatReply,
    FrameError,
    FromWatchdog,
    HoldEndOffer,
    HoldEndReply,
    JoinOffer,
    JoinReply,
    PersonOffer,
    PersonReply,
    Pulse,
    decode_from_door,
    encode_frame,
    split_frames,
)
from costguard.settings import Settings, get_data_path, resolve_ledger_url
from costguard.system.logs import get_log

READ_MOST = 64 * 1024
"""Bytes of one read."""
FRAMES_A_TURN = 32
"""Frames of one door before the others have their turn."""
IN_FLIGHT_MOST = 900
"""Questions of one door that wait for an answer; the writer's queue holds a few more."""
OUTBOX_MOST = 2 * 2**20
RATE, BURST = 500.0, 2000.0
"""Frames a second of all doors: a thousand agents send 67."""
CPU_SHARE, CPU_BURST_S = 0.25, 0.5
"""Of one core, what this thread may use; and how many seconds of it at once."""
PAUSE_S = 0.02
DOORS_MOST = 4
SOCKET_NAME = "socket"
PATH_MOST = 100
"""Bytes of a Unix-domain socket's path: Linux takes 108, macOS 104, each with a NUL."""
END_WAIT_S, CONNECT_S = 5.0, 1.0


class DoorDesk(Protocol):
    """Who takes what doors offer; none of these waits."""

    def take_pulse(self, pulse: Pulse) -> None:
        """Take a sign of life."""

    def take_beat(self, offer: BeatOffer, answer: Callable[[BeatReply], object]) -> None:
        """Take a beat, and call `answer` once, from any thread."""

    def take_join(self, offer: JoinOffer, answer: Callable[[JoinReply], object]) -> None:
        """Take a request to join, and call `answer` once, from any thread."""

    def take_act(self, offer: PersonOffer, answer: Callable[[PersonReply], object]) -> None:
        """Take a stop or an answer that a person confirmed, and call `answer` once, from any thread."""

    def take_admission(self, offer: AdmitOffer | HoldEndOffer, answer: Callable[[AdmitReply | HoldEndReply], object]) -> None:
        """Take a run that wants a hold, or the end of one, and call `answer` once, from any thread."""


@dataclass(slots=True, eq=False)
class DoorConnection:
    """One connected door. `heard_at`: when it last sent something, by the monotonic clock; `open`: whether it is connected.

    `throttled`: its frames wait for the budget, so that its silence says nothing. `pending`: there may be complete frames left.
    """

    wire: socket.socket
    heard_at: float
    open: bool = True
    heard: bool = False
    throttled: bool = False
    pending: bool = False
    in_flight: int = 0
    inbox: bytearray = field(default_factory=bytearray)
    outbox: bytearray = field(default_factory=bytearray)
    closed: Callable[[], object] | None = None


class DoorChannel:
    """Connects doors with `desk`. Call `start` first and `end` last."""

    def __init__(self, desk: DoorDesk) -> None:
        self._desk = desk
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakes = socket.socketpair()
        self._tasks: deque[Callable[[], None]] = deque()
        self._doors = list[DoorConnection]()
        self._listener: socket.socket | None = None
        self._paths = list[tuple[Path, Path]]()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="door-channel", daemon=True)
        self._cpu_s, self._frames, self._filled_at = CPU_BURST_S, BURST, time.monotonic()
        for one in (self._waker, self._wakes):
            one.setblocking(False)  # noqa: FBT003 - the socket's own word
        self._selector.register(self._wakes, selectors.EVENT_READ)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Send the answers that are ready, close every connection, and end the thread."""
        self._ending = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join(END_WAIT_S)
        for path, folder in self._paths:
            with suppress(OSError):
                path.unlink()
                if path.parent != folder:
                    path.parent.rmdir()
                    (folder / SOCKET_NAME).unlink()

    def attach(self, wire: socket.socket, closed: Callable[[], object] | None = None) -> DoorConnection:
        """Connect a door by a socket that it inherited. `closed`: called when the connection is closed."""
        made = DoorConnection(wire, time.monotonic(), closed=closed)
        wire.setblocking(False)  # noqa: FBT003 - the socket's own word
        self._do(lambda: self._add(made))
        return made

    def listen(self, folder: Path) -> bool:
        """Listen for doors that others start, in `folder`; return False if another watchdog does."""
        path = _prepare_socket_path(folder)
        if path is None:
            return False
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.setblocking(False)  # noqa: FBT003 - the socket's own word
        made.bind(str(path))
        path.chmod(0o600)
        made.listen(DOORS_MOST)
        self._paths.append((path, folder))
        self._do(lambda: self._open_listener(made))
        return True

    def broadcast(self, message: FromWatchdog) -> None:
        """Send a message to every door; from any thread."""
        frame = encode_frame(message)

        def put() -> None:
            for door in list(self._doors):
                self._put(door, frame)

        self._do(put)

    def _do(self, task: Callable[[], None]) -> None:
        """Have the channel's thread do something."""
        self._tasks.append(task)
        self._wake()

    def _wake(self) -> None:
        with suppress(OSError):  # full: it is awake
            self._waker.send(b"\0")

    def _run(self) -> None:
        try:
            while not self._ending:
                self._turn()
            self._do_tasks()
        finally:
            for door in list(self._doors):
                self._flush(door)
                self._close(door, "the watchdog ends")
            for one in (self._waker, self._wakes, self._listener):
                if one is not None:
                    one.close()
            self._selector.close()

    def _turn(self) -> None:
        """Do what is to be done now: answers first, then what doors sent, as far as the budget goes."""
        limit = (
            0 if any(door.pending for door in self._doors) else PAUSE_S if any(door.throttled for door in self._doors) else None
        )
        events = self._selector.select(limit)
        with suppress(OSError):
            while self._wakes.recv(4096):
                pass
        self._do_tasks()
        readable = {key.data for key, mask in events if mask & selectors.EVENT_READ and key.data is not None}
        for key, mask in events:
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, DoorConnection) and mask & selectors.EVENT_WRITE:
                self._flush(key.data)
        for door in list(self._doors):
            if door in readable or door.pending or door.throttled:
                self._read(door, ready=door in readable)

    def _do_tasks(self) -> None:
        while self._tasks:
            self._tasks.popleft()()

    def _read(self, door: DoorConnection, *, ready: bool) -> None:
        """Read and take some frames of one door."""
        began = time.thread_time()
        door.throttled = not self._has_budget(door)
        if not door.throttled:
            try:
                if not ready or door.pending or self._receive(door):
                    self._take_frames(door)
            except FrameError as odd:
                self._close(door, str(odd))
            except Exception as error:  # noqa: BLE001 - whatever a door sends, the others are answered
                self._close(door, f"{type(error).__name__}: {error}")
            self._cpu_s -= time.thread_time() - began
        self._watch(door)

    def _take_frames(self, door: DoorConnection) -> None:
        taken = 0
        for body in split_frames(door.inbox, FRAMES_A_TURN):
            taken += 1
            self._take(door, body)
        door.pending = taken == FRAMES_A_TURN
        self._frames -= taken

    def _receive(self, door: DoorConnection) -> bool:
        """Read once; return False if the connection ended."""
        try:
            came = door.wire.recv(READ_MOST)
        except BlockingIOError:
            return True
        except OSError as error:
            self._close(door, error.strerror or "broken")
            return False
        if not came:
            self._close(door, "")
            return False
        door.heard_at, door.heard = time.monotonic(), True
        door.inbox += came
        return True

    def _take(self, door: DoorConnection, body: bytes) -> None:
        message = decode_from_door(body)
        if isinstance(message, Pulse):
            self._desk.take_pulse(message)
            return
        door.in_flight += 1

        def answer(reply: BeatReply | JoinReply | PersonReply | AdmitReply | HoldEndReply) -> None:
            frame = encode_frame(reply)
            self._do(lambda: self._answer(door, frame))

        if isinstance(message, BeatOffer):
            self._desk.take_beat(message, answer)
        elif isinstance(message, AdmitOffer | HoldEndOffer):
            self._desk.take_admission(message, answer)
        elif isinstance(message, JoinOffer):
            self._desk.take_join(message, answer)
        else:
            self._desk.take_act(message, answer)

    def _answer(self, door: DoorConnection, frame: bytes) -> None:
        door.in_flight -= 1
        self._put(door, frame)

    def _put(self, door: DoorConnection, frame: bytes) -> None:
        if not door.open:
            return
        door.outbox += frame
        self._flush(door)
        if len(door.outbox) > OUTBOX_MOST:
            self._close(door, "it does not read its answers")

    def _flush(self, door: DoorConnection) -> None:
        try:
            while door.open and door.outbox:
                del door.outbox[: door.wire.send(door.outbox)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._close(door, error.strerror or "broken")
        self._watch(door)

    def _watch(self, door: DoorConnection) -> None:
        """Watch what is needed now: reading while there is a budget, writing while there is something to send."""
        if not door.open:
            return
        mask = 0 if door.throttled or door.pending else selectors.EVENT_READ
        mask |= selectors.EVENT_WRITE if door.outbox else 0
        watched = self._selector.get_map().get(door.wire)
        if watched is not None and mask == 0:
            self._selector.unregister(door.wire)
        elif watched is None and mask:
            self._selector.register(door.wire, mask, door)
        elif watched is not None and watched.events != mask:
            self._selector.modify(door.wire, mask, door)

    def _has_budget(self, door: DoorConnection) -> bool:
        now = time.monotonic()
        passed, self._filled_at = now - self._filled_at, now
        self._cpu_s = min(CPU_BURST_S, self._cpu_s + passed * CPU_SHARE)
        self._frames = min(BURST, self._frames + passed * RATE)
        return self._cpu_s > 0 and self._frames >= 1 and door.in_flight < IN_FLIGHT_MOST

    def _accept(self) -> None:
        assert self._listener is not None  # noqa: S101 - it is what is ready
        with suppress(OSError):
            came, _ = self._listener.accept()
            if len(self._doors) >= DOORS_MOST:
                came.close()
                return
            came.setblocking(False)  # noqa: FBT003 - the socket's own word
            self._add(DoorConnection(came, time.monotonic()))
            get_log().info("door_connected")

    def _open_listener(self, made: socket.socket) -> None:
        self._listener = made
        self._selector.register(made, selectors.EVENT_READ)

    def _add(self, door: DoorConnection) -> None:
        self._doors.append(door)
        self._watch(door)

    def _close(self, door: DoorConnection, why: str) -> None:
        if not door.open:
            return
        door.open = False
        with suppress(KeyError, ValueError):
            self._selector.unregister(door.wire)
        with suppress(ValueError):
            self._doors.remove(door)
        door.wire.close()
        if why and not self._ending:
            get_log().warning("door_disconnected", why=why)
        if door.closed is not None:
            door.closed()


def find_channel_folder(settings: Settings) -> Path:
    """Return the folder of the socket: beside the ledger, or for a server's ledger in the data folder."""
    where = parse_ledger_address(resolve_ledger_url(settings))
    if where.path is not None:
        return where.make_sibling_path(".door")
    return Path(get_data_path(f"door-{sha256(where.shown.encode()).hexdigest()[:16]}"))


def find_socket(folder: Path) -> Path | None:
    """Return the path of the socket in `folder`; None if no watchdog made one. A link leads to one whose path is short."""
    path = folder / SOCKET_NAME
    with suppress(OSError):
        if not _is_own_folder(folder):
            return None
        target = path.readlink() if path.is_symlink() else path
        return target if target.exists() and _is_own_folder(target.parent) else None
    return None


def connect_to_watchdog(folder: Path) -> socket.socket | None:
    """Return a connection to the watchdog that listens in `folder`; None if there is none."""
    path = find_socket(folder)
    if path is None:
        return None
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(CONNECT_S)
        made.connect(str(path))
    except OSError:
        made.close()
        return None
    return made


def _prepare_socket_path(folder: Path) -> Path | None:
    """Return where to bind, free and in a folder of this user alone; None if a watchdog listens there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_own_folder(folder):
        get_log().error("door_folder_refused", folder=str(folder), why="others could enter it: chmod 700 it, or remove it")
        return None
    other = connect_to_watchdog(folder)
    if other is not None:
        other.close()
        return None
    path = folder / SOCKET_NAME
    old = find_socket(folder)
    if path.is_symlink() and old is not None:
        shutil.rmtree(old.parent, ignore_errors=True)
    path.unlink(missing_ok=True)
    if len(os.fsencode(path)) <= PATH_MOST:
        return path
    short = Path(tempfile.mkdtemp(prefix="costguard-")) / SOCKET_NAME
    path.symlink_to(short)
    return short


def _is_own_folder(folder: Path) -> bool:
    found = folder.lstat()
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077 and folder.is_dir() and not folder.is_symlink()
