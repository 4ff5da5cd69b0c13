"""A training run that reports itself: `with costguard.run("job.toml") as run: ... run.step()`, and the callbacks of frameworks.

    enter: quote on this machine, the expected end and cost -> step: a counter; once a second a mark, a hint, a look at the cap
    -> exit: cost beside the quote; where nobody else measures, speed and peak memory into the calibration

Nothing here may harm the training: after the start a failure is a line on standard error. A step costs one look at the clock.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Self

from costguard_agent import progress as send_progress_hint
from costguard_agent.hints import list_hint_sockets

from costguard.data import ShippedFacts
from costguard.errors import CostguardError, InputError, replace_unprintable
from costguard.runs.progress import (
    HOUR_S,
    PaceUnknown,
    ProgressLog,
    count_steps,
    estimate_seconds_left,
    format_end_lines,
    format_job_cost,
    format_job_length,
    format_next_quote,
    format_quote_lines,
    measure_pace,
)
from costguard.runs.record import ENDED, JobAttempt, JobMachine, JobRecord, JobTerms
from costguard.services.guarding.overrides import get_now
from costguard.services.quote.job_input import read_job_input
from costguard.services.run_jobs import machine_shutdown
from costguard.services.run_jobs.job_run import LearntSpeed, learn_speed
from costguard.services.run_jobs.machine_shutdown import NO_END_ACTION, NOTHING, EndAction
from costguard.services.run_jobs.record_store import JOB_ENV
from costguard.services.run_jobs.terms import RunEstimate, RunRequest, estimate_run
from costguard.settings import read_settings
from costguard.sizing.job import AMOUNT_KEYS, Job, Table, merge_tables, parse_job_limits, read_subtable
from costguard.system.child.process import block_signals
from costguard.values.checks import require, require_number, require_whole_number
from costguard.values.gpu import GIB
from costguard.values.money import Money
from costguard.values.text_format import format_local_time

LOOK_EVERY_S = 1.0
"""Seconds between two looks: marks for the speed, a hint, the cap."""
STEP_TOLERANCE = 0.1
"""How far two counts of a step's tokens may differ: a last batch that is not full, and tokens stated in round numbers."""
DEFAULT_NAME = "training"
FAILED_STATUS = 1


