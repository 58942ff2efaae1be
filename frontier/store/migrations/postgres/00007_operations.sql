-- For operations that change many rows, a chunk in each transaction. frontier_retry, frontier_refetch and
-- frontier_abort stay for programs that are older.
-- The lock of a host keeps others from changing its URLs that are not being fetched, so these need no lock before the
-- update. It would double the time.
-- +goose Up
SELECT frontier_lock_tables();

-- Makes those of some URLs pending that were fetched by p_until, or that failed with p_class, which may be empty for any.
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

-- An outcome may outlive its URL. An index on url_id, which the deletion of a URL would need to check the reference,
-- costs each record more.
ALTER TABLE fetches DROP CONSTRAINT fetches_url_id_fkey;

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
