-- Times are milliseconds since 1970 by the database's clock; 0 means never.
-- +goose Up
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- due_at is when a claim should next look at the host: a hint that may be too early, never too late. Null: a put, a record
-- or a resume will set it. The sums are over the outcomes that had a request.
CREATE TABLE hosts (
    id                   INTEGER PRIMARY KEY,
    host                 TEXT    NOT NULL UNIQUE,
    due_at               INTEGER,
    next_at              INTEGER NOT NULL DEFAULT 0, -- closed until
    reserved_until       INTEGER NOT NULL DEFAULT 0, -- the next_at that a reservation has set, until it is settled
    delay_ms             INTEGER,
    crawl_delay_ms       INTEGER NOT NULL DEFAULT 0,
    blocked_until        INTEGER NOT NULL DEFAULT 0,
    block_ms             INTEGER NOT NULL DEFAULT 0,
    http_deferred_until  INTEGER NOT NULL DEFAULT 0, -- URLs of http://HOST are not claimed before
    https_deferred_until INTEGER NOT NULL DEFAULT 0, -- likewise
    paused               BOOLEAN NOT NULL DEFAULT FALSE,
    in_flight            INTEGER NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    max_in_flight        INTEGER NOT NULL DEFAULT 1 CHECK (max_in_flight > 0),
    address              TEXT    NOT NULL DEFAULT '', -- that it was last fetched from
    turn_at              INTEGER NOT NULL DEFAULT 0,  -- if it waits for its group: when it has a turn, or below zero when it asks again
    url_count            INTEGER,                     -- null while no put has asked for a limit
    first_at             INTEGER NOT NULL DEFAULT 0,  -- when the first outcome was recorded
    fetch_count          INTEGER NOT NULL DEFAULT 0,
    failure_count        INTEGER NOT NULL DEFAULT 0,
    duration_ms          INTEGER NOT NULL DEFAULT 0,
    bytes                INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX hosts_due ON hosts (due_at) WHERE due_at IS NOT NULL;

-- The queue. url_hash is that of the URL, without session ids if a link led to it. kind is 0 for a page and 1 for a sitemap. It is below 0 if the URL is only needed to show pages: -1 if it may
-- need more itself, and -2 if not. ready_at is below 0 for a URL that is needed and was not fetched yet. metadata is a JSON object of whoever added the URL, or empty.
-- recrawl_ms is the time between two fetches of a page, and recrawl_at is when the next one is due. The earlier record
-- is that of a response in a WARC file to which the next one may refer. Its date is text, so that it is equal to the
-- last digit.
CREATE TABLE urls (
    id                     INTEGER PRIMARY KEY,
    host_id                INTEGER NOT NULL REFERENCES hosts (id),
    url                    TEXT    NOT NULL,
    url_hash               BLOB    NOT NULL UNIQUE,
    kind                   INTEGER NOT NULL DEFAULT 0,
    priority               INTEGER NOT NULL DEFAULT 0,
    depth                  INTEGER NOT NULL DEFAULT 0,
    parent_id              INTEGER NOT NULL DEFAULT 0, -- the row with the link, or 0
    page_id                INTEGER NOT NULL DEFAULT 0, -- the row of the page that needs it to be shown, or 0
    hops                   INTEGER NOT NULL DEFAULT 0, -- from that page
    metadata               TEXT    NOT NULL DEFAULT '',
    status                 TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'fetching', 'fetched', 'failed', 'dead')),
    ready_at               INTEGER NOT NULL DEFAULT 0,
    token                  INTEGER NOT NULL DEFAULT 0,
    lease_until            INTEGER NOT NULL DEFAULT 0,
    worker                 TEXT    NOT NULL DEFAULT '',
    holds                  INTEGER NOT NULL DEFAULT 1, -- 1 while a fetch holds its host, 0 after its redirects have left it
    last_error             TEXT    NOT NULL DEFAULT '',
    error_class            TEXT    NOT NULL DEFAULT '',
    retry_count            INTEGER NOT NULL DEFAULT 0,
    failure_count          INTEGER NOT NULL DEFAULT 0,
    crash_count            INTEGER NOT NULL DEFAULT 0,
    http_status            INTEGER NOT NULL DEFAULT 0,
    etag                   TEXT    NOT NULL DEFAULT '',
    last_modified          TEXT    NOT NULL DEFAULT '',
    body_digest            TEXT    NOT NULL DEFAULT '',
    title                  TEXT    NOT NULL DEFAULT '',
    digest                 INTEGER NOT NULL DEFAULT 0, -- of the body of a page that was searched: its first 8 bytes, or 0
    earlier_record_id      TEXT    NOT NULL DEFAULT '',
    earlier_url            TEXT    NOT NULL DEFAULT '',
    earlier_date           TEXT    NOT NULL DEFAULT '',
    earlier_payload_digest TEXT    NOT NULL DEFAULT '',
    fetched_at             INTEGER NOT NULL DEFAULT 0,
    recrawl_ms             INTEGER NOT NULL DEFAULT 0,
    recrawl_at             INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX urls_host ON urls (host_id);
