"""Expected hours and cost of a run on this machine: find the machine, its price, and quote it.

The price is the ledger's if `--id` names the machine; else `--rate`; else the cheapest market offer of such GPUs by the
provider of this machine; else it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from importlib import import_module

from costguard_agent.clouds import locate_machine

from costguard.data import ShippedFacts
from costguard.errors import InputError, NoAnswerError, UnknownNameError
from costguard.guard.machine_reference import format_resource
from costguard.guard.overrides import find_owner
from costguard.guard.policy_evaluation import compute_burn_rate
from costguard.ledger.market import MarketReader
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.spending import LiveResource
from costguard.quoting.offer import Offer, OfferSelection
from costguard.quoting.price_drift import Judgement, Vintage
from costguard.quoting.quote import QuoteOption
from costguard.runs.progress import count_steps
from costguard.runs.record import JobMachine, JobRecord, JobTerms, compute_share_left
from costguard.services.guarding.overrides import find_machine
from costguard.services.quote import quote as flow
from costguard.services.quote.hardware import parse_hardware
from costguard.services.quote.job_input import JobInput, read_job_input
from costguard.services.quote.market_choice import find_market_file, resolve_limits
from costguard.services.quote.quote_commands import apply_calibration, read_asked_job
from costguard.services.run_jobs.machine_provider import guess_provider
from costguard.settings import Settings, resolve_ledger_url
from costguard.sizing.job import Job, JobLimits, Table
from costguard.sizing.placement import Hardware
from costguard.values.money import Rate
from costguard.values.resource import RUNNING, TIERS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The user's request for a job and its machine. `flags`: over the job file. Other fields: as their flags."""

    job_file: str | None = None
    flags: Table
    on: str | None = None
    id: str | None = None
    rate: str | None = None
    owner: str | None = None
    tokens_per_step: int | None = None
    market: str | None = None
    calibration: str | None = None
    config: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEstimate:
    """Terms of a run and their origin.

    `job` None: run without a quote. `seen`: whether the GPUs were detected. `differs`: how they differ from the stated ones.
    """

    terms: JobTerms
    differs: str = ""
    job: Job | None = None
    stated: JobInput | None = None
    hardware: Hardware | None = None
    live: LiveResource | None = None
    seen: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SingleOfferMarket:
    """A market with one offer: the machine of this run."""

    offer: Offer | None

    def list_classes(self, selection: OfferSelection) -> list[tuple[str, int]]:  # noqa: ARG002 - the port's
        """Return the class of the offer."""
        return [(self.offer.gpu, self.offer.gpu_count)] if self.offer else []

    def find_best(
        self,
        gpu: str,
        gpu_count: int,
        selection: OfferSelection,  # noqa: ARG002 - the port's
        judge: Callable[[Vintage], Judgement],  # noqa: ARG002 - the port's
    ) -> list[Offer]:
        """Return the offer if it is of that class."""
        return [self.offer] if self.offer and (gpu, gpu_count) == (self.offer.gpu, self.offer.gpu_count) else []

    def list_offers(self, selection: OfferSelection, *, sort: str, limit: int | None) -> Iterator[Offer]:  # noqa: ARG002 - the port's
        """Yield the offer."""
        return iter([self.offer] if self.offer else [])


def estimate_run(request: RunRequest, settings: Settings, record: JobRecord, now: datetime) -> RunEstimate:
    """Return the terms of the job's next attempt. Raises NoAnswerError if it does not fit, or exceeds a cap."""
    facts = ShippedFacts()
    live = _find_this_machine(settings, now) if request.id is None else _find_stated_machine(request.id, settings, now)
    hardware, notes, gpus_seen = _find_hardware(request, live, facts)
    differs = _explain_gpu_mismatch(hardware, _list_local_gpus(), facts) if request.on is not None else ""
    notes = (*notes, *([differs] if differs else []))
    machine = _describe_machine(request, live, hardware, settings, now)
    if request.job_file is None and not request.flags:
        return RunEstimate(terms=JobTerms(machine=machine), hardware=hardware, live=live, seen=gpus_seen, notes=notes)
    job_input = read_job_input(request.flags, request.job_file, facts)
    if hardware is not None:
        job_input = replace(job_input, gpus=hardware.gpu_count * hardware.nodes)
    if set(job_input.table) <= {"limits"}:
        return RunEstimate(
            terms=JobTerms(machine=machine), stated=job_input, hardware=hardware, live=live, seen=gpus_seen, notes=notes
        )
    with job_input.name_files():
        job = apply_calibration(read_asked_job(job_input, facts, strict=False), request.calibration, request.config)
    if hardware is None:
        capped = job.limits.max_usd is not None or job.limits.max_hours is not None
        missing = "no GPU was found here: the job is run without a quote, and its time is recorded"
        all_notes = (
            *notes,
            *job_input.notes,
            f"{missing}{', and its limits are not checked' if capped else ''} (--on H100:8 quotes it)",
        )
        return RunEstimate(terms=JobTerms(machine=machine), stated=job_input, live=live, seen=gpus_seen, notes=all_notes)
    with job_input.name_files():
        option, machine, warnings = _quote_here(request, job, hardware, machine, live=live, facts=facts, now=now)
    per_step = request.tokens_per_step or _compute_tokens_per_step(job, option)
    steps = count_steps(job.tokens, per_step)
    terms = JobTerms(
        machine=machine,
        hours=option.hours,
        usd=option.usd,
        tokens_per_step=per_step,
        steps=steps,
        share=compute_share_left(record, steps),
    )
    all_notes = (*notes, *job_input.notes, *warnings, *option.notes)
    return RunEstimate(
        terms=terms, differs=differs, job=job, stated=job_input, hardware=hardware, live=live, seen=gpus_seen, notes=all_notes
    )


