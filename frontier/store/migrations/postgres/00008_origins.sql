-- An unreachable robots.txt defers the URLs of its origin, and no others of the host.
-- +goose Up
SELECT frontier_lock_tables();

-- URLs of http://HOST and https://HOST are not claimed before. They are times, or 0.
ALTER TABLE hosts ADD COLUMN http_deferred_until BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN https_deferred_until BIGINT NOT NULL DEFAULT 0;

-- For hosts with one origin that is deferred. Claims of other hosts use urls_waiting. The conditions of the two indexes
-- have the same meaning and different forms, so the planner cannot use urls_waiting for one origin. It would, where
-- its statistics say that nearly all URLs have the scheme that it looks for, and then read all of the other origin.
CREATE INDEX urls_origin ON urls (host_id, (substr(url, 5, 1)), priority DESC, ready_at, id) WHERE status NOT IN ('fetching', 'fetched', 'dead');

-- What fetchd said about the last fetch, if it failed.
ALTER TABLE robots ADD COLUMN error_text TEXT NOT NULL DEFAULT '';

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

-- As before, and leaves out the URLs of an origin that is deferred. A host with one such origin has a search of its
-- own, so its cost does not depend on how many URLs that origin has. If both are deferred, no URL is looked at.
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
            FROM (SELECT id, room > 0 AND NOT paused AND GREATEST(next_at, blocked_until) <= t AS open, room,
                    CASE WHEN room > 0 AND NOT paused THEN GREATEST(next_at, blocked_until) END AS due,
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
                token = GREATEST(u.token + 1, (t << 20) + floor(random() * 1048576)::bigint)
            FROM hosts h WHERE u.id = ANY (taken) AND h.id = u.host_id
            RETURNING u.id, u.token, u.url, h.host, u.failure_count, u.crash_count, u.etag, u.last_modified, u.body_digest,
                u.earlier_record_id, u.earlier_url, u.earlier_date, u.earlier_payload_digest, u.kind, u.priority, u.depth, u.metadata, u.recrawl_ms;
        got := got + cardinality(taken);
        EXIT WHEN got >= p_limit;
    END LOOP;
END $$;
-- +goose StatementEnd