@dataclass(slots=True, kw_only=True)
class TrackedRun:
    """One training run, tracked by itself; `should_stop` becomes true when its own cap is reached.

    - `job`: a job file, or its table; None: neither a quote nor calibration.
    - `on`, `rate`: GPUs and price an hour, as the flags of `costguard run`; None: found here.
    - `steps`: optimizer steps of the whole run; None: from the job's tokens. `tokens_per_step`: of all ranks; None: found as
      `find_step_tokens` says.
    - `passes_per_step`: passes of one optimizer step, of all ranks that have batches of their own: accumulation x ranks.
      `batch_size`: sequences of one pass of one rank; None: the job's `micro_batch`.
    - `max_usd`, `max_hours`: this run's own cap; None: the job's `[limits]`.
    - `quiet`: print and record nothing (all ranks but the first).
    - `after`: what is done with this machine at the end (`build_tracked_run`).
    """

    job: str | os.PathLike[str] | Table | None = None
    name: str = DEFAULT_NAME
    on: str | None = None
    rate: str | float | None = None
    steps: int | None = None
    tokens_per_step: int | None = None
    passes_per_step: int | None = None
    batch_size: int | None = None
    max_usd: float | str | None = None
    max_hours: float | None = None
    market: str | None = None
    calibration: str | None = None
    config: str | None = None
    quiet: bool = False
    after: EndAction = NO_END_ACTION
    clock: Callable[[], float] = monotonic
    look_every_s: float = LOOK_EVERY_S
    should_stop: bool = False
    learnt: LearntSpeed | None = None
    """What the run taught the calibration, once it has ended; None: nothing was to be learnt."""
    terms: JobTerms = field(default_factory=lambda: JobTerms(machine=JobMachine()))
    _request: RunRequest | None = None
    _found: RunEstimate | None = None
    _unfit: str = ""
    """Why the run teaches nothing, whatever its speed: how many tokens a step has is not known."""
    _cap: Money | None = None
    _log: ProgressLog = field(default_factory=ProgressLog)
    _began_at: datetime | None = None
    _began_s: float = 0.0
    _next_look_s: float = 0.0
    _last_step_s: float = 0.0
    _paused_s: float = 0.0
    _step: int = 0

    def __enter__(self) -> Self:
        """Quote the run and print the expected end and cost. Raises InputError for a job or option that cannot be used."""
        self._check_options()
        if not self.quiet:
            machine_shutdown.check_end_action(self.after)
            self._quote()
        self._began_at, self._began_s = get_now(), self.clock()
        self._last_step_s = self._began_s
        self._log.add(self._step, 0.0)
        self._print_start()
        return self

    def step(self, step: int | None = None) -> bool:
        """Count one optimizer step, or state the present one; return `should_stop`."""
        self._step = self._step + 1 if step is None else step
        now = self._last_step_s = self.clock()
        if now >= self._next_look_s:
            self._look(now)
        return self.should_stop

    def begin_at(self, step: int) -> None:
        """State the step at which a resumed run begins."""
        self._step = step
        self._log = ProgressLog()
        self._log.add(step, self.clock() - self._began_s - self._paused_s)

    def exclude_pause(self) -> None:
        """Leave the time since the last step out of the speed: an evaluation or a checkpoint has just ended."""
        now = self.clock()
        self._paused_s += now - self._last_step_s
        self._last_step_s = now

    def report(self) -> None:
        """Print the steps, the cost so far, and the expected end and cost at the present speed."""
        for line in self._format_report():
            self._print(line)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Print the cost beside the quote, record what the run teaches, and do what `after` states. Raises nothing."""
        del trace
        if self.quiet:
            return
        succeeded = kind is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        try:
            self._settle(0 if succeeded else FAILED_STATUS)
            self._end_machine(0 if succeeded else FAILED_STATUS)
        except Exception as wrong:  # noqa: BLE001 - a training that went well does not fail here
            self._print(f"the end of the run was not recorded: {type(wrong).__name__}: {wrong}")

    @property
    def spent(self) -> Money | None:
        """The cost so far; None at an unknown price."""
        hourly = self.terms.machine.hourly
        return None if hourly is None else hourly.multiply_seconds(round(self.clock() - self._began_s))

    def _check_options(self) -> None:
        """Read the job and the caps; raises InputError."""
        for name in ("steps", "tokens_per_step", "passes_per_step", "batch_size"):
            if getattr(self, name) is not None:
                require_whole_number(getattr(self, name), name)
        table = dict(self.job) if isinstance(self.job, Mapping) else {}
        file = None if self.job is None or isinstance(self.job, Mapping) else os.fspath(self.job)
        limits = parse_job_limits({})
        if self.job is not None:
            limits = parse_job_limits(read_subtable(read_job_input(table, file, ShippedFacts()).table, "limits"))
        self._cap = limits.max_usd if self.max_usd is None else Money.parse(str(self.max_usd), field="max_usd")
        hours = limits.max_hours if self.max_hours is None else self.max_hours
        self.max_hours = None if hours is None else require_number(hours, "max_hours", least=1e-6, most=1e6)
        if self.job is not None:  # the cap stops this run; it does not keep it from being quoted
            table = merge_tables(table, {"limits": {"max_usd": None, "max_hours": None}})
        self._request = RunRequest(
            job_file=file,
            flags=table,
            on=self.on,
            rate=None if self.rate is None else str(self.rate),
            tokens_per_step=self.tokens_per_step,
            market=self.market,
            calibration=self.calibration,
            config=self.config,
        )

    def _quote(self) -> None:
        """Quote the run here. What cannot be quoted is said, and runs all the same."""
        assert self._request is not None  # noqa: S101 - for the type checker: made by `_check_options`
        try:
            settings = read_settings(self.config)
            self._found = estimate_run(self._request, settings, JobRecord(job=self.name), get_now())
        except InputError:
            raise
        except CostguardError as wrong:
            self._print(f"not quoted: {str(wrong).splitlines()[0]}")
            return
        self._found = self._correct_step(self._found)
        self.terms = self._found.terms
        for note in self._found.notes:
            self._print(note)

    def _correct_step(self, estimate: RunEstimate) -> RunEstimate:
        """Return `estimate` with the tokens of a step as the training states them; an estimate's one pass a step is a guess."""
        if estimate.job is None or estimate.stated is None:
            return replace(estimate, terms=replace(estimate.terms, steps=self.steps or estimate.terms.steps))
        per_step: int | None = self.tokens_per_step
        if per_step is None:
            step_tokens = find_step_tokens(
                estimate.job, estimate.stated.table, steps=self.steps, passes=self.passes_per_step, batch_size=self.batch_size
            )
            per_step, self._unfit = (None, step_tokens) if isinstance(step_tokens, str) else (step_tokens, "")
        steps = self.steps or count_steps(estimate.job.tokens, per_step)
        return replace(estimate, terms=replace(estimate.terms, tokens_per_step=per_step, steps=steps))

    def _print_start(self) -> None:
        for line in format_quote_lines(self.name, 1, self.terms):
            self._print(line)
        if self.terms.hours is not None:
            first, last = (get_now() + timedelta(hours=end) for end in (self.terms.hours.low, self.terms.hours.high))
            self._print(f"expected end: {format_local_time(first)} to {format_local_time(last)}")
        if self._cap is not None:
            has_rate = self.terms.machine.hourly is not None
            self._print(
                f"cap: {format_job_cost(self._cap)}" + ("" if has_rate else ", not checked: the price is unknown (rate=...)")
            )
        if self.max_hours is not None:
            self._print(f"cap: {self.max_hours:g} h")

    def _look(self, now: float) -> None:
        """Take a mark, send a hint and compare with the cap; at most once in `look_every_s`."""
        self._next_look_s = now + self.look_every_s
        elapsed_s = now - self._began_s
        self._log.add(self._step, elapsed_s - self._paused_s)
        if self.quiet:
            return
        send_progress_hint(self._step)
        if not self.should_stop and self._is_cap_reached(elapsed_s):
            self.should_stop = True
            self._print(
                f"the cap is reached after {format_job_length(round(elapsed_s))}, {format_job_cost(self.spent)}: stopping"
            )

    def _is_cap_reached(self, elapsed_s: float) -> bool:
        if self.max_hours is not None and elapsed_s >= self.max_hours * HOUR_S:
            return True
        hourly, cap = self.terms.machine.hourly, self._cap
        if hourly is None or cap is None or hourly.currency != cap.currency:
            return False
        return hourly.nano_per_hour * elapsed_s >= cap.nano * HOUR_S

    def _format_report(self) -> list[str]:
        elapsed_s = self.clock() - self._began_s
        so_far = f"step {self._step}{f' of {self.terms.steps}' if self.terms.steps else ''}"
        line = f"{so_far} after {format_job_length(round(elapsed_s))}, {format_job_cost(self.spent)}"
        pace = measure_pace(self._log.kept)
        left_s = estimate_seconds_left(self._log.kept, self.terms.steps, elapsed_s - self._paused_s)
        if isinstance(pace, PaceUnknown) or left_s is None:
            return [
                f"{line}; the end is not known yet: {pace.why if isinstance(pace, PaceUnknown) else 'steps=... is not stated'}"
            ]
        working_s = max(elapsed_s - self._paused_s, 1e-9)
        left_s *= elapsed_s / working_s  # evaluations and checkpoints go on as they did
        ends, hourly = get_now() + timedelta(seconds=left_s), self.terms.machine.hourly
        total = "" if hourly is None else f", {format_job_cost(hourly.multiply_seconds(round(elapsed_s + left_s)))} in all"
        return [f"{line}; expected end {format_local_time(ends)}{total}"]

    def _settle(self, status: int) -> None:
        """Print the end, and learn from it where no agent and no `costguard run` does."""
        assert self._began_at is not None  # noqa: S101 - for the type checker: `__enter__` ran
        lasted = self.clock() - self._began_s
        ended = JobAttempt(
            id=self.name,
            number=1,
            began_at=self._began_at,
            seen_at=self._began_at + timedelta(seconds=lasted),
            host="",
            boot="",
            state=ENDED,
            status=status,
            hourly=self.terms.machine.hourly,
        )
        record = JobRecord(job=self.name, attempts=(ended,))
        how = "ended" if status == 0 else "ended with an exception"
        for line in format_end_lines(ended, record, self.terms, f"{how} at step {self._step}"):
            self._print(line)
        listener = find_listener()
        if listener:
            self._print(f"its speed is measured by {listener}")
        elif self._found is not None and self._found.job is not None and self._request is not None:
            self.learnt = (
                LearntSpeed(unfit=self._unfit)
                if self._unfit
                else learn_speed(
                    self._request, self._found, self.name, marks=self._log.kept, ended=ended, peak_gib=read_peak_memory_gib()
                )
            )
            self._print_learnt(self.learnt)

    def _end_machine(self, status: int) -> None:
        if self.after != NO_END_ACTION:
            live = self._found.live if self._found else None
            find_keeper = partial(machine_shutdown.find_keeper, read_settings(self.config), live)
            with block_signals() as blocked_signals:
                machine_shutdown.perform_end_action(self.after, status, blocked_signals, "", find_keeper)

    def _print_learnt(self, learnt: LearntSpeed) -> None:
        if learnt.after is not None and learnt.tokens_per_s is not None:
            self._print(f"calibrated with {learnt.tokens_per_s:,.0f} tokens a second")
            self._print(format_next_quote(self.terms, learnt.after))
        else:
            self._print(f"not used to calibrate later quotes: {learnt.unfit}")

    def _print(self, line: str) -> None:
        if not self.quiet:
            sys.stderr.write(f"costguard: {replace_unprintable(line)}\n")


