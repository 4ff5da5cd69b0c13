"""A quote as a document: `costguard.quote/1`, one record per option, and the ranked table.

`--explain` adds tables with every term of an answer, its formula and its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from costguard.quoting.offer import Subscription
from costguard.quoting.price_drift import shorten_age
from costguard.quoting.quote import (
    Quote,
    QuoteOption,
    QuoteRefusal,
    Rental,
)
from costguard.quoting.storage import KEPT_CHECKPOINTS
from costguard.sizing.memory.footprint import Footprint
from costguard.sizing.speed.step_time import describe_component
from costguard.values.gpu import GIB
from costguard.values.text_format import format_amount as money
from costguard.values.text_format import is_wide
from costguard.views.columns import WORDS, ColumnFit
from costguard.views.document import DOUBTFUL, PLAIN, Column, Document, TableView, build_record, build_table
from costguard.views.job import (
    build_interval_data,
    build_job_data,
    build_memory_data,
    build_parallel_data,
    build_peak_data,
    format_amount,
    format_gpus,
    format_hours,
    format_hours_range,
    format_share,
    format_speed,
    format_split,
    round_digits,
)
from costguard.views.quote_notes import find_plan_option, list_choices, list_notes, list_plan_tables, list_stale_warnings

if TYPE_CHECKING:  # types and no more: a quote without a template does not pay for importing it
    from costguard.quoting.checkpoints import CheckpointPlan
    from costguard.quoting.template import TemplateComparison
    from costguard.sizing.splits import SplitOutcome

SCHEMA = "costguard.quote/1"
WHOLE_FROM = 10
"""Dollars from which the ends of an interval need no cents where room is short."""


def build_quote_document(
    quote: Quote,
    shown: tuple[QuoteOption, ...],
    *,
    plans: tuple[Subscription, ...] = (),
    explain: tuple[TableView, ...] = (),
    compared: TemplateComparison | None = None,
    words: Mapping[int, str] | None = None,
    brief: bool = False,
) -> Document:
    """Return the document for the options `shown` of `quote`.

    `compared`: the claim of a template's source and costguard's figures. `words`: what each of a few advised options is chosen
    for, by rank; None: all that was asked for is shown. `brief`: one line of caveats instead of a line for each.
    """
    options, template_parts = [_build_option_data(o) for o in shown], _build_template_parts(compared)
    data = {
        "schema": SCHEMA,
        "job": build_job_data(quote.asked) if not isinstance(quote.asked, Rental) else _build_rental_data(quote.asked),
        "options": options,
        "refused": [_build_refused_data(r) for r in quote.refused],
        "warnings": [*quote.warnings, *list_stale_warnings(shown)],
        "subscriptions": [_build_plan_data(p, quote) for p in plans],
        "template": template_parts[0],
    }
    return Document(
        data=data,
        records=tuple(map(_build_option_record, shown, options)),
        lead=(*list_choices(quote), _format_title(quote)),
        tables=(
            build_option_table(quote, shown, words),
            *template_parts[1],
            *explain,
            *(list_plan_tables(plans, quote) if words is None else ()),
        ),
        notes=(*template_parts[2], *list_notes(quote, shown, brief=brief, plans=plans if words is not None else ())),
    )


def show_named_plans(document: Document, plans: tuple[Subscription, ...], quote: Quote, *, alone: bool) -> Document:
    """Return the document of `quote` with the subscriptions `plans`, which were named. `alone`: and without machines."""
    tables = list_plan_tables(plans, quote)
    if not alone:
        shown = tuple(table for table in document.tables if table not in tables)
        return replace(document, tables=(*shown, *tables))
    hours = f"Hours are those of the fastest machine with this GPU, of any provider; plans as of {plans[0].observed_on}."
    return replace(document, lead=(_format_title(quote),), tables=tables, notes=(hours,) if tables else (), records=())


def _build_template_parts(
    compared: TemplateComparison | None,
) -> tuple[dict[str, object] | None, tuple[TableView, ...], tuple[str, ...]]:
    """Return data, tables and notes of the comparison with a template's source; empty if no template was requested."""
    if compared is None:
        return None, (), ()
    from costguard.views.template import build_comparison_data, list_comparison_notes, list_comparison_tables

    return build_comparison_data(compared), list_comparison_tables(compared), list_comparison_notes(compared)


