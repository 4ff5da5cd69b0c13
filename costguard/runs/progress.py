"""Measure the speed of a job from the steps that it reports.

From it follow the time left, agreement with the quote, and a speed to learn from.

Example: 1,000 steps of 8,192 tokens; after 100 s the job is at step 200 and has run at 2.1 steps a second since the warm-up:
800 steps are left, 381 s, so it ends after 481 s. The speed of 17,203 tokens a second is one more observed run, if it ends
well.

The module also formats the messages of a run, a line or two each: before it, during it, when it leaves its quote, at its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from costguard.runs.record import ENDED, JobAttempt, JobRecord, JobTerms
from costguard.values.interval import Interval
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.text_format import format_interval, format_local_time, get_currency_sign

STEPS_MIN, MARKS_MIN = 20, 8
"""Below them a speed is a guess: an assumption, 2026-11."""
WARMUP_DIVISOR = 8
"""One in so many of the marks is left out at the beginning: compilation, caches, the first batch."""
STEADY_FACTOR_MAX = 1.25
"""Factor by which the two halves of a steady run may differ."""
MARKS_MAX = 2048
"""Marks that are kept; when there are more, every other one is dropped."""
STEP_MAX = 2**53


class ProgressMark(NamedTuple):
    """The job reported `step`, `at_s` seconds after it began."""

    step: int
    at_s: float


class JobPace(NamedTuple):
    """Steps a second after the warm-up, measured over `steps` steps in `seconds`."""

    steps_per_s: float
    steps: int
    seconds: float


class PaceUnknown(NamedTuple):
    """The reason why no speed can be measured."""

    why: str


@dataclass(slots=True)
class ProgressLog:
    """The steps that a job has reported so far.

    A step below the last one starts the log again, so for a job that counts each epoch from 0 only the last epoch counts.
    """

    kept: list[ProgressMark] = field(default_factory=list)
    first_step: int | None = None

    def add(self, step: int, at_s: float) -> None:
        """Add a report of `step` at `at_s` seconds; a repeated step or an invalid one is ignored."""
        if not 0 <= step <= STEP_MAX:
            return
        if self.first_step is None:
            self.first_step = step
        if self.kept and step < self.kept[-1].step:
            self.kept.clear()
        if self.kept and (step == self.kept[-1].step or at_s <= self.kept[-1].at_s):
            return
        self.kept.append(ProgressMark(step, at_s))
        if len(self.kept) > MARKS_MAX:
            del self.kept[1:-1:2]

    @property
    def last_step(self) -> int | None:
        """The last reported step; None if there is none."""
        return self.kept[-1].step if self.kept else None


def measure_pace(marks: Sequence[ProgressMark]) -> JobPace | PaceUnknown:
    """Return the speed if it is steady enough, or the reason why it is unknown."""
    if not marks:
        return PaceUnknown("it reported no steps: call costguard.progress(step) in its loop")
    warm = marks[max(1, len(marks) // WARMUP_DIVISOR) :]
    steps = warm[-1].step - warm[0].step if warm else 0
    if len(warm) < MARKS_MIN or steps < STEPS_MIN:
        return PaceUnknown(
            f"it reported {steps} steps at {len(warm)} moments once it was warm, of {STEPS_MIN} and {MARKS_MIN} needed"
        )
    middle = len(warm) // 2
    halves = [_compute_speed(warm[0], warm[middle]), _compute_speed(warm[middle], warm[-1])]
    if max(halves) > STEADY_FACTOR_MAX * min(halves):
        speeds = " and ".join(f"{half:.3g}" for half in halves)
        return PaceUnknown(f"its speed was not stable: {speeds} steps a second in its two halves")
    return JobPace(_compute_speed(warm[0], warm[-1]), steps, warm[-1].at_s - warm[0].at_s)


def measure_token_speed(
    marks: Sequence[ProgressMark], *, status: int | None, tokens_per_step: int | None
) -> float | PaceUnknown:
    """Return the tokens a second of a run if they can be learned from, or the reason why not."""
    if status != 0:
        return PaceUnknown("its end was not observed" if status is None else f"it ended with status {status}")
    if tokens_per_step is None:
        return PaceUnknown("how many tokens a step takes is not known")
    pace = measure_pace(marks)
    return pace if isinstance(pace, PaceUnknown) else pace.steps_per_s * tokens_per_step


def count_steps(tokens: int | None, tokens_per_step: int | None) -> int | None:
    """Return the steps of the whole job; None if its tokens or the tokens per step are unknown."""
    return None if not tokens or not tokens_per_step else math.ceil(tokens / tokens_per_step)


def estimate_seconds_left(marks: Sequence[ProgressMark], steps: int | None, now_s: float) -> float | None:
    """Return the seconds until step `steps`, at `now_s` and the present pace; None if either is unknown."""
    pace = measure_pace(marks)
    if steps is None or isinstance(pace, PaceUnknown):
        return None
    left = (steps - marks[-1].step) / pace.steps_per_s - (now_s - marks[-1].at_s)
    return max(0.0, left)


def is_outside_quote(hours: float, quoted: Interval | None) -> bool:
    """Return whether the projected duration of the whole job, in hours, lies outside of the quote (None: never)."""
    return quoted is not None and not quoted.low <= hours <= quoted.high


def _compute_speed(first: ProgressMark, last: ProgressMark) -> float:
    return (last.step - first.step) / (last.at_s - first.at_s)


WHOLE = 1
HOUR_S = 3600


def format_quote_lines(job: str, number: int, terms: JobTerms) -> Iterator[str]:
    """Yield the lines about the job before it starts: its machine, and the quoted duration and cost."""
    machine = terms.machine
    where = f" on {machine.gpu} x{machine.count * machine.nodes}" if machine.gpu else ""
    rate = (
        "at an unknown price"
        if machine.hourly is None
        else f"at {get_currency_sign(machine.hourly.currency)}{machine.hourly.format()}/h"
    )
    yield f"job {job}, attempt {number}{where}, {rate} ({machine.source})"
    if terms.hours is None:
        yield "its duration is unknown: add a job file with tokens (--job job.toml)"
        return
    left = terms.left_hours if terms.share != WHOLE else terms.hours
    usd = terms.left_usd if terms.share != WHOLE else terms.usd
    part = "" if terms.share == WHOLE else f" for the {float(terms.share):.0%} that are left of {format_job_hours(terms.hours)}"
    yield f"quoted: {format_job_hours(left)}, {format_job_money(usd)}{part}"


def format_progress_line(job: str, hours: float, spent: Money | None, terms: JobTerms, left_s: float | None) -> str:
    """Return one line, short enough for a title: `demo: 1.2 h, $2.99 of $9.96; 2.8 h left`."""
    cost = "price unknown" if spent is None else format_job_cost(spent)
    usd, quoted = terms.usd, terms.hours
    of = f" of {get_currency_sign(usd.expected.currency)}{usd.expected.format()}" if usd and spent else ""
    took = f"{hours:.2f} h" + (f" of {quoted.expected:.2f}" if quoted else "")
    left = "" if left_s is None else f"; {left_s / HOUR_S:.2f} h left"
    return f"{job}: {took}, {cost}{of}{left}"


def format_end_lines(attempt: JobAttempt, record: JobRecord, terms: JobTerms, how: str) -> Iterator[str]:
    """Yield the lines that compare the duration and cost of this attempt and of the whole job with the quote."""
    ran = attempt.seconds / HOUR_S
    yield (
        f"job {record.job}, attempt {attempt.number} {how} after {format_job_length(attempt.seconds)}, "
        f"{format_job_cost(attempt.spent)}"
    )
    several = len([one for one in record.attempts if one.seconds]) > 1
    if several:
        yield f"all {len(record.attempts)} attempts: {format_job_length(record.seconds)}, {format_job_cost(record.spent)}"
    if terms.hours is None:
        return
    hours, spent = (record.seconds / HOUR_S, record.spent) if several else (ran, attempt.spent)
    text = f"quoted {format_job_hours(terms.hours)}, {format_job_money(terms.usd)}"
    if attempt.state == ENDED and attempt.status == 0 and terms.hours.expected:
        share = hours / terms.hours.expected
        within = "within" if terms.hours.low <= hours <= terms.hours.high else "outside"
        took = "less than 1 %" if share * 100 < 1 else f"{share:.0%}".replace("%", " %")
        text += f": took {took} of the quoted time, {within} its range"
    elif spent is not None:
        text += ", for the whole job"
    yield text


def format_next_quote(old_terms: JobTerms, new_terms: JobTerms) -> str:
    """Return the line with the next quote of such a job and the previous one."""
    next_quote = f"{format_job_hours(new_terms.hours)}, {format_job_money(new_terms.usd)}"
    return f"next quote: {next_quote}; it was {format_job_hours(old_terms.hours)}"


def format_lease_end(until: datetime) -> str:
    """Return the line that states until when the machine is kept."""
    return f"the machine is kept until {format_local_time(until)}"


def format_outside_quote(hours: float, quoted: Interval) -> str:
    """Return the line that the job will take longer or shorter than quoted."""
    longer = hours > quoted.high
    end, side = (quoted.high, "longer than the high") if longer else (quoted.low, "shorter than the low")
    takes, of = format_job_length(round(hours * HOUR_S)), format_job_length(round(end * HOUR_S))
    return f"at its current speed the job takes {takes} in all, {side} end of its quote, {of}"


def format_job_hours(hours: Interval | None) -> str:
    """Return `4.00 h (3.00 to 6.00)`; in minutes or seconds if it is short."""
    if hours is None:
        return "hours unknown"
    unit, name = (1.0, "h") if hours.high >= WHOLE else (60.0, "min") if hours.high * 60 >= WHOLE else (3600.0, "s")
    low, expected, high = (f"{end * unit:.2f}" for end in (hours.low, hours.expected, hours.high))
    return f"{expected} {name} ({low} to {high})"


def format_job_money(usd: MoneyInterval | None) -> str:
    """Return `$9.96 (7.47 to 14.94)`, to the hundredth of a cent if it is less than a dollar."""
    if usd is None:
        return "money unknown"
    if usd.high.nano >= NANO:
        return f"{get_currency_sign(usd.low.currency)}{format_interval(usd)}"
    low, expected, high = usd.format_ends(4).values()
    return f"{get_currency_sign(usd.low.currency)}{expected} ({low} to {high})"


def format_job_cost(spent: Money | None) -> str:
    """Return `$2.99`, to the hundredth of a cent if it is less than a dollar."""
    if spent is None:
        return "at an unknown price"
    return f"{get_currency_sign(spent.currency)}{spent.format(2 if abs(spent.nano) >= NANO else 4)}"


def format_job_length(seconds: int) -> str:
    """Return `12 s`, `3.2 min` or `1.25 h`."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds} s"
    return f"{seconds / 60:.1f} min" if seconds < HOUR_S else f"{seconds / HOUR_S:.2f} h"
