"""Build a quote: job -> memory on each kind of GPU -> does it fit? -> hours -> cost -> ranking, or refusals.

Memory and hours depend on the kind and number of GPUs, not on the provider: each (GPU, count) class is computed once, and only
the offer of each provider and tier that is likely to be the cheapest today is priced, and beside it the cheapest one with a
fresh price. Missing fields are assumed; each assumption is varied to show its effect. A template's claim is compared with the
quote on the hardware that its source names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING

from costguard.errors import InputError
from costguard.quoting.offer import Offer, OfferSelection
from costguard.quoting.own_hardware import OwnCosts, build_own_offer
from costguard.quoting.price_drift import AgedPrice, Judgement, PriceDrift, Vintage, age_price, judge_vintage
from costguard.quoting.price_falls import describe_doubts
from costguard.quoting.quote import (
    NO_LIMITS,
    NOT_RANKED,
    Quote,
    QuoteOption,
    QuoteRefusal,
    Rental,
    TimedPlacement,
    build_option,
    explain_cap_breach,
    price_option,
    rank_options,
    refuse_for_host_memory,
    refuse_for_memory,
)
from costguard.quoting.storage import compute_job_disk_gb
from costguard.quoting.template import TemplateComparison, WorkloadTemplate
from costguard.services.poll.ports import OfferSource
from costguard.services.quote.needs import add_needs
from costguard.sizing.assumptions import format_effect, list_alternatives, list_shape_notes
from costguard.sizing.gpu_precision import explain_missing_precision
from costguard.sizing.job import Job, JobLimits, list_assumption_warnings
from costguard.sizing.memory.footprint import check_parallel
from costguard.sizing.placement import Hardware, ImpossiblePlacement, Placement, Placer, fix_batch
from costguard.sizing.recipe import Parallelism
from costguard.sizing.speed.duration import (
    Duration,
    add_interruptions,
    compute_duration,
    compute_job_speed,
    compute_job_startup,
)
from costguard.sizing.speed.throughput import Throughput
from costguard.values.gpu import Gpu
from costguard.values.interval import Interval
from costguard.values.resource import SPOT

if TYPE_CHECKING:  # types and no more
    from costguard.data import ShippedFacts


def build_quote(
    request: Job | Rental,
    *,
    market: OfferSource,
    facts: ShippedFacts,
    on: Hardware | None = None,
    counts: tuple[int, ...] | None = None,
    sort: str = "usd",
    booted: bool = False,
    own: OwnCosts | None = None,
    today: date | None = None,
) -> Quote:
    """Return every way to run `request`, ranked by `sort`, and the refused ones with reasons.

    `on`: stated hardware; None: the whole market. `counts`: allowed numbers of GPUs an instance; None: any. `booted`: the
    machine already runs, so no boot time is added. `own`: what `on` costs if it is one's own; None: it is only rented. `today`:
    the day for which prices are estimated (None: now, in UTC).
    """
    today = today or datetime.now(UTC).date()
    chosen = select_offers(request.limits, counts, today)
    drift = facts.get_price_drift()
    judge = partial(judge_vintage, drift=drift, today=today)
    shop = Shop(market=market, chosen=chosen, drift=drift, today=today, judge=judge, own=own)
    outcomes = list(
        _quote_rental(request, shop, facts)
        if isinstance(request, Rental)
        else _quote_job(request, shop, facts, on, booted=booted)
    )
    options, over = [], []
    refused = [f for f in outcomes if isinstance(f, QuoteRefusal)]
    for option in (f for f in outcomes if isinstance(f, QuoteOption)):
        why = explain_cap_breach(option, request.limits)
        if why:
            over.append(option)
            refused.append(_refuse_over_cap(option, why))
        else:
            options.append(option)
    best = rank_options(options, sort)
    place = best[0].placement if best else None
    return Quote(
        asked=fix_batch(request, place) if place and isinstance(request, Job) else request,
        options=best,
        refused=tuple(refused),
        warnings=(
            *_list_warnings(request, best[0] if best else None, facts),
            *describe_doubts(option.offer for option in best if option.offer),
        ),
        advice=_list_advice(request, facts, refused, over) if not options and isinstance(request, Job) else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """The part of the market that a quote may use, with prices as of `today`.

    `judge`: what a vintage is worth then. `own`: as in `build_quote`.
    """

    market: OfferSource
    chosen: OfferSelection
    drift: Mapping[str, PriceDrift]
    today: date
    judge: Callable[[Vintage], Judgement]
    own: OwnCosts | None = None

    def list_classes(self) -> list[tuple[str, int]]:
        """Return (canonical GPU, GPUs of an offer) of every selected offer."""
        return self.market.list_classes(self.chosen)

    def find_candidates(self, gpu: str, gpu_count: int) -> Iterator[tuple[Offer, AgedPrice] | QuoteRefusal]:
        """Yield per provider and tier the offers worth pricing, and a refusal for each that must not be ranked."""
        lots: dict[tuple[str, str], list[tuple[Offer, AgedPrice]]] = {}
        for offer in self.market.find_best(gpu, gpu_count, self.chosen, self.judge):
            price = age_price(offer, self.drift, self.today)
            if price is not None:
                lots.setdefault((offer.provider, offer.tier), []).append((offer, price))
        for group in lots.values():
            yield from (_refuse_to_rank(offer, price) for offer, price in group if price.unranked)
            yield from _choose_likely_cheapest([pair for pair in group if not pair[1].unranked])


def _choose_likely_cheapest(group: list[tuple[Offer, AgedPrice]]) -> Iterable[tuple[Offer, AgedPrice]]:
    """Return the offer of a lot with the lowest expected price, and where that is not fresh the lowest fresh one."""
    if not group:
        return ()
    best = min(group, key=_get_expected_rate)
    fresh = min((pair for pair in group if pair[1].fresh), key=_get_expected_rate, default=best)
    return (best,) if fresh is best else (best, fresh)


def _get_expected_rate(pair: tuple[Offer, AgedPrice]) -> int:
    return pair[1].expected.nano_per_hour


def _refuse_to_rank(offer: Offer, price: AgedPrice) -> QuoteRefusal:
    offer_name = f"{offer.provider} {offer.instance_type} {offer.region} {offer.tier}"
    return QuoteRefusal(gpu=offer.gpu, gpu_count=offer.gpu_count, offer=offer_name, reason=f"{NOT_RANKED}: {price.unranked}")


def _quote_job(
    job: Job, shop: Shop, facts: ShippedFacts, on: Hardware | None, *, booted: bool
) -> Iterator[QuoteOption | QuoteRefusal]:
    """Yield each class of GPU and count: placed, timed, and priced at each provider's best offer."""
    placer, gpus = Placer(job=job), facts.get_gpus()
    check_split(job, on)
    check_precision(job, [on.gpu] if on else [facts.get_gpus()[name] for name in job.limits.gpus or ()])
    boot, disk = compute_job_startup(job, booted=booted), compute_job_disk_gb(job)
    for name, gpu_count in [(on.gpu.name, on.gpu_count)] if on else shop.list_classes():
        gpu = on.gpu if on else gpus.get(name)
        if gpu is None:
            yield QuoteRefusal(gpu=name, gpu_count=gpu_count, reason="no datasheet figures for this GPU")
            continue
        if on is None and gpu_count > job.limits.max_gpus:
            yield QuoteRefusal(
                gpu=name, gpu_count=gpu_count, reason=f"{gpu_count} GPUs are more than max_gpus = {job.limits.max_gpus}"
            )
            continue
        if not gpu.runs_pytorch:
            yield QuoteRefusal(gpu=name, gpu_count=gpu_count, reason="memory is only computed for PyTorch on GPUs")
            continue
        if job.serving:
            from costguard.services.quote.serving import place_server

            served = place_server(placer, job.serving, gpu, gpu_count, facts=facts, machines=on.nodes if on else None)
            yield from (
                (served,)
                if isinstance(served, QuoteRefusal)
                else _price_offers(job, served, shop, facts, disk, always=on is not None)
            )
            continue
        placement = placer.place(gpu, gpu_count, on.nodes) if on else placer.place_on_enough(gpu, gpu_count)
        if isinstance(placement, ImpossiblePlacement):
            yield QuoteRefusal(gpu=name, gpu_count=gpu_count, reason=placement.reason, has_gib=gpu.memory_gib)
        elif not _is_offered(placement, job, chosen_by_user=on is not None):
            yield refuse_for_memory(placement)
        else:
            timed = _time_placement(job, placement, facts, boot)
            yield from (
                _price_offers(job, timed, shop, facts, disk, always=on is not None)
                if isinstance(timed, TimedPlacement)
                else (timed,)
            )


