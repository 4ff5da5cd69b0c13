"""Runs by job: what was quoted before its first attempt, beside what all of its attempts came to.

Example: attempt 1 was quoted at $14.94 and ran for $6.20 until its machine was taken away; attempt 2 set $5.98 aside for what
was left and ran for $4.10. The job was quoted at $14.94 and came to $10.30.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from costguard.reporting.statement.sections import QuotedRun
from costguard.values.money import Money


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedJob:
    """The attempts of one job that ended in a period, in one currency. `quoted`: of the first of them."""

    job: str
    attempts: int
    quoted: Money
    actual: Money


def group_runs_by_job(quotes: Iterable[QuotedRun]) -> tuple[QuotedJob, ...]:
    """The jobs of `quotes`, in the order in which their first attempts ended."""
    found: dict[tuple[str, str], list[QuotedRun]] = {}
    for one in quotes:
        if one.job:
            found.setdefault((one.job, one.hold.money.currency), []).append(one)
    return tuple(_build_quoted_job(job, attempts) for (job, _), attempts in found.items())


def _build_quoted_job(job: str, attempts: list[QuotedRun]) -> QuotedJob:
    first = min(attempts, key=lambda one: one.hold.taken_at)
    actual = Money(nano=sum(one.actual.nano for one in attempts), currency=first.hold.money.currency)
    return QuotedJob(job=job, attempts=len(attempts), quoted=first.hold.money, actual=actual)
