"""Counts for metrics within one snapshot: polls, acts, messages, and the size of the ledger.

Polls, intents and the audit log are never deleted, so their counts never fall. Settled messages are deleted after 30 days and
guard runs after some days: what became of messages is counted as it happens (`message_count`), and guard runs have numbers,
which only rise.
"""

from __future__ import annotations

from collections import Counter

from costguard.guard.action_intents import OPEN_STATES
from costguard.ledger.db.address import LedgerAddress
from costguard.ledger.db.codecs import Query, decode_optional_instant, format_placeholders
from costguard.ledger.guard.outbox import get_counted_channel
from costguard.reporting.metrics import ChannelCount, LedgerCounts

SENT, GAVE_UP, WAITING = "sent", "gave_up", "waiting"

_POLLS = """
SELECT s.provider, c.outcome, sum(c.polls) FROM coverage c JOIN scope s ON s.id = c.scope_id GROUP BY s.provider, c.outcome
"""
_INTENTS = "SELECT act, state, count(*) FROM intent WHERE state {} ({}) GROUP BY act, state"
_MESSAGES = """
SELECT CASE WHEN sent_us IS NOT NULL THEN 'sent' WHEN gave_up_us IS NOT NULL THEN 'gave_up' ELSE 'waiting' END AS outcome,
    count(*), min(at_us) FROM outbox GROUP BY outcome
"""
_CHANNELS = "SELECT channel, sent, gave_up, tries_failed FROM message_count ORDER BY id"
_WAITING = "SELECT channel, count(*) FROM outbox WHERE sent_us IS NULL AND gave_up_us IS NULL GROUP BY channel"
_MARKS = """
SELECT (SELECT coalesce(max(id), 0) FROM guard_run),
    (SELECT revision + (SELECT coalesce(sum(revision), 0) FROM account_state) FROM ledger_state),
    (SELECT coalesce(max(seq), 0) FROM audit)
"""


def load_counts(ask: Query, where: LedgerAddress) -> LedgerCounts:
    """Return the counts of the ledger at `where`, through a query function on it."""
    marks = format_placeholders(OPEN_STATES)
    messages = {outcome: (int(number), oldest) for outcome, number, oldest in ask(_MESSAGES, ())}
    ((runs, writes, audit_entries),) = ask(_MARKS, ())
    return LedgerCounts(
        polls={(provider, outcome): int(polls) for provider, outcome, polls in ask(_POLLS, ())},
        acts={(act, state): int(number) for act, state, number in ask(_INTENTS.format("NOT IN", marks), OPEN_STATES)},
        intents={(act, state): int(number) for act, state, number in ask(_INTENTS.format("IN", marks), OPEN_STATES)},
        messages={outcome: messages.get(outcome, (0, None))[0] for outcome in (SENT, GAVE_UP, WAITING)},
        channels={channel: ChannelCount(*map(int, numbers)) for channel, *numbers in ask(_CHANNELS, ())},
        waiting=Counter(get_counted_channel(channel) for channel, number in ask(_WAITING, ()) for _ in range(int(number))),
        oldest_waiting_at=decode_optional_instant(messages.get(WAITING, (0, None))[1]),
        runs=int(runs),
        writes=int(writes),
        audit_entries=int(audit_entries),
        size_bytes=_measure_size(ask, where),
    )


def load_last_run_number(ask: Query) -> int:
    """Return the number of the newest guard run, 0 before the first one."""
    ((number,),) = ask("SELECT coalesce(max(id), 0) FROM guard_run", ())
    return int(number)


def _measure_size(ask: Query, where: LedgerAddress) -> int:
    """Return the bytes of a file and its log, or of a server's database."""
    if where.path is None:
        ((size,),) = ask("SELECT pg_database_size(current_database())", ())
        return int(size)
    files = (where.path, where.make_sibling_path("-wal"))
    return sum(one.stat().st_size for one in files if one.exists())
