"""The calibration file: observed runs as stated, and the estimates computed from them, in one small JSON file.

A quote reads only the estimates. `costguard calibrate` reads the runs too, because it computes their expected values again each
time: with a better model, old runs give different estimates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from costguard.errors import CostguardError, InputError, shorten
from costguard.sizing.calibration import Calibration, FamilyEstimate, RunFamily
from costguard.sizing.job import Table
from costguard.system.atomic_file import remove_file, write_file_atomically
from costguard.system.input_file import read_input_file

SCHEMA = "costguard.calibration-file/1"
BYTES_MAX = 64 * 2**20


class CalibrationFile:
    """The file at `path`, which may be missing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load_calibration(self) -> Calibration:
        """Return the calibration from its runs; raise InputError if the file is missing or damaged."""
        table = self._read()
        if table is None:
            hint = "costguard calibrate RUNS.csv --calibration FILE makes it"
            raise InputError("no such file", field=str(self.path), hint=hint)
        try:
            beliefs = cast("Sequence[Mapping[str, Mapping[str, object]]]", table["beliefs"])
            read = {RunFamily(**b["family"]): FamilyEstimate(**b["belief"]) for b in beliefs}  # type: ignore[arg-type]  # tried below
            for belief in read.values():
                belief.shift(1.0)
        except (LookupError, TypeError, ValueError, ArithmeticError) as broken:
            raise self._make_damage_error(f"{type(broken).__name__} {broken}") from None
        return Calibration(read)

    def load_runs(self) -> tuple[Table, ...]:
        """Return the runs as they were stated; empty if the file is missing."""
        runs = (self._read() or {}).get("runs", [])
        if not isinstance(runs, list) or not all(isinstance(r, dict) for r in runs):
            raise self._make_damage_error("its runs are not a list of tables")
        return tuple(runs)

    def save(self, calibration: Calibration, runs: Sequence[Table]) -> None:
        """Replace the file atomically by `calibration` and `runs`; remove it if there are no runs."""
        beliefs = [{"family": f._asdict(), "belief": b._asdict()} for f, b in calibration.beliefs.items()]
        text = json.dumps({"schema": SCHEMA, "beliefs": beliefs, "runs": [dict(r) for r in runs]}, indent=1)
        try:
            if runs:
                write_file_atomically(self.path, f"{text}\n".encode())
            else:
                remove_file(self.path)
        except OSError as broken:
            hint = "name another file with --calibration FILE"
            raise CostguardError(f"cannot be written: {broken.strerror}", field=str(self.path), hint=hint) from None

    def _read(self) -> Mapping[str, object] | None:
        try:
            table = json.loads(read_input_file(self.path, BYTES_MAX))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as broken:
            raise self._make_damage_error(str(broken)) from None
        if not isinstance(table, dict) or table.get("schema") != SCHEMA:
            raise self._make_damage_error(f"its schema is not {SCHEMA}")
        return table

    def _make_damage_error(self, why: str) -> InputError:
        hint = "costguard calibrate --reset removes it; then calibrate again from your runs"
        return InputError(f"cannot be read as a calibration: {shorten(why)}", field=str(self.path), hint=hint)
