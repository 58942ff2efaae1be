-- What a worker needs to follow redirects itself.
-- +goose Up

-- next_at as a reservation set it, until it is settled.
ALTER TABLE hosts ADD COLUMN reserved_until INTEGER NOT NULL DEFAULT 0;
