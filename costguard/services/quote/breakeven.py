"""Answer `breakeven`: the cost to buy and to rent a machine, and after how many hours of use they are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial

from costguard.data import ShippedFacts
from costguard.errors import InputError, NoAnswerError
from costguard.ledger.market import MarketReader
from costguard.quoting.breakeven import USD_PER_KWH, PurchaseAnswer, compute_break_even, compute_job_purchase
from costguard.quoting.gpu_prices import BY_THE_HOUR_EXCLUDES
from costguard.quoting.offer import Offer, OfferSelection
from costguard.quoting.own_hardware import YEARS
from costguard.quoting.price_drift import AgedPrice, PriceDrift, age_price, judge_vintage
from costguard.quoting.quote import NO_LIMITS
from costguard.services import CommandAnswer
from costguard.services.poll.ports import OfferSource
from costguard.services.quote import quote_commands
from costguard.services.quote.job_input import read_job, read_job_input
from costguard.services.quote.market_choice import find_market_file, resolve_limits
from costguard.services.quote.quote import build_quote
from costguard.settings import read_settings
from costguard.sizing.job import Job
from costguard.sizing.placement import Hardware
from costguard.values import checks
from costguard.values.checks import require
from costguard.values.gpu import Gpu
from costguard.values.money import Money, Rate
from costguard.values.resource import SPOT
from costguard.views.market import build_breakeven_document


def answer_breakeven(
    *,
    job_file: str | Sequence[str] | None = None,
    gpu: str | None = None,
    count: float = 1,
    price: str | None = None,
    rate: str | None = None,
    power_w: float | None = None,
    usd_per_kwh: str | None = None,
    resale: str | None = None,
    hours_week: float | None = None,
    years: float | None = None,
    market: str | None = None,
    config: str | None = None,
) -> CommandAnswer:
    """Answer `costguard breakeven`: buy or rent, by the hour and for the runs of a job. `[providers.local]` has defaults."""
    facts, today = ShippedFacts(), quote_commands.get_today()
    job = (
        quote_commands.apply_calibration(read_job(read_job_input({}, job_file, facts), facts), None, config)
        if job_file
        else None
    )
    gpu = gpu or (job.limits.gpus[0] if job and job.limits.gpus else None)
    checks.require(gpu is not None or job is None, "--gpu", "is not stated: which hardware is bought?", "write --gpu RTX-4090")
    gpu_match = facts.get_gpu_names().resolve(gpu, field="--gpu") if gpu else None
    own = read_settings(config).local
    if own is not None:
        years = own.years if years is None else years
        power_w, usd_per_kwh = power_w or own.watts, usd_per_kwh or own.usd_per_kwh.format(9)
        price = price or (own.price.format(9) if own.price else None)
    with MarketReader(find_market_file(market, config)) as source:
        answer = compute_purchase(
            gpu=facts.get_gpus()[gpu_match.canonical] if gpu_match else None,
            count=checks.require_whole_number(count, "--count", most=100_000),
            price=None if price is None else Money.parse(price, field="--price"),
            rate=None if rate is None else Rate.parse(rate, field="--rate"),
            power_w=power_w,
            usd_per_kwh=usd_per_kwh,
            resale=None if resale is None else Money.parse(resale, field="--resale"),
            hours_week=hours_week,
            years=years,
            market=source,
            drift=facts.get_price_drift(),
            today=today,
        )
        if job is not None:
            answer = add_job(answer, job, facts, market=source, today=today)
    notes = (f"{gpu} was taken as {gpu_match.canonical}",) if gpu_match and gpu_match.taken_as_short else ()
    answer = replace(answer, warnings=(*answer.warnings, *notes))
    refusal = (
        NoAnswerError("buying never breaks even at this rental price", hint="\n".join(answer.full.explain))
        if answer.full.never
        else None
    )
    return CommandAnswer(document=build_breakeven_document(answer), warnings=answer.warnings, refusal=refusal)


def compute_purchase(
    *,
    gpu: Gpu | None,
    count: int,
    price: Money | None,
    rate: Rate | None,
    power_w: float | None,
    usd_per_kwh: str | None,
    resale: Money | None,
    hours_week: float | None,
    market: OfferSource,
    drift: Mapping[str, PriceDrift],
    today: date,
    years: float | None = None,
) -> PurchaseAnswer:
    """Compute the answer from stated figures; missing ones are assumed, with a warning each.

    They come from the GPU's datasheet and the on-demand offer that is likely to be the cheapest `today`.
    """
    for value, flag in ((usd_per_kwh, "--usd-per-kwh"), (resale.format(9) if resale else None, "--resale")):
        require(value is None or Money.parse(value, field=flag).nano >= 0, flag, "is below zero", "write 0 or more")
    warnings: list[str] = []
    offer = None
    if price is None:
        price = _assume_list_price(gpu, count, warnings)
    if rate is None:
        offer, aged = _find_cheapest_offer(gpu, count, market, drift, today)
        rate = aged.expected
        warnings.append(f"the rental price is {offer.provider}'s {offer.tier} price of {offer.observed_on.isoformat()}")
        warnings += _list_age_warnings(price, aged)
    if power_w is None and gpu is not None and gpu.tdp_w is not None:
        power_w = gpu.tdp_w * count
        warnings.append(f"power was not stated: the GPU's {power_w:.0f} W assumed, without its host")
    if usd_per_kwh is None and power_w is not None:
        warnings.append(f"the price of electricity was not stated: ${USD_PER_KWH} per kWh assumed")
    per_kwh = usd_per_kwh or USD_PER_KWH
    life = checks.require_number(YEARS if years is None else years, "--years", least=0.1, most=50)
    return PurchaseAnswer(
        gpu=gpu,
        count=count,
        price=price,
        rent=rate,
        power_w=power_w,
        usd_per_kwh=per_kwh,
        resale=resale,
        hours_week=hours_week,
        years=life,
        plain=compute_break_even(price, rate, hours_per_week=hours_week),
        full=compute_break_even(price, rate, power_w=power_w, usd_per_kwh=per_kwh, resale=resale, hours_per_week=hours_week),
        rented_as=offer,
        warnings=tuple(warnings),
    )


def add_job(answer: PurchaseAnswer, job: Job, facts: ShippedFacts, *, market: MarketReader, today: date) -> PurchaseAnswer:
    """Return `answer` with the runs of `job` after which the machine has paid for itself. Raises NoAnswerError for no hours."""
    limits = resolve_limits(job.limits, market)
    assert answer.gpu is not None  # noqa: S101 - for the type checker: who gives a job states it
    on = Hardware(gpu=answer.gpu, gpu_count=answer.count)
    bought = build_quote(replace(job, limits=NO_LIMITS), market=market, facts=facts, on=on, today=today)
    hours = next((one.hours for one in bought.options if one.hours), None)
    if hours is None:
        why = "; ".join(one.reason for one in bought.refused[:1]) or "tokens is not stated"
        raise NoAnswerError(
            f"the job has no hours on {answer.gpu.name} x{answer.count}: {why}", hint="write --count 2, or tokens"
        )
    options = build_quote(replace(job, limits=limits), market=market, facts=facts, today=today).options
    lasting = (one for one in options if one.usd and one.offer and one.offer.tier != SPOT and not one.is_doubtful)
    rented = next(lasting, None)
    if rented is None or rented.usd is None or rented.offer is None:
        raise NoAnswerError("no offer runs this job at a known price", hint="costguard quote says why")
    paid = answer.price - answer.resale if answer.resale else answer.price
    run = compute_job_purchase(
        paid,
        hours,
        watts=answer.power_w,
        usd_per_kwh=answer.usd_per_kwh,
        rented_as=f"{rented.offer.provider} {rented.gpu.name} x{rented.gpu_count} ({rented.offer.tier})",
        rented_usd=rented.usd.expected,
    )
    return replace(answer, job=run)


def _assume_list_price(gpu: Gpu | None, count: int, warnings: list[str]) -> Money:
    if gpu is None or gpu.price_usd is None:
        reason = "no price of this GPU is known" if gpu else "the purchase is not specified"
        raise InputError(reason, field="--price", hint="write --price 15000")
    warnings.append(f"the price was not stated: about ${gpu.price_usd:,.0f} a GPU assumed (gpus.csv)")
    return Money.parse(round(gpu.price_usd) * count, field="--price")


def _list_age_warnings(price: Money, rent: AgedPrice) -> list[str]:
    """Return what an old rental price leaves open: the hours before power and resale at both ends of its 80 % interval."""
    if rent.is_exact:
        return []
    ends = [compute_break_even(price, rate).plain_hours for rate in (rent.high, rent.low)]
    hours = f"{ends[0]:,.0f} to {ends[1]:,.0f} hours before power and resale"
    today = f"today ${rent.low.format()} to ${rent.high.format()} an hour, so {hours}"
    return [f"it {rent.explain_age()}: {today}; costguard prices refresh fetches today's"]


def _find_cheapest_offer(
    gpu: Gpu | None, count: int, market: OfferSource, drift: Mapping[str, PriceDrift], today: date
) -> tuple[Offer, AgedPrice]:
    if gpu is None:
        raise InputError("the rental is not specified", field="--rate", hint="write --rate 4, or --gpu A100-80GB")
    judge = partial(judge_vintage, drift=drift, today=today)
    offers = [o for o in market.find_best(gpu.name, count, OfferSelection(), judge) if o.tier not in BY_THE_HOUR_EXCLUDES]
    priced = [(offer, price) for offer in offers if (price := age_price(offer, drift, today))]
    if not priced:
        raise InputError(f"no offer in the market for {gpu.name} x{count}", field="--rate", hint="write --rate 4")
    return min(priced, key=lambda pair: (bool(pair[1].unranked), pair[1].expected.nano_per_hour))
