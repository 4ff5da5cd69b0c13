"""A job and its attempts.

A job on a spot machine that is interrupted and started again stays one job, and costs add up.

Example: attempt 1 ran from 10:00 until 12:30 at $2.49 an hour and was lost, attempt 2 from 13:00 until 14:00: the job took 3.5
h and $8.715. An attempt at an unknown price adds hours, and makes the cost of the job unknown: it is not zero.

Before a job runs, the module computes the share of it that is left, the money to hold, and how long its machine is kept.

Example: a job is quoted at 4.0 h (3.0 to 6.0) and $9.96 (7.47 to 14.94). $14.94 are held for 10 h, its machine is kept for 9 h.
Attempt 2 begins where attempt 1 reported step 600 of 1,000: 40 % are left, so $5.98 are held, and the machine is kept for 3.6
h.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from costguard.budgets.hold import HOLD_DURATION_MAX, JOB_LABEL, Hold
from costguard.errors import InputError
from costguard.values.checks import require, require_one_of
from costguard.values.instant import require_instant
from costguard.values.interval import Interval
from costguard.values.money import Money, MoneyInterval, Rate

SCHEMA = "costguard.run-record/1"
PLANNED, OPEN, ENDED, LOST, NEVER = "planned", "open", "ended", "lost", "never"
ATTEMPT_STATES = {
    PLANNED: "recorded; whether its command started is not known",
    OPEN: "started; its end is not recorded",
    ENDED: "ended with a known status",
    LOST: "costguard run ended first: the job was last seen running at seen_at",
    NEVER: "its command was not started",
}
JOB_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a job may be called: the name of a file, a label, a line of a log."""

