"""Tables of what a statement says beside its groups: the dearest resources, acts of the guard, quotes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costguard.errors import shortened
from costguard.reporting.statement.jobs import jobs_of
from costguard.reporting.statement.savings import Saving
from costguard.reporting.statement.sections import Quoted, Spender
from costguard.reporting.statement.statement import Statement
from costguard.values.instant import HOUR_US
from costguard.values.text_format import interval_text, length_text, moment_text, sign
from costguard.views.document import TableView

LONGEST_NAME = 60


def further_tables(statement: Statement) -> Iterator[TableView]:
    """The dearest resources, what was saved, quotes."""
    if len(statement.spenders) > 1:
        yield TableView(
            title="Dearest resources",
            columns=("provider", "resource", "GPU", "tier", "owner", "hours>", "cost>"),
            rows=tuple(_spender_row(one) for one in statement.spenders),
        )
    if statement.saved.savings:
        yield TableView(
            title="Acts of the guard",
            columns=("machine", "owner", "policy", "act", "stopped", "ran again", "avoided>", "at rest>", "saved>"),
            rows=tuple(_saving_row(one) for one in statement.saved.savings),
        )
    if statement.quotes:
        yield TableView(
            title="Quoted and actual",
            columns=("run", "who", "why", "quoted>", "actual>", "difference>"),
            rows=tuple(_quoted_rows(statement.quotes)),
        )


def _spender_row(one: Spender) -> tuple[str, ...]:
    of = one.attribution
    gpu = f"{shortened(of.gpu, LONGEST_NAME)} x{of.gpu_count:g}" if of.gpu else of.kind
    cost = f"{sign(one.money.low.currency)}{interval_text(one.money)}"
    return (
        shortened(one.bearer.key.provider, LONGEST_NAME),
        _called(one.bearer.name, one.bearer.key.id),
        gpu,
        of.tier or "-",
        shortened(of.owner or "-", LONGEST_NAME),
        f"{one.us / HOUR_US:.1f}",
        cost,
    )


def _saving_row(one: Saving) -> tuple[str, ...]:
    code = sign(one.rest.currency)
    again = "-" if one.again_at is None else f"after {length_text(one.again_at - one.at)}"
    return (
        f"{one.act.life.key.provider} {_called(one.act.name, one.act.life.key.id)}",
        shortened(one.act.owner or "-", LONGEST_NAME),
        one.act.policy,
        one.act.act,
        moment_text(one.at),
        again,
        f"{code}{one.avoided.expected.text()}",
        f"{code}{one.rest.text()}",
        "false stop?" if one.false else f"{code}{interval_text(one.usd)}",
    )


def _quoted_row(one: Quoted) -> tuple[str, ...]:
    hold, code = one.hold, sign(one.hold.money.currency)
    texts = (shortened(text or "-", LONGEST_NAME) for text in (hold.id, hold.who, hold.why))
    return (*texts, f"{code}{hold.money.text()}", f"{code}{one.actual.text()}", f"{code}{one.over.text()}")


def _quoted_rows(quotes: Sequence[Quoted]) -> Iterator[tuple[str, ...]]:
    """A row a run; below the last attempt of a job that took several, what they came to together."""
    several = {(one.job, one.quoted.currency): one for one in jobs_of(quotes) if one.attempts > 1}
    left = {key: one.attempts for key, one in several.items()}
    for quote in quotes:
        yield _quoted_row(quote)
        key = (quote.job, quote.hold.money.currency)
        if key in left:
            left[key] -= 1
            if not left[key]:
                one, code = several[key], sign(quote.hold.money.currency)
                named = (f"{shortened(one.job, LONGEST_NAME)}: {one.attempts} attempts", "", "first quoted, all spent")
                amounts = (one.quoted, one.actual, one.actual - one.quoted)
                yield (*named, *(f"{code}{money.text()}" for money in amounts))


def _called(name: str, id_: str) -> str:
    return (
        f"{shortened(name, LONGEST_NAME)} ({shortened(id_, LONGEST_NAME)})"
        if name and name != id_
        else shortened(id_, LONGEST_NAME)
    )
