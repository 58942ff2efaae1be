-- What responses say about their content. headers is a JSON object: names to lists of values.
-- +goose Up
ALTER TABLE fetches ADD COLUMN content_type TEXT NOT NULL DEFAULT '';
ALTER TABLE fetches ADD COLUMN charset TEXT NOT NULL DEFAULT '';
ALTER TABLE fetches ADD COLUMN headers TEXT NOT NULL DEFAULT '';
