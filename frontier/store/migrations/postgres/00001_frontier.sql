-- Times are milliseconds since 1970 by the database's clock; 0 means never.
-- +goose Up
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- due_at is when a claim should next look at the host: a hint that may be too early, never too late. Null: a put, a record
-- or a resume will set it. The sums are over the outcomes that had a request.
CREATE TABLE hosts (
    id                   BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host                 TEXT    NOT NULL UNIQUE,
    due_at               BIGINT,
    next_at              BIGINT  NOT NULL DEFAULT 0, -- closed until
    reserved_until       BIGINT  NOT NULL DEFAULT 0, -- the next_at that a reservation has set, until it is settled
    delay_ms             BIGINT,
    crawl_delay_ms       BIGINT  NOT NULL DEFAULT 0,
    blocked_until        BIGINT  NOT NULL DEFAULT 0,
    block_ms             BIGINT  NOT NULL DEFAULT 0,
    http_deferred_until  BIGINT  NOT NULL DEFAULT 0, -- URLs of http://HOST are not claimed before
    https_deferred_until BIGINT  NOT NULL DEFAULT 0, -- likewise
    paused               BOOLEAN NOT NULL DEFAULT FALSE,
    in_flight            BIGINT  NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    max_in_flight        BIGINT  NOT NULL DEFAULT 1 CHECK (max_in_flight > 0),
    address              TEXT    NOT NULL DEFAULT '', -- that it was last fetched from
    turn_at              BIGINT  NOT NULL DEFAULT 0,  -- if it waits for its group: when it has a turn, or below zero when it asks again
    url_count            BIGINT,                      -- null while no put has asked for a limit
    first_at             BIGINT  NOT NULL DEFAULT 0,  -- when the first outcome was recorded
    fetch_count          BIGINT  NOT NULL DEFAULT 0,
    failure_count        BIGINT  NOT NULL DEFAULT 0,
    duration_ms          BIGINT  NOT NULL DEFAULT 0,
    bytes                BIGINT  NOT NULL DEFAULT 0
);
CREATE INDEX hosts_due ON hosts (due_at) WHERE due_at IS NOT NULL;

-- The queue. url_hash is that of the URL, without session ids if a link led to it. kind is 0 for a page and 1 for a sitemap. It is below 0 if the URL is only needed to show pages: -1 if it may
-- need more itself, and -2 if not. ready_at is below 0 for a URL that is needed and was not fetched yet. metadata is a JSON object of whoever added the URL, or empty.
-- recrawl_ms is the time between two fetches of a page, and recrawl_at is when the next one is due. The earlier record
-- is that of a response in a WARC file to which the next one may refer. Its date is text, so that it is equal to the
-- last digit.
CREATE TABLE urls (
    id                     BIGINT   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id                BIGINT   NOT NULL REFERENCES hosts (id),
    url                    TEXT     NOT NULL,
    url_hash               BYTEA    NOT NULL UNIQUE,
    kind                   SMALLINT NOT NULL DEFAULT 0,
    priority               SMALLINT NOT NULL DEFAULT 0,
    depth                  INTEGER  NOT NULL DEFAULT 0,
    parent_id              BIGINT   NOT NULL DEFAULT 0, -- the row with the link, or 0
    page_id                BIGINT   NOT NULL DEFAULT 0, -- the row of the page that needs it to be shown, or 0
    hops                   SMALLINT NOT NULL DEFAULT 0, -- from that page
    metadata               TEXT     NOT NULL DEFAULT '',
    status                 TEXT     NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'fetching', 'fetched', 'failed', 'dead')),
    ready_at               BIGINT   NOT NULL DEFAULT 0,
    token                  BIGINT   NOT NULL DEFAULT 0,
    lease_until            BIGINT   NOT NULL DEFAULT 0,
    worker                 TEXT     NOT NULL DEFAULT '',
    holds                  BIGINT   NOT NULL DEFAULT 1, -- 1 while a fetch holds its host, 0 after its redirects have left it
    last_error             TEXT     NOT NULL DEFAULT '',
    error_class            TEXT     NOT NULL DEFAULT '',
    retry_count            BIGINT   NOT NULL DEFAULT 0,
    failure_count          BIGINT   NOT NULL DEFAULT 0,
    crash_count            BIGINT   NOT NULL DEFAULT 0,
    http_status            BIGINT   NOT NULL DEFAULT 0,
    etag                   TEXT     NOT NULL DEFAULT '',
    last_modified          TEXT     NOT NULL DEFAULT '',
    body_digest            TEXT     NOT NULL DEFAULT '',
    title                  TEXT     NOT NULL DEFAULT '',
    digest                 BIGINT   NOT NULL DEFAULT 0, -- of the body of a page that was searched: its first 8 bytes, or 0
    earlier_record_id      TEXT     NOT NULL DEFAULT '',
    earlier_url            TEXT     NOT NULL DEFAULT '',
    earlier_date           TEXT     NOT NULL DEFAULT '',
    earlier_payload_digest TEXT     NOT NULL DEFAULT '',
    fetched_at             BIGINT   NOT NULL DEFAULT 0,
    recrawl_ms             BIGINT   NOT NULL DEFAULT 0,
    recrawl_at             BIGINT   NOT NULL DEFAULT 0
);
CREATE INDEX urls_host ON urls (host_id);
CREATE INDEX urls_waiting ON urls (host_id, priority DESC, ready_at, id) WHERE status IN ('pending', 'failed');
-- For hosts with one origin that is deferred. Claims of other hosts use urls_waiting. The conditions of the two indexes
-- have the same meaning and different forms, so the planner cannot use urls_waiting for one origin. It would, where its
-- statistics say that nearly all URLs have the scheme that it looks for, and then read all of the other origin.
CREATE INDEX urls_origin ON urls (host_id, substr(url, 5, 1), priority DESC, ready_at, id) WHERE status NOT IN ('fetching', 'fetched', 'dead');
CREATE INDEX urls_page ON urls (page_id) WHERE page_id > 0;
CREATE INDEX urls_digest ON urls (digest, host_id) WHERE digest <> 0;
CREATE INDEX urls_leased ON urls (lease_until) WHERE status = 'fetching';
CREATE INDEX urls_recrawl ON urls (recrawl_at) WHERE status = 'fetched' AND recrawl_at > 0;

