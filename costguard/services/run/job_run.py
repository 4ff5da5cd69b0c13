"""`costguard run`: the loop closed. Quote, ask, hold, lease, run, settle, learn.

Nothing is written before the quote is accepted; from then on the record says how far it has come, before each step.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from costguard.errors import CostguardError, InputError, NoAnswerError, to_one_line
from costguard.guard.overrides import Override
from costguard.guard.owning import find_owner
from costguard.guard.policy_evaluation import matches_target
from costguard.runs.record import NEVER, JobAttempt
from costguard.runs.telling import format_job_cost, format_lease_end, format_quote_lines
from costguard.runs.terms import build_job_hold, compute_lease_length, find_hold_amount
from costguard.services.overrides import LONGEST_LEASE, present
from costguard.services.run.machine_shutdown import NOTHING_AFTER, After, after_stated, afterwards, spared_by
from costguard.services.run.monitor import Watching, on_notice_stated
from costguard.services.run.record_store import (
    JOB_ENV,
    Book,
    begun,
    desk_of,
    opened,
    planned,
    runs_folder,
    settle_others,
    settled,
)
from costguard.services.run.run import Desk, lease, set_aside, settle
from costguard.services.run.running_end import Learnt, closing, free_result, learn, told, write_result
from costguard.services.run.terms import Asked, Expected, expected
from costguard.settings import Settings, read_settings
from costguard.sizing.job import parse_job_limits, read_subtable
from costguard.system.child.attending import BlockedSignals, ChildSupervisor, block_signals, format_signal_name, take_end_signal
from costguard.system.child.hints import HintReceiver
from costguard.system.child.process import RUN_ENV, SIGNAL_EXIT_BASE, ChildProcess, build_state_restorer, start_child
from costguard.system.child.spot_notices import AUTO, CLOUDS, SpotNoticeWatcher, detect_cloud
from costguard.system.child.terminal import TerminalTitle, ask_yes_no, can_ask, write_message
from costguard.values.checks import require_one_of
from costguard.values.money import Money
from costguard.values.text_format import format_instant
from costguard.views.runs import RunSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line says beside the job. Texts are as they were typed; None: not given."""

    command: tuple[str, ...]
    asked: Asked
    yes: bool = False
    job: str | None = None
    record: str | None = None
    on_notice: str | None = None
    signal_on_notice: str | None = None
    notices: str = AUTO
    after: After = NOTHING_AFTER
    result: str | None = None
    outlive: bool = False


@dataclass(slots=True)
class Running:
    """One attempt from its plan to its end."""

    wanted: Wanted
    settings: Settings
    book: Book
    found: Expected
    attempt: JobAttempt
    budget: str = ""
    lease: Override | None = None
    lease_refused: str = ""
    notes: tuple[str, ...] = ()


def run(wanted: Wanted) -> int:
    """Run the command as a job, and answer its exit code as a shell has it."""
    if not hasattr(signal, "sigtimedwait") or not sys.platform.startswith("linux"):
        raise NoAnswerError("attends to a job on Linux only", field="costguard run", hint="run it on the rented machine")
    if not wanted.command:
        hint = "costguard run --job job.toml -- python train.py"
        raise InputError("no command was given", field="COMMAND", hint=hint)
    require_one_of(wanted.notices, CLOUDS, "--notices")
    on_notice, result = on_notice_stated(wanted.on_notice, wanted.signal_on_notice), free_result(wanted.result)
    after = after_stated(wanted.after)
    settings = read_settings(wanted.asked.config)
    otherwise = Path(wanted.asked.job_file or wanted.command[0]).stem or "job"
    with opened(wanted.job, wanted.record, _nameable(otherwise)) as book:
        with desk_of(settings) as desk:
            settled(book, desk)
            settle_others(runs_folder(), desk, but=book.path)
        now = present()
        found = expected(wanted.asked, settings, book.record, now)
        _accepted(wanted, book, found)
        with block_signals() as heard:
            state = Running(wanted=wanted, settings=settings, book=book, found=found, attempt=planned(book, now))
            watching = Watching(
                book=book,
                attempt=state.attempt,
                terms=found.terms,
                hints=HintReceiver(_agents()),
                notices=SpotNoticeWatcher(detect_cloud() if wanted.notices == AUTO else wanted.notices),
                on_notice=on_notice,
                title=TerminalTitle(),
                limit=_limit(found),
                prepare=build_state_restorer(heard.before),
            )
            try:
                child = _begun(state, watching, heard)
                if isinstance(child, int):
                    return child
                attendance = ChildSupervisor(child, heard, watching.tick, write_message, watching.told)
                status = attendance.wait_until_ended()
            finally:
                watching.end()
            try:
                came = _ended(state, watching, status)
                write_result(result, came)
                watching.wait()
                then = afterwards(after, status, heard, came, partial(spared_by, settings, found.live))
                if then:
                    write_result(result, replace(came, then=then))
            except Exception as broken:  # noqa: BLE001 - the program's exit code is passed on, whatever becomes of us
                write_message(f"costguard itself failed after the job ({type(broken).__name__}: {to_one_line(str(broken))})")
    return status


