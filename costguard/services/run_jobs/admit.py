"""Admit a run before it is launched: quote, budgets, hold (decision 0067).

    request -> what it may cost (`price_run`) -> hold (`build_hold`) -> taken, or refused by a budget (`HoldStore.take_all`)
    refused -> what would fit into what is left (`list_fitting_changes`)

The high end of the quote is held. Attributes of the run that nobody stated stay empty: such a hold counts in every budget that
the run may fall under. A hold ends with `end_hold`, or when its time runs out.

Example: 8 H100 for 12 h are quoted at $287.04 (high end), and budget `lab` has $200.00 left: nothing is held, and 4 of them
for 12 h, or all 8 for 8.3 h, would fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from costguard.budgets.budget_status import RATE_REASONS, Admission
from costguard.budgets.hold import Hold
from costguard.data import ShippedFacts
from costguard.errors import InputError, NoAnswerError
from costguard.ledger.holds import HoldStore, make_hold_id
from costguard.ledger.market import MarketReader
from costguard.quoting.quote import Quote, Rental
from costguard.runs.admission import (
    AdmitRequest,
    AdmitResult,
    FittingChange,
    RunPrice,
    build_admit_result,
    build_admitted_hold,
    choose_option,
    describe_option,
    multiply_interval,
)
from costguard.services import CommandAnswer
from costguard.services.guarding.overrides import describe_user, get_now
from costguard.services.poll.market_prices import read_price_ceilings
from costguard.services.quote import quote as flow
from costguard.services.quote.market_choice import find_market_file, resolve_limits
from costguard.services.quote.quote_commands import AskedRun, read_asked
from costguard.services.run_jobs.record_store import open_run_ledger, take_hold
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.sizing.job import Job, JobLimits
from costguard.sizing.placement import Hardware
from costguard.values.checks import require, require_whole_number
from costguard.values.interval import Interval
from costguard.values.money import Money, MoneyInterval

MACHINES_MAX = 10_000
CHANGES_SHOWN = 3
"""Cheaper offers that a refusal names."""
TOKEN_SHARES = (1.0, 0.9, 0.75)
"""Tried of the share of the tokens that the money would pay for if hours were proportional to them."""
HOURS_LEAST = 0.1
"""A run of fewer hours is not worth naming as what would fit."""


def admit_run(request: AdmitRequest, settings: Settings | None = None, now: datetime | None = None) -> AdmitResult:
    """Hold what the run may cost, if every budget that it falls under has that much left. A refusal holds nothing.

    Raises NoAnswerError if it cannot be priced, InputError for a request that cannot be used, LedgerError for the ledger.
    """
    settings = settings or read_settings(request.config)
    price, quoter = price_run(request, ShippedFacts())
    now = now or get_now()
    hold = build_admitted_hold(request, price, hold_id=request.id or make_hold_id(), who=describe_user(), now=now)
    with open_run_ledger(settings) as desk:
        admission = take_hold(hold, desk.holds, desk.wishes, desk.budgets, now)
    fits = list_fitting_changes(price, admission, quoter)
    return build_admit_result(hold, price, admission, budgets=settings.budgets, fits=fits)


def answer_admit(request: AdmitRequest) -> CommandAnswer:
    """Answer `costguard admit`: the hold, or a refusal with what would fit."""
    from costguard.views.admit import build_admit_document

    result = admit_run(request)
    return CommandAnswer(
        document=build_admit_document(result),
        warnings=result.price.warnings,
        refusal=build_admit_refusal(result),
        value=result,
    )


def build_admit_refusal(result: AdmitResult) -> NoAnswerError | None:
    """Return the error that ends a command whose run was refused; None if it was admitted."""
    from costguard.views.admit import format_advice

    if result.admission.admitted:
        return None
    hint = format_advice(result) or "wait for other runs to end, use less, or raise the budget"
    return NoAnswerError(result.admission.says, field="refused, nothing was held", hint=hint)


def end_hold(
    hold_id: str, *, started: bool, spent: Money | None = None, config: str | None = None, now: datetime | None = None
) -> Hold:
    """End a hold and return it. `started` False: its run was given up. `spent`: what the run cost, None: the ledger knows."""
    with open_holds(read_settings(config)) as holds:
        now = now or get_now()
        return holds.commit(hold_id, spent, now) if started else holds.release(hold_id, now)


def answer_hold_end(hold_id: str, *, started: bool, spent: Money | None, config: str | None) -> CommandAnswer:
    """Answer `costguard admit --release` and `--ended`."""
    from costguard.views.admit import build_hold_end_document

    return CommandAnswer(document=build_hold_end_document(end_hold(hold_id, started=started, spent=spent, config=config)))


def open_holds(settings: Settings) -> HoldStore:
    """Open the holds of the ledger of `settings` for writing."""
    return HoldStore(
        resolve_ledger_url(settings), rules=ShippedFacts().get_billing_rules(), ceilings=partial(read_price_ceilings, settings)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuoter:
    """Quotes a request on the market, and other ways to run the same."""

    asked: Job | Rental
    on: Hardware | None
    counts: tuple[int, ...] | None
    request: AdmitRequest
    facts: ShippedFacts

    def quote(self, request: Job | Rental, on: Hardware | None = None) -> Quote:
        """Return the quote of `request` on `on`; None: on the whole market."""
        counts = self.counts if isinstance(request, Job) else None
        today = datetime.now(UTC).date()
        with MarketReader(find_market_file(self.request.market, self.request.config)) as source:
            request = replace(request, limits=resolve_limits(request.limits, source))
            return flow.build_quote(request, market=source, facts=self.facts, on=on, counts=counts, today=today)

    def quote_freely(self) -> Quote:
        """Return the quote of the same on any provider, region and tier; of a job, on any GPU.

        A rental keeps its GPU, of which the hours were stated.
        """
        limits = self.asked.limits
        free = JobLimits(
            max_usd=limits.max_usd,
            max_hours=limits.max_hours,
            max_gpus=limits.max_gpus,
            exclude=limits.exclude,
            secure_only=limits.secure_only,
            gpus=limits.gpus if isinstance(self.asked, Rental) else None,
        )
        return self.quote(replace(self.asked, limits=free))


def price_run(request: AdmitRequest, facts: ShippedFacts) -> tuple[RunPrice, RunQuoter | None]:
    """Return what the run may cost, as stated or as quoted, and what quotes other ways to run it (None: money was stated).

    Raises NoAnswerError if the market has no price for it.
    """
    machines = require_whole_number(request.machines, "machines", least=1, most=MACHINES_MAX)
    if request.money is not None:
        extra_fields = [name for name in ("job_file", "on", "count", "flags") if getattr(request, name)]
        require(not extra_fields, "usd", "is given, so nothing is quoted", "leave out the job and the GPUs, or the cost")
        hours = None if request.hours is None else Interval.exactly(request.hours)
        usd = MoneyInterval(low=request.money, expected=request.money, high=request.money)
        gpu = facts.get_gpu_names().resolve(request.gpu, field="gpu").canonical if request.gpu else ""
        nano = round(request.money.nano / request.hours) if request.hours else None
        hourly = None if nano is None else Money(nano=nano, currency=request.money.currency)
        return RunPrice(usd=usd, hours=hours, provider=request.provider, gpu=gpu, hourly=hourly), None
    asked_run = _read_request(request, facts)
    job_or_rental, hardware, notes = asked_run.asked, asked_run.hardware, asked_run.notes
    alone = machines == 1 or isinstance(job_or_rental, Rental)
    require(alone, "machines", "is for a rental: the quote of a job counts its machines", "leave it out")
    quoter = RunQuoter(asked=job_or_rental, on=hardware, counts=asked_run.counts, request=request, facts=facts)
    answer = quoter.quote(job_or_rental, hardware)
    option = choose_option(answer)
    if option is None or option.usd is None:
        why = "; ".join(answer.advice) or (answer.refused[0].reason if answer.refused else "no offer matches")
        hint = "costguard quote shows more; --usd 50 --hours 12 gives the cost instead"
        raise NoAnswerError(f"the run cannot be priced: {why}", hint=hint)
    only, gpus = job_or_rental.limits.providers or (), job_or_rental.limits.gpus or ()
    price = RunPrice(
        usd=multiply_interval(option.usd, machines),
        hours=option.hours,
        machines=machines,
        option=option,
        provider=only[0] if len(only) == 1 else "",
        gpu=option.gpu.name if hardware or len(gpus) == 1 else "",
        hourly=Money(nano=option.rate.nano_per_hour * machines, currency=option.rate.currency) if option.rate else None,
        warnings=(*answer.warnings, *notes),
    )
    return price, quoter


def list_fitting_changes(price: RunPrice, admission: Admission, quoter: RunQuoter | None) -> tuple[FittingChange, ...]:
    """Return what would fit into the budget that refused: fewer GPUs, fewer hours, cheaper offers; each as quoted.

    Of a rate cap nothing: fewer hours do not help, and the changes are found by their cost.
    """
    left = None if admission.reason in RATE_REASONS else admission.left
    if admission.admitted or quoter is None or left is None or left.nano <= 0 or left.currency != price.usd.high.currency:
        return ()
    if isinstance(quoter.asked, Rental):
        changes = _shrink_rental(quoter.asked, price, left, quoter)
    else:
        changes = _shorten_job(quoter.asked, price, left, quoter)
    cheaper = dict[str, Money]()
    for one in quoter.quote_freely().options:
        if one.usd is None or one.offer is None or len(cheaper) >= CHANGES_SHOWN:
            continue
        usd = multiply_interval(one.usd, price.machines).high
        if usd <= left and usd < price.usd.high:
            cheaper.setdefault(describe_option(one), usd)
    return (*changes, *(FittingChange(what=what, usd=usd) for what, usd in cheaper.items()))


def _shrink_rental(rental: Rental, price: RunPrice, left: Money, quoter: RunQuoter) -> list[FittingChange]:
    """Return the rental with fewer machines, fewer GPUs, and fewer hours, as far as each fits into `left`."""
    changes, share = list[FittingChange](), left.nano / price.usd.high.nano
    if fewer := int(price.machines * share):
        usd = Money(nano=price.usd.high.nano * fewer // price.machines, currency=left.currency)
        changes.append(FittingChange(what=f"{fewer} of the {price.machines} machines", usd=usd))
    counts = range(min(rental.gpu_count - 1, int(rental.gpu_count * share)), 0, -1)
    smaller = (replace(rental, gpu_count=count) for count in counts)
    hours = int(rental.hours * share * 10) / 10
    shorter = (replace(rental, hours=hours),) if hours >= HOURS_LEAST else ()
    for candidates in (smaller, shorter):
        for one in candidates:
            option = choose_option(quoter.quote(one))
            high = multiply_interval(option.usd, price.machines).high if option and option.usd else None
            if high is not None and high <= left:
                changes.append(FittingChange(what=f"{one.gpu} x{one.gpu_count} for {one.hours:g} h", usd=high))
                break
    return changes


def _shorten_job(job: Job, price: RunPrice, left: Money, quoter: RunQuoter) -> list[FittingChange]:
    """Return the job with fewer tokens, as far as they fit into `left`; the hours before the first token stay."""
    for share in (left.nano / price.usd.high.nano * part for part in TOKEN_SHARES):
        tokens = int((job.tokens or 0) * share)
        option = choose_option(quoter.quote(replace(job, tokens=tokens), quoter.on)) if tokens else None
        if option is not None and option.usd is not None and option.usd.high <= left:
            return [FittingChange(what=f"{share:.0%} of the tokens ({tokens:,})", usd=option.usd.high)]
    return []


def _read_request(request: AdmitRequest, facts: ShippedFacts) -> AskedRun:
    """Return the job or rental, as for `costguard quote`. Raises InputError where nothing was stated."""
    if not (request.flags or request.job_file or request.on or request.hours is not None):
        hint = "write a job file, or --gpu H100 --count 8 --hours 12, or --usd 50 --hours 12"
        raise InputError("no job, no rental and no cost was given", field="JOB", hint=hint)
    return read_asked(
        request.flags,
        request.job_file,
        facts,
        on=request.on,
        count=request.count,
        hours=request.hours,
        strict=False,
        calibration=request.calibration,
        config=request.config,
    )
