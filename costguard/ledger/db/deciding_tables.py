"""The tables whose rows decide who pays or whether a machine is stopped, and the columns of each that are hashed.

`row_digests` records a digest of each row that is written to them, and `row_check` compares the rows with the digests. Every
table of the ledger is named here once: as deciding, or with the reason why it is not (a test compares this with the schema).

A row is hashed in two parts: what is written with it (`fixed`), and what is set later (`later`): a span gets its end, a bill
line is replaced. A digest of the first part stays valid when the second is set.

    add a table     one DecidingTable here; its writers call RowRecorder.add, change and remove in their transaction
    add a column    its name and default in `added` of its table: rows that have the default keep the digest they have
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_PLACE = "provider account region external_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidingTable:
    """A table whose rows are hashed. All columns are 64-bit numbers or texts, and some may be NULL.

    `key`: the columns that name a row. `fixed`: the others that are written with it and never change. `later`: the columns
    that are set afterwards, NULL before; of a sealed table, those that change often. `added`: columns that a later migration
    added to the fixed ones, with the value that older rows have; a column with that value is left out of the digest.
    `chained`: digests go into the audit log. `sealed`: the digest of `later` is in `row_seal`, and overwritten with each
    change, because it changes with every poll or guard run: the audit log would grow by an entry a minute.
    """

    name: str
    key: tuple[str, ...]
    fixed: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    added: Mapping[str, object] = field(default_factory=dict)
    chained: bool = True
    sealed: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in the order in which they are hashed."""
        return (*self.key, *self.fixed, *self.later, *self.added)


def _declare(name: str, key: str, fixed: str = "", later: str = "", *, sealed: bool = False) -> DecidingTable:
    """Return a table whose digests are in the audit log; with `sealed`, those of `later` are in `row_seal` as well."""
    named, written, changed = (tuple(names.split()) for names in (key, fixed, later))
    return DecidingTable(name=name, key=named, fixed=written, later=changed, sealed=sealed)


def _declare_state(name: str, key: str, later: str, added: str = "") -> DecidingTable:
    """Return a table of the guard's present state, whose rows change or go with many guard runs: it is sealed only.

    `added`: columns of a later migration, NULL in older rows.
    """
    new = dict.fromkeys(added.split(), None)
    return DecidingTable(name=name, key=tuple(key.split()), later=tuple(later.split()), added=new, chained=False, sealed=True)


DECIDING_TABLES = {
    table.name: table
    for table in (
        _declare("scope", "id", "provider account name"),
        _declare("coverage", "id", "scope_id outcome why start_us", "end_us polls", sealed=True),
        _declare("resource", "id", f"scope_id {_PLACE} kind first_seen_us"),
        _declare("attribution", "id", "provider account region kind gpu gpu_count_milli tier owner instance_type labels"),
        _declare("observation", "id", "resource_id at_us seen_us state name instance_type owner started_us stopped_us detail"),
        _declare(
            "span",
            "id",
            "resource_id attribution_id charge part unit quantity quantum_s minimum_s price_low price_expected price_high "
            "currency price_known price_source presence anchor_us start_us why",
            "end_us ended_by low expected high",
        ),
        _declare("correction", "id", "span_id at_us presence reason low expected high"),
        _declare("correction_part", "correction_id start_us", "end_us presence price_known bill_line_id low expected high us"),
        _declare("bill_import", "id", "at_us who provider source start_us end_us stated_us whole why lines"),
        _declare("bill_import_unfinished", "import_id", "lines_after", "undone"),
        _declare(
            "bill_line",
            "id",
            "import_id provider account statement line_id start_us end_us nano currency charge external_id region estimated "
            "stated_us source description",
            "replaced_us replaced_by replaced_why",
        ),
        _declare(
            "reconciliation",
            "id",
            "at_us who provider account currency start_us end_us billed low expected high unexplained allowed outcome "
            "tolerance told",
        ),
        _declare("bill_adjustment", "id", "reconciliation_id cause charge sku currency nano explained resources lines reason"),
        _declare(
            "hold",
            "id",
            "nano currency who why provider account owner gpu labels taken_us expires_us",
            "ended_us ended_by spent_nano",
        ),
        _declare("hold_budget", "hold_id budget"),
        _declare("agent_code", "hash", f"{_PLACE} life who at_us expires_us", "used_us used_by"),
        _declare("web_token", "hash", "name role who made_us expires_us", "revoked_us revoked_by"),
        _declare("web_invite", "hash", "name role who made_us expires_us", "used_us"),
        _declare("web_session", "hash", "name role invite made_us expires_us", "revoked_us revoked_by"),
        _declare("ask_link", "hash", f"addressee policy {_PLACE} act episode made_us expires_us", "settled_us answer"),
        _declare("intent_event", "id", "intent_id at_us moved_from moved_to why epoch run"),
        _declare_state(
            "climb", f"policy {_PLACE} life", "since_us started_us done left_polls meaning promised", "announced_us"
        ),
        _declare_state("protection_seen", _PLACE, "at_us how"),
        _declare_state("notice_delivery", "message_id channel topic subject", "notice_us delivered_us", "owner"),
        _declare_state("guard_run", "id", "run_id at_us epoch interval_us skew_us outcome notes facts"),
        _declare_state("turn", "id", "epoch rounds holder until_us"),
    )
}
"""By name. The order of the columns is part of the digests: it never changes."""

OTHER_TABLES = {
    "account_audit": "is a chain of hashes itself",
    "account_digest": "account_audit has the hash of its rows",
    "account_head": "the audit log has the heads; this only tells what is to be taken over next",
    "account_state": "the first row of each account's chain names it; revision only tells a writer to read again",
    "agent": "the audit log records who joined and was revoked; seq, record_ms, beat_us, version and troubles are "
    "overwritten by each message of the agent",
    "alembic_version": "names the schema",
    "audit": "is a chain of hashes itself",
    "daily": "is derived: the check adds up the spans and compares",
    "duty": "who polls next: no poll is believed because of it, only refused",
    "hook_run": "the audit log records each row",
    "hourly": "is derived: the check compares it with the spans",
    "intent": "the audit log records each row",
    "ledger_state": "the audit log names the ledger; revision only tells a writer to read again",
    "message_count": "counts for metrics: no act depends on it",
    "monthly": "is derived: the check compares it with the days and the spans",
    "notice_state": "what people were told: no act depends on it",
    "outbox": "messages on their way: a grace begins with a row of notice_delivery",
    "poll_view": "what the next poll of the account replaces: an act looks at the machine itself right before it",
    "row_digest": "the audit log has the hash of its rows",
    "row_seal": "compared with the rows that it seals",
    "sample": "measured, and rolled up after 48 h: an act needs samples taken at that moment",
    "sample_hour": "sums of samples",
    "wish": "the audit log records each row",
}
"""Every other table, and why its rows are not hashed here."""
