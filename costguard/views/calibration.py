"""What observed runs say of quotes to come, as a document: `costguard.calibration/1`, one record a family of jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costguard.sizing.calibration import MEMORY_SPREAD, FamilyEstimate, RunFamily
from costguard.sizing.evidence import CalibrationAnswer
from costguard.views.document import Document, TableView

CALIBRATION_SCHEMA = "costguard.calibration/1"


def build_calibration_document(answer: CalibrationAnswer) -> Document:
    """A row a family: how many runs, what they saw, how far quotes move."""
    found = answer.weighed
    beliefs = sorted(found.calibration.beliefs.items(), key=lambda item: (item[0].measure != "speed", item[0]))
    records = tuple(_build_family_record(family, belief, answer.spread) for family, belief in beliefs)
    data = {
        "schema": CALIBRATION_SCHEMA,
        "file": answer.file,
        "runs": len(answer.runs),
        "new": answer.new,
        "families": list(records),
        "left_out": [{"run": o.run, "measure": o.measure, "why": o.why} for o in found.left_out],
        "warnings": list(answer.warnings),
    }
    return Document(
        data=data,
        records=records,
        lead=(_format_calibration_lead(answer),),
        tables=(_build_family_table(beliefs, answer.spread),) if beliefs else (),
        notes=tuple(f"Warning: {w}." for w in answer.warnings),
    )


def _format_calibration_lead(answer: CalibrationAnswer) -> str:
    if not answer.runs:
        return "No runs: quotes and sizes are what the shipped model says."
    new = f", {answer.new} of them new" if answer.new else ""
    return f"{len(answer.runs)} observed runs{new}, kept in {answer.file}."


def _build_family_record(family: RunFamily, belief: FamilyEstimate, spread: float) -> dict[str, object]:
    shift, width = belief.shift(_get_spread(family, spread))
    return {
        "measure": family.measure,
        "method": family.method,
        "model_size": family.size,
        "gpu_kind": family.chip,
        "reach": family.reach,
        "runs": belief.runs,
        "observed_over_expected": round(math.exp(belief.mean), 4),
        "factor": round(math.exp(shift), 4),
        "interval_factor": round(math.exp(width), 4) if family.measure == "speed" else None,
    }


def _build_family_table(beliefs: Sequence[tuple[RunFamily, FamilyEstimate]], spread: float) -> TableView:
    rows = []
    for family, belief in beliefs:
        own = _get_spread(family, spread)
        shift, width = belief.shift(own)
        interval = f"{math.exp(width):.2f} (was {math.exp(own):.2f})" if family.measure == "speed" else "-"
        seen, factor = f"{math.exp(belief.mean):.3f}", f"x {math.exp(shift):.3f}"
        rows.append((family.measure, family.text, str(belief.runs), seen, factor, interval))
    columns = ("of", "jobs", "runs>", "observed / expected>", "quotes move by>", "80 % within a factor>")
    return TableView(title="", columns=columns, rows=tuple(rows))


def _get_spread(family: RunFamily, spread: float) -> float:
    return spread if family.measure == "speed" else MEMORY_SPREAD
