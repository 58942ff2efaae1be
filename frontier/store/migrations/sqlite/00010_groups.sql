-- Politeness by group: hosts that share a domain or an address share a delay and a number of open fetches. Version 9 is
-- only for PostgreSQL.
-- +goose Up

-- The address that a host was last fetched from. If it waits for its group: when it has a turn, or below zero when it asks again.
ALTER TABLE hosts ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE hosts ADD COLUMN turn_at INTEGER NOT NULL DEFAULT 0;

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
