SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE FUNCTION public.costguard_audit_goes_on() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    IF NEW.seq <> coalesce((SELECT max(seq) FROM audit), 0) + 1
    OR NEW.previous <> coalesce((SELECT hash FROM audit ORDER BY seq DESC LIMIT 1), '0000000000000000000000000000000000000000000000000000000000000000') THEN
        RAISE EXCEPTION USING MESSAGE = 'a row of the audit follows the last one', ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION public.costguard_refuse() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE FUNCTION public.costguard_span_overlaps_none() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    IF (NEW.end_us IS NULL OR NEW.end_us > NEW.start_us)
    AND (SELECT end_us IS NULL OR end_us > NEW.start_us FROM (
SELECT end_us FROM span
WHERE resource_id = NEW.resource_id AND charge = NEW.charge AND part = NEW.part
    AND start_us < coalesce(NEW.end_us, 9223372036854775807) AND (end_us IS NULL OR end_us > start_us)
ORDER BY start_us DESC LIMIT 1
) AS neighbour) THEN
        RAISE EXCEPTION USING MESSAGE = 'a span overlaps another one of its resource, charge and part', ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.agent (
    id text NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    region text NOT NULL,
    external_id text NOT NULL,
    life text NOT NULL,
    public_key text NOT NULL,
    joined_us bigint NOT NULL,
    seq bigint NOT NULL,
    record_ms bigint NOT NULL,
    beat_us bigint,
    version text NOT NULL,
    troubles text NOT NULL,
    revoked_us bigint,
    revoked_by text,
    CONSTRAINT agent_counts CHECK ((seq >= 0)),
    CONSTRAINT agent_revoked_whole CHECK (((revoked_us IS NULL) = (revoked_by IS NULL)))
);
CREATE TABLE public.agent_code (
    hash text NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    region text NOT NULL,
    external_id text NOT NULL,
    life text NOT NULL,
    who text NOT NULL,
    at_us bigint NOT NULL,
    expires_us bigint NOT NULL,
    used_us bigint,
    used_by text,
    CONSTRAINT agent_code_used_whole CHECK (((used_us IS NULL) = (used_by IS NULL)))
);
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.attribution (
    id bigint NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    region text NOT NULL,
    kind text NOT NULL,
    gpu text NOT NULL,
    gpu_count_milli bigint NOT NULL,
    tier text NOT NULL,
    owner text NOT NULL,
    instance_type text NOT NULL,
    labels text NOT NULL
);
CREATE SEQUENCE public.attribution_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.attribution_id_seq OWNED BY public.attribution.id;
CREATE TABLE public.audit (
    seq bigint NOT NULL,
    at_us bigint NOT NULL,
    kind text NOT NULL,
    body text NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    CONSTRAINT audit_counts_from_one CHECK ((seq >= 1))
);
CREATE TABLE public.bill_adjustment (
    id bigint NOT NULL,
    reconciliation_id bigint NOT NULL,
    cause text NOT NULL,
    charge text NOT NULL,
    sku text NOT NULL,
    currency text NOT NULL,
    nano bigint NOT NULL,
    explained bigint NOT NULL,
    resources bigint NOT NULL,
    lines bigint NOT NULL,
    reason text NOT NULL,
    CONSTRAINT bill_adjustment_explained CHECK ((explained = ANY (ARRAY[(0)::bigint, (1)::bigint])))
);
CREATE SEQUENCE public.bill_adjustment_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.bill_adjustment_id_seq OWNED BY public.bill_adjustment.id;
CREATE TABLE public.bill_import (
    id bigint NOT NULL,
    at_us bigint NOT NULL,
    who text NOT NULL,
    provider text NOT NULL,
    source text NOT NULL,
    start_us bigint NOT NULL,
    end_us bigint NOT NULL,
    stated_us bigint NOT NULL,
    whole bigint NOT NULL,
    why text NOT NULL,
    lines bigint NOT NULL,
    CONSTRAINT bill_import_in_order CHECK (((whole = ANY (ARRAY[(0)::bigint, (1)::bigint])) AND (start_us <= end_us)))
);
CREATE SEQUENCE public.bill_import_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.bill_import_id_seq OWNED BY public.bill_import.id;
CREATE TABLE public.bill_line (
    id bigint NOT NULL,
    import_id bigint NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    statement text NOT NULL,
    line_id text NOT NULL,
    start_us bigint NOT NULL,
    end_us bigint NOT NULL,
    nano bigint NOT NULL,
    currency text NOT NULL,
    charge text NOT NULL,
    external_id text NOT NULL,
    region text NOT NULL,
    estimated bigint NOT NULL,
    stated_us bigint NOT NULL,
    source text NOT NULL,
    description text NOT NULL,
    replaced_us bigint,
    replaced_by bigint,
    replaced_why text,
    CONSTRAINT bill_line_charge CHECK ((charge = ANY (ARRAY['compute'::text, 'storage'::text, 'address'::text, 'traffic'::text, 'other'::text, 'credit'::text, 'tax'::text]))),
    CONSTRAINT bill_line_in_order CHECK (((start_us < end_us) AND (estimated = ANY (ARRAY[(0)::bigint, (1)::bigint])))),
    CONSTRAINT bill_line_replaced_whole CHECK ((((replaced_us IS NULL) = (replaced_by IS NULL)) AND ((replaced_us IS NULL) = (replaced_why IS NULL))))
);
CREATE SEQUENCE public.bill_line_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.bill_line_id_seq OWNED BY public.bill_line.id;
CREATE TABLE public.climb (
    policy text NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    region text NOT NULL,
    external_id text NOT NULL,
    life text NOT NULL,
    since_us bigint NOT NULL,
    started_us bigint NOT NULL,
    done text NOT NULL,
    left_polls bigint NOT NULL
);
CREATE TABLE public.correction (
    id bigint NOT NULL,
    span_id bigint NOT NULL,
    at_us bigint NOT NULL,
    presence text NOT NULL,
    reason text NOT NULL,
    low bigint NOT NULL,
    expected bigint NOT NULL,
    high bigint NOT NULL,
    CONSTRAINT correction_amounts CHECK (((0 <= low) AND (low <= expected) AND (expected <= high))),
    CONSTRAINT correction_presence CHECK ((presence = ANY (ARRAY['seen'::text, 'gap'::text, 'edge'::text, 'maybe'::text])))
);
CREATE SEQUENCE public.correction_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.correction_id_seq OWNED BY public.correction.id;
CREATE TABLE public.coverage (
    id bigint NOT NULL,
    scope_id bigint NOT NULL,
    outcome text NOT NULL,
    why text NOT NULL,
    start_us bigint NOT NULL,
    end_us bigint NOT NULL,
    polls bigint NOT NULL,
    CONSTRAINT coverage_in_order CHECK (((end_us >= start_us) AND (polls >= 1))),
    CONSTRAINT coverage_outcome CHECK ((outcome = ANY (ARRAY['complete'::text, 'partial'::text, 'failed'::text])))
);
CREATE SEQUENCE public.coverage_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.coverage_id_seq OWNED BY public.coverage.id;
CREATE TABLE public.daily (
    day bigint NOT NULL,
    attribution_id bigint NOT NULL,
    charge text NOT NULL,
    currency text NOT NULL,
    known bigint NOT NULL,
    low bigint NOT NULL,
    expected bigint NOT NULL,
    high bigint NOT NULL,
    us bigint NOT NULL,
    CONSTRAINT daily_amounts CHECK (((0 <= low) AND (low <= expected) AND (expected <= high) AND (us >= 0))),
    CONSTRAINT daily_known CHECK ((known = ANY (ARRAY[(0)::bigint, (1)::bigint])))
);
CREATE TABLE public.guard_run (
    id bigint NOT NULL,
    run_id text NOT NULL,
    at_us bigint NOT NULL,
    epoch bigint NOT NULL,
    interval_us bigint NOT NULL,
    skew_us bigint NOT NULL,
    outcome text NOT NULL,
    notes text NOT NULL,
    facts text NOT NULL
);
CREATE SEQUENCE public.guard_run_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.guard_run_id_seq OWNED BY public.guard_run.id;
CREATE TABLE public.hold (
    id text NOT NULL,
    nano bigint NOT NULL,
    currency text NOT NULL,
    who text NOT NULL,
    why text NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    owner text NOT NULL,
    gpu text NOT NULL,
    labels text NOT NULL,
    taken_us bigint NOT NULL,
    expires_us bigint NOT NULL,
    ended_us bigint,
    ended_by text,
    spent_nano bigint,
    CONSTRAINT hold_ended_by CHECK ((ended_by = ANY (ARRAY['released'::text, 'committed'::text, 'expired'::text]))),
    CONSTRAINT hold_ended_whole CHECK (((ended_us IS NULL) = (ended_by IS NULL))),
    CONSTRAINT hold_in_order CHECK (((nano >= 0) AND (taken_us <= expires_us)))
);
CREATE TABLE public.hold_budget (
    hold_id text NOT NULL,
    budget text NOT NULL
);
CREATE TABLE public.hook_run (
    id text NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    region text NOT NULL,
    external_id text NOT NULL,
    life text NOT NULL,
    policy text NOT NULL,
    rule text NOT NULL,
    number bigint NOT NULL,
    hook text NOT NULL,
    began_us bigint NOT NULL,
    until_us bigint NOT NULL,
    epoch bigint NOT NULL,
    state text NOT NULL,
    ended_us bigint,
    status bigint,
    why text NOT NULL,
    output text NOT NULL,
    CONSTRAINT hook_run_ended_whole CHECK (((state = 'begun'::text) = (ended_us IS NULL)))
);
CREATE TABLE public.intent (
    id text NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    region text NOT NULL,
    external_id text NOT NULL,
    life text NOT NULL,
    act text NOT NULL,
    policy text NOT NULL,
    rule text NOT NULL,
    why text NOT NULL,
    evidence text NOT NULL,
    state text NOT NULL,
    created_us bigint NOT NULL,
    moved_us bigint NOT NULL,
    epoch bigint NOT NULL,
    lose text NOT NULL,
    irreversible bigint NOT NULL,
    sends bigint NOT NULL,
    sent_us bigint,
    expires_us bigint,
    outcome text NOT NULL,
    CONSTRAINT intent_counts CHECK (((irreversible = ANY (ARRAY[(0)::bigint, (1)::bigint])) AND (sends >= 0)))
);
CREATE TABLE public.intent_event (
    id bigint NOT NULL,
    intent_id text NOT NULL,
    at_us bigint NOT NULL,
    moved_from text NOT NULL,
    moved_to text NOT NULL,
    why text NOT NULL,
    epoch bigint NOT NULL,
    run text NOT NULL
);
CREATE SEQUENCE public.intent_event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.intent_event_id_seq OWNED BY public.intent_event.id;
CREATE TABLE public.ledger_state (
    id bigint NOT NULL,
    ledger_id text NOT NULL,
    created_us bigint NOT NULL,
    revision bigint NOT NULL,
    CONSTRAINT ledger_state_one_row CHECK ((id = 1))
);
CREATE TABLE public.notice_state (
    route text NOT NULL,
    topic text NOT NULL,
    subject text NOT NULL,
    owner text NOT NULL,
    told text NOT NULL
);
CREATE TABLE public.observation (
    id bigint NOT NULL,
    resource_id bigint NOT NULL,
    at_us bigint NOT NULL,
    seen_us bigint,
    state text NOT NULL,
    name text NOT NULL,
    instance_type text NOT NULL,
    owner text NOT NULL,
    started_us bigint,
    stopped_us bigint,
    detail text NOT NULL,
    CONSTRAINT observation_absent CHECK (((state = 'absent'::text) = (detail = ''::text)))
);
CREATE SEQUENCE public.observation_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.observation_id_seq OWNED BY public.observation.id;
CREATE TABLE public.outbox (
    id bigint NOT NULL,
    message_id text NOT NULL,
    channel text NOT NULL,
    payload text NOT NULL,
    at_us bigint NOT NULL,
    tries bigint NOT NULL,
    next_us bigint NOT NULL,
    sent_us bigint,
    gave_up_us bigint,
    why text NOT NULL,
    CONSTRAINT outbox_settled_once CHECK (((sent_us IS NULL) OR (gave_up_us IS NULL)))
);
CREATE SEQUENCE public.outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.outbox_id_seq OWNED BY public.outbox.id;
CREATE TABLE public.protection_seen (
    provider text NOT NULL,
    account text NOT NULL,
    region text NOT NULL,
    external_id text NOT NULL,
    at_us bigint NOT NULL,
    how text NOT NULL
);
CREATE TABLE public.reconciliation (
    id bigint NOT NULL,
    at_us bigint NOT NULL,
    who text NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    currency text NOT NULL,
    start_us bigint NOT NULL,
    end_us bigint NOT NULL,
    billed bigint NOT NULL,
    low bigint NOT NULL,
    expected bigint NOT NULL,
    high bigint NOT NULL,
    unexplained bigint NOT NULL,
    allowed bigint NOT NULL,
    outcome text NOT NULL,
    tolerance text NOT NULL,
    told bigint NOT NULL,
    CONSTRAINT reconciliation_in_order CHECK (((start_us < end_us) AND (low <= expected) AND (expected <= high))),
    CONSTRAINT reconciliation_outcome CHECK (((outcome = ANY (ARRAY['within'::text, 'beyond'::text, 'unknown'::text])) AND (told = ANY (ARRAY[(0)::bigint, (1)::bigint]))))
);
CREATE SEQUENCE public.reconciliation_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.reconciliation_id_seq OWNED BY public.reconciliation.id;
CREATE TABLE public.resource (
    id bigint NOT NULL,
    scope_id bigint NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    region text NOT NULL,
    external_id text NOT NULL,
    kind text NOT NULL,
    first_seen_us bigint NOT NULL
);
CREATE SEQUENCE public.resource_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.resource_id_seq OWNED BY public.resource.id;
CREATE TABLE public.sample (
    resource_id bigint NOT NULL,
    signal text NOT NULL,
    at_us bigint NOT NULL,
    value double precision NOT NULL
);
CREATE TABLE public.sample_hour (
    resource_id bigint NOT NULL,
    signal text NOT NULL,
    hour bigint NOT NULL,
    count bigint NOT NULL,
    sum double precision NOT NULL,
    lowest double precision NOT NULL,
    highest double precision NOT NULL,
    CONSTRAINT sample_hour_in_order CHECK (((count >= 1) AND (lowest <= highest)))
);
CREATE TABLE public.scope (
    id bigint NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    name text NOT NULL
);
CREATE SEQUENCE public.scope_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.scope_id_seq OWNED BY public.scope.id;
CREATE TABLE public.span (
    id bigint NOT NULL,
    resource_id bigint NOT NULL,
    attribution_id bigint NOT NULL,
    charge text NOT NULL,
    part text NOT NULL,
    unit text NOT NULL,
    quantity bigint NOT NULL,
    quantum_s bigint NOT NULL,
    minimum_s bigint NOT NULL,
    price_low bigint NOT NULL,
    price_expected bigint NOT NULL,
    price_high bigint NOT NULL,
    currency text NOT NULL,
    price_known bigint NOT NULL,
    price_source text NOT NULL,
    presence text NOT NULL,
    anchor_us bigint NOT NULL,
    start_us bigint NOT NULL,
    why text NOT NULL,
    end_us bigint,
    ended_by text,
    low bigint,
    expected bigint,
    high bigint,
    CONSTRAINT span_amounts CHECK (((0 <= low) AND (low <= expected) AND (expected <= high))),
    CONSTRAINT span_closed_whole CHECK ((((end_us IS NULL) = (ended_by IS NULL)) AND ((end_us IS NULL) = (low IS NULL)) AND ((end_us IS NULL) = (expected IS NULL)) AND ((end_us IS NULL) = (high IS NULL)))),
    CONSTRAINT span_in_order CHECK (((anchor_us <= start_us) AND ((end_us IS NULL) OR (start_us <= end_us)))),
    CONSTRAINT span_meter CHECK (((quantity >= 0) AND (quantum_s >= 1) AND (minimum_s >= 0))),
    CONSTRAINT span_presence CHECK ((presence = ANY (ARRAY['seen'::text, 'gap'::text, 'edge'::text, 'maybe'::text]))),
    CONSTRAINT span_price CHECK (((0 <= price_low) AND (price_low <= price_expected) AND (price_expected <= price_high))),
    CONSTRAINT span_price_known CHECK ((price_known = ANY (ARRAY[(0)::bigint, (1)::bigint])))
);
CREATE SEQUENCE public.span_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.span_id_seq OWNED BY public.span.id;
CREATE TABLE public.turn (
    id bigint NOT NULL,
    epoch bigint NOT NULL,
    rounds bigint NOT NULL,
    holder text NOT NULL,
    until_us bigint NOT NULL,
    CONSTRAINT turn_one_row CHECK ((id = 1))
);
CREATE VIEW public.v_daily AS
 SELECT to_char((('1970-01-01'::date + (d.day)::integer))::timestamp with time zone, 'YYYY-MM-DD'::text) AS date,
    a.provider,
    a.account,
    a.region,
    a.kind,
    a.gpu,
    (((a.gpu_count_milli)::numeric * 0.001))::text AS gpu_count,
    a.tier,
    a.owner,
    a.instance_type,
    a.labels,
    d.charge,
    d.currency,
    d.known,
    (((d.low)::numeric * 0.000000001))::text AS low,
    d.low AS low_nano,
    (((d.expected)::numeric * 0.000000001))::text AS expected,
    d.expected AS expected_nano,
    (((d.high)::numeric * 0.000000001))::text AS high,
    d.high AS high_nano,
    (((d.us)::numeric * 0.000001))::text AS seconds
   FROM (public.daily d
     JOIN public.attribution a ON ((a.id = d.attribution_id)));
