-- What responses say about their content. headers is a JSON object: names to lists of values.
-- +goose Up
ALTER TABLE fetches ADD COLUMN content_type TEXT NOT NULL DEFAULT '', ADD COLUMN charset TEXT NOT NULL DEFAULT '', ADD COLUMN headers TEXT NOT NULL DEFAULT '';

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
            bytes bigint, etag text, last_modified text, body_digest text, whole boolean, content_type text, charset text, headers text)
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
            duration_ms, wait_ms, bytes, body_digest, ended_at, content_type, charset, headers)
        SELECT i.id, i.token, d.url, i.final_url, i.status, i.http_status, i.error_class, i.last_error, i.attempts, i.retry_count,
            i.duration_ms, i.wait_ms, i.bytes, i.body_digest, t,
            COALESCE(i.content_type, ''), COALESCE(i.charset, ''), COALESCE(i.headers, '') -- null from a worker that is older
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
