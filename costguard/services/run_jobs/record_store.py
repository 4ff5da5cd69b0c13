"""The record of a job in a file of its own, and its hold and lease in the ledger.

    attempt recorded -> hold taken -> lease taken -> [the command runs] -> hold committed, lease lifted -> attempt closed

Each step is written before the next one, so after a crash the next run finds what is open and settles it: `close_unwatched`
returns the present state of an open attempt, `settle_attempt` updates hold and lease. Both may run twice. The file is
`runs/JOB.json` in the platform's data folder, or the one that `--record` names; it is locked while a `costguard run` handles
the job. A refused hold is recorded, so that the next guard run alerts once.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep
from typing import TYPE_CHECKING

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import Admission
from costguard.budgets.hold import Hold
from costguard.data import ShippedFacts
from costguard.errors import CostguardError, InputError, LedgerError, NoAnswerError
from costguard.guard.alerts.denial import build_denial
from costguard.guard.overrides import LEASE, Override, decide_lease
from costguard.guard.policy import Policy
from costguard.ledger.holds import HoldStore
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.runs.record import (
    ENDED,
    LOST,
    NEVER,
    OPEN,
    PLANNED,
    JobAttempt,
    JobRecord,
    check_job_name,
    parse_record,
    to_record_table,
)
from costguard.services.guarding.overrides import describe_user, get_now, open_guard_store
from costguard.services.poll.market_prices import read_price_ceilings
from costguard.settings import Settings, expand_path, get_data_path, resolve_ledger_url
from costguard.system.atomic_file import hold_file_lock, make_folder, write_file_atomically
from costguard.system.child.process import list_attempt_processes
from costguard.system.child.terminal import write_message
from costguard.system.input_file import read_input_file

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.guard.store import GuardStore

JOB_ENV = "COSTGUARD_JOB_ID"
RECORD_BYTES_MAX = 2**22
RECORD_LOCK_WAIT_S = 0.2
REMOTE_ALIVE_WITHIN = timedelta(minutes=2)
"""An attempt on another machine that was alive this shortly ago may still be."""
REMOTE_WATCH_S, REMOTE_LOOK_S = 75.0, 1.0
"""For so long: a run that lives writes its record once a minute."""


@dataclass(slots=True)
class RunRecordStore:
    """The record of one job, and its file."""

    path: Path
    record: JobRecord

    def put_attempt(self, attempt: JobAttempt) -> None:
        """Write `attempt` to the file. Raises CostguardError if that fails."""
        self._write(self._read_current().put_attempt(attempt))

    def drop_attempt(self, attempt: JobAttempt) -> None:
        """Remove an attempt that never began."""
        stored_record = self._read_current()
        self._write(replace(stored_record, attempts=tuple(a for a in stored_record.attempts if a.id != attempt.id)))

    def _read_current(self) -> JobRecord:
        """Return the record as in the file now: a lock on a shared disk may not hold between two machines."""
        try:
            stored_record = read_record(self.path) if self.path.exists() else self.record
        except CostguardError:
            return self.record
        return stored_record if stored_record.job == self.record.job else self.record

    def _write(self, record: JobRecord) -> None:
        try:
            write_file_atomically(self.path, f"{json.dumps(to_record_table(record), indent=1)}\n".encode())
        except OSError as wrong:
            hint = "make room, or name another file with --record"
            raise CostguardError(f"cannot be written: {wrong.strerror}", field=str(self.path), hint=hint) from None
        self.record = record


@contextmanager
def open_run_record(job: str | None, record_file: str | None, otherwise: str) -> Iterator[RunRecordStore]:
    """Open and lock the record of the job; raise NoAnswerError if another `costguard run` holds it.

    `job`: as stated by a flag; else from the file `record_file`, else from the environment, else a new name with the prefix
    `otherwise`.
    """
    path = expand_path(record_file).absolute() if record_file else None
    job_name = None if job is None else check_job_name(job, "--id-of-job")
    if job_name is None and (path is None or not path.exists()):
        inherited = os.environ.get(JOB_ENV)
        job_name = check_job_name(inherited, JOB_ENV) if inherited else f"{otherwise}-{token_hex(3)}"
    path = path or get_data_path("runs") / f"{job_name}.json"
    if path.exists() and not path.is_file():
        hint = "name a new file, or the record of this job"
        raise InputError("is not a plain file", field=str(path), hint=hint)
    with _lock_record(path, job_name or str(path)):
        record = read_record(path) if path.exists() else JobRecord(job=str(job_name))
        if job_name is not None and record.job != job_name:
            hint = "name another file with --record, or leave --id-of-job out: the file names its job"
            raise InputError(f"is the record of {record.job}, and not of {job_name}", field=str(path), hint=hint)
        yield RunRecordStore(path=path, record=record)


@contextmanager
def _lock_record(path: Path, field: str) -> Iterator[None]:
    try:
        make_folder(path.parent)
        with ExitStack() as stack:
            try:
                stack.enter_context(hold_file_lock(path.with_name(f".{path.name}.lock"), patience_s=RECORD_LOCK_WAIT_S))
            except LedgerError:
                hint = "wait for it to end, or give this run a name of its own: --id-of-job NAME"
                raise NoAnswerError("another costguard run is running this job now", field=field, hint=hint) from None
            yield
    except OSError as wrong:
        hint = "name a file that can be written with --record"
        raise CostguardError(f"cannot be used: {wrong.strerror or wrong}", field=str(path), hint=hint) from None


def read_record(path: Path) -> JobRecord:
    """Return the record in the file `path`; raise InputError if it is none."""
    try:
        return parse_record(json.loads(read_input_file(path, RECORD_BYTES_MAX).decode()), str(path))
    except (OSError, ValueError, RecursionError):
        hint = "name another file with --record, or move this one away: the job then starts again"
        raise InputError("cannot be read as the record of a job", field=str(path), hint=hint) from None


@contextmanager
def open_run_ledger(settings: Settings) -> Iterator[RunLedger]:
    """Open the ledger's holds and overrides for writing."""
    holds = HoldStore(
        resolve_ledger_url(settings), rules=ShippedFacts().get_billing_rules(), ceilings=partial(read_price_ceilings, settings)
    )
    with holds, open_guard_store(settings) as book:
        yield RunLedger(holds=holds, wishes=book, budgets=settings.budgets, who=describe_user())


