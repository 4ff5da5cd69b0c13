"""The answer of `costguard admit` (`costguard.admit/1`): what is held, or which budget refuses it and what would fit."""

from __future__ import annotations

from costguard.budgets.budget_status import ALREADY_HELD, RENEWED, Admission
from costguard.budgets.hold import Hold
from costguard.errors import MOST_HINT_LINES
from costguard.runs.admission import AdmitResult, describe_option
from costguard.values.interval import Interval
from costguard.values.money import Money
from costguard.values.text_format import (
    format_exact,
    format_instant,
    format_interval,
    format_interval_exact,
    format_local_time,
    get_currency_sign,
)
from costguard.views.document import Document
from costguard.views.job import build_interval_data

ADMIT_SCHEMA = "costguard.admit/1"


def build_admit_document(result: AdmitResult) -> Document:
    """Return the admission of a run as a document of one record."""
    admission, hold = result.admission, result.hold
    how = {ALREADY_HELD: "Held already", RENEWED: "Renewed"}.get(admission.reason, "Held") if admission.admitted else "Refused"
    lead = [f"{how}: {_format_sum(hold.money)} for {_describe_run(result)}."]
    if admission.admitted:
        lead.append(f"Hold {hold.id} counts until {format_local_time(hold.expires_at)}.")
    lead.append(f"{_capitalize(admission.says)}.{_format_range(admission)}")
    data = build_admit_data(result)
    flat = {key: value for key, value in data.items() if not isinstance(value, (dict, list))}
    return Document(data=data, records=(flat,), lead=tuple(lead), notes=(*_list_advice(result), *_list_next_steps(result)))


def build_admit_data(result: AdmitResult) -> dict[str, object]:
    """Return the admission of a run for scripts."""
    admission, hold, price = result.admission, result.hold, result.price
    option, left, cap = price.option, admission.left_range, admission.cap
    return {
        "schema": ADMIT_SCHEMA,
        "held": admission.admitted,
        "reason": admission.reason,
        "says": admission.says,
        "hold": hold.id if admission.admitted else None,
        "expires_at": format_instant(hold.expires_at) if admission.admitted else None,
        "usd": format_exact(hold.money),
        "currency": hold.money.currency,
        "was_usd": None if admission.was is None else format_exact(admission.was),
        "quote": None
        if option is None
        else {
            "usd": format_interval_exact(price.usd),
            "hours": None if price.hours is None else build_interval_data(price.hours),
            "machines": price.machines * option.nodes,
            "offer": describe_option(option),
        },
        "budget": admission.budget or None,
        "cap": None if cap is None else format_exact(cap),
        "left": None if left is None else format_interval_exact(left),
        "unstated": list(result.unstated),
        "warnings": list(price.warnings),
        "would_fit": [{"what": one.what, "usd": format_exact(one.usd)} for one in result.fits],
    }


def format_advice(result: AdmitResult) -> str:
    """Return what would fit, one line each, as the hint of an error; "" if nothing is known to fit."""
    return "\n".join(_list_advice(result)[:MOST_HINT_LINES])


def build_hold_end_document(hold: Hold) -> Document:
    """Return the end of a hold."""
    spent = None if hold.spent is None else format_exact(hold.spent)
    data: dict[str, object] = {"schema": ADMIT_SCHEMA, "hold": hold.id, "ended_by": hold.ended_by, "spent": spent}
    return Document(data=data, records=(data,), lead=(f"Hold {hold.id} of {_format_sum(hold.money)}: {hold.ended_by}.",))


def _describe_run(result: AdmitResult) -> str:
    price = result.price
    if price.option is None:
        return "a stated cost"
    hours = "" if price.hours is None else f", {_format_hours(price.hours)} h"
    times = f"{price.machines} x " if price.machines > 1 else ""
    return f"{times}{describe_option(price.option)}{hours}, quoted at {format_interval(price.usd)}"


def _format_range(admission: Admission) -> str:
    """Return what is left as an interval, if what was spent is not certain."""
    left = admission.left_range
    if left is None or left.low == left.high:
        return ""
    return f" Left: {format_interval(left)}; the low end counts."


def _list_advice(result: AdmitResult) -> tuple[str, ...]:
    if result.admission.admitted:
        return ()
    unstated = ", ".join(result.unstated)
    why = f"it counts in budget {result.admission.budget} because these are not given: {unstated}; give what is known"
    return (
        *((why,) if unstated else ()),
        *(f"would fit: {one.what}, {_format_sum(one.usd)}" for one in result.fits),
    )


def _list_next_steps(result: AdmitResult) -> tuple[str, ...]:
    if not result.admission.admitted:
        return ()
    ended = f"costguard admit --ended {result.hold.id} ends the hold when the run has ended"
    return (f"{ended}; --release {result.hold.id} if it was never launched.",)


def _format_hours(hours: Interval) -> str:
    return f"{hours.expected:g}" if hours.low == hours.high else f"{hours.low:.1f} to {hours.high:.1f}"


def _format_sum(money: Money) -> str:
    return f"{get_currency_sign(money.currency)}{money.format()}"


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
