"""Read bills from the ledger: lines by resource and time cell, how far they reach, and past reconciliations.

Where an account has two statements for the same time (Cost Explorer and an export), one is used: the one that names resources,
else the one that covers more days, else the newer. The other is named, and never added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from costguard.bills.bill_schedule import ASKED_BACK_MAX, DoubtfulCharge
from costguard.bills.drift import BilledLines, ProviderBill, ReconciliationRecord
from costguard.ledger.db.codecs import Query, SqlRow
from costguard.ledger.db.reader import LedgerReader
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, HOUR_US, MICROSECOND, from_micros, to_micros

RECENT_US = timedelta(days=2) // MICROSECOND
"""An estimated line that ends so near to the newest one counts as late: it is not all there yet. An assumption, 2026-11."""
UNFINISHED = "SELECT import_id FROM bill_import_unfinished"
"""The imports that are being written, or whose process died (`unfinished`)."""
STATED = f"(replaced_us IS NULL OR replaced_by IN ({UNFINISHED})) AND import_id NOT IN ({UNFINISHED})"
"""The condition under which a row of `bill_line` counts: it is stated, whatever an unfinished import did."""

ROW_STEPS = (10_000_000, 1_000_000, 100_000)
"""Nano-units: a cent, a tenth and a hundredth of one."""


def count_own_import(ask: Query) -> Query:
    """Return `ask` as the ledger will answer once the present import counts. For whoever holds the lock of imports."""
    return lambda sql, values: ask(sql.replace(UNFINISHED, f"{UNFINISHED} WHERE undone = 1"), values)


class BillLedgerReader:
    """Read the bills of the ledger at `url`.

    Use it in a `with` statement.
    """

    def __init__(self, url: str) -> None:
        self._reader = LedgerReader(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reader.close()

    def _query(self, sql: str, values: Sequence[object]) -> Sequence[SqlRow]:
        with self._reader.snapshot() as ask:
            return ask(sql, values)

    def load_statements(self, provider: str, period: Period) -> tuple[dict[str, ProviderBill], list[ProviderBill]]:
        """Return the statement that counts for each account, and the list of those set aside."""
        with self._reader.snapshot() as ask:
            return load_statements(ask, provider, period)

    def load_billed_lines(self, provider: str, one: ProviderBill, period: Period, fine_us: int) -> list[BilledLines]:
        """Return the lines of a statement that lie entirely in `period`, summed by resource, kind of charge and cell.

        Cells are hours since 1970: each hour from `fine_us` on; before that, the first hour of each day.
        """
        start_us, end_us = to_micros(period.start), to_micros(period.end)
        place = (provider, one.account, one.name, start_us, end_us, end_us)
        rows = self._query(_STATED, (fine_us, fine_us, one.end_us - RECENT_US, *place))
        over = {tuple(row[:3]): row[3] for row in self._query(_LINES_ACROSS, place)}
        found = list[BilledLines]()
        for region, resource, charge, currency, first, last, high, low, lines, late, *steps, told in rows:
            step = next((size for size, count in zip(ROW_STEPS, steps, strict=True) if count == lines), 0)
            over_here = over.pop((resource, charge, currency), 0)
            nano = int(high) * 10**9 + int(low)
            found.append(
                BilledLines(
                    one.account,
                    region,
                    resource,
                    charge,
                    currency,
                    int(first),
                    int(last),
                    nano,
                    lines,
                    int(late),
                    step,
                    over_here,
                    told,
                )
            )
        return found

    def count_straddling(self, provider: str, one: ProviderBill, period: Period) -> int:
        """Return how many lines cross an edge of `period`: they are compared in neither of the two periods."""
        start_us, end_us = to_micros(period.start), to_micros(period.end)
        ((count,),) = self._query(_STRADDLING, (provider, one.account, one.name, end_us, start_us, start_us, end_us))
        return int(count)

    def load_last_import_time(self, provider: str, account: str, *, who: str, until: datetime) -> datetime | None:
        """Return when `who` last took in a current line of an account, by `until`; None: never.

        An import that changed no line of the account is not counted.
        """
        ((at_us,),) = self._query(_LAST_IMPORT, (provider, account, who, to_micros(until)))
        return None if at_us is None else from_micros(at_us)

    def load_doubtful_charges(self, provider: str, account: str, now: datetime) -> list[DoubtfulCharge]:
        """Return the closed spans of an account that a bill may still bound, and that ended not too long before `now`."""
        values = (provider, account, to_micros(now - ASKED_BACK_MAX))
        return [DoubtfulCharge(*row) for row in self._query(_DOUBTFUL, values)]

    def load_known_resources(self, provider: str) -> dict[tuple[str, str], int]:
        """Return (account, id) of every resource ever seen -> the hour since 1970 in which it was first seen.

        The hour is -1 where the provider states since when the resource exists.
        """
        return {(account, external_id): hour for account, external_id, hour in self._query(_KNOWN_RESOURCES, (provider,))}

    def list_accounts_of(self, provider: str) -> list[str]:
        """Return the accounts of `provider` that were ever polled."""
        return [account for (account,) in self._query(_ACCOUNTS, (provider,))]

    def list_billed_providers(self, period: Period) -> list[str]:
        """Return the providers with lines in `period`."""
        return [name for (name,) in self._query(_PROVIDERS, (to_micros(period.start), to_micros(period.end)))]

    def load_reconciliations(self, period: Period) -> list[ReconciliationRecord]:
        """Return the last reconciliations of `period`: see the function `load_reconciliations`."""
        with self._reader.snapshot() as ask:
            return load_reconciliations(ask, period)


def load_statements(ask: Query, provider: str, period: Period) -> tuple[dict[str, ProviderBill], list[ProviderBill]]:
    """Return the statement that counts for each account in `period`, and the list of those set aside."""
    values = (provider, to_micros(period.start), to_micros(period.end), to_micros(period.end))
    found = defaultdict[str, list[ProviderBill]](list)
    for account, name, lines, resources, days, start_us, end_us, newest in ask(_STATEMENTS, values):
        found[account].append(
            ProviderBill(
                account=account,
                name=name,
                lines=int(lines),
                resources=int(resources),
                days=days,
                start_us=start_us,
                end_us=end_us,
                newest=newest,
            )
        )
    best = {account: max(every, key=lambda one: (one.resources > 0, one.days, one.newest)) for account, every in found.items()}
    return best, [one for every in found.values() for one in every if one is not best[one.account]]


def load_reconciliations(ask: Query, period: Period) -> list[ReconciliationRecord]:
    """Return the last reconciliation per provider, account and currency that covers at least half of `period`."""
    rows = ask(_RECONCILIATIONS, (to_micros(period.end), to_micros(period.start)))
    found = dict[tuple[str, str, str], ReconciliationRecord]()
    for provider, account, currency, start_us, end_us, at_us, *amounts, outcome, tolerance, told in rows:
        its = Period(start=from_micros(start_us), end=from_micros(end_us))
        part = its.intersect(period)
        if part is None or 2 * part.length < period.length:
            continue
        billed, low, expected, high, unexplained, allowed = amounts
        found[provider, account, currency] = ReconciliationRecord(
            provider=provider,
            account=account,
            currency=currency,
            period=its,
            at=from_micros(at_us),
            billed=billed,
            charged=(low, expected, high),
            unexplained=unexplained,
            allowed=allowed,
            tolerance=tolerance,
            outcome=outcome,
            told=bool(told),
        )
    return [found[key] for key in sorted(found)]


_WHERE_STATEMENT = f"provider = ? AND account = ? AND statement = ? AND {STATED}"

_STATEMENTS = f"""
SELECT n.account, n.statement, max(n.lines), max(n.resources), max(n.days), min(i.start_us), max(i.end_us), max(i.id)
FROM (
    SELECT account, statement, import_id, sum(count(*)) OVER w AS lines,
        sum(sum(CASE external_id WHEN '' THEN 0 ELSE 1 END)) OVER w AS resources,
        max(count(DISTINCT start_us / {DAY_US})) OVER w AS days
    FROM bill_line WHERE provider = ? AND {STATED} AND start_us >= ? AND start_us < ? AND end_us <= ?
    GROUP BY account, statement, import_id WINDOW w AS (PARTITION BY account, statement)
) AS n
JOIN bill_import AS o ON o.id = n.import_id
JOIN bill_import AS i ON i.provider = o.provider AND i.source = o.source AND i.id NOT IN ({UNFINISHED})
GROUP BY n.account, n.statement ORDER BY n.account, n.statement
"""  # noqa: S608 - our own numbers
"""A statement reaches as far as every import from the sources that its lines came from, those that changed nothing, too."""

_STATED = f"""
SELECT region, external_id, charge, currency,
    CASE WHEN start_us >= ? THEN start_us / {HOUR_US} ELSE start_us / {DAY_US} * 24 END AS first_cell,
    CASE WHEN end_us > ? THEN (end_us - 1) / {HOUR_US} ELSE (end_us - 1) / {DAY_US} * 24 END AS last_cell,
    sum(nano / 1000000000), sum(nano - nano / 1000000000 * 1000000000), count(*),
    sum(CASE WHEN estimated = 1 AND end_us > ? THEN 1 ELSE 0 END),
    {", ".join(f"sum(CASE WHEN nano - nano / {size} * {size} = 0 THEN 1 ELSE 0 END)" for size in ROW_STEPS)},
    min(description)