def settle_unfinished(book: RunRecordStore, desk: RunLedger) -> None:
    """Settle open attempts of earlier runs of this job. Raises NoAnswerError if their processes still run here."""
    now = get_now()
    for attempt in book.record.unfinished:
        is_local = attempt.host == get_host_name() and attempt.boot == read_boot_id()
        result = close_unwatched(attempt, list_attempt_processes, is_local=is_local)
        if not isinstance(result, JobAttempt):
            pids = " ".join(map(str, result[:8]))
            hint = f"wait for it, or end it: kill {pids}"
            what = f"attempt {attempt.number} still runs here without costguard (processes {pids})"
            raise NoAnswerError(what, field=f"job {book.record.job}", hint=hint)
        if attempt.host != get_host_name() and now - attempt.seen_at < REMOTE_ALIVE_WITHIN:
            _wait_for_silence(book, attempt)
        _close_attempt(book, desk, result, now)
        money = result.spent
        cost = "at an unknown price" if money is None else f"{money.format()} {money.currency}"
        write_message(f"attempt {result.number} was {result.state}: {result.why}. It counts {result.seconds} s, {cost}.")


def _wait_for_silence(book: RunRecordStore, attempt: JobAttempt) -> None:
    """Wait to see whether `attempt`, on another machine, is alive. Raises NoAnswerError if it is."""
    write_message(
        f"attempt {attempt.number} was alive on {attempt.host} recently: whether it still runs is known in "
        f"{REMOTE_WATCH_S:.0f} s"
    )
    until = monotonic() + REMOTE_WATCH_S
    while monotonic() < until:
        sleep(REMOTE_LOOK_S)
        now = next((one for one in read_record(book.path).attempts if one.id == attempt.id), attempt)
        if now != attempt:
            hint = "wait for it to end, or give this run a record and a name of its own: --record FILE --id-of-job NAME"
            raise NoAnswerError(
                f"attempt {attempt.number} runs on {attempt.host} now", field=f"job {book.record.job}", hint=hint
            )


def settle_other_jobs(folder: Path, desk: RunLedger, but: Path) -> None:
    """Settle open attempts of other jobs on this machine that no costguard handles; failures are ignored."""
    for path in sorted(folder.glob("*.json")):
        with suppress(CostguardError):
            if path == but or not read_record(path).unfinished:
                continue
        with suppress(CostguardError, OSError), _lock_record(path, path.stem):
            book = RunRecordStore(path=path, record=read_record(path))
            for attempt in (one for one in book.record.unfinished if one.host == get_host_name()):
                result = close_unwatched(attempt, list_attempt_processes, is_local=attempt.boot == read_boot_id())
                if isinstance(result, JobAttempt):
                    _close_attempt(book, desk, result, get_now())
                    write_message(f"job {book.record.job}: attempt {result.number} was {result.state}: {result.why}.")
                else:
                    write_message(
                        f"job {book.record.job}: attempt {attempt.number} still runs without costguard: {list(result)[:8]}"
                    )