def _format_title(quote: Quote) -> str:
    job = quote.asked
    if isinstance(job, Rental):
        kinds, nodes = " or ".join(job.limits.gpus or (job.gpu,)), f" on {job.nodes} nodes" * (job.nodes > 1)
        return f"{kinds} x{job.gpu_count}{nodes} for {job.hours:g} h"
    r = job.recipe
    method = f"{r.method} {job.beside.algorithm}" if job.beside else r.method
    length = [f"seq {r.seq_len}"] if job.architecture.sample_unit is None else []
    how = [method, r.precision, *([r.quant] if r.quant != "none" else []), *length, f"batch {r.micro_batch}"]
    amount = f", {format_amount(job)}" if job.tokens else ""
    if job.serving:
        from costguard.views.serving import format_load

        amount, how = f", {format_load(job.serving)}", how[:-2]
    return f"{job.architecture.name} ({job.architecture.parameters / 1e9:.2f}B), {', '.join(how)}{amount}"


QUOTE_FITS: Mapping[str, ColumnFit] = {
    "#": ColumnFit(rank=8),
    "region": ColumnFit(rank=9),
    "split": ColumnFit(rank=7),
    "needs GiB": ColumnFit(rank=6),
    "$/h": ColumnFit(rank=3),
    "price": ColumnFit(rank=2, heading="age"),
    "note": ColumnFit(rank=1, least=9, how=WORDS),
    "cost $ (80 % interval)": ColumnFit(heading="cost $"),
    "tier": ColumnFit(),
    "provider": ColumnFit(),
    "GPU": ColumnFit(least=14),
}


def build_option_table(quote: Quote, shown: tuple[QuoteOption, ...], words: Mapping[int, str] | None) -> TableView:
    """Return a row for each of `shown`; `words` as in `build_quote_document`."""
    ranks = {id(o): n for n, o in enumerate(quote.options, 1)}
    marks = {id(o): o.marks if words is None else (words.get(ranks[id(o)], ""),) for o in shown}
    notes = {id(o): ", ".join(filter(None, (*marks[id(o)], "may not fit" * o.is_doubtful))) for o in shown}
    rank: Column[QuoteOption] = Column("", "#>", lambda o: ranks[id(o)])
    note: Column[QuoteOption] = Column("", "note", lambda o: notes[id(o)])
    if _is_server(quote):
        from costguard.views.serving import build_serving_table

        return build_serving_table(shown, rank, note)
    timed = any(o.duration for o in shown)
    memory: tuple[Column[QuoteOption], ...] = (Column("", "split", _format_split), Column("", "needs GiB>", _format_need))
    columns = (
        rank,
        Column("", "provider", lambda o: o.offer.provider if o.offer else None),
        Column("", "region", lambda o: o.offer.region if o.offer else None),
        Column("", "GPU", format_gpus),
        Column("", "tier", lambda o: o.offer.tier if o.offer else None),
        Column("", "$/h>", _format_rate),
        *(() if isinstance(quote.asked, Rental) else memory),
        Column("", "hours", lambda o: _format_hours(o, timed=timed)),
        Column("", "cost $ (80 % interval)>", _format_money),
        Column("", "price", _format_price_age),
        note,
    )
    short = {
        "$/h": tuple(o.rate.format(2) if o.rate else "unknown" for o in shown),
        "hours": tuple(_format_short_hours(o, timed=timed) for o in shown),
        "cost $ (80 % interval)": tuple(_format_short_money(o) for o in shown),
        "price": tuple(shorten_age(_format_price_age(o)) for o in shown),
    }
    tones = tuple(DOUBTFUL if o.price and not o.price.fresh else PLAIN for o in shown)
    return replace(build_table(columns, shown), fits=QUOTE_FITS, short=short, tones=tones)


def _is_server(quote: Quote) -> bool:
    return not isinstance(quote.asked, Rental) and quote.asked.serving is not None


def _format_short_hours(o: QuoteOption, *, timed: bool) -> str:
    """Return both ends in hours: `9.2-15.1`."""
    if o.hours is None or not timed:
        return format_hours_range(o.hours) if o.hours is None else format_hours(o.hours.expected)
    low, high = (f"{end:.1f}" if end >= 1 else f"{end:.2f}" for end in (o.hours.low, o.hours.high))
    return low if low == high else f"{low}-{high}"


def _format_short_money(o: QuoteOption) -> str:
    """Return the amount with its interval in whole dollars, where that says enough: `11.47 (9-15)`."""
    if o.usd is None or o.usd.low == o.usd.high:
        return _format_money(o)
    low, high = float(o.usd.low.format()), float(o.usd.high.format())
    ends = f"{low:,.0f}-{high:,.0f}" if low >= WHOLE_FROM else f"{low:.1f}-{high:,.1f}"
    return f"{money(o.usd.expected)} ({ends})"