def _is_offered(placement: Placement, job: Job, *, chosen_by_user: bool) -> bool:
    """Return whether to offer the hardware: on a user's choice the job may be tried, else it is expected to fit."""
    if job.limits.fit == "yes":
        return placement.fit == "yes"
    return placement.fits if chosen_by_user else placement.is_expected_to_fit


def _time_placement(job: Job, placement: Placement, facts: ShippedFacts, boot: Interval) -> TimedPlacement | QuoteRefusal:
    """Return the speed and duration of a placed job; a refusal if the GPU's speed is unknown."""
    efficiency = facts.get_efficiency()
    speed = compute_job_speed(job, placement, efficiency)
    if speed is None:
        return QuoteRefusal(
            gpu=placement.gpu.name, gpu_count=placement.gpu_count, reason="no speed figure for this GPU is known"
        )
    if job.calibration:
        speed = job.calibration.calibrate_speed(speed, job, placement.gpu, gpus=placement.gpus, nodes=placement.nodes)
    took = (
        compute_duration(job.computed_tokens, speed, gpus=placement.gpus, startup_hours=boot, efficiency=efficiency)
        if job.computed_tokens
        else None
    )
    notes = (*filter(None, (placement.explain_fit(),)), *placement.notes, *speed.notes)
    return TimedPlacement(placement=placement, throughput=speed, duration=took, notes=notes)


