"""Run a launcher (`sky launch`, `sbatch`, ...) once its run is admitted, and release the hold if the launcher fails.

    admit -> refused: exit 3, the launcher is not started
          -> held: launcher -> 0: the hold counts until its time runs out, or `costguard admit --ended` (`waits`: it has ended)
                            -> another code, or it cannot be started: the hold is released, unless it was open before;
                               the code is passed on

The launcher finds the hold's id as COSTGUARD_HOLD in its environment, so that a policy inside it does not ask for a second one.
If costguard itself is killed in between, the hold counts until its time runs out.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from costguard.budgets.budget_status import HELD_BEFORE
from costguard.errors import CostguardError, InputError
from costguard.runs.admission import AdmitRequest
from costguard.services.run_jobs.admit import admit_run, build_admit_refusal, end_hold
from costguard.system.child.process import ChildProcess, has_terminal, start_child
from costguard.system.child.terminal import write_message
from costguard.views.admit import build_admit_document

HOLD_ENV = "COSTGUARD_HOLD"
"""In the environment of a launcher: the id of the hold that its run has."""
JOB_FILE_ENDINGS = (".toml", ".json", ".yaml", ".yml", ".sbatch", ".slurm", ".sh")
"""Of the words of a launcher, what may be the file that states the job."""
PASSED_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """A launcher and its run. `waits`: the launcher returns when the run has ended, and its hold ends with it."""

    command: tuple[str, ...]
    request: AdmitRequest
    waits: bool = False


def launch_admitted_run(options: SubmitOptions) -> int:
    """Admit the run and start its launcher; return the launcher's exit code. Raises NoAnswerError if the run is refused."""
    if not options.command:
        raise InputError(
            "no launcher was given", field="COMMAND", hint="costguard submit --gpu H100 --hours 12 -- sky launch t.yaml"
        )
    if os.environ.get(HOLD_ENV):
        hint = f"run the launcher itself, or unset {HOLD_ENV}"
        raise InputError(f"this run has a hold: {os.environ[HOLD_ENV]}", field=HOLD_ENV, hint=hint)
    request = find_job_file(options.request, options.command)
    result = admit_run(request)
    for line in (*result.price.warnings, *build_admit_document(result).lead):
        write_message(line)
    refusal = build_admit_refusal(result)
    if refusal is not None:
        raise refusal
    status = None
    try:
        status = _run_launcher(options.command, result.hold.id)
    finally:
        was_open = result.admission.reason in HELD_BEFORE
        _settle_hold(result.hold.id, status, request, waits=options.waits, was_open=was_open)
    return status


def find_job_file(request: AdmitRequest, command: Sequence[str]) -> AdmitRequest:
    """Return the request with the launcher's own file as its job, if nothing else states what is launched. Hours do not."""
    if request.job_file or request.flags or request.on or request.money:
        return request
    files = [word for word in command[1:] if word.endswith(JOB_FILE_ENDINGS) and Path(word).is_file()]
    if len(files) != 1:
        hint = "costguard submit --job job.toml -- ..., or --gpu H100 --count 8 --hours 12, or --usd 50 --hours 12"
        finding = f"the launcher names {len(files)} files" if files else "the launcher names no file of a job"
        raise InputError(f"no job and no rental was given, and {finding}", field="--job", hint=hint)
    return replace(request, job_file=files[0])


def _run_launcher(command: Sequence[str], hold_id: str) -> int:
    with _pass_signals() as pass_to:
        child = start_child(command, {**os.environ, HOLD_ENV: hold_id}, outlives=True)
        pass_to(child)
        return child.wait_until_ended()


@contextmanager
def _pass_signals() -> Iterator[Callable[[ChildProcess], None]]:
    """Pass signals on to the child that is stated, while the block runs; those from before it was, as soon as it is.

    Ctrl-C reaches a child on the same terminal without us.
    """
    children, early_signals, shares_keys = list[ChildProcess](), list[int](), has_terminal()

    def pass_on(number: int, _: FrameType | None) -> None:
        if not (shares_keys and number == signal.SIGINT):
            early_signals.append(number)
            for child in children:
                child.send(number)

    def pass_to(child: ChildProcess) -> None:
        children.append(child)  # first: a signal between these two lines is sent twice and not lost
        for number in tuple(early_signals):
            child.send(number)

    old_handlers = {number: signal.signal(number, pass_on) for number in (*PASSED_SIGNALS, signal.SIGINT)}
    try:
        yield pass_to
    finally:
        for number, action in old_handlers.items():
            signal.signal(number, action)


def _settle_hold(hold_id: str, status: int | None, request: AdmitRequest, *, waits: bool, was_open: bool) -> None:
    """End the hold of a launcher that failed, or waited for its run; else say how it ends. A failure is told, not raised.

    `was_open`: it was open before: an earlier launcher of the same run may have launched it, so that a failure does not end it.
    """
    failed = status != 0
    if failed and was_open:
        hint = f"costguard admit --release {hold_id} ends it if nothing runs"
        write_message(f"the launcher failed, and hold {hold_id} belongs to an earlier one and stays open; {hint}")
        return
    if not failed and not waits:
        write_message(f"launched: costguard admit --ended {hold_id} ends the hold when the run has ended")
        return
    with suppress(CostguardError):
        end_hold(hold_id, started=not failed, config=request.config)
        how = "could not be started" if status is None else f"failed with exit code {status}"
        write_message(f"the launcher {how}: the hold is released" if failed else "the run and its hold have ended")
        return
    write_message(f"hold {hold_id} could not be ended: it counts until it expires")
