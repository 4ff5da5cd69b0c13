PRAGMA application_id = 1128746052;
PRAGMA journal_mode = wal;
BEGIN TRANSACTION;
CREATE TABLE agent (
    id TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    life TEXT NOT NULL,
    public_key TEXT NOT NULL,
    joined_us INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    record_ms INTEGER NOT NULL,
    beat_us INTEGER,
    version TEXT NOT NULL,
    troubles TEXT NOT NULL,
    revoked_us INTEGER,
    revoked_by TEXT,
    PRIMARY KEY (id),
    CONSTRAINT agent_revoked_whole CHECK ((revoked_us IS NULL) = (revoked_by IS NULL)),
    CONSTRAINT agent_counts CHECK (seq >= 0)
) STRICT
;
CREATE TABLE agent_code (
    hash TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    life TEXT NOT NULL,
    who TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    used_us INTEGER,
    used_by TEXT,
    PRIMARY KEY (hash),
    CONSTRAINT agent_code_used_whole CHECK ((used_us IS NULL) = (used_by IS NULL))
) STRICT
;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE attribution (
    id INTEGER NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    kind TEXT NOT NULL,
    gpu TEXT NOT NULL,
    gpu_count_milli INTEGER NOT NULL,
    tier TEXT NOT NULL,
    owner TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    labels TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT attribution_once UNIQUE
        (provider, account, region, kind, gpu, gpu_count_milli, tier, owner, instance_type, labels)
) STRICT
;
INSERT INTO "attribution" VALUES(1,'aws','123456789012','us-east-1','instance','A10G',1000,'on-demand','ben','g5.xlarge','[]');
INSERT INTO "attribution" VALUES(2,'aws','123456789012','us-east-1','instance','H100-SXM',8000,'on-demand','ada','p5.48xlarge','[["team","vision"]]');
CREATE TABLE audit (
    seq INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (seq),
    CONSTRAINT audit_counts_from_one CHECK (seq >= 1)
) STRICT
;
INSERT INTO "audit" VALUES(1,1795359575637554,'began','{"ledger":"eca305b4-ac28-46ad-9527-91d22a7285ce"}','0000000000000000000000000000000000000000000000000000000000000000','c4d61ae24a180781a57c5585b423461cdd1062b219a99b6c26c886872e26e771');
INSERT INTO "audit" VALUES(2,1795359575637554,'adopted','{"account":"","id":"w-arm","life":"","lifted_by":null,"provider":"","region":"","resource":"","row":"d25b0750a4e9452cddbe7268bbd0af0f5fe80bd34bf1c928cee3b412e5c8918c","subject":"idle-gpu","table":"wish","until_us":1803038400000000,"value":"stop","what":"arm","who":"settings file"}','c4d61ae24a180781a57c5585b423461cdd1062b219a99b6c26c886872e26e771','44f727c156afc6ccfb3cc7529abd214fbf55a6d8c99e7d548933c1d8f203c351');
INSERT INTO "audit" VALUES(3,1795359575637554,'adopted','{"account":"","id":"w-freeze","life":"","lifted_by":"ben@lab","provider":"","region":"","resource":"","row":"e2f05b4a4f28e535c7c3eb84aa3891cacca0ad881a9e5c6bb04b1ba8e964444c","subject":"","table":"wish","until_us":null,"value":"","what":"freeze","who":"ada@lab"}','44f727c156afc6ccfb3cc7529abd214fbf55a6d8c99e7d548933c1d8f203c351','97ed1332ea726bc40edff3311bd3ff99c8a6973d4ae5a0a4236fa0c101cf0a72');
INSERT INTO "audit" VALUES(4,1795359575637554,'adopted','{"account":"123456789012","id":"w-lease","life":"","lifted_by":null,"provider":"aws","region":"us-east-1","resource":"i-0a1b","row":"faee1de3e8e7aa9e7d7448a9a6228643c317ec57bc08f1e3bcab1ee892e5d343","subject":"","table":"wish","until_us":1795276800000000,"value":"","what":"lease","who":"ada@lab"}','97ed1332ea726bc40edff3311bd3ff99c8a6973d4ae5a0a4236fa0c101cf0a72','bf8e35cd496b57cc2d1243171e2183cd54bae00ac74fcabccdc9e4ab9ae04ce3');
INSERT INTO "audit" VALUES(5,1795359575637554,'adopted','{"account":"123456789012","act":"stop","epoch":1,"events":["ac4eec44f75adf003d0ba28a080db251a377742427e7660a765e980196a9397b"],"id":"stop-i-0a1b","life":"1795154400000000/-","policy":"idle-gpu","provider":"aws","region":"us-east-1","resource":"i-0a1b","row":"2a9a1d552e5763dae9e994bd731e8e0ddf3b61f0bae1d02a8e8fc9079270f353","rule":"idle","sends":0,"table":"intent"}','bf8e35cd496b57cc2d1243171e2183cd54bae00ac74fcabccdc9e4ab9ae04ce3','2f4730db5a26a29032c4bf98899769e06a15b7e147cb4c56d5eab7f31f72a2fd');
INSERT INTO "audit" VALUES(6,1795359575637554,'adopted','{"account":"123456789012","act":"stop","epoch":1,"events":["802a05829591b2b4fb058716a19a8cbbeeba99dfc359894936b235fc949b9c89","f14dd0b18f98fa9d0163b25905e9e1c745041eade1c5d0f7b1f35de6d6d11c90","6c6a59dde5e6e3891644150907b062dc6b1e86072a63647f62c4bc4db9eec5b7","4dbdbccdb88ae8e66feda54a2c03ccac750014838ab679cdd3918a762b754fd5"],"id":"stop-i-0c2d","life":"1795118400000000/-","policy":"idle-gpu","provider":"aws","region":"us-east-1","resource":"i-0c2d","row":"0c3098f364d059ee55d345e5da7a74a4670b1d6e440e156121e5fd100d63505c","rule":"idle","sends":1,"table":"intent"}','2f4730db5a26a29032c4bf98899769e06a15b7e147cb4c56d5eab7f31f72a2fd','dadce2efba4b38e25cab117cb6592457e371374f9bd1b51e819e566317f09ad4');
INSERT INTO "audit" VALUES(7,1795359575637554,'settings','{"before":"","mark":"0f1e2d3c4b5a6978"}','dadce2efba4b38e25cab117cb6592457e371374f9bd1b51e819e566317f09ad4','648096e5406e680bb1feea4d2e400bb2c1bb3230d0a218135224a0fde7b7a204');
CREATE TABLE bill_adjustment (
    id INTEGER NOT NULL,
    reconciliation_id INTEGER NOT NULL REFERENCES reconciliation (id),
    cause TEXT NOT NULL,
    charge TEXT NOT NULL,
    sku TEXT NOT NULL,
    currency TEXT NOT NULL,
    nano INTEGER NOT NULL,
    explained INTEGER NOT NULL,
    resources INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT bill_adjustment_explained CHECK (explained IN (0, 1))
) STRICT
;
CREATE TABLE bill_import (
    id INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    who TEXT NOT NULL,
    provider TEXT NOT NULL,
    source TEXT NOT NULL,
    start_us INTEGER NOT NULL,
    end_us INTEGER NOT NULL,
    stated_us INTEGER NOT NULL,
    whole INTEGER NOT NULL,
    why TEXT NOT NULL,
    lines INTEGER NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT bill_import_in_order CHECK (whole IN (0, 1) AND start_us <= end_us)
) STRICT
;
CREATE TABLE bill_line (
    id INTEGER NOT NULL,
    import_id INTEGER NOT NULL REFERENCES bill_import (id),
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    statement TEXT NOT NULL,
    line_id TEXT NOT NULL,
    start_us INTEGER NOT NULL,
    end_us INTEGER NOT NULL,
    nano INTEGER NOT NULL,
    currency TEXT NOT NULL,
    charge TEXT NOT NULL,
    external_id TEXT NOT NULL,
    region TEXT NOT NULL,
    estimated INTEGER NOT NULL,
    stated_us INTEGER NOT NULL,
    source TEXT NOT NULL,
    description TEXT NOT NULL,
    replaced_us INTEGER,
    replaced_by INTEGER REFERENCES bill_import (id),
    replaced_why TEXT,
    PRIMARY KEY (id),
    CONSTRAINT bill_line_in_order CHECK (start_us < end_us AND estimated IN (0, 1)),
    CONSTRAINT bill_line_charge
        CHECK (charge IN ('compute', 'storage', 'address', 'traffic', 'other', 'credit', 'tax')),
    CONSTRAINT bill_line_replaced_whole
        CHECK ((replaced_us IS NULL) = (replaced_by IS NULL) AND (replaced_us IS NULL) = (replaced_why IS NULL))
) STRICT
;
CREATE TABLE climb (
    policy TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    life TEXT NOT NULL,
    since_us INTEGER NOT NULL,
    started_us INTEGER NOT NULL,
    done TEXT NOT NULL,
    left_polls INTEGER NOT NULL,
    PRIMARY KEY (policy, provider, account, region, external_id, life)
) STRICT, WITHOUT ROWID
;
CREATE TABLE correction (
    id INTEGER NOT NULL,
    span_id INTEGER NOT NULL REFERENCES span (id),
    at_us INTEGER NOT NULL,
    presence TEXT NOT NULL,
    reason TEXT NOT NULL,
    low INTEGER NOT NULL,
    expected INTEGER NOT NULL,
    high INTEGER NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT correction_presence CHECK (presence IN ('seen', 'gap', 'edge', 'maybe')),
    CONSTRAINT correction_amounts CHECK (0 <= low AND low <= expected AND expected <= high)
) STRICT
;
CREATE TABLE coverage (
    id INTEGER NOT NULL,
    scope_id INTEGER NOT NULL REFERENCES scope (id),
    outcome TEXT NOT NULL,
    why TEXT NOT NULL,
    start_us INTEGER NOT NULL,
    end_us INTEGER NOT NULL,
    polls INTEGER NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT coverage_outcome CHECK (outcome IN ('complete', 'partial', 'failed')),
    CONSTRAINT coverage_in_order CHECK (end_us >= start_us AND polls >= 1)
) STRICT
;
INSERT INTO "coverage" VALUES(1,1,'complete','',1795122000000000,1795122000000000,1);
INSERT INTO "coverage" VALUES(2,1,'complete','',1795125600000000,1795125600000000,1);
INSERT INTO "coverage" VALUES(3,1,'complete','',1795129200000000,1795129200000000,1);
INSERT INTO "coverage" VALUES(4,1,'complete','',1795136400000000,1795136400000000,1);
INSERT INTO "coverage" VALUES(5,1,'complete','',1795154400000000,1795154400000000,1);
INSERT INTO "coverage" VALUES(6,1,'complete','',1795158000000000,1795159200000000,6);
CREATE TABLE daily (
    day INTEGER NOT NULL,
    attribution_id INTEGER NOT NULL REFERENCES attribution (id),
    charge TEXT NOT NULL,
    currency TEXT NOT NULL,
    known INTEGER NOT NULL,
    low INTEGER NOT NULL,
    expected INTEGER NOT NULL,
    high INTEGER NOT NULL,
    us INTEGER NOT NULL,
    PRIMARY KEY (day, attribution_id, charge, currency, known),
    CONSTRAINT daily_known CHECK (known IN (0, 1)),
    CONSTRAINT daily_amounts CHECK (0 <= low AND low <= expected AND expected <= high AND us >= 0)
) STRICT, WITHOUT ROWID
;
INSERT INTO "daily" VALUES(20776,1,'compute','USD',1,4024000000,4024000000,4024000000,14400000000);
CREATE TABLE guard_run (
    id INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    interval_us INTEGER NOT NULL,
    skew_us INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    notes TEXT NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT guard_run_once UNIQUE (run_id)
) STRICT
;
INSERT INTO "guard_run" VALUES(1,'run-1',1795263000000000,1,60000000,0,'acting','[]','[["breaker",""],["settings","0f1e2d3c4b5a6978"]]');
CREATE TABLE hold (
    id TEXT NOT NULL,
    nano INTEGER NOT NULL,
    currency TEXT NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    owner TEXT NOT NULL,
    gpu TEXT NOT NULL,
    labels TEXT NOT NULL,
    taken_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    ended_us INTEGER,
    ended_by TEXT,
    spent_nano INTEGER,
    PRIMARY KEY (id),
    CONSTRAINT hold_in_order CHECK (nano >= 0 AND taken_us <= expires_us),
    CONSTRAINT hold_ended_by CHECK (ended_by IN ('released', 'committed', 'expired')),
    CONSTRAINT hold_ended_whole CHECK ((ended_us IS NULL) = (ended_by IS NULL))
) STRICT
;
CREATE TABLE hold_budget (
    hold_id TEXT NOT NULL REFERENCES hold (id),
    budget TEXT NOT NULL,
    PRIMARY KEY (hold_id, budget)
) STRICT, WITHOUT ROWID
;
CREATE TABLE hook_run (
    id TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    life TEXT NOT NULL,
    policy TEXT NOT NULL,
    rule TEXT NOT NULL,
    number INTEGER NOT NULL,
    hook TEXT NOT NULL,
    began_us INTEGER NOT NULL,
    until_us INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    state TEXT NOT NULL,
    ended_us INTEGER,
    status INTEGER,
    why TEXT NOT NULL,
    output TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT hook_run_ended_whole CHECK ((state = 'begun') = (ended_us IS NULL))
) STRICT
;
CREATE TABLE intent (
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
    created_us INTEGER NOT NULL,
    moved_us INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    lose TEXT NOT NULL,
    irreversible INTEGER NOT NULL,
    sends INTEGER NOT NULL,
    sent_us INTEGER,
    expires_us INTEGER,
    outcome TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT intent_counts CHECK (irreversible IN (0, 1) AND sends >= 0)
) STRICT
;
INSERT INTO "intent" VALUES('stop-i-0c2d','aws','123456789012','us-east-1','i-0c2d','1795118400000000/-','stop','idle-gpu','idle','idle since 11:00','{}','done',1795263000000000,1795263000000000,1,'[]',0,1,1795263000000000,NULL,'');
INSERT INTO "intent" VALUES('stop-i-0a1b','aws','123456789012','us-east-1','i-0a1b','1795154400000000/-','stop','idle-gpu','idle','idle since 11:30','{}','ready',1795263000000000,1795263000000000,1,'[]',0,0,NULL,NULL,'');
CREATE TABLE intent_event (
    id INTEGER NOT NULL,
    intent_id TEXT NOT NULL REFERENCES intent (id),
    at_us INTEGER NOT NULL,
    moved_from TEXT NOT NULL,
    moved_to TEXT NOT NULL,
    why TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    run TEXT NOT NULL,
    PRIMARY KEY (id)
) STRICT
;
INSERT INTO "intent_event" VALUES(1,'stop-i-0c2d',1795263000000000,'','ready','idle since 11:00',1,'');
INSERT INTO "intent_event" VALUES(2,'stop-i-0c2d',1795263000000000,'ready','executing','idle since 11:00',1,'r1');
INSERT INTO "intent_event" VALUES(3,'stop-i-0c2d',1795263000000000,'executing','verifying','idle since 11:00',1,'');
INSERT INTO "intent_event" VALUES(4,'stop-i-0c2d',1795263000000000,'verifying','done','idle since 11:00',1,'');
INSERT INTO "intent_event" VALUES(5,'stop-i-0a1b',1795263000000000,'','ready','idle since 11:30',1,'');
CREATE TABLE ledger_state (
    id INTEGER NOT NULL,
    ledger_id TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ledger_state_one_row CHECK (id = 1)
) STRICT
;
INSERT INTO "ledger_state" VALUES(1,'eca305b4-ac28-46ad-9527-91d22a7285ce',1795336337550984,1);
CREATE TABLE notice_state (
    route TEXT NOT NULL,
    topic TEXT NOT NULL,
    subject TEXT NOT NULL,
    owner TEXT NOT NULL,
    told TEXT NOT NULL,
    PRIMARY KEY (route, topic, subject, owner)
) STRICT, WITHOUT ROWID
;
CREATE TABLE observation (
    id INTEGER NOT NULL,
    resource_id INTEGER NOT NULL REFERENCES resource (id),
    at_us INTEGER NOT NULL,
    seen_us INTEGER,
    state TEXT NOT NULL,
    name TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    owner TEXT NOT NULL,
    started_us INTEGER,
    stopped_us INTEGER,
    detail TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT observation_absent CHECK ((state = 'absent') = (detail = ''))
) STRICT
;
INSERT INTO "observation" VALUES(1,1,1795122000000000,NULL,'running','old <b>box</b>','g5.xlarge','ben',1795118400000000,NULL,'{"state":"running","kind":"instance","tier":"on-demand","name":"old <b>box</b>","instance_type":"g5.xlarge","gpu":"A10G","gpu_count":1,"owner":"ben","started_at":1795118400000000,"prices":[[1006000000,"USD",null,"listing"]],"disks":[[100,"gp3",null]]}');
INSERT INTO "observation" VALUES(2,1,1795136400000000,NULL,'stopped','old <b>box</b>','g5.xlarge','ben',1795118400000000,1795132800000000,'{"state":"stopped","kind":"instance","tier":"on-demand","name":"old <b>box</b>","instance_type":"g5.xlarge","gpu":"A10G","gpu_count":1,"owner":"ben","started_at":1795118400000000,"stopped_at":1795132800000000,"prices":[[1006000000,"USD",null,"listing"]],"disks":[[100,"gp3",null]]}');
INSERT INTO "observation" VALUES(3,2,1795158000000000,NULL,'running','train-1','p5.48xlarge','ada',1795154400000000,NULL,'{"state":"running","kind":"instance","tier":"on-demand","name":"train-1","instance_type":"p5.48xlarge","gpu":"H100-SXM","gpu_count":8,"owner":"ada","started_at":1795154400000000,"labels":[["team","vision"]],"prices":[[98320000000,"USD",null,"listing"]],"disks":[[500,"gp3",null]]}');
CREATE TABLE outbox (
    id INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    channel TEXT NOT NULL,
    payload TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    next_us INTEGER NOT NULL,
    sent_us INTEGER,
    gave_up_us INTEGER,
    why TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT outbox_once UNIQUE (message_id, channel),
    CONSTRAINT outbox_settled_once CHECK (sent_us IS NULL OR gave_up_us IS NULL)
) STRICT
;
CREATE TABLE protection_seen (
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    how TEXT NOT NULL,
    PRIMARY KEY (provider, account, region, external_id)
) STRICT, WITHOUT ROWID
;
CREATE TABLE reconciliation (
    id INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    who TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    currency TEXT NOT NULL,
    start_us INTEGER NOT NULL,
    end_us INTEGER NOT NULL,
    billed INTEGER NOT NULL,
    low INTEGER NOT NULL,
    expected INTEGER NOT NULL,
    high INTEGER NOT NULL,
    unexplained INTEGER NOT NULL,
    allowed INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    tolerance TEXT NOT NULL,
    told INTEGER NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT reconciliation_outcome CHECK (outcome IN ('within', 'beyond', 'unknown') AND told IN (0, 1)),
    CONSTRAINT reconciliation_in_order CHECK (start_us < end_us AND low <= expected AND expected <= high)
) STRICT
;
CREATE TABLE resource (
    id INTEGER NOT NULL,
    scope_id INTEGER NOT NULL REFERENCES scope (id),
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    first_seen_us INTEGER NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT resource_named_once UNIQUE (provider, account, region, external_id)
) STRICT
;
INSERT INTO "resource" VALUES(1,1,'aws','123456789012','us-east-1','i-0c2d','instance',1795122000000000);
INSERT INTO "resource" VALUES(2,1,'aws','123456789012','us-east-1','i-0a1b','instance',1795158000000000);
CREATE TABLE sample (
    resource_id INTEGER NOT NULL REFERENCES resource (id),
    signal TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (resource_id, signal, at_us)
) STRICT, WITHOUT ROWID
;
CREATE TABLE sample_hour (
    resource_id INTEGER NOT NULL REFERENCES resource (id),
    signal TEXT NOT NULL,
    hour INTEGER NOT NULL,
    count INTEGER NOT NULL,
    sum REAL NOT NULL,
    lowest REAL NOT NULL,
    highest REAL NOT NULL,
    PRIMARY KEY (resource_id, signal, hour),
    CONSTRAINT sample_hour_in_order CHECK (count >= 1 AND lowest <= highest)
) STRICT, WITHOUT ROWID
;
CREATE TABLE scope (
    id INTEGER NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT scope_named_once UNIQUE (provider, account, name)
) STRICT
;
INSERT INTO "scope" VALUES(1,'aws','123456789012','us-east-1');
CREATE TABLE span (
    id INTEGER NOT NULL,
    resource_id INTEGER NOT NULL REFERENCES resource (id),
    attribution_id INTEGER NOT NULL REFERENCES attribution (id),
    charge TEXT NOT NULL,
    part TEXT NOT NULL,
    unit TEXT NOT NULL,
    quantity INTEGER NOT NULL,
    quantum_s INTEGER NOT NULL,
    minimum_s INTEGER NOT NULL,
    price_low INTEGER NOT NULL,
    price_expected INTEGER NOT NULL,
    price_high INTEGER NOT NULL,
    currency TEXT NOT NULL,
    price_known INTEGER NOT NULL,
    price_source TEXT NOT NULL,
    presence TEXT NOT NULL,
    anchor_us INTEGER NOT NULL,
    start_us INTEGER NOT NULL,
    why TEXT NOT NULL,
    end_us INTEGER,
    ended_by TEXT,
    low INTEGER,
    expected INTEGER,
    high INTEGER,
    PRIMARY KEY (id),
    CONSTRAINT span_price CHECK (0 <= price_low AND price_low <= price_expected AND price_expected <= price_high),
    CONSTRAINT span_meter CHECK (quantity >= 0 AND quantum_s >= 1 AND minimum_s >= 0),
    CONSTRAINT span_presence CHECK (presence IN ('seen', 'gap', 'edge', 'maybe')),
    CONSTRAINT span_price_known CHECK (price_known IN (0, 1)),
    CONSTRAINT span_in_order CHECK (anchor_us <= start_us AND (end_us IS NULL OR start_us <= end_us)),
    CONSTRAINT span_closed_whole CHECK (
        (end_us IS NULL) = (ended_by IS NULL) AND (end_us IS NULL) = (low IS NULL)
        AND (end_us IS NULL) = (expected IS NULL) AND (end_us IS NULL) = (high IS NULL)
    ),
    CONSTRAINT span_amounts CHECK (0 <= low AND low <= expected AND expected <= high)
) STRICT
;
INSERT INTO "span" VALUES(1,1,1,'compute','','Hours',1,1,60,1006000000,1006000000,1006000000,'USD',1,'listing','seen',1795118400000000,1795118400000000,'started_at stated',1795132800000000,'stopped_at stated',4024000000,4024000000,4024000000);
INSERT INTO "span" VALUES(2,1,1,'storage','gp3','GB-Months',100,1,0,80000000,80000000,80000000,'USD',1,'EBS gp3: AWS list price, noted in the project''s provider notes (aws.md), 2026-11','seen',1795118400000000,1795118400000000,'started_at stated',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "span" VALUES(3,2,2,'compute','','Hours',1,1,60,98320000000,98320000000,98320000000,'USD',1,'listing','seen',1795154400000000,1795154400000000,'started_at stated',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "span" VALUES(4,2,2,'storage','gp3','GB-Months',500,1,0,80000000,80000000,80000000,'USD',1,'EBS gp3: AWS list price, noted in the project''s provider notes (aws.md), 2026-11','seen',1795154400000000,1795154400000000,'started_at stated',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE turn (
    id INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    rounds INTEGER NOT NULL,
    holder TEXT NOT NULL,
    until_us INTEGER NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT turn_one_row CHECK (id = 1)
) STRICT
;
INSERT INTO "turn" VALUES(1,1,1,'one',1795266600000000);
CREATE TABLE web_token (
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    who TEXT NOT NULL,
    made_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    revoked_us INTEGER,
    revoked_by TEXT,
    PRIMARY KEY (hash),
    CONSTRAINT web_token_role CHECK (role IN ('viewer', 'operator')),
    CONSTRAINT web_token_revoked_whole CHECK ((revoked_us IS NULL) = (revoked_by IS NULL))
) STRICT
;
CREATE TABLE wish (
    id TEXT NOT NULL,
    what TEXT NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    until_us INTEGER,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    life TEXT NOT NULL,
    subject TEXT NOT NULL,
    value TEXT NOT NULL,
    lifted_us INTEGER,
    lifted_by TEXT,
    PRIMARY KEY (id),
    CONSTRAINT wish_lifted_whole CHECK ((lifted_us IS NULL) = (lifted_by IS NULL))
) STRICT
;
INSERT INTO "wish" VALUES('w-arm','arm','settings file','armed by the settings',1795262400000000,1803038400000000,'','','','','','idle-gpu','stop',NULL,NULL);
INSERT INTO "wish" VALUES('w-freeze','freeze','ada@lab','a migration',1795262400000000,NULL,'','','','','','','',1795262700000000,'ben@lab');
INSERT INTO "wish" VALUES('w-lease','lease','ada@lab','a run',1795262400000000,1795276800000000,'aws','123456789012','us-east-1','i-0a1b','','','',NULL,NULL);
CREATE INDEX coverage_by_scope ON coverage (scope_id, start_us);
CREATE INDEX observation_by_resource ON observation (resource_id, id);
CREATE UNIQUE INDEX span_open_once ON span (resource_id, charge, part) WHERE end_us IS NULL;
CREATE INDEX span_by_end ON span (end_us, start_us);
CREATE INDEX span_long ON span (end_us, start_us) WHERE end_us - start_us > 691200000000;
CREATE INDEX span_by_line ON span (resource_id, charge, part, start_us);
CREATE INDEX correction_by_span ON correction (span_id, id);
CREATE UNIQUE INDEX intent_open_once ON intent (provider, account, region, external_id, life, act)
    WHERE state IN ('planned', 'grace', 'ready', 'executing', 'verifying', 'unconfirmed')
;
CREATE UNIQUE INDEX intent_in_flight_once ON intent (provider, account, region, external_id) WHERE state = 'executing';
CREATE INDEX intent_by_sent ON intent (sent_us);
CREATE INDEX intent_event_by_intent ON intent_event (intent_id, id);
CREATE INDEX intent_event_sends ON intent_event (at_us) WHERE moved_to = 'executing';
CREATE INDEX intent_event_run ON intent_event (run) WHERE moved_to = 'executing';
CREATE INDEX outbox_due ON outbox (next_us) WHERE sent_us IS NULL AND gave_up_us IS NULL;
CREATE UNIQUE INDEX hook_run_open_once ON hook_run (provider, account, region, external_id, life, policy, number)
    WHERE state = 'begun'
;
CREATE INDEX hook_run_by_beginning ON hook_run (began_us);
CREATE INDEX audit_by_kind ON audit (kind, seq);
CREATE UNIQUE INDEX bill_line_once ON bill_line (provider, account, statement, line_id) WHERE replaced_us IS NULL;
CREATE INDEX bill_line_by_time ON bill_line (provider, start_us);
CREATE INDEX reconciliation_by_time ON reconciliation (end_us);
CREATE INDEX bill_adjustment_by_reconciliation ON bill_adjustment (reconciliation_id);
CREATE UNIQUE INDEX agent_once ON agent (provider, account, region, external_id) WHERE revoked_us IS NULL
;
CREATE UNIQUE INDEX web_token_once ON web_token (name) WHERE revoked_us IS NULL;
CREATE TRIGGER costguard_agent_stays BEFORE DELETE ON agent BEGIN SELECT RAISE(ABORT, 'agent keeps every row'); END;
CREATE TRIGGER costguard_agent_code_stays BEFORE DELETE ON agent_code BEGIN SELECT RAISE(ABORT, 'agent_code keeps every row'); END;
CREATE TRIGGER costguard_attribution_stays BEFORE DELETE ON attribution BEGIN SELECT RAISE(ABORT, 'attribution keeps every row'); END;
CREATE TRIGGER costguard_audit_stays BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit keeps every row'); END;
CREATE TRIGGER costguard_bill_adjustment_stays BEFORE DELETE ON bill_adjustment BEGIN SELECT RAISE(ABORT, 'bill_adjustment keeps every row'); END;
CREATE TRIGGER costguard_bill_import_stays BEFORE DELETE ON bill_import BEGIN SELECT RAISE(ABORT, 'bill_import keeps every row'); END;
CREATE TRIGGER costguard_bill_line_stays BEFORE DELETE ON bill_line BEGIN SELECT RAISE(ABORT, 'bill_line keeps every row'); END;
CREATE TRIGGER costguard_coverage_stays BEFORE DELETE ON coverage BEGIN SELECT RAISE(ABORT, 'coverage keeps every row'); END;
CREATE TRIGGER costguard_correction_stays BEFORE DELETE ON correction BEGIN SELECT RAISE(ABORT, 'correction keeps every row'); END;
CREATE TRIGGER costguard_hook_run_stays BEFORE DELETE ON hook_run BEGIN SELECT RAISE(ABORT, 'hook_run keeps every row'); END;
CREATE TRIGGER costguard_intent_stays BEFORE DELETE ON intent BEGIN SELECT RAISE(ABORT, 'intent keeps every row'); END;
CREATE TRIGGER costguard_intent_event_stays BEFORE DELETE ON intent_event BEGIN SELECT RAISE(ABORT, 'intent_event keeps every row'); END;
CREATE TRIGGER costguard_ledger_state_stays BEFORE DELETE ON ledger_state BEGIN SELECT RAISE(ABORT, 'ledger_state keeps every row'); END;
CREATE TRIGGER costguard_observation_stays BEFORE DELETE ON observation BEGIN SELECT RAISE(ABORT, 'observation keeps every row'); END;
CREATE TRIGGER costguard_reconciliation_stays BEFORE DELETE ON reconciliation BEGIN SELECT RAISE(ABORT, 'reconciliation keeps every row'); END;
CREATE TRIGGER costguard_resource_stays BEFORE DELETE ON resource BEGIN SELECT RAISE(ABORT, 'resource keeps every row'); END;
CREATE TRIGGER costguard_scope_stays BEFORE DELETE ON scope BEGIN SELECT RAISE(ABORT, 'scope keeps every row'); END;
CREATE TRIGGER costguard_span_stays BEFORE DELETE ON span BEGIN SELECT RAISE(ABORT, 'span keeps every row'); END;
CREATE TRIGGER costguard_turn_stays BEFORE DELETE ON turn BEGIN SELECT RAISE(ABORT, 'turn keeps every row'); END;
CREATE TRIGGER costguard_web_token_stays BEFORE DELETE ON web_token BEGIN SELECT RAISE(ABORT, 'web_token keeps every row'); END;
CREATE TRIGGER costguard_wish_stays BEFORE DELETE ON wish BEGIN SELECT RAISE(ABORT, 'wish keeps every row'); END;
CREATE TRIGGER costguard_agent_is_written_once BEFORE UPDATE OF id, provider, account, region, external_id, life, public_key, joined_us ON agent BEGIN SELECT RAISE(ABORT, 'agent is written once: a change is a new row'); END;
CREATE TRIGGER costguard_agent_code_is_written_once BEFORE UPDATE OF hash, provider, account, region, external_id, life, who, at_us, expires_us ON agent_code BEGIN SELECT RAISE(ABORT, 'agent_code is written once: a change is a new row'); END;
CREATE TRIGGER costguard_attribution_is_written_once BEFORE UPDATE ON attribution BEGIN SELECT RAISE(ABORT, 'attribution is written once: a change is a new row'); END;
CREATE TRIGGER costguard_audit_is_written_once BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit is written once: a change is a new row'); END;
CREATE TRIGGER costguard_bill_adjustment_is_written_once BEFORE UPDATE ON bill_adjustment BEGIN SELECT RAISE(ABORT, 'bill_adjustment is written once: a change is a new row'); END;
CREATE TRIGGER costguard_bill_import_is_written_once BEFORE UPDATE ON bill_import BEGIN SELECT RAISE(ABORT, 'bill_import is written once: a change is a new row'); END;
CREATE TRIGGER costguard_bill_line_is_written_once BEFORE UPDATE OF id, import_id, provider, account, statement, line_id, start_us, end_us, nano, currency, charge, external_id, region, estimated, stated_us, source, description ON bill_line BEGIN SELECT RAISE(ABORT, 'bill_line is written once: a change is a new row'); END;
CREATE TRIGGER costguard_correction_is_written_once BEFORE UPDATE ON correction BEGIN SELECT RAISE(ABORT, 'correction is written once: a change is a new row'); END;
CREATE TRIGGER costguard_guard_run_is_written_once BEFORE UPDATE ON guard_run BEGIN SELECT RAISE(ABORT, 'guard_run is written once: a change is a new row'); END;
CREATE TRIGGER costguard_hook_run_is_written_once BEFORE UPDATE OF id, provider, account, region, external_id, life, policy, rule, number, hook, began_us, until_us, epoch ON hook_run BEGIN SELECT RAISE(ABORT, 'hook_run is written once: a change is a new row'); END;
CREATE TRIGGER costguard_intent_is_written_once BEFORE UPDATE OF id, provider, account, region, external_id, life, act, policy, rule, created_us ON intent BEGIN SELECT RAISE(ABORT, 'intent is written once: a change is a new row'); END;
CREATE TRIGGER costguard_intent_event_is_written_once BEFORE UPDATE ON intent_event BEGIN SELECT RAISE(ABORT, 'intent_event is written once: a change is a new row'); END;
CREATE TRIGGER costguard_coverage_is_written_once BEFORE UPDATE OF id, scope_id, outcome, why, start_us ON coverage BEGIN SELECT RAISE(ABORT, 'coverage is written once: a change is a new row'); END;
CREATE TRIGGER costguard_observation_is_written_once BEFORE UPDATE ON observation BEGIN SELECT RAISE(ABORT, 'observation is written once: a change is a new row'); END;
CREATE TRIGGER costguard_reconciliation_is_written_once BEFORE UPDATE ON reconciliation BEGIN SELECT RAISE(ABORT, 'reconciliation is written once: a change is a new row'); END;
CREATE TRIGGER costguard_resource_is_written_once BEFORE UPDATE OF id, provider, account, region, external_id ON resource BEGIN SELECT RAISE(ABORT, 'resource is written once: a change is a new row'); END;
CREATE TRIGGER costguard_scope_is_written_once BEFORE UPDATE ON scope BEGIN SELECT RAISE(ABORT, 'scope is written once: a change is a new row'); END;
CREATE TRIGGER costguard_span_is_written_once BEFORE UPDATE OF id, resource_id, attribution_id, charge, part, unit, quantity, quantum_s, minimum_s, price_low, price_expected, price_high, currency, price_known, price_source, presence, anchor_us, start_us, why ON span BEGIN SELECT RAISE(ABORT, 'span is written once: a change is a new row'); END;
CREATE TRIGGER costguard_web_token_is_written_once BEFORE UPDATE OF hash, name, role, who, made_us, expires_us ON web_token BEGIN SELECT RAISE(ABORT, 'web_token is written once: a change is a new row'); END;
CREATE TRIGGER costguard_wish_is_written_once BEFORE UPDATE OF id, what, who, why, at_us, until_us, provider, account, region, external_id, life, subject, value ON wish BEGIN SELECT RAISE(ABORT, 'wish is written once: a change is a new row'); END;
CREATE TRIGGER costguard_agent_seq_rises BEFORE UPDATE OF seq, record_ms ON agent WHEN NEW.seq < OLD.seq OR NEW.record_ms < OLD.record_ms BEGIN SELECT RAISE(ABORT, 'the numbers of an agent never fall'); END;
CREATE TRIGGER costguard_agent_stays_revoked BEFORE UPDATE ON agent WHEN OLD.revoked_us IS NOT NULL BEGIN SELECT RAISE(ABORT, 'a revoked agent does not change'); END;
CREATE TRIGGER costguard_agent_code_is_used_once BEFORE UPDATE ON agent_code WHEN OLD.used_us IS NOT NULL BEGIN SELECT RAISE(ABORT, 'a code is used once'); END;
CREATE TRIGGER costguard_web_token_is_revoked_once BEFORE UPDATE ON web_token WHEN OLD.revoked_us IS NOT NULL BEGIN SELECT RAISE(ABORT, 'a token is revoked once'); END;
CREATE TRIGGER costguard_span_closes_once BEFORE UPDATE OF end_us, ended_by, low, expected, high ON span WHEN OLD.end_us IS NOT NULL OR NEW.end_us IS NULL BEGIN SELECT RAISE(ABORT, 'a closed span does not change: write a correction'); END;
CREATE TRIGGER costguard_bill_line_is_replaced_once BEFORE UPDATE OF replaced_us, replaced_by, replaced_why ON bill_line WHEN OLD.replaced_us IS NOT NULL OR NEW.replaced_us IS NULL BEGIN SELECT RAISE(ABORT, 'a line of a bill is replaced once'); END;
CREATE TRIGGER costguard_wish_is_lifted_once BEFORE UPDATE OF lifted_us, lifted_by ON wish WHEN OLD.lifted_us IS NOT NULL OR NEW.lifted_us IS NULL BEGIN SELECT RAISE(ABORT, 'a wish is lifted once'); END;
CREATE TRIGGER costguard_intent_begins_unsent BEFORE INSERT ON intent WHEN NEW.state NOT IN ('planned', 'grace', 'ready') OR NEW.sends <> 0 BEGIN SELECT RAISE(ABORT, 'an intent is written before anything is sent'); END;
CREATE TRIGGER costguard_intent_moves_forward BEFORE UPDATE OF state ON intent WHEN (OLD.state || '>' || NEW.state) NOT IN ('planned>planned', 'planned>grace', 'planned>ready', 'planned>cancelled', 'grace>grace', 'grace>ready', 'grace>cancelled', 'ready>ready', 'ready>executing', 'ready>cancelled', 'executing>executing', 'executing>verifying', 'executing>ready', 'executing>done', 'executing>cancelled', 'executing>failed', 'executing>unconfirmed', 'verifying>verifying', 'verifying>executing', 'verifying>done', 'verifying>cancelled', 'verifying>failed', 'verifying>unconfirmed', 'unconfirmed>unconfirmed', 'unconfirmed>verifying', 'unconfirmed>executing', 'unconfirmed>done', 'unconfirmed>failed', 'unconfirmed>cancelled', 'done>done', 'cancelled>cancelled', 'failed>failed') BEGIN SELECT RAISE(ABORT, 'an intent moves forward only'); END;
CREATE TRIGGER costguard_intent_counts_sends BEFORE UPDATE OF state, sends ON intent WHEN NEW.sends <> OLD.sends + CASE WHEN NEW.state = 'executing' AND OLD.state <> 'executing' THEN 1 ELSE 0 END BEGIN SELECT RAISE(ABORT, 'each send of an intent counts, once'); END;
CREATE TRIGGER costguard_intent_stays_settled BEFORE UPDATE ON intent WHEN OLD.state IN ('done', 'cancelled', 'failed') BEGIN SELECT RAISE(ABORT, 'a settled intent does not change'); END;
CREATE TRIGGER costguard_hook_run_is_written_before_it_begins BEFORE INSERT ON hook_run WHEN NEW.state <> 'begun' BEGIN SELECT RAISE(ABORT, 'a run of a hook begins unended'); END;
CREATE TRIGGER costguard_hook_run_ends_once BEFORE UPDATE ON hook_run WHEN OLD.state <> 'begun' BEGIN SELECT RAISE(ABORT, 'a run of a hook ends once'); END;
CREATE TRIGGER costguard_turn_epoch_rises BEFORE UPDATE OF epoch ON turn WHEN NEW.epoch < OLD.epoch BEGIN SELECT RAISE(ABORT, 'the epoch of a turn never falls'); END;
CREATE TRIGGER costguard_span_overlaps_none BEFORE INSERT ON span WHEN (NEW.end_us IS NULL OR NEW.end_us > NEW.start_us)
    AND (SELECT end_us IS NULL OR end_us > NEW.start_us FROM (
SELECT end_us FROM span
WHERE resource_id = NEW.resource_id AND charge = NEW.charge AND part = NEW.part
    AND start_us < coalesce(NEW.end_us, 9223372036854775807) AND (end_us IS NULL OR end_us > start_us)
ORDER BY start_us DESC LIMIT 1
) AS neighbour) BEGIN SELECT RAISE(ABORT, 'a span overlaps another one of its resource, charge and part'); END;
CREATE TRIGGER costguard_audit_goes_on BEFORE INSERT ON audit WHEN NEW.seq <> coalesce((SELECT max(seq) FROM audit), 0) + 1
    OR NEW.previous <> coalesce((SELECT hash FROM audit ORDER BY seq DESC LIMIT 1), '0000000000000000000000000000000000000000000000000000000000000000') BEGIN SELECT RAISE(ABORT, 'a row of the audit follows the last one'); END;
CREATE VIEW v_scopes AS SELECT
    s.provider AS provider,
    s.account AS account,
    s.name AS scope,
    c.outcome AS outcome,
    c.why AS why,
    strftime('%Y-%m-%dT%H:%M:%S', c.start_us / 1000000, 'unixepoch') || printf('.%06dZ', c.start_us % 1000000) AS since,
    strftime('%Y-%m-%dT%H:%M:%S', c.end_us / 1000000, 'unixepoch') || printf('.%06dZ', c.end_us % 1000000) AS last_poll_at,
    c.polls AS polls,
    strftime('%Y-%m-%dT%H:%M:%S', (SELECT max(g.end_us) FROM coverage AS g WHERE g.scope_id = s.id AND g.outcome = 'complete') / 1000000, 'unixepoch') || printf('.%06dZ', (SELECT max(g.end_us) FROM coverage AS g WHERE g.scope_id = s.id AND g.outcome = 'complete') % 1000000) AS complete_at
FROM scope AS s LEFT JOIN coverage AS c ON c.id = (SELECT max(l.id) FROM coverage AS l WHERE l.scope_id = s.id);
CREATE VIEW v_resources AS SELECT
    r.provider AS provider,
    r.account AS account,
    r.region AS region,
    r.external_id AS id,
    r.kind AS kind,
    o.state AS state,
    d.name AS name,
    d.instance_type AS instance_type,
    d.owner AS owner,
    strftime('%Y-%m-%dT%H:%M:%S', d.started_us / 1000000, 'unixepoch') || printf('.%06dZ', d.started_us % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', d.stopped_us / 1000000, 'unixepoch') || printf('.%06dZ', d.stopped_us % 1000000) AS stopped_at,
    strftime('%Y-%m-%dT%H:%M:%S', r.first_seen_us / 1000000, 'unixepoch') || printf('.%06dZ', r.first_seen_us % 1000000) AS first_seen_at,
    strftime('%Y-%m-%dT%H:%M:%S', o.at_us / 1000000, 'unixepoch') || printf('.%06dZ', o.at_us % 1000000) AS said_at,
    (SELECT count(*) FROM span AS n WHERE n.resource_id = r.id AND n.end_us IS NULL) AS open_spans,
    d.detail AS detail
FROM resource AS r
LEFT JOIN observation AS o ON o.id = (SELECT max(l.id) FROM observation AS l WHERE l.resource_id = r.id)
LEFT JOIN observation AS d ON d.id = (SELECT max(l.id) FROM observation AS l WHERE l.resource_id = r.id AND l.state <> 'absent');
CREATE VIEW v_observations AS SELECT
    strftime('%Y-%m-%dT%H:%M:%S', o.at_us / 1000000, 'unixepoch') || printf('.%06dZ', o.at_us % 1000000) AS said_at,
    r.provider AS provider,
    r.account AS account,
    r.region AS region,
    r.external_id AS id,
    o.state AS state,
    o.name AS name,
    o.instance_type AS instance_type,
    o.owner AS owner,
    strftime('%Y-%m-%dT%H:%M:%S', o.started_us / 1000000, 'unixepoch') || printf('.%06dZ', o.started_us % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', o.stopped_us / 1000000, 'unixepoch') || printf('.%06dZ', o.stopped_us % 1000000) AS stopped_at,
    strftime('%Y-%m-%dT%H:%M:%S', o.seen_us / 1000000, 'unixepoch') || printf('.%06dZ', o.seen_us % 1000000) AS seen_at,
    o.detail AS detail
FROM observation AS o JOIN resource AS r ON r.id = o.resource_id;
CREATE VIEW v_spans AS SELECT
    r.provider AS provider,
    r.account AS account,
    r.region AS region,
    r.external_id AS id,
    a.kind AS kind,
    a.gpu AS gpu,
    printf('%d.%03d', a.gpu_count_milli / 1000, a.gpu_count_milli % 1000) AS gpu_count,
    a.tier AS tier,
    a.owner AS owner,
    a.instance_type AS instance_type,
    a.labels AS labels,
    s.charge AS charge,
    s.part AS part,
    strftime('%Y-%m-%dT%H:%M:%S', s.start_us / 1000000, 'unixepoch') || printf('.%06dZ', s.start_us % 1000000) AS start_at,
    strftime('%Y-%m-%dT%H:%M:%S', s.end_us / 1000000, 'unixepoch') || printf('.%06dZ', s.end_us % 1000000) AS end_at,
    CASE WHEN (s.end_us - s.start_us) IS NULL THEN NULL ELSE printf('%d.%06d', (s.end_us - s.start_us) / 1000000, (s.end_us - s.start_us) % 1000000) END AS seconds,
    s.why AS why,
    s.ended_by AS ended_by,
    coalesce(c.presence, s.presence) AS presence,
    c.reason AS corrected,
    CASE WHEN s.price_low IS NULL THEN NULL WHEN s.price_low < 0 THEN '-' || printf('%d.%09d', abs(s.price_low / 1000000000), abs(s.price_low % 1000000000)) ELSE printf('%d.%09d', abs(s.price_low / 1000000000), abs(s.price_low % 1000000000)) END AS price_low,
    CASE WHEN s.price_expected IS NULL THEN NULL WHEN s.price_expected < 0 THEN '-' || printf('%d.%09d', abs(s.price_expected / 1000000000), abs(s.price_expected % 1000000000)) ELSE printf('%d.%09d', abs(s.price_expected / 1000000000), abs(s.price_expected % 1000000000)) END AS price_expected,
    CASE WHEN s.price_high IS NULL THEN NULL WHEN s.price_high < 0 THEN '-' || printf('%d.%09d', abs(s.price_high / 1000000000), abs(s.price_high % 1000000000)) ELSE printf('%d.%09d', abs(s.price_high / 1000000000), abs(s.price_high % 1000000000)) END AS price_high,
    s.price_known AS price_known,
    s.price_source AS price_source,
    s.unit AS unit,
    s.quantity AS quantity,
    s.quantum_s AS quantum_s,
    s.minimum_s AS minimum_s,
    s.currency AS currency,
    CASE WHEN coalesce(c.low, s.low) IS NULL THEN NULL WHEN coalesce(c.low, s.low) < 0 THEN '-' || printf('%d.%09d', abs(coalesce(c.low, s.low) / 1000000000), abs(coalesce(c.low, s.low) % 1000000000)) ELSE printf('%d.%09d', abs(coalesce(c.low, s.low) / 1000000000), abs(coalesce(c.low, s.low) % 1000000000)) END AS low,
    coalesce(c.low, s.low) AS low_nano,
    CASE WHEN coalesce(c.expected, s.expected) IS NULL THEN NULL WHEN coalesce(c.expected, s.expected) < 0 THEN '-' || printf('%d.%09d', abs(coalesce(c.expected, s.expected) / 1000000000), abs(coalesce(c.expected, s.expected) % 1000000000)) ELSE printf('%d.%09d', abs(coalesce(c.expected, s.expected) / 1000000000), abs(coalesce(c.expected, s.expected) % 1000000000)) END AS expected,
    coalesce(c.expected, s.expected) AS expected_nano,
    CASE WHEN coalesce(c.high, s.high) IS NULL THEN NULL WHEN coalesce(c.high, s.high) < 0 THEN '-' || printf('%d.%09d', abs(coalesce(c.high, s.high) / 1000000000), abs(coalesce(c.high, s.high) % 1000000000)) ELSE printf('%d.%09d', abs(coalesce(c.high, s.high) / 1000000000), abs(coalesce(c.high, s.high) % 1000000000)) END AS high,
    coalesce(c.high, s.high) AS high_nano,
    s.id AS span_id
FROM span AS s
JOIN resource AS r ON r.id = s.resource_id
JOIN attribution AS a ON a.id = s.attribution_id
LEFT JOIN correction AS c ON c.id = (SELECT max(l.id) FROM correction AS l WHERE l.span_id = s.id);
CREATE VIEW v_daily AS SELECT
    date(d.day * 86400, 'unixepoch') AS date,
    a.provider AS provider,
    a.account AS account,
    a.region AS region,
    a.kind AS kind,
    a.gpu AS gpu,
    printf('%d.%03d', a.gpu_count_milli / 1000, a.gpu_count_milli % 1000) AS gpu_count,
    a.tier AS tier,
    a.owner AS owner,
    a.instance_type AS instance_type,
    a.labels AS labels,
    d.charge AS charge,
    d.currency AS currency,
    d.known AS known,
    CASE WHEN d.low IS NULL THEN NULL WHEN d.low < 0 THEN '-' || printf('%d.%09d', abs(d.low / 1000000000), abs(d.low % 1000000000)) ELSE printf('%d.%09d', abs(d.low / 1000000000), abs(d.low % 1000000000)) END AS low,
    d.low AS low_nano,
    CASE WHEN d.expected IS NULL THEN NULL WHEN d.expected < 0 THEN '-' || printf('%d.%09d', abs(d.expected / 1000000000), abs(d.expected % 1000000000)) ELSE printf('%d.%09d', abs(d.expected / 1000000000), abs(d.expected % 1000000000)) END AS expected,
    d.expected AS expected_nano,
    CASE WHEN d.high IS NULL THEN NULL WHEN d.high < 0 THEN '-' || printf('%d.%09d', abs(d.high / 1000000000), abs(d.high % 1000000000)) ELSE printf('%d.%09d', abs(d.high / 1000000000), abs(d.high % 1000000000)) END AS high,
    d.high AS high_nano,
    CASE WHEN d.us IS NULL THEN NULL ELSE printf('%d.%06d', d.us / 1000000, d.us % 1000000) END AS seconds
FROM daily AS d JOIN attribution AS a ON a.id = d.attribution_id;
CREATE VIEW v_holds AS SELECT
    h.id AS id,
    h.who AS who,
    h.why AS why,
    CASE WHEN h.nano IS NULL THEN NULL WHEN h.nano < 0 THEN '-' || printf('%d.%09d', abs(h.nano / 1000000000), abs(h.nano % 1000000000)) ELSE printf('%d.%09d', abs(h.nano / 1000000000), abs(h.nano % 1000000000)) END AS amount,
    CASE WHEN h.spent_nano IS NULL THEN NULL WHEN h.spent_nano < 0 THEN '-' || printf('%d.%09d', abs(h.spent_nano / 1000000000), abs(h.spent_nano % 1000000000)) ELSE printf('%d.%09d', abs(h.spent_nano / 1000000000), abs(h.spent_nano % 1000000000)) END AS spent,
    h.currency AS currency,
    h.provider AS provider,
    h.account AS account,
    h.owner AS owner,
    h.gpu AS gpu,
    h.labels AS labels,
    strftime('%Y-%m-%dT%H:%M:%S', h.taken_us / 1000000, 'unixepoch') || printf('.%06dZ', h.taken_us % 1000000) AS taken_at,
    strftime('%Y-%m-%dT%H:%M:%S', h.expires_us / 1000000, 'unixepoch') || printf('.%06dZ', h.expires_us % 1000000) AS expires_at,
    strftime('%Y-%m-%dT%H:%M:%S', h.ended_us / 1000000, 'unixepoch') || printf('.%06dZ', h.ended_us % 1000000) AS ended_at,
    h.ended_by AS ended_by,
    group_concat(b.budget, ', ') AS budgets
FROM hold AS h LEFT JOIN hold_budget AS b ON b.hold_id = h.id
GROUP BY h.id;
COMMIT;
