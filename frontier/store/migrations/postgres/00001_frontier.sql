-- Times are milliseconds since 1970 by the database's clock.
-- +goose Up
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- due_at is when a claim should next look at the host: a hint that may be too
-- early, never too late. Null: a put, a record or a resume will set it.
CREATE TABLE hosts (
    id             BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host           TEXT    NOT NULL UNIQUE,
    due_at         BIGINT,
    next_at        BIGINT  NOT NULL DEFAULT 0,
    delay_ms       BIGINT,
    crawl_delay_ms BIGINT  NOT NULL DEFAULT 0,
    blocked_until  BIGINT  NOT NULL DEFAULT 0,
    block_ms       BIGINT  NOT NULL DEFAULT 0,
    in_flight      BIGINT  NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    max_in_flight  BIGINT  NOT NULL DEFAULT 1 CHECK (max_in_flight > 0),
    paused         BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX hosts_due ON hosts (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE urls (
    id            BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id       BIGINT  NOT NULL REFERENCES hosts (id),
    url           TEXT    NOT NULL,
    url_hash      BYTEA   NOT NULL UNIQUE,
    status        TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'fetching', 'fetched', 'failed', 'dead')),
    ready_at      BIGINT  NOT NULL DEFAULT 0,
    token         BIGINT  NOT NULL DEFAULT 0,
    lease_until   BIGINT  NOT NULL DEFAULT 0,
    worker        TEXT    NOT NULL DEFAULT '',
    holds         BIGINT  NOT NULL DEFAULT 1, -- 1 while a fetch holds its host, 0 after its redirects have left it
    last_error    TEXT    NOT NULL DEFAULT '',
    error_class   TEXT    NOT NULL DEFAULT '',
    retry_count   BIGINT  NOT NULL DEFAULT 0,
    failure_count BIGINT  NOT NULL DEFAULT 0,
    crash_count   BIGINT  NOT NULL DEFAULT 0,
    http_status   BIGINT  NOT NULL DEFAULT 0,
    etag          TEXT    NOT NULL DEFAULT '',
    last_modified TEXT    NOT NULL DEFAULT '',
    body_digest   TEXT    NOT NULL DEFAULT '',
    fetched_at    BIGINT  NOT NULL DEFAULT 0
);
CREATE INDEX urls_waiting ON urls (host_id, ready_at, id) WHERE status IN ('pending', 'failed');
CREATE INDEX urls_leased ON urls (lease_until) WHERE status = 'fetching';

CREATE TABLE fetches (
    id          BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    url_id      BIGINT  NOT NULL REFERENCES urls (id),
    token       BIGINT  NOT NULL,
    url         TEXT    NOT NULL,
    final_url   TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    http_status BIGINT  NOT NULL,
    error_class TEXT    NOT NULL,
    last_error  TEXT    NOT NULL,
    attempts    BIGINT  NOT NULL,
    retry_count BIGINT  NOT NULL,
    duration_ms BIGINT  NOT NULL,
    wait_ms     BIGINT  NOT NULL,
    bytes       BIGINT  NOT NULL,
    body_digest TEXT    NOT NULL,
    ended_at    BIGINT  NOT NULL
);

