"""What people are told of a run, a line or two at a time: before it, while it goes, when it leaves its quote, at its end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from costguard.runs.record import ENDED, JobAttempt, JobRecord
from costguard.runs.terms import JobTerms
from costguard.values.interval import Interval
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.text_format import format_interval, format_local_time, get_currency_sign

WHOLE = 1
HOUR_S = 3600


def format_quote_lines(job: str, number: int, terms: JobTerms) -> Iterator[str]:
    """What it is to take and cost, and on what."""
    machine = terms.machine
    where = f" on {machine.gpu} x{machine.count * machine.nodes}" if machine.gpu else ""
    rate = (
        "at an unknown price"
        if machine.hourly is None
        else f"at {get_currency_sign(machine.hourly.currency)}{machine.hourly.format()}/h"
    )
    yield f"job {job}, attempt {number}{where}, {rate} ({machine.source})"
    if terms.hours is None:
        yield "its length is not known: a job file with tokens has it quoted (--job job.toml)"
        return
    left = terms.left_hours if terms.share != WHOLE else terms.hours
    usd = terms.left_usd if terms.share != WHOLE else terms.usd
    part = "" if terms.share == WHOLE else f" for the {float(terms.share):.0%} that are left of {format_job_hours(terms.hours)}"
    yield f"quoted: {format_job_hours(left)}, {format_job_money(usd)}{part}"


def format_progress_line(job: str, hours: float, spent: Money | None, terms: JobTerms, left_s: float | None) -> str:
    """One line, short enough for a title: `demo: 1.2 h, $2.99 of $9.96; 2.8 h left`."""
    cost = "price unknown" if spent is None else format_job_cost(spent)
    usd, quoted = terms.usd, terms.hours
    of = f" of {get_currency_sign(usd.expected.currency)}{usd.expected.format()}" if usd and spent else ""
    took = f"{hours:.2f} h" + (f" of {quoted.expected:.2f}" if quoted else "")
    left = "" if left_s is None else f"; {left_s / HOUR_S:.2f} h left"
    return f"{job}: {took}, {cost}{of}{left}"


def format_end_lines(attempt: JobAttempt, record: JobRecord, terms: JobTerms, how: str) -> Iterator[str]:
    """What it took and cost beside what was quoted, of this attempt and of the whole job."""
    ran = attempt.seconds / HOUR_S
    yield f"job {record.job}, attempt {attempt.number} {how} after {format_job_length(attempt.seconds)}, {format_job_cost(attempt.spent)}"
    several = len([one for one in record.attempts if one.seconds]) > 1
    if several:
        yield f"all {len(record.attempts)} attempts: {format_job_length(record.seconds)}, {format_job_cost(record.spent)}"
    if terms.hours is None:
        return
    hours, spent = (record.seconds / HOUR_S, record.spent) if several else (ran, attempt.spent)
    said = f"quoted {format_job_hours(terms.hours)}, {format_job_money(terms.usd)}"
    if attempt.state == ENDED and attempt.status == 0 and terms.hours.expected:
        within = terms.hours.low <= hours <= terms.hours.high
        said += (
            f": the hours are {hours / terms.hours.expected:.2f} of what was expected, {'within' if within else 'outside'} it"
        )
    elif spent is not None:
        said += ", for the whole job"
    yield said


def format_next_quote(before: JobTerms, after: JobTerms) -> str:
    """The quote of such a job from now on, beside what it was."""
    return (
        f"next quote: {format_job_hours(after.hours)}, {format_job_money(after.usd)}; it was {format_job_hours(before.hours)}"
    )


def format_lease_end(until: datetime) -> str:
    """Until when its machine is kept."""
    return f"the machine is kept until {format_local_time(until)}"


def format_outside_quote(hours: float, quoted: Interval) -> str:
    """That the job will take another time than was quoted."""
    longer = hours > quoted.high
    end, side = (quoted.high, "longer than the high") if longer else (quoted.low, "shorter than the low")
    takes, of = format_job_length(round(hours * HOUR_S)), format_job_length(round(end * HOUR_S))
    return f"at its present pace the job takes {takes} in all, {side} end of its quote, {of}"


def format_job_hours(hours: Interval | None) -> str:
    """`4.00 h (3.00 to 6.00)`; in minutes or seconds where it is short."""
    if hours is None:
        return "hours unknown"
    unit, name = (1.0, "h") if hours.high >= WHOLE else (60.0, "min") if hours.high * 60 >= WHOLE else (3600.0, "s")
    low, expected, high = (f"{end * unit:.2f}" for end in (hours.low, hours.expected, hours.high))
    return f"{expected} {name} ({low} to {high})"


def format_job_money(usd: MoneyInterval | None) -> str:
    """`$9.96 (7.47 to 14.94)`, to the hundredth of a cent where it is less than a dollar."""
    if usd is None:
        return "money unknown"
    if usd.high.nano >= NANO:
        return f"{get_currency_sign(usd.low.currency)}{format_interval(usd)}"
    low, expected, high = usd.format_ends(4).values()
    return f"{get_currency_sign(usd.low.currency)}{expected} ({low} to {high})"


def format_job_cost(spent: Money | None) -> str:
    """`$2.99`, to the hundredth of a cent where it is less than a dollar."""
    if spent is None:
        return "at an unknown price"
    return f"{get_currency_sign(spent.currency)}{spent.format(2 if abs(spent.nano) >= NANO else 4)}"


def format_job_length(seconds: int) -> str:
    """`12 s`, `3.2 min`, `1.25 h`."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds} s"
    return f"{seconds / 60:.1f} min" if seconds < HOUR_S else f"{seconds / HOUR_S:.2f} h"
