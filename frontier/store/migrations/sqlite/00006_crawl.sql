-- For crawls that find their own URLs, fetch them again, and end by a budget.
-- +goose Up

-- kind is 0 for a page and 1 for a sitemap. parent_id is the row with the link, or 0. metadata is a JSON object of
-- whoever added the URL, or empty. recrawl_ms is the time between two fetches of a page, and recrawl_at is when
-- the next one is due; 0 means never.
ALTER TABLE urls ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;
ALTER TABLE urls ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE urls ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
ALTER TABLE urls ADD COLUMN parent_id INTEGER NOT NULL DEFAULT 0;
ALTER TABLE urls ADD COLUMN metadata TEXT NOT NULL DEFAULT '';
ALTER TABLE urls ADD COLUMN recrawl_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE urls ADD COLUMN recrawl_at INTEGER NOT NULL DEFAULT 0;
DROP INDEX urls_waiting;
CREATE INDEX urls_waiting ON urls (host_id, priority DESC, ready_at, id) WHERE status IN ('pending', 'failed');
CREATE INDEX urls_recrawl ON urls (recrawl_at) WHERE status = 'fetched' AND recrawl_at > 0;

-- Sums over the outcomes of a host that had a request. first_at is when the first of them was recorded. url_count is
-- the number of its URLs, or null while no put has asked for a limit.
ALTER TABLE hosts ADD COLUMN fetch_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN failure_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN duration_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN first_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN url_count INTEGER;

-- A worker updates its row while it runs, and deletes it when it stops.
CREATE TABLE workers (
    name       TEXT    PRIMARY KEY,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
);

-- A worker that runs asks every ten seconds which files to fetch again.
CREATE INDEX robots_refresh ON robots (origin) WHERE saved_at = 0;