-- now() is when the transaction started; after a wait for a lock that is too early.
-- +goose StatementBegin
CREATE FUNCTION frontier_now() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION frontier_delay(delay_ms bigint, crawl_delay_ms bigint, default_ms bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT GREATEST(COALESCE(delay_ms, default_ms), crawl_delay_ms) $$;
-- +goose StatementEnd

-- Every function below locks hosts first, then urls, each in the order of id.
-- All but the last name their rows by key. The planner cannot know how few they are,
-- and on a table without statistics reads it whole: 2.7 ms for a claim and record of one.
-- With statistics from a moment without leases it would compare each row with every lease,
-- in the index urls_leased; status || '' keeps it from that.

-- +goose StatementBegin
CREATE FUNCTION frontier_put(p_items jsonb) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    added bigint;
BEGIN
    PERFORM 1 FROM hosts WHERE host IN (SELECT x.host FROM jsonb_to_recordset(p_items) AS x (host text)) ORDER BY id FOR UPDATE;
    UPDATE hosts SET due_at = GREATEST(next_at, blocked_until)
        WHERE host IN (SELECT x.host FROM jsonb_to_recordset(p_items) AS x (host text));
    INSERT INTO urls (host_id, url, url_hash)
        SELECT h.id, x.item ->> 'url', decode(x.item ->> 'hash', 'hex')
        FROM jsonb_array_elements(p_items) WITH ORDINALITY AS x (item, place) JOIN hosts h ON h.host = x.item ->> 'host'
        ORDER BY x.place
        ON CONFLICT ON CONSTRAINT urls_url_hash_key DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    RETURN added;
END $$;
-- +goose StatementEnd

-- The search for URLs is a statement of its own: it must see what was committed
-- by whoever held the host's row before.
-- +goose StatementBegin
CREATE FUNCTION frontier_claim(p_limit int, p_lease_ms bigint, p_worker text)
RETURNS TABLE (id bigint, token bigint, url text, host text, failure_count bigint, crash_count bigint, etag text, last_modified text, body_digest text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    t       bigint;
    locked  bigint[];
    taken   bigint[];
    got     int := 0;
BEGIN
    IF EXISTS (SELECT 1 FROM settings WHERE name = 'paused') THEN
        RETURN;
    END IF;
    LOOP
        t := frontier_now();
        SELECT array_agg(l.id) INTO locked FROM (
            SELECT id FROM hosts WHERE due_at <= t ORDER BY due_at LIMIT p_limit - got FOR UPDATE SKIP LOCKED) AS l;
        EXIT WHEN locked IS NULL;
        SELECT array_agg(u.id) INTO taken
            FROM hosts h CROSS JOIN LATERAL (
                SELECT w.id FROM urls w
                WHERE w.host_id = h.id AND w.status IN ('pending', 'failed') AND w.ready_at <= t
                ORDER BY w.ready_at, w.id LIMIT 1) AS u
            WHERE h.id = ANY (locked) AND NOT h.paused AND h.in_flight < h.max_in_flight
                AND h.next_at <= t AND h.blocked_until <= t;
        UPDATE hosts h SET in_flight = h.in_flight + 1
            FROM urls u WHERE u.id = ANY (taken) AND u.host_id = h.id;
        RETURN QUERY UPDATE urls u
            SET status = 'fetching', token = u.token + 1, lease_until = t + p_lease_ms, worker = p_worker, holds = 1
            FROM hosts h WHERE u.id = ANY (taken) AND h.id = u.host_id
            RETURNING u.id, u.token, u.url, h.host, u.failure_count, u.crash_count, u.etag, u.last_modified, u.body_digest;
        UPDATE hosts h SET due_at = CASE
                WHEN h.paused OR h.in_flight >= h.max_in_flight THEN NULL
                ELSE (SELECT GREATEST(h.next_at, h.blocked_until, w.ready_at) FROM urls w
                    WHERE w.host_id = h.id AND w.status IN ('pending', 'failed')
                    ORDER BY w.ready_at, w.id LIMIT 1) END
            WHERE h.id = ANY (locked);
        got := got + COALESCE(cardinality(taken), 0);
        EXIT WHEN got >= p_limit;
    END LOOP;
END $$;
-- +goose StatementEnd

-- Returns the leases that were held: they are recorded, the others are stale.
-- +goose StatementBegin
CREATE FUNCTION frontier_record(p_items jsonb, p_delay_ms bigint)
RETURNS TABLE (id bigint, token bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    t       bigint;
    r       record;
    done    bigint[];
    broken  text;
BEGIN
    PERFORM 1 FROM hosts WHERE id IN (
            SELECT u.host_id FROM jsonb_to_recordset(p_items) AS x (id bigint) JOIN urls u ON u.id = x.id
            UNION SELECT h.id FROM jsonb_to_recordset(p_items) AS x (final_host text) JOIN hosts h ON h.host = x.final_host)
        ORDER BY id FOR UPDATE;
    PERFORM 1 FROM urls WHERE id IN (SELECT x.id FROM jsonb_to_recordset(p_items) AS x (id bigint)) ORDER BY id FOR UPDATE;
    t := frontier_now();
    WITH items AS (
        SELECT * FROM jsonb_to_recordset(p_items) AS x (id bigint, token bigint, status text, final_url text, last_error text,
            error_class text, retry_in_ms bigint, http_status int, attempts int, retry_count int, duration_ms bigint, wait_ms bigint,
            bytes bigint, etag text, last_modified text, body_digest text, whole boolean)
    ), recorded AS (
        UPDATE urls u SET
            status = i.status, lease_until = 0, worker = '', last_error = i.last_error, error_class = i.error_class,
            retry_count = i.retry_count, http_status = i.http_status,
            failure_count = CASE WHEN i.status = 'fetched' THEN 0 ELSE u.failure_count + 1 END,
            ready_at = CASE WHEN i.status = 'failed' THEN t + 1 + i.retry_in_ms ELSE u.ready_at END,
            etag = CASE WHEN i.etag = '' AND NOT i.whole THEN u.etag ELSE i.etag END,
            last_modified = CASE WHEN i.last_modified = '' AND NOT i.whole THEN u.last_modified ELSE i.last_modified END,
            body_digest = CASE WHEN i.whole THEN i.body_digest ELSE u.body_digest END,
            fetched_at = t
        FROM items i WHERE u.id = i.id AND u.token = i.token AND u.status || '' = 'fetching'
        RETURNING u.id, u.host_id, u.url, u.holds, i.attempts
    ), opened AS (
        -- Without an attempt, or where the host was left before, there is no time at which one
        -- ended: GREATEST passes over the null.
        UPDATE hosts h SET
            in_flight = h.in_flight - d.ended,
            next_at = GREATEST(h.next_at, d.last + 1 + frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms)),
            due_at = GREATEST(h.next_at, h.blocked_until, d.last + 1 + frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms))
        FROM (SELECT host_id, sum(holds) AS ended, max(CASE WHEN attempts > 0 AND holds = 1 THEN t END) AS last FROM recorded GROUP BY host_id) AS d
        WHERE h.id = d.host_id
    ), written AS (
        INSERT INTO fetches (url_id, token, url, final_url, status, http_status, error_class, last_error, attempts, retry_count,
            duration_ms, wait_ms, bytes, body_digest, ended_at)
        SELECT i.id, i.token, d.url, i.final_url, i.status, i.http_status, i.error_class, i.last_error, i.attempts, i.retry_count,
            i.duration_ms, i.wait_ms, i.bytes, i.body_digest, t
        FROM recorded d JOIN items i ON i.id = d.id
    )
    SELECT array_agg(d.id) INTO done FROM recorded d;

    FOR r IN SELECT x.id, x.final_url, decode(x.final_hash, 'hex') AS hash, h.id AS host_id
        FROM jsonb_to_recordset(p_items) AS x (id bigint, final_url text, final_hash text, final_host text)
        JOIN hosts h ON h.host = x.final_host
        WHERE x.id = ANY (done) ORDER BY x.id
    LOOP
        -- The row itself, if the fetch ended where it began, or another one.
        CONTINUE WHEN EXISTS (SELECT 1 FROM urls WHERE url_hash = r.hash);
        BEGIN
            UPDATE urls SET url = r.final_url, url_hash = r.hash, host_id = r.host_id WHERE id = r.id;
        EXCEPTION WHEN unique_violation THEN
            GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME;
            IF broken IS DISTINCT FROM 'urls_url_hash_key' THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    RETURN QUERY SELECT u.id, u.token FROM urls u WHERE u.id = ANY (done);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION frontier_release(p_items jsonb)
RETURNS TABLE (id bigint, token bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM hosts WHERE id IN (
        SELECT u.host_id FROM jsonb_to_recordset(p_items) AS x (id bigint) JOIN urls u ON u.id = x.id) ORDER BY id FOR UPDATE;
    PERFORM 1 FROM urls WHERE id IN (SELECT x.id FROM jsonb_to_recordset(p_items) AS x (id bigint)) ORDER BY id FOR UPDATE;
    RETURN QUERY WITH freed AS (
        UPDATE urls u SET status = 'pending', lease_until = 0, worker = ''
        FROM jsonb_to_recordset(p_items) AS x (id bigint, token bigint)
        WHERE u.id = x.id AND u.token = x.token AND u.status || '' = 'fetching'
        RETURNING u.id, u.token, u.host_id, u.holds
    ), opened AS (
        UPDATE hosts h SET in_flight = h.in_flight - d.ended, due_at = GREATEST(h.next_at, h.blocked_until)
        FROM (SELECT host_id, sum(holds) AS ended FROM freed GROUP BY host_id) AS d WHERE h.id = d.host_id
    )
    SELECT f.id, f.token FROM freed f;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION frontier_reap(p_delay_ms bigint) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    t       bigint := frontier_now();
    ids     bigint[];
    reaped  bigint;
BEGIN
    SELECT array_agg(id) INTO ids FROM urls WHERE status = 'fetching' AND lease_until <= t;
    PERFORM 1 FROM hosts WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (ids)) ORDER BY id FOR UPDATE;
    PERFORM 1 FROM urls WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
    t := frontier_now();
    WITH freed AS (
        UPDATE urls SET status = 'pending', lease_until = 0, worker = '', crash_count = crash_count + 1
        WHERE id = ANY (ids) AND status = 'fetching' AND lease_until <= t
        RETURNING id, host_id, holds
    ), opened AS (
        UPDATE hosts h SET
            in_flight = h.in_flight - d.ended,
            next_at = GREATEST(h.next_at, t + 1 + frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms)),
            due_at = GREATEST(h.next_at, h.blocked_until, t + 1 + frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms))
        FROM (SELECT host_id, sum(holds) AS ended FROM freed GROUP BY host_id) AS d WHERE h.id = d.host_id
    )
    SELECT count(*) INTO reaped FROM freed;
    RETURN reaped;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION frontier_retry(p_class text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ids   bigint[];
    again bigint;
BEGIN
    SELECT array_agg(id) INTO ids FROM urls WHERE status IN ('failed', 'dead') AND (p_class = '' OR error_class = p_class);
    PERFORM 1 FROM hosts WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (ids)) ORDER BY id FOR UPDATE;
    PERFORM 1 FROM urls WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
    UPDATE hosts SET due_at = GREATEST(next_at, blocked_until) WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (ids));
    UPDATE urls SET status = 'pending', failure_count = 0, crash_count = 0, ready_at = 0
        WHERE id = ANY (ids) AND status IN ('failed', 'dead') AND (p_class = '' OR error_class = p_class);
    GET DIAGNOSTICS again = ROW_COUNT;
    RETURN again;
END $$;
-- +goose StatementEnd
