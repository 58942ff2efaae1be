-- Where responses are in WARC files, and the earlier record that the next one of a URL or of a robots.txt may
-- refer to. Dates are those of the records, as text, so that they are equal to the last digit.
-- +goose Up
ALTER TABLE fetches ADD COLUMN warc_file TEXT NOT NULL DEFAULT '',
    ADD COLUMN warc_offset BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN warc_length BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN warc_record_id TEXT NOT NULL DEFAULT '',
    ADD COLUMN warc_date TEXT NOT NULL DEFAULT '',
    ADD COLUMN warc_payload_digest TEXT NOT NULL DEFAULT '';
ALTER TABLE urls ADD COLUMN earlier_record_id TEXT NOT NULL DEFAULT '',
    ADD COLUMN earlier_url TEXT NOT NULL DEFAULT '',
    ADD COLUMN earlier_date TEXT NOT NULL DEFAULT '',
    ADD COLUMN earlier_payload_digest TEXT NOT NULL DEFAULT '';
ALTER TABLE robots ADD COLUMN earlier_record_id TEXT NOT NULL DEFAULT '',
    ADD COLUMN earlier_url TEXT NOT NULL DEFAULT '',
    ADD COLUMN earlier_date TEXT NOT NULL DEFAULT '',
    ADD COLUMN earlier_payload_digest TEXT NOT NULL DEFAULT '';

-- frontier_claim stays for workers that are older.
-- +goose StatementBegin
CREATE FUNCTION frontier_claim_earlier(p_limit int, p_lease_ms bigint, p_worker text)
RETURNS TABLE (id bigint, token bigint, url text, host text, failure_count bigint, crash_count bigint, etag text, last_modified text, body_digest text,
    earlier_record_id text, earlier_url text, earlier_date text, earlier_payload_digest text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    taken   bigint[];
BEGIN
    SELECT array_agg(c.id) INTO taken FROM frontier_claim(p_limit, p_lease_ms, p_worker) c;
    RETURN QUERY SELECT u.id, u.token, u.url, h.host, u.failure_count, u.crash_count, u.etag, u.last_modified, u.body_digest,
            u.earlier_record_id, u.earlier_url, u.earlier_date, u.earlier_payload_digest
        FROM urls u JOIN hosts h ON h.id = u.host_id WHERE u.id = ANY (taken);
END $$;
-- +goose StatementEnd

-- Returns the leases that were held: they are recorded, the others are stale.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION frontier_record(p_items jsonb, p_delay_ms bigint)
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
            bytes bigint, etag text, last_modified text, body_digest text, whole boolean, content_type text, charset text, headers text,
            warc_file text, warc_offset bigint, warc_length bigint, warc_record_id text, warc_date text, warc_payload_digest text,
            earlier_record_id text, earlier_url text, earlier_date text, earlier_payload_digest text)
    ), recorded AS (
        UPDATE urls u SET
            status = i.status, lease_until = 0, worker = '', last_error = i.last_error, error_class = i.error_class,
            retry_count = i.retry_count, http_status = i.http_status,
            failure_count = CASE WHEN i.status = 'fetched' THEN 0 ELSE u.failure_count + 1 END,
            ready_at = CASE WHEN i.status = 'failed' THEN t + 1 + i.retry_in_ms ELSE u.ready_at END,
            etag = CASE WHEN i.etag = '' AND NOT i.whole THEN u.etag ELSE i.etag END,
            last_modified = CASE WHEN i.last_modified = '' AND NOT i.whole THEN u.last_modified ELSE i.last_modified END,
            body_digest = CASE WHEN i.whole THEN i.body_digest ELSE u.body_digest END,
            earlier_record_id = CASE WHEN i.whole THEN COALESCE(i.earlier_record_id, '') ELSE u.earlier_record_id END,
            earlier_url = CASE WHEN i.whole THEN COALESCE(i.earlier_url, '') ELSE u.earlier_url END,
            earlier_date = CASE WHEN i.whole THEN COALESCE(i.earlier_date, '') ELSE u.earlier_date END,
            earlier_payload_digest = CASE WHEN i.whole THEN COALESCE(i.earlier_payload_digest, '') ELSE u.earlier_payload_digest END,
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
            duration_ms, wait_ms, bytes, body_digest, ended_at, content_type, charset, headers,
            warc_file, warc_offset, warc_length, warc_record_id, warc_date, warc_payload_digest)
        SELECT i.id, i.token, d.url, i.final_url, i.status, i.http_status, i.error_class, i.last_error, i.attempts, i.retry_count,
            i.duration_ms, i.wait_ms, i.bytes, i.body_digest, t,
            COALESCE(i.content_type, ''), COALESCE(i.charset, ''), COALESCE(i.headers, ''), -- null from a worker that is older
            COALESCE(i.warc_file, ''), COALESCE(i.warc_offset, 0), COALESCE(i.warc_length, 0), COALESCE(i.warc_record_id, ''),
            COALESCE(i.warc_date, ''), COALESCE(i.warc_payload_digest, '')
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

-- Those of one host, or of all. The functions without a host stay for programs that are older.
-- +goose StatementBegin
CREATE FUNCTION frontier_retry(p_class text, p_host text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ids   bigint[];
    again bigint;
BEGIN
    SELECT array_agg(id) INTO ids FROM urls WHERE status IN ('failed', 'dead') AND (p_class = '' OR error_class = p_class)
        AND (p_host = '' OR host_id = (SELECT id FROM hosts WHERE host = p_host));
    PERFORM 1 FROM hosts WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (ids)) ORDER BY id FOR UPDATE;
    PERFORM 1 FROM urls WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
    UPDATE hosts SET due_at = GREATEST(next_at, blocked_until) WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (ids));
    UPDATE urls SET status = 'pending', failure_count = 0, crash_count = 0, ready_at = 0
        WHERE id = ANY (ids) AND status IN ('failed', 'dead') AND (p_class = '' OR error_class = p_class);
    GET DIAGNOSTICS again = ROW_COUNT;
    RETURN again;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION frontier_refetch(p_age_ms bigint, p_host text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ids   bigint[];
    again bigint;
BEGIN
    SELECT array_agg(id) INTO ids FROM urls WHERE status = 'fetched' AND fetched_at <= frontier_now() - p_age_ms
        AND (p_host = '' OR host_id = (SELECT id FROM hosts WHERE host = p_host));
    PERFORM 1 FROM hosts WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (ids)) ORDER BY id FOR UPDATE;
    PERFORM 1 FROM urls WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
    UPDATE hosts SET due_at = GREATEST(next_at, blocked_until) WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (ids));
    UPDATE urls SET status = 'pending', crash_count = 0, ready_at = 0 WHERE id = ANY (ids) AND status = 'fetched';
    GET DIAGNOSTICS again = ROW_COUNT;
    RETURN again;
END $$;
-- +goose StatementEnd