-- Each fetch updates a row of both tables twice. Free space keeps the new versions on the page.
ALTER TABLE urls SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE hosts SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Outcomes. One may outlive its URL. An index on url_id, which the deletion of a URL would need to check a reference,
-- costs each record more. headers is a JSON object: names to lists of values.
CREATE TABLE fetches (
    id                  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    url_id              BIGINT NOT NULL,
    token               BIGINT NOT NULL,
    url                 TEXT   NOT NULL,
    final_url           TEXT   NOT NULL,
    status              TEXT   NOT NULL,
    http_status         BIGINT NOT NULL,
    error_class         TEXT   NOT NULL,
    last_error          TEXT   NOT NULL,
    attempts            BIGINT NOT NULL,
    retry_count         BIGINT NOT NULL,
    duration_ms         BIGINT NOT NULL,
    wait_ms             BIGINT NOT NULL,
    bytes               BIGINT NOT NULL,
    body_digest         TEXT   NOT NULL,
    ended_at            BIGINT NOT NULL,
    content_type        TEXT   NOT NULL DEFAULT '',
    charset             TEXT   NOT NULL DEFAULT '',
    headers             TEXT   NOT NULL DEFAULT '',
    warc_file           TEXT   NOT NULL DEFAULT '', -- where the response is
    warc_offset         BIGINT NOT NULL DEFAULT 0,
    warc_length         BIGINT NOT NULL DEFAULT 0,
    warc_record_id      TEXT   NOT NULL DEFAULT '',
    warc_date           TEXT   NOT NULL DEFAULT '',
    warc_payload_digest TEXT   NOT NULL DEFAULT ''
);

-- status, error_class and error_text describe the last fetch. body is that of the last answer, if any.
CREATE TABLE robots (
    origin                 TEXT    PRIMARY KEY,
    saved_at               BIGINT  NOT NULL,
    status                 BIGINT  NOT NULL,
    error_class            TEXT    NOT NULL,
    error_text             TEXT    NOT NULL DEFAULT '',
    unreachable_since      BIGINT  NOT NULL DEFAULT 0,
    has_body               BOOLEAN NOT NULL DEFAULT FALSE,
    body_status            BIGINT  NOT NULL DEFAULT 0,
    body                   BYTEA   NOT NULL DEFAULT '',
    earlier_record_id      TEXT    NOT NULL DEFAULT '',
    earlier_url            TEXT    NOT NULL DEFAULT '',
    earlier_date           TEXT    NOT NULL DEFAULT '',
    earlier_payload_digest TEXT    NOT NULL DEFAULT ''
);
-- A worker that runs asks every ten seconds which files to fetch again.
CREATE INDEX robots_refresh ON robots (origin) WHERE saved_at = 0;

-- A worker updates its row while it runs, and deletes it when it stops.
CREATE TABLE workers (
    name       TEXT   PRIMARY KEY,
    started_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL,
    process    TEXT   NOT NULL DEFAULT '' -- which process it is on which machine, or empty if it does not know
);

-- How many URLs of a host differ in numbers only. A worker adds to a row each time that it has fetched 100 of them.
CREATE TABLE patterns (
    host    TEXT    NOT NULL,
    pattern TEXT    NOT NULL, -- up to 255 bytes, with # for each number
    urls    BIGINT  NOT NULL,
    PRIMARY KEY (host, pattern)
);

-- Hosts that share a domain or an address share a delay and a number of open fetches.
CREATE TABLE host_groups (
    name          TEXT   PRIMARY KEY,
    next_at       BIGINT NOT NULL DEFAULT 0, -- closed until
    promised_at   BIGINT NOT NULL DEFAULT 0, -- the last turn that a host waits for
    fetch_ms      BIGINT NOT NULL DEFAULT 0, -- an average of the time that a turn takes
    delay_ms      BIGINT,
    max_in_flight BIGINT NOT NULL DEFAULT 1
);

