-- For workers that follow redirects themselves.
-- +goose Up

-- The next_at that a reservation has set, until it is settled.
ALTER TABLE hosts ADD COLUMN reserved_until INTEGER NOT NULL DEFAULT 0;

-- status and error_class describe the last fetch. body is that of the last answer, if any.
CREATE TABLE robots (
    origin            TEXT    PRIMARY KEY,
    saved_at          INTEGER NOT NULL,
    status            INTEGER NOT NULL,
    error_class       TEXT    NOT NULL,
    unreachable_since INTEGER NOT NULL DEFAULT 0,
    has_body          BOOLEAN NOT NULL DEFAULT FALSE,
    body_status       INTEGER NOT NULL DEFAULT 0,
    body              BLOB    NOT NULL DEFAULT x''
);
