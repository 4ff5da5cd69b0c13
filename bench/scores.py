"""How far predictions lie from what was measured. The only module here that reads a measured column."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bench.cases import GIGA, Case, card_bytes, faketensor_case, memory_case
from bench.predictions import in_its_metric, sized
from bench.published import Row
from costguard.sizing.memory.footprint import Footprint
from scripts.fit_efficiency import quantile

A = TypeVar("A")
B = TypeVar("B")
FAKE = "fake tensors"
UNDER = -0.1
"""Predicting this much too little memory is a crash after paid minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One row: `found` against `measured`, in the unit of its table. `low`, `high`: the interval, where there is one."""

    id: str
    source: str
    found: float
    measured: float
    low: float | None = None
    high: float | None = None
    enough: bool = True
    cause: str = ""

    @property
    def error(self) -> float:
        """Relative error; above 0 is too much."""
        return self.found / self.measured - 1

    @property
    def inside(self) -> bool | None:
        """Whether the interval holds what was measured; None where there is none."""
        return None if self.low is None or self.high is None else self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a job fits a card: what was said and what happened. `gb` is what was said to be needed."""

    id: str
    gb: float
    card_gb: float
    ran: bool

    @property
    def right(self) -> bool:
        """Whether it was said to fit exactly where it ran."""
        return (self.gb <= self.card_gb) == self.ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a table says of many rows; shares are 0..1, `covered` None where nothing has an interval."""

    rows: int
    median: float
    p90: float
    within: float
    under: float
    covered: float | None


def score(scored: Sequence[Scored]) -> Score | None:
    """Median, p90 and shares; None of no rows."""
    if not scored:
        return None
    errors = [s.error for s in scored]
    absolute = [abs(e) for e in errors]
    inside = [s.inside for s in scored if s.inside is not None]
    return Score(
        rows=len(scored),
        median=statistics.median(absolute),
        p90=quantile(absolute, 0.9),
        within=sum(e <= 0.25 for e in absolute) / len(scored),
        under=sum(e < UNDER for e in errors) / len(scored),
        covered=sum(inside) / len(inside) if inside else None,
    )


def worst(scored: Iterable[Scored], count: int = 10) -> list[Scored]:
    """The rows that are furthest off."""
    return sorted(scored, key=lambda s: -abs(s.error))[:count]


def memory_scored(rows: Iterable[Row], say: Callable[[Case], float | None] | None = None) -> list[Scored]:
    """Rows with a figure (those marked `n` tell nothing of a formula), by costguard, or by the formula `say` in bytes."""
    found = []
    for row in rows:
        measured, usable = number(row, "reported_peak_gb"), row.get("usable_for_formula", "y") or "y"
        case = attempted(memory_case, row) if measured and usable != "n" else None
        if case is None or measured is None:
            continue
        ours = attempted(sized, case) if say is None else None
        said = say(case) if say else ours and in_its_metric(ours, case)
        if said:
            remark = "" if usable == "y" else f"states too little: {row.get('note', '')}"
            cause = remark or (largest_terms(ours) if ours else "")
            source = row.get("source_group", "")
            found.append(
                Scored(id=row["id"], source=source, found=said / GIGA, measured=measured, enough=usable == "y", cause=cause)
            )
    return found


def largest_terms(found: Footprint) -> str:
    """What a wrong peak is mostly made of, and when."""
    terms = sorted(found.at_peak.items(), key=lambda term: -term[1])[:2]
    return f"{found.peak_phase}: " + ", ".join(f"{name} {size / GIGA:.1f} GB" for name, size in terms)


def decisions(rows: Iterable[Row]) -> list[Decision]:
    """Fit decisions: every out-of-memory row, and every row that ran on a card it names."""
    found = []
    for row in rows:
        ran = number(row, "reported_peak_gb") is not None
        if not ran and row.get("reported_value", "").upper() != "OOM":
            continue
        case, card = attempted(memory_case, row), attempted(card_bytes, row)
        needed = attempted(sized, case) if case and card and not row.get("metric", "").startswith("capacity") else None
        if needed is not None and card:
            found.append(Decision(id=row.get("id", ""), gb=needed.reserved / GIGA, card_gb=card / GIGA, ran=ran))
    return found


def faketensor_scored(rows: Iterable[Row], say: Callable[[Case], float | None] | None = None) -> list[Scored]:
    """Rows that were measured, by costguard or by the formula `say`; GB."""
    found = []
    for row in rows:
        measured, case = number(row, "peak_bytes"), attempted(faketensor_case, row)
        if not measured or case is None or row.get("error"):
            continue
        ours = attempted(sized, case) if say is None else None
        said = say(case) if say else ours and ours.peak
        if said:
            cause = largest_terms(ours) if ours else ""
            found.append(Scored(id=row["id"], source=FAKE, found=said / GIGA, measured=measured / GIGA, cause=cause))
    return found


def attempted(read: Callable[[A], B], value: A) -> B | None:
    """`read(value)`, or None where it cannot be read: `bench.predictions` tells why."""
    try:
        return read(value)
    except Exception:  # noqa: BLE001 - the reason is told once, beside the prediction
        return None


def number(row: Row, column: str) -> float | None:
    """A measured cell; None where it is blank or no number."""
    try:
        return float(row.get(column, ""))
    except ValueError:
        return None