def _price_offers(
    job: Job, timed: TimedPlacement, shop: Shop, facts: ShippedFacts, disk: int, *, always: bool
) -> Iterator[QuoteOption | QuoteRefusal]:
    """Yield the options of each provider and tier in this class; with `always`, one without a price if there is no offer."""
    place = timed.placement
    candidates = list(shop.find_candidates(place.gpu.name, place.gpu_count))
    yield from (one for one in candidates if isinstance(one, QuoteRefusal))
    offers = [one for one in candidates if not isinstance(one, QuoteRefusal)]
    if (costs := shop.own if always and place.nodes == 1 and not job.serving else None) is not None:
        own = build_own_offer(costs, place.gpu, place.gpu_count, shop.today)
        option = build_option(
            timed, own.offer, own.price, duration=timed.duration, storage=None, gb=0, limits=job.limits, notes=own.notes
        )
        yield add_needs(option, job, disk, facts)
    if not offers and always and not costs:
        why = "has a recent enough price" if candidates else "has a known price"
        unsold = (f"no selected offer of this hardware {why}", *_list_rack_notes(place, facts))
        unpriced = build_option(timed, None, duration=timed.duration, storage=None, gb=disk, limits=job.limits, notes=unsold)
        yield add_needs(unpriced, job, disk, facts)
    elif not candidates:
        yield QuoteRefusal(gpu=place.gpu.name, gpu_count=place.gpu_count, reason="no offer with a known price")
    rates = facts.get_storage_rates()
    for offer, price in offers:
        lacking = refuse_for_host_memory(place, offer)
        redone = offer.tier == SPOT and not job.serving  # a server has nothing to do again
        took = _add_interruptions(timed, offer, job, facts) if redone else timed.duration
        storage = rates.get(offer.provider)
        option = build_option(timed, offer, price, duration=took, storage=storage, gb=disk, limits=job.limits)
        yield lacking or add_needs(option, job, disk, facts)


