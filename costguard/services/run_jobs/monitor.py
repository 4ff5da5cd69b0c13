"""Monitor the program while it runs: steps, cost so far, deviation from the quote, spot notices; update the record.

Nothing here may harm the program: a failure is printed once, and the next tick tries again.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.errors import CostguardError, InputError, shorten, to_one_line
from costguard.guard.escalation import SUCCEEDED, Hook
from costguard.runs.progress import (
    HOUR_S,
    ProgressLog,
    estimate_seconds_left,
    format_outside_quote,
    format_progress_line,
    is_outside_quote,
)
from costguard.runs.record import JobAttempt, JobTerms
from costguard.services.guarding.act.hooks import HookCall, run_hook_command
from costguard.services.guarding.overrides import get_now
from costguard.services.run_jobs.machine_provider import get_sigterm_grace_s
from costguard.services.run_jobs.record_store import RunRecordStore
from costguard.system.child.hints import HintReceiver
from costguard.system.child.process import ChildProcess
from costguard.system.child.spot_notices import SpotNotice, SpotNoticeWatcher
from costguard.system.child.terminal import TerminalTitle, write_message
from costguard.values.money import Money

HEARTBEAT_S = 60.0
"""How often the record says that it lives: what a crash leaves unknown is at most this much."""
LOG_EVERY_S = 600.0
NOTICE_TEXT_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeReaction:
    """The reaction to a spot notice: a command to run, a signal to send to the program; empty and None: neither."""

    command: tuple[str, ...] = ()
    signal: int | None = None


def read_boot_clock_s() -> float:
    """Return the seconds since boot, including suspended time, which costs money as well."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class RunMonitor:
    """State of the attempt while it runs. `limit`: the job's own cap. `prepare`: called first in a hook's process."""

    book: RunRecordStore
    attempt: JobAttempt
    terms: JobTerms
    hints: HintReceiver
    notices: SpotNoticeWatcher
    on_notice: NoticeReaction
    title: TerminalTitle
    limit: Money | None = None
    clock: Callable[[], float] = read_boot_clock_s
    prepare: Callable[[], None] | None = None
    child: ChildProcess | None = None
    marks: ProgressLog = field(default_factory=ProgressLog)
    noticed: list[str] = field(default_factory=list)
    _began_s: float = 0.0
    _kept_s: float = 0.0
    _logged_s: float = 0.0
    _lasted_s: float | None = None
    _told: set[str] = field(default_factory=set)
    _hook: threading.Thread | None = None

    def begin(self, child: ChildProcess) -> None:
        """Start monitoring the program."""
        self.child, self._began_s = child, self.clock()
        self.hints.begin()
        self.notices.begin()

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since it began."""
        return self.clock() - self._began_s

    def snapshot_attempt(self) -> JobAttempt:
        """Return the attempt as of now; its times count from its beginning and ignore changes of the wall clock."""
        lasted_s = self.elapsed_s if self._lasted_s is None else self._lasted_s
        seen_at = self.attempt.began_at + timedelta(seconds=lasted_s)
        return replace(self.attempt, seen_at=seen_at, first_step=self.marks.first_step, last_step=self.marks.last_step)

    def tick(self) -> None:
        """Check everything once. Raises nothing."""
        try:
            self._read_steps()
            notice = self.notices.notice
            if notice is not None:
                self.notices.notice = None
                self.handle_notice(notice)
            self._show_progress()
            if self.elapsed_s - self._kept_s >= HEARTBEAT_S:
                self._kept_s = self.elapsed_s
                self.book.put_attempt(self.snapshot_attempt())
                self._warn_of_twin_runs()
        except CostguardError as error:
            self._say_once(str(error).splitlines()[0])
        except Exception as broken:  # noqa: BLE001 - the program goes on, whatever it is
            self._say_once(f"costguard itself failed ({type(broken).__name__}: {to_one_line(str(broken))}); the job continues")

    def handle_end_signal(self, number: int) -> None:
        """Handle a SIGTERM to costguard: treat it as a spot notice if the provider announces the end of a machine this way."""
        cloud = self.terms.machine.provider
        grace_s = get_sigterm_grace_s(cloud) if cloud and number == signal.SIGTERM else None
        if cloud and grace_s is not None:
            self.handle_notice(SpotNotice(cloud, "SIGTERM, which it sends before it stops the machine", grace_s), signals=False)

    def handle_notice(self, notice: SpotNotice, *, signals: bool = True) -> None:
        """Handle a spot notice: print it, run the hook, signal the program."""
        text = shorten(to_one_line(notice.text), NOTICE_TEXT_MAX)
        self.noticed.append(f"{notice.cloud}: {text}")
        write_message(f"{notice.cloud} will take this machine away soon: {text}")
        if self.on_notice.signal is not None and signals and self.child is not None:
            self.child.send(self.on_notice.signal)
            write_message(f"the job was sent {signal.Signals(self.on_notice.signal).name}")
        if self.on_notice.command and self._hook is None:
            self._hook = threading.Thread(target=self._run_notice_hook, args=(notice,), name="on-notice")
            self._hook.start()

    def end(self) -> None:
        """Stop monitoring after the program's end: read the last steps."""
        self._lasted_s = self.elapsed_s
        self.notices.end()
        self.hints.close()
        with suppress(Exception):
            self._read_steps()
        self.title.end()

    def wait(self) -> None:
        """Wait for the notice hook to end, which its time limit bounds."""
        if self._hook is not None:
            self._hook.join()

    def _read_steps(self) -> None:
        steps = self.hints.take_steps()
        if steps and self.marks.first_step is None:
            self.marks.first_step = steps[0]
        if steps:  # what came since the last look came by now: the newest is as old as that at most
            self.marks.add(steps[-1], self.elapsed_s)

    def _warn_of_twin_runs(self) -> None:
        others = [one for one in self.book.record.unfinished if one.id != self.attempt.id]
        for one in others:
            self._say_once(f"attempt {one.number} runs on {one.host or 'another machine'} at the same time: the job runs twice")

    def _show_progress(self) -> None:
        attempts = self.book.record.put_attempt(self.snapshot_attempt())
        hours, spent = attempts.seconds / HOUR_S, attempts.spent
        left = estimate_seconds_left(self.marks.kept, self.terms.steps, self.elapsed_s)
        line = format_progress_line(self.book.record.job, hours, spent, self.terms, left)
        if self.title.shows:
            self.title.show(line)
        elif self.elapsed_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = self.elapsed_s
            write_message(line)
        if left is not None:
            takes = hours + left / HOUR_S
            if is_outside_quote(takes, self.terms.hours) and self.terms.hours is not None:
                self._say_once(format_outside_quote(takes, self.terms.hours), key="astray")
        if spent is not None and self.limit is not None and self.limit < spent:
            self._say_once(
                f"the job has passed its max_usd of {self.limit.format()}: it continues, because ending it would lose work",
                key="max",
            )
        reserve = self.attempt.held
        own_spending = self.snapshot_attempt().spent
        if reserve is not None and own_spending is not None and reserve < own_spending:
            self._say_once(f"the job has passed the {reserve.format()} {reserve.currency} that were held for it", key="held")

    def _say_once(self, text: str, *, key: str = "") -> None:
        if (key or text) not in self._told:
            self._told.add(key or text)
            write_message(text)

    def _run_notice_hook(self, notice: SpotNotice) -> None:
        """Run the hook within its time limit. It gets our whole environment, because it is the user's own command."""
        now = get_now()
        hook = Hook(name="on-notice", command=self.on_notice.command, env=tuple(os.environ))
        call = HookCall(
            id=self.attempt.id,
            hook=hook,
            within_s=notice.within_s,
            at=now,
            provider=notice.cloud,
            account=self.terms.machine.account,
            region="",
            resource=str(self.child.pid if self.child else ""),
            name=self.book.record.job,
            owner=self.terms.machine.owner,
            policy="",
            reason=notice.text,
            deadline=compute_deadline(now, notice.within_s),
        )
        end = run_hook_command(call, prepare=self.prepare)
        how = "succeeded" if end.state == SUCCEEDED else f"did not: {end.why}"
        write_message(f"--on-notice {how}")


def compute_deadline(now: datetime, within_s: float) -> datetime:
    """Return when the machine will probably be reclaimed."""
    return now + timedelta(seconds=within_s)


def parse_notice_reaction(command: str | None, signalled: str | None) -> NoticeReaction:
    """Parse the flags of the reaction; raise InputError if they are invalid."""
    try:
        words = tuple(shlex.split(command)) if command else ()
    except ValueError:
        raise InputError("has an unclosed quote", field="--on-notice", hint='write --on-notice "save.sh --now"') from None
    if signalled is None:
        return NoticeReaction(command=words)
    name = signalled.upper().removeprefix("SIG")
    if name not in ("USR1", "TERM"):
        hint = "write USR1 (the job must handle it) or TERM"
        raise InputError(f"is neither USR1 nor TERM: {shorten(signalled)}", field="--signal-on-notice", hint=hint)
    return NoticeReaction(command=words, signal=signal.SIGUSR1 if name == "USR1" else signal.SIGTERM)