Table = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAttempt:
    """One execution of the job's command, from `began_at` to `seen_at`.

    `seen_at`: its end, or the last time it was known to be alive. `id`: unique to the attempt; its processes carry it in their
    environment. `host`, `boot`: the machine, and its boot. `status`: the exit code that was passed on, None: unknown. `hourly`:
    None: unknown price. `hold`, `lease`: their ids, "" for none. `quoted_*`: the quote of the whole job before the attempt
    began. `first_step`, `last_step`: as reported by the job.
    """

    id: str
    number: int
    began_at: datetime
    seen_at: datetime
    host: str
    boot: str
    state: str = PLANNED
    why: str = ""
    status: int | None = None
    hourly: Rate | None = None
    hold: str = ""
    held: Money | None = None
    lease: str = ""
    quoted_hours: Interval | None = None
    quoted_usd: MoneyInterval | None = None
    first_step: int | None = None
    last_step: int | None = None

    def __post_init__(self) -> None:
        require_one_of(self.state, ATTEMPT_STATES, f"attempt {self.id}.state")
        require_instant(self.began_at, f"attempt {self.id}.began_at")
        require_instant(self.seen_at, f"attempt {self.id}.seen_at")

    @property
    def seconds(self) -> int:
        """The duration as far as known, in whole seconds rounded up; 0 if the command is not known to have begun."""
        if self.state in (PLANNED, NEVER):
            return 0
        return max(0, math.ceil((self.seen_at - self.began_at) / timedelta(seconds=1)))

    @property
    def spent(self) -> Money | None:
        """The cost of those seconds; None at an unknown price."""
        return None if self.hourly is None else self.hourly.multiply_seconds(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """The attempts of one job, in order."""

    job: str
    attempts: tuple[JobAttempt, ...] = ()

    def __post_init__(self) -> None:
        check_job_name(self.job, "record.job")

    @property
    def seconds(self) -> int:
        """The seconds of all attempts."""
        return sum(attempt.seconds for attempt in self.attempts)

    @property
    def spent(self) -> Money | None:
        """The cost of all attempts; None if one ran at an unknown price, or they ran in several currencies."""
        ran = [attempt.spent for attempt in self.attempts if attempt.seconds]
        costs = [money for money in ran if money is not None]
        if len(costs) < len(ran) or len({money.currency for money in costs}) > 1:
            return None
        return Money(nano=sum(m.nano for m in costs), currency=costs[0].currency if costs else "USD")

    @property
    def last_step(self) -> int | None:
        """The last step of the newest attempt that reported one, which may have started from 0; None if none did."""
        return next((a.last_step for a in reversed(self.attempts) if a.last_step is not None), None)

    @property
    def unfinished(self) -> tuple[JobAttempt, ...]:
        """The attempts whose end is not recorded."""
        return tuple(attempt for attempt in self.attempts if attempt.state in (PLANNED, OPEN))

    def put_attempt(self, attempt: JobAttempt) -> JobRecord:
        """Return the record with `attempt` added, or replacing the attempt of the same id."""
        others = [one for one in self.attempts if one.id != attempt.id]
        return replace(self, attempts=tuple(sorted((*others, attempt), key=lambda one: (one.number, one.id))))


def check_job_name(name: str, field: str) -> str:
    """Return `name`.

    Raises InputError if it is not valid for a job.
    """
    hint = "write letters, digits, dots, dashes and underscores, at most 100: llama-lora-3"
    require(JOB_NAME_PATTERN.fullmatch(name) is not None, field, "is not a valid job name", hint)
    return name


def to_record_table(record: JobRecord) -> dict[str, object]:
    """Return `record` as a value for JSON."""
    return {"schema": SCHEMA, "job": record.job, "attempts": [_to_attempt_table(attempt) for attempt in record.attempts]}


def parse_record(table: object, where: str) -> JobRecord:
    """Return the record in `table`, read from the file `where`.

    Raises InputError if it is none.
    """
    try:
        if not isinstance(table, dict) or table.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")  # noqa: TRY301 - told like any other slip in it
        attempts = table["attempts"]
        return JobRecord(job=str(table["job"]), attempts=tuple(_parse_attempt(one) for one in attempts))
    except (LookupError, TypeError, ValueError, AttributeError, InputError) as wrong:
        what = wrong.what if isinstance(wrong, InputError) else str(wrong)
        hint = "name another file, or move this one away: the job then starts again"
        raise InputError(f"is not a record of a job: {what}", field=where, hint=hint) from None


def _to_attempt_table(attempt: JobAttempt) -> dict[str, object]:
    hours, usd = attempt.quoted_hours, attempt.quoted_usd
    return {
        "id": attempt.id,
        "number": attempt.number,
        "began_at": attempt.began_at.isoformat(),
        "seen_at": attempt.seen_at.isoformat(),
        "host": attempt.host,
        "boot": attempt.boot,
        "state": attempt.state,
        "why": attempt.why,
        "status": attempt.status,
        "hourly": None if attempt.hourly is None else [attempt.hourly.nano_per_hour, attempt.hourly.currency],
        "hold": attempt.hold,
        "held": None if attempt.held is None else [attempt.held.nano, attempt.held.currency],
        "lease": attempt.lease,
        "quoted_hours": None if hours is None else [hours.low, hours.expected, hours.high],
        "quoted_usd": None if usd is None else [usd.low.nano, usd.expected.nano, usd.high.nano, usd.low.currency],
        "first_step": attempt.first_step,
        "last_step": attempt.last_step,
    }


def _parse_attempt(table: Table) -> JobAttempt:
    hourly, hold_money, hours, usd = (_read_list(table, key) for key in ("hourly", "held", "quoted_hours", "quoted_usd"))
    return JobAttempt(
        id=_read_text(table, "id"),
        number=_read_int(table, "number") or 0,
        began_at=datetime.fromisoformat(_read_text(table, "began_at")).astimezone(UTC),
        seen_at=datetime.fromisoformat(_read_text(table, "seen_at")).astimezone(UTC),
        host=_read_text(table, "host"),
        boot=_read_text(table, "boot"),
        state=_read_text(table, "state"),
        why=_read_text(table, "why"),
        status=_read_int(table, "status"),
        hourly=None if hourly is None else Rate(nano_per_hour=int(hourly[0]), currency=str(hourly[1])),
        hold=_read_text(table, "hold"),
        held=None if hold_money is None else Money(nano=int(hold_money[0]), currency=str(hold_money[1])),
        lease=_read_text(table, "lease"),
        quoted_hours=None if hours is None else Interval(*(float(hour) for hour in hours)),
        quoted_usd=None if usd is None else _parse_money(usd),
        first_step=_read_int(table, "first_step"),
        last_step=_read_int(table, "last_step"),
    )


def _parse_money(parts: Sequence[str | int | float]) -> MoneyInterval:
    low, expected, high = (Money(nano=int(nano), currency=str(parts[3])) for nano in parts[:3])
    return MoneyInterval(low=low, expected=expected, high=high)


def _read_text(table: Table, key: str) -> str:
    value = table[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a text")
    return value


def _read_int(table: Table, key: str) -> int | None:
    value = table[key]
    if value is not None and type(value) is not int:
        raise TypeError(f"{key} is not a whole number")
    return value


def _read_list(table: Table, key: str) -> Sequence[str | int | float] | None:
    value = table[key]
    if value is not None and not isinstance(value, list):
        raise TypeError(f"{key} is not a list")
    return value


LEASE_FACTOR = 1.5
"""Times the quote's high end for which the machine is kept."""
HOLD_FACTOR = 1.5
HOLD_MARGIN = timedelta(hours=1)
"""A hold expires after HELD times the quote's high end and this: a run that nobody ends does not block a budget for ever."""
HOLD_LENGTH_UNQUOTED = timedelta(days=7)
LEASE_MIN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMachine:
    """The machine of a job.

    `hourly` None: unknown price. `source`: where the price came from. `provider`, `account`, `owner`: "" if unknown. `count`:
    GPUs. `gpu`: canonical name, "" if none was found.
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
    """The expected hours and cost of the whole job, and `share`, the part of it that is left.

    None: unknown. `steps`: of the whole job.
    """

    machine: JobMachine
    hours: Interval | None = None
    usd: MoneyInterval | None = None
    tokens_per_step: int | None = None
    steps: int | None = None
    share: Fraction = Fraction(1)

    @property
    def left_hours(self) -> Interval | None:
        """The expected hours of the part that is left; None: unknown."""
        return None if self.hours is None else self.hours.scale(float(self.share))

    @property
    def left_usd(self) -> MoneyInterval | None:
        """The expected cost of the part that is left; None: unknown."""
        if self.usd is None:
            return None
        low, expected, high = (_take_share(money, self.share) for money in (self.usd.low, self.usd.expected, self.usd.high))
        return MoneyInterval(low=low, expected=expected, high=high)


def compute_share_left(record: JobRecord, steps: int | None) -> Fraction:
    """Return the share of the job that is left.

    It is 1 if the job reported no step, if its length is unknown, and if it came to its end, because it then starts again.
    """
    last_step = record.last_step
    if last_step is None or not steps or last_step >= steps:
        return Fraction(1)
    return Fraction(steps - last_step, steps)


def build_job_hold(
    attempt: JobAttempt, job: str, money: Money, terms: JobTerms, *, who: str, labels: Mapping[str, str], now: datetime
) -> Hold:
    """Return a hold of `money` for an attempt of `job`. It adds nothing an hour: the machine that it runs on bills already."""
    lasts = compute_hold_length(terms.left_hours.high if terms.left_hours else None)
    machine = terms.machine
    return Hold(
        id=attempt.id,
        money=money,
        who=who,
        why=f"job {job}, attempt {attempt.number}",
        taken_at=now,
        expires_at=now + lasts,
        provider=machine.provider,
        account=machine.account,
        owner=machine.owner,
        gpu=machine.gpu,
        labels=tuple(sorted({**labels, JOB_LABEL: job}.items())),
        hourly=Money(nano=0, currency=money.currency),
    )


def compute_hold_length(hours: float | None) -> timedelta:
    """Return how long the hold of a run counts that takes at most `hours`; None: unknown."""
    lasts = HOLD_LENGTH_UNQUOTED if hours is None else timedelta(hours=min(HOLD_FACTOR * hours, 1e5)) + HOLD_MARGIN
    return min(lasts, HOLD_DURATION_MAX - timedelta(seconds=1))


def compute_lease_length(terms: JobTerms, longest: timedelta) -> timedelta | None:
    """Return how long the machine is kept, at most `longest`; None if the duration of the job is unknown."""
    if terms.left_hours is None:
        return None
    seconds = math.ceil(LEASE_FACTOR * terms.left_hours.high * 3600)
    return max(LEASE_MIN, min(timedelta(seconds=seconds), longest))


def find_hold_amount(terms: JobTerms, limit: Money | None) -> Money | None:
    """Return the amount to hold: the quote's high end, else the stated `limit`; None if neither is known."""
    high = terms.left_usd.high if terms.left_usd else limit
    return high if high is not None and high.nano > 0 else None


def _take_share(money: Money, share: Fraction) -> Money:
    return Money(nano=math.ceil(money.nano * share), currency=money.currency)
