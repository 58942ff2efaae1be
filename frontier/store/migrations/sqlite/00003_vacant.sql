-- urls_host is the index for whether a host has URLs.
-- +goose Up
CREATE INDEX urls_host ON urls (host_id);
