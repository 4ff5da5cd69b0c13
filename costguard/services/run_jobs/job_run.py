"""Run a command as a job: quote, confirm, hold, lease, run, settle, calibrate.

Nothing is written before the quote is accepted; from then on the record is written before each step. After the end, the hold
and the lease are settled, the speed is stored for later quotes, and the result document is written.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from costguard.data import ShippedFacts
from costguard.errors import CostguardError, InputError, NoAnswerError, replace_unprintable, to_one_line
from costguard.guard.overrides import Override, find_owner
from costguard.guard.policy_evaluation import matches_target
from costguard.runs.progress import (
    PaceUnknown,
    ProgressMark,
    format_end_lines,
    format_job_cost,
    format_lease_end,
    format_next_quote,
    format_quote_lines,
    measure_token_speed,
)
from costguard.runs.record import (
    ENDED,
    NEVER,
    OPEN,
    JobAttempt,
    JobTerms,
    build_job_hold,
    compute_lease_length,
    find_hold_amount,
)
from costguard.services.guarding.overrides import LONGEST_LEASE, get_now
from costguard.services.quote.job_input import read_observed_runs
from costguard.services.quote.quote_commands import find_calibration_file, update_calibration
from costguard.services.run_jobs.machine_provider import AUTO, find_spot_notice_source
from costguard.services.run_jobs.machine_shutdown import (
    NO_END_ACTION,
    EndAction,
    check_end_action,
    find_keeper,
    perform_end_action,
)
from costguard.services.run_jobs.monitor import RunMonitor, parse_notice_reaction
from costguard.services.run_jobs.record_store import (
    JOB_ENV,
    RECORD_BYTES_MAX,
    RunLedger,
    RunRecordStore,
    begin_attempt,
    get_runs_folder,
    lease_machine,
    open_run_ledger,
    open_run_record,
    plan_attempt,
    set_money_aside,
    settle_attempt,
    settle_other_jobs,
    settle_unfinished,
)
from costguard.services.run_jobs.terms import RunEstimate, RunRequest, estimate_run, quote_again
from costguard.settings import Settings, expand_path, read_settings
from costguard.sizing.job import parse_job_limits, read_subtable
from costguard.sizing.observed_runs import JOB_KEYS
from costguard.system.atomic_file import write_file_atomically
from costguard.system.child.hints import HintReceiver
from costguard.system.child.process import (
    RUN_ENV,
    SIGNAL_EXIT_BASE,
    BlockedSignals,
    ChildProcess,
    ChildSupervisor,
    block_signals,
    build_state_restorer,
    format_signal_name,
    start_child,
    take_end_signal,
)
from costguard.system.child.spot_notices import SpotNoticeWatcher
from costguard.system.child.terminal import TerminalTitle, ask_yes_no, can_ask, write_message
from costguard.system.input_file import read_input_file
from costguard.values.money import Money
from costguard.values.text_format import format_instant
from costguard.views.runs import RUN_SCHEMA, RunSummary, build_run_data


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of the command line besides the job. Texts are as typed; None: not given."""

    command: tuple[str, ...]
    asked: RunRequest
    yes: bool = False
    job: str | None = None
    record: str | None = None
    on_notice: str | None = None
    signal_on_notice: str | None = None
    notices: str = AUTO
    after: EndAction = NO_END_ACTION
    result: str | None = None
    outlive: bool = False


@dataclass(slots=True)
class RunState:
    """One attempt, from its plan to its end."""

    wanted: RunOptions
    settings: Settings
    book: RunRecordStore
    found: RunEstimate
    attempt: JobAttempt
    budget: str = ""
    lease: Override | None = None
    lease_refused: str = ""
    notes: tuple[str, ...] = ()


