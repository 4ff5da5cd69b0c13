"""`--explain`: every term of an answer with its formula and its source, as tables."""

from __future__ import annotations

from costguard.quoting.quote import QuoteOption
from costguard.sizing.memory.footprint import Footprint
from costguard.values.gpu import GIB
from costguard.views.document import TableView
from costguard.views.job import format_hours


def list_footprint_tables(footprint: Footprint) -> tuple[TableView, ...]:
    """Memory, a row a term."""
    rows = tuple((e.term, f"{e.bytes / GIB:.3f}", e.formula, e.source) for e in footprint.explain())
    return (TableView(title="Memory, term by term", columns=("term", "GiB>", "formula", "source"), rows=rows),)


def list_option_tables(option: QuoteOption) -> tuple[TableView, ...]:
    """Memory, speed, hours and money of one option."""
    memory = list_footprint_tables(option.footprint) if option.footprint else ()
    return (*memory, *_list_speed_tables(option), *_list_hours_tables(option), *_list_money_tables(option))


def _list_speed_tables(option: QuoteOption) -> tuple[TableView, ...]:
    if option.throughput is None:
        return ()
    speed = option.throughput
    rows = [("arithmetic", "", line) for line in speed.explain]
    rows += [("factor", f"{factor:.3f}", name) for name, factor in speed.reasons]
    t = speed.tokens_per_s_per_gpu
    rows.append(
        ("result", f"{t.expected:,.0f}", f"tokens/s per GPU, {t.low:,.0f} to {t.high:,.0f}; {speed.efficiency:.0%} of peak")
    )
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
    rows = [("machines", machines.format(4), f"{option.rate.format()} $/h x {option.hours.expected:.3f} h")]
    rows += [("disk", disk.expected.format(4), "GB x $ per GB-month x hours / 730")] if disk else []
    rows.append(("sum", option.usd.expected.format(4), ""))
    return (TableView(title="Money", columns=("part", "$>", "how"), rows=tuple(rows)),)
