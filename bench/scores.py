"""How far predictions lie from what was measured. The only module here that reads a measured column."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from bench.cases import GIGA, Case, card_bytes, faketensor_case, memory_case, name_gpu
from bench.predictions import in_its_metric, sized
from bench.published import ROWS_OF, Row
from costguard.sizing.memory.footprint import Footprint
from costguard.sizing.memory.interval import PeakSpread
from scripts.conformal import SourceScore, compute_coverage, compute_source_quantile
from scripts.fit_memory_interval import PeakError, compute_spread, find_distance

A = TypeVar("A")
B = TypeVar("B")
FAKE = "fake tensors"
MIN_SOURCES = 2
UNDER = -0.1
"""Predicting this much too little memory is a crash after paid minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One row: `found` against `measured`, in the unit of its table.

    `low`, `high`: the interval, where there is one. `rows_of`: the file in which the row stands.
    """

    id: str
    source: str
    found: float
    measured: float
    low: float | None = None
    high: float | None = None
    enough: bool = True
    cause: str = ""
    rows_of: str = ""

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
    """What a table says of many rows, each source with the same weight or each row.

    Shares are 0..1, `covered` None where nothing has an interval.
    """

    rows: int
    sources: int
    median: float
    p90: float
    within: float
    under: float
    covered: float | None


def score(scored: Sequence[Scored], *, by_row: bool = False) -> Score | None:
    """Median, p90 and shares, each source alike, or each row alike (`by_row`); None of no rows."""
    if not scored:
        return None
    scores = [SourceScore(s.id if by_row else s.source, abs(s.error)) for s in scored]
    names = [s.source for s in scores]  # of what is alike: sources or rows
    inside = [(name, s.inside) for name, s in zip(names, scored, strict=True) if s.inside is not None]
    return Score(
        rows=len(scored),
        sources=len({s.source for s in scored}),
        median=compute_source_quantile(scores, 0.5),
        p90=compute_source_quantile(scores, 0.9),
        within=compute_coverage((name, abs(s.error) <= 0.25) for name, s in zip(names, scored, strict=True)),
        under=compute_coverage((name, s.error < UNDER) for name, s in zip(names, scored, strict=True)),
        covered=compute_coverage(inside) if inside else None,
    )


def worst(scored: Iterable[Scored], count: int = 10) -> list[Scored]:
    """The rows that are furthest off."""
    return sorted(scored, key=lambda s: -abs(s.error))[:count]


def memory_scored(rows: Iterable[Row], say: Callable[[Case], float | None] | None = None) -> list[Scored]:
    """Rows with a figure (those marked `n` tell nothing of a formula), by costguard, or by the formula `say` in bytes.

    costguard's intervals are those that the other sources give.
    """
    found = list(_list_measured_peaks(rows, say))
    errors = [error for _, error in found if error]
    others = {source: [e for e in errors if e.source != source] for source in {e.source for e in errors}}
    spreads = {source: compute_spread(of_others) for source, of_others in others.items()}
    return [_with_interval(s, error, spreads, errors) for s, error in found]


def list_peak_errors(rows: Iterable[Row]) -> list[PeakError]:
    """How far off costguard is of every row with a figure."""
    return [error for _, error in _list_measured_peaks(rows, None) if error]


def _with_interval(
    s: Scored, error: PeakError | None, spreads: Mapping[str, PeakSpread], errors: Sequence[PeakError]
) -> Scored:
    if error is None or len(spreads) < MIN_SOURCES:
        return s
    distance = find_distance(error, errors)
    width = spreads[s.source].compute_half_width(sharded=error.sharded, mixture=error.mixture, distance=distance)
    factor = math.exp(width)
    return replace(s, low=s.found / factor, high=s.found * factor)


def _list_measured_peaks(
    rows: Iterable[Row], say: Callable[[Case], float | None] | None
) -> Iterator[tuple[Scored, PeakError | None]]:
    for row in rows:
        measured, usable = number(row, "reported_peak_gb"), row.get("usable_for_formula", "y") or "y"
        case = attempted(memory_case, row) if measured and usable != "n" else None
        if (
            case is None or measured is None or (say is not None and case.architecture.walk is not None)
        ):  # no formula knows those
            continue
        ours = attempted(sized, case) if say is None else None
        said = say(case) if say else ours and in_its_metric(ours, case)
        if not said:
            continue
        remark = "" if usable == "y" else f"states too little: {row.get('note', '')}"
        one = Scored(
            id=row["id"],
            source=row.get("source_group", ""),
            found=said / GIGA,
            measured=measured,
            enough=usable == "y",
            cause=remark or (largest_terms(ours) if ours else ""),
            rows_of=row.get(ROWS_OF, ""),
        )
        gpu = case.inputs["gpu"]
        yield one, build_error(one, ours, attempted(name_gpu, gpu) or "") if ours else None


def build_error(scored: Scored, footprint: Footprint, gpu: str) -> PeakError:
    """How far off a footprint was, on which GPU ("": not stated), with the classes that widen its interval."""
    return PeakError(
        source=scored.source,
        log=math.log(scored.found / scored.measured),
        sharded=footprint.basis.gpus > 1,
        mixture=footprint.is_mixture,
        kind=footprint.kind,
        gpu=gpu,
    )


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