def _accepted(wanted: Wanted, book: Book, found: Expected) -> None:
    """Go on where a person says yes, or has said so; NoAnswerError where they say no, InputError where nobody can be asked."""
    for line in (*found.notes, *format_quote_lines(book.record.job, len(book.record.attempts) + 1, found.terms)):
        write_message(line)
    if wanted.yes:
        return
    if not can_ask():
        hint = "say yes beforehand: costguard run --yes ..."
        raise InputError("there is no terminal to ask whether to run it", field="--yes", hint=hint)
    if not ask_yes_no("run it?"):
        raise NoAnswerError("it was not run: the answer was no", hint="nothing was held")


def _begun(state: Running, watching: Watching, heard: BlockedSignals) -> ChildProcess | int:
    """The program, begun, with all that stands before it; or the exit code where costguard was told to end before it began."""
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
    state.book.put(state.attempt)
    try:
        with desk_of(state.settings) as desk:
            if money is not None:
                _held(state, desk, money, present())
            else:
                write_message("nothing is held: what it will cost is not known")
            if length is not None:
                _leased(state, desk)
        asked_to_end = take_end_signal(heard)
        if asked_to_end is not None:
            _taken_back(state)
            return SIGNAL_EXIT_BASE + asked_to_end
        environment = _environment(state, watching.hints)
        child = start_child(state.wanted.command, environment, blocked=heard.before, outlives=state.wanted.outlive)
    except BaseException:
        _taken_back(state)
        raise
    state.attempt = begun(state.attempt, present())
    watching.attempt = state.attempt
    watching.begin(child)
    try:
        state.book.put(state.attempt)
    except CostguardError as error:
        write_message(f"{str(error).splitlines()[0]}: the job runs all the same")
    return child


def _held(state: Running, desk: Desk, money: Money, now: datetime) -> None:
    """Set the money aside; NoAnswerError where a budget has no room."""
    job = state.book.record.job
    wanted = build_job_hold(state.attempt, job, money, state.found.terms, who=desk.who, labels=_labels(state.found), now=now)
    admission = set_aside(wanted, desk, now)
    if not admission.admitted:
        hint = "wait for other runs to end, ask for less, or have the budget raised"
        raise NoAnswerError(admission.says, field=f"budget {admission.budget}" if admission.budget else None, hint=hint)
    state.budget = admission.budget
    write_message(f"held: {format_job_cost(money)}; {admission.says}")


def _leased(state: Running, desk: Desk) -> None:
    """Have the machine kept; where its policies do not allow that, it is said."""
    live, length = state.found.live, compute_lease_length(state.found.terms, LONGEST_LEASE)
    assert live is not None  # noqa: S101 - for the type checker: asked before
    assert length is not None  # noqa: S101
    owner = find_owner(live.observation, state.settings.defaults.owner_from)
    meant = [policy for policy in state.settings.policies if matches_target(policy.target, live.observation, owner)]
    why = f"costguard run: job {state.book.record.job}, attempt {state.attempt.number}"
    taken = lease(live, length, meant, desk, present(), wish_id=state.attempt.lease, why=why)
    if isinstance(taken, Override):
        state.lease = taken
        write_message(format_lease_end(taken.until or taken.at))
    else:
        state.lease_refused, state.attempt = taken, replace(state.attempt, lease="")
        write_message(f"the machine is not kept: {taken}. Policies may act on it")


def _taken_back(state: Running) -> None:
    """The command never began: nothing of it stays."""
    never = replace(state.attempt, state=NEVER)
    try:
        with desk_of(state.settings) as desk:
            for note in settle(never, desk, present()):
                write_message(note)
        state.book.drop(never)
    except CostguardError as error:
        write_message(f"{str(error).splitlines()[0]}: the next costguard run of this job takes hold and lease back")


def _ended(state: Running, watching: Watching, status: int) -> RunSummary:
    """Everything settled, learnt and told."""
    ended = closing(state.book, watching.now(), status, state.settings, present())
    try:
        taught = learn(state.wanted.asked, state.found, state.book.record.job, marks=watching.marks.kept, ended=ended)
    except Exception as broken:  # noqa: BLE001 - the program's exit code counts more than what it teaches
        taught = Learnt(unfit=f"costguard itself failed ({type(broken).__name__})")
    told(state.book, ended, state.found, taught)
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


def _environment(state: Running, hints: HintReceiver) -> dict[str, str]:
    """What the program finds: all that we were given, and what it is."""
    return {**os.environ, RUN_ENV: state.attempt.id, JOB_ENV: state.book.record.job, **hints.build_environment()}


def _labels(found: Expected) -> dict[str, str]:
    """The labels of its machine, by which budgets may match."""
    return dict(found.live.observation.labels) if found.live else {}


def _limit(found: Expected) -> Money | None:
    """The job's own cap."""
    if found.job is not None:
        return found.job.limits.max_usd
    return parse_job_limits(read_subtable(found.stated.table, "limits")).max_usd if found.stated else None


def _agents() -> Sequence[str]:
    """Where the agent of this machine listens, if there is one."""
    from costguard_agent.hints import list_hint_sockets

    return list_hint_sockets()


def _nameable(text: str) -> str:
    """`text` as the beginning of a job's name."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in text)
    return kept.strip("._-")[:60] or "job"
