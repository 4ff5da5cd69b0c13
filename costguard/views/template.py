"""Templates as documents: the list, and the claim of a template's source compared with costguard's figures."""

from __future__ import annotations

from collections.abc import Iterable

from costguard.quoting.template import TemplateClaim, TemplateComparison, WorkloadTemplate
from costguard.values.interval import Interval
from costguard.values.text_format import format_amount
from costguard.views.document import Document, TableView
from costguard.views.job import build_interval_data, format_hours, format_hours_range

SCHEMA = "costguard.templates/1"


def build_templates_document(templates: Iterable[WorkloadTemplate]) -> Document:
    """Return all templates, one row each."""
    records = tuple(
        {"name": t.name, "title": t.title, "model": t.job.get("model"), "tokens_from": t.tokens_why} for t in templates
    )
    rows = tuple((str(r["name"]), str(r["title"]), str(r["model"]), str(r["tokens_from"])) for r in records)
    table = TableView(title="", columns=("template", "what", "model", "amount"), rows=rows)
    return Document(
        data={"schema": SCHEMA, "templates": list(records)},
        records=records,
        tables=(table,),
        notes=("costguard quote --template NAME; flags override it.",),
    )


def build_comparison_data(compared: TemplateComparison) -> dict[str, object]:
    """Return the template, its source's claim and costguard's figures for scripts."""
    template, claim, option = compared.template, compared.template.claim, compared.option
    return {
        "name": template.name,
        "title": template.title,
        "tokens_from": template.tokens_why,
        "changed": list(compared.changed),
        "claim": None if claim is None else _build_claim_data(claim),
        "costguard": None
        if option is None
        else {
            "hours": build_interval_data(option.hours),
            "usd": option.usd.format_ends() if option.usd else None,
            "provider": option.offer.provider if option.offer else None,
            "usd_per_hour": option.rate.format() if option.rate else None,
            "usd_at_implied_price": build_interval_data(compared.usd_as_implied),
        },
        "comes_out": compared.comes_out,
        "why": claim.note if claim else None,
    }


def list_comparison_tables(compared: TemplateComparison) -> tuple[TableView, ...]:
    """Return the source's claim, and costguard's figures at the market's price and at the source's own price."""
    claim, option = compared.template.claim, compared.option
    if claim is None or option is None or option.hours is None:
        return ()
    where = f"{claim.gpu} x{claim.gpu_count}" + (f" x{claim.nodes} nodes" if claim.nodes > 1 else "")
    rows = [(claim.source, _format_claimed_hours(claim.hours), _format_claimed_money(claim), _format_claimed_prices(claim))]
    if option.usd and option.rate and option.offer:
        each = option.rate.nano_per_hour / claim.gpus / 1e9
        money = f"{format_amount(option.usd.expected)} ({format_amount(option.usd.low)} - {format_amount(option.usd.high)})"
        rows.append(
            (f"costguard, {option.offer.provider} {option.offer.tier}", format_hours_range(option.hours), money, f"{each:.2f}")
        )
    if compared.usd_as_implied:
        rows.append(
            (
                "costguard, at the source's price",
                format_hours_range(option.hours),
                _format_money(compared.usd_as_implied),
                _format_claimed_prices(claim),
            )
        )
    return (TableView(title=f"On {where}", columns=("who", "hours", "$>", "$/GPU-h>"), rows=tuple(rows)),)


def list_comparison_notes(compared: TemplateComparison) -> tuple[str, ...]:
    """Return where the amount comes from, whether costguard confirms the claim, and why."""
    template, claim = compared.template, compared.template.claim
    amount = f"Template {template.name}: {template.tokens_why}."
    if compared.changed:
        return (f"Template {template.name}, with other {', '.join(compared.changed)}: not compared with its source.",)
    if claim is None:
        return (amount,)
    if compared.hours is None:
        return (amount, f"Not compared: {compared.lacking or 'no hours'}.")
    return (amount, f"{_format_agreement(compared, claim)}: {claim.note}.")


def _build_claim_data(claim: TemplateClaim) -> dict[str, object]:
    return {
        "source": claim.source,
        "gpu": claim.gpu,
        "gpu_count": claim.gpu_count,
        "nodes": claim.nodes,
        "hours": list(claim.hours),
        "usd": list(claim.usd) if claim.usd else None,
        "usd_per_gpu_hour": [round(price, 4) for price in claim.gpu_hour] if claim.gpu_hour else None,
    }


def _format_agreement(compared: TemplateComparison, claim: TemplateClaim) -> str:
    hours = _format_claimed_hours(claim.hours)
    if compared.comes_out:
        return f"The source's {hours} are reproduced"
    ratio = compared.ratio or 1.0
    return f"The source's {hours} are not reproduced: costguard gives {ratio:.2g} times the nearest end"


def _format_claimed_hours(hours: tuple[float, float]) -> str:
    low, high = hours
    return format_hours(low) if low == high else f"{format_hours(low)} - {format_hours(high)}"


def _format_claimed_money(claim: TemplateClaim) -> str:
    return f"{claim.usd[0]:g} - {claim.usd[1]:g}" if claim.usd else "not said"


def _format_claimed_prices(claim: TemplateClaim) -> str:
    if claim.gpu_hour is None:
        return "not said"
    low, high = (f"{price:.2f}" for price in claim.gpu_hour)
    return low if low == high else f"{low} - {high}"


def _format_money(usd: Interval) -> str:
    return f"{usd.expected:.2f} ({usd.low:.2f} - {usd.high:.2f})"