def _format_split(o: QuoteOption) -> str:
    """Return how the job is split, and the sequences of one pass where it trains: `fsdp b16`."""
    if o.placement is None:
        return "-"
    split, recipe = format_split(o.placement.parallel), o.placement.recipe
    return f"{split.removeprefix('-')} b{recipe.micro_batch}".strip() if recipe.trains else split


def _format_need(o: QuoteOption) -> str:
    return f"{o.placement.needs_gib:.1f}/{o.gpu.memory_gib:.0f}" if o.placement else "-"


def _format_hours(o: QuoteOption, *, timed: bool) -> str:
    return format_hours_range(o.hours) if timed or o.hours is None else format_hours(o.hours.expected)


def _format_rate(o: QuoteOption) -> str:
    """Return the rate as it was seen, with what it is likely to be today where that may differ: `11.56 (4-28)`."""
    if o.rate is None:
        return "unknown"
    if o.price is None or o.price.is_exact:
        return o.rate.format(2)
    price = o.price.multiply(o.nodes)
    low, high = (end.nano_per_hour / 1e9 for end in (price.low, price.high))
    places = 0 if high >= WHOLE_FROM else 1 if high >= 1 else 2
    return f"{o.rate.format(2)} ({low:.{places}f}-{high:.{places}f})"


def _format_money(o: QuoteOption) -> str:
    if o.usd is None:
        return "unknown"
    if o.usd.low == o.usd.high or not is_wide(o.usd):
        return money(o.usd.expected)
    return f"{money(o.usd.expected)} ({money(o.usd.low)} - {money(o.usd.high)})"


def _format_price_age(o: QuoteOption) -> str:
    return o.price.format_age() if o.price else "unknown"


def _build_option_data(o: QuoteOption) -> dict[str, object]:
    place, offer, price = o.placement, o.offer, o.price
    return {
        "provider": offer.provider if offer else None,
        "region": offer.region if offer else None,
        "instance_type": offer.instance_type if offer else None,
        "gpu": o.gpu.name,
        "gpu_count": o.gpu_count,
        "nodes": o.nodes,
        "tier": offer.tier if offer else None,
        "usd_per_hour": o.rate.format() if o.rate else None,
        "price": {
            "observed_at": offer.observed_on.isoformat() if offer else None,
            "source": offer.source if offer else None,
            "stale": not price.fresh if price else None,
            "age_days": price.age_days if price else None,
            "drift": offer.drift_class if offer else None,
            "usd_per_hour_today": _build_price_data(o),
        },
        "memory_gib": build_memory_data(place.footprint) if place else None,
        "peak_gib": build_peak_data(place.footprint) if place else None,
        "gpu_memory_gib": round(o.gpu.memory_gib, 3),
        "fits": place.fits if place else None,
        "fit": place.fit if place else None,
        "parallel": build_parallel_data(place.parallel) if place else None,
        "micro_batch": place.recipe.micro_batch if place else None,
        "tokens_per_s_per_gpu": build_interval_data(o.throughput.tokens_per_s_per_gpu) if o.throughput else None,
        **_build_unit_speed(o),
        "hours": build_interval_data(o.hours),
        "usd": o.usd.format_ends() if o.usd else None,
        "storage_usd": o.storage_usd.format_ends(4) if o.storage_usd else None,
        "host_gib": None if o.host_gib is None else round(o.host_gib, 1),
        "disk_gb": o.disk_gb,
        "checkpoints": _build_checkpoint_data(o.checkpoints) if o.checkpoints else None,
        "startup_hours": round_digits(o.duration.startup_hours.expected, 3) if o.duration else None,
        "marks": list(o.marks),
        "notes": list(o.notes),
    } | _build_serving_part(o)


def _build_checkpoint_data(plan: CheckpointPlan) -> dict[str, object]:
    return {
        "gb": round(plan.gigabytes, 3),
        "write_hours": round_digits(plan.write_hours, 3),
        "best_interval_hours": round_digits(plan.interval_hours, 3),
        "young_interval_hours": round_digits(plan.young_hours, 3),
        "lost_hours": round_digits(plan.lost_hours, 3),
        "lost_usd": plan.usd.format(4),
        "stated_interval_hours": plan.stated_hours,
        "stated_lost_hours": round_digits(plan.stated_lost_hours, 3),
        "stated_lost_usd": plan.stated_usd.format(4),
        "store": plan.store.store if plan.store else None,
        "store_usd": plan.store_usd.format(4) if plan.store_usd else None,
    }


def _format_split_need(one: SplitOutcome) -> str:
    return f"{one.needs_gib.expected:.1f} ({one.needs_gib.low:.0f}-{one.needs_gib.high:.0f})" if one.needs_gib else "-"


