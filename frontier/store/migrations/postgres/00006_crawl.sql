-- For crawls that find their own URLs, fetch them again, and end by a budget.
-- +goose Up

-- Locks the tables of workers that run on. They use the tables in another order than a migration, so a lock of one table
-- after the other could end in a deadlock. It locks all of them within a moment, or none and tries again.
-- +goose StatementBegin
CREATE FUNCTION frontier_lock_tables() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '200ms', TRUE);
            LOCK TABLE hosts, urls, fetches, robots IN ACCESS EXCLUSIVE MODE;
            PERFORM set_config('lock_timeout', before, TRUE);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.05);
        END;
    END LOOP;
END $$;
-- +goose StatementEnd
SELECT frontier_lock_tables();

-- kind is 0 for a page and 1 for a sitemap. parent_id is the row with the link, or 0. metadata is a JSON object of
-- whoever added the URL, or empty. recrawl_ms is the time between two fetches of a page, and recrawl_at is when
-- the next one is due; 0 means never.
ALTER TABLE urls ADD COLUMN kind SMALLINT NOT NULL DEFAULT 0,
    ADD COLUMN priority SMALLINT NOT NULL DEFAULT 0,
    ADD COLUMN depth INTEGER NOT NULL DEFAULT 0,
    ADD COLUMN parent_id BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN metadata TEXT NOT NULL DEFAULT '',
    ADD COLUMN recrawl_ms BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN recrawl_at BIGINT NOT NULL DEFAULT 0;
DROP INDEX urls_waiting;
CREATE INDEX urls_waiting ON urls (host_id, priority DESC, ready_at, id) WHERE status IN ('pending', 'failed');
CREATE INDEX urls_recrawl ON urls (recrawl_at) WHERE status = 'fetched' AND recrawl_at > 0;

-- Sums over the outcomes of a host that had a request. first_at is when the first of them was recorded. url_count is
-- the number of its URLs, or null while no put has asked for a limit.
ALTER TABLE hosts ADD COLUMN fetch_count BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN failure_count BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN duration_ms BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN first_at BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN url_count BIGINT;

-- A row of urls is updated twice for each fetch, and a row of hosts as well. Free space keeps the new versions on the
-- page.
ALTER TABLE urls SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE hosts SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- A worker updates its row while it runs, and deletes it when it stops.
CREATE TABLE workers (
    name       TEXT   PRIMARY KEY,
    started_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);

-- A worker that runs asks every ten seconds which files to fetch again.
CREATE INDEX robots_refresh ON robots (origin) WHERE saved_at = 0;

-- The rows of the JSON lists that frontier_put_entries and frontier_record read. A missing field is zero or empty: it
-- is left out to save time, or the program is older.
CREATE TYPE frontier_entry AS (url text, host text, hash text, kind smallint, priority smallint, depth int, parent bigint, metadata text, changed_ms bigint);
CREATE TYPE frontier_outcome AS (id bigint, token bigint, status text, final_url text, final_hash text, final_host text, last_error text,
    error_class text, retry_in_ms bigint, http_status int, attempts int, retry_count int, duration_ms bigint, wait_ms bigint,
    bytes bigint, etag text, last_modified text, body_digest text, whole boolean, content_type text, charset text, headers text,
    warc_file text, warc_offset bigint, warc_length bigint, warc_record_id text, warc_date text, warc_payload_digest text,
    earlier_record_id text, earlier_url text, earlier_date text, earlier_payload_digest text, recrawl_in_ms bigint);

-- A put or a recrawl changes due_at only if a claim would come too late. A host that is paused or has no capacity
-- becomes due when that ends.
-- +goose StatementBegin
CREATE FUNCTION frontier_sleeps(h hosts) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT NOT h.paused AND h.in_flight < h.max_in_flight AND COALESCE(h.due_at > GREATEST(h.next_at, h.blocked_until), TRUE) $$;
-- +goose StatementEnd

