-- Times are milliseconds since 1970 by the database's clock.
-- +goose Up
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- due_at is when a claim should next look at the host: a hint that may be too
-- early, never too late. Null: a put, a record or a resume will set it.
CREATE TABLE hosts (
    id             INTEGER PRIMARY KEY,
    host           TEXT    NOT NULL UNIQUE,
    due_at         INTEGER,
    next_at        INTEGER NOT NULL DEFAULT 0,
    delay_ms       INTEGER,
    crawl_delay_ms INTEGER NOT NULL DEFAULT 0,
    blocked_until  INTEGER NOT NULL DEFAULT 0,
    block_ms       INTEGER NOT NULL DEFAULT 0,
    in_flight      INTEGER NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    max_in_flight  INTEGER NOT NULL DEFAULT 1 CHECK (max_in_flight > 0),
    paused         BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX hosts_due ON hosts (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE urls (
    id            INTEGER PRIMARY KEY,
    host_id       INTEGER NOT NULL REFERENCES hosts (id),
    url           TEXT    NOT NULL,
    url_hash      BLOB    NOT NULL UNIQUE,
    status        TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'fetching', 'fetched', 'failed', 'dead')),
    ready_at      INTEGER NOT NULL DEFAULT 0,
    token         INTEGER NOT NULL DEFAULT 0,
    lease_until   INTEGER NOT NULL DEFAULT 0,
    worker        TEXT    NOT NULL DEFAULT '',
    holds         INTEGER NOT NULL DEFAULT 1, -- 1 while a fetch holds its host, 0 after its redirects have left it
    last_error    TEXT    NOT NULL DEFAULT '',
    error_class   TEXT    NOT NULL DEFAULT '',
    retry_count   INTEGER NOT NULL DEFAULT 0,
    failure_count INTEGER NOT NULL DEFAULT 0,
    crash_count   INTEGER NOT NULL DEFAULT 0,
    http_status   INTEGER NOT NULL DEFAULT 0,
    etag          TEXT    NOT NULL DEFAULT '',
    last_modified TEXT    NOT NULL DEFAULT '',
    body_digest   TEXT    NOT NULL DEFAULT '',
    fetched_at    INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX urls_waiting ON urls (host_id, ready_at, id) WHERE status IN ('pending', 'failed');
CREATE INDEX urls_leased ON urls (lease_until) WHERE status = 'fetching';

CREATE TABLE fetches (
    id          INTEGER PRIMARY KEY,
    url_id      INTEGER NOT NULL REFERENCES urls (id),
    token       INTEGER NOT NULL,
    url         TEXT    NOT NULL,
    final_url   TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    http_status INTEGER NOT NULL,
    error_class TEXT    NOT NULL,
    last_error  TEXT    NOT NULL,
    attempts    INTEGER NOT NULL,
    retry_count INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    wait_ms     INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    body_digest TEXT    NOT NULL,
    ended_at    INTEGER NOT NULL
);