def run_job(options: RunOptions) -> int:
    """Run the command as a job; return its exit code, as a shell reports it."""
    if not hasattr(signal, "sigtimedwait") or not sys.platform.startswith("linux"):
        raise NoAnswerError("runs jobs on Linux only", field="costguard run", hint="run it on the rented machine")
    if not options.command:
        hint = "costguard run --job job.toml -- python train.py"
        raise InputError("no command was given", field="COMMAND", hint=hint)
    notice_source = find_spot_notice_source(options.notices)
    on_notice, result = parse_notice_reaction(options.on_notice, options.signal_on_notice), check_result_file(options.result)
    action = check_end_action(options.after)
    settings = read_settings(options.asked.config)
    otherwise = Path(options.asked.job_file or options.command[0]).stem or "job"
    with open_run_record(options.job, options.record, _make_job_name(otherwise)) as book:
        with open_run_ledger(settings) as desk:
            settle_unfinished(book, desk)
            settle_other_jobs(get_runs_folder(), desk, but=book.path)
        now = get_now()
        estimate = estimate_run(options.asked, settings, book.record, now)
        _ask_to_run(options, book, estimate)
        with block_signals() as blocked_signals:
            state = RunState(wanted=options, settings=settings, book=book, found=estimate, attempt=plan_attempt(book, now))
            watching = RunMonitor(
                book=book,
                attempt=state.attempt,
                terms=estimate.terms,
                hints=HintReceiver(_list_agent_sockets()),
                notices=SpotNoticeWatcher(notice_source),
                on_notice=on_notice,
                title=TerminalTitle(),
                limit=_find_money_limit(estimate),
                prepare=build_state_restorer(blocked_signals.before),
            )
            try:
                child = _begin_program(state, watching, blocked_signals)
                if isinstance(child, int):
                    return child
                attendance = ChildSupervisor(child, blocked_signals, watching.tick, write_message, watching.handle_end_signal)
                status = attendance.wait_until_ended()
            finally:
                watching.end()
            try:
                summary = _settle_end(state, watching, status)
                write_result(result, summary)
                watching.wait()
                then = perform_end_action(
                    action, status, blocked_signals, summary.attempt.id, partial(find_keeper, settings, estimate.live)
                )
                if then:
                    write_result(result, replace(summary, then=then))
            except Exception as broken:  # noqa: BLE001 - the program's exit code is passed on, whatever becomes of us
                write_message(f"costguard itself failed after the job ({type(broken).__name__}: {to_one_line(str(broken))})")
    return status


def _ask_to_run(options: RunOptions, book: RunRecordStore, estimate: RunEstimate) -> None:
    """Ask for confirmation; raise NoAnswerError if a person refuses, InputError if there is no terminal."""
    for line in (*estimate.notes, *format_quote_lines(book.record.job, len(book.record.attempts) + 1, estimate.terms)):
        write_message(line)
    if options.yes:
        return
    if not can_ask():
        hint = "confirm in advance: costguard run --yes ..."
        raise InputError("there is no terminal for the confirmation", field="--yes", hint=hint)
    if not ask_yes_no("run it?"):
        raise NoAnswerError("it was not run: declined", hint="nothing was held")


def _begin_program(state: RunState, watching: RunMonitor, blocked_signals: BlockedSignals) -> ChildProcess | int:
    """Start the program after hold and lease; return the exit code instead if costguard received an end signal before."""
    money = find_hold_amount(state.found.terms, watching.limit)
    state.attempt = replace(
        state.attempt,
        hourly=state.found.terms.machine.hourly,
        hold=state.attempt.id if money else "",
        held=money,
        quoted_hours=state.found.terms.hours,
        quoted_usd=state.found.terms.usd,
    )
    length = compute_lease_length(state.found.terms, LONGEST_LEASE) if state.found.live else None
    if length is not None:
        state.attempt = replace(state.attempt, lease=f"run-{state.attempt.id}")
    state.book.put_attempt(state.attempt)
    try:
        with open_run_ledger(state.settings) as desk:
            if money is not None:
                _take_hold(state, desk, money, get_now())
            else:
                write_message("no budget hold: its cost is unknown")
            if length is not None:
                _take_lease(state, desk)
        asked_to_end = take_end_signal(blocked_signals)
        if asked_to_end is not None:
            _release_all(state)
            return SIGNAL_EXIT_BASE + asked_to_end
        environment = _build_environment(state, watching.hints)
        child = start_child(state.wanted.command, environment, blocked=blocked_signals.before, outlives=state.wanted.outlive)
    except BaseException:
        _release_all(state)
        raise
    state.attempt = begin_attempt(state.attempt, get_now())
    watching.attempt = state.attempt
    watching.begin(child)
    try:
        state.book.put_attempt(state.attempt)
    except CostguardError as error:
        write_message(f"{str(error).splitlines()[0]}: the job runs anyway")
    return child


def _take_hold(state: RunState, desk: RunLedger, money: Money, now: datetime) -> None:
    """Take the hold; raise NoAnswerError if a budget has no room."""
    job = state.book.record.job
    hold = build_job_hold(state.attempt, job, money, state.found.terms, who=desk.who, labels=_get_labels(state.found), now=now)
    admission = set_money_aside(hold, desk, now)
    if not admission.admitted:
        hint = "wait for other runs to end, use less, or raise the budget"
        raise NoAnswerError(admission.says, field=f"budget {admission.budget}" if admission.budget else None, hint=hint)
    state.budget = admission.budget
    write_message(f"held: {format_job_cost(money)}; {admission.says}")


