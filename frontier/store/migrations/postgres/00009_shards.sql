-- For a frontier in many databases. A database of a frontier that has one is number 0, and has none of the rows below.
-- +goose Up
SELECT frontier_lock_tables();

-- A host that moves to another database is not claimed.
ALTER TABLE hosts ADD COLUMN moving BOOLEAN NOT NULL DEFAULT FALSE;

-- The number of this database. It is a constant, so it costs a claim nothing; the program replaces it.
-- +goose StatementBegin
CREATE FUNCTION frontier_shard() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 0::bigint $$;
-- +goose StatementEnd

-- The slot of a host, as the function hostSlot of the program.
-- +goose StatementBegin
CREATE FUNCTION frontier_slot(p_host text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    name    text := regexp_replace(regexp_replace(p_host, '^(gone |left |new )+', ''), ':[0-9]*$', '');
    labels  text[];
    n       int;
    hash    bytea;
BEGIN
    IF name !~ '^[0-9.]+$' AND left(name, 1) <> '[' THEN
        labels := string_to_array(rtrim(name, '.'), '.');
        n := cardinality(labels);
        name := array_to_string(labels[greatest(1, n - CASE WHEN length(labels[n]) = 2
            AND labels[n - 1] IN ('ac', 'co', 'com', 'edu', 'gob', 'gov', 'govt', 'go', 'mil', 'ne', 'net', 'nom', 'or', 'org', 'plc', 'sch') THEN 2 ELSE 1 END):n], '.');
    END IF;
    hash := sha256(convert_to(name, 'UTF8'));
    RETURN (get_byte(hash, 0) << 2) | (get_byte(hash, 1) >> 6);
END $$;
-- +goose StatementEnd

-- The slots that this database has. In one that is not open, no host is added. While one is leaving, hosts that were taken
-- away from it still have their state here: see frontier_take_away.
CREATE TABLE slots (
    slot    SMALLINT PRIMARY KEY,
    open    BOOLEAN  NOT NULL DEFAULT TRUE,
    leaving BOOLEAN  NOT NULL DEFAULT FALSE
);

-- Fails unless the program with this number is the one that moves slots. Programs that move none have number 0. The lock keeps
-- the next one waiting until the statement of this one has ended.
-- +goose StatementBegin
CREATE FUNCTION frontier_fence(p_mover bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM settings WHERE name = 'mover' AND value::bigint = p_mover FOR SHARE;
    IF NOT FOUND AND p_mover <> 0 THEN
        RAISE EXCEPTION 'another program moves slots' USING ERRCODE = 'FR002';
    END IF;
    RETURN TRUE;
END $$;
-- +goose StatementEnd

-- What waits for another database that could not be reached, as the program writes it. failed_at is when it was refused
-- first, or 0, and one that is stuck was refused for long. The setting has the length of all, in bytes.
CREATE TABLE parcels (
    id        BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body      TEXT    NOT NULL,
    failed_at BIGINT  NOT NULL DEFAULT 0,
    stuck     BOOLEAN NOT NULL DEFAULT FALSE
);
INSERT INTO settings (name, value) VALUES ('parcel_bytes', '0');

-- A host is added only where its slot is. A program that knows an older table of slots gets an error, and reads the new one.
-- The lock of a host that exists waits for one that is being taken away: after that it has another name. The lock of the
-- slot keeps it from being closed. A move adds hosts to a slot that is not open yet. To a slot that is leaving, a host is only
-- added as one that was taken away, and not if it is there by its own name.
-- +goose StatementBegin
CREATE FUNCTION frontier_own_host() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.moving THEN
        RETURN NEW;
    END IF;
    IF NEW.host LIKE 'gone %' THEN
        PERFORM 1 FROM slots WHERE slot = frontier_slot(NEW.host) AND leaving
            AND NOT EXISTS (SELECT 1 FROM hosts WHERE host = substr(NEW.host, 6)) FOR SHARE;
        IF FOUND THEN
            NEW.moving := TRUE;
            RETURN NEW;
        END IF;
    ELSE
        PERFORM 1 FROM hosts WHERE host = NEW.host FOR NO KEY UPDATE;
        IF FOUND THEN
            RETURN NEW;
        END IF;
    END IF;
    PERFORM 1 FROM slots WHERE slot = frontier_slot(NEW.host) AND open FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'host % is not in this database', NEW.host USING ERRCODE = 'FR001';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- Takes some hosts of a slot away that have no lease, and returns the names that they had. A name with a space is no host, so
-- whoever looks for the host finds none, and may not add it. waiting is the number of hosts that have leases.
--
-- The name "gone HOST" means that the URLs are copied, and "left HOST" that the host itself is. Until then, what delays,
-- blocks or changes the host does it to "gone HOST".
-- +goose StatementBegin
CREATE FUNCTION frontier_take_away(p_mover bigint, p_slot int, p_limit int, OUT names text[], OUT waiting bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM frontier_fence(p_mover);
    PERFORM 1 FROM hosts h WHERE frontier_slot(h.host) = p_slot AND NOT h.moving AND h.host NOT LIKE '% %' ORDER BY h.id FOR UPDATE;
    UPDATE hosts h SET moving = TRUE WHERE frontier_slot(h.host) = p_slot AND NOT h.moving AND h.host NOT LIKE '% %';
    WITH free AS (
        SELECT h.id FROM hosts h WHERE frontier_slot(h.host) = p_slot AND h.moving AND h.in_flight = 0 AND h.host NOT LIKE '% %'
            AND h.id NOT IN (SELECT u.host_id FROM urls u WHERE u.status = 'fetching')
        ORDER BY h.id LIMIT p_limit FOR UPDATE
    ), renamed AS (
        UPDATE hosts h SET host = 'gone ' || h.host FROM free WHERE h.id = free.id AND h.in_flight = 0 RETURNING h.host
    )
    SELECT array_agg(substr(r.host, 6)) INTO names FROM renamed r;
    SELECT count(*) INTO waiting FROM hosts h WHERE frontier_slot(h.host) = p_slot AND h.host NOT LIKE '% %';
END $$;
-- +goose StatementEnd

-- Hosts and URLs that arrive with a slot. Until the slot is open, a host that has arrived before changes to what arrives,
-- and a URL stays. A host is named "new HOST" until then, so that a program whose table of slots is older than the move finds
-- none. The rows are read in FROM: (function).* calls the function once for each column.
-- +goose StatementBegin
CREATE FUNCTION frontier_settle_hosts(p_mover bigint, p_hosts jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM frontier_fence(p_mover);
    EXECUTE 'INSERT INTO hosts AS h OVERRIDING USER VALUE SELECT r.*
        FROM jsonb_array_elements($1) AS x, jsonb_populate_record(NULL::hosts, x || jsonb_build_object(''moving'', TRUE, ''host'', ''new '' || (x ->> ''host''))) AS r
        ON CONFLICT (host) DO UPDATE SET '
        || (SELECT string_agg(format('%1$I = excluded.%1$I', attname), ', ') FROM pg_attribute
            WHERE attrelid = 'hosts'::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('id', 'host', 'moving'))
        || ' WHERE h.moving' USING p_hosts;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION frontier_settle_urls(p_mover bigint, p_urls jsonb) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    n bigint;
BEGIN
    PERFORM frontier_fence(p_mover);
    INSERT INTO urls OVERRIDING SYSTEM VALUE SELECT r.*
        FROM jsonb_array_elements(p_urls) AS x JOIN hosts h ON h.host = 'new ' || (x ->> 'host'),
            jsonb_populate_record(NULL::urls, x || jsonb_build_object('host_id', h.id)) AS r ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    UPDATE settings SET value = value::bigint + n WHERE name = 'url_count' AND n > 0;
    RETURN n;
END $$;
-- +goose StatementEnd

-- Deletes some of what has been copied from a slot, and returns whether there is more. The hosts are locked first, because URLs
-- that are due are made pending here too.
-- +goose StatementBegin
CREATE FUNCTION frontier_forget_slot(p_mover bigint, p_slot int, p_limit int) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    host_ids bigint[];
    n        bigint;
BEGIN
    PERFORM frontier_fence(p_mover);
    SELECT array_agg(h.id) INTO host_ids FROM (SELECT id FROM hosts WHERE frontier_slot(host) = p_slot AND host LIKE '% %' ORDER BY id LIMIT 100 FOR UPDATE) AS h;
    IF host_ids IS NULL THEN
        DELETE FROM slots WHERE slot = p_slot AND NOT open;
        RETURN FALSE;
    END IF;
    DELETE FROM urls WHERE id = ANY (ARRAY (SELECT u.id FROM urls u WHERE u.host_id = ANY (host_ids) LIMIT p_limit));
    GET DIAGNOSTICS n = ROW_COUNT;
    UPDATE settings SET value = value::bigint - n WHERE name = 'url_count' AND n > 0;
    IF n < p_limit THEN
        DELETE FROM robots WHERE origin IN (SELECT s || substr(h.host, 6) FROM hosts h, unnest(ARRAY ['http://', 'https://']) AS s WHERE h.id = ANY (host_ids));
        DELETE FROM hosts WHERE id = ANY (host_ids);
    END IF;
    RETURN TRUE;
END $$;
-- +goose StatementEnd

-- The number of URLs, which the first put with a limit counts.
-- +goose StatementBegin
CREATE FUNCTION frontier_url_count() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    SELECT value::bigint INTO n FROM settings WHERE name = 'url_count';
    IF NOT FOUND THEN
        PERFORM pg_advisory_xact_lock(7381240021446157685);
        INSERT INTO settings (name, value) SELECT 'url_count', count(*) FROM urls ON CONFLICT (name) DO NOTHING;
        SELECT value::bigint INTO n FROM settings WHERE name = 'url_count';
    END IF;
    RETURN n;
END $$;
-- +goose StatementEnd

-- Fails if one of these hosts is not there: it was taken away while the caller waited for its lock.
-- +goose StatementBegin
CREATE FUNCTION frontier_must_have(p_hosts text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    missing text;
BEGIN
    SELECT x INTO missing FROM unnest(p_hosts) AS x WHERE NOT EXISTS (SELECT 1 FROM hosts h WHERE h.host = x) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'host % is not in this database', missing USING ERRCODE = 'FR001';
    END IF;
END $$;
-- +goose StatementEnd

-- Adds the final URLs of redirects from other databases as they were fetched there. One that exists stays as it is.
-- +goose StatementBegin
CREATE FUNCTION frontier_arrive(p_items jsonb) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    t bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7381240021446157685);
    INSERT INTO hosts (host) SELECT DISTINCT x.final_host FROM jsonb_to_recordset(p_items) AS x (final_host text)
        WHERE NOT EXISTS (SELECT 1 FROM hosts h WHERE h.host = x.final_host) ORDER BY x.final_host ON CONFLICT (host) DO NOTHING;
    PERFORM 1 FROM hosts WHERE host IN (SELECT x.final_host FROM jsonb_to_recordset(p_items) AS x (final_host text)) ORDER BY id FOR UPDATE;
    PERFORM frontier_must_have(ARRAY (SELECT x.final_host FROM jsonb_to_recordset(p_items) AS x (final_host text)));
    t := frontier_now();
    WITH new AS (
        INSERT INTO urls (host_id, url, url_hash, status, http_status, etag, last_modified, body_digest, fetched_at, recrawl_ms, recrawl_at,
            earlier_record_id, earlier_url, earlier_date, earlier_payload_digest, kind, priority, depth, parent_id, metadata)
        SELECT h.id, x.final_url, decode(x.final_hash, 'hex'), 'fetched', COALESCE(x.http_status, 0), COALESCE(x.etag, ''), COALESCE(x.last_modified, ''),
            COALESCE(x.body_digest, ''), t, COALESCE(x.recrawl_in_ms, 0), CASE WHEN x.recrawl_in_ms > 0 THEN t + x.recrawl_in_ms ELSE 0 END,
            COALESCE(x.earlier_record_id, ''), COALESCE(x.earlier_url, ''), COALESCE(x.earlier_date, ''), COALESCE(x.earlier_payload_digest, ''),
            COALESCE(x.kind, 0), COALESCE(x.priority, 0), COALESCE(x.depth, 0), COALESCE(x.parent, 0), COALESCE(x.metadata, '')
        FROM jsonb_to_recordset(p_items) AS x (final_url text, final_hash text, final_host text, http_status int, etag text, last_modified text,
            body_digest text, recrawl_in_ms bigint, earlier_record_id text, earlier_url text, earlier_date text, earlier_payload_digest text,
            kind smallint, priority smallint, depth int, parent bigint, metadata text)
        JOIN hosts h ON h.host = x.final_host
        ON CONFLICT (url_hash) DO NOTHING RETURNING host_id
    ), sums AS (
        SELECT host_id, count(*) AS n FROM new GROUP BY host_id
    ), counted AS (
        UPDATE hosts h SET url_count = h.url_count + s.n FROM sums s WHERE h.id = s.host_id AND h.url_count IS NOT NULL
    )
    UPDATE settings SET value = value::bigint + (SELECT COALESCE(sum(n), 0)::bigint FROM sums) WHERE name = 'url_count';
END $$;
-- +goose StatementEnd

-- As before, and leaves hosts alone that move, and their URLs: the copy must have the same ones.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION frontier_prune(p_ids bigint[], p_statuses text[], p_until bigint) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    pruned bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7381240021446157685);
    PERFORM 1 FROM hosts WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (p_ids)) ORDER BY id FOR UPDATE;
    WITH gone AS (
        DELETE FROM urls WHERE id = ANY (p_ids) AND status = ANY (p_statuses) AND (p_until = 0 OR fetched_at BETWEEN 1 AND p_until)
            AND NOT (SELECT h.moving FROM hosts h WHERE h.id = host_id)
        RETURNING host_id
    ), unknown AS (
        UPDATE hosts SET url_count = NULL WHERE url_count IS NOT NULL AND id IN (SELECT host_id FROM gone)
    )
    SELECT count(*) INTO pruned FROM gone;
    DELETE FROM settings WHERE name = 'url_count' AND pruned > 0;
    RETURN pruned;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION frontier_unused(h hosts, p_ms bigint) RETURNS boolean LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT h.in_flight = 0 AND NOT h.paused AND h.delay_ms IS NULL AND h.max_in_flight = 1 AND NOT h.moving
        AND GREATEST(h.next_at, h.blocked_until) <= frontier_now() - CASE WHEN h.crawl_delay_ms > 0 THEN p_ms + 86400000 ELSE p_ms END
        AND NOT EXISTS (SELECT 1 FROM urls u WHERE u.host_id = h.id)
$$;
-- +goose StatementEnd

-- As before. The ten bits of a token above the random ones are the number of the database.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION frontier_take(p_limit int, p_lease_ms bigint, p_worker text)
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
            SELECT o.id, o.open, o.room, o.due, o.http, o.https, array_agg(f.id) AS ids, count(f.id) AS n, max(f.ready_at) > t AS late
            FROM (SELECT id, room > 0 AND NOT paused AND NOT moving AND GREATEST(next_at, blocked_until) <= t AS open, room,
                    CASE WHEN room > 0 AND NOT paused AND NOT moving THEN GREATEST(next_at, blocked_until) END AS due,
                    CASE WHEN http_deferred_until > t THEN http_deferred_until END AS http, CASE WHEN https_deferred_until > t THEN https_deferred_until END AS https
                FROM (SELECT *, max_in_flight - in_flight AS room FROM hosts WHERE id = ANY (locked)) AS x) AS o
            LEFT JOIN LATERAL (SELECT w.id, w.ready_at FROM urls w
                WHERE w.host_id = o.id AND w.status IN ('pending', 'failed')
                ORDER BY w.priority DESC, w.ready_at, w.id LIMIT CASE WHEN o.open AND o.http IS NULL AND o.https IS NULL THEN LEAST(o.room, share) ELSE 0 END) AS f ON TRUE
            GROUP BY o.id, o.open, o.room, o.due, o.http, o.https
        LOOP
            IF h.open AND h.http IS NOT NULL AND h.https IS NOT NULL THEN
                h.due := LEAST(h.http, h.https);
            ELSIF h.open AND COALESCE(h.http, h.https) IS NOT NULL THEN
                SELECT s.ids, cardinality(s.ids), LEAST(s.due, h.http, h.https) INTO h.ids, h.n, h.due
                    FROM frontier_search_origin(h.id, CASE WHEN h.http IS NULL THEN ':' ELSE 's' END, t, LEAST(h.room, share)) AS s;
            ELSIF h.late THEN
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
                token = (GREATEST((u.token >> 20) + 1, t) << 20) + (frontier_shard() << 10) + floor(random() * 1024)::bigint
            FROM hosts h WHERE u.id = ANY (taken) AND h.id = u.host_id
            RETURNING u.id, u.token, u.url, h.host, u.failure_count, u.crash_count, u.etag, u.last_modified, u.body_digest,
                u.earlier_record_id, u.earlier_url, u.earlier_date, u.earlier_payload_digest, u.kind, u.priority, u.depth, u.metadata, u.recrawl_ms;
        got := got + cardinality(taken);
        EXIT WHEN got >= p_limit;
    END LOOP;
END $$;
-- +goose StatementEnd

-- As before. A final URL without a hash belongs to another database, so the row keeps its own.
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
    from_ids    bigint[];
    locked      bigint;
BEGIN
    SELECT array_agg(x), array_agg(x.id) INTO items, ids FROM jsonb_populate_recordset(ROW (0, 0, '', '', '', '', '', '', 0, 0, 0, 0, 0, 0, 0, '', '', '', FALSE, '', '', '', '', 0, 0, '', '', '', '', '', '', '', 0)::frontier_outcome,
            p_items) AS x;
    SELECT array_agg(u.host_id), array_agg(x) FILTER (WHERE x.final_hash <> '' AND x.final_url <> u.url) INTO host_ids, moves
        FROM unnest(items) AS x JOIN urls u ON u.id = x.id;
    IF moves IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock_shared(7381240021446157685); -- no prune may delete the hosts meanwhile
        INSERT INTO hosts (host) SELECT DISTINCT m.final_host FROM unnest(moves) AS m
            WHERE NOT EXISTS (SELECT 1 FROM hosts h WHERE h.host = m.final_host) ORDER BY m.final_host ON CONFLICT (host) DO NOTHING;
        from_ids := host_ids;
        host_ids := ARRAY (SELECT unnest(from_ids) UNION SELECT h.id FROM unnest(moves) AS m LEFT JOIN hosts h ON h.host = m.final_host);
    END IF;
    PERFORM 1 FROM hosts WHERE id = ANY (host_ids) AND (from_ids IS NULL OR host NOT LIKE '% %' OR id = ANY (from_ids)) ORDER BY id FOR UPDATE;
    GET DIAGNOSTICS locked = ROW_COUNT;
    IF moves IS NOT NULL AND locked < cardinality(host_ids) THEN
        RAISE EXCEPTION 'the host of a final URL was taken away' USING ERRCODE = 'FR001';
    END IF;
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
