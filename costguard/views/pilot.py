"""A pilot beside its quote: a table of what trying the job costs, and one line with both runs together.

Example: `Pilot of 1 % on runpod A40 x1 (secure), then the whole on runpod A100-80GB-SXM x1 (secure): $5.63.`
"""

from __future__ import annotations

from dataclasses import replace

from costguard.quoting.pilot import Pilot
from costguard.quoting.quote import QuoteOption
from costguard.views.document import Column, Document, build_record, build_table
from costguard.views.job import build_interval_data, format_gpus, format_hours_range


def add_pilot(document: Document, pilot: Pilot) -> Document:
    """Return the document of a quote with its pilot: what trying it costs, where the whole is run, and both together."""
    steps = [(f"{pilot.percent:g} %, cheapest", pilot.cheapest)]
    steps += [(f"{pilot.percent:g} %, as the whole", pilot.alike)] if pilot.alike else []
    steps.append(("the whole", pilot.full))
    table = build_table(PILOT_COLUMNS, steps, title="Try it first: its speed goes into the next quote by costguard calibrate")
    total = pilot.total.format() if pilot.total else None
    record = {"percent": pilot.percent, "total_usd": total, "runs": [build_record(PILOT_COLUMNS, one) for one in steps]}
    first, then = _name_offer(pilot.cheapest), _name_offer(pilot.full)
    lead = f"Pilot of {pilot.percent:g} % on {first}, then the whole on {then}: ${total}."
    return replace(
        document,
        data={**document.data, "pilot": record},
        lead=(*document.lead, *([lead] if total else [])),
        tables=(*document.tables, table),
    )


def _name_offer(option: QuoteOption) -> str:
    return f"{option.offer.provider} {format_gpus(option)} ({option.offer.tier})" if option.offer else format_gpus(option)


PILOT_COLUMNS: tuple[Column[tuple[str, QuoteOption]], ...] = (
    Column("run", "run", lambda run: run[0]),
    Column("offer", "offer", lambda run: _name_offer(run[1])),
    Column("hours", "hours", lambda run: build_interval_data(run[1].hours), lambda run: format_hours_range(run[1].hours)),
    Column("usd", "cost $>", lambda run: run[1].usd.expected.format() if run[1].usd else None),
)
