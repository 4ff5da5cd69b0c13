"""What is wrong with a file: a line, a column, the rule, and what to write instead."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

COLUMN_RULE, NULL_RULE, TYPE_RULE, FORMAT_RULE, VALUE_RULE, JSON_RULE = "column", "null", "type", "format", "value", "json"
IDENTITY_RULE, ROUNDED_RULE, PERIOD_RULE, CONDITION_RULE = "identity", "rounded", "period", "condition"
CONSISTENT_RULE, TWICE_RULE = "consistent", "twice"
"""The rules, by what they look at: the header, empty cells, numbers, how a cell is written, which values there are, JSON;
price times quantity (and whether it was only rounded), periods, what one cell asks of another, what one row asks of another,
what is stated twice."""

MOST_ALIKE = 20
"""Findings of one rule in one column that are told; the others are counted."""


@dataclass(frozen=True, slots=True)
class CellFault:
    """What is wrong with a cell. `rule`: one of the above. `instead`: what to write."""

    rule: str
    what: str
    instead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusFinding:
    """A fault, and where it is. `line`: of the file, from 1, where the row ends; of a Parquet file, the row's number"""

    line: int
    column: str
    fault: CellFault


@dataclass(slots=True)
class FindingLog:
    """What was found so far: the first ones of each kind, and how many there are of all."""

    told: list[FocusFinding] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, line: int, column: str, fault: CellFault, *, alike: str | None = None) -> None:
        """One more. `alike`: the column that it counts with, where that is not its own."""
        kind = (column if alike is None else alike, fault.rule)
        self.counts[kind] += 1
        if self.counts[kind] <= MOST_ALIKE:
            self.told.append(FocusFinding(line=line, column=column, fault=fault))

    @property
    def count(self) -> int:
        """Of all, told or not."""
        return self.counts.total()