def _format_split_speed(one: SplitOutcome) -> str:
    return format_speed(one.tokens_per_s.expected) if one.tokens_per_s else "-"


SPLIT_COLUMNS: tuple[Column[SplitOutcome], ...] = (
    Column("split", "split", lambda one: one.name),
    Column("reserved_gib", "needs GiB a GPU>", lambda one: build_interval_data(one.needs_gib), _format_split_need),
    Column("fit", "fits", lambda one: one.placement.fit if one.placement else "no"),
    Column("micro_batch", "batch>", lambda one: one.placement.recipe.micro_batch if one.placement else None),
    Column("tokens_per_s", "tokens/s of all>", lambda one: build_interval_data(one.tokens_per_s), _format_split_speed),
    Column("hours", "hours", lambda one: build_interval_data(one.hours), lambda one: format_hours_range(one.hours)),
    Column("reason", "why not", lambda one: one.reason or None),
)


def add_splits(document: Document, outcomes: tuple[SplitOutcome, ...]) -> Document:
    """Return the document of a quote with a row for each way to split its job over the same GPUs."""
    table = build_table(SPLIT_COLUMNS, outcomes, title="The same GPUs, split in other ways")
    data = {**document.data, "splits": [build_record(SPLIT_COLUMNS, one) for one in outcomes]}
    return replace(document, data=data, tables=(*document.tables, table))


def _list_checkpoint_tables(plan: CheckpointPlan | None) -> tuple[TableView, ...]:
    """Return the table of the checkpoints of a run that may be interrupted; empty for another run."""
    if plan is None:
        return ()
    from costguard.quoting.checkpoints import WRITE_GB_S

    best, as_stated = format_hours(plan.interval_hours), format_hours(plan.stated_hours)
    rows = [
        ("one checkpoint", f"{plan.gigabytes:.2f} GB", "trained weights in 16 bits, fp32 master and two moments"),
        ("writing it", format_hours(plan.write_hours), f"assumed {WRITE_GB_S:g} GB/s a machine, and the run waits"),
        ("best interval", best, f"Daly 2006, not above the run's own hours; Young 1974: {format_hours(plan.young_hours)}"),
        (
            f"lost at {best}",
            f"${plan.usd.format(4)}",
            f"{format_hours(plan.lost_hours)} of writing, restarts and repeated work",
        ),
        (
            f"lost at {as_stated}",
            f"${plan.stated_usd.format(4)}",
            f"{format_hours(plan.stated_lost_hours)}: checkpoint_every_hours",
        ),
    ]
    if plan.store and plan.store_usd:
        how = f"{plan.store.store}, the newest {KEPT_CHECKPOINTS} for the run, not in the cost; {plan.store.source}"
        rows.append(("keeping them", f"${plan.store_usd.format(4)}", how))
    return (TableView(title="Checkpoints of an interruptible run", columns=("part", "value>", "how"), rows=tuple(rows)),)


def _build_unit_speed(o: QuoteOption) -> dict[str, object]:
    """Return the speed in images, seconds of sound or frames; nothing where tokens are counted."""
    if o.throughput is None or o.throughput.unit == "tokens":
        return {}
    return {f"{o.throughput.unit}_per_s_per_gpu": build_interval_data(o.throughput.units_per_s_per_gpu)}


def _build_serving_part(o: QuoteOption) -> dict[str, object]:
    """Return the plan of a server; nothing for other jobs."""
    if o.serving is None:
        return {}
    from costguard.views.serving import build_serving_data

    return {"serving": build_serving_data(o)}


def _build_price_data(o: QuoteOption) -> dict[str, str] | None:
    """Return what the rate of all nodes is likely to be today."""
    if o.price is None:
        return None
    price = o.price.multiply(o.nodes)
    return {"low": price.low.format(), "expected": price.expected.format(), "high": price.high.format()}


def _build_option_record(o: QuoteOption, data: Mapping[str, object]) -> dict[str, object]:
    """Return the option, whose data are `data`, as one flat row."""
    flat = {k: data[k] for k in ("provider", "region", "instance_type", "gpu", "gpu_count", "nodes", "tier", "usd_per_hour")}
    for name in ("hours", "usd"):
        three = data[name] if isinstance(data[name], dict) else {}
        flat |= {f"{name}_{end}": three.get(end) for end in ("low", "expected", "high")}  # type: ignore[attr-defined]  # a dict just seen
    place = o.placement
    return flat | {
        "peak_gib": round(place.footprint.peak / 2**30, 3) if place else None,
        "reserved_gib": round(place.needs_gib, 3) if place else None,
        "gpu_memory_gib": data["gpu_memory_gib"],
        "price_observed_at": o.offer.observed_on.isoformat() if o.offer else None,
        "price_stale": not o.price.fresh if o.price else None,
        "price_source": o.offer.source if o.offer else None,
        "marks": " ".join(o.marks),
    }