-- New hosts are inserted in the order of their names before any row is locked, so there are no deadlocks. Once p_urls is
-- reached, there are none: a crawl that goes on would add a host for each link that is left out. The locks of
-- the hosts keep others from adding the same URLs, so the insert needs no ON CONFLICT, which costs a WAL record a row.
-- The advisory lock lets the put that counts all URLs for the first time see those of every other put.
-- +goose StatementBegin
CREATE FUNCTION frontier_put_entries(p_items jsonb, p_urls bigint, p_urls_per_host bigint)
RETURNS TABLE (added bigint, over bigint, over_host bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    items   frontier_entry[];
    t       bigint;
    total   bigint;
    known   bigint;
    n_new   bigint;
    n_over  bigint;
    n_host  bigint;
BEGIN
    SELECT array_agg(x) INTO items FROM jsonb_populate_recordset(ROW ('', '', '', 0, 0, 0, 0, '', 0)::frontier_entry, p_items) AS x;
    IF p_urls > 0 THEN
        PERFORM pg_advisory_xact_lock(7381240021446157685);
        IF NOT EXISTS (SELECT 1 FROM settings WHERE name = 'url_count') THEN
            INSERT INTO settings (name, value) SELECT 'url_count', count(*) FROM urls;
        END IF;
        SELECT value::bigint INTO total FROM settings WHERE name = 'url_count';
    ELSE
        PERFORM pg_advisory_xact_lock_shared(7381240021446157685);
    END IF;
    INSERT INTO hosts (host, due_at) SELECT DISTINCT x.host, 0 FROM unnest(items) AS x
        WHERE NOT EXISTS (SELECT 1 FROM hosts h WHERE h.host = x.host) AND (p_urls = 0 OR total < p_urls)
        ORDER BY x.host ON CONFLICT (host) DO NOTHING;
    PERFORM 1 FROM hosts WHERE host IN (SELECT x.host FROM unnest(items) AS x) ORDER BY id FOR UPDATE;
    IF p_urls_per_host > 0 THEN
        UPDATE hosts h SET url_count = (SELECT count(*) FROM urls u WHERE u.host_id = h.id)
            WHERE h.url_count IS NULL AND h.host IN (SELECT x.host FROM unnest(items) AS x);
    END IF;
    WITH fresh AS (
        SELECT x.*, h.id AS host_id, p_urls_per_host > 0 AND h.id IS NOT NULL AND h.url_count + row_number() OVER (PARTITION BY h.id ORDER BY x.place) > p_urls_per_host AS over_host
        FROM unnest(items) WITH ORDINALITY AS x (url, host, hash, kind, priority, depth, parent, metadata, changed_ms, place) LEFT JOIN hosts h ON h.host = x.host
        WHERE NOT EXISTS (SELECT 1 FROM urls u WHERE u.url_hash = decode(x.hash, 'hex'))
    ), ranked AS (
        SELECT f.*, p_urls > 0 AND NOT f.over_host AND total + count(*) FILTER (WHERE NOT f.over_host) OVER (ORDER BY f.place) > p_urls AS over FROM fresh f
    ), new AS (
        INSERT INTO urls (host_id, url, url_hash, kind, priority, depth, parent_id, metadata)
        SELECT r.host_id, r.url, decode(r.hash, 'hex'), r.kind, r.priority, r.depth, r.parent, r.metadata
        FROM ranked r WHERE NOT r.over AND NOT r.over_host ORDER BY r.place RETURNING host_id
    ), sums AS (
        SELECT host_id, count(*) AS n FROM new GROUP BY host_id
    ), hinted AS (
        UPDATE hosts h SET url_count = h.url_count + s.n,
            due_at = CASE WHEN frontier_sleeps(h) THEN GREATEST(h.next_at, h.blocked_until) ELSE h.due_at END
        FROM sums s WHERE h.id = s.host_id AND (h.url_count IS NOT NULL OR frontier_sleeps(h))
    )
    SELECT COALESCE((SELECT sum(n) FROM sums), 0), count(*) FILTER (WHERE r.over), count(*) FILTER (WHERE r.over_host), cardinality(items) - count(*)
        INTO n_new, n_over, n_host, known FROM ranked r;
    UPDATE settings SET value = value::bigint + n_new WHERE name = 'url_count' AND n_new > 0;
    IF known > 0 THEN
        t := frontier_now();
        WITH nearer AS (
            SELECT u.id, LEAST(u.depth, x.depth) AS depth,
                CASE WHEN u.depth > 0 AND u.status || '' IN ('pending', 'fetching') AND u.fetched_at = 0 THEN GREATEST(u.kind, x.kind) ELSE u.kind END AS kind, CASE WHEN x.changed_ms <= t AND u.fetched_at < x.changed_ms THEN t ELSE u.recrawl_at END AS due
            FROM unnest(items) AS x JOIN urls u ON u.url_hash = decode(x.hash, 'hex')
            WHERE u.depth > x.depth OR x.kind > u.kind AND u.depth > 0 AND u.status || '' IN ('pending', 'fetching') AND u.fetched_at = 0
                OR u.status || '' = 'fetched' AND u.recrawl_at > t AND u.fetched_at < x.changed_ms AND x.changed_ms <= t
            ORDER BY u.id FOR UPDATE OF u)
        UPDATE urls u SET depth = n.depth, kind = n.kind, recrawl_at = CASE WHEN u.recrawl_at > t THEN n.due ELSE u.recrawl_at END FROM nearer n WHERE u.id = n.id;
    END IF;
    RETURN QUERY SELECT n_new, n_over, n_host;
END $$;
-- +goose StatementEnd

-- For programs that are older, whose lists may have a URL twice.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION frontier_put(p_items jsonb) RETURNS bigint LANGUAGE sql AS
$$ SELECT added FROM frontier_put_entries((SELECT jsonb_agg(f.item ORDER BY f.place) FROM (
    SELECT DISTINCT ON (x.item ->> 'hash') x.item, x.place FROM jsonb_array_elements(p_items) WITH ORDINALITY AS x (item, place)
    ORDER BY x.item ->> 'hash', x.place) AS f), 0, 0) $$;
-- +goose StatementEnd

-- Searches for at most p_limit URLs of a host one priority after the other, because URLs of a high one may have to
-- wait. due is when the first URL that was not taken is ready, or null if there is none.
-- +goose StatementBegin
CREATE FUNCTION frontier_search(p_host bigint, p_now bigint, p_limit bigint, OUT ids bigint[], OUT due bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    p       smallint := 32767;
    first   bigint;
    batch   bigint[];
BEGIN
    ids := '{}';
    LOOP
        SELECT w.priority, w.ready_at INTO p, first FROM urls w
            WHERE w.host_id = p_host AND w.status IN ('pending', 'failed') AND w.priority < p
            ORDER BY w.priority DESC, w.ready_at, w.id LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF first <= p_now THEN
            SELECT array_agg(r.id) INTO batch FROM (SELECT w.id FROM urls w
                WHERE w.host_id = p_host AND w.status IN ('pending', 'failed') AND w.priority = p AND w.ready_at <= p_now
                ORDER BY w.ready_at, w.id LIMIT p_limit - cardinality(ids)) AS r;
            ids := ids || batch;
            IF cardinality(ids) >= p_limit THEN
                due := p_now;
                EXIT;
            END IF;
            SELECT w.ready_at INTO first FROM urls w
                WHERE w.host_id = p_host AND w.status IN ('pending', 'failed') AND w.priority = p AND w.ready_at > p_now
                ORDER BY w.ready_at, w.id LIMIT 1;
        END IF;
        due := LEAST(due, first);
    END LOOP;
END $$;
-- +goose StatementEnd

-- Leases URLs of hosts that are due, and shares p_limit among them. The search for URLs is a separate statement: it
-- must see what was committed by whoever held the row of the host before. The first URLs of a host in the order of
-- urls_waiting are the right ones if all of them are ready; otherwise frontier_search finds them.
-- The token of a claim is larger than that of any earlier one, also if a failover lost some.
-- +goose StatementBegin
CREATE FUNCTION frontier_take(p_limit int, p_lease_ms bigint, p_worker text)
RETURNS TABLE (id bigint, token bigint, url text, host text, failure_count bigint, crash_count bigint, etag text, last_modified text, body_digest text,
    earlier_record_id text, earlier_url text, earlier_date text, earlier_payload_digest text,
    kind smallint, priority smallint, depth int, metadata text, recrawl_ms bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    t       bigint;
    locked  bigint[];
    share   bigint;
    h       record;
    taken   bigint[];
    counts  bigint[];
    dues    bigint[];
    seen    bigint[];
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
        share := GREATEST(1, (p_limit - got) / cardinality(locked));
        taken := '{}';
        seen := '{}';
        counts := '{}';
        dues := '{}';
        FOR h IN
            SELECT o.id, o.open, o.room, o.due, array_agg(f.id) AS ids, count(f.id) AS n, max(f.ready_at) > t AS late
            FROM (SELECT id, room > 0 AND NOT paused AND GREATEST(next_at, blocked_until) <= t AS open, room,
                    CASE WHEN room > 0 AND NOT paused THEN GREATEST(next_at, blocked_until) END AS due
                FROM (SELECT *, max_in_flight - in_flight AS room FROM hosts WHERE id = ANY (locked)) AS x) AS o
            LEFT JOIN LATERAL (SELECT w.id, w.ready_at FROM urls w
                WHERE w.host_id = o.id AND w.status IN ('pending', 'failed')
                ORDER BY w.priority DESC, w.ready_at, w.id LIMIT CASE WHEN o.open THEN LEAST(o.room, share) ELSE 0 END) AS f ON TRUE
            GROUP BY o.id, o.open, o.room, o.due
        LOOP
            IF h.late THEN
                SELECT s.ids, cardinality(s.ids), s.due INTO h.ids, h.n, h.due FROM frontier_search(h.id, t, LEAST(h.room, share)) AS s;
            ELSIF h.open AND h.n < share THEN
                h.due := NULL; -- no more are waiting, or there is no capacity
            END IF;
            IF h.n > 0 THEN
                taken := taken || h.ids;
            END IF;
            seen := seen || h.id;
            counts := counts || h.n;
            dues := dues || CASE WHEN h.n < h.room THEN h.due END;
        END LOOP;
        UPDATE hosts h SET in_flight = h.in_flight + x.n, due_at = x.due FROM unnest(seen, counts, dues) AS x (id, n, due) WHERE h.id = x.id;
        RETURN QUERY UPDATE urls u
            SET status = 'fetching', lease_until = t + p_lease_ms, worker = p_worker, holds = 1,
                token = GREATEST(u.token + 1, (t << 20) + floor(random() * 1048576)::bigint)
            FROM hosts h WHERE u.id = ANY (taken) AND h.id = u.host_id
            RETURNING u.id, u.token, u.url, h.host, u.failure_count, u.crash_count, u.etag, u.last_modified, u.body_digest,
                u.earlier_record_id, u.earlier_url, u.earlier_date, u.earlier_payload_digest, u.kind, u.priority, u.depth, u.metadata, u.recrawl_ms;
        got := got + cardinality(taken);
        EXIT WHEN got >= p_limit;
    END LOOP;
END $$;
-- +goose StatementEnd

-- For programs that are older.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION frontier_claim(p_limit int, p_lease_ms bigint, p_worker text)
RETURNS TABLE (id bigint, token bigint, url text, host text, failure_count bigint, crash_count bigint, etag text, last_modified text, body_digest text) LANGUAGE sql AS
$$ SELECT id, token, url, host, failure_count, crash_count, etag, last_modified, body_digest FROM frontier_take(p_limit, p_lease_ms, p_worker) $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION frontier_claim_earlier(p_limit int, p_lease_ms bigint, p_worker text)
RETURNS TABLE (id bigint, token bigint, url text, host text, failure_count bigint, crash_count bigint, etag text, last_modified text, body_digest text,
    earlier_record_id text, earlier_url text, earlier_date text, earlier_payload_digest text) LANGUAGE sql AS
$$ SELECT id, token, url, host, failure_count, crash_count, etag, last_modified, body_digest,
    earlier_record_id, earlier_url, earlier_date, earlier_payload_digest FROM frontier_take(p_limit, p_lease_ms, p_worker) $$;
-- +goose StatementEnd

-- Returns the leases that were held: they are recorded, the others are stale.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION frontier_record(p_items jsonb, p_delay_ms bigint)
RETURNS TABLE (id bigint, token bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    items       frontier_outcome[];
    moves       frontier_outcome[];
    ids         bigint[];
    host_ids    bigint[];
    t           bigint;
    done        bigint[];
    broken      text;
BEGIN
    SELECT array_agg(x), array_agg(x.id) INTO items, ids FROM jsonb_populate_recordset(ROW (0, 0, '', '', '', '', '', '', 0, 0, 0, 0, 0, 0, 0, '', '', '', FALSE, '', '', '', '', 0, 0, '', '', '', '', '', '', '', 0)::frontier_outcome,
            p_items) AS x;
    SELECT array_agg(u.host_id), array_agg(x) FILTER (WHERE x.final_url <> '' AND x.final_url <> u.url) INTO host_ids, moves
        FROM unnest(items) AS x JOIN urls u ON u.id = x.id;
    IF moves IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock_shared(7381240021446157685); -- no prune may delete the hosts meanwhile
        INSERT INTO hosts (host) SELECT DISTINCT m.final_host FROM unnest(moves) AS m
            WHERE NOT EXISTS (SELECT 1 FROM hosts h WHERE h.host = m.final_host) ORDER BY m.final_host ON CONFLICT (host) DO NOTHING;
        host_ids := host_ids || ARRAY (SELECT h.id FROM unnest(moves) AS m JOIN hosts h ON h.host = m.final_host);
    END IF;
    PERFORM 1 FROM hosts WHERE id = ANY (host_ids) ORDER BY id FOR UPDATE;
    PERFORM 1 FROM urls WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
    t := frontier_now();
    WITH recorded AS (
        UPDATE urls u SET
            status = i.status, lease_until = 0, worker = '', last_error = i.last_error, error_class = i.error_class,
            retry_count = i.retry_count, http_status = i.http_status,
            failure_count = CASE WHEN i.status = 'fetched' THEN 0 ELSE u.failure_count + 1 END,
            ready_at = CASE WHEN i.status = 'failed' THEN t + 1 + i.retry_in_ms ELSE u.ready_at END,
            etag = CASE WHEN i.etag = '' AND NOT i.whole THEN u.etag ELSE i.etag END,
            last_modified = CASE WHEN i.last_modified = '' AND NOT i.whole THEN u.last_modified ELSE i.last_modified END,
            body_digest = CASE WHEN i.whole THEN i.body_digest ELSE u.body_digest END,
            earlier_record_id = CASE WHEN i.whole THEN i.earlier_record_id ELSE u.earlier_record_id END,
            earlier_url = CASE WHEN i.whole THEN i.earlier_url ELSE u.earlier_url END,
            earlier_date = CASE WHEN i.whole THEN i.earlier_date ELSE u.earlier_date END,
            earlier_payload_digest = CASE WHEN i.whole THEN i.earlier_payload_digest ELSE u.earlier_payload_digest END,
            recrawl_ms = CASE WHEN i.status = 'fetched' THEN i.recrawl_in_ms ELSE u.recrawl_ms END,
            recrawl_at = CASE WHEN i.status <> 'fetched' THEN u.recrawl_at WHEN i.recrawl_in_ms > 0 THEN t + i.recrawl_in_ms ELSE 0 END,
            fetched_at = t
        FROM unnest(items) AS i WHERE u.id = i.id AND u.token = i.token AND u.status || '' = 'fetching'
        RETURNING u.host_id, u.url AS requested, u.holds, i.*
    ), opened AS (
        -- Without an attempt, or where the host was left before, there is no time at which one
        -- ended: GREATEST passes over the null.
        UPDATE hosts h SET
            in_flight = h.in_flight - d.ended,
            next_at = GREATEST(h.next_at, d.last + 1 + frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms)),
            due_at = GREATEST(h.next_at, h.blocked_until, d.last + 1 + frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms)),
            fetch_count = h.fetch_count + d.fetches, failure_count = h.failure_count + d.failures,
            duration_ms = h.duration_ms + d.duration_ms, bytes = h.bytes + d.bytes,
            first_at = CASE WHEN h.first_at = 0 AND d.fetches > 0 THEN t ELSE h.first_at END
        FROM (SELECT host_id, sum(holds) AS ended, max(CASE WHEN attempts > 0 AND holds = 1 THEN t END) AS last,
                count(*) FILTER (WHERE attempts > 0) AS fetches, count(*) FILTER (WHERE attempts > 0 AND status <> 'fetched') AS failures,
                sum(duration_ms) AS duration_ms, sum(bytes) AS bytes
            FROM recorded GROUP BY host_id) AS d
        WHERE h.id = d.host_id
    ), written AS (
        INSERT INTO fetches (url_id, token, url, final_url, status, http_status, error_class, last_error, attempts, retry_count,
            duration_ms, wait_ms, bytes, body_digest, ended_at, content_type, charset, headers,
            warc_file, warc_offset, warc_length, warc_record_id, warc_date, warc_payload_digest)
        SELECT d.id, d.token, d.requested, d.final_url, d.status, d.http_status, d.error_class, d.last_error, d.attempts, d.retry_count,
            d.duration_ms, d.wait_ms, d.bytes, d.body_digest, t,
            d.content_type, d.charset, d.headers,
            d.warc_file, d.warc_offset, d.warc_length, d.warc_record_id,
            d.warc_date, d.warc_payload_digest
        FROM recorded d
    )
    SELECT array_agg(d.id) INTO done FROM recorded d;

    -- Another row may get the URL at the same time only if its writer does not lock the host. The row is visible then.
    WHILE moves IS NOT NULL LOOP
        BEGIN
            WITH want AS (
                SELECT DISTINCT ON (m.final_hash) m.id, m.final_url, decode(m.final_hash, 'hex') AS hash, h.id AS host_id, u.host_id AS from_id
                FROM unnest(moves) AS m JOIN hosts h ON h.host = m.final_host JOIN urls u ON u.id = m.id
                WHERE m.id = ANY (done) AND NOT EXISTS (SELECT 1 FROM urls o WHERE o.url_hash = decode(m.final_hash, 'hex'))
                ORDER BY m.final_hash, m.id
            ), moved AS (
                UPDATE urls u SET url = w.final_url, url_hash = w.hash, host_id = w.host_id FROM want w WHERE u.id = w.id
            )
            UPDATE hosts h SET url_count = h.url_count + d.n
                FROM (SELECT x.id, sum(x.n) AS n FROM want w, LATERAL (VALUES (w.host_id, 1), (w.from_id, -1)) AS x (id, n) GROUP BY x.id) AS d
                WHERE h.id = d.id AND h.url_count IS NOT NULL AND d.n <> 0;
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME;
            IF broken IS DISTINCT FROM 'urls_url_hash_key' THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    RETURN QUERY SELECT x.id, x.token FROM unnest(items) AS x WHERE x.id = ANY (done);
END $$;
-- +goose StatementEnd

-- Makes some URLs pending that are due to be fetched again, and returns their number. URLs that were never fetched
-- are ready before them.
-- +goose StatementBegin
CREATE FUNCTION frontier_recrawl(p_limit int) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off AS $$
DECLARE
    t       bigint := frontier_now();
    ids     bigint[];
    again   bigint;
BEGIN
    SELECT array_agg(d.id) INTO ids FROM (
        SELECT id FROM urls WHERE status = 'fetched' AND recrawl_at > 0 AND recrawl_at <= t ORDER BY recrawl_at LIMIT p_limit) AS d;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM 1 FROM hosts WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (ids)) ORDER BY id FOR UPDATE;
    PERFORM 1 FROM urls WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
    WITH due AS (
        UPDATE urls SET status = 'pending', crash_count = 0, ready_at = recrawl_at
        WHERE id = ANY (ids) AND status || '' = 'fetched' AND recrawl_at > 0 AND recrawl_at <= t RETURNING host_id
    ), hinted AS (
        UPDATE hosts h SET due_at = GREATEST(h.next_at, h.blocked_until) WHERE h.id IN (SELECT host_id FROM due) AND frontier_sleeps(h)
    )
    SELECT count(*) INTO again FROM due;
    RETURN again;
END $$;
-- +goose StatementEnd
