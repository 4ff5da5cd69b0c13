"""Run hooks: each in its own thread, with a time limit and a minimal environment.

A command gets no shell, its own process group, the few variables that every program needs, those that its hook names, and
COSTGUARD_* facts; the same facts as JSON on standard input. At its time limit the group gets SIGTERM and, 5 s later, SIGKILL;
processes that left the group are not followed. The beginning and the end of its output are kept. This module does not write the
ledger: a guard run collects the ended hooks and records them.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING

from costguard.guard.escalation import (
    BEGUN,
    FAILED,
    LOST,
    OUTPUT_CHARS_MAX,
    SUCCEEDED,
    TIMED_OUT,
    Hook,
    HookEnd,
    clip_output,
    settle_hook_runs,
)
from costguard.system.process import build_child_environment
from costguard.values.instant import EARLIEST
from costguard.values.text_format import encode_plain

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.guard.store import GuardStore

HOOKS_AT_ONCE_MAX = 8
"""Hooks that run at once; the others are due in the next guard run."""
KILL_AFTER_S = 5.0
"""Between SIGTERM and SIGKILL."""
READ_STEP_S = 0.05
KEPT_BYTES = 4 * OUTPUT_CHARS_MAX
"""Of each end of what a program says, before it is read as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """The facts passed to a hook. `id`: of this run; a repeated run has the same. `within_s`: its time limit in seconds.

    `deadline`: when the act after it is due; None: no act follows.
    """

    id: str
    hook: Hook
    within_s: float
    at: datetime
    provider: str
    account: str
    region: str
    resource: str
    name: str
    owner: str
    policy: str
    reason: str
    deadline: datetime | None = None

    def build_facts(self) -> dict[str, str]:
        """Return the facts as text without control characters."""
        facts = {
            "provider": self.provider,
            "account": self.account,
            "region": self.region,
            "id": self.resource,
            "name": self.name,
            "owner": self.owner,
            "policy": self.policy,
            "reason": self.reason,
            "at": _format_instant(self.at),
            "deadline": _format_instant(self.deadline) if self.deadline else "",
            "run": self.id,
            "hook": self.hook.name,
        }
        return {name: encode_plain(text) for name, text in facts.items()}

    def build_body(self) -> bytes:
        """Return the facts as JSON: the standard input of a command, the body of a request."""
        return json.dumps({"schema": "costguard.hook/1", **self.build_facts()}, separators=(",", ":")).encode()


PostHook = Callable[[HookCall], HookEnd]
"""Asks the url of a hook by POST, once, within its time. It raises nothing."""


def refuse_web_hook(call: HookCall) -> HookEnd:
    """Fail a URL hook if there is no HTTP client."""
    return HookEnd(state=FAILED, why=f"no HTTP client is available for the url of {call.hook.name}")


@dataclass(slots=True)
class HookRunner:
    """Runs the hooks of this process. `post`: calls the hooks that are URLs."""

    post: PostHook = refuse_web_hook
    _going: dict[str, _RunningHook] = field(default_factory=dict)
    _ends: dict[str, HookEnd] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def has_room(self) -> bool:
        """Return whether one more hook may begin."""
        with self._lock:
            return len(self._going) < HOOKS_AT_ONCE_MAX

    def begin(self, call: HookCall) -> None:
        """Start a hook and return at once. Its begin must be recorded before."""
        going = _RunningHook()
        with self._lock:
            self._going[call.id] = going
        going.thread = threading.Thread(target=self._run_hook, args=(call, going), daemon=True, name=f"hook-{call.hook.name}")
        going.thread.start()

    def list_running(self) -> frozenset[str]:
        """Return the ids of hooks that run, or have ended and were not forgotten yet."""
        with self._lock:
            return frozenset((*self._going, *self._ends))

    def get_ends(self) -> Mapping[str, HookEnd]:
        """Return the ends of hooks that were not forgotten yet, by id."""
        with self._lock:
            return dict(self._ends)

    def forget(self, run_id: str) -> None:
        """Drop the end of a hook after it was recorded."""
        with self._lock:
            self._ends.pop(run_id, None)

    def wait(self, *, cut_short: bool = False) -> None:
        """Wait until no hook runs, which the time limits bound. `cut_short`: end them now."""
        with self._lock:
            going = list(self._going.values())
        for one in going:
            if cut_short:
                one.over.set()
        for one in going:
            if one.thread is not None:
                one.thread.join()

    def _run_hook(self, call: HookCall, going: _RunningHook) -> None:
        try:
            end = self.post(call) if call.hook.url else run_hook_command(call, going.over)
        except Exception as broken:  # noqa: BLE001 - whatever it is, it is how this run ended
            end = HookEnd(state=LOST, why=f"running it failed ({type(broken).__name__})")
        with self._lock:
            del self._going[call.id]
            self._ends[call.id] = end


