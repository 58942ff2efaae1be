-- An unreachable robots.txt defers the URLs of its origin, and no others of the host.
-- +goose Up

-- URLs of http://HOST and https://HOST are not claimed before. They are times, or 0.
ALTER TABLE hosts ADD COLUMN http_deferred_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN https_deferred_until INTEGER NOT NULL DEFAULT 0;

-- For hosts with one origin that is deferred. Claims of other hosts use urls_waiting.
CREATE INDEX urls_origin ON urls (host_id, substr(url, 5, 1), priority DESC, ready_at, id) WHERE status IN ('pending', 'failed');

-- What fetchd said about the last fetch, if it failed.
ALTER TABLE robots ADD COLUMN error_text TEXT NOT NULL DEFAULT '';