FROM bill_line WHERE {_WHERE_STATEMENT} AND start_us >= ? AND start_us < ? AND end_us <= ?
GROUP BY region, external_id, charge, currency, first_cell, last_cell
ORDER BY external_id, charge, currency, region, first_cell, last_cell
"""  # noqa: S608 - our own names

_LINES_ACROSS = f"""
SELECT external_id, charge, currency, count(*) FROM (
    SELECT external_id, charge, currency, start_us, end_us,
        lag(start_us) OVER w AS start_before, lag(end_us) OVER w AS end_before,
        max(end_us) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
    FROM bill_line WHERE {_WHERE_STATEMENT} AND start_us >= ? AND start_us < ? AND end_us <= ?
        AND external_id <> '' AND charge NOT IN ('tax', 'credit')
    WINDOW w AS (PARTITION BY external_id, charge, currency, region, description ORDER BY start_us, end_us DESC)
) AS line
WHERE reached > start_us AND NOT (start_before = start_us AND end_before = end_us)
GROUP BY external_id, charge, currency
"""  # noqa: S608 - our own names
"""Lines that begin before one before them ends, and are not of the same time as the last one: hours beside their day."""

_STRADDLING = f"""
SELECT count(*) FROM bill_line WHERE {_WHERE_STATEMENT} AND start_us < ? AND end_us > ? AND (start_us < ? OR end_us > ?)
"""  # noqa: S608 - our own names

_PROVIDERS = f"""
SELECT DISTINCT provider FROM bill_line WHERE {STATED} AND start_us >= ? AND start_us < ? ORDER BY provider
"""  # noqa: S608 - our own names

_LAST_IMPORT = f"""
SELECT max(i.at_us) FROM bill_line AS l JOIN bill_import AS i ON i.id = l.import_id
WHERE l.provider = ? AND l.account = ? AND {STATED} AND i.who = ? AND i.at_us <= ?
"""  # noqa: S608 - our own names

_DOUBTFUL = """
SELECT s.id, s.start_us, s.end_us FROM span AS s JOIN resource AS r ON r.id = s.resource_id
LEFT JOIN correction AS c ON c.id = (SELECT max(x.id) FROM correction AS x WHERE x.span_id = s.id)
WHERE r.provider = ? AND r.account = ? AND s.end_us > ? AND s.charge <> 'traffic'
    AND coalesce(c.low, s.low) < coalesce(c.high, s.high)
"""

_ACCOUNTS = "SELECT DISTINCT account FROM scope WHERE provider = ? ORDER BY account"

_KNOWN_RESOURCES = f"""
SELECT r.account, r.external_id, CASE WHEN EXISTS (
    SELECT 1 FROM observation AS o
    WHERE o.resource_id = r.id AND (o.started_us IS NOT NULL OR replace(o.detail, '"created_at":', '') <> o.detail)
) THEN -1 ELSE r.first_seen_us / {HOUR_US} END
FROM resource AS r WHERE r.provider = ?
"""  # noqa: S608 - our own number
"""Of what says since when it is there, costguard knows the beginning, however late it looked."""

_RECONCILIATIONS = """
SELECT provider, account, currency, start_us, end_us, at_us, billed, low, expected, high, unexplained, allowed, outcome,
    tolerance, told
FROM reconciliation WHERE start_us < ? AND end_us > ? ORDER BY id
"""