def record_hook_ends(book: GuardStore, hooks: HookRunner, now: datetime, *, lost: bool = True) -> None:
    """Record ended hooks of this process and, with `lost`, mark overdue hooks of other processes as lost.

    Raises LedgerError if that cannot be written; the next call tries again.
    """
    ends = hooks.get_ends()
    open_ = [run for run in book.load_hook_runs(now) if run.state == BEGUN]
    for run, end in settle_hook_runs(open_, ends, hooks.list_running(), now if lost else EARLIEST):
        book.end_hook(run.id, end, now)
    for run_id in ends:
        hooks.forget(run_id)


@dataclass(slots=True)
class _RunningHook:
    """A running hook. `over`: set to end it before its time limit."""

    over: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


def run_hook_command(
    call: HookCall, over: threading.Event | None = None, *, prepare: Callable[[], None] | None = None
) -> HookEnd:
    """Run the command of `call` once, until it ends or reaches its time limit. `over`: an event that ends it now.

    `prepare`: called in the new process before the command is executed.
    """
    until = monotonic() + call.within_s
    try:
        process = subprocess.Popen(  # noqa: S603 - what the settings state, and no shell
            call.hook.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=build_hook_environment(call, os.environ),
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - calls of the system alone
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "its command cannot be read"
        return HookEnd(state=FAILED, why=f"{encode_plain(call.hook.command[0], 200)} cannot be run: {why.lower()}")
    with process:
        return _follow_process(process, call, until, over or threading.Event())


def build_hook_environment(call: HookCall, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a hook: no key or secret of costguard, unless the hook names the variable."""
    environment = build_child_environment(environ, names=call.hook.env)
    return environment | {f"COSTGUARD_{name.upper()}": text for name, text in call.build_facts().items()}


def _follow_process(process: subprocess.Popen[bytes], call: HookCall, until: float, over: threading.Event) -> HookEnd:
    assert process.stdin is not None  # noqa: S101 - for the type checker: all three were asked for
    assert process.stdout is not None  # noqa: S101
    reader = _OutputReader(process.stdout)
    with suppress(OSError):  # it may have closed its input: it is less than a pipe holds, so this does not wait
        process.stdin.write(call.build_body())
        process.stdin.close()
    while not _has_ended(process) and monotonic() < until and not over.is_set():
        reader.read_for(READ_STEP_S)
    cut = not _has_ended(process)
    if cut:
        _end_group(process, reader)
    reader.drain()
    status = process.wait()
    output = reader.get_text()
    if cut and over.is_set():
        return HookEnd(state=LOST, status=status, why="the watchdog ended while the hook ran", output=output)
    if cut:
        return HookEnd(state=TIMED_OUT, status=status, why=f"it was killed after {call.within_s:g} s", output=output)
    if status:
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return HookEnd(state=FAILED, status=status, why=f"it {how}", output=output)
    return HookEnd(state=SUCCEEDED, status=status, output=output)


def _end_group(process: subprocess.Popen[bytes], reader: _OutputReader) -> None:
    """End the whole process group. The leader is reaped later, so that its id cannot be reused by another group."""
    _signal_group(process, signal.SIGTERM)
    patience = monotonic() + KILL_AFTER_S
    while not _has_ended(process) and monotonic() < patience:
        reader.read_for(READ_STEP_S)
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether it has ended, without reaping it, so that its process id is not reused."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class _OutputReader:
    """Reads the output of a program as it comes; the middle of a long output is dropped."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._head, self._tail, self._left_out, self._open = pipe, b"", b"", 0, True
        os.set_blocking(pipe.fileno(), False)

    def read_for(self, seconds: float) -> None:
        """Read available output, waiting at most `seconds` for it."""
        if not self._open:
            sleep(seconds)
            return
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            if selector.select(seconds):
                self._read_piece()

    def drain(self) -> None:
        """Read available output without waiting: a program left behind may hold the pipe open for ever."""
        old_size = -1
        while self._open and old_size != self._size:
            old_size = self._size
            self._read_piece()

    def get_text(self) -> str:
        """Return the output as text, short enough to be stored."""
        if self._left_out:
            mark = f"\n[{self._left_out} bytes left out]\n".encode()
            return clip_output(
                (self._head[: OUTPUT_CHARS_MAX // 2] + mark + self._tail[-OUTPUT_CHARS_MAX // 2 :]).decode(errors="replace")
            )
        return clip_output((self._head + self._tail).decode(errors="replace"))

    @property
    def _size(self) -> int:
        return len(self._head) + len(self._tail) + self._left_out

    def _read_piece(self) -> None:
        try:
            piece = os.read(self._pipe.fileno(), 2**16)
        except BlockingIOError:
            return
        self._open = bool(piece)
        room = KEPT_BYTES - len(self._head)
        self._head += piece[:room]
        tail = self._tail + piece[room:]
        self._left_out += max(0, len(tail) - KEPT_BYTES)
        self._tail = tail[-KEPT_BYTES:]


def _format_instant(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
