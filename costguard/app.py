"""The one place that knows every room and wires them: each function answers one command with a Document.

Nothing is decided here; `flows/` says what happens, `core/` decides, and this file hands each what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from costguard.core import checks
from costguard.core.architecture import Architecture
from costguard.core.document import Document, TableView
from costguard.core.gpu import Gpu
from costguard.core.gpu_names import GpuNames
from costguard.core.job import Job, Limits, Table, job_from, laid_over, limits_from, subtable
from costguard.core.money import Money, Rate
from costguard.core.offer import Selection
from costguard.core.placement import Hardware
from costguard.core.quote import OVER, Option, Quote, Rental, shown
from costguard.data import MARKET, Facts
from costguard.errors import CostguardError, InputError, NoAnswerError, UnknownNameError
from costguard.ledger.market import Market
from costguard.settings import read_settings, read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A document to print, and, where the answer is no, the refusal that ends the command after it."""

    document: Document
    warnings: tuple[str, ...] = ()
    refusal: CostguardError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What a person stated, from a file and flags: the table, and the names in it that had to be read."""

    table: Table
    folder: Path
    notes: tuple[str, ...]


def quote(
    *,
    flags: Table,
    job_file: str | None = None,
    on: str | None = None,
    count: float | None = None,
    hours: float | None = None,
    top: float | None = None,
    sort: str = "usd",
    market: str | None = None,
    explain: bool = False,
    config: str | None = None,
) -> Answer:
    """`costguard quote`: a job, or the plain question of `hours` on `count` GPUs."""
    from costguard.core.documents.quote import quote_document
    from costguard.core.quote import SORTS
    from costguard.flows import quote as flow

    checks.one_of(sort, SORTS, "--sort")
    rows = None if top is None else checks.whole(top, "--top")
    facts = Facts()
    stated = _stated(flags, job_file, facts)
    hardware, notes = _hardware(on, facts)
    asked = _rental(stated, count, hours) if hours is not None else _job(stated, facts)
    counts = None if count is None else (checks.whole(count, "--count"),)
    with Market(_market_file(market, config)) as source:
        _check_providers(asked.limits, source)
        answer = flow.quote(asked, market=source, facts=facts, on=hardware, sort=sort, counts=counts)
    answer = replace(answer, warnings=(*answer.warnings, *stated.notes, *notes))
    visible = shown(answer.options, rows)
    plans = facts.subscriptions() if isinstance(asked, Job) else ()
    document = quote_document(answer, visible, today=_today(), plans=plans, explain=_explained(visible) if explain else ())
    return Answer(document=document, warnings=answer.warnings, refusal=_refusal(answer))


def size(*, flags: Table, job_file: str | None = None, on: str | None = None, explain: bool = False) -> Answer:
    """`costguard size`: memory only."""
    from costguard.core.documents.explain import footprint_tables
    from costguard.core.documents.size import size_document
    from costguard.flows.size import size as flow

    facts = Facts()
    stated = _stated(flags, job_file, facts)
    hardware, notes = _hardware(on, facts)
    answer = flow(_job(stated, facts), facts=facts, on=hardware)
    answer = replace(answer, warnings=(*answer.warnings, *stated.notes, *notes))
    document = size_document(answer, explain=footprint_tables(answer.footprint) if explain else ())
    refusal = None
    if answer.fits is False:
        helpful = [e.lever.change for e in answer.levers if e.fits]
        hint = f"would fit with: {'; or '.join(helpful[:3])}" if helpful else "no single change makes it fit: use more GPUs"
        refusal = NoAnswerError("the job does not fit on the stated hardware", hint=hint)
    return Answer(document=document, warnings=answer.warnings, refusal=refusal)


def offers(
    *,
    flags: Table,
    count: float | None = None,
    sort: str = "usd_per_hour",
    top: float = 50,
    market: str | None = None,
    config: str | None = None,
) -> Answer:
    """`costguard offers`: the market, filtered."""
    from costguard.core.documents.offers import offers_document

    facts = Facts()
    stated = _stated(flags, None, facts)
    limits = limits_from(subtable(stated.table, "limits"))
    counts = None if count is None else (checks.whole(count, "--count"),)
    selection = Selection(
        providers=limits.providers, regions=limits.regions, tiers=limits.tiers, gpus=limits.gpus, gpu_counts=counts
    )
    most = checks.whole(top, "--top", least=0)
    with Market(_market_file(market, config)) as source:
        _check_providers(limits, source)
        found = tuple(source.offers(selection, sort, most or None))
        facts_of = source.described()
    document = offers_document(found, facts_of, today=_today(), warnings=stated.notes)
    refusal = None if found else NoAnswerError("no offer matches", hint="leave out a filter; costguard offers lists all")
    return Answer(document=document, warnings=stated.notes, refusal=refusal)


def breakeven(
    *,
    gpu: str | None = None,
    count: float = 1,
    price: str | None = None,
    rate: str | None = None,
    power_w: float | None = None,
    usd_per_kwh: str | None = None,
    resale: str | None = None,
    hours_week: float | None = None,
    market: str | None = None,
    config: str | None = None,
) -> Answer:
    """`costguard breakeven`: buy or rent?"""
    from costguard.core.documents.breakeven import breakeven_document
    from costguard.flows.breakeven import breakeven as flow

    facts = Facts()
    found = GpuNames(facts.gpus()).resolve(gpu, field="--gpu") if gpu else None
    with Market(_market_file(market, config)) as source:
        answer = flow(
            gpu=facts.gpus()[found.canonical] if found else None,
            count=checks.whole(count, "--count", most=100_000),
            price=None if price is None else Money.parse(price, field="--price"),
            rate=None if rate is None else Rate.parse(rate, field="--rate"),
            power_w=power_w,
            usd_per_kwh=usd_per_kwh,
            resale=None if resale is None else Money.parse(resale, field="--resale"),
            hours_week=hours_week,
            market=source,
        )
    notes = (f"{gpu} was taken as {found.canonical}",) if found and found.taken_as_short else ()
    answer = replace(answer, warnings=(*answer.warnings, *notes))
    refusal = (
        NoAnswerError("owning never pays back at this rent", hint="\n".join(answer.plain.explain))
        if answer.full.never
        else None
    )
    return Answer(document=breakeven_document(answer), warnings=answer.warnings, refusal=refusal)


def _stated(flags: Table, job_file: str | None, facts: Facts) -> Stated:
    """Flags over the job file, with every GPU name made canonical."""
    path = Path(job_file).expanduser() if job_file else None
    table = laid_over(read_table(path), flags) if path else dict(flags)
    limits = dict(subtable(table, "limits"))
    notes: tuple[str, ...] = ()
    named = limits_from({"gpus": limits.get("gpus")}).gpus
    if named is not None:
        names = GpuNames(facts.gpus())
        resolved = [(given, names.resolve(given, field="limits.gpus")) for given in named]
        notes = tuple(f"{given} was taken as {r.canonical}" for given, r in resolved if r.taken_as_short)
        table = laid_over(table, {"limits": {"gpus": tuple(r.canonical for _, r in resolved)}})
    return Stated(table=table, folder=path.parent if path else Path(), notes=notes)


def _job(stated: Stated, facts: Facts) -> Job:
    table = stated.table
    given = [k for k in ("model", "path", "architecture") if k in table]
    if len(given) != 1:
        what = "no model was given" if not given else f"{' and '.join(given)} are given at once"
        raise InputError(
            what, field="model", hint="name one shipped model (--model llama-3.1-8b), one path, or one [architecture] table"
        )
    return job_from(table, _architecture(table, stated.folder, facts))


def _architecture(table: Table, folder: Path, facts: Facts) -> Architecture:
    """The model by shipped name, by a config.json, or by its numbers."""
    if "architecture" in table:
        from costguard.core.architecture_table import architecture_from_table

        return architecture_from_table(subtable(table, "architecture"))
    key = "path" if "path" in table else "model"
    name = table[key]
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"must be a name or a path, not {checks.described(name)}", field=key, hint="write llama-3.1-8b")
    path = Path(name).expanduser()
    if key == "path" or name.endswith(".json") or name.startswith((".", "/", "~")):
        from costguard.core.huggingface import architecture_from_config

        file = path if path.is_absolute() else folder / path
        return architecture_from_config(read_table(file), name=file.parent.name or file.stem)
    return facts.architecture(name)


def _rental(stated: Stated, count: float | None, hours: float | None) -> Rental:
    limits = limits_from(subtable(stated.table, "limits"))
    unsuited = [k for k in stated.table if k not in ("limits", "disk_gb")]
    if unsuited:
        raise InputError(
            f"is worked out from tokens where a job is given ('{unsuited[0]}')",
            field="--hours",
            hint="leave out --hours, or ask plainly: --gpu H100 --count 8 --hours 12",
        )
    if limits.gpus is None or len(limits.gpus) != 1:
        raise InputError("must name one GPU beside --hours", field="--gpu", hint="write --gpu H100 --count 8 --hours 12")
    return Rental(
        gpu=limits.gpus[0],
        gpu_count=checks.whole(1 if count is None else count, "--count", most=100_000),
        hours=checks.number(hours, "--hours", least=1e-3, most=1e6),
        disk_gb=checks.whole(stated.table.get("disk_gb", 0), "disk_gb", least=0),
        limits=limits,
    )


def _hardware(on: str | None, facts: Facts) -> tuple[Hardware | None, tuple[str, ...]]:
    """`GPU:COUNT[xNODES]` read, and a note where a short name was completed."""
    if on is None:
        return None, ()
    name, _, counts = on.partition(":")
    gpu_count, _, nodes = counts.partition("x")
    numbers = [text or "1" for text in (gpu_count, nodes)]
    if not all(n.isascii() and n.isdigit() for n in numbers):
        raise InputError(f"is not GPU:COUNT[xNODES]: {checks.described(on)}", field="--on", hint="write H100:8, or H100:8x4")
    found = GpuNames(facts.gpus()).resolve(name.strip(), field="--on")
    gpu: Gpu = facts.gpus()[found.canonical]
    notes = (f"{name} was taken as {found.canonical}",) if found.taken_as_short else ()
    gpu_count_, nodes_ = (checks.whole(int(n), "--on", most=1_000_000) for n in numbers)
    return Hardware(gpu=gpu, gpu_count=gpu_count_, nodes=nodes_), notes


def _market_file(stated: str | None, config: str | None) -> Path:
    chosen = stated or read_settings(config).quote.market
    return Path(chosen).expanduser() if chosen else MARKET


def _check_providers(limits: Limits, market: Market) -> None:
    """A provider that the market does not know is a slip of the pen, not a limit."""
    if limits.providers:
        known = market.providers()
        for name in limits.providers:
            if name not in known:
                near = checks.nearest_names(name, known)
                raise UnknownNameError(
                    "provider", name, field="limits.providers", nearest=near, hint=f"known: {', '.join(known)}"
                )


def _refusal(answer: Quote) -> NoAnswerError | None:
    """Why there is no option; None where there is one."""
    if answer.options:
        return None
    over = sum(r.reason.startswith(OVER) for r in answer.refused)
    if over:
        return NoAnswerError(f"all {over} options that fit are over the cap", hint="; ".join(answer.advice) or None)
    if not answer.refused:
        return NoAnswerError("no offer matches", hint="leave out a filter; costguard offers lists the market")
    advice = "; ".join(answer.advice[:2]) or "leave out a filter, or state more GPUs"
    return NoAnswerError(f"nothing fits: {len(answer.refused)} refused", hint=advice)


def _explained(options: tuple[Option, ...]) -> tuple[TableView, ...]:
    from costguard.core.documents.explain import option_tables

    return option_tables(options[0]) if options else ()


def _today() -> date:
    return datetime.now(UTC).date()
