-- urls_host finds out whether a host has URLs.
-- +goose Up
CREATE INDEX urls_host ON urls (host_id);
