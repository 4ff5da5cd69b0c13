"""Documents about runs: the result of a run (`costguard.run/1`) and calibration (`costguard.calibration/1`).

Calibration shows how observed runs change future quotes, one record per family of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costguard.runs.record import JobAttempt, JobRecord, JobTerms
from costguard.sizing.calibration import MEMORY_SPREAD, FamilyEstimate, RunFamily
from costguard.sizing.observed_runs import CalibrationAnswer
from costguard.values.interval import Interval
from costguard.values.money import Money, MoneyInterval
from costguard.values.text_format import RATE_PLACES, format_exact, format_instant, format_interval_exact
from costguard.views.document import Document, TableView

RUN_SCHEMA = "costguard.run/1"
HOUR_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The result of a run besides its attempt. None: not known, or not applicable.

    - `signal`: the signal that ended it, or "". `budget`: the budget that decided on the hold. `lease_until`: ISO 8601.
    - `tokens_per_s`: the learned speed; if there is none, `unfit` gives the reason.
    - `after`: the next quote. `then`: the follow-up action and its result.
    """

    record: JobRecord
    attempt: JobAttempt
    terms: JobTerms
    signal: str = ""
    budget: str = ""
    lease_until: str | None = None
    lease_refused: str = ""
    tokens_per_s: float | None = None
    unfit: str = ""
    after: JobTerms | None = None
    notices: Sequence[str] = ()
    then: Mapping[str, object] = field(default_factory=dict)
    notes: Sequence[str] = ()


def build_run_data(summary: RunSummary) -> dict[str, object]:
    """Return the whole result without the command, because its arguments may contain secrets."""
    attempt, terms, record = summary.attempt, summary.terms, summary.record
    machine = terms.machine
    return {
        "schema": RUN_SCHEMA,
        "job": record.job,
        "attempt": attempt.number,
        "machine": {
            "host": attempt.host,
            "provider": machine.provider or None,
            "gpu": machine.gpu or None,
            "gpu_count": machine.count,
            "nodes": machine.nodes,
            "per_hour": format_exact(Money(nano=machine.hourly.nano_per_hour, currency=machine.hourly.currency), RATE_PLACES)
            if machine.hourly
            else None,
            "currency": machine.hourly.currency if machine.hourly else None,
            "source": machine.source,
        },
        "quoted": {
            "hours": _build_hours_data(terms.hours),
            "money": _build_money_data(terms.usd),
            "share_left": float(terms.share),
            "tokens_per_step": terms.tokens_per_step,
            "steps": terms.steps,
        },
        "actual": {
            "began_at": format_instant(attempt.began_at),
            "ended_at": format_instant(attempt.seen_at),
            "status": attempt.status,
            "signal": summary.signal or None,
            "seconds": attempt.seconds,
            "hours": attempt.seconds / HOUR_S,
            "money": format_exact(attempt.spent) if attempt.spent else None,
        },
        "all_attempts": {
            "attempts": len(record.attempts),
            "seconds": record.seconds,
            "hours": record.seconds / HOUR_S,
            "money": format_exact(record.spent) if record.spent else None,
        },
        "hold": {
            "id": attempt.hold or None,
            "money": format_exact(attempt.held) if attempt.held else None,
            "budget": summary.budget or None,
        },
        "lease": {"id": attempt.lease or None, "until": summary.lease_until, "refused": summary.lease_refused or None},
        "progress": {
            "first_step": attempt.first_step,
            "last_step": attempt.last_step,
            "tokens_per_s": summary.tokens_per_s,
            "not_learnt": summary.unfit or None,
        },
        "next_quote": {"hours": _build_hours_data(summary.after.hours), "money": _build_money_data(summary.after.usd)}
        if summary.after
        else None,
        "notices": list(summary.notices),
        "then": dict(summary.then) or None,
        "notes": list(summary.notes),
    }


def _build_hours_data(hours: Interval | None) -> dict[str, float] | None:
    return None if hours is None else {"low": hours.low, "expected": hours.expected, "high": hours.high}


def _build_money_data(usd: MoneyInterval | None) -> dict[str, str] | None:
    return None if usd is None else format_interval_exact(usd)


CALIBRATION_SCHEMA = "costguard.calibration/1"


def build_calibration_document(answer: CalibrationAnswer) -> Document:
    """Return one row per family: the number of runs, the observed values, and the change of quotes."""
    weighed = answer.weighed
    beliefs = sorted(weighed.calibration.beliefs.items(), key=lambda item: (item[0].measure != "speed", item[0]))
    records = tuple(_build_family_record(family, belief, answer.spread) for family, belief in beliefs)
    data = {
        "schema": CALIBRATION_SCHEMA,
        "file": answer.file,
        "runs": len(answer.runs),
        "new": answer.new,
        "families": list(records),
        "left_out": [{"run": o.run, "measure": o.measure, "why": o.why} for o in weighed.left_out],
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
        return "No runs: quotes and sizes use the built-in model."
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
        mean, factor = f"{math.exp(belief.mean):.3f}", f"x {math.exp(shift):.3f}"
        rows.append((family.measure, family.text, str(belief.runs), mean, factor, interval))
    columns = ("of", "jobs", "runs>", "observed / expected>", "quotes move by>", "80 % within a factor>")
    return TableView(title="", columns=columns, rows=tuple(rows))


def _get_spread(family: RunFamily, spread: float) -> float:
    return spread if family.measure == "speed" else MEMORY_SPREAD
