"""quote: job -> footprint on each kind of GPU -> fits? -> hours -> money -> ranked, and the rest refused with reasons.

Time and memory depend on the kind and number of GPUs, not on who rents them out, so each (GPU, count) class is judged
once, and only the cheapest offer of each provider and tier in it is priced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from costguard.core.advice import smallest_changes
from costguard.core.duration import duration, interrupted, startup, throughput
from costguard.core.footprint import check_parallel
from costguard.core.interruption import Interruptions
from costguard.core.interval import Interval
from costguard.core.job import Job, assumption_warnings
from costguard.core.offer import Offer, Selection
from costguard.core.placement import Impossible, Placement, Placer
from costguard.core.quote import (
    Option,
    Quote,
    Refused,
    Rental,
    may_break_the_cap,
    money_for,
    over_the_cap,
    ranked,
    refused_for_host,
    refused_for_memory,
)
from costguard.core.recipe import Parallel
from costguard.core.size import Hardware
from costguard.core.storage import disk_gb
from costguard.errors import InputError
from costguard.ports import FactSource, OfferSource


def quote(
    asked: Job | Rental,
    *,
    market: OfferSource,
    facts: FactSource,
    on: Hardware | None = None,
    counts: tuple[int, ...] | None = None,
    sort: str = "usd",
) -> Quote:
    """Every way to run what was asked, ranked by `sort`, and why the others were refused. `counts`: GPUs of an instance."""
    chosen = selection(asked, counts)
    found = list(
        _rentals(asked, chosen, market, facts) if isinstance(asked, Rental) else _runs(asked, chosen, market, facts, on)
    )
    options: list[Option] = []
    over: list[Option] = []
    refused = [f for f in found if isinstance(f, Refused)]
    for option in (f for f in found if isinstance(f, Option)):
        why = over_the_cap(option, asked.limits)
        if why:
            over.append(option)
            refused.append(_over(option, why))
        else:
            options.append(replace(option, notes=(*option.notes, *may_break_the_cap(option, asked.limits))))
    return Quote(
        asked=asked,
        options=ranked(options, sort),
        refused=tuple(refused),
        warnings=_warnings(asked),
        advice=_advice(asked, facts, refused, over) if not options and isinstance(asked, Job) else (),
    )


def _runs(
    job: Job, chosen: Selection, market: OfferSource, facts: FactSource, on: Hardware | None
) -> Iterator[Option | Refused]:
    """Each class of GPU and count: placed, timed, and priced at each provider's best offer."""
    placer, gpus = Placer(job=job), facts.gpus()
    check_split(job, on)
    for name, gpu_count in _classes(job, chosen, market, on):
        gpu = gpus.get(name)
        if gpu is None:
            yield Refused(gpu=name, gpu_count=gpu_count, reason="no datasheet figures for this GPU are known")
            continue
        placed = placer.place(gpu, gpu_count, on.nodes) if on else placer.place_on_enough(gpu, gpu_count)
        if isinstance(placed, Impossible):
            yield Refused(gpu=name, gpu_count=gpu_count, reason=placed.reason, has_gib=gpu.memory_gib)
        elif not placed.fits:
            yield refused_for_memory(placed)
        else:
            yield from _priced(job, placed, chosen, market, facts, always=on is not None)


def _classes(job: Job, chosen: Selection, market: OfferSource, on: Hardware | None) -> list[tuple[str, int]]:
    if on is not None:
        return [(on.gpu.name, on.gpu_count)]
    return [(gpu, count) for gpu, count in market.classes(chosen) if count <= job.limits.max_gpus]


def _priced(
    job: Job, placed: Placement, chosen: Selection, market: OfferSource, facts: FactSource, *, always: bool
) -> Iterator[Option | Refused]:
    """One option per provider and tier that sells this class; with `always`, one without a price where nobody does."""
    timed = _timed(job, placed, facts)
    if isinstance(timed, Refused):
        yield timed
        return
    offers = market.best(placed.gpu.name, placed.gpu_count, chosen)
    if not offers and always:
        yield replace(timed, notes=(*timed.notes, "nobody in the market sells this: the price is unknown"))
    elif not offers:
        yield Refused(gpu=placed.gpu.name, gpu_count=placed.gpu_count, reason="no offer with a known price")
    disk = job.disk_gb or disk_gb(job.architecture, placed.recipe)
    for offer in offers:
        lacking = refused_for_host(placed, offer)
        if lacking:
            yield lacking
            continue
        yield money_for(_at(offer, timed, job, facts), facts.storage_rates().get(offer.provider), disk)


