-- What a worker needs to follow redirects itself.
-- +goose Up

-- next_at as a reservation set it, until it is settled.
ALTER TABLE hosts ADD COLUMN reserved_until INTEGER NOT NULL DEFAULT 0;

-- status and error_class are those of the last try. body is of the last answer, if there was one.
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
