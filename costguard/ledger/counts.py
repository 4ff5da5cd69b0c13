"""Counts for metrics within one snapshot: polls, acts, messages, and the size of the ledger.

Polls, intents and the audit log are never deleted, so their counts never fall. Settled messages are deleted after 30 days and
guard runs after some days: what became of messages is counted as it happens (`message_count`), and guard runs have numbers,
which only rise.
"""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Executable, case, func
from sqlmodel import col, select

from costguard.guard.action_intents import OPEN_STATES
from costguard.ledger.db.address import LedgerAddress
from costguard.ledger.db.codecs import Query, decode_optional_instant
from costguard.ledger.guard.outbox import get_counted_channel
from costguard.ledger.tables.audit import AuditRow
from costguard.ledger.tables.guard import GuardRunRow
from costguard.ledger.tables.intents import IntentRow
from costguard.ledger.tables.notices import MessageCountRow, OutboxRow
from costguard.ledger.tables.spans import AccountStateRow, CoverageRow, LedgerStateRow, ScopeRow
from costguard.reporting.metrics import ChannelCount, LedgerCounts

SENT, GAVE_UP, WAITING = "sent", "gave_up", "waiting"

_IS_SENT, _IS_GIVEN_UP = col(OutboxRow.sent_us).is_not(None), col(OutboxRow.gave_up_us).is_not(None)
_POLLS = (
    select(ScopeRow.provider, CoverageRow.outcome, func.sum(CoverageRow.polls))
    .join(CoverageRow, col(CoverageRow.scope_id) == ScopeRow.id)
    .group_by(col(ScopeRow.provider), col(CoverageRow.outcome))
)
_INTENTS = select(IntentRow.act, IntentRow.state, func.count()).group_by(col(IntentRow.act), col(IntentRow.state))
_MESSAGES = select(
    case((_IS_SENT, SENT), (_IS_GIVEN_UP, GAVE_UP), else_=WAITING).label("outcome"), func.count(), func.min(OutboxRow.at_us)
).group_by("outcome")
_CHANNELS = select(MessageCountRow.channel, MessageCountRow.sent, MessageCountRow.gave_up, MessageCountRow.tries_failed)
_WAITING = select(OutboxRow.channel, func.count()).where(~_IS_SENT, ~_IS_GIVEN_UP).group_by(col(OutboxRow.channel))


def load_counts(ask: Query, where: LedgerAddress) -> LedgerCounts:
    """Return the counts of the ledger at `where`, through a query function on it."""
    messages = {outcome: (number, oldest) for outcome, number, oldest in ask(_MESSAGES)}
    is_open = col(IntentRow.state).in_(OPEN_STATES)
    return LedgerCounts(
        polls=_count_pairs(ask, _POLLS),
        acts=_count_pairs(ask, _INTENTS.where(~is_open)),
        intents=_count_pairs(ask, _INTENTS.where(is_open)),
        messages={outcome: messages.get(outcome, (0, None))[0] for outcome in (SENT, GAVE_UP, WAITING)},
        channels={channel: ChannelCount(*numbers) for channel, *numbers in ask(_CHANNELS.order_by(col(MessageCountRow.id)))},
        waiting=Counter(get_counted_channel(channel) for channel, number in ask(_WAITING) for _ in range(number)),
        oldest_waiting_at=decode_optional_instant(messages.get(WAITING, (0, None))[1]),
        runs=load_last_run_number(ask),
        writes=sum(int(ask(select(func.coalesce(func.sum(row.revision), 0)))[0]) for row in (LedgerStateRow, AccountStateRow)),
        audit_entries=_load_last_number(ask, AuditRow.seq),
        size_bytes=_measure_size(ask, where),
    )


def load_last_run_number(ask: Query) -> int:
    """Return the number of the newest guard run, 0 before the first one."""
    return _load_last_number(ask, GuardRunRow.id)


def _load_last_number(ask: Query, column: int) -> int:
    number: int = ask(select(func.coalesce(func.max(column), 0)))[0]
    return number


def _count_pairs(ask: Query, statement: Executable) -> dict[tuple[str, ...], int]:
    return {(first, second): int(number) for first, second, number in ask(statement)}


def _measure_size(ask: Query, where: LedgerAddress) -> int:
    """Return the bytes of a file and its log, or of a server's database."""
    if where.path is None:
        size: int = ask(select(func.pg_database_size(func.current_database())))[0]
        return size
    files = (where.path, where.make_sibling_path("-wal"))
    return sum(one.stat().st_size for one in files if one.exists())