def _build_refused_data(r: QuoteRefusal) -> dict[str, object]:
    who = {"offer": r.offer, "gpu": r.gpu} if r.offer else {"gpu": r.gpu}
    return who | {
        "gpu_count": r.gpu_count,
        "reason": r.reason,
        "needs_gib": None if r.needs_gib is None else round(r.needs_gib, 3),
        "has_gib": None if r.has_gib is None else round(r.has_gib, 3),
    }


def _build_rental_data(rental: Rental) -> dict[str, object]:
    data = {"gpu": rental.gpu, "gpu_count": rental.gpu_count, "nodes": rental.nodes, "hours": rental.hours}
    return {key: value for key, value in data.items() if key != "nodes" or value != 1}


def _build_plan_data(plan: Subscription, quote: Quote) -> dict[str, object]:
    option = find_plan_option(plan, quote)
    return {
        "provider": plan.provider,
        "plan": plan.plan,
        "gpu": plan.gpu,
        "usd": plan.price.format(),
        "units": plan.units,
        "units_per_hour": build_interval_data(plan.units_per_hour),
        "units_needed": build_interval_data(plan.compute_units(option.hours)) if option and option.hours else None,
        "session_hours": plan.session_hours,
        "observed_at": plan.observed_on,
        "source": plan.source,
    }


def list_footprint_tables(footprint: Footprint) -> tuple[TableView, ...]:
    """Return the memory table, one row per term."""
    rows = tuple((e.term, f"{e.bytes / GIB:.3f}", e.formula, e.source) for e in footprint.explain())
    return (TableView(title="Memory, term by term", columns=("term", "GiB>", "formula", "source"), rows=rows),)


def list_option_tables(option: QuoteOption) -> tuple[TableView, ...]:
    """Return the tables of memory, speed, hours and cost of one option."""
    memory = list_footprint_tables(option.footprint) if option.footprint else ()
    if option.serving:
        from costguard.views.serving import list_serving_tables

        return (*memory, *list_serving_tables(option.serving), *_list_money_tables(option))
    time = (*_list_speed_tables(option), *_list_hours_tables(option), *_list_checkpoint_tables(option.checkpoints))
    return (*memory, *time, *_list_money_tables(option))


def _list_speed_tables(option: QuoteOption) -> tuple[TableView, ...]:
    if option.throughput is None:
        return ()
    speed = option.throughput
    rows = [("arithmetic", "", line) for line in speed.explain]
    rows += [("factor", f"{factor:.3f}", describe_component(name)) for name, factor in speed.reasons]
    t, unit = speed.units_per_s_per_gpu, speed.unit.replace("_", " ")
    ends = f"{format_speed(t.low)} to {format_speed(t.high)}"
    rows.append(("result", format_speed(t.expected), f"{unit}/s per GPU, {ends}; {format_share(speed.efficiency)} of peak"))
    return (TableView(title=f"Speed on {option.gpu.name}", columns=("kind", "value>", "what"), rows=tuple(rows)),)


def _list_hours_tables(option: QuoteOption) -> tuple[TableView, ...]:
    if option.duration is None:
        return ()
    rows = tuple(
        (name, format_hours(i.expected), f"{format_hours(i.low)} to {format_hours(i.high)}")
        for name, i in option.duration.parts
    )
    return (TableView(title="Hours, part by part", columns=("part", "expected>", "80 % interval"), rows=rows),)


def _list_money_tables(option: QuoteOption) -> tuple[TableView, ...]:
    if option.rate is None or option.usd is None or option.hours is None:
        return ()
    disk = option.storage_usd
    machines = option.usd.expected - disk.expected if disk else option.usd.expected
    rate = option.price.multiply(option.nodes).expected if option.price else option.rate
    rows = [("machines", machines.format(4), f"{rate.format()} $/h x {option.hours.expected:.3f} h")]
    if rate != option.rate:
        rows.append(("", "", f"expected today; {option.rate.format()} $/h when it was seen"))
    rows += [("disk", disk.expected.format(4), "GB x $ per GB-month x hours / 730")] if disk else []
    rows.append(("sum", option.usd.expected.format(4), ""))
    return (TableView(title="Money", columns=("part", "$>", "how"), rows=tuple(rows)),)
