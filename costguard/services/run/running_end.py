"""When the program has ended: hold and lease settled, what it taught kept, and the document of it written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from costguard.data import ShippedFacts
from costguard.errors import CostguardError, InputError, replace_unprintable
from costguard.runs.progress import PaceUnknown, ProgressMark, measure_token_speed
from costguard.runs.record import ENDED, OPEN, JobAttempt
from costguard.runs.telling import format_end_lines, format_next_quote
from costguard.runs.terms import JobTerms
from costguard.services.asked import find_calibration_file, update_calibration
from costguard.services.job_input import read_observed_runs
from costguard.services.run.record_store import RunRecordStore, open_run_ledger
from costguard.services.run.run import settle_attempt
from costguard.services.run.terms import RunEstimate, RunRequest, quote_again
from costguard.settings import Settings, expand_path
from costguard.sizing.observed_runs import JOB_KEYS
from costguard.system.child.attending import format_signal_name
from costguard.system.child.terminal import write_message
from costguard.system.whole import write_file_atomically
from costguard.views.runs import RUN_SCHEMA, RunSummary, build_run_data

SPEED_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntSpeed:
    """What a run taught: its tokens a second, or why nothing. `after`: the next quote of such a job."""

    tokens_per_s: float | None = None
    unfit: str = ""
    after: JobTerms | None = None


def close_ended_attempt(
    book: RunRecordStore, attempt: JobAttempt, status: int, settings: Settings, now: datetime
) -> JobAttempt:
    """The attempt with its end written: to the record first, then to the ledger. What cannot be written is told."""
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
    asked: RunRequest, found: RunEstimate, job: str, *, marks: Sequence[ProgressMark], ended: JobAttempt
) -> LearntSpeed:
    """Keep what the run says of speed, where it is fit for that, and quote such a job again."""
    if found.job is None or found.stated is None or found.hardware is None:
        return LearntSpeed(unfit="it was not quoted, so there is nothing to hold it against")
    speed = measure_token_speed(marks, status=ended.status, tokens_per_step=found.terms.tokens_per_step)
    if isinstance(speed, PaceUnknown):
        return LearntSpeed(unfit=speed.why)
    if found.differs:
        return LearntSpeed(unfit=found.differs)
    try:
        left_out = _add_to_calibration(asked, found, round(speed, SPEED_DIGITS), ended, job)
        if left_out:
            return LearntSpeed(tokens_per_s=speed, unfit=left_out)
        after = quote_again(asked, found, ended.seen_at)
    except CostguardError as error:
        return LearntSpeed(tokens_per_s=speed, unfit=str(error).splitlines()[0])
    return LearntSpeed(tokens_per_s=speed, after=after)


def say_end(book: RunRecordStore, ended: JobAttempt, found: RunEstimate, learnt_: LearntSpeed) -> None:
    """Say how it ended, beside the quote."""
    how = f"was ended by {ended.why}" if ended.why else f"ended with status {ended.status}"
    for line in format_end_lines(ended, book.record, found.terms, how):
        write_message(line)
    if learnt_.after is not None and learnt_.tokens_per_s is not None:
        write_message(f"learnt: {learnt_.tokens_per_s:,.0f} tokens a second")
        write_message(format_next_quote(found.terms, learnt_.after))
    elif found.job is not None:
        write_message(f"nothing is learnt of it for later quotes: {learnt_.unfit}")


def check_result_file(stated: str | None) -> Path | None:
    """Where the document goes; InputError where another file, which is none of these, lies there."""
    if stated is None:
        return None
    path = expand_path(stated).absolute()
    hint = "name another file with --result"
    try:
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent}", field="--result", hint="make it first")
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise InputError("is there already, and is no plain file", field=str(path), hint=hint)
        if path.exists() and not _is_result(path):
            raise InputError("is there already, and holds no result of a run", field=str(path), hint=hint)
    except OSError as wrong:
        raise InputError(f"cannot be written: {wrong.strerror}", field=str(path), hint=hint) from None
    return path


def write_result(path: Path | None, came: RunSummary) -> None:
    """Put the document in place. What cannot be written is told: the program's end counts more."""
    if path is None:
        return
    try:
        write_file_atomically(path, f"{json.dumps(build_run_data(came), indent=2)}\n".encode())
    except OSError as wrong:
        write_message(f"{path}: cannot be written: {wrong.strerror}")


def _is_result(path: Path) -> bool:
    try:
        found = json.loads(path.read_bytes() or b"{}")
    except (ValueError, RecursionError):
        return False
    return found == {} or (isinstance(found, dict) and found.get("schema") == RUN_SCHEMA)


def _add_to_calibration(asked: RunRequest, found: RunEstimate, speed: float, ended: JobAttempt, job: str) -> str:
    """Have the run among those that calibrate; why it was left out there, "" where it was not."""
    assert found.stated is not None  # noqa: S101 - for the type checker: asked by `learn`
    assert found.hardware is not None  # noqa: S101
    name = f"{job}, attempt {ended.number}"
    row = {key: value for key, value in found.stated.table.items() if key in JOB_KEYS} | {
        "gpu": found.hardware.gpu.name,
        "gpu_count": found.hardware.gpu_count,
        "nodes": found.hardware.nodes,
        "tokens_per_s": speed,
        "name": name,
        "at": ended.seen_at.isoformat(timespec="seconds"),
        "source": "costguard run" if found.seen else "costguard run, its GPU as stated",
    }
    facts = ShippedFacts()
    fresh = read_observed_runs([(name, row)], found.stated.folder, facts)
    answer = update_calibration(fresh, find_calibration_file(asked.calibration, asked.config), facts)
    return next((replace_unprintable(out.text) for out in answer.weighed.left_out if name in out.text), "")
