"""How often a spot machine is taken back, and how long it takes to be running again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costguard.values.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionRate:
    """`per_hour`: interruptions per instance-hour. `restart_hours`: until the run computes again."""

    per_hour: Interval
    restart_hours: float
    source: str = ""


def read_interruptions(rows: Iterable[Mapping[str, str]]) -> dict[str, InterruptionRate]:
    """Provider -> its risk, from `interruptions.csv`; `*` stands for every provider without a row."""
    return {
        row["provider"]: InterruptionRate(
            per_hour=Interval(*(float(row[f"{end}_per_hour"]) for end in ("low", "expected", "high"))),
            restart_hours=float(row["restart_minutes"]) / 60,
            source=f"{row['source']}, {row['observed_on']}",
        )
        for row in rows
    }