def _timed(job: Job, placed: Placement, facts: FactSource) -> Option | Refused:
    """The class as an option without an offer: how fast, and how long."""
    speed = throughput(
        job.architecture,
        placed.recipe,
        placed.parallel,
        placed.gpu,
        gpus=placed.gpus,
        nodes=placed.nodes,
        efficiency=facts.efficiency(),
    )
    if speed is None:
        return Refused(gpu=placed.gpu.name, gpu_count=placed.gpu_count, reason="no speed figure for this GPU is known")
    option = Option(
        gpu=placed.gpu, gpu_count=placed.gpu_count, nodes=placed.nodes, placement=placed, throughput=speed, notes=speed.notes
    )
    if job.tokens is None:
        return option
    took = duration(job.tokens, speed, gpus=placed.gpus, startup_hours=startup(job.architecture), efficiency=facts.efficiency())
    return replace(option, duration=took, hours=took.hours)


def _at(offer: Offer, timed: Option, job: Job, facts: FactSource) -> Option:
    """`timed` on one offer: a spot machine's run is longer by its interruptions."""
    if offer.tier != "spot" or timed.duration is None:
        return replace(timed, offer=offer)
    table = facts.interruptions()
    risk: Interruptions = table.get(offer.provider, table["*"])
    took = interrupted(
        timed.duration,
        risk.per_hour.scaled(timed.nodes),
        restart_hours=risk.restart_hours,
        checkpoint_every_hours=job.checkpoint_every_hours,
    )
    return replace(timed, offer=offer, duration=took, hours=took.hours)


def _rentals(asked: Rental, chosen: Selection, market: OfferSource, facts: FactSource) -> Iterator[Option | Refused]:
    """The plain question: each provider's best offer of the hardware, for so many hours."""
    gpu = facts.gpus()[asked.gpu]
    for offer in market.best(asked.gpu, asked.gpu_count, chosen):
        option = Option(gpu=gpu, gpu_count=asked.gpu_count, offer=offer, hours=Interval.exactly(asked.hours))
        yield money_for(option, facts.storage_rates().get(offer.provider), asked.disk_gb)


def selection(asked: Job | Rental, counts: tuple[int, ...] | None) -> Selection:
    """The part of the market that `asked.limits` leaves."""
    limits = asked.limits
    return Selection(
        providers=limits.providers, regions=limits.regions, tiers=limits.tiers, gpus=limits.gpus, gpu_counts=counts
    )


def check_split(job: Job, on: Hardware | None = None) -> None:
    """What suits no number of GPUs, or not the stated one, is the user's mistake, whatever the market holds."""
    parallel = job.parallel or Parallel()
    ranks = parallel.model_ranks
    check_parallel(job.architecture, parallel, on.gpu_count * on.nodes if on else ranks * parallel.ep, job.recipe.seq_len)
    if on is None and ranks > job.limits.max_gpus:
        raise InputError(
            f"tp x pp x cp = {ranks} ranks are more than max_gpus = {job.limits.max_gpus}",
            field="parallel",
            hint="raise limits.max_gpus or lower tp, pp or cp",
        )


def _advice(job: Job, facts: FactSource, refused: list[Refused], over: list[Option]) -> tuple[str, ...]:
    """What would give an answer: the nearest to the caps, or the smallest changes after which something holds the job."""
    if over:
        nearest = min(over, key=lambda o: o.usd.expected.nano if o.usd else 0)
        money = f"${nearest.usd.expected.text()}" if nearest.usd else "unknown money"
        hours = f"{nearest.hours.expected:.1f} h" if nearest.hours else "unknown hours"
        return (f"the cheapest that fits is {nearest.gpu.name} x{nearest.gpu_count}: {money}, {hours} expected",)
    gpus = facts.gpus()
    classes = {(r.gpu, r.gpu_count) for r in refused if r.gpu in gpus}
    return smallest_changes(job, [(gpus[gpu], count) for gpu, count in sorted(classes)], gpus.values())


def _over(option: Option, why: str) -> Refused:
    offer = option.offer
    named = f"{offer.provider} {offer.instance_type} {offer.region} {offer.tier}" if offer else None
    return Refused(gpu=option.gpu.name, gpu_count=option.gpu_count, offer=named, reason=why)


def _warnings(asked: Job | Rental) -> tuple[str, ...]:
    if isinstance(asked, Rental):
        return ()
    unknown = ("tokens was not stated: no hours and no money; write tokens = 50e6 or --tokens 50e6",)
    return (*(() if asked.tokens else unknown), *assumption_warnings(asked))
