"""The running agent: one thread measures and listens, one reads the GPUs, one sends.

None waits for another.

    every second      duty and power of the GPUs, if there are any (nvml.py)
    every 15 s        a record, kept on disk until the watchdog acknowledges it, and a beat
    on arrival        hints of jobs; a request of a local user is sent at once
    every minute      the dead-man switch is evaluated, if it is armed

The 15 s are the watchdog's setting; any of its answers may change them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from costguard_agent import __version__, state_dir
from costguard_agent.clock import Moment, RecordClock, explain_gap, read_clock
from costguard_agent.collector import Collector
from costguard_agent.diagnostics import AgentError, AgentLog
from costguard_agent.enrollment import load_enrollment, load_key
from costguard_agent.local_requests import HintListener, LocalRequestQueue
from costguard_agent.sender import ANSWERED, BeatResult, BeatSender
from costguard_agent.spool import RecordSpool, SequenceNumbers
from costguard_agent.status_file import StatusFile

MINUTE_S, LATE_S = 60.0, 10.0
LAST_S, PAUSE_S, HASTE_S, FLOOD_S = 0.7, 0.2, 2.0, 0.05
"""For the last beat; between beats that empty the list, two that somebody here waits for, two reads of hints."""
RESTART_S, RESTART_VARIABLE = 600.0, "COSTGUARD_AGENT_ANEW"
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_agent() -> int:
    """Run until a signal ends it; raises AgentError if it cannot start."""
    os.umask(0o077)
    _disable_core_dumps()
    state = state_dir.make_dir(state_dir.find_state_dir())
    joined, secret = load_enrollment(state), load_key(state)
    runtime = state_dir.make_dir(state_dir.find_runtime_dir(), state_dir.OPEN_FOLDER)
    with _hold_lock(state):
        return AgentDaemon(state, runtime, joined, secret).run()


class AgentDaemon:
    """The agent of one machine."""

    def __init__(self, state: Path, runtime: Path, joined: Any, secret: bytes) -> None:  # noqa: ANN401 - Joined
        self._log = AgentLog()
        self._calendar = RecordClock()
        moment = read_clock()
        self._spool, self._numbers, self._asks = (
            RecordSpool(state, self._calendar.to_unix_ms(moment)),
            SequenceNumbers(state),
            LocalRequestQueue(state),
        )
        self._listener = HintListener(runtime / state_dir.SOCKET, self._asks)
        self._sender = BeatSender(joined, secret, self._spool, self._numbers, self._asks, boot_id=_make_boot_id())
        self._status = StatusFile(runtime / state_dir.STATUS, joined)
        self._measuring = Collector(read_clock(), joined.every_s)
        self._wake, self._ended = threading.Event(), threading.Event()
        self._answers: deque[tuple[Moment, Mapping[str, Any] | None]] = deque(maxlen=1)
        """The last one that the switch does not know yet; None: a refusal."""
        self._gap = ""
        self._every_s = joined.every_s
        self._troubles: tuple[str, ...] = ()
        self._switch = _load_switch(state, joined.agent)
        self._log.say(f"{__version__} monitors this machine for {joined.url} as {joined.name or joined.agent}")

    def run(self) -> int:
        """Run until a signal ends it: within a second, after an attempt to send a last beat."""
        ended, _kept = _listen_for_signals()
        telling = threading.Thread(target=self._run_sender, name="tell", daemon=True)
        telling.start()
        try:
            self._run_loop(ended)
        finally:
            self._finish_record(read_clock(), last=True)
            self._ended.set()
            self._wake.set()
            telling.join(LAST_S + 0.2)
            self._listener.close()
            self._measuring.close()
            self._status.record_end(self._calendar.to_unix_ms())
        self._log.say("ended")
        return 0

    def _run_loop(self, ended: Any) -> None:  # noqa: ANN401 - a socket
        last_moment = read_clock()
        record_s, minute_s = last_moment.awake_s + self._every_s, last_moment.awake_s + MINUTE_S
        while True:
            ready, _, _ = select.select([self._listener, ended], [], [], max(0.0, record_s - time.monotonic()))
            if ended in ready:
                return
            moment = read_clock()
            if self._listener in ready:
                self._listener.drain(self._calendar.to_unix_ms(moment))
                if self._listener.asked:
                    self._wake.set()
                if moment.awake_s < record_s:
                    time.sleep(FLOOD_S)
                    continue
            gap = explain_gap(last_moment, moment, most_s=max(0.0, record_s - last_moment.awake_s) + LATE_S)
            if gap:
                self._handle_gap(gap, last_moment, moment)
                record_s = moment.awake_s + self._every_s
            else:
                self._finish_record(moment)
                if self._measuring.outdated:
                    self._restart_process(moment)
                record_s = max(record_s + self._every_s, moment.awake_s + self._every_s / 2)
            if moment.awake_s >= minute_s:
                minute_s = moment.awake_s + MINUTE_S
                self._run_each_minute(moment)
            last_moment = moment

    def _handle_gap(self, gap: str, last_moment: Moment, moment: Moment) -> None:
        """Handle a gap between two readings, which cannot be judged."""
        jump_ms = self._calendar.detect_jump(last_moment, moment)
        if jump_ms:
            self._spool.shift_times(jump_ms)
        self._measuring.forget(moment)
        if self._switch is not None:
            self._switch.handle_gap(self._correct_moment(moment))
        self._gap = f"no records for a gap: {gap}"
        self._log.say(self._gap)

    def _finish_record(self, moment: Moment, *, last: bool = False) -> None:
        """Build a record, store it and wake the sender."""
        measured = self._measuring.finish_record(moment, self._calendar.to_unix_ms(moment), self._listener.heard.to_signals())
        if measured is None:
            return
        if last and not measured.record["signals"]:
            return
        self._spool.add(measured.record, self._calendar.to_unix_ms(moment))
        self._troubles = tuple(filter(None, (*self._list_own_troubles(), self._gap, *measured.troubles)))
        self._gap = ""
        self._log.log_troubles(self._troubles)
        self._status.record = measured.record
        if self._switch is not None:
            self._pass_answers_to_switch()
            self._switch.add_record(self._correct_moment(moment), measured.over_s, measured.record["signals"], measured.unknown)
        self._wake.set()

    def _pass_answers_to_switch(self) -> None:
        """Pass the watchdog's answers to the switch, in the switch's own thread."""
        while self._answers:
            moment, answer = self._answers.popleft()
            if answer is None:
                self._switch.handle_refusal(self._correct_moment(moment))
            else:
                self._switch.handle_answer(self._correct_moment(moment), answer)

    def _correct_moment(self, moment: Moment) -> Moment:
        return moment._replace(wall_ms=self._calendar.to_unix_ms(moment))

    def _list_own_troubles(self) -> tuple[str, ...]:
        ahead_s = self._calendar.ahead_ms / 1000
        clock = f"this machine's clock is {ahead_s:+.0f} s off: records are dated by the watchdog's" if ahead_s else ""
        return (clock, self._spool.trouble, self._numbers.trouble, self._asks.trouble, self._status.trouble)

    def _run_each_minute(self, moment: Moment) -> None:
        if self._switch is not None:
            self._pass_answers_to_switch()
            for text in self._switch.look(self._correct_moment(moment), self._asks.until_ms):
                self._log.say(text)

    def _restart_process(self, moment: Moment) -> None:
        """Restart as a new process, because the NVIDIA library loaded in this one no longer fits the driver."""
        last = os.environ.get(RESTART_VARIABLE, "")
        if last.isdigit() and moment.boot_s - int(last) < RESTART_S:
            return
        self._log.say("the driver was updated: the agent restarts")
        self._listener.close()
        os.environ[RESTART_VARIABLE] = str(int(moment.boot_s))
        words = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]
        os.execv(sys.executable, [sys.executable, *words[1:]])  # noqa: S606 - the same program again

    def _run_sender(self) -> None:
        """Run the sending thread: it sends after a new record, after a request, and at the retry time after a failure."""
        last_s, next_s, urgent = float("-inf"), 0.0, False
        wake_s: float | None = None
        while not self._ended.is_set():
            self._wake.wait(None if wake_s is None else max(0.0, wake_s - time.monotonic()))
            self._wake.clear()
            if self._ended.is_set():
                break
            urgent, self._listener.asked = urgent or self._listener.asked, False
            wake_s = last_s + HASTE_S if urgent else next_s
            if time.monotonic() < wake_s:
                continue
            beat = self._send_beat()
            last_s, urgent = time.monotonic(), False
            wait_s = PAUSE_S if beat.more else beat.wait_s
            next_s = last_s + (wait_s or 0.0)
            wake_s = None if wait_s is None else next_s
        self._send_beat()

    def _send_beat(self) -> BeatResult:
        ending = self._ended.is_set()
        at_ms = self._calendar.to_unix_ms()
        try:
            beat = self._sender.send_beat(at_ms, self._troubles, within_s=LAST_S if ending else 10.0)
        except Exception as error:  # noqa: BLE001 - whatever it is, measuring goes on and the next beat is tried
            beat = BeatResult("broken", f"a report could not be sent: {type(error).__name__}: {error}", 60.0)
        if beat.ahead_ms is not None:
            self._calendar.correct(beat.ahead_ms)
            self._spool.shift_times(-beat.ahead_ms)
        if beat.state == ANSWERED:
            self._every_s = self._sender.every_s
            self._measuring.set_interval(self._every_s)
        if beat.alive or beat.state == ANSWERED:
            self._answers.append((read_clock(), beat.answer if beat.state == ANSWERED else None))
        for ask, why in beat.done:
            self._listener.answer(ask.reply_to, {"why": why, "asked": True})
        self._log.log_state(beat.state, beat.why or "the watchdog answers")
        self._status.record_beat(beat, at_ms, waiting=len(self._spool), dropped=self._spool.dropped, troubles=self._troubles)
        return beat


def _load_switch(state: Path, agent_id: str) -> Any:  # noqa: ANN401 - imported only where a person armed it
    """Return the dead-man switch; None if it is off."""
    if not (state / "deadman.json").exists():
        return None
    from costguard_agent.deadman_switch import DeadmanSwitch
    from costguard_agent.host import HostView

    return DeadmanSwitch.load_armed(state, agent_id, HostView.real())


@contextlib.contextmanager
def _hold_lock(state: Path) -> Iterator[None]:
    """Hold the lock of the state folder, so that no second agent works from it."""
    handle = os.open(state / state_dir.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, state_dir.PRIVATE_FILE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise AgentError(f"an agent is already running from {state}: costguard-agent status") from error
    finally:
        os.close(handle)


def _listen_for_signals() -> tuple[Any, Any]:
    """Return a socket that becomes readable when a signal asks to end, and its other end."""
    import socket

    reading, writing = socket.socketpair()
    writing.setblocking(False)  # noqa: FBT003 - its own name for it
    for number in ENDS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup stays nohup
            signal.signal(number, lambda *_: writing.send(b"."))
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    return reading, writing


def _disable_core_dumps() -> None:
    """Disable core dumps, because this process has a key in memory."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _make_boot_id() -> str:
    """Return an id of this start of the agent and this boot.

    By it the watchdog detects two machines with the same key, from a copied disk.
    """
    boot = ""
    with contextlib.suppress(OSError, ValueError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}.{os.urandom(4).hex()}"
