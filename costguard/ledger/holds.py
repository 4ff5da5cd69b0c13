"""Holds in the ledger, taken in one transaction, so that concurrent runs cannot exceed the budgets together.

Example: a budget of $100 with $60 spent, and two runs of $30 that ask at the same time. One waits for the other: the first
finds an exposure of $60 and gets its hold; the second finds $90 and is refused, and nothing is written for it.

A rate cap is compared with what bills now and what the other open holds add to that (`sum_open_rates`).

A hold that is asked for again at another price is renewed: with the first of those runs now quoted at $35, its $30 are taken
out before the $35 are compared with the budget, and its row is replaced in the same transaction, so that never both count.

An expired hold no longer counts, whether or not its row has been marked.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import and_, bindparam, delete, or_, update
from sqlmodel import col, select

from costguard.budgets.budget import Budget, find_budget_period, list_current_budgets
from costguard.budgets.budget_status import (
    ALREADY_HELD,
    RATE_REASONS,
    RENEWED,
    Admission,
    BudgetStatus,
    admit_to_all,
    compute_budget_status,
)
from costguard.budgets.hold import (
    COMMITTED,
    EXPIRED,
    HOLD_DURATION_MAX,
    RELEASED,
    Hold,
    counts_in_filter,
    describe_token,
    is_open_hold,
    is_unlisted_run,
    list_unlisted_spending,
    sum_open_holds,
    sum_open_rates,
)
from costguard.errors import InputError
from costguard.ledger.db.codecs import Execute, Query, SqlRow, decode_optional_instant, encode_labels, pick_fields
from costguard.ledger.db.reader import OpenSnapshot
from costguard.ledger.db.rows import insert_rows
from costguard.ledger.db.session import read_by
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.spans.books import PriceCeilings, SpendingReader
from costguard.ledger.tables.holds import HoldBudgetRow, HoldRow
from costguard.metering.accrual import POLL_GAP
from costguard.metering.burn import AttributedBurn, list_burns
from costguard.values.calendar import LONGEST_ROLLING_DAYS, Period
from costguard.values.checks import require
from costguard.values.instant import from_micros, to_micros
from costguard.values.money import Money
from costguard.values.resource import make_storable

if TYPE_CHECKING:  # a type and no more: whoever only reads holds does not pay for importing it
    from costguard.metering.billing import BillingRule
    from costguard.metering.spending import Spending

TEXT_COLUMNS = ("who", "why", "provider", "account", "owner", "gpu")
SHOWN_CHARS = 60
"""Of an attribute in a message."""


def load_open_holds(ask: Query, now: datetime) -> list[Hold]:
    """Return the holds that count at `now`, oldest first."""
    still_open = select(HoldRow).where(col(HoldRow.ended_us).is_(None), col(HoldRow.expires_us) > to_micros(now))
    return [_decode_hold(row) for row in ask(still_open.order_by(col(HoldRow.taken_us), col(HoldRow.id)))]


def load_recent_holds(ask: Query, since: datetime) -> list[Hold]:
    """Return the holds taken since then, ended ones too."""
    recent = select(HoldRow).where(col(HoldRow.taken_us) >= to_micros(since))
    return [_decode_hold(row) for row in ask(recent.order_by(col(HoldRow.taken_us), col(HoldRow.id)))]


class HoldStore(LedgerStore):
    """The holds of the ledger at `url`, which is created if missing.

    Use it in a `with` statement, or call `close`. `rules`: how each provider bills, for the cost of open spans so far.
    `ceilings`: as in `SpendingReader`.
    """

    def __init__(self, url: str, *, rules: Mapping[str, BillingRule], ceilings: PriceCeilings = dict) -> None:
        super().__init__(url)
        self._rules, self._ceilings = rules, ceilings

    def take(self, hold: Hold, budgets: Iterable[Budget], now: datetime) -> Admission:
        """Set `hold` aside at `now` if each matching budget has that much left, and return the admission.

        The admission names the budget that decided. A refused hold writes nothing. One that already exists and is open, equal
        but for its times, is admitted and not counted again, so a call whose answer was lost may be repeated. One that is open
        and equal but for its times and money is renewed: it gets the new money if that is less, or if every budget has as much
        left without the old money; else it is refused, and the old one stays. Raises InputError if the id belongs to the hold
        of another run or to an ended one.
        """
        result = self.take_all([hold], budgets, now)[0]
        if isinstance(result, InputError):
            raise result
        return result

    def take_all(self, holds: Iterable[Hold], budgets: Iterable[Budget], now: datetime) -> list[Admission | InputError]:
        """Take several holds, in their order, in one transaction; return for each what `take` returns or raises.

        Each counts for those after it, and what is spent is read once: many callers who ask at the same time share the cost.
        """
        budgets, results = list_current_budgets(budgets, now), list[Admission | InputError]()
        new, renewed = dict[str, tuple[Hold, list[Budget]]](), set[str]()
        with self._begin_write() as (ask, tell):
            books = _TransactionSpendingReader(ask, self._rules, self._ceilings)
            standings = _BudgetStandings(books, load_counting_holds(ask, now), now)
            for requested in holds:
                hold = _make_storable(requested)
                matching = [budget for budget in budgets if counts_in_filter(hold, budget.match)]
                try:
                    require(is_open_hold(hold, now), f"hold {hold.id}", "expires or ends before it starts", "take a new one")
                    stored = new[hold.key][0] if hold.key in new else _find_hold(ask, hold.key)
                    if stored is not None:
                        _require_same_run(stored, hold, now)
                except InputError as error:
                    results.append(error)
                    continue
                admission = _admit_or_renew(hold, stored, [standings.get_standing(one, hold) for one in matching])
                if admission.admitted and admission.reason != ALREADY_HELD:
                    until = admission.until or hold.expires_at
                    hold = replace(hold, expires_at=min(until, hold.taken_at + HOLD_DURATION_MAX))
                    renewed |= {hold.key} if stored is not None and hold.key not in new else set()
                    new[hold.key] = hold, matching
                    standings.add_hold(hold, stored)
                results.append(admission)
            if new:
                _end_expired_holds(ask, tell, now)
                _insert_holds(tell, list(new.values()), replaced=sorted(renewed))
        return results

    def release(self, hold_id: str, now: datetime) -> Hold:
        """End the hold of a run that will not start, and return it. `hold_id`: its key, or its id where no other has it.

        A released or expired hold stays as it is.
        """
        with self._begin_write() as (ask, tell):
            hold = _load_hold(ask, hold_id, now)
            require(
                hold.ended_by != COMMITTED,
                f"hold {hold.id}",
                "was committed: its amount is spent",
                "a committed hold cannot change",
            )
            return hold if hold.ended_by else _end_hold(tell, replace(hold, ended_at=now, ended_by=RELEASED))

    def commit(self, hold_id: str, spent: Money | None, now: datetime) -> Hold:
        """End the hold of a run whose spending is in the ledger, and return it. `hold_id`: as for `release`.

        `spent`: the cost of the run, None: unknown. An expired hold stays expired and stores `spent`; one that was committed
        with the same `spent` stays as it is.
        """
        with self._begin_write() as (ask, tell):
            hold = _load_hold(ask, hold_id, now)
            require(hold.ended_by != RELEASED, f"hold {hold.id}", "was released: its run did not start", "take a new one")
            if hold.ended_by == COMMITTED or hold.spent is not None:
                require(
                    spent == hold.spent,
                    f"hold {hold.id}",
                    "was committed with another amount",
                    "the amount spent can be recorded once",
                )
                return hold
            ended = hold if hold.ended_by else replace(hold, ended_at=now, ended_by=COMMITTED)
            return _end_hold(tell, replace(ended, spent=spent))

    open_holds = read_by(load_open_holds)


def load_counting_holds(ask: Query, now: datetime) -> list[Hold]:
    """Return the open holds, and the ended ones of runs that no listing contains, for as long as a budget may look back."""
    since = to_micros(now - timedelta(days=LONGEST_ROLLING_DAYS + 1))
    spent = select(HoldRow).where(
        col(HoldRow.spent_nano).is_not(None), col(HoldRow.account) == "", col(HoldRow.ended_us) >= since
    )
    ended = map(_decode_hold, ask(spent.order_by(col(HoldRow.ended_us), col(HoldRow.id))))
    return [*load_open_holds(ask, now), *filter(is_unlisted_run, ended)]


def load_committed_holds(ask: Query, start: datetime, end: datetime) -> list[Hold]:
    """Return the holds of runs that ended within [start, end), earliest first; also of runs that outlasted their hold."""
    ended = select(HoldRow).where(
        or_(col(HoldRow.ended_by) == COMMITTED, col(HoldRow.spent_nano).is_not(None)),
        col(HoldRow.ended_us) >= to_micros(start),
        col(HoldRow.ended_us) < to_micros(end),
    )
    return [_decode_hold(row) for row in ask(ended.order_by(col(HoldRow.ended_us), col(HoldRow.id)))]


def make_hold_id() -> str:
    """Return a new random hold id."""
    return f"hold-{secrets.token_hex(6)}"


class _TransactionSpendingReader(SpendingReader):
    """A spending reader within an open transaction."""

    def __init__(self, ask: Query, rules: Mapping[str, BillingRule], ceilings: PriceCeilings) -> None:
        """Skip the base initializer, which opens a connection of its own."""
        self._reader = OpenSnapshot(ask)  # type: ignore[assignment]  # it has what is asked of a reader
        self._rules, self._ceilings, self._gap, self._unobserved = rules, ceilings, POLL_GAP, None


class _BudgetStandings:
    """The status of each budget that is asked for, within a transaction that takes holds. Each period is read once."""

    def __init__(self, books: SpendingReader, others: Sequence[Hold], now: datetime) -> None:
        self._books, self._others, self._now = books, others, now
        self._spendings: dict[Period, list[Spending]] = {}
        self._standings: dict[str, BudgetStatus] = {}
        self._burns: tuple[AttributedBurn, ...] | None = None

    def get_standing(self, budget: Budget, hold: Hold) -> BudgetStatus:
        """Return the status of `budget` with all holds so far; of a rate cap with all others than `hold`."""
        if budget.is_rate:
            return self._compute_rate(budget, [one for one in self._others if one.key != hold.key])
        if budget.name not in self._standings:
            self._standings[budget.name] = self._compute(budget, self._others, self._now)
        return self._standings[budget.name]

    def add_hold(self, hold: Hold, replaced: Hold | None) -> None:
        """Count a hold that was just taken, instead of the one that it replaces."""
        for name, one in self._standings.items():
            if counts_in_filter(hold, one.budget.match) and hold.money.currency == one.budget.cap.currency:
                self._standings[name] = replace(one, holds=_exclude_hold(one, replaced).holds + hold.money)
        self._others = [*(other for other in self._others if other.key != hold.key), hold]

    def _compute_rate(self, budget: Budget, others: Sequence[Hold]) -> BudgetStatus:
        now = self._now
        if self._burns is None:
            self._burns = list_burns(self._books.load_live(now), now)
        return compute_budget_status(budget, (), self._burns, holds=sum_open_rates(budget, others, self._burns, now), now=now)

    def _compute(self, budget: Budget, others: Sequence[Hold], now: datetime) -> BudgetStatus:
        period = find_budget_period(budget, now)
        if period not in self._spendings:
            self._spendings[period] = [*self._books.load_spending(period, now), *list_unlisted_spending(others, period)]
        return compute_budget_status(
            budget,
            self._spendings[period],
            (),
            holds=sum_open_holds(budget, others, now),
            now=now,
        )


def _require_same_run(stored: Hold, hold: Hold, now: datetime) -> None:
    """Raise InputError if `stored` has ended, or is not the hold of the same run: equal but for its times and amount."""
    field = f"hold {hold.id}"
    require(
        is_open_hold(stored, now), field, f"was taken before, and is {stored.ended_by or EXPIRED}", "take one with a new id"
    )
    require(stored.who == hold.who, field, "is the id of another hold", "take one with a new id")
    field_values = ((name, getattr(stored, name), getattr(hold, name)) for name in (*TEXT_COLUMNS, "labels"))
    pairs = [*field_values, ("currency", stored.money.currency, hold.money.currency)]
    changed = [f"{name} ({_format_stated(old)}, now {_format_stated(new)})" for name, old, new in pairs if old != new]
    what = f"is open for a run with another {' and '.join(changed)}"
    require(not changed, field, what, f"take one with a new id, or end it: costguard admit --release {hold.id}")


def _format_stated(value: str | tuple[tuple[str, str], ...]) -> str:
    """Return an attribute of a hold for people, shortened."""
    text = value if isinstance(value, str) else ", ".join("=".join(pair) for pair in value)
    return f"{text[:SHOWN_CHARS]}..." if len(text) > SHOWN_CHARS else text or "none"


def _exclude_hold(standing: BudgetStatus, stored: Hold | None) -> BudgetStatus:
    """Return the status of a budget without the open hold `stored`, if that counts in it."""
    if stored is None or standing.budget.is_rate or stored.money.currency != standing.budget.cap.currency:
        return standing
    return replace(standing, holds=standing.holds - stored.money)


def _admit_or_renew(hold: Hold, stored: Hold | None, standings: Iterable[BudgetStatus]) -> Admission:
    """Return the admission of `hold`, or of its renewal instead of the open hold `stored` of the same run.

    Less money (or an hour) than is held already needs no room in any budget. A renewal never ends earlier than before.
    """
    if stored is None:
        return admit_to_all(standings, hold.money, hold.hourly)
    if stored.money == hold.money and stored.hourly in (None, hold.hourly):
        return Admission(admitted=True, reason=ALREADY_HELD, asked=hold.money, until=stored.expires_at)
    admission = admit_to_all((_exclude_hold(one, stored) for one in standings), hold.money, hold.hourly)
    is_rate, hourly = admission.reason in RATE_REASONS, (stored.hourly, hold.hourly)
    is_faster = hourly[0] is not None and hourly[1] is not None and hourly[0].nano < hourly[1].nano
    asks_more = is_faster or (hold.hourly is None if is_rate else hold.money.nano > stored.money.nano)
    if not admission.admitted and asks_more:
        return replace(admission, was=stored.money, until=stored.expires_at)
    decided = admission if admission.admitted and not is_rate else Admission(admitted=True, reason=RENEWED, asked=hold.money)
    return replace(decided, reason=RENEWED, was=stored.money, until=max(hold.expires_at, stored.expires_at))


def _load_hold(ask: Query, hold_id: str, now: datetime) -> Hold:
    """Return the hold of this key, else the only one of this id, marked as expired if its time has run out.

    Raises InputError if there is none, or several tokens have one.
    """
    hold = _find_hold(ask, hold_id)
    if hold is None:
        same_id = select(HoldRow).where(col(HoldRow.id).endswith(f"/{hold_id}", autoescape=True)).order_by(col(HoldRow.id))
        holds = [_decode_hold(row) for row in ask(same_id)]
        require(bool(holds), f"hold {hold_id}", "is not a hold of this ledger", "costguard status lists the open ones")
        one_of = " or ".join(one.key for one in holds)
        require(len(holds) == 1, f"hold {hold_id}", "is the id of holds of several tokens", f"write {one_of}")
        hold = holds[0]
    if hold.ended_by or is_open_hold(hold, now):
        return hold
    return replace(hold, ended_at=hold.expires_at, ended_by=EXPIRED)


def _find_hold(ask: Query, key: str) -> Hold | None:
    return next(map(_decode_hold, ask(select(HoldRow).where(col(HoldRow.id) == key))), None)


def _make_storable(hold: Hold) -> Hold:
    """Return `hold` with its texts in the form that a database stores."""
    labels = tuple(sorted((make_storable(key), make_storable(value)) for key, value in hold.labels))
    return replace(hold, labels=labels, **pick_fields(hold, TEXT_COLUMNS))


def _insert_holds(tell: Execute, holds: Sequence[tuple[Hold, Sequence[Budget]]], *, replaced: Sequence[str]) -> None:
    """Write holds that are new, each with the budgets that it counts in, after removing the rows of the `replaced` ids."""
    for hold_id in replaced:
        tell(delete(HoldBudgetRow).where(col(HoldBudgetRow.hold_id) == hold_id))
        tell(delete(HoldRow).where(col(HoldRow.id) == hold_id))
    insert_rows(tell, [_encode_hold(hold) for hold, _ in holds])
    insert_rows(
        tell, [HoldBudgetRow(hold_id=hold.key, budget=make_storable(one.name)) for hold, budgets in holds for one in budgets]
    )


def _end_hold(tell: Execute, hold: Hold) -> Hold:
    """Write the end of `hold` and return it."""
    ended_us = None if hold.ended_at is None else to_micros(hold.ended_at)
    _write_ends(tell, [(ended_us, hold.ended_by, hold.spent.nano if hold.spent else None, hold.key)])
    return hold


def _end_expired_holds(ask: Query, tell: Execute, now: datetime) -> None:
    """Mark the expired holds as ended at their expiry."""
    expired = and_(col(HoldRow.ended_us).is_(None), col(HoldRow.expires_us) <= to_micros(now))
    rows = ask(select(HoldRow.expires_us, HoldRow.spent_nano, HoldRow.id).where(expired).order_by(col(HoldRow.id)))
    _write_ends(tell, [(expires_us, EXPIRED, spent, hold_id) for expires_us, spent, hold_id in rows])


def _write_ends(tell: Execute, rows: Sequence[SqlRow]) -> None:
    """Write the ends of holds: rows of when (microseconds), by what, spent (nano-units), and the hold."""
    names = ("ended_us", "ended_by", "spent_nano", "hold_id")
    ended = update(HoldRow).where(col(HoldRow.id) == bindparam("hold_id")).values({name: bindparam(name) for name in names[:3]})
    tell(ended, [dict(zip(names, row, strict=True)) for row in rows])


def _encode_hold(hold: Hold) -> HoldRow:
    """Return the row of a hold that has not ended."""
    return HoldRow(
        **pick_fields(hold, TEXT_COLUMNS),
        id=hold.key,
        nano=hold.money.nano,
        currency=hold.money.currency,
        labels=encode_labels(hold.labels),
        taken_us=to_micros(hold.taken_at),
        expires_us=to_micros(hold.expires_at),
        hourly_nano=None if hold.hourly is None else hold.hourly.nano,
    )


def _decode_hold(row: HoldRow) -> Hold:
    scope, _, name = row.id.rpartition("/")
    is_scoped = bool(scope) and row.who == describe_token(scope)
    return Hold(
        **pick_fields(row, TEXT_COLUMNS),
        id=name if is_scoped else row.id,
        scope=scope if is_scoped else "",
        money=Money(nano=row.nano, currency=row.currency),
        labels=tuple((key, value) for key, value in json.loads(row.labels)),
        taken_at=from_micros(row.taken_us),
        expires_at=from_micros(row.expires_us),
        ended_at=decode_optional_instant(row.ended_us),
        ended_by=row.ended_by or "",
        spent=None if row.spent_nano is None else Money(nano=row.spent_nano, currency=row.currency),
        hourly=None if row.hourly_nano is None else Money(nano=row.hourly_nano, currency=row.currency),
    )
