"""Commands before a run: quote, size, offers, calibrate; and their shared inputs.

Shared inputs are the job, the market file and the calibration.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.data import ShippedFacts
from costguard.errors import CostguardError, InputError, LedgerError, NoAnswerError
from costguard.ledger.market import MarketReader
from costguard.quoting.quote import OVER_CAP, Quote, QuoteOption, Rental, choose_advice
from costguard.services import CommandAnswer
from costguard.services.quote.hardware import parse_hardware
from costguard.services.quote.job_input import (
    JobInput,
    apply_hardware_flag,
    place_on_launch,
    read_job,
    read_job_input,
    read_launch_rental,
    read_model_config,
    read_observed_runs,
    read_rental,
    settle_count,
)
from costguard.services.quote.market_choice import choose_own_costs, find_market_file, resolve_limits, split_plan_sellers
from costguard.settings import expand_path, get_data_path, read_rows, read_settings
from costguard.sizing.job import Job, JobLimits, Table, parse_job_limits, read_subtable
from costguard.sizing.placement import Hardware
from costguard.values import checks
from costguard.views.document import TableView

if TYPE_CHECKING:  # a type and no more: a quote without a template does not pay for importing it
    from costguard.quoting.template import TemplateComparison
    from costguard.sizing.observed_runs import CalibrationAnswer, ObservedRun


COMPARISONS = ("parallel",)
"""What `quote --compare` puts side by side."""


def answer_quote(
    *,
    flags: Table,
    job_file: str | Sequence[str] | None = None,
    on: str | None = None,
    count: float | None = None,
    hours: float | None = None,
    top: float | None = None,
    sort: str = "usd",
    market: str | None = None,
    explain: bool = False,
    why: bool = False,
    strict: bool = False,
    every: bool = False,
    calibration: str | None = None,
    config: str | None = None,
    compare: str | None = None,
    pilot: str | None = None,
) -> CommandAnswer:
    """Answer `costguard quote`: a job, or a rental of `count` GPUs for `hours`.

    `top`: so many of the ranking; None: all for `every`, else the few that are advised. `why`: every caveat in a line of its
    own, as `every` and `explain` have it too, and not only one line of them. `compare`: one of COMPARISONS, beside the options.
    `pilot`: the percent of the job to quote beside it, as a first run.
    """
    from costguard.quoting import pilot as pilots
    from costguard.quoting.quote import SORT_KEYS
    from costguard.services.quote import quote as flow
    from costguard.views.quote import build_quote_document, show_named_plans

    checks.require_one_of(sort, SORT_KEYS, "--sort")
    if compare is not None:
        checks.require_one_of(compare, COMPARISONS, "--compare")
    rows = None if top is None else checks.require_whole_number(top, "--top")
    percent = None if pilot is None else pilots.parse_percent(pilot)
    facts = ShippedFacts()
    asked_run = read_asked(
        flags,
        job_file,
        facts,
        on=on,
        count=count,
        hours=hours,
        strict=strict,
        calibration=calibration,
        config=config,
        families=True,
    )
    request, counts = asked_run.asked, asked_run.counts
    plans = facts.get_subscriptions() if isinstance(request, Job) else ()
    with asked_run.stated.name_files(), MarketReader(find_market_file(market, config)) as source:
        limits, named_plans = split_plan_sellers(request.limits, plans)
        own = choose_own_costs(read_settings(config).local, limits, on_stated=asked_run.hardware is not None)
        only_plans = bool(named_plans) and limits.providers is None
        request = replace(request, limits=resolve_limits(limits, source))
        build = partial(
            flow.build_quote,
            market=source,
            facts=facts,
            on=asked_run.hardware,
            sort=sort,
            counts=counts,
            own=own,
            today=get_today(),
        )
        answer = build(request)
        small = None if percent is None else build(pilots.cut_job(request, percent))
        compared = _compare_with_template(asked_run.stated, request, source, facts)
        sold = () if answer.options or answer.refused else _list_sold_counts(request.limits, source)
    answer = replace(answer, warnings=(*answer.warnings, *asked_run.notes))
    advice = None if every or rows is not None else choose_advice(answer.options)
    visible = answer.options[:rows] if advice is None else advice.options
    document = build_quote_document(
        answer,
        visible,
        plans=plans,
        explain=_build_explanation(visible) if explain else (),
        compared=compared,
        words=advice.words if advice is not None else None,
        brief=not (why or every or explain),
    )
    refusal = _explain_no_option(answer, facts, 1 if counts is None else counts[0], sold)
    if named_plans:
        document = show_named_plans(document, named_plans, answer, alone=only_plans)
        if only_plans and not document.tables:
            hint = "a GPU that these plans do not have, or more than one; leave out --provider for machines that can run it"
            refusal = NoAnswerError(f"no plan of {named_plans[0].provider} can run it", hint=f"it needs {hint}")
    if percent is not None and small is not None and (first := pilots.compare_pilot(percent, small, answer)):
        from costguard.views.pilot import add_pilot

        document = add_pilot(document, first)
    if compare is not None:
        from costguard.sizing.splits import compare_splits
        from costguard.views.quote import add_splits

        if not isinstance(request, Job):
            raise InputError("compares splits of a job", field="--compare", hint="name a model, or leave it out")
        document = add_splits(document, compare_splits(request, asked_run.hardware, facts.get_efficiency()))
    return CommandAnswer(
        document=document,
        warnings=answer.warnings,
        refusal=refusal,
        value=answer,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRun:
    """What a quote is asked about: a job or a rental, the hardware that is stated, and how many GPUs a machine may have.

    `counts` None: any. `stated`: what was read. `notes`: sentences on it.
    """

    asked: Job | Rental
    hardware: Hardware | None
    counts: tuple[int, ...] | None
    stated: JobInput
    notes: tuple[str, ...]


def read_asked(
    flags: Table,
    job_file: str | Sequence[str] | None,
    facts: ShippedFacts,
    *,
    on: str | None,
    count: float | None,
    hours: float | None,
    strict: bool,
    calibration: str | None,
    config: str | None,
    families: bool = False,
) -> AskedRun:
    """Return the job or rental that flags and files state. Raises InputError for what cannot be quoted.

    `families`: as in JobInput; an admission, whose price is held, takes the usual GPU of a short name instead.
    """
    job_input = read_job_input(flags, job_file, facts, families=families)
    with job_input.name_files():
        if on is not None:
            job_input = apply_hardware_flag(job_input, flags, count=count, hours=hours)
        job_input, hardware, notes, count = find_hardware(job_input, on, facts, count)
        request = (
            read_launch_rental(job_input, hardware, hours)
            or (read_rental(job_input, count, hours) if hours is not None else None)
            or apply_calibration(read_asked_job(job_input, facts, strict=strict), calibration, config)
        )
    counts = None if count is None else (checks.require_whole_number(count, "--count"),)
    if isinstance(request, Job) and hardware is not None and job_input.config is not None:
        model_ranks = request.parallel.model_ranks if request.parallel else 1
        ranks = max(1, hardware.gpu_count * hardware.nodes // model_ranks)
        doubt = job_input.config.plan.explain_contradiction(request.recipe.micro_batch, ranks)
        notes = (*notes, doubt) if doubt else notes
    return AskedRun(asked=request, hardware=hardware, counts=counts, stated=job_input, notes=(*job_input.notes, *notes))


def answer_templates() -> CommandAnswer:
    """Answer `costguard quote --template list`: the workload templates."""
    from costguard.views.template import build_templates_document

    return CommandAnswer(document=build_templates_document(ShippedFacts().templates().values()))


def answer_size(
    *,
    flags: Table,
    job_file: str | Sequence[str] | None = None,
    on: str | None = None,
    count: float | None = None,
    explain: bool = False,
    strict: bool = False,
    exact: bool = False,
    calibration: str | None = None,
    config: str | None = None,
) -> CommandAnswer:
    """Answer `costguard size`: memory only. `exact`: also run one step on fake tensors. `count`: GPUs of the kind `--gpu`."""
    from costguard.services.quote import size as flow
    from costguard.views.quote import list_footprint_tables
    from costguard.views.size import build_size_document, build_what_if_table

    facts = ShippedFacts()
    job_input = read_job_input(flags, job_file, facts)
    with job_input.name_files():
        on = _name_hardware(job_input, on, count)
        job_input, hardware, notes, _ = find_hardware(job_input, on, facts, count)
        job = apply_calibration(read_asked_job(job_input, facts, strict=strict), calibration, config)
        answer = flow.size_job(job, facts=facts, on=hardware)
    answer = flow.add_assumption_effects(answer)
    if exact:
        from costguard.services.quote.exact_step import FakeTensorSizer

        answer = flow.add_exact_step(answer, read_model_config(job_input, facts), FakeTensorSizer())
    answer = replace(answer, warnings=(*answer.warnings, *job_input.notes, *notes))
    tables = (*list_footprint_tables(answer.footprint), build_what_if_table(flow.list_what_ifs(answer))) if explain else ()
    document = build_size_document(answer, explain=tables)
    refusal = None
    if answer.fits is False or (answer.fit == "maybe" and job.limits.fit == "yes"):
        helpful = [e.lever.change for e in answer.levers if e.fit == "yes"]
        hint = f"would fit with: {'; or '.join(helpful[:3])}" if helpful else "no single change makes it fit: use more GPUs"
        refusal = NoAnswerError(f"the job {'does' if answer.fit == 'no' else 'may'} not fit on the stated hardware", hint=hint)
    return CommandAnswer(document=document, warnings=answer.warnings, refusal=refusal, value=answer)


def _name_hardware(job_input: JobInput, on: str | None, count: float | None) -> str | None:
    """Return `on`, or `--gpu` and `--count` as such; raise InputError if these name no one kind of GPU."""
    gpus = parse_job_limits(read_subtable(job_input.table, "limits")).gpus or ()
    launched = job_input.config is not None and job_input.config.hardware is not None
    count = settle_count(job_input, count)
    if on is not None or launched or (not gpus and count is None):
        return on
    if len(gpus) != 1:
        what = "counts GPUs of no kind" if not gpus else f"names {len(gpus)} GPUs, and memory is that of one"
        raise InputError(what, field="--gpu" if gpus else "--count", hint="write --gpu H100 --count 8, or --on H100:8")
    return f"{gpus[0]}:{checks.require_whole_number(1 if count is None else count, '--count', most=100_000)}"


def answer_offers(
    *,
    flags: Table,
    count: float | None = None,
    sort: str = "usd_per_hour",
    top: float = 50,
    market: str | None = None,
    live: bool = False,
    strict: bool = False,
    offline: bool = False,
    every: bool = False,
    min_reliability: float | None = None,
    config: str | None = None,
) -> CommandAnswer:
    """Answer `costguard offers`: the market, filtered. `live`: also request live offers of the configured providers.

    `every`: a row for each region of a machine, not one with their range. `min_reliability`: of hosts, 0 to 1.
    """
    from costguard.quoting.price_falls import describe_doubts
    from costguard.services.quote import offers as flow
    from costguard.services.quote.quote import select_offers
    from costguard.views.market import build_offers_document

    checks.require_one_of(sort, flow.OFFER_SORTS, "--sort")
    facts = ShippedFacts()
    job_input = read_job_input(flags, None, facts, families=True)
    limits = parse_job_limits(read_subtable(job_input.table, "limits"))
    count = settle_count(job_input, count)
    counts = None if count is None else (checks.require_whole_number(count, "--count"),)
    most = checks.require_whole_number(top, "--top", least=0) or None
    with MarketReader(find_market_file(market, config)) as source:
        if min_reliability is not None:
            checks.require_number(min_reliability, "--min-reliability", least=0, most=1)
            checks.require(live, "--min-reliability", "is of live offers: stored prices have no hosts", "write --live too")
        selection = select_offers(resolve_limits(limits, source), counts, get_today())
        selection = replace(selection, least_reliability=min_reliability)
        facts_of = source.describe_file()
        if live:
            settings = read_settings(config) if not offline else None
            return flow.answer_live_offers(
                source,
                selection,
                settings,
                notes=job_input.notes,
                sort=sort,
                limit=most,
                strict=strict,
                today=get_today(),
                drift=facts.get_price_drift(),
                every=every,
            )
        shown_offers = flow.list_market_offers(selection, market=source, sort=sort, limit=most)
        sold = () if shown_offers else _list_sold_counts(limits, source)
    warnings = (*job_input.notes, *describe_doubts(shown_offers))
    document = build_offers_document(
        shown_offers, facts_of, drift=facts.get_price_drift(), today=get_today(), warnings=warnings, every=every
    )
    reserved = "the market data has no prices of reserved machines; state those that you agreed on as [[agreement]]"
    hint = reserved if limits.tiers == ("reserved",) else "remove a filter; costguard offers lists all"
    nothing = NoAnswerError("no offer matches", hint=hint)
    other = _explain_other_counts(limits.gpus or (), counts[0] if counts else None, sold)
    return CommandAnswer(document=document, warnings=warnings, refusal=None if shown_offers else other or nothing)


def answer_calibrate(
    *, runs: str | None, show: bool = False, reset: bool = False, calibration: str | None = None, config: str | None = None
) -> CommandAnswer:
    """Answer `costguard calibrate`: correct quotes by observed runs. `show`: write nothing; `reset`: drop the kept runs."""
    from costguard.views.runs import build_calibration_document

    facts, path = ShippedFacts(), find_calibration_file(calibration, config)
    if runs is None and not show and not reset:
        hint = "write costguard calibrate RUNS.csv, or --show, or --reset"
        raise InputError("no file of observed runs was given", field="RUNS", hint=hint)
    fresh = read_observed_runs(read_rows(expand_path(runs)), expand_path(runs).parent, facts) if runs else ()
    answer = update_calibration(fresh, path, facts, keeps=not show, anew=reset)
    document = build_calibration_document(answer)
    return CommandAnswer(document=document, warnings=answer.warnings)


def _explain_no_option(answer: Quote, facts: ShippedFacts, count: int, sold: tuple[int, ...]) -> NoAnswerError | None:
    """Return why there is no option; None if there is one.

    `count`: stated number of GPUs of an instance, else 1. `sold`: from `_list_sold_counts`.
    """
    if answer.options:
        return None
    over = sum(r.reason.startswith(OVER_CAP) for r in answer.refused)
    if over:
        return NoAnswerError(f"all {over} options that fit are over the cap", hint="; ".join(answer.advice) or None)
    if not answer.refused:
        count = answer.asked.gpu_count if isinstance(answer.asked, Rental) else count
        names = answer.asked.limits.gpus or ()
        return _explain_other_counts(names, count, sold) or _explain_no_offer(names, facts, count)
    advice = "; ".join(answer.advice[:2]) or "leave out a filter, or state more GPUs"
    return NoAnswerError(f"nothing fits: {len(answer.refused)} refused", hint=advice)


def _list_sold_counts(limits: JobLimits, source: MarketReader) -> tuple[int, ...]:
    """Return in machines of how many GPUs the GPUs that `limits` names are sold, within its other limits."""
    from costguard.services.quote.quote import select_offers

    if not limits.gpus:
        return ()
    return tuple(sorted({count for _, count in source.list_classes(select_offers(limits, None, get_today()))}))


def _explain_other_counts(names: tuple[str, ...], count: int | None, sold: tuple[int, ...]) -> NoAnswerError | None:
    """Return the error for GPUs that are sold, but not by `count` (None: not stated); None where none is."""
    if not sold or count in sold or count is None:
        return None
    machines = ", ".join(map(str, sold))
    what = f"no offer of {' or '.join(names)} x{count}: sold here in machines of {machines}"
    return NoAnswerError(what, hint=f"write --count {min(sold, key=lambda n: (n < count, abs(n - count)))}")


def _explain_no_offer(names: tuple[str, ...], facts: ShippedFacts, count: int) -> NoAnswerError:
    """Return the error for a market without a matching offer; of a single GPU that was named, with what does the same job."""
    from costguard.sizing.equivalents import USUAL_GPUS, explain_rack, find_equivalents, format_equivalents

    hint = "remove a filter; costguard offers lists the market"
    if len(names) != 1:
        return NoAnswerError("no offer matches", hint=hint)
    gpu = facts.get_gpus()[names[0]]
    what = "no offer matches"
    if not gpu.runs_pytorch:
        what = f"{gpu.name} is not quoted: its compiler decides memory and speed"
    elif sold := explain_rack(gpu):
        what = f"no offer matches: {sold}, and none is in the market data"
    same = format_equivalents(find_equivalents(gpu, count, (facts.get_gpus()[name] for name in USUAL_GPUS)))
    machine = f"one {gpu.name}" if count == 1 else f"{count} x {gpu.name}"
    return NoAnswerError(what, hint=f"as much memory and arithmetic as {machine}: --on {same}" if same else hint)


def _compare_with_template(
    job_input: JobInput, request: Job | Rental, source: MarketReader, facts: ShippedFacts
) -> TemplateComparison | None:
    """Compare the claim of the template's source with the quote; None if no template was requested."""
    if job_input.template is None or not isinstance(request, Job):
        return None
    from costguard.quoting.template import list_changed_keys
    from costguard.services.quote.quote import compare_with_claim

    changed = list_changed_keys(job_input.table, job_input.template)
    return compare_with_claim(job_input.template, request, changed, market=source, facts=facts, today=get_today())


