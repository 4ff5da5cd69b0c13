"""What costguard says of each row: memory in the row's own metric, speed and hours with intervals, exact bytes of a step."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.cases import GIGA, Case, card_bytes, faketensor_case, memory_case, run_case
from bench.published import FACTS, Row, UnreadableRowError
from costguard.sizing.memory.footprint import Footprint, compute_footprint
from costguard.sizing.speed.duration import compute_duration
from costguard.sizing.speed.efficiency import Efficiency
from costguard.sizing.speed.throughput import compute_throughput
from costguard.values.gpu import GIB, USABLE_SHARE
from costguard.values.interval import Interval
from scripts import published_memory

MEMORY_HEADER = ("id", "predicted_gb", "predicted_gb_low", "predicted_gb_high", "reason")
FAKETENSOR_HEADER = ("id", "peak_bytes", "reason")
SPEED, HOURS = "tokens_per_s_per_gpu", "gpu_hours"
RUNS_HEADER = ("id", SPEED, f"{SPEED}_low", f"{SPEED}_high", HOURS, f"{HOURS}_low", f"{HOURS}_high", "reason")
NO_STARTUP = Interval.exactly(0.0)
"""Published GPU hours count from the first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Speed and GPU hours of a run; `hours` None with the reason why."""

    speed: Interval
    hours: Interval | None
    reason: str = ""


def write(folder: Path, *, memory: list[Row] | None, runs: list[Row] | None, faketensor: list[Row] | None) -> None:
    """One file for each kind of rows given, one line for each row."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, header, rows, predict in (
        ("memory.csv", MEMORY_HEADER, memory, memory_line),
        ("runs.csv", RUNS_HEADER, runs, run_line),
        ("faketensor.csv", FAKETENSOR_HEADER, faketensor, faketensor_line),
    ):
        if rows is not None:
            _write(folder / name, header, [predict(row) for row in rows])


def memory_line(row: Row) -> Row:
    """`predicted_gb` and the ends of its 80 % interval, or why there is none."""
    return _line(row, lambda: _write_ends("predicted_gb", memory_gb(row)))


def faketensor_line(row: Row) -> Row:
    """`peak_bytes`, or why there is none."""
    return _line(row, lambda: {"peak_bytes": str(sized(faketensor_case(row)).peak)})


def run_line(row: Row) -> Row:
    """Speed and hours, or why there are none."""
    return _line(row, lambda: _timed_cells(timed(row, FACTS.get_efficiency())))


def memory_gb(row: Row) -> Interval:
    """GB (1e9 bytes) in the metric and the sense (a GPU, all of them) in which the row reports."""
    case = memory_case(row)
    if case.recipe.trains and not case.inputs["seq_len"] and not published_memory.length_in(case.inputs["note"].lower()):
        raise UnreadableRowError("seq_len is not stated, and nothing tells how long a sequence was")
    found = sized(case)
    figure, peak = in_its_metric(found, case) / GIGA, found.peak_interval
    return Interval(figure * peak.low / peak.expected, figure, figure * peak.high / peak.expected)


def sized(case: Case) -> Footprint:
    """The footprint of a case."""
    return compute_footprint(case.architecture, case.recipe, case.parallel, gpus=case.gpus)


def in_its_metric(found: Footprint, case: Case) -> float:
    """The footprint's figure of the kind that the row's `metric`, `per` and remarks name.

    What is reserved or seen from outside cannot pass the card: near the brim the allocator gives its slack back.
    """
    metric, note = case.inputs["metric"].lower(), case.inputs["note"].lower()
    figure = published_memory.figure(found, case.inputs)
    if metric.startswith("capacity"):
        figure = found.reserved * GIGA / GIB / USABLE_SHARE
    elif metric == "file size":
        figure = found.phases[0].terms["weights"]
    elif (
        metric in ("", "unknown") and "allocated" not in note and case.inputs["source_group"] not in published_memory.ALLOCATED
    ):
        figure = found.reserved
    if ("reserved" in metric or "smi" in metric) and case.inputs["gpu"]:
        figure = min(figure, card_bytes(case.inputs) or figure)
    if "gib-like" in note:
        figure *= GIGA / GIB
    return figure * (case.gpus if case.inputs["per"] == "total" else 1)


def timed(row: Row, efficiency: Efficiency) -> Timed:
    """Speed and GPU hours of a row under these constants."""
    run = run_case(row)
    found = compute_throughput(
        run.architecture, run.recipe, run.parallel, run.gpu, gpus=run.gpus, nodes=run.nodes, efficiency=efficiency
    )
    if found is None:
        raise ValueError(f"no arithmetic rate of {run.gpu.name} is known at {run.recipe.precision}")
    speed = found.tokens_per_s_per_gpu
    if not run.tokens:
        return Timed(speed=speed, hours=None, reason="gpu_hours: tokens_trained is not stated")
    taken = compute_duration(int(run.tokens), found, gpus=run.gpus, startup_hours=NO_STARTUP, efficiency=efficiency)
    steady = speed.invert().scale(run.tokens / 3600)
    return Timed(speed=speed, hours=steady if _projected(row) else taken.train_hours.scale(run.gpus))


def _projected(row: Row) -> bool:
    """Hours that were computed from a speed hold no restarts."""
    return "projection" in row.get("note", "").lower()


def _timed_cells(found: Timed) -> Row:
    cells = {SPEED: found.speed} | ({HOURS: found.hours} if found.hours else {})
    lines: Row = {}
    for name, interval in cells.items():
        lines |= _write_ends(name, interval)
    return lines | {"reason": found.reason}


def _write_ends(name: str, interval: Interval) -> Row:
    ends = {name: interval.expected, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return {key: f"{value:.6g}" for key, value in ends.items()}


def _line(row: Row, predict: Callable[[], Row]) -> Row:
    """The row's id beside what `predict` finds, or beside the reason of its failure."""
    try:
        found = predict()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a row is that row's reason, never the end of the file
        text = " ".join(str(error).split("\nhint:")[0].split()) or type(error).__name__
        found = {"reason": f"unknown word {text}" if isinstance(error, KeyError) else text}
    return {"id": row.get("id", "")} | found


def _write(path: Path, header: tuple[str, ...], lines: Iterable[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header, restval="")
        writer.writeheader()
        writer.writerows(lines)