-- A turn belongs to a claim, or to a reservation, which has no URL.
CREATE TABLE turns (
    url_id     BIGINT NOT NULL,
    token      BIGINT NOT NULL,
    group_name TEXT   NOT NULL,
    started_at BIGINT NOT NULL,
    ends_at    BIGINT NOT NULL, -- at the latest
    PRIMARY KEY (url_id, token)
);
CREATE INDEX turns_group ON turns (group_name);

-- now() is when the transaction started; after a wait for a lock that is too early.
-- +goose StatementBegin
CREATE FUNCTION frontier_now() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION frontier_delay(delay_ms bigint, crawl_delay_ms bigint, default_ms bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT GREATEST(COALESCE(delay_ms, default_ms), crawl_delay_ms) $$;
-- +goose StatementEnd

-- A put or a recrawl changes due_at only if a claim would come too late. A host that is paused or has no capacity
-- becomes due when that ends.
-- +goose StatementBegin
CREATE FUNCTION frontier_sleeps(h hosts) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT NOT h.paused AND h.in_flight < h.max_in_flight AND COALESCE(h.due_at > GREATEST(h.next_at, h.blocked_until), TRUE) $$;
-- +goose StatementEnd

-- Every function below locks hosts first, then urls, each in the order of id.
-- Nearly all name their rows by key. The planner cannot know how few they are, and on a table without statistics reads it
-- whole: 2.7 ms for a claim and record of one. So these functions turn such plans off. With statistics from a moment without
-- leases it would compare each row with every lease, in the index urls_leased; status || '' keeps it from that.

-- The rows of the JSON lists that frontier_put_entries and frontier_record read. A missing field is zero or empty: it is left
-- out to save time.
CREATE TYPE frontier_entry AS (url text, host text, hash text, kind smallint, priority smallint, depth int, parent bigint, metadata text, changed_ms bigint, page bigint, hops smallint);

CREATE TYPE frontier_outcome AS (id bigint, token bigint, status text, final_url text, final_hash text, final_host text, last_error text,
    error_class text, retry_in_ms bigint, http_status int, attempts int, retry_count int, duration_ms bigint, wait_ms bigint,
    bytes bigint, etag text, last_modified text, body_digest text, whole boolean, content_type text, charset text, headers text,
    warc_file text, warc_offset bigint, warc_length bigint, warc_record_id text, warc_date text, warc_payload_digest text,
    earlier_record_id text, earlier_url text, earlier_date text, earlier_payload_digest text, recrawl_in_ms bigint, kind smallint, unneeded boolean, title text, digest bigint);

-- Whether a URL that failed with a class may be fetched as a requisite: the limits of pages have ended it.
-- +goose StatementBegin
CREATE FUNCTION frontier_narrow(error_class text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT error_class IN ('content_type', 'empty_body', 'body_too_large', 'undecodable', 'out_of_scope') $$;
-- +goose StatementEnd

-- New hosts are inserted in the order of their names before any row is locked, so there are no deadlocks. Once p_urls is
-- reached, there are none: a crawl that goes on would add a host for each link that is left out. The locks of
-- the hosts keep others from adding the same URLs, so the insert needs no ON CONFLICT, which costs a WAL record a row.
-- The advisory lock lets the put that counts all URLs for the first time see those of every other put.
-- +goose StatementBegin
CREATE FUNCTION frontier_put_entries(p_items jsonb, p_urls bigint, p_urls_per_host bigint)
RETURNS TABLE (added bigint, over bigint, over_host bigint, named bigint) LANGUAGE plpgsql
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
    n_named bigint;
BEGIN
    SELECT array_agg(x) INTO items FROM jsonb_populate_recordset(ROW ('', '', '', 0, 0, 0, 0, '', 0, 0, 0)::frontier_entry, p_items) AS x;
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
    GET DIAGNOSTICS n_named = ROW_COUNT;
    PERFORM 1 FROM hosts WHERE host IN (SELECT x.host FROM unnest(items) AS x) ORDER BY id FOR UPDATE;
    IF p_urls_per_host > 0 THEN
        UPDATE hosts h SET url_count = (SELECT count(*) FROM urls u WHERE u.host_id = h.id)
            WHERE h.url_count IS NULL AND h.host IN (SELECT x.host FROM unnest(items) AS x);
    END IF;
    t := frontier_now();
    WITH fresh AS (
        SELECT x.*, h.id AS host_id, p_urls_per_host > 0 AND h.id IS NOT NULL AND h.url_count + row_number() OVER (PARTITION BY h.id ORDER BY x.place) > p_urls_per_host AS over_host
        FROM unnest(items) WITH ORDINALITY AS x (url, host, hash, kind, priority, depth, parent, metadata, changed_ms, page, hops, place) LEFT JOIN hosts h ON h.host = x.host
        WHERE NOT EXISTS (SELECT 1 FROM urls u WHERE u.url_hash = decode(x.hash, 'hex'))
    ), ranked AS (
        SELECT f.*, p_urls > 0 AND NOT f.over_host AND total + count(*) FILTER (WHERE NOT f.over_host) OVER (ORDER BY f.place) > p_urls AS over FROM fresh f
    ), new AS (
        INSERT INTO urls (host_id, url, url_hash, kind, priority, depth, parent_id, metadata, page_id, hops, ready_at)
        SELECT r.host_id, r.url, decode(r.hash, 'hex'), r.kind, r.priority, r.depth, r.parent, r.metadata, r.page, r.hops,
            CASE WHEN r.page > 0 THEN -t ELSE 0 END
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
        WITH named AS (
            SELECT u.id, x.kind, x.depth, x.page, x.hops, c.*
            FROM unnest(items) AS x JOIN urls u ON u.url_hash = decode(x.hash, 'hex')
            CROSS JOIN LATERAL (SELECT x.kind >= 0 AND u.kind >= 0 AND u.depth > x.depth AS nearer, x.page > 0 AND u.page_id = 0 AS needed,
                x.kind > u.kind AND (u.kind < 0 OR u.depth > 0 AND u.status || '' IN ('pending', 'fetching') AND u.fetched_at = 0) AS wider,
                u.status || '' = 'fetched' AND u.recrawl_at > t AND u.fetched_at < x.changed_ms AND x.changed_ms <= t AS due) AS c
            WHERE c.nearer OR c.needed OR c.wider OR c.due
            ORDER BY u.id FOR UPDATE OF u
        ), judged AS (
            SELECT n.*, n.wider AND u.kind < 0 AND (u.status || '' = 'fetched' OR u.status || '' = 'dead' AND u.error_class = 'body_too_large') OR n.needed AND u.status || '' = 'dead' AND frontier_narrow(u.error_class) AS again,
                n.needed AND u.status || '' = 'pending' AND u.fetched_at = 0 AS soon
            FROM named n JOIN urls u ON u.id = n.id
        ), woken AS (
            UPDATE urls u SET
                depth = CASE WHEN n.nearer OR n.wider AND u.kind < 0 AND n.kind >= 0 THEN n.depth ELSE u.depth END,
                kind = CASE WHEN n.wider THEN n.kind ELSE u.kind END,
                page_id = CASE WHEN n.needed THEN n.page ELSE u.page_id END, hops = CASE WHEN n.needed THEN n.hops ELSE u.hops END,
                status = CASE WHEN n.again THEN 'pending' ELSE u.status END,
                failure_count = CASE WHEN n.again THEN 0 ELSE u.failure_count END,
                ready_at = CASE WHEN n.soon OR n.again AND n.page > 0 THEN -t WHEN n.again THEN 0 ELSE u.ready_at END,
                recrawl_at = CASE WHEN n.due THEN t ELSE u.recrawl_at END
            FROM judged n WHERE u.id = n.id RETURNING u.host_id, n.again
        )
        UPDATE hosts h SET due_at = GREATEST(h.next_at, h.blocked_until) WHERE h.id IN (SELECT host_id FROM woken WHERE again) AND frontier_sleeps(h);
    END IF;
    RETURN QUERY SELECT n_new, n_over, n_host, n_named;
END $$;
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

-- frontier_search for one origin of a host: that of https if p_scheme is 's', or that of http if it is ':'. These are the
-- characters after http.
-- +goose StatementBegin
CREATE FUNCTION frontier_search_origin(p_host bigint, p_scheme text, p_now bigint, p_limit bigint, OUT ids bigint[], OUT due bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
    p       smallint := 32767;
    first   bigint;
    batch   bigint[];
BEGIN
    ids := '{}';
    LOOP
        SELECT w.priority, w.ready_at INTO p, first FROM urls w
            WHERE w.host_id = p_host AND substr(w.url, 5, 1) = p_scheme AND w.status NOT IN ('fetching', 'fetched', 'dead')
                AND w.priority < p
            ORDER BY w.priority DESC, w.ready_at, w.id LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF first <= p_now THEN
            SELECT array_agg(r.id) INTO batch FROM (SELECT w.id FROM urls w
                WHERE w.host_id = p_host AND substr(w.url, 5, 1) = p_scheme AND w.status NOT IN ('fetching', 'fetched', 'dead')
                AND w.priority = p AND w.ready_at <= p_now
                ORDER BY w.ready_at, w.id LIMIT p_limit - cardinality(ids)) AS r;
            ids := ids || batch;
            IF cardinality(ids) >= p_limit THEN
                due := p_now;
                EXIT;
            END IF;
            SELECT w.ready_at INTO first FROM urls w
                WHERE w.host_id = p_host AND substr(w.url, 5, 1) = p_scheme AND w.status NOT IN ('fetching', 'fetched', 'dead')
                AND w.priority = p AND w.ready_at > p_now
                ORDER BY w.ready_at, w.id LIMIT 1;
        END IF;
        due := LEAST(due, first);
    END LOOP;
END $$;
-- +goose StatementEnd

-- Leases URLs of hosts that are due, and shares p_limit among them. The search for URLs is a separate statement: it
-- must see what was committed by whoever held the row of the host before. The first URLs of a host in the order of
-- urls_waiting are the right ones if all of them are ready; otherwise frontier_search finds them.
-- URLs of an origin that is deferred are left out. A host with one such origin has its own search, so its cost does not
-- depend on how many URLs that origin has. If both are deferred, no URL is looked at.
-- The token of a claim is larger than that of any earlier one, also if a failover lost some.
-- +goose StatementBegin
CREATE FUNCTION frontier_take(p_limit int, p_lease_ms bigint, p_worker text, p_ahead_ms bigint, p_row bigint, p_rows bigint, p_delay_ms bigint)
RETURNS TABLE (id bigint, token bigint, url text, host text, failure_count bigint, crash_count bigint, etag text, last_modified text, body_digest text,
    earlier_record_id text, earlier_url text, earlier_date text, earlier_payload_digest text,
    kind smallint, priority smallint, depth int, parent_id bigint, page_id bigint, hops smallint, metadata text, recrawl_ms bigint, digest bigint, delay_ms bigint, behind boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    t       bigint;
    locked  bigint[];
    share   bigint;
    h       record;
    taken   bigint[];
    behind  bigint[];
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
        behind := '{}';
        seen := '{}';
        counts := '{}';
        dues := '{}';
        FOR h IN
            SELECT o.id, o.open, o.room, o.most, o.due, o.http, o.https, array_agg(f.id ORDER BY f.place) AS ids, count(f.id) AS n, max(f.ready_at) > t AS late, sum(f.crash_count) AS crashes
            FROM (SELECT id, CASE WHEN max_in_flight = 1 AND room = 1 AND GREATEST(http_deferred_until, https_deferred_until) <= t
                            AND p_ahead_ms / (1 + frontier_delay(delay_ms, crawl_delay_ms, p_delay_ms) + duration_ms / GREATEST(1, fetch_count)) >= p_row
                        THEN GREATEST(1, LEAST(p_row, p_rows / cardinality(locked))) ELSE LEAST(room, share) END AS most,
                    room > 0 AND NOT paused AND GREATEST(next_at, blocked_until) <= t AS open, room,
                    CASE WHEN room > 0 AND NOT paused THEN GREATEST(next_at, blocked_until) END AS due,
                    CASE WHEN http_deferred_until > t THEN http_deferred_until END AS http, CASE WHEN https_deferred_until > t THEN https_deferred_until END AS https
                FROM (SELECT *, max_in_flight - in_flight AS room FROM hosts WHERE id = ANY (locked)) AS x) AS o
            LEFT JOIN LATERAL (SELECT w.id, w.ready_at, w.crash_count, row_number() OVER (ORDER BY w.priority DESC, w.ready_at, w.id) AS place FROM urls w
                WHERE w.host_id = o.id AND w.status IN ('pending', 'failed')
                ORDER BY w.priority DESC, w.ready_at, w.id LIMIT CASE WHEN o.open AND o.http IS NULL AND o.https IS NULL THEN o.most ELSE 0 END) AS f ON TRUE
            GROUP BY o.id, o.open, o.room, o.most, o.due, o.http, o.https
        LOOP
            IF h.open AND h.http IS NOT NULL AND h.https IS NOT NULL THEN
                h.due := LEAST(h.http, h.https);
            ELSIF h.open AND COALESCE(h.http, h.https) IS NOT NULL THEN
                SELECT s.ids, cardinality(s.ids), LEAST(s.due, h.http, h.https) INTO h.ids, h.n, h.due
                    FROM frontier_search_origin(h.id, CASE WHEN h.http IS NULL THEN ':' ELSE 's' END, t, LEAST(h.room, share)) AS s;
            ELSIF h.late THEN
                SELECT s.ids, cardinality(s.ids), s.due INTO h.ids, h.n, h.due FROM frontier_search(h.id, t, h.most) AS s;
                IF h.n > h.room THEN
                    SELECT sum(u.crash_count) INTO h.crashes FROM urls u WHERE u.id = ANY (h.ids);
                END IF;
            ELSIF h.open AND h.n < share THEN
                h.due := NULL; -- no more are waiting, or there is no capacity
            END IF;
            IF h.n > h.room AND h.crashes > 0 THEN
                h.ids := h.ids[1:1];
                h.n := 1;
            ELSIF h.n > h.room THEN
                behind := behind || h.ids[2:];
            END IF;
            IF h.n > 0 THEN
                taken := taken || h.ids;
            END IF;
            seen := seen || h.id;
            counts := counts || h.n;
            dues := dues || CASE WHEN h.n < h.room THEN h.due END;
        END LOOP;
        UPDATE hosts h SET in_flight = h.in_flight + x.n, due_at = x.due FROM unnest(seen, counts, dues) AS x (id, n, due) WHERE h.id = x.id;
        RETURN QUERY WITH c AS (UPDATE urls u
            SET status = 'fetching', lease_until = t + p_lease_ms, worker = p_worker, holds = 1,
                token = GREATEST(u.token + 1, (t << 20) + floor(random() * 1048576)::bigint)
            FROM hosts h WHERE u.id = ANY (taken) AND h.id = u.host_id
            RETURNING u.id, u.token, u.url, h.host, u.failure_count, u.crash_count, u.etag, u.last_modified, u.body_digest,
                u.earlier_record_id, u.earlier_url, u.earlier_date, u.earlier_payload_digest, u.kind, u.priority, u.depth, u.parent_id, u.page_id, u.hops, u.metadata, u.recrawl_ms, u.digest,
                frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms), u.id = ANY (behind))
            SELECT * FROM c ORDER BY array_position(taken, c.id);
        got := got + cardinality(taken) - cardinality(behind);
        EXIT WHEN got >= p_limit;
    END LOOP;
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

-- Ends leases whose URLs were not requested. Returns those that were held.
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

-- Returns the leases that were held: they are recorded, the others are stale.
-- +goose StatementBegin
CREATE FUNCTION frontier_record(p_items jsonb, p_delay_ms bigint)
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
    SELECT array_agg(x), array_agg(x.id) INTO items, ids FROM jsonb_populate_recordset(ROW (0, 0, '', '', '', '', '', '', 0, 0, 0, 0, 0, 0, 0, '', '', '', FALSE, '', '', '', '', 0, 0, '', '', '', '', '', '', '', 0, 0, FALSE, '', 0)::frontier_outcome,
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
            status = CASE WHEN i.status = 'fetched' AND i.kind < 0 AND u.kind > i.kind OR i.unneeded AND u.page_id > 0 THEN 'pending' ELSE i.status END,
            lease_until = 0, worker = '', last_error = i.last_error, error_class = i.error_class,
            retry_count = i.retry_count, http_status = i.http_status,
            failure_count = CASE WHEN i.status = 'fetched' THEN 0 ELSE u.failure_count + 1 END,
            ready_at = CASE WHEN i.status = 'failed' THEN t + 1 + i.retry_in_ms ELSE u.ready_at END,
            etag = CASE WHEN i.etag = '' AND NOT i.whole THEN u.etag ELSE i.etag END,
            last_modified = CASE WHEN i.last_modified = '' AND NOT i.whole THEN u.last_modified ELSE i.last_modified END,
            body_digest = CASE WHEN i.whole THEN i.body_digest ELSE u.body_digest END,
            title = CASE WHEN i.whole THEN i.title ELSE u.title END,
            digest = CASE WHEN i.whole THEN i.digest ELSE u.digest END,
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
            due_at = CASE WHEN h.in_flight - d.ended < h.max_in_flight
                THEN GREATEST(h.next_at, h.blocked_until, d.last + 1 + frontier_delay(h.delay_ms, h.crawl_delay_ms, p_delay_ms)) END,
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
                WHERE m.id = ANY (done) AND NOT EXISTS (SELECT 1 FROM urls o WHERE o.url_hash = decode(m.final_hash, 'hex') AND o.id <> m.id)
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

-- Makes the URLs of leases pending that have expired, and returns their number.
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

-- With statistics from when most URLs were waiting, the planner would look for one in the table, all of it once there is none.
-- +goose StatementBegin
CREATE FUNCTION frontier_left() RETURNS boolean LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT EXISTS (SELECT 1 FROM urls WHERE status IN ('pending', 'failed')) OR EXISTS (SELECT 1 FROM urls WHERE status = 'fetching')
$$;
-- +goose StatementEnd

-- Makes those of some URLs pending that were fetched by p_until, or that failed with p_class, which may be empty for any.
-- The lock of a host keeps others from changing its URLs that are not being fetched, so here and in the next two functions
-- these need no lock before the update. It would double the time.
-- +goose StatementBegin
CREATE FUNCTION frontier_again(p_ids bigint[], p_fetched boolean, p_class text, p_until bigint) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    again bigint;
BEGIN
    PERFORM 1 FROM hosts WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (p_ids)) ORDER BY id FOR UPDATE;
    WITH changed AS (
        UPDATE urls SET status = 'pending', failure_count = 0, crash_count = 0, ready_at = 0
        WHERE id = ANY (p_ids) AND CASE WHEN p_fetched THEN status = 'fetched' AND fetched_at <= p_until
            ELSE status IN ('failed', 'dead') AND p_class IN ('', error_class) END
        RETURNING host_id
    ), due AS (
        UPDATE hosts SET due_at = GREATEST(next_at, blocked_until)
        WHERE id IN (SELECT host_id FROM changed) AND COALESCE(due_at > GREATEST(next_at, blocked_until), TRUE)
    )
    SELECT count(*) INTO again FROM changed;
    RETURN again;
END $$;
-- +goose StatementEnd

-- Makes those of some URLs dead that wait.
-- +goose StatementBegin
CREATE FUNCTION frontier_abort_some(p_ids bigint[], p_class text, p_text text) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    ended bigint;
BEGIN
    PERFORM 1 FROM hosts WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (p_ids)) ORDER BY id FOR UPDATE;
    UPDATE urls SET status = 'dead', error_class = p_class, last_error = p_text
        WHERE id = ANY (p_ids) AND status IN ('pending', 'failed');
    GET DIAGNOSTICS ended = ROW_COUNT;
    RETURN ended;
END $$;
-- +goose StatementEnd

-- Deletes those of some URLs that have one of these states and, unless p_until is 0, were fetched by then.
-- The advisory lock is that of frontier_put_entries: no put may count URLs meanwhile.
-- +goose StatementBegin
CREATE FUNCTION frontier_prune(p_ids bigint[], p_statuses text[], p_until bigint) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    pruned bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7381240021446157685);
    PERFORM 1 FROM hosts WHERE id IN (SELECT host_id FROM urls WHERE id = ANY (p_ids)) ORDER BY id FOR UPDATE;
    WITH gone AS (
        DELETE FROM urls WHERE id = ANY (p_ids) AND status = ANY (p_statuses) AND (p_until = 0 OR fetched_at BETWEEN 1 AND p_until)
        RETURNING host_id
    ), unknown AS (
        UPDATE hosts SET url_count = NULL WHERE url_count IS NOT NULL AND id IN (SELECT host_id FROM gone)
    )
    SELECT count(*) INTO pruned FROM gone;
    DELETE FROM settings WHERE name = 'url_count' AND pruned > 0;
    RETURN pruned;
END $$;
-- +goose StatementEnd

-- A host without URLs and without settings that has been open for p_ms is not needed for politeness. One with a
-- Crawl-delay must have been open for longer than a worker uses a robots.txt, 24 hours. Then the file is fetched again.
-- +goose StatementBegin
CREATE FUNCTION frontier_unused(h hosts, p_ms bigint) RETURNS boolean LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT h.in_flight = 0 AND NOT h.paused AND h.delay_ms IS NULL AND h.max_in_flight = 1
        AND GREATEST(h.next_at, h.blocked_until) <= frontier_now() - CASE WHEN h.crawl_delay_ms > 0 THEN p_ms + 86400000 ELSE p_ms END
        AND NOT EXISTS (SELECT 1 FROM urls u WHERE u.host_id = h.id)
$$;
-- +goose StatementEnd

-- Deletes those of some hosts that are unused. The advisory lock waits for every put, which may have found a host
-- without having added its URL yet.
-- +goose StatementBegin
CREATE FUNCTION frontier_prune_hosts(p_ids bigint[], p_unused_ms bigint) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    pruned bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(7381240021446157685);
    PERFORM 1 FROM hosts WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
    DELETE FROM hosts h WHERE h.id = ANY (p_ids) AND frontier_unused(h, p_unused_ms);
    GET DIAGNOSTICS pruned = ROW_COUNT;
    RETURN pruned;
END $$;
-- +goose StatementEnd

-- Without statistics, or with statistics of few hosts, the planner would read all URLs.
-- +goose StatementBegin
CREATE FUNCTION frontier_has_urls(p_origin text) RETURNS boolean LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    SELECT EXISTS (SELECT 1 FROM hosts h JOIN urls u ON u.host_id = h.id
        WHERE h.host = replace(replace(p_origin, 'https://', ''), 'http://', ''))
$$;
-- +goose StatementEnd

-- Gives turns. Whoever has waited for one comes first. Of the others, each gets the promise of a later turn, up to p_ahead_ms
-- from now: hosts that come after those ask again.
-- +goose StatementBegin
CREATE FUNCTION frontier_take_turns(p_asks jsonb, p_delay_ms bigint, p_ahead_ms bigint)
RETURNS TABLE (url_id bigint, token bigint, wait_ms bigint, promised boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    called text;
    g      host_groups;
    a      record;
    t      bigint;
    pause  bigint;
    step   bigint;
    ended  bigint;
    used   bigint;
    began  bigint;
    opens  bigint;
    before text;
    behind bigint;
BEGIN
    FOR called IN SELECT DISTINCT x."group" FROM jsonb_to_recordset(p_asks) AS x ("group" text) ORDER BY 1 LOOP
        LOOP
            SELECT * INTO g FROM host_groups h WHERE h.name = called FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO host_groups (name) VALUES (called) ON CONFLICT DO NOTHING;
        END LOOP;
        t := frontier_now();
        pause := COALESCE(g.delay_ms, p_delay_ms) + 1;
        WITH gone AS (DELETE FROM turns WHERE group_name = called AND ends_at <= t RETURNING ends_at) SELECT max(ends_at) INTO ended FROM gone;
        g.next_at := GREATEST(g.next_at, ended + pause);
        SELECT count(*), COALESCE(min(started_at), t) INTO used, began FROM turns WHERE group_name = called;
        step := (pause + g.fetch_ms) / g.max_in_flight + 1;
        behind := 0;
        before := NULL;
        FOR a IN SELECT x.* FROM jsonb_to_recordset(p_asks) AS x (id bigint, token bigint, "group" text, host text, first boolean, waited_ms bigint, lease_ms bigint)
            WHERE x."group" = called ORDER BY x.first DESC, x.waited_ms DESC, x.host LOOP
            url_id := a.id;
            token := a.token;
            IF used < g.max_in_flight AND g.next_at <= t AND (a.first OR g.promised_at <= t) THEN
                wait_ms := 0;
                promised := FALSE;
                INSERT INTO turns VALUES (a.id, a.token, called, t, t + a.lease_ms);
                used := used + 1;
                g.promised_at := GREATEST(g.promised_at, t);
            ELSIF a.host = before AND wait_ms > 0 THEN
                NULL; -- the same answer as to the claim before
            ELSE
                opens := GREATEST(g.next_at, t + 1, CASE WHEN used >= g.max_in_flight THEN GREATEST(began + g.fetch_ms, t) + pause END);
                promised := FALSE;
                IF a.first THEN
                    wait_ms := opens - t + behind * step;
                    behind := behind + 1;
                ELSIF GREATEST(opens, g.promised_at + step) <= t + p_ahead_ms THEN
                    promised := TRUE;
                    g.promised_at := GREATEST(opens, g.promised_at + step);
                    wait_ms := g.promised_at - t;
                ELSE
                    wait_ms := p_ahead_ms / 2 + floor(random() * p_ahead_ms / 2)::bigint;
                END IF;
            END IF;
            before := a.host;
            RETURN NEXT;
        END LOOP;
        UPDATE host_groups h SET next_at = g.next_at, promised_at = g.promised_at WHERE h.name = called;
    END LOOP;
END $$;
-- +goose StatementEnd

-- Ends turns. Their groups open after the delay, if a request was sent.
-- +goose StatementBegin
CREATE FUNCTION frontier_end_turns(p_ends jsonb, p_delay_ms bigint) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    t bigint;
BEGIN
    PERFORM 1 FROM host_groups WHERE name IN (SELECT u.group_name FROM jsonb_to_recordset(p_ends) AS x (id bigint, token bigint)
        JOIN turns u ON u.url_id = x.id AND u.token = x.token) ORDER BY name FOR UPDATE;
    PERFORM 1 FROM turns u JOIN jsonb_to_recordset(p_ends) AS x (id bigint, token bigint) ON u.url_id = x.id AND u.token = x.token ORDER BY u.url_id, u.token FOR UPDATE OF u;
    t := frontier_now();
    WITH gone AS (
        DELETE FROM turns u USING jsonb_to_recordset(p_ends) AS x (id bigint, token bigint, sent boolean)
        WHERE u.url_id = x.id AND u.token = x.token RETURNING u.group_name, t - u.started_at AS ms, x.sent
    )
    UPDATE host_groups g SET next_at = GREATEST(g.next_at, t + 1 + COALESCE(g.delay_ms, p_delay_ms)),
        fetch_ms = CASE WHEN g.fetch_ms = 0 THEN s.ms ELSE (7 * g.fetch_ms + s.ms) / 8 END
        FROM (SELECT group_name, avg(ms)::bigint AS ms FROM gone WHERE sent GROUP BY group_name) AS s WHERE g.name = s.group_name;
END $$;
-- +goose StatementEnd

-- Closes the hosts of claims that have to wait for their groups, and releases these. A wait of 0 ends a promise.
-- +goose StatementBegin
CREATE FUNCTION frontier_line_up(p_waits jsonb) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    t bigint;
BEGIN
    PERFORM 1 FROM hosts WHERE id IN (SELECT u.host_id FROM jsonb_to_recordset(p_waits) AS x (id bigint) JOIN urls u ON u.id = x.id) ORDER BY id FOR UPDATE;
    t := frontier_now();
    UPDATE hosts h SET turn_at = CASE WHEN w.promised THEN t + w.ms WHEN w.ms IS NULL THEN 0 WHEN h.turn_at BETWEEN 1 AND t THEN h.turn_at ELSE -t - w.ms END, next_at = GREATEST(h.next_at, t + w.ms)
        FROM (SELECT u.host_id, bool_or(x.promised) AS promised, min(x.wait_ms) FILTER (WHERE x.wait_ms > 0) AS ms
            FROM jsonb_to_recordset(p_waits) AS x (id bigint, wait_ms bigint, promised boolean) JOIN urls u ON u.id = x.id GROUP BY u.host_id) AS w
        WHERE h.id = w.host_id;
    PERFORM frontier_release(COALESCE((SELECT jsonb_agg(x) FROM jsonb_to_recordset(p_waits) AS x (id bigint, token bigint, wait_ms bigint) WHERE x.wait_ms > 0), '[]'));
END $$;
-- +goose StatementEnd

-- A later migration calls this first. It locks the tables of workers that run on. They use the tables in another order than a
-- migration, so a lock of one table after the other could end in a deadlock. It locks all of them within a moment, or none and
-- tries again.
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