def _list_rack_notes(place: Placement, facts: ShippedFacts) -> tuple[str, ...]:
    """Return how hardware is sold that comes by the rack, with GPUs that have as much memory and arithmetic."""
    from costguard.sizing.equivalents import USUAL_GPUS, explain_rack, find_equivalents, format_equivalents

    sold = explain_rack(place.gpu)
    if not sold:
        return ()
    same = format_equivalents(find_equivalents(place.gpu, place.gpus, (facts.get_gpus()[name] for name in USUAL_GPUS)))
    return (f"{sold}; as much memory and arithmetic as {place.gpus}: --on {same}" if same else sold,)


def _add_interruptions(timed: TimedPlacement, offer: Offer, job: Job, facts: ShippedFacts) -> Duration | None:
    """Return the duration on interruptible machines; each node adds its own risk of an interruption."""
    if timed.duration is None:
        return None
    table = facts.get_interruptions()
    risk = table.get(offer.provider, table["*"])
    return add_interruptions(
        timed.duration,
        risk.per_hour.scale(timed.placement.nodes),
        restart_hours=risk.restart_hours,
        checkpoint_every_hours=job.checkpoint_every_hours,
    )


def _quote_rental(rental: Rental, shop: Shop, facts: ShippedFacts) -> Iterator[QuoteOption | QuoteRefusal]:
    """Yield each provider's best offer of the hardware for the stated hours."""
    hours, rates = Interval.exactly(rental.hours), facts.get_storage_rates()
    candidates = list[tuple[Offer, AgedPrice] | QuoteRefusal]()
    for name in rental.limits.gpus or (rental.gpu,):
        of_kind = list(shop.find_candidates(name, rental.gpu_count))
        if not of_kind and (name, rental.gpu_count) in shop.list_classes():
            yield QuoteRefusal(gpu=name, gpu_count=rental.gpu_count, reason="no offer with a known price")
        candidates += of_kind
    for one in candidates:
        if isinstance(one, QuoteRefusal):
            yield one
            continue
        offer, price = one
        usd, disk = price_option(price, rental.nodes, hours, rates.get(offer.provider), rental.disk_gb)
        yield QuoteOption(
            gpu=facts.get_gpus()[offer.gpu],
            gpu_count=rental.gpu_count,
            nodes=rental.nodes,
            offer=offer,
            price=price,
            hours=hours,
            usd=usd,
            storage_usd=disk,
        )


def select_offers(limits: JobLimits, counts: tuple[int, ...] | None, today: date) -> OfferSelection:
    """Return the part of the market that `limits` allow on the day `today`."""
    return OfferSelection(
        providers=limits.providers,
        regions=limits.regions,
        tiers=limits.tiers,
        gpus=limits.gpus,
        gpu_counts=counts,
        observed_since=None if limits.max_price_age is None else today - limits.max_price_age,
    )


def check_split(job: Job, on: Hardware | None = None) -> None:
    """Raise InputError if the stated split of the model fits no number of GPUs, or not the stated one."""
    parallel = job.parallel or Parallelism()
    ranks = parallel.model_ranks
    check_parallel(job.architecture, parallel, on.gpu_count * on.nodes if on else ranks * parallel.ep, job.recipe.seq_len)
    if on is None and ranks > job.limits.max_gpus:
        raise InputError(
            f"tp x pp x cp = {ranks} ranks are more than max_gpus = {job.limits.max_gpus}",
            field="parallel",
            hint="raise limits.max_gpus or lower tp, pp or cp",
        )