def _close_attempt(book: RunRecordStore, desk: RunLedger, attempt: JobAttempt, now: datetime) -> None:
    for note in settle_attempt(attempt, desk, now):
        write_message(note)
    book.put_attempt(attempt)


def plan_attempt(book: RunRecordStore, now: datetime) -> JobAttempt:
    """Return the next attempt, not written yet."""
    number = 1 + max((attempt.number for attempt in book.record.attempts), default=0)
    key = f"{book.record.job}.{number}-{token_hex(4)}"
    return JobAttempt(
        id=key, number=number, began_at=now, seen_at=now, host=get_host_name(), boot=read_boot_id(), state=PLANNED
    )


def begin_attempt(attempt: JobAttempt, now: datetime) -> JobAttempt:
    """Return the attempt with its command running since `now`."""
    return replace(attempt, state=OPEN, began_at=now, seen_at=now)


def get_host_name() -> str:
    """Return the host name of this machine."""
    return socket.gethostname()


def read_boot_id() -> str:
    """Return the id of the present boot; "" if there is none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def get_runs_folder() -> Path:
    """Return the default folder of records."""
    return get_data_path("runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLedger:
    """The parts of the ledger for holds and leases. `who`: the user."""

    holds: HoldStore
    wishes: GuardStore
    budgets: Sequence[Budget]
    who: str


def set_money_aside(hold: Hold, desk: RunLedger, now: datetime) -> Admission:
    """Take the hold, or return which budget refuses; a refusal is recorded, and the next guard run alerts on it."""
    return take_hold(hold, desk.holds, desk.wishes, desk.budgets, now)


def lease_machine(
    live: LiveResource, length: timedelta, policies: Iterable[Policy], desk: RunLedger, now: datetime, *, wish_id: str, why: str
) -> Override | str:
    """Lease the machine of the job; return the reason if its policies do not allow that."""
    life = identify_incarnation(live.observation)
    allowed = decide_lease(life, desk.wishes.load_overrides_since(live.first_seen_at), tuple(policies), length, now)
    if not allowed.allowed:
        return allowed.why
    until = (now + length).replace(microsecond=0)
    override = Override(id=wish_id, what=LEASE, who=desk.who, why=why, at=now, until=until, key=live.observation.key, life=life)
    desk.wishes.add_override(override)
    return override


def close_unwatched(
    attempt: JobAttempt, alive: Callable[[str], Sequence[int]], *, is_local: bool
) -> JobAttempt | Sequence[int]:
    """Return the state of an attempt that no costguard watches any more; or its processes, if some still run.

    `is_local`: whether it ran in this boot of this machine; only then can its processes be found.
    """
    running = alive(attempt.id) if is_local else ()
    if running or attempt.state not in (PLANNED, OPEN):
        return running or attempt
    if attempt.state == PLANNED:
        return replace(attempt, state=NEVER, why="costguard ended before or while the command started")
    if attempt.status is not None:
        return replace(attempt, state=ENDED)
    where = "" if is_local else f", on {attempt.host}"
    return replace(attempt, state=LOST, why=f"costguard ended while the job was running{where}: it may have continued")


def settle_attempt(attempt: JobAttempt, desk: RunLedger, now: datetime) -> tuple[str, ...]:
    """Update hold and lease to the outcome of `attempt`; return a sentence for each failed update."""
    notes = []
    if attempt.hold:
        try:
            if attempt.state == NEVER:
                desk.holds.release(attempt.hold, now)
            else:
                desk.holds.commit(attempt.hold, attempt.spent, now)
        except InputError as wrong:
            notes += [] if attempt.state == NEVER else [f"the budget hold was not settled: {wrong.field}: {wrong.what}"]
    if attempt.lease:
        try:
            desk.wishes.lift_override(attempt.lease, who=desk.who, now=now)
        except InputError as wrong:
            notes += [] if attempt.state == NEVER else [f"the lease was not lifted: {wrong.field}: {wrong.what}"]
    return tuple(notes)


def take_hold(hold: Hold, holds: HoldStore, guard_store: GuardStore, budgets: Iterable[Budget], now: datetime) -> Admission:
    """Take `hold` if every one of `budgets` that it counts in has room; return the deciding admission."""
    admission = holds.take(hold, budgets, now)
    denial = build_denial(hold, admission, now, token_hex(8))
    if denial is not None:
        guard_store.add_override(denial)
    return admission
