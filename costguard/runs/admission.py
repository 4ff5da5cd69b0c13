"""A run that is admitted before its launch: the request, what it may cost, the hold, the admission. Pure.

Example: 8 H100 for 12 h are quoted at $280.00 to $300.00; $300.00 is held for 1.5 times 12 h and one hour more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import Admission
from costguard.budgets.hold import HOLD_DURATION_MAX, JOB_LABEL, Hold, list_open_attributes
from costguard.quoting.quote import Quote, QuoteOption
from costguard.runs.record import check_job_name, compute_hold_length
from costguard.sizing.job import Table
from costguard.values.checks import require
from costguard.values.interval import Interval
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import SPOT

LABELS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitRequest:
    """A run that is about to be launched.

    - `flags`, `job_file`, `on`, `count`, `hours`: the job or rental, as for `costguard quote`.
    - `machines`: so many such rentals.
    - `money`: hold this instead of the high end of a quote; then nothing is quoted.
    - `owner`, `account`, `labels`: what budgets may select by; "" counts as any value. `provider`, `gpu`: of stated `money`.
    - `name`: of the run, for people. `lasts`: how long the hold counts at most; None: 1.5 times the quote's hours and one more.
    - `id`: of the hold, so that a repeated request is held once; "": a new one.
    """

    flags: Table = field(default_factory=dict)
    job_file: str | Sequence[str] | None = None
    on: str | None = None
    count: float | None = None
    hours: float | None = None
    machines: int = 1
    money: Money | None = None
    owner: str = ""
    account: str = ""
    provider: str = ""
    gpu: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    name: str = ""
    lasts: timedelta | None = None
    id: str = ""
    market: str | None = None
    calibration: str | None = None
    config: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrice:
    """What a run may cost. `usd.high` is held. `option`: the offer that it is quoted on; None: the money was stated.

    `provider`, `gpu`: of the run, "" where the request leaves them open. `hourly`: of all its machines; None: not known.
    """

    usd: MoneyInterval
    hours: Interval | None = None
    machines: int = 1
    option: QuoteOption | None = None
    provider: str = ""
    gpu: str = ""
    hourly: Money | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingChange:
    """A change with which the run would be admitted. `what`: for people. `usd`: the high end of its quote."""

    what: str
    usd: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitResult:
    """The admission of a run. `fits`: what would be admitted instead, if it was refused.

    `unstated`: attributes by which the refusing budget selects, and that nobody stated of the run.
    """

    hold: Hold
    price: RunPrice
    admission: Admission
    fits: tuple[FittingChange, ...] = ()
    unstated: tuple[str, ...] = ()


def choose_option(answer: Quote) -> QuoteOption | None:
    """Return the option that is held for: the cheapest with a fresh price, and no spot machine unless spot was asked for.

    A launcher that was not told otherwise takes on-demand machines; a hold of a spot price would be too small.
    """
    priced = [one for one in answer.options if one.usd and one.offer]
    if answer.asked.limits.tiers is None:
        priced = [one for one in priced if one.offer and one.offer.tier != SPOT] or priced
    return next((one for one in priced if one.is_fresh), priced[0] if priced else None)


def build_admitted_hold(request: AdmitRequest, price: RunPrice, *, hold_id: str, who: str, now: datetime) -> Hold:
    """Return the hold of the run, not taken yet. Raises InputError for a text or duration that no hold may have."""
    name = check_job_name(request.name, "--name") if request.name else ""
    labels = dict(request.labels) | ({JOB_LABEL: name} if name else {})
    require(len(labels) <= LABELS_MAX, "labels", f"are more than {LABELS_MAX}", "leave out those that no budget selects by")
    texts = (request.account, request.owner, *(text for pair in labels.items() for text in pair))
    is_encodable = not any("\ud800" <= letter <= "\udfff" for text in texts for letter in text)
    require(is_encodable, "hold", "contains an invalid character (a lone surrogate)", "write it again in UTF-8")
    lasts = request.lasts or compute_hold_length(price.hours.high if price.hours else None)
    return Hold(
        id=hold_id,
        money=price.usd.high,
        who=who,
        why=f"run {name}" if name else "a run that was admitted",
        taken_at=now,
        expires_at=now + min(lasts, HOLD_DURATION_MAX - timedelta(seconds=1)),
        provider=price.provider,
        account=request.account,
        owner=request.owner,
        gpu=price.gpu,
        labels=tuple(sorted(labels.items())),
        hourly=price.hourly,
    )


def describe_option(option: QuoteOption) -> str:
    """Return an offer in words: `spot H100-SXM x8 of runpod in EU-1`."""
    gpus = f"{option.gpu.name} x{option.gpu_count}{f' on each of {option.nodes} machines' if option.nodes > 1 else ''}"
    return f"{option.offer.tier} {gpus} of {option.offer.provider} in {option.offer.region}" if option.offer else gpus


def build_admit_result(
    hold: Hold,
    price: RunPrice,
    admission: Admission,
    *,
    budgets: Iterable[Budget],
    fits: tuple[FittingChange, ...] = (),
) -> AdmitResult:
    """Return the admission of `hold` beside what its refusal may owe to attributes that nobody stated.

    One that was open before has the end that it has in the ledger.
    """
    hold = replace(hold, expires_at=admission.until) if admission.until and admission.admitted else hold
    match = None if admission.admitted else next((one.match for one in budgets if one.name == admission.budget), None)
    unstated = () if match is None else list_open_attributes(hold, match)
    return AdmitResult(hold=hold, price=price, admission=admission, fits=fits, unstated=unstated)


def multiply_interval(usd: MoneyInterval, machines: int) -> MoneyInterval:
    """Return the cost of so many machines that cost `usd` each."""

    def times(one: Money) -> Money:
        return Money(nano=one.nano * machines, currency=one.currency)

    return usd if machines == 1 else MoneyInterval(low=times(usd.low), expected=times(usd.expected), high=times(usd.high))


def parse_labels(texts: Sequence[str] | Mapping[str, str], field_name: str = "--label") -> tuple[tuple[str, str], ...]:
    """Return labels from `KEY=VALUE` texts, or a mapping. Raises InputError for one without a key."""
    pairs = texts.items() if isinstance(texts, Mapping) else (one.partition("=")[::2] for one in texts)
    labels = dict[str, str]()
    for key, value in pairs:
        complete = bool(key.strip()) and bool(value.strip())
        require(complete, field_name, "has no key or no value", f"write {field_name} team=vision")
        require(labels.get(key, value) == value, field_name, f"has two values for {key}", "leave one out")
        labels[key] = value
    return tuple(sorted(labels.items()))
