-- For operations that change many rows, a chunk in each transaction. frontier_retry, frontier_refetch and
-- frontier_abort stay for programs that are older.
-- The lock of a host keeps others from changing its URLs that are not being fetched, so these need no lock before the
-- update. It would double the time.
-- +goose Up

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
