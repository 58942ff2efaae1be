-- For crawls that find their own URLs, fetch them again, and end by a budget.
-- +goose Up

-- kind is 0 for a page and 1 for a sitemap. parent_id is the row with the link, or 0. metadata is a JSON object of
-- whoever added the URL, or empty. recrawl_ms is the time between two fetches of a page, and recrawl_at is when
-- the next one is due; 0 means never.
ALTER TABLE urls ADD COLUMN kind BIGINT NOT NULL DEFAULT 0;
ALTER TABLE urls ADD COLUMN priority BIGINT NOT NULL DEFAULT 0;
ALTER TABLE urls ADD COLUMN depth BIGINT NOT NULL DEFAULT 0;
ALTER TABLE urls ADD COLUMN parent_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE urls ADD COLUMN metadata TEXT NOT NULL DEFAULT '';
ALTER TABLE urls ADD COLUMN recrawl_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE urls ADD COLUMN recrawl_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX urls_recrawl ON urls (recrawl_at) WHERE status = 'fetched' AND recrawl_at > 0;

-- Sums over the outcomes of a host. first_at is when its first outcome was recorded. url_count is the number of its
-- URLs, or null while no put has asked for a limit.
ALTER TABLE hosts ADD COLUMN fetch_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN failure_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN duration_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN first_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN url_count BIGINT;

-- A worker updates its row while it runs, and deletes it when it stops.
CREATE TABLE workers (
    name       TEXT   PRIMARY KEY,
    started_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);

-- frontier_put stays for programs that are older.
-- +goose StatementBegin
CREATE FUNCTION frontier_put_entries(p_items jsonb) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    added bigint;
BEGIN
    PERFORM 1 FROM hosts WHERE host IN (SELECT x.host FROM jsonb_to_recordset(p_items) AS x (host text)) ORDER BY id FOR UPDATE;
    UPDATE hosts SET due_at = GREATEST(next_at, blocked_until)
        WHERE host IN (SELECT x.host FROM jsonb_to_recordset(p_items) AS x (host text));
    INSERT INTO urls (host_id, url, url_hash, kind, priority, depth, parent_id, metadata)
        SELECT h.id, x.item ->> 'url', decode(x.item ->> 'hash', 'hex'), (x.item ->> 'kind')::bigint, (x.item ->> 'priority')::bigint,
            (x.item ->> 'depth')::bigint, (x.item ->> 'parent')::bigint, x.item ->> 'metadata'
        FROM jsonb_array_elements(p_items) WITH ORDINALITY AS x (item, place) JOIN hosts h ON h.host = x.item ->> 'host'
        ORDER BY x.place
        ON CONFLICT ON CONSTRAINT urls_url_hash_key DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    RETURN added;
END $$;
-- +goose StatementEnd