def _build_explanation(options: tuple[QuoteOption, ...]) -> tuple[TableView, ...]:
    from costguard.views.quote import list_option_tables

    return list_option_tables(options[0]) if options else ()


def get_today() -> date:
    """Return the day, in UTC, for which prices are estimated."""
    return datetime.now(UTC).date()


CALIBRATION_LOCK_WAIT_S = 20.0
"""Seconds to wait for another run that takes its own observations in."""


def apply_calibration(job: Job, calibration_path: str | None, config: str | None) -> Job:
    """Return `job` with the calibration by observed runs. A file named by a flag must exist; the default one need not."""
    path = find_calibration_file(calibration_path, config)
    if calibration_path is None and not path.exists():
        return job
    from costguard.files.calibration_file import CalibrationFile

    return replace(job, calibration=CalibrationFile(path).load_calibration())


def find_calibration_file(calibration_path: str | None, config: str | None) -> Path:
    """Return the file of observed runs."""
    chosen = calibration_path or read_settings(config).quote.calibration
    return expand_path(chosen) if chosen else get_data_path("calibration.json")


def find_hardware(
    job_input: JobInput, on: str | None, facts: ShippedFacts, count: float | None = None
) -> tuple[JobInput, Hardware | None, tuple[str, ...], float | None]:
    """Return the input, the hardware of `--on` or of a launch file, notes on it, and the GPUs of a machine that are stated."""
    hardware, notes = parse_hardware(on, facts)
    count = settle_count(job_input, count)
    if hardware is not None:
        return replace(job_input, gpus=hardware.gpu_count * hardware.nodes), hardware, notes, count
    placed_input, launched, counted = place_on_launch(job_input, facts, count=count)
    return placed_input, launched, notes, counted


