"""The tables of the guard, of revision 0002, written out like the others."""

from __future__ import annotations

GUARD_STATEMENTS = (
    """
CREATE TABLE IF NOT EXISTS wish (
    id TEXT NOT NULL,
    what TEXT NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    at_us {BIG} NOT NULL,
    until_us {BIG},
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    life TEXT NOT NULL,
    subject TEXT NOT NULL,
    value TEXT NOT NULL,
    lifted_us {BIG},
    lifted_by TEXT,
    PRIMARY KEY (id),
    CONSTRAINT wish_lifted_whole CHECK ((lifted_us IS NULL) = (lifted_by IS NULL))
) {STRICT}
""",
    """
CREATE TABLE IF NOT EXISTS intent (
    id TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    life TEXT NOT NULL,
    act TEXT NOT NULL,
    policy TEXT NOT NULL,
    rule TEXT NOT NULL,
    why TEXT NOT NULL,
    evidence TEXT NOT NULL,
    state TEXT NOT NULL,
    created_us {BIG} NOT NULL,
    moved_us {BIG} NOT NULL,
    epoch {BIG} NOT NULL,
    lose TEXT NOT NULL,
    irreversible {BIG} NOT NULL,
    sends {BIG} NOT NULL,
    sent_us {BIG},
    expires_us {BIG},
    outcome TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT intent_counts CHECK (irreversible IN (0, 1) AND sends >= 0)
) {STRICT}
""",
    """
CREATE UNIQUE INDEX IF NOT EXISTS intent_open_once ON intent (provider, account, region, external_id, life, act)
    WHERE state IN ('planned', 'grace', 'ready', 'executing', 'verifying', 'unconfirmed')
""",
    """
CREATE UNIQUE INDEX IF NOT EXISTS intent_in_flight_once ON intent (provider, account, region, external_id)
    WHERE state = 'executing'
""",
    "CREATE INDEX IF NOT EXISTS intent_by_sent ON intent (sent_us)",
    """
CREATE TABLE IF NOT EXISTS intent_event (
    id {KEY} NOT NULL,
    intent_id TEXT NOT NULL REFERENCES intent (id),
    at_us {BIG} NOT NULL,
    moved_from TEXT NOT NULL,
    moved_to TEXT NOT NULL,
    why TEXT NOT NULL,
    epoch {BIG} NOT NULL,
    run TEXT NOT NULL,
    PRIMARY KEY (id)
) {STRICT}
""",
    "CREATE INDEX IF NOT EXISTS intent_event_by_intent ON intent_event (intent_id, id)",
    "CREATE INDEX IF NOT EXISTS intent_event_sends ON intent_event (at_us) WHERE moved_to = 'executing'",
    "CREATE INDEX IF NOT EXISTS intent_event_run ON intent_event (run) WHERE moved_to = 'executing'",
    """
CREATE TABLE IF NOT EXISTS hook_run (
    id TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    life TEXT NOT NULL,
    policy TEXT NOT NULL,
    rule TEXT NOT NULL,
    number {BIG} NOT NULL,
    hook TEXT NOT NULL,
    began_us {BIG} NOT NULL,
    until_us {BIG} NOT NULL,
    epoch {BIG} NOT NULL,
    state TEXT NOT NULL,
    ended_us {BIG},
    status {BIG},
    why TEXT NOT NULL,
    output TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT hook_run_ended_whole CHECK ((state = 'begun') = (ended_us IS NULL))
) {STRICT}
""",
    """
CREATE UNIQUE INDEX IF NOT EXISTS hook_run_open_once ON hook_run (provider, account, region, external_id, life, policy, number)
    WHERE state = 'begun'
""",
    "CREATE INDEX IF NOT EXISTS hook_run_by_beginning ON hook_run (began_us)",
    """
CREATE TABLE IF NOT EXISTS climb (
    policy TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    life TEXT NOT NULL,
    since_us {BIG} NOT NULL,
    started_us {BIG} NOT NULL,
    done TEXT NOT NULL,
    left_polls {BIG} NOT NULL,
    PRIMARY KEY (policy, provider, account, region, external_id, life)
) {PACKED}
""",
    """
CREATE TABLE IF NOT EXISTS protection_seen (
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    at_us {BIG} NOT NULL,
    how TEXT NOT NULL,
    PRIMARY KEY (provider, account, region, external_id)
) {PACKED}
""",
    """
CREATE TABLE IF NOT EXISTS notice_state (
    route TEXT NOT NULL,
    topic TEXT NOT NULL,
    subject TEXT NOT NULL,
    owner TEXT NOT NULL,
    told TEXT NOT NULL,
    PRIMARY KEY (route, topic, subject, owner)
) {PACKED}
""",
    """
CREATE TABLE IF NOT EXISTS outbox (
    id {KEY} NOT NULL,
    message_id TEXT NOT NULL,
    channel TEXT NOT NULL,
    payload TEXT NOT NULL,
    at_us {BIG} NOT NULL,
    tries {BIG} NOT NULL,
    next_us {BIG} NOT NULL,
    sent_us {BIG},
    gave_up_us {BIG},
    why TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT outbox_once UNIQUE (message_id, channel),
    CONSTRAINT outbox_settled_once CHECK (sent_us IS NULL OR gave_up_us IS NULL)
) {STRICT}
""",
    "CREATE INDEX IF NOT EXISTS outbox_due ON outbox (next_us) WHERE sent_us IS NULL AND gave_up_us IS NULL",
    """
CREATE TABLE IF NOT EXISTS turn (
    id {BIG} NOT NULL,
    epoch {BIG} NOT NULL,
    rounds {BIG} NOT NULL,
    holder TEXT NOT NULL,
    until_us {BIG} NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT turn_one_row CHECK (id = 1)
) {STRICT}
""",
    """
CREATE TABLE IF NOT EXISTS guard_run (
    id {KEY} NOT NULL,
    run_id TEXT NOT NULL,
    at_us {BIG} NOT NULL,
    epoch {BIG} NOT NULL,
    interval_us {BIG} NOT NULL,
    skew_us {BIG} NOT NULL,
    outcome TEXT NOT NULL,
    notes TEXT NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT guard_run_once UNIQUE (run_id)
) {STRICT}
""",
)
