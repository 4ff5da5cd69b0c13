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
from costguard.services.quote.job_input import JobInput, parse_hardware, read_job_input
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


def estimate_run(asked: RunRequest, settings: Settings, record: JobRecord, now: datetime) -> RunEstimate:
    """Return the terms of the job's next attempt. Raises NoAnswerError if it does not fit, or exceeds a cap."""
    facts = ShippedFacts()
    live = _find_this_machine(settings, now) if asked.id is None else _find_stated_machine(asked.id, settings, now)
    hardware, notes, seen = _find_hardware(asked, live, facts)
    differs = _explain_gpu_mismatch(hardware, _list_local_gpus(), facts) if asked.on is not None else ""
    notes = (*notes, *([differs] if differs else []))
    machine = _describe_machine(asked, live, hardware, settings, now)
    if asked.job_file is None and not asked.flags:
        return RunEstimate(terms=JobTerms(machine=machine), hardware=hardware, live=live, seen=seen, notes=notes)
    stated = read_job_input(asked.flags, asked.job_file, facts)
    if hardware is not None:
        stated = replace(stated, gpus=hardware.gpu_count * hardware.nodes)
    if set(stated.table) <= {"limits"}:
        return RunEstimate(terms=JobTerms(machine=machine), stated=stated, hardware=hardware, live=live, seen=seen, notes=notes)
    with stated.name_files():
        job = apply_calibration(read_asked_job(stated, facts, strict=False), asked.calibration, asked.config)
    if hardware is None:
        capped = job.limits.max_usd is not None or job.limits.max_hours is not None
        missing = "no GPU was found here: the job is run without a quote, and its time is recorded"
        told = (
            *notes,
            *stated.notes,
            f"{missing}{', and its limits are not checked' if capped else ''} (--on H100:8 quotes it)",
        )
        return RunEstimate(terms=JobTerms(machine=machine), stated=stated, live=live, seen=seen, notes=told)
    with stated.name_files():
        option, machine, warnings = _quote_here(asked, job, hardware, machine, live=live, facts=facts, now=now)
    per_step = asked.tokens_per_step or _compute_tokens_per_step(job, option)
    steps = count_steps(job.tokens, per_step)
    terms = JobTerms(
        machine=machine,
        hours=option.hours,
        usd=option.usd,
        tokens_per_step=per_step,
        steps=steps,
        share=compute_share_left(record, steps),
    )
    told = (*notes, *stated.notes, *warnings, *option.notes)
    return RunEstimate(
        terms=terms, differs=differs, job=job, stated=stated, hardware=hardware, live=live, seen=seen, notes=told
    )


def quote_again(asked: RunRequest, found: RunEstimate, now: datetime) -> JobTerms | None:
    """Quote the whole job again on the same machine and price with the new calibration; None if it had no quote."""
    if found.job is None or found.hardware is None:
        return None
    job = apply_calibration(replace(found.job, calibration=None), asked.calibration, asked.config)
    option, machine, _ = _quote_here(
        asked, job, found.hardware, found.terms.machine, live=found.live, facts=ShippedFacts(), now=now
    )
    return replace(found.terms, machine=machine, hours=option.hours, usd=option.usd, share=Fraction(1))


def _quote_here(
    asked: RunRequest,
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
        with MarketReader(find_market_file(asked.market, asked.config)) as source:
            job = replace(job, limits=resolve_limits(job.limits, source))
            here = guess_provider() if job.limits.providers is None else None
            sold = here in source.providers() if here else False
            narrowed = replace(job, limits=replace(job.limits, providers=(here,))) if sold and here else job
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
    told = f"the market's offer of {offer.provider} {offer.region} {offer.tier}, seen on {offer.observed_on}"
    return replace(machine, hourly=rate, source=told, provider=offer.provider)


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
    asked: RunRequest, live: LiveResource | None, hardware: Hardware | None, settings: Settings, now: datetime
) -> JobMachine:
    """Describe this machine from the ledger and the flags."""
    stated = None if asked.rate is None else Rate.parse(asked.rate, field="--rate")
    known = compute_burn_rate(live, now) if live else None
    if stated is not None and known is not None and live is not None:
        hint = "leave one of the two out"
        raise InputError(
            f"is given together with --id, whose price the ledger knows: {known.format()}", field="--rate", hint=hint
        )
    seen = live.observation if live else None
    source = "its price is unknown"
    if known is not None and seen is not None:
        source = f"the ledger's {format_resource(seen)}"
    elif stated is not None:
        source = "--rate"
    return JobMachine(
        gpu=hardware.gpu.name if hardware else "",
        count=hardware.gpu_count if hardware else 0,
        nodes=hardware.nodes if hardware else 1,
        hourly=known or stated,
        source=source,
        provider=seen.key.provider if seen else guess_provider() or "",
        account=seen.key.account if seen else "",
        owner=asked.owner or (find_owner(live.observation, settings.defaults.owner_from) if live else ""),
    )


def _find_stated_machine(stated: str, settings: Settings, now: datetime) -> LiveResource:
    live = find_machine(stated, settings, now, "--id")
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
    asked: RunRequest, live: LiveResource | None, facts: ShippedFacts
) -> tuple[Hardware | None, tuple[str, ...], bool]:
    """Return the GPUs as stated, as the ledger lists them, or as NVML finds them; and whether they were detected."""
    here = _list_local_gpus()
    if asked.on is not None:
        hardware, notes = parse_hardware(asked.on, facts)
        assert hardware is not None  # noqa: S101 - for the type checker: it was stated
        return hardware, notes, bool(here)
    if live is not None and live.observation.gpu in facts.get_gpus() and live.observation.gpu_count >= 1:
        seen = live.observation
        return Hardware(gpu=facts.get_gpus()[seen.gpu], gpu_count=int(seen.gpu_count)), (), True
    if not here:
        return None, (), False
    if len({*here}) > 1:
        hint = f'write --on with those that the job uses: --on "{here[0]}:1"'
        raise InputError(f"several kinds of GPU were found here: {', '.join(sorted({*here}))}", field="--on", hint=hint)
    name = facts.get_gpu_names().resolve(here[0], field="--on").canonical
    return Hardware(gpu=facts.get_gpus()[name], gpu_count=len(here)), (f"found here: {name}:{len(here)}",), True


def _explain_gpu_mismatch(stated: Hardware | None, here: list[str], facts: ShippedFacts) -> str:
    """Explain that NVML finds other GPUs than stated; "" if it does not, or is not available."""
    if stated is None or not here:
        return ""
    with suppress(UnknownNameError):
        names = [facts.get_gpu_names().resolve(name, field="--on").canonical for name in here]
        if names.count(stated.gpu.name) >= stated.gpu_count:
            return ""
    return f"--on says {stated.gpu.name}:{stated.gpu_count}, and NVML finds {len(here)} x {', '.join(sorted({*here}))} here"


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
    placed = option.placement
    if placed is None:
        return None
    ranks = placed.parallel.count_data_ranks(placed.gpus)
    return job.example_sequences * placed.recipe.micro_tokens * ranks * placed.recipe.gradient_accumulation