def check_precision(job: Job, gpus: Sequence[Gpu]) -> None:
    """Raise InputError if the job trains in a precision that none of the stated `gpus` computes in. Empty: any GPU will do."""
    if gpus and all(explain_missing_precision(job.recipe, gpu) for gpu in gpus):
        gpu_names = ", ".join(gpu.name for gpu in gpus)
        raise InputError(
            f"'{job.recipe.precision}' is not supported by {gpu_names}",
            field="precision",
            hint='write precision = "bf16", or name a GPU that has it, such as H100',
        )


def _list_advice(job: Job, facts: ShippedFacts, refused: list[QuoteRefusal], over: list[QuoteOption]) -> tuple[str, ...]:
    """Return advice: the options nearest to the caps, or the smallest changes with which the job fits."""
    if over:
        return _describe_nearest(job, over)
    from costguard.sizing.memory_savings import find_smallest_changes

    loaded = [r for r in refused if r.needs_gpus is not None]
    if loaded:
        return _describe_fewest_gpus(loaded)
    gpus = facts.get_gpus()
    classes = {(r.gpu, r.gpu_count) for r in refused if r.gpu in gpus and r.gpu_count <= job.limits.max_gpus}
    if refused and not classes:
        return (f"every machine selected has more GPUs than max_gpus = {job.limits.max_gpus}: raise it",)
    return find_smallest_changes(job, [(gpus[gpu], count) for gpu, count in sorted(classes)], gpus.values())