CREATE INDEX urls_waiting ON urls (host_id, priority DESC, ready_at, id) WHERE status IN ('pending', 'failed');
-- For hosts with one origin that is deferred. Claims of other hosts use urls_waiting.
CREATE INDEX urls_origin ON urls (host_id, substr(url, 5, 1), priority DESC, ready_at, id) WHERE status IN ('pending', 'failed');
CREATE INDEX urls_page ON urls (page_id) WHERE page_id > 0;
CREATE INDEX urls_digest ON urls (digest, host_id) WHERE digest <> 0;
CREATE INDEX urls_leased ON urls (lease_until) WHERE status = 'fetching';
CREATE INDEX urls_recrawl ON urls (recrawl_at) WHERE status = 'fetched' AND recrawl_at > 0;

-- SQLite would give the id of the last URL to another one after that is deleted, and the outcomes of the first with it.
-- +goose StatementBegin
CREATE TRIGGER urls_last AFTER DELETE ON urls WHEN NOT EXISTS (SELECT 1 FROM urls WHERE id > old.id) BEGIN
    INSERT INTO settings (name, value) VALUES ('last_url_id', old.id) ON CONFLICT (name) DO UPDATE SET value = max(CAST(value AS INTEGER), old.id);
END;
-- +goose StatementEnd

-- Outcomes. One may outlive its URL. headers is a JSON object: names to lists of values.
CREATE TABLE fetches (
    id                  INTEGER PRIMARY KEY,
    url_id              INTEGER NOT NULL,
    token               INTEGER NOT NULL,
    url                 TEXT    NOT NULL,
    final_url           TEXT    NOT NULL,
    status              TEXT    NOT NULL,
    http_status         INTEGER NOT NULL,
    error_class         TEXT    NOT NULL,
    last_error          TEXT    NOT NULL,
    attempts            INTEGER NOT NULL,
    retry_count         INTEGER NOT NULL,
    duration_ms         INTEGER NOT NULL,
    wait_ms             INTEGER NOT NULL,
    bytes               INTEGER NOT NULL,
    body_digest         TEXT    NOT NULL,
    ended_at            INTEGER NOT NULL,
    content_type        TEXT    NOT NULL DEFAULT '',
    charset             TEXT    NOT NULL DEFAULT '',
    headers             TEXT    NOT NULL DEFAULT '',
    warc_file           TEXT    NOT NULL DEFAULT '', -- where the response is
    warc_offset         INTEGER NOT NULL DEFAULT 0,
    warc_length         INTEGER NOT NULL DEFAULT 0,
    warc_record_id      TEXT    NOT NULL DEFAULT '',
    warc_date           TEXT    NOT NULL DEFAULT '',
    warc_payload_digest TEXT    NOT NULL DEFAULT ''
);

-- status, error_class and error_text describe the last fetch. body is that of the last answer, if any.
CREATE TABLE robots (
    origin                 TEXT    PRIMARY KEY,
    saved_at               INTEGER NOT NULL,
    status                 INTEGER NOT NULL,
    error_class            TEXT    NOT NULL,
    error_text             TEXT    NOT NULL DEFAULT '',
    unreachable_since      INTEGER NOT NULL DEFAULT 0,
    has_body               BOOLEAN NOT NULL DEFAULT FALSE,
    body_status            INTEGER NOT NULL DEFAULT 0,
    body                   BLOB    NOT NULL DEFAULT x'',
    earlier_record_id      TEXT    NOT NULL DEFAULT '',
    earlier_url            TEXT    NOT NULL DEFAULT '',
    earlier_date           TEXT    NOT NULL DEFAULT '',
    earlier_payload_digest TEXT    NOT NULL DEFAULT ''
);
-- A worker that runs asks every ten seconds which files to fetch again.
CREATE INDEX robots_refresh ON robots (origin) WHERE saved_at = 0;

-- A worker updates its row while it runs, and deletes it when it stops.
CREATE TABLE workers (
    name       TEXT    PRIMARY KEY,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    process    TEXT    NOT NULL DEFAULT '' -- which process it is on which machine, or empty if it does not know
);

-- How many URLs of a host differ in numbers only. A worker adds to a row each time that it has fetched 100 of them.
CREATE TABLE patterns (
    host    TEXT    NOT NULL,
    pattern TEXT    NOT NULL, -- up to 255 bytes, with # for each number
    urls    INTEGER NOT NULL,
    PRIMARY KEY (host, pattern)
);

-- Hosts that share a domain or an address share a delay and a number of open fetches.
CREATE TABLE host_groups (
    name          TEXT    PRIMARY KEY,
    next_at       INTEGER NOT NULL DEFAULT 0, -- closed until
    promised_at   INTEGER NOT NULL DEFAULT 0, -- the last turn that a host waits for
    fetch_ms      INTEGER NOT NULL DEFAULT 0, -- an average of the time that a turn takes
    delay_ms      INTEGER,
    max_in_flight INTEGER NOT NULL DEFAULT 1
);

-- A turn belongs to a claim, or to a reservation, which has no URL.
CREATE TABLE turns (
    url_id     INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    group_name TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    ends_at    INTEGER NOT NULL, -- at the latest
    PRIMARY KEY (url_id, token)
);
CREATE INDEX turns_group ON turns (group_name);