def quote_again(request: RunRequest, estimate: RunEstimate, now: datetime) -> JobTerms | None:
    """Quote the whole job again on the same machine and price with the new calibration; None if it had no quote."""
    if estimate.job is None or estimate.hardware is None:
        return None
    job = apply_calibration(replace(estimate.job, calibration=None), request.calibration, request.config)
    option, machine, _ = _quote_here(
        request, job, estimate.hardware, estimate.terms.machine, live=estimate.live, facts=ShippedFacts(), now=now
    )
    return replace(estimate.terms, machine=machine, hours=option.hours, usd=option.usd, share=Fraction(1))


def _quote_here(
    request: RunRequest,
    job: Job,
    hardware: Hardware,
    machine: JobMachine,
    *,
    live: LiveResource | None,
    facts: ShippedFacts,
    now: datetime,
) -> tuple[QuoteOption, JobMachine, tuple[str, ...]]:
    """Quote the job on this hardware at this price; if it is unknown, at the market's."""
    if machine.hourly is not None:
        bare = replace(job, limits=JobLimits(max_usd=job.limits.max_usd, max_hours=job.limits.max_hours))
        offer = _build_offer(machine, hardware, live, now)
        answer = flow.build_quote(
            bare, market=SingleOfferMarket(offer), facts=facts, on=hardware, booted=True, today=now.date()
        )
    else:
        with MarketReader(find_market_file(request.market, request.config)) as source:
            job = replace(job, limits=resolve_limits(job.limits, source))
            local_provider = guess_provider() if job.limits.providers is None else None
            sold = local_provider in source.providers() if local_provider else False
            narrowed = replace(job, limits=replace(job.limits, providers=(local_provider,))) if sold and local_provider else job
            answer = flow.build_quote(narrowed, market=source, facts=facts, on=hardware, booted=True, today=now.date())
    if not answer.options:
        why = answer.refused[0].reason if answer.refused else "this hardware is unknown"
        hint = "; ".join(answer.advice) or "fix the job file; without one the command is run unquoted"
        raise NoAnswerError(f"the job cannot run here as stated: {why}", hint=hint)
    option = answer.options[0]
    if machine.hourly is None and option.offer is not None:
        machine = _price_from_market(machine, option, facts, job)
    return option, machine, answer.warnings


def _price_from_market(machine: JobMachine, option: QuoteOption, facts: ShippedFacts, job: Job) -> JobMachine:
    """Return `machine` at the price of the market's offer, with its disk counted as in the quote."""
    from costguard.quoting.storage import compute_job_disk_gb

    offer = option.offer
    assert offer is not None  # noqa: S101 - for the type checker: asked just now
    rate = option.price.multiply(option.nodes).expected if option.price else None
    storage = facts.get_storage_rates().get(offer.provider)
    if rate is not None and storage is not None:
        disk = storage.compute_cost(compute_job_disk_gb(job) * option.nodes, 3600).nano
        rate = Rate(nano_per_hour=rate.nano_per_hour + disk, currency=rate.currency)
    source = f"the market's offer of {offer.provider} {offer.region} {offer.tier}, seen on {offer.observed_on}"
    return replace(machine, hourly=rate, source=source, provider=offer.provider)