def build_tracked_run(
    job: str | os.PathLike[str] | Table | None = None,
    *,
    then: str = NOTHING,
    then_always: str | bool = False,
    yes_then: bool = False,
    **options: Any,  # noqa: ANN401 - the fields of TrackedRun
) -> TrackedRun:
    """Build the run of `costguard.run`.

    `then`: "stop" or "terminate" this machine when the block has ended without an exception; `then_always`: an act, or True for
    that of `then`, however it ended. `yes_then`: also without a terminal to cancel it. A callback has none of them, because the
    model is often saved after the training.
    """
    act = then if isinstance(then_always, bool) else then_always
    require(then in (NOTHING, act), "then_always", f"is {act}, and then is {then}", "set one of the two")
    return TrackedRun(job=job, after=EndAction(act=act, always=bool(then_always), yes=yes_then), **options)


def find_step_tokens(job: Job, table: Table, *, steps: int | None, passes: int | None, batch_size: int | None) -> int | str:
    """Return the tokens of one optimizer step over all ranks as far as they are stated, or why they are not known.

    - `table`: the job's table, without what is assumed. `steps`: of the whole run. `passes`, `batch_size`: as the trainer has
      them (`TrackedRun`); None: unknown.
    - The job's `global_batch_tokens`; else passes x batch x `seq_len`; else the job's tokens over the steps of the run. Where
      two of them are known and differ, one is not of this run, and none is taken.
    """
    if batch_size is not None and "micro_batch" in table and batch_size != job.recipe.micro_batch:
        return f"the training's batch is {batch_size}, and the job's micro_batch {job.recipe.micro_batch}"
    one_pass = (batch_size or job.recipe.micro_batch) * job.recipe.seq_len * job.example_sequences
    shaped = "seq_len" in table and (batch_size is not None or "micro_batch" in table)
    counted = passes * one_pass if passes is not None and shaped else None
    planned, by = job.tokens / steps if steps and job.tokens and any(key in table for key in AMOUNT_KEYS) else None, "tokens"
    if job.global_batch_tokens is not None and ("global_batch_tokens" in table or "seq_len" in table):
        planned, by = float(job.global_batch_tokens), "global_batch_tokens"
    if planned is None:
        return counted or "the number of tokens per step is not given: write tokens_per_step=..."
    least, most = (one_pass if shaped else 1, planned) if counted is None else (counted, counted)
    if least * (1 - STEP_TOLERANCE) <= planned <= most * (1 + STEP_TOLERANCE):
        return round(planned) if counted is None or by != "tokens" else counted
    batches = f"{'at least ' if counted is None else ''}{least:,}"
    return f"a step has {batches} tokens by its batches, but {planned:,.0f} by the job's {by}: write tokens_per_step=..."


def find_listener() -> str:
    """Return who measures this run from its hints: "costguard run", "the agent", or "" for nobody."""
    if os.environ.get(JOB_ENV):  # it started this process, and learns from the hints itself
        return "costguard run"
    return "the agent" if any(map(os.path.exists, list_hint_sockets())) else ""


def read_peak_memory_gib() -> float | None:
    """Return the most GiB that PyTorch has allocated on one GPU in this process; None without PyTorch or a GPU."""
    torch: Any = sys.modules.get("torch")  # whoever trained with it has imported it
    try:
        if torch is None or not torch.cuda.is_available():
            return None
        peak = max(torch.cuda.max_memory_allocated(device) for device in range(torch.cuda.device_count()))
    except Exception:  # noqa: BLE001 - a broken driver tells nothing
        return None
    return float(peak / GIB) if peak else None
