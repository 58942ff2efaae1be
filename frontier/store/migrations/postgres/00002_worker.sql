-- For workers that follow redirects themselves and abandon lost fetches.
-- +goose Up

-- The next_at that a reservation has set, until it is settled.
ALTER TABLE hosts ADD COLUMN reserved_until BIGINT NOT NULL DEFAULT 0;

-- Ends leases before they expire; frontier_reap ends them afterwards. Returns those that were held.
-- +goose StatementBegin
CREATE FUNCTION frontier_abandon(p_items jsonb, p_delay_ms bigint)
RETURNS TABLE (id bigint, token bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    t   bigint;
BEGIN
    PERFORM 1 FROM hosts WHERE id IN (
        SELECT u.host_id FROM jsonb_to_recordset(p_items) AS x (id bigint) JOIN urls u ON u.id = x.id) ORDER BY id FOR UPDATE;
    PERFORM 1 FROM urls WHERE id IN (SELECT x.id FROM jsonb_to_recordset(p_items) AS x (id bigint)) ORDER BY id FOR UPDATE;
    t := frontier_now();
    RETURN QUERY WITH freed AS (
        UPDATE urls u SET status = 'pending', lease_until = 0, worker = '', crash_count = u.crash_count + 1
        FROM jsonb_to_recordset(p_items) AS x (id bigint, token bigint)
        WHERE u.id = x.id AND u.token = x.token AND u.status || '' = 'fetching'
        RETURNING u.id, u.token, u.host_id, u.holds
    ), opened AS (
        UPDATE hosts h SET
            in_flight = h.in_flight - d.ended,
            next_at = GREATEST(h.next_at, t + 1 + frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms)),
            due_at = GREATEST(h.next_at, h.blocked_until, t + 1 + frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms))
        FROM (SELECT host_id, sum(holds) AS ended FROM freed GROUP BY host_id) AS d WHERE h.id = d.host_id
    )
    SELECT f.id, f.token FROM freed f;
END $$;
-- +goose StatementEnd

-- With statistics from when most URLs were waiting, the planner would look for one in the table, all of it once there is none.
-- +goose StatementBegin
CREATE FUNCTION frontier_left() RETURNS boolean LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT EXISTS (SELECT 1 FROM urls WHERE status IN ('pending', 'failed')) OR EXISTS (SELECT 1 FROM urls WHERE status = 'fetching')
$$;
-- +goose StatementEnd

-- status and error_class describe the last fetch. body is that of the last answer, if any.
CREATE TABLE robots (
    origin            TEXT    PRIMARY KEY,
    saved_at          BIGINT  NOT NULL,
    status            BIGINT  NOT NULL,
    error_class       TEXT    NOT NULL,
    unreachable_since BIGINT  NOT NULL DEFAULT 0,
    has_body          BOOLEAN NOT NULL DEFAULT FALSE,
    body_status       BIGINT  NOT NULL DEFAULT 0,
    body              BYTEA   NOT NULL DEFAULT ''
);

-- +goose StatementBegin
CREATE FUNCTION frontier_refetch(p_age_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ids   bigint[];
    again bigint;
BEGIN
    SELECT array_agg(id) INTO ids FROM urls WHERE status = 'fetched' AND fetched_at <= frontier_now() - p_age_ms;
    PERFORM 1 FROM hosts WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (ids)) ORDER BY id FOR UPDATE;
    PERFORM 1 FROM urls WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
    UPDATE hosts SET due_at = GREATEST(next_at, blocked_until) WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (ids));
    UPDATE urls SET status = 'pending', crash_count = 0, ready_at = 0 WHERE id = ANY (ids) AND status = 'fetched';
    GET DIAGNOSTICS again = ROW_COUNT;
    RETURN again;
END $$;
-- +goose StatementEnd

-- Opens the hosts of these leases after their delay, although the fetches continue at other hosts.
-- +goose StatementBegin
CREATE FUNCTION frontier_depart(p_items jsonb, p_delay_ms bigint)
RETURNS TABLE (id bigint, token bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    t   bigint;
BEGIN
    PERFORM 1 FROM hosts WHERE id IN (
        SELECT u.host_id FROM jsonb_to_recordset(p_items) AS x (id bigint) JOIN urls u ON u.id = x.id) ORDER BY id FOR UPDATE;
    PERFORM 1 FROM urls WHERE id IN (SELECT x.id FROM jsonb_to_recordset(p_items) AS x (id bigint)) ORDER BY id FOR UPDATE;
    t := frontier_now();
    RETURN QUERY WITH left_host AS (
        UPDATE urls u SET holds = 0
        FROM jsonb_to_recordset(p_items) AS x (id bigint, token bigint)
        WHERE u.id = x.id AND u.token = x.token AND u.status || '' = 'fetching' AND u.holds = 1
        RETURNING u.id, u.token, u.host_id
    ), opened AS (
        UPDATE hosts h SET
            in_flight = h.in_flight - d.ended,
            next_at = GREATEST(h.next_at, t + 1 + frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms)),
            due_at = GREATEST(h.next_at, h.blocked_until, t + 1 + frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms))
        FROM (SELECT host_id, count(*) AS ended FROM left_host GROUP BY host_id) AS d WHERE h.id = d.host_id
    )
    SELECT l.id, l.token FROM left_host l;
END $$;
-- +goose StatementEnd

-- Makes the waiting URLs of a host dead.
-- +goose StatementBegin
CREATE FUNCTION frontier_abort(p_host text, p_class text, p_text text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    h     bigint;
    ids   bigint[];
    ended bigint;
BEGIN
    SELECT id INTO h FROM hosts WHERE host = p_host FOR UPDATE;
    SELECT array_agg(id) INTO ids FROM urls WHERE host_id = h AND status IN ('pending', 'failed');
    PERFORM 1 FROM urls WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
    UPDATE urls SET status = 'dead', error_class = p_class, last_error = p_text
        WHERE id = ANY (ids) AND host_id = h AND status IN ('pending', 'failed');
    GET DIAGNOSTICS ended = ROW_COUNT;
    RETURN ended;
END $$;
-- +goose StatementEnd
