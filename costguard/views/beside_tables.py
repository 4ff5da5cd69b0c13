"""Tables of what a statement says beside its groups: the dearest resources, acts of the guard, quotes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costguard.errors import shorten
from costguard.reporting.statement.jobs import group_runs_by_job
from costguard.reporting.statement.savings import Saving
from costguard.reporting.statement.sections import QuotedRun, TopResource
from costguard.reporting.statement.statement import Statement
from costguard.values.instant import HOUR_US
from costguard.values.text_format import format_interval, format_length, format_local_time, get_currency_sign
from costguard.views.document import TableView

LONGEST_NAME = 60


def list_section_tables(statement: Statement) -> Iterator[TableView]:
    """The dearest resources, what was saved, quotes."""
    if len(statement.spenders) > 1:
        yield TableView(
            title="Dearest resources",
            columns=("provider", "resource", "GPU", "tier", "owner", "hours>", "cost>"),
            rows=tuple(_build_spender_row(one) for one in statement.spenders),
        )
    if statement.saved.savings:
        yield TableView(
            title="Acts of the guard",
            columns=("machine", "owner", "policy", "act", "stopped", "ran again", "avoided>", "at rest>", "saved>"),
            rows=tuple(_build_saving_row(one) for one in statement.saved.savings),
        )
    if statement.quotes:
        yield TableView(
            title="Quoted and actual",
            columns=("run", "who", "why", "quoted>", "actual>", "difference>"),
            rows=tuple(_list_quoted_rows(statement.quotes)),
        )


def _build_spender_row(one: TopResource) -> tuple[str, ...]:
    of = one.attribution
    gpu = f"{shorten(of.gpu, LONGEST_NAME)} x{of.gpu_count:g}" if of.gpu else of.kind
    cost = f"{get_currency_sign(one.money.low.currency)}{format_interval(one.money)}"
    return (
        shorten(one.bearer.key.provider, LONGEST_NAME),
        _format_machine_name(one.bearer.name, one.bearer.key.id),
        gpu,
        of.tier or "-",
        shorten(of.owner or "-", LONGEST_NAME),
        f"{one.us / HOUR_US:.1f}",
        cost,
    )


def _build_saving_row(one: Saving) -> tuple[str, ...]:
    code = get_currency_sign(one.rest.currency)
    again = "-" if one.again_at is None else f"after {format_length(one.again_at - one.at)}"
    return (
        f"{one.act.life.key.provider} {_format_machine_name(one.act.name, one.act.life.key.id)}",
        shorten(one.act.owner or "-", LONGEST_NAME),
        one.act.policy,
        one.act.act,
        format_local_time(one.at),
        again,
        f"{code}{one.avoided.expected.format()}",
        f"{code}{one.rest.format()}",
        "false stop?" if one.false else f"{code}{format_interval(one.usd)}",
    )


def _build_quoted_row(one: QuotedRun) -> tuple[str, ...]:
    hold, code = one.hold, get_currency_sign(one.hold.money.currency)
    texts = (shorten(text or "-", LONGEST_NAME) for text in (hold.id, hold.who, hold.why))
    return (*texts, f"{code}{hold.money.format()}", f"{code}{one.actual.format()}", f"{code}{one.over.format()}")


def _list_quoted_rows(quotes: Sequence[QuotedRun]) -> Iterator[tuple[str, ...]]:
    """A row a run; below the last attempt of a job that took several, what they came to together."""
    several = {(one.job, one.quoted.currency): one for one in group_runs_by_job(quotes) if one.attempts > 1}
    left = {key: one.attempts for key, one in several.items()}
    for quote in quotes:
        yield _build_quoted_row(quote)
        key = (quote.job, quote.hold.money.currency)
        if key in left:
            left[key] -= 1
            if not left[key]:
                one, code = several[key], get_currency_sign(quote.hold.money.currency)
                named = (f"{shorten(one.job, LONGEST_NAME)}: {one.attempts} attempts", "", "first quoted, all spent")
                amounts = (one.quoted, one.actual, one.actual - one.quoted)
                yield (*named, *(f"{code}{money.format()}" for money in amounts))


def _format_machine_name(name: str, id_: str) -> str:
    return (
        f"{shorten(name, LONGEST_NAME)} ({shorten(id_, LONGEST_NAME)})" if name and name != id_ else shorten(id_, LONGEST_NAME)
    )