def _take_lease(state: RunState, desk: RunLedger) -> None:
    """Take a lease of the machine; if its policies do not allow that, print the reason."""
    live, length = state.found.live, compute_lease_length(state.found.terms, LONGEST_LEASE)
    assert live is not None  # noqa: S101 - for the type checker: asked before
    assert length is not None  # noqa: S101
    owner = find_owner(live.observation, state.settings.defaults.owner_from)
    matching_policies = [policy for policy in state.settings.policies if matches_target(policy.target, live.observation, owner)]
    why = f"costguard run: job {state.book.record.job}, attempt {state.attempt.number}"
    lease = lease_machine(live, length, matching_policies, desk, get_now(), wish_id=state.attempt.lease, why=why)
    if isinstance(lease, Override):
        state.lease = lease
        write_message(format_lease_end(lease.until or lease.at))
    else:
        state.lease_refused, state.attempt = lease, replace(state.attempt, lease="")
        write_message(f"the machine has no lease: {lease}. Policies may act on it")


def _release_all(state: RunState) -> None:
    """Release hold and lease of a command that never began."""
    never = replace(state.attempt, state=NEVER)
    try:
        with open_run_ledger(state.settings) as desk:
            for note in settle_attempt(never, desk, get_now()):
                write_message(note)
        state.book.drop_attempt(never)
    except CostguardError as error:
        write_message(f"{str(error).splitlines()[0]}: the next costguard run of this job ends its hold and lease")


def _settle_end(state: RunState, watching: RunMonitor, status: int) -> RunSummary:
    """Settle the attempt, calibrate, print the end, and return the summary."""
    ended = close_ended_attempt(state.book, watching.snapshot_attempt(), status, state.settings, get_now())
    try:
        taught = learn_speed(state.wanted.asked, state.found, state.book.record.job, marks=watching.marks.kept, ended=ended)
    except Exception as broken:  # noqa: BLE001 - the program's exit code counts more than what it teaches
        taught = LearntSpeed(unfit=f"costguard itself failed ({type(broken).__name__})")
    say_end(state.book, ended, state.found, taught)
    return RunSummary(
        record=state.book.record,
        attempt=ended,
        terms=state.found.terms,
        signal=format_signal_name(status),
        budget=state.budget,
        lease_until=format_instant(state.lease.until) if state.lease and state.lease.until else None,
        lease_refused=state.lease_refused,
        tokens_per_s=taught.tokens_per_s,
        unfit=taught.unfit,
        after=taught.after,
        notices=tuple(watching.noticed),
        notes=state.found.notes,
    )


def _build_environment(state: RunState, hints: HintReceiver) -> dict[str, str]:
    """Return the environment of the program: ours, with the ids of job and attempt."""
    return {**os.environ, RUN_ENV: state.attempt.id, JOB_ENV: state.book.record.job, **hints.build_environment()}


def _get_labels(estimate: RunEstimate) -> dict[str, str]:
    """Return the labels of its machine, which budgets may match."""
    return dict(estimate.live.observation.labels) if estimate.live else {}


def _find_money_limit(estimate: RunEstimate) -> Money | None:
    """Return the job's own cap; None: it has none."""
    if estimate.job is not None:
        return estimate.job.limits.max_usd
    return parse_job_limits(read_subtable(estimate.stated.table, "limits")).max_usd if estimate.stated else None


def _list_agent_sockets() -> Sequence[str]:
    """Return the sockets of this machine's agent, if there is one."""
    from costguard_agent.hints import list_hint_sockets

    return list_hint_sockets()


def _make_job_name(text: str) -> str:
    """Convert `text` to the prefix of a job name."""
    name = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in text)
    return name.strip("._-")[:60] or "job"


SPEED_DIGITS, PEAK_DIGITS = 6, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntSpeed:
    """The measured speed of a run in tokens a second, or why there is none. `after`: the next quote of such a job."""

    tokens_per_s: float | None = None
    unfit: str = ""
    after: JobTerms | None = None


def close_ended_attempt(
    book: RunRecordStore, attempt: JobAttempt, status: int, settings: Settings, now: datetime
) -> JobAttempt:
    """Write the end of the attempt, to the ledger first, then to the record. Failures to write are printed."""
    ended = replace(attempt, state=ENDED, status=status, why=format_signal_name(status))
    try:
        with open_run_ledger(settings) as desk:
            for note in settle_attempt(ended, desk, now):
                write_message(note)
    except CostguardError as error:
        write_message(
            f"{str(error).splitlines()[0]}: hold and lease stay until the next costguard run of this job settles them"
        )
        ended = replace(ended, state=OPEN)  # with its status: it has ended, and is not settled
    try:
        book.put_attempt(ended)
    except CostguardError as error:
        write_message(str(error).splitlines()[0])
    return replace(attempt, state=ENDED, status=status, why=format_signal_name(status))