def _build_offer(machine: JobMachine, hardware: Hardware, live: LiveResource | None, now: datetime) -> Offer | None:
    """Build an offer of this machine with a provider name of its own. Its rate includes the disks."""
    if machine.hourly is None:
        return None
    name = f"{hardware.gpu.name} x{hardware.gpu_count}"
    each = machine.hourly
    if hardware.nodes > 1:
        each = Rate(nano_per_hour=max(1, each.nano_per_hour // hardware.nodes), currency=each.currency)
    return Offer(
        provider="here",
        region="here",
        instance_type=name,
        gpu=hardware.gpu.name,
        gpu_count=hardware.gpu_count,
        tier=live.observation.tier if live else TIERS[0],
        rate=each,
        observed_on=now.date(),
        source=machine.source,
    )


def _describe_machine(
    request: RunRequest, live: LiveResource | None, hardware: Hardware | None, settings: Settings, now: datetime
) -> JobMachine:
    """Describe this machine from the ledger and the flags."""
    stated_rate = None if request.rate is None else Rate.parse(request.rate, field="--rate")
    known_rate = compute_burn_rate(live, now) if live else None
    if stated_rate is not None and known_rate is not None and live is not None:
        hint = "leave one of the two out"
        raise InputError(
            f"is given together with --id, which has a price in the ledger: {known_rate.format()}", field="--rate", hint=hint
        )
    observation = live.observation if live else None
    source = "its price is unknown"
    if known_rate is not None and observation is not None:
        source = f"the ledger's {format_resource(observation)}"
    elif stated_rate is not None:
        source = "--rate"
    return JobMachine(
        gpu=hardware.gpu.name if hardware else "",
        count=hardware.gpu_count if hardware else 0,
        nodes=hardware.nodes if hardware else 1,
        hourly=known_rate or stated_rate,
        source=source,
        provider=observation.key.provider if observation else guess_provider() or "",
        account=observation.key.account if observation else "",
        owner=request.owner or (find_owner(live.observation, settings.defaults.owner_from) if live else ""),
    )


def _find_stated_machine(reference: str, settings: Settings, now: datetime) -> LiveResource:
    live = find_machine(reference, settings, now, "--id")
    if live.observation.state != RUNNING:
        hint = "name this machine: costguard status lists the machines"
        raise InputError(f"is {live.observation.state}, so it cannot be this machine", field="--id", hint=hint)
    place, key = locate_machine(), live.observation.key
    if place.id and (place.provider, place.id) != (key.provider, key.id):
        hint = "omit --id: the cloud's metadata is used"
        raise InputError(
            f"is {format_resource(live.observation)}, and this machine is {place.provider}'s {place.id}",
            field="--id",
            hint=hint,
        )
    return live


def _find_this_machine(settings: Settings, now: datetime) -> LiveResource | None:
    """Return this machine if its cloud identifies it and the ledger lists it as running; else None."""
    place = locate_machine()
    if not place.id:
        return None
    with SpendingReader(resolve_ledger_url(settings), rules=ShippedFacts().get_billing_rules()) as books:
        same = [live for live in books.load_live(now) if (live.observation.key.provider, live.observation.key.id) == place[:2]]
    return same[0] if len(same) == 1 and same[0].observation.state == RUNNING else None


def _find_hardware(
    request: RunRequest, live: LiveResource | None, facts: ShippedFacts
) -> tuple[Hardware | None, tuple[str, ...], bool]:
    """Return the GPUs as stated, as the ledger lists them, or as NVML finds them; and whether they were detected."""
    local = _list_local_gpus()
    if request.on is not None:
        hardware, notes = parse_hardware(request.on, facts)
        assert hardware is not None  # noqa: S101 - for the type checker: it was stated
        return hardware, notes, bool(local)
    if live is not None and live.observation.gpu in facts.get_gpus() and live.observation.gpu_count >= 1:
        observation = live.observation
        return Hardware(gpu=facts.get_gpus()[observation.gpu], gpu_count=int(observation.gpu_count)), (), True
    if not local:
        return None, (), False
    if len({*local}) > 1:
        hint = f'write --on with those that the job uses: --on "{local[0]}:1"'
        raise InputError(f"several kinds of GPU were found here: {', '.join(sorted({*local}))}", field="--on", hint=hint)
    name = facts.get_gpu_names().resolve(local[0], field="--on").canonical
    return Hardware(gpu=facts.get_gpus()[name], gpu_count=len(local)), (f"found here: {name}:{len(local)}",), True


def _explain_gpu_mismatch(hardware: Hardware | None, local: list[str], facts: ShippedFacts) -> str:
    """Explain that NVML finds other GPUs than stated; "" if it does not, or is not available."""
    if hardware is None or not local:
        return ""
    with suppress(UnknownNameError):
        names = [facts.get_gpu_names().resolve(name, field="--on").canonical for name in local]
        if names.count(hardware.gpu.name) >= hardware.gpu_count:
            return ""
    return (
        f"--on says {hardware.gpu.name}:{hardware.gpu_count}, but NVML finds {len(local)} x {', '.join(sorted({*local}))} here"
    )


def _list_local_gpus() -> list[str]:
    """Return the GPU names of this machine by NVML; none if it is not available."""
    try:
        pynvml = import_module("pynvml")  # of the extra `agent`; it ships no types
    except ImportError:
        return []
    names: list[str] = []
    try:
        pynvml.nvmlInit()
        for number in range(pynvml.nvmlDeviceGetCount()):
            name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(number))
            names.append(name.decode() if isinstance(name, bytes) else str(name))
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return []
    return names


def _compute_tokens_per_step(job: Job, option: QuoteOption) -> int | None:
    """Return the tokens of one optimizer step: as the job states, else of one pass of every rank."""
    if job.global_batch_tokens:
        return job.global_batch_tokens
    placement = option.placement
    if placement is None:
        return None
    ranks = placement.parallel.count_data_ranks(placement.gpus)
    return job.example_sequences * placement.recipe.micro_tokens * ranks * placement.recipe.gradient_accumulation
