"""Buy or rent as a document: `costguard.breakeven/1`."""

from __future__ import annotations

from costguard.quoting.breakeven import BreakEven
from costguard.quoting.purchase import PurchaseAnswer
from costguard.views.document import Document, TableView

BREAKEVEN_SCHEMA = "costguard.breakeven/1"


def build_breakeven_document(p: PurchaseAnswer) -> Document:
    """Hours before power and resale, and after them."""
    rows = (("price / rent", p.plain), ("with power and resale", p.full))
    data = {
        "schema": BREAKEVEN_SCHEMA,
        "gpu": p.gpu.name if p.gpu else None,
        "count": p.count,
        "price_usd": p.price.format(),
        "usd_per_hour": p.rent.format(),
        "rented_from": p.rented_as.provider if p.rented_as else None,
        "power_w": p.power_w,
        "usd_per_kwh": p.usd_per_kwh,
        "resale_usd": p.resale.format() if p.resale else None,
        "hours_per_week": p.hours_week,
        "hours": {
            "before_power_and_resale": round(p.plain.plain_hours, 3),
            "with_power_and_resale": _round_hours(p.full.hours),
        },
        "weeks": {"before_power_and_resale": _round_hours(p.plain.weeks), "with_power_and_resale": _round_hours(p.full.weeks)},
        "months": {
            "before_power_and_resale": _round_hours(p.plain.months),
            "with_power_and_resale": _round_hours(p.full.months),
        },
        "warnings": list(p.warnings),
    }
    table = TableView(
        title="",
        columns=("counting", "hours>", "weeks>", "months>", "how"),
        rows=tuple((name, *_build_breakeven_row(b), b.explain[0]) for name, b in rows),
    )
    what = f"{p.gpu.name} x{p.count}" if p.gpu else "the machine"
    after = (
        "never pays back once power is counted" if p.full.never else f"{_format_breakeven_hours(p.full)} with power and resale"
    )
    even = f"{_format_breakeven_hours(p.plain)} before power and resale, {after}"
    return Document(
        data=data,
        records=tuple({"counting": name, "hours": b.hours, "weeks": b.weeks, "months": b.months} for name, b in rows),
        lead=(f"Buying {what} for ${p.price.format()} against ${p.rent.format()} an hour: {even}.",),
        tables=(table,),
        notes=tuple(f"Warning: {w}." for w in p.warnings),
    )


def _format_breakeven_hours(b: BreakEven) -> str:
    return "never" if b.hours is None else f"{b.hours:,.0f} hours"


def _build_breakeven_row(b: BreakEven) -> tuple[str, str, str]:
    return (
        "never" if b.hours is None else f"{b.hours:,.0f}",
        "-" if b.weeks is None else f"{b.weeks:,.1f}",
        "-" if b.months is None else f"{b.months:,.1f}",
    )


def _round_hours(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