def read_asked_job(job_input: JobInput, facts: ShippedFacts, *, strict: bool) -> Job:
    """Return the job; with `strict` raise an error if a field would be assumed."""
    if strict and job_input.config is not None and job_input.config.assumed:
        what = f"leaves these to {job_input.config.label}'s defaults: {'; '.join(job_input.config.assumed)}"
        raise InputError(what, field=str(job_input.config.files[0]), hint="state them in the config, or leave out --strict")
    job = read_job(job_input, facts)
    if strict:
        from costguard.sizing.assumptions import check_nothing_assumed

        check_nothing_assumed(job)
    return job


def update_calibration(
    fresh: Sequence[ObservedRun], path: Path, facts: ShippedFacts, *, keeps: bool = True, anew: bool = False
) -> CalibrationAnswer:
    """Compare `fresh` runs with those in the calibration file at `path`, and store them there if `keeps`.

    `anew`: without the stored runs. The file is locked, so that of two runs that end at once both are stored.
    """
    from costguard.files.calibration_file import CalibrationFile
    from costguard.services.quote import calibration as flow
    from costguard.system.atomic_file import hold_file_lock, make_folder

    file = CalibrationFile(path)
    try:
        if keeps:
            make_folder(path.absolute().parent)
        with hold_file_lock(path.absolute().parent, patience_s=CALIBRATION_LOCK_WAIT_S) if keeps else nullcontext():
            stored_runs, broken = (
                ((), ())
                if anew
                else flow.reread_kept_runs(file.load_runs(), lambda rows: read_observed_runs(rows, Path(), facts))
            )
            answer = flow.calibrate_runs(fresh, stored_runs=stored_runs, facts=facts, file=str(file.path), warnings=broken)
            if keeps:
                file.save(answer.weighed.calibration, answer.runs)
    except LedgerError:
        hint = "wait for it to end, then try again; nothing was written"
        raise CostguardError("another costguard process is writing it", field=str(path), hint=hint) from None
    except OSError as wrong:
        hint = "name another file with --calibration FILE"
        raise CostguardError(f"cannot be written: {wrong.strerror}", field=str(path), hint=hint) from None
    return answer