CREATE VIEW public.v_holds AS
SELECT
    NULL::text AS id,
    NULL::text AS who,
    NULL::text AS why,
    NULL::text AS amount,
    NULL::text AS spent,
    NULL::text AS currency,
    NULL::text AS provider,
    NULL::text AS account,
    NULL::text AS owner,
    NULL::text AS gpu,
    NULL::text AS labels,
    NULL::text AS taken_at,
    NULL::text AS expires_at,
    NULL::text AS ended_at,
    NULL::text AS ended_by,
    NULL::text AS budgets;
CREATE VIEW public.v_observations AS
 SELECT to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((o.at_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS said_at,
    r.provider,
    r.account,
    r.region,
    r.external_id AS id,
    o.state,
    o.name,
    o.instance_type,
    o.owner,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((o.started_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS started_at,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((o.stopped_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS stopped_at,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((o.seen_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS seen_at,
    o.detail
   FROM (public.observation o
     JOIN public.resource r ON ((r.id = o.resource_id)));
CREATE VIEW public.v_resources AS
 SELECT r.provider,
    r.account,
    r.region,
    r.external_id AS id,
    r.kind,
    o.state,
    d.name,
    d.instance_type,
    d.owner,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((d.started_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS started_at,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((d.stopped_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS stopped_at,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((r.first_seen_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS first_seen_at,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((o.at_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS said_at,
    ( SELECT count(*) AS count
           FROM public.span n
          WHERE ((n.resource_id = r.id) AND (n.end_us IS NULL))) AS open_spans,
    d.detail
   FROM ((public.resource r
     LEFT JOIN public.observation o ON ((o.id = ( SELECT max(l.id) AS max
           FROM public.observation l
          WHERE (l.resource_id = r.id)))))
     LEFT JOIN public.observation d ON ((d.id = ( SELECT max(l.id) AS max
           FROM public.observation l
          WHERE ((l.resource_id = r.id) AND (l.state <> 'absent'::text))))));
CREATE VIEW public.v_scopes AS
 SELECT s.provider,
    s.account,
    s.name AS scope,
    c.outcome,
    c.why,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((c.start_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS since,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((c.end_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS last_poll_at,
    c.polls,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((( SELECT max(g.end_us) AS max
           FROM public.coverage g
          WHERE ((g.scope_id = s.id) AND (g.outcome = 'complete'::text))))::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS complete_at
   FROM (public.scope s
     LEFT JOIN public.coverage c ON ((c.id = ( SELECT max(l.id) AS max
           FROM public.coverage l
          WHERE (l.scope_id = s.id)))));
CREATE VIEW public.v_spans AS
 SELECT r.provider,
    r.account,
    r.region,
    r.external_id AS id,
    a.kind,
    a.gpu,
    (((a.gpu_count_milli)::numeric * 0.001))::text AS gpu_count,
    a.tier,
    a.owner,
    a.instance_type,
    a.labels,
    s.charge,
    s.part,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((s.start_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS start_at,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((s.end_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS end_at,
    ((((s.end_us - s.start_us))::numeric * 0.000001))::text AS seconds,
    s.why,
    s.ended_by,
    COALESCE(c.presence, s.presence) AS presence,
    c.reason AS corrected,
    (((s.price_low)::numeric * 0.000000001))::text AS price_low,
    (((s.price_expected)::numeric * 0.000000001))::text AS price_expected,
    (((s.price_high)::numeric * 0.000000001))::text AS price_high,
    s.price_known,
    s.price_source,
    s.unit,
    s.quantity,
    s.quantum_s,
    s.minimum_s,
    s.currency,
    (((COALESCE(c.low, s.low))::numeric * 0.000000001))::text AS low,
    COALESCE(c.low, s.low) AS low_nano,
    (((COALESCE(c.expected, s.expected))::numeric * 0.000000001))::text AS expected,
    COALESCE(c.expected, s.expected) AS expected_nano,
    (((COALESCE(c.high, s.high))::numeric * 0.000000001))::text AS high,
    COALESCE(c.high, s.high) AS high_nano,
    s.id AS span_id
   FROM (((public.span s
     JOIN public.resource r ON ((r.id = s.resource_id)))
     JOIN public.attribution a ON ((a.id = s.attribution_id)))
     LEFT JOIN public.correction c ON ((c.id = ( SELECT max(l.id) AS max
           FROM public.correction l
          WHERE (l.span_id = s.id)))));
CREATE TABLE public.web_token (
    hash text NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    who text NOT NULL,
    made_us bigint NOT NULL,
    expires_us bigint NOT NULL,
    revoked_us bigint,
    revoked_by text,
    CONSTRAINT web_token_revoked_whole CHECK (((revoked_us IS NULL) = (revoked_by IS NULL))),
    CONSTRAINT web_token_role CHECK ((role = ANY (ARRAY['viewer'::text, 'operator'::text])))
);
CREATE TABLE public.wish (
    id text NOT NULL,
    what text NOT NULL,
    who text NOT NULL,
    why text NOT NULL,
    at_us bigint NOT NULL,
    until_us bigint,
    provider text NOT NULL,
    account text NOT NULL,
    region text NOT NULL,
    external_id text NOT NULL,
    life text NOT NULL,
    subject text NOT NULL,
    value text NOT NULL,
    lifted_us bigint,
    lifted_by text,
    CONSTRAINT wish_lifted_whole CHECK (((lifted_us IS NULL) = (lifted_by IS NULL)))
);
ALTER TABLE ONLY public.attribution ALTER COLUMN id SET DEFAULT nextval('public.attribution_id_seq'::regclass);
ALTER TABLE ONLY public.bill_adjustment ALTER COLUMN id SET DEFAULT nextval('public.bill_adjustment_id_seq'::regclass);
ALTER TABLE ONLY public.bill_import ALTER COLUMN id SET DEFAULT nextval('public.bill_import_id_seq'::regclass);
ALTER TABLE ONLY public.bill_line ALTER COLUMN id SET DEFAULT nextval('public.bill_line_id_seq'::regclass);
ALTER TABLE ONLY public.correction ALTER COLUMN id SET DEFAULT nextval('public.correction_id_seq'::regclass);
ALTER TABLE ONLY public.coverage ALTER COLUMN id SET DEFAULT nextval('public.coverage_id_seq'::regclass);
ALTER TABLE ONLY public.guard_run ALTER COLUMN id SET DEFAULT nextval('public.guard_run_id_seq'::regclass);
ALTER TABLE ONLY public.intent_event ALTER COLUMN id SET DEFAULT nextval('public.intent_event_id_seq'::regclass);
ALTER TABLE ONLY public.observation ALTER COLUMN id SET DEFAULT nextval('public.observation_id_seq'::regclass);
ALTER TABLE ONLY public.outbox ALTER COLUMN id SET DEFAULT nextval('public.outbox_id_seq'::regclass);
ALTER TABLE ONLY public.reconciliation ALTER COLUMN id SET DEFAULT nextval('public.reconciliation_id_seq'::regclass);
ALTER TABLE ONLY public.resource ALTER COLUMN id SET DEFAULT nextval('public.resource_id_seq'::regclass);
ALTER TABLE ONLY public.scope ALTER COLUMN id SET DEFAULT nextval('public.scope_id_seq'::regclass);
ALTER TABLE ONLY public.span ALTER COLUMN id SET DEFAULT nextval('public.span_id_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0004');
INSERT INTO public.attribution VALUES (1, 'aws', '123456789012', 'us-east-1', 'instance', 'A10G', 1000, 'on-demand', 'ben', 'g5.xlarge', '[]');
INSERT INTO public.attribution VALUES (2, 'aws', '123456789012', 'us-east-1', 'instance', 'H100-SXM', 8000, 'on-demand', 'ada', 'p5.48xlarge', '[["team","vision"]]');
INSERT INTO public.audit VALUES (1, 1795359579431119, 'began', '{"ledger":"e7328b36-49be-4a6a-99f9-4cfc2ac17690"}', '0000000000000000000000000000000000000000000000000000000000000000', 'a8410dec80e829d894dbcdc66aefba20e1b5844ca2c84e63aa3c8720d5906261');
INSERT INTO public.audit VALUES (2, 1795359579431119, 'adopted', '{"account":"","id":"w-arm","life":"","lifted_by":null,"provider":"","region":"","resource":"","row":"d25b0750a4e9452cddbe7268bbd0af0f5fe80bd34bf1c928cee3b412e5c8918c","subject":"idle-gpu","table":"wish","until_us":1803038400000000,"value":"stop","what":"arm","who":"settings file"}', 'a8410dec80e829d894dbcdc66aefba20e1b5844ca2c84e63aa3c8720d5906261', '162881e5e30205ca55de203aa55569f079242590db62aa9d6f58e79dec628f10');
INSERT INTO public.audit VALUES (3, 1795359579431119, 'adopted', '{"account":"","id":"w-freeze","life":"","lifted_by":"ben@lab","provider":"","region":"","resource":"","row":"e2f05b4a4f28e535c7c3eb84aa3891cacca0ad881a9e5c6bb04b1ba8e964444c","subject":"","table":"wish","until_us":null,"value":"","what":"freeze","who":"ada@lab"}', '162881e5e30205ca55de203aa55569f079242590db62aa9d6f58e79dec628f10', '08e84995a70b255723a052bc1f0946a4fe3910585146ed956c6b2bcda7ee200c');
INSERT INTO public.audit VALUES (4, 1795359579431119, 'adopted', '{"account":"123456789012","id":"w-lease","life":"","lifted_by":null,"provider":"aws","region":"us-east-1","resource":"i-0a1b","row":"faee1de3e8e7aa9e7d7448a9a6228643c317ec57bc08f1e3bcab1ee892e5d343","subject":"","table":"wish","until_us":1795276800000000,"value":"","what":"lease","who":"ada@lab"}', '08e84995a70b255723a052bc1f0946a4fe3910585146ed956c6b2bcda7ee200c', '754a1f62daf5e7127fa1e6892fcf6f13934b2c42897f6caac07fd82e2a114752');
INSERT INTO public.audit VALUES (5, 1795359579431119, 'adopted', '{"account":"123456789012","act":"stop","epoch":1,"events":["ac4eec44f75adf003d0ba28a080db251a377742427e7660a765e980196a9397b"],"id":"stop-i-0a1b","life":"1795154400000000/-","policy":"idle-gpu","provider":"aws","region":"us-east-1","resource":"i-0a1b","row":"2a9a1d552e5763dae9e994bd731e8e0ddf3b61f0bae1d02a8e8fc9079270f353","rule":"idle","sends":0,"table":"intent"}', '754a1f62daf5e7127fa1e6892fcf6f13934b2c42897f6caac07fd82e2a114752', 'bce8bc72aa490a95d45f9ce88370b1c114655aefcb68ef79015b5958d7602d59');
INSERT INTO public.audit VALUES (6, 1795359579431119, 'adopted', '{"account":"123456789012","act":"stop","epoch":1,"events":["802a05829591b2b4fb058716a19a8cbbeeba99dfc359894936b235fc949b9c89","f14dd0b18f98fa9d0163b25905e9e1c745041eade1c5d0f7b1f35de6d6d11c90","6c6a59dde5e6e3891644150907b062dc6b1e86072a63647f62c4bc4db9eec5b7","4dbdbccdb88ae8e66feda54a2c03ccac750014838ab679cdd3918a762b754fd5"],"id":"stop-i-0c2d","life":"1795118400000000/-","policy":"idle-gpu","provider":"aws","region":"us-east-1","resource":"i-0c2d","row":"0c3098f364d059ee55d345e5da7a74a4670b1d6e440e156121e5fd100d63505c","rule":"idle","sends":1,"table":"intent"}', 'bce8bc72aa490a95d45f9ce88370b1c114655aefcb68ef79015b5958d7602d59', '6023d12c51a65d615bcb08e8ea39586a40b425dab1803459b1d32ba8a21599bd');
INSERT INTO public.audit VALUES (7, 1795359579431119, 'settings', '{"before":"","mark":"0f1e2d3c4b5a6978"}', '6023d12c51a65d615bcb08e8ea39586a40b425dab1803459b1d32ba8a21599bd', 'b2b6a437db74d527f2b862f03c36c7025e4a3df6fc55779b019fc4bc43c9222a');
INSERT INTO public.coverage VALUES (1, 1, 'complete', '', 1795122000000000, 1795122000000000, 1);
INSERT INTO public.coverage VALUES (2, 1, 'complete', '', 1795125600000000, 1795125600000000, 1);
INSERT INTO public.coverage VALUES (3, 1, 'complete', '', 1795129200000000, 1795129200000000, 1);
INSERT INTO public.coverage VALUES (4, 1, 'complete', '', 1795136400000000, 1795136400000000, 1);
INSERT INTO public.coverage VALUES (5, 1, 'complete', '', 1795154400000000, 1795154400000000, 1);
INSERT INTO public.coverage VALUES (6, 1, 'complete', '', 1795158000000000, 1795159200000000, 6);
INSERT INTO public.daily VALUES (20776, 1, 'compute', 'USD', 1, 4024000000, 4024000000, 4024000000, 14400000000);
INSERT INTO public.guard_run VALUES (1, 'run-1', 1795263000000000, 1, 60000000, 0, 'acting', '[]', '[["breaker",""],["settings","0f1e2d3c4b5a6978"]]');
INSERT INTO public.intent VALUES ('stop-i-0c2d', 'aws', '123456789012', 'us-east-1', 'i-0c2d', '1795118400000000/-', 'stop', 'idle-gpu', 'idle', 'idle since 11:00', '{}', 'done', 1795263000000000, 1795263000000000, 1, '[]', 0, 1, 1795263000000000, NULL, '');
INSERT INTO public.intent VALUES ('stop-i-0a1b', 'aws', '123456789012', 'us-east-1', 'i-0a1b', '1795154400000000/-', 'stop', 'idle-gpu', 'idle', 'idle since 11:30', '{}', 'ready', 1795263000000000, 1795263000000000, 1, '[]', 0, 0, NULL, NULL, '');
INSERT INTO public.intent_event VALUES (1, 'stop-i-0c2d', 1795263000000000, '', 'ready', 'idle since 11:00', 1, '');
INSERT INTO public.intent_event VALUES (2, 'stop-i-0c2d', 1795263000000000, 'ready', 'executing', 'idle since 11:00', 1, 'r1');
INSERT INTO public.intent_event VALUES (3, 'stop-i-0c2d', 1795263000000000, 'executing', 'verifying', 'idle since 11:00', 1, '');
INSERT INTO public.intent_event VALUES (4, 'stop-i-0c2d', 1795263000000000, 'verifying', 'done', 'idle since 11:00', 1, '');
INSERT INTO public.intent_event VALUES (5, 'stop-i-0a1b', 1795263000000000, '', 'ready', 'idle since 11:30', 1, '');
INSERT INTO public.ledger_state VALUES (1, 'e7328b36-49be-4a6a-99f9-4cfc2ac17690', 1795336340430643, 1);
INSERT INTO public.observation VALUES (1, 1, 1795122000000000, NULL, 'running', 'old <b>box</b>', 'g5.xlarge', 'ben', 1795118400000000, NULL, '{"state":"running","kind":"instance","tier":"on-demand","name":"old <b>box</b>","instance_type":"g5.xlarge","gpu":"A10G","gpu_count":1,"owner":"ben","started_at":1795118400000000,"prices":[[1006000000,"USD",null,"listing"]],"disks":[[100,"gp3",null]]}');
INSERT INTO public.observation VALUES (2, 1, 1795136400000000, NULL, 'stopped', 'old <b>box</b>', 'g5.xlarge', 'ben', 1795118400000000, 1795132800000000, '{"state":"stopped","kind":"instance","tier":"on-demand","name":"old <b>box</b>","instance_type":"g5.xlarge","gpu":"A10G","gpu_count":1,"owner":"ben","started_at":1795118400000000,"stopped_at":1795132800000000,"prices":[[1006000000,"USD",null,"listing"]],"disks":[[100,"gp3",null]]}');
INSERT INTO public.observation VALUES (3, 2, 1795158000000000, NULL, 'running', 'train-1', 'p5.48xlarge', 'ada', 1795154400000000, NULL, '{"state":"running","kind":"instance","tier":"on-demand","name":"train-1","instance_type":"p5.48xlarge","gpu":"H100-SXM","gpu_count":8,"owner":"ada","started_at":1795154400000000,"labels":[["team","vision"]],"prices":[[98320000000,"USD",null,"listing"]],"disks":[[500,"gp3",null]]}');
INSERT INTO public.resource VALUES (1, 1, 'aws', '123456789012', 'us-east-1', 'i-0c2d', 'instance', 1795122000000000);
INSERT INTO public.resource VALUES (2, 1, 'aws', '123456789012', 'us-east-1', 'i-0a1b', 'instance', 1795158000000000);
INSERT INTO public.scope VALUES (1, 'aws', '123456789012', 'us-east-1');
INSERT INTO public.span VALUES (2, 1, 1, 'storage', 'gp3', 'GB-Months', 100, 1, 0, 80000000, 80000000, 80000000, 'USD', 1, 'EBS gp3: AWS list price, noted in the project''s provider notes (aws.md), 2026-11', 'seen', 1795118400000000, 1795118400000000, 'started_at stated', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.span VALUES (1, 1, 1, 'compute', '', 'Hours', 1, 1, 60, 1006000000, 1006000000, 1006000000, 'USD', 1, 'listing', 'seen', 1795118400000000, 1795118400000000, 'started_at stated', 1795132800000000, 'stopped_at stated', 4024000000, 4024000000, 4024000000);
INSERT INTO public.span VALUES (3, 2, 2, 'compute', '', 'Hours', 1, 1, 60, 98320000000, 98320000000, 98320000000, 'USD', 1, 'listing', 'seen', 1795154400000000, 1795154400000000, 'started_at stated', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.span VALUES (4, 2, 2, 'storage', 'gp3', 'GB-Months', 500, 1, 0, 80000000, 80000000, 80000000, 'USD', 1, 'EBS gp3: AWS list price, noted in the project''s provider notes (aws.md), 2026-11', 'seen', 1795154400000000, 1795154400000000, 'started_at stated', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.turn VALUES (1, 1, 1, 'one', 1795266600000000);
INSERT INTO public.wish VALUES ('w-arm', 'arm', 'settings file', 'armed by the settings', 1795262400000000, 1803038400000000, '', '', '', '', '', 'idle-gpu', 'stop', NULL, NULL);
INSERT INTO public.wish VALUES ('w-freeze', 'freeze', 'ada@lab', 'a migration', 1795262400000000, NULL, '', '', '', '', '', '', '', 1795262700000000, 'ben@lab');
INSERT INTO public.wish VALUES ('w-lease', 'lease', 'ada@lab', 'a run', 1795262400000000, 1795276800000000, 'aws', '123456789012', 'us-east-1', 'i-0a1b', '', '', '', NULL, NULL);
SELECT pg_catalog.setval('public.attribution_id_seq', 1, false);
SELECT pg_catalog.setval('public.bill_adjustment_id_seq', 1, false);
SELECT pg_catalog.setval('public.bill_import_id_seq', 1, false);
SELECT pg_catalog.setval('public.bill_line_id_seq', 1, false);
SELECT pg_catalog.setval('public.correction_id_seq', 1, false);
SELECT pg_catalog.setval('public.coverage_id_seq', 1, false);
SELECT pg_catalog.setval('public.guard_run_id_seq', 1, true);
SELECT pg_catalog.setval('public.intent_event_id_seq', 5, true);
SELECT pg_catalog.setval('public.observation_id_seq', 1, false);
SELECT pg_catalog.setval('public.outbox_id_seq', 1, false);
SELECT pg_catalog.setval('public.reconciliation_id_seq', 1, false);
SELECT pg_catalog.setval('public.resource_id_seq', 1, false);
SELECT pg_catalog.setval('public.scope_id_seq', 1, false);
SELECT pg_catalog.setval('public.span_id_seq', 1, false);
ALTER TABLE ONLY public.agent_code
    ADD CONSTRAINT agent_code_pkey PRIMARY KEY (hash);
ALTER TABLE ONLY public.agent
    ADD CONSTRAINT agent_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.attribution
    ADD CONSTRAINT attribution_once UNIQUE (provider, account, region, kind, gpu, gpu_count_milli, tier, owner, instance_type, labels);
ALTER TABLE ONLY public.attribution
    ADD CONSTRAINT attribution_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.bill_adjustment
    ADD CONSTRAINT bill_adjustment_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.bill_import
    ADD CONSTRAINT bill_import_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.bill_line
    ADD CONSTRAINT bill_line_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.climb
    ADD CONSTRAINT climb_pkey PRIMARY KEY (policy, provider, account, region, external_id, life);
ALTER TABLE ONLY public.correction
    ADD CONSTRAINT correction_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.coverage
    ADD CONSTRAINT coverage_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.daily
    ADD CONSTRAINT daily_pkey PRIMARY KEY (day, attribution_id, charge, currency, known);
ALTER TABLE ONLY public.guard_run
    ADD CONSTRAINT guard_run_once UNIQUE (run_id);
ALTER TABLE ONLY public.guard_run
    ADD CONSTRAINT guard_run_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.hold_budget
    ADD CONSTRAINT hold_budget_pkey PRIMARY KEY (hold_id, budget);
ALTER TABLE ONLY public.hold
    ADD CONSTRAINT hold_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.hook_run
    ADD CONSTRAINT hook_run_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.intent_event
    ADD CONSTRAINT intent_event_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.intent
    ADD CONSTRAINT intent_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.ledger_state
    ADD CONSTRAINT ledger_state_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.notice_state
    ADD CONSTRAINT notice_state_pkey PRIMARY KEY (route, topic, subject, owner);
ALTER TABLE ONLY public.observation
    ADD CONSTRAINT observation_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT outbox_once UNIQUE (message_id, channel);
ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.protection_seen
    ADD CONSTRAINT protection_seen_pkey PRIMARY KEY (provider, account, region, external_id);
ALTER TABLE ONLY public.reconciliation
    ADD CONSTRAINT reconciliation_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.resource
    ADD CONSTRAINT resource_named_once UNIQUE (provider, account, region, external_id);
ALTER TABLE ONLY public.resource
    ADD CONSTRAINT resource_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.sample_hour
    ADD CONSTRAINT sample_hour_pkey PRIMARY KEY (resource_id, signal, hour);
ALTER TABLE ONLY public.sample
    ADD CONSTRAINT sample_pkey PRIMARY KEY (resource_id, signal, at_us);
ALTER TABLE ONLY public.scope
    ADD CONSTRAINT scope_named_once UNIQUE (provider, account, name);
ALTER TABLE ONLY public.scope
    ADD CONSTRAINT scope_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.span
    ADD CONSTRAINT span_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.turn
    ADD CONSTRAINT turn_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.web_token
    ADD CONSTRAINT web_token_pkey PRIMARY KEY (hash);
ALTER TABLE ONLY public.wish
    ADD CONSTRAINT wish_pkey PRIMARY KEY (id);
CREATE UNIQUE INDEX agent_once ON public.agent USING btree (provider, account, region, external_id) WHERE (revoked_us IS NULL);
CREATE INDEX audit_by_kind ON public.audit USING btree (kind, seq);
CREATE INDEX bill_adjustment_by_reconciliation ON public.bill_adjustment USING btree (reconciliation_id);
CREATE INDEX bill_line_by_time ON public.bill_line USING btree (provider, start_us);
CREATE UNIQUE INDEX bill_line_once ON public.bill_line USING btree (provider, account, statement, line_id) WHERE (replaced_us IS NULL);
CREATE INDEX correction_by_span ON public.correction USING btree (span_id, id);
CREATE INDEX coverage_by_scope ON public.coverage USING btree (scope_id, start_us);
CREATE INDEX hook_run_by_beginning ON public.hook_run USING btree (began_us);
CREATE UNIQUE INDEX hook_run_open_once ON public.hook_run USING btree (provider, account, region, external_id, life, policy, number) WHERE (state = 'begun'::text);
CREATE INDEX intent_by_sent ON public.intent USING btree (sent_us);
CREATE INDEX intent_event_by_intent ON public.intent_event USING btree (intent_id, id);
CREATE INDEX intent_event_run ON public.intent_event USING btree (run) WHERE (moved_to = 'executing'::text);
CREATE INDEX intent_event_sends ON public.intent_event USING btree (at_us) WHERE (moved_to = 'executing'::text);
CREATE UNIQUE INDEX intent_in_flight_once ON public.intent USING btree (provider, account, region, external_id) WHERE (state = 'executing'::text);
CREATE UNIQUE INDEX intent_open_once ON public.intent USING btree (provider, account, region, external_id, life, act) WHERE (state = ANY (ARRAY['planned'::text, 'grace'::text, 'ready'::text, 'executing'::text, 'verifying'::text, 'unconfirmed'::text]));
CREATE INDEX observation_by_resource ON public.observation USING btree (resource_id, id);
CREATE INDEX outbox_due ON public.outbox USING btree (next_us) WHERE ((sent_us IS NULL) AND (gave_up_us IS NULL));
CREATE INDEX reconciliation_by_time ON public.reconciliation USING btree (end_us);
CREATE INDEX span_by_end ON public.span USING btree (end_us, start_us);
CREATE INDEX span_by_line ON public.span USING btree (resource_id, charge, part, start_us);
CREATE INDEX span_long ON public.span USING btree (end_us, start_us) WHERE ((end_us - start_us) > '691200000000'::bigint);
CREATE UNIQUE INDEX span_open_once ON public.span USING btree (resource_id, charge, part) WHERE (end_us IS NULL);
CREATE UNIQUE INDEX web_token_once ON public.web_token USING btree (name) WHERE (revoked_us IS NULL);
CREATE OR REPLACE VIEW public.v_holds AS
 SELECT h.id,
    h.who,
    h.why,
    (((h.nano)::numeric * 0.000000001))::text AS amount,
    (((h.spent_nano)::numeric * 0.000000001))::text AS spent,
    h.currency,
    h.provider,
    h.account,
    h.owner,
    h.gpu,
    h.labels,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((h.taken_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS taken_at,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((h.expires_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS expires_at,
    to_char(('1970-01-01 00:00:00'::timestamp without time zone + ((h.ended_us)::double precision * '00:00:00.000001'::interval)), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text) AS ended_at,
    h.ended_by,
    string_agg(b.budget, ', '::text) AS budgets
   FROM (public.hold h
     LEFT JOIN public.hold_budget b ON ((b.hold_id = h.id)))
  GROUP BY h.id;
CREATE TRIGGER costguard_agent_code_is_used_once BEFORE UPDATE ON public.agent_code FOR EACH ROW WHEN ((old.used_us IS NOT NULL)) EXECUTE FUNCTION public.costguard_refuse('a code is used once');
CREATE TRIGGER costguard_agent_code_is_written_once BEFORE UPDATE OF hash, provider, account, region, external_id, life, who, at_us, expires_us ON public.agent_code FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('agent_code is written once: a change is a new row');
CREATE TRIGGER costguard_agent_code_stays BEFORE DELETE ON public.agent_code FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('agent_code keeps every row');
CREATE TRIGGER costguard_agent_code_stays_whole BEFORE TRUNCATE ON public.agent_code FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('agent_code keeps every row');
CREATE TRIGGER costguard_agent_is_written_once BEFORE UPDATE OF id, provider, account, region, external_id, life, public_key, joined_us ON public.agent FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('agent is written once: a change is a new row');
CREATE TRIGGER costguard_agent_seq_rises BEFORE UPDATE OF seq, record_ms ON public.agent FOR EACH ROW WHEN (((new.seq < old.seq) OR (new.record_ms < old.record_ms))) EXECUTE FUNCTION public.costguard_refuse('the numbers of an agent never fall');
CREATE TRIGGER costguard_agent_stays BEFORE DELETE ON public.agent FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('agent keeps every row');
CREATE TRIGGER costguard_agent_stays_revoked BEFORE UPDATE ON public.agent FOR EACH ROW WHEN ((old.revoked_us IS NOT NULL)) EXECUTE FUNCTION public.costguard_refuse('a revoked agent does not change');
CREATE TRIGGER costguard_agent_stays_whole BEFORE TRUNCATE ON public.agent FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('agent keeps every row');
CREATE TRIGGER costguard_attribution_is_written_once BEFORE UPDATE ON public.attribution FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('attribution is written once: a change is a new row');
CREATE TRIGGER costguard_attribution_stays BEFORE DELETE ON public.attribution FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('attribution keeps every row');
CREATE TRIGGER costguard_attribution_stays_whole BEFORE TRUNCATE ON public.attribution FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('attribution keeps every row');
CREATE TRIGGER costguard_audit_goes_on BEFORE INSERT ON public.audit FOR EACH ROW EXECUTE FUNCTION public.costguard_audit_goes_on();
CREATE TRIGGER costguard_audit_is_written_once BEFORE UPDATE ON public.audit FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('audit is written once: a change is a new row');
CREATE TRIGGER costguard_audit_stays BEFORE DELETE ON public.audit FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('audit keeps every row');
CREATE TRIGGER costguard_audit_stays_whole BEFORE TRUNCATE ON public.audit FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('audit keeps every row');
CREATE TRIGGER costguard_bill_adjustment_is_written_once BEFORE UPDATE ON public.bill_adjustment FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('bill_adjustment is written once: a change is a new row');
CREATE TRIGGER costguard_bill_adjustment_stays BEFORE DELETE ON public.bill_adjustment FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('bill_adjustment keeps every row');
CREATE TRIGGER costguard_bill_adjustment_stays_whole BEFORE TRUNCATE ON public.bill_adjustment FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('bill_adjustment keeps every row');
CREATE TRIGGER costguard_bill_import_is_written_once BEFORE UPDATE ON public.bill_import FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('bill_import is written once: a change is a new row');
CREATE TRIGGER costguard_bill_import_stays BEFORE DELETE ON public.bill_import FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('bill_import keeps every row');
CREATE TRIGGER costguard_bill_import_stays_whole BEFORE TRUNCATE ON public.bill_import FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('bill_import keeps every row');
CREATE TRIGGER costguard_bill_line_is_replaced_once BEFORE UPDATE OF replaced_us, replaced_by, replaced_why ON public.bill_line FOR EACH ROW WHEN (((old.replaced_us IS NOT NULL) OR (new.replaced_us IS NULL))) EXECUTE FUNCTION public.costguard_refuse('a line of a bill is replaced once');
CREATE TRIGGER costguard_bill_line_is_written_once BEFORE UPDATE OF id, import_id, provider, account, statement, line_id, start_us, end_us, nano, currency, charge, external_id, region, estimated, stated_us, source, description ON public.bill_line FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('bill_line is written once: a change is a new row');
CREATE TRIGGER costguard_bill_line_stays BEFORE DELETE ON public.bill_line FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('bill_line keeps every row');
CREATE TRIGGER costguard_bill_line_stays_whole BEFORE TRUNCATE ON public.bill_line FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('bill_line keeps every row');
CREATE TRIGGER costguard_correction_is_written_once BEFORE UPDATE ON public.correction FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('correction is written once: a change is a new row');
CREATE TRIGGER costguard_correction_stays BEFORE DELETE ON public.correction FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('correction keeps every row');
CREATE TRIGGER costguard_correction_stays_whole BEFORE TRUNCATE ON public.correction FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('correction keeps every row');
CREATE TRIGGER costguard_coverage_is_written_once BEFORE UPDATE OF id, scope_id, outcome, why, start_us ON public.coverage FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('coverage is written once: a change is a new row');
CREATE TRIGGER costguard_coverage_stays BEFORE DELETE ON public.coverage FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('coverage keeps every row');
CREATE TRIGGER costguard_coverage_stays_whole BEFORE TRUNCATE ON public.coverage FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('coverage keeps every row');
CREATE TRIGGER costguard_guard_run_is_written_once BEFORE UPDATE ON public.guard_run FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('guard_run is written once: a change is a new row');
CREATE TRIGGER costguard_hook_run_ends_once BEFORE UPDATE ON public.hook_run FOR EACH ROW WHEN ((old.state <> 'begun'::text)) EXECUTE FUNCTION public.costguard_refuse('a run of a hook ends once');
CREATE TRIGGER costguard_hook_run_is_written_before_it_begins BEFORE INSERT ON public.hook_run FOR EACH ROW WHEN ((new.state <> 'begun'::text)) EXECUTE FUNCTION public.costguard_refuse('a run of a hook begins unended');
CREATE TRIGGER costguard_hook_run_is_written_once BEFORE UPDATE OF id, provider, account, region, external_id, life, policy, rule, number, hook, began_us, until_us, epoch ON public.hook_run FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('hook_run is written once: a change is a new row');
CREATE TRIGGER costguard_hook_run_stays BEFORE DELETE ON public.hook_run FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('hook_run keeps every row');
CREATE TRIGGER costguard_hook_run_stays_whole BEFORE TRUNCATE ON public.hook_run FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('hook_run keeps every row');
CREATE TRIGGER costguard_intent_begins_unsent BEFORE INSERT ON public.intent FOR EACH ROW WHEN (((new.state <> ALL (ARRAY['planned'::text, 'grace'::text, 'ready'::text])) OR (new.sends <> 0))) EXECUTE FUNCTION public.costguard_refuse('an intent is written before anything is sent');
CREATE TRIGGER costguard_intent_counts_sends BEFORE UPDATE OF state, sends ON public.intent FOR EACH ROW WHEN ((new.sends <> (old.sends +
        CASE
            WHEN ((new.state = 'executing'::text) AND (old.state <> 'executing'::text)) THEN 1
            ELSE 0
        END))) EXECUTE FUNCTION public.costguard_refuse('each send of an intent counts, once');
CREATE TRIGGER costguard_intent_event_is_written_once BEFORE UPDATE ON public.intent_event FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('intent_event is written once: a change is a new row');
CREATE TRIGGER costguard_intent_event_stays BEFORE DELETE ON public.intent_event FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('intent_event keeps every row');
CREATE TRIGGER costguard_intent_event_stays_whole BEFORE TRUNCATE ON public.intent_event FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('intent_event keeps every row');
CREATE TRIGGER costguard_intent_is_written_once BEFORE UPDATE OF id, provider, account, region, external_id, life, act, policy, rule, created_us ON public.intent FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('intent is written once: a change is a new row');
CREATE TRIGGER costguard_intent_moves_forward BEFORE UPDATE OF state ON public.intent FOR EACH ROW WHEN ((((old.state || '>'::text) || new.state) <> ALL (ARRAY['planned>planned'::text, 'planned>grace'::text, 'planned>ready'::text, 'planned>cancelled'::text, 'grace>grace'::text, 'grace>ready'::text, 'grace>cancelled'::text, 'ready>ready'::text, 'ready>executing'::text, 'ready>cancelled'::text, 'executing>executing'::text, 'executing>verifying'::text, 'executing>ready'::text, 'executing>done'::text, 'executing>cancelled'::text, 'executing>failed'::text, 'executing>unconfirmed'::text, 'verifying>verifying'::text, 'verifying>executing'::text, 'verifying>done'::text, 'verifying>cancelled'::text, 'verifying>failed'::text, 'verifying>unconfirmed'::text, 'unconfirmed>unconfirmed'::text, 'unconfirmed>verifying'::text, 'unconfirmed>executing'::text, 'unconfirmed>done'::text, 'unconfirmed>failed'::text, 'unconfirmed>cancelled'::text, 'done>done'::text, 'cancelled>cancelled'::text, 'failed>failed'::text]))) EXECUTE FUNCTION public.costguard_refuse('an intent moves forward only');
CREATE TRIGGER costguard_intent_stays BEFORE DELETE ON public.intent FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('intent keeps every row');
CREATE TRIGGER costguard_intent_stays_settled BEFORE UPDATE ON public.intent FOR EACH ROW WHEN ((old.state = ANY (ARRAY['done'::text, 'cancelled'::text, 'failed'::text]))) EXECUTE FUNCTION public.costguard_refuse('a settled intent does not change');
CREATE TRIGGER costguard_intent_stays_whole BEFORE TRUNCATE ON public.intent FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('intent keeps every row');
CREATE TRIGGER costguard_ledger_state_stays BEFORE DELETE ON public.ledger_state FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('ledger_state keeps every row');
CREATE TRIGGER costguard_ledger_state_stays_whole BEFORE TRUNCATE ON public.ledger_state FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('ledger_state keeps every row');
CREATE TRIGGER costguard_observation_is_written_once BEFORE UPDATE ON public.observation FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('observation is written once: a change is a new row');
CREATE TRIGGER costguard_observation_stays BEFORE DELETE ON public.observation FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('observation keeps every row');
CREATE TRIGGER costguard_observation_stays_whole BEFORE TRUNCATE ON public.observation FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('observation keeps every row');
CREATE TRIGGER costguard_reconciliation_is_written_once BEFORE UPDATE ON public.reconciliation FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('reconciliation is written once: a change is a new row');
CREATE TRIGGER costguard_reconciliation_stays BEFORE DELETE ON public.reconciliation FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('reconciliation keeps every row');
CREATE TRIGGER costguard_reconciliation_stays_whole BEFORE TRUNCATE ON public.reconciliation FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('reconciliation keeps every row');
CREATE TRIGGER costguard_resource_is_written_once BEFORE UPDATE OF id, provider, account, region, external_id ON public.resource FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('resource is written once: a change is a new row');
CREATE TRIGGER costguard_resource_stays BEFORE DELETE ON public.resource FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('resource keeps every row');
CREATE TRIGGER costguard_resource_stays_whole BEFORE TRUNCATE ON public.resource FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('resource keeps every row');
CREATE TRIGGER costguard_scope_is_written_once BEFORE UPDATE ON public.scope FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('scope is written once: a change is a new row');
CREATE TRIGGER costguard_scope_stays BEFORE DELETE ON public.scope FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('scope keeps every row');
CREATE TRIGGER costguard_scope_stays_whole BEFORE TRUNCATE ON public.scope FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('scope keeps every row');
CREATE TRIGGER costguard_span_closes_once BEFORE UPDATE OF end_us, ended_by, low, expected, high ON public.span FOR EACH ROW WHEN (((old.end_us IS NOT NULL) OR (new.end_us IS NULL))) EXECUTE FUNCTION public.costguard_refuse('a closed span does not change: write a correction');
CREATE TRIGGER costguard_span_is_written_once BEFORE UPDATE OF id, resource_id, attribution_id, charge, part, unit, quantity, quantum_s, minimum_s, price_low, price_expected, price_high, currency, price_known, price_source, presence, anchor_us, start_us, why ON public.span FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('span is written once: a change is a new row');
CREATE TRIGGER costguard_span_overlaps_none BEFORE INSERT ON public.span FOR EACH ROW EXECUTE FUNCTION public.costguard_span_overlaps_none();
CREATE TRIGGER costguard_span_stays BEFORE DELETE ON public.span FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('span keeps every row');
CREATE TRIGGER costguard_span_stays_whole BEFORE TRUNCATE ON public.span FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('span keeps every row');
CREATE TRIGGER costguard_turn_epoch_rises BEFORE UPDATE OF epoch ON public.turn FOR EACH ROW WHEN ((new.epoch < old.epoch)) EXECUTE FUNCTION public.costguard_refuse('the epoch of a turn never falls');
CREATE TRIGGER costguard_turn_stays BEFORE DELETE ON public.turn FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('turn keeps every row');
CREATE TRIGGER costguard_turn_stays_whole BEFORE TRUNCATE ON public.turn FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('turn keeps every row');
CREATE TRIGGER costguard_web_token_is_revoked_once BEFORE UPDATE ON public.web_token FOR EACH ROW WHEN ((old.revoked_us IS NOT NULL)) EXECUTE FUNCTION public.costguard_refuse('a token is revoked once');
CREATE TRIGGER costguard_web_token_is_written_once BEFORE UPDATE OF hash, name, role, who, made_us, expires_us ON public.web_token FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('web_token is written once: a change is a new row');
CREATE TRIGGER costguard_web_token_stays BEFORE DELETE ON public.web_token FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('web_token keeps every row');
CREATE TRIGGER costguard_web_token_stays_whole BEFORE TRUNCATE ON public.web_token FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('web_token keeps every row');
CREATE TRIGGER costguard_wish_is_lifted_once BEFORE UPDATE OF lifted_us, lifted_by ON public.wish FOR EACH ROW WHEN (((old.lifted_us IS NOT NULL) OR (new.lifted_us IS NULL))) EXECUTE FUNCTION public.costguard_refuse('a wish is lifted once');
CREATE TRIGGER costguard_wish_is_written_once BEFORE UPDATE OF id, what, who, why, at_us, until_us, provider, account, region, external_id, life, subject, value ON public.wish FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('wish is written once: a change is a new row');
CREATE TRIGGER costguard_wish_stays BEFORE DELETE ON public.wish FOR EACH ROW EXECUTE FUNCTION public.costguard_refuse('wish keeps every row');
CREATE TRIGGER costguard_wish_stays_whole BEFORE TRUNCATE ON public.wish FOR EACH STATEMENT EXECUTE FUNCTION public.costguard_refuse('wish keeps every row');
ALTER TABLE ONLY public.bill_adjustment
    ADD CONSTRAINT bill_adjustment_reconciliation_id_fkey FOREIGN KEY (reconciliation_id) REFERENCES public.reconciliation(id);
ALTER TABLE ONLY public.bill_line
    ADD CONSTRAINT bill_line_import_id_fkey FOREIGN KEY (import_id) REFERENCES public.bill_import(id);
ALTER TABLE ONLY public.bill_line
    ADD CONSTRAINT bill_line_replaced_by_fkey FOREIGN KEY (replaced_by) REFERENCES public.bill_import(id);
ALTER TABLE ONLY public.correction
    ADD CONSTRAINT correction_span_id_fkey FOREIGN KEY (span_id) REFERENCES public.span(id);
ALTER TABLE ONLY public.coverage
    ADD CONSTRAINT coverage_scope_id_fkey FOREIGN KEY (scope_id) REFERENCES public.scope(id);
ALTER TABLE ONLY public.daily
    ADD CONSTRAINT daily_attribution_id_fkey FOREIGN KEY (attribution_id) REFERENCES public.attribution(id);
ALTER TABLE ONLY public.hold_budget
    ADD CONSTRAINT hold_budget_hold_id_fkey FOREIGN KEY (hold_id) REFERENCES public.hold(id);
ALTER TABLE ONLY public.intent_event
    ADD CONSTRAINT intent_event_intent_id_fkey FOREIGN KEY (intent_id) REFERENCES public.intent(id);
ALTER TABLE ONLY public.observation
    ADD CONSTRAINT observation_resource_id_fkey FOREIGN KEY (resource_id) REFERENCES public.resource(id);
ALTER TABLE ONLY public.resource
    ADD CONSTRAINT resource_scope_id_fkey FOREIGN KEY (scope_id) REFERENCES public.scope(id);
ALTER TABLE ONLY public.sample_hour
    ADD CONSTRAINT sample_hour_resource_id_fkey FOREIGN KEY (resource_id) REFERENCES public.resource(id);
ALTER TABLE ONLY public.sample
    ADD CONSTRAINT sample_resource_id_fkey FOREIGN KEY (resource_id) REFERENCES public.resource(id);
ALTER TABLE ONLY public.span
    ADD CONSTRAINT span_attribution_id_fkey FOREIGN KEY (attribution_id) REFERENCES public.attribution(id);
ALTER TABLE ONLY public.span
    ADD CONSTRAINT span_resource_id_fkey FOREIGN KEY (resource_id) REFERENCES public.resource(id);