def learn_speed(
    request: RunRequest,
    estimate: RunEstimate,
    job: str,
    *,
    marks: Sequence[ProgressMark],
    ended: JobAttempt,
    peak_gib: float | None = None,
) -> LearntSpeed:
    """Store the measured speed for calibration, if it is suitable, and quote such a job again.

    `peak_gib`: allocated at most on one GPU; None: not measured.
    """
    if estimate.job is None or estimate.stated is None or estimate.hardware is None:
        return LearntSpeed(unfit="it was not quoted, so there is nothing to compare")
    speed = measure_token_speed(marks, status=ended.status, tokens_per_step=estimate.terms.tokens_per_step)
    if isinstance(speed, PaceUnknown):
        return LearntSpeed(unfit=speed.why)
    if estimate.differs:
        return LearntSpeed(unfit=estimate.differs)
    try:
        left_out = _add_to_calibration(request, estimate, round(speed, SPEED_DIGITS), ended, job, peak_gib=peak_gib)
        if left_out:
            return LearntSpeed(tokens_per_s=speed, unfit=left_out)
        new_terms = quote_again(request, estimate, ended.seen_at)
    except CostguardError as error:
        return LearntSpeed(tokens_per_s=speed, unfit=str(error).splitlines()[0])
    return LearntSpeed(tokens_per_s=speed, after=new_terms)


def say_end(book: RunRecordStore, ended: JobAttempt, estimate: RunEstimate, learnt_: LearntSpeed) -> None:
    """Print how it ended, beside the quote."""
    how = f"was ended by {ended.why}" if ended.why else f"ended with status {ended.status}"
    for line in format_end_lines(ended, book.record, estimate.terms, how):
        write_message(line)
    if learnt_.after is not None and learnt_.tokens_per_s is not None:
        write_message(f"calibrated with {learnt_.tokens_per_s:,.0f} tokens a second")
        write_message(format_next_quote(estimate.terms, learnt_.after))
    elif estimate.job is not None:
        write_message(f"not used to calibrate later quotes: {learnt_.unfit}")


def check_result_file(path_text: str | None) -> Path | None:
    """Return the path of the result document; raise InputError if another kind of file is there."""
    if path_text is None:
        return None
    path = expand_path(path_text).absolute()
    hint = "name another file with --result"
    try:
        if not path.parent.is_dir():
            raise InputError(f"no such folder: {path.parent}", field="--result", hint="make it first")
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise InputError("already exists and is not a regular file", field=str(path), hint=hint)
        if path.exists() and not _is_result(path):
            raise InputError("already exists and is not a run result", field=str(path), hint=hint)
    except OSError as wrong:
        raise InputError(f"cannot be written: {wrong.strerror}", field=str(path), hint=hint) from None
    return path


def write_result(path: Path | None, summary: RunSummary) -> None:
    """Write the result document. A failure is printed and not raised, because the program's exit code has priority."""
    if path is None:
        return
    try:
        write_file_atomically(path, f"{json.dumps(build_run_data(summary), indent=2)}\n".encode())
    except OSError as wrong:
        write_message(f"{path}: cannot be written: {wrong.strerror}")


def _is_result(path: Path) -> bool:
    try:
        content = json.loads(read_input_file(path, RECORD_BYTES_MAX) or b"{}")
    except (ValueError, RecursionError):
        return False
    return content == {} or (isinstance(content, dict) and content.get("schema") == RUN_SCHEMA)


def _add_to_calibration(
    request: RunRequest, estimate: RunEstimate, speed: float, ended: JobAttempt, job: str, *, peak_gib: float | None
) -> str:
    """Add the run to the calibration; return why it was left out, "" if it was not."""
    assert estimate.stated is not None  # noqa: S101 - for the type checker: asked by `learn`
    assert estimate.hardware is not None  # noqa: S101
    name = f"{job}, attempt {ended.number}"
    row = {key: value for key, value in estimate.stated.table.items() if key in JOB_KEYS} | {
        "gpu": estimate.hardware.gpu.name,
        "gpu_count": estimate.hardware.gpu_count,
        "nodes": estimate.hardware.nodes,
        "tokens_per_s": speed,
        "name": name,
        "at": ended.seen_at.isoformat(timespec="seconds"),
        "source": "costguard run" if estimate.seen else "costguard run, its GPU as stated",
    }
    if peak_gib is not None and estimate.seen:
        row["peak_gib"] = round(peak_gib, PEAK_DIGITS)
    facts = ShippedFacts()
    fresh = read_observed_runs([(name, row)], estimate.stated.folder, facts)
    answer = update_calibration(fresh, find_calibration_file(request.calibration, request.config), facts)
    return next((replace_unprintable(out.text) for out in answer.weighed.left_out if name in out.text), "")
