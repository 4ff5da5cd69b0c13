"""What is asked before a job runs: how much of it is left, what is set aside for that, for how long its machine is kept.

Example: a job is quoted at 4.0 h (3.0 to 6.0) and $9.96 (7.47 to 14.94). $14.94 are held for 10 h, its machine is kept for 9 h.
Attempt 2 begins where attempt 1 told step 600 of 1,000: 40 % are left, so $5.98 are held, and the machine is kept for 3.6 h.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from costguard.budgets.hold import HOLD_DURATION_MAX, JOB_LABEL, Hold
from costguard.runs.record import JobAttempt, JobRecord
from costguard.values.interval import Interval
from costguard.values.money import Money, MoneyInterval, Rate

LEASE_FACTOR = 1.5
"""Times the quote's high end for which the machine is kept."""
HOLD_FACTOR = 1.5
HOLD_MARGIN = timedelta(hours=1)
"""A hold expires after HELD times the quote's high end and this: a run that nobody ends does not block a budget for ever."""
HOLD_LENGTH_UNQUOTED = timedelta(days=7)
LEASE_MIN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMachine:
    """What the job runs on. `hourly` None: nobody knows its price. `source`: who says so.

    `provider`, `account`, `owner`: "" where they are not known. `count`: GPUs. `gpu`: canonical, "" where none was found.
    """

    gpu: str = ""
    count: int = 0
    nodes: int = 1
    hourly: Rate | None = None
    source: str = ""
    provider: str = ""
    account: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerms:
    """What is expected of the whole job, and of what is left of it. None: not known. `steps`: of the whole job."""

    machine: JobMachine
    hours: Interval | None = None
    usd: MoneyInterval | None = None
    tokens_per_step: int | None = None
    steps: int | None = None
    share: Fraction = Fraction(1)

    @property
    def left_hours(self) -> Interval | None:
        """Of what is left."""
        return None if self.hours is None else self.hours.scale(float(self.share))

    @property
    def left_usd(self) -> MoneyInterval | None:
        """Of what is left."""
        if self.usd is None:
            return None
        low, expected, high = (_take_share(money, self.share) for money in (self.usd.low, self.usd.expected, self.usd.high))
        return MoneyInterval(low=low, expected=expected, high=high)


def compute_share_left(record: JobRecord, steps: int | None) -> Fraction:
    """How much of the job is left to do.

    All of it where it did not say how far it has come, where how long it is is not known, and where it came to its end: it is
    begun anew.
    """
    done = record.last_step
    if done is None or not steps or done >= steps:
        return Fraction(1)
    return Fraction(steps - done, steps)


def build_job_hold(
    attempt: JobAttempt, job: str, money: Money, terms: JobTerms, *, who: str, labels: Mapping[str, str], now: datetime
) -> Hold:
    """`money` set aside for an attempt of `job`."""
    high = terms.left_hours.high if terms.left_hours else None
    lasts = HOLD_LENGTH_UNQUOTED if high is None else timedelta(hours=HOLD_FACTOR * high) + HOLD_MARGIN
    machine = terms.machine
    return Hold(
        id=attempt.id,
        money=money,
        who=who,
        why=f"job {job}, attempt {attempt.number}",
        taken_at=now,
        expires_at=now + min(lasts, HOLD_DURATION_MAX - timedelta(seconds=1)),
        provider=machine.provider,
        account=machine.account,
        owner=machine.owner,
        gpu=machine.gpu,
        labels=tuple(sorted({**labels, JOB_LABEL: job}.items())),
    )


def compute_lease_length(terms: JobTerms, longest: timedelta) -> timedelta | None:
    """For how long its machine is kept; None where nobody knows how long the job takes."""
    if terms.left_hours is None:
        return None
    seconds = math.ceil(LEASE_FACTOR * terms.left_hours.high * 3600)
    return max(LEASE_MIN, min(timedelta(seconds=seconds), longest))


def find_hold_amount(terms: JobTerms, limit: Money | None) -> Money | None:
    """What to set aside: the quote's high end; where that is unknown the stated limit; None where nothing is known."""
    high = terms.left_usd.high if terms.left_usd else limit
    return high if high is not None and high.nano > 0 else None


def _take_share(money: Money, share: Fraction) -> Money:
    return Money(nano=math.ceil(money.nano * share), currency=money.currency)