def _describe_fewest_gpus(refused: list[QuoteRefusal]) -> tuple[str, ...]:
    """Describe the GPUs that would carry the load of a server with the fewest of them."""
    least = min(refused, key=lambda r: (r.needs_gpus or 0, r.gpu))
    machines = -(-(least.needs_gpus or 0) // least.gpu_count)
    fixed = f"--on {least.gpu}:{least.gpu_count}x{machines}"
    return (f"{least.needs_gpus} x {least.gpu} can serve the load: write --max-gpus {least.needs_gpus}, or {fixed}",)


def _describe_nearest(job: Job, over: list[QuoteOption]) -> tuple[str, ...]:
    """Describe the option nearest to each stated cap."""
    caps = (("cheapest", "usd", job.limits.max_usd), ("fastest", "hours", job.limits.max_hours))
    return tuple(f"the {word} that fits is {_format_option(rank_options(over, sort)[0])}" for word, sort, cap in caps if cap)


def _format_option(option: QuoteOption) -> str:
    money = f"${option.usd.expected.format()}" if option.usd else "unknown money"
    hours = f"{option.hours.expected:.1f} h" if option.hours else "unknown hours"
    nodes = f" x{option.nodes} nodes" if option.nodes > 1 else ""
    return f"{option.gpu.name} x{option.gpu_count}{nodes}: {money}, {hours} expected"


def _refuse_over_cap(option: QuoteOption, why: str) -> QuoteRefusal:
    offer = option.offer
    offer_name = f"{offer.provider} {offer.instance_type} {offer.region} {offer.tier}" if offer else None
    return QuoteRefusal(gpu=option.gpu.name, gpu_count=option.gpu_count, offer=offer_name, reason=why)


def _list_warnings(request: Job | Rental, best: QuoteOption | None, facts: ShippedFacts) -> tuple[str, ...]:
    """Return warnings on missing fields, and on how other assumptions would change the best option."""
    if isinstance(request, Rental):
        return ()
    request = fix_batch(request, best.placement) if best and best.placement else request
    effects = _estimate_best_effects(request, best, facts) if best and request.assumed else {}
    unknown = ("tokens was not stated: no hours and no money; write tokens = 50e6 or --tokens 50e6",)
    return (
        *(() if request.tokens or request.serving else unknown),
        *list_assumption_warnings(request, effects),
        *list_shape_notes(request),
        *(best.placement.footprint.list_distance_notes() if best and best.placement else ()),
        *_list_batch_warnings(request),
        *_list_guidance_warnings(request),
        *_list_master_weight_notes(request, effects),
    )


def _list_guidance_warnings(job: Job) -> tuple[str, ...]:
    """Return a warning that guidance doubles the passes, if these were not stated and the model is not distilled of it."""
    if "denoising_steps" not in dict(job.assumed) or not job.architecture.guided:
        return ()
    twice = 2 * job.denoising_steps
    return (f"classifier-free guidance doubles the passes: write denoising_steps = {twice} if the pipeline uses it",)


def _list_batch_warnings(job: Job) -> tuple[str, ...]:
    """Return a warning if words are written one sequence at a time only because no batch was stated."""
    generates = job.architecture.writes and job.architecture.sample_unit is None and not job.recipe.trains
    if not generates or job.tokens is None or "micro_batch" not in dict(job.assumed):
        return ()
    load = "" if job.architecture.kind == "encoder-decoder" else "add --requests-per-second, --prompt-len and --output-len, or "
    return (f"one sequence at a time; a server with many sequences is far cheaper: {load}raise --micro-batch",)


def _list_master_weight_notes(job: Job, effects: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a pretraining run in 16 bits alone would save; nothing if the precision was stated."""
    if job.recipe.method != "pretrain" or "precision" not in effects:
        return ()
    other, _, effect = effects["precision"].partition(": ")
    why = f"pretraining keeps fp32 master weights ({job.recipe.precision}), because 16 bits lose small updates"
    return (f'{why}; precision = "{other}" alone needs {effect}',)


def _estimate_best_effects(job: Job, best: QuoteOption, facts: ShippedFacts) -> dict[str, str]:

    return estimate_assumption_effects(job, best.placement, best.throughput, facts=facts)


def estimate_assumption_effects(
    job: Job, placement: Placement | None, speed: Throughput | None, *, facts: ShippedFacts
) -> dict[str, str]:
    """Return assumed field -> how another value would change hours and memory of `job` as `placement` at `speed`."""
    timed = None if job.serving else speed  # a server runs all month, whatever its speed
    return {} if placement is None else dict(_list_assumption_effects(job, placement, timed, facts))


def _list_assumption_effects(
    job: Job, placement: Placement, speed: Throughput | None, facts: ShippedFacts
) -> Iterator[tuple[str, str]]:
    for field, value, other in list_alternatives(job):
        try:
            as_placed = replace(other, parallel=placement.parallel)
            trial = Placer(job=as_placed).place(placement.gpu, placement.gpu_count, placement.nodes)
        except InputError:  # what cannot be is no alternative
            continue
        if isinstance(trial, Placement):
            faster = compute_job_speed(other, trial, facts.get_efficiency()) if speed and trial.is_expected_to_fit else None
            memory = trial.needs_gib / placement.needs_gib
            yield (
                field,
                format_effect(value, hours=_compute_speed_ratio(speed, faster), memory=memory, fits=trial.is_expected_to_fit),
            )


def _compute_speed_ratio(speed: Throughput | None, faster: Throughput | None) -> float | None:
    if speed is None or faster is None:
        return None
    return speed.tokens_per_s_per_gpu.expected / faster.tokens_per_s_per_gpu.expected


EXCLUDED_TIER = "spot"
"""The tier that no source means when it names a price."""


def compare_with_claim(
    template: WorkloadTemplate,
    job: Job,
    changed: tuple[str, ...],
    *,
    market: OfferSource,
    facts: ShippedFacts,
    today: date | None = None,
) -> TemplateComparison:
    """Compare the claim of `template` with a quote; nothing is compared if flags changed the job.

    `today`: as in `build_quote`.
    """
    claim = template.claim
    if claim is None or changed:
        return TemplateComparison(template=template, changed=changed)
    on = Hardware(gpu=facts.get_gpus()[claim.gpu], gpu_count=claim.gpu_count, nodes=claim.nodes)
    answer = build_quote(replace(job, limits=NO_LIMITS), market=market, facts=facts, on=on, today=today)
    options = [o for o in answer.options if not o.offer or o.offer.tier != EXCLUDED_TIER]
    lacking = next((r.reason for r in answer.refused), None)
    return TemplateComparison(template=template, option=options[0] if options else None, lacking=None if options else lacking)
