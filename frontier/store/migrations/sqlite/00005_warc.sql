-- Where responses are in WARC files, and the earlier record that the next one of a URL or of a robots.txt may
-- refer to. Dates are those of the records, as text, so that they are equal to the last digit.
-- +goose Up
ALTER TABLE fetches ADD COLUMN warc_file TEXT NOT NULL DEFAULT '';
ALTER TABLE fetches ADD COLUMN warc_offset INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fetches ADD COLUMN warc_length INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fetches ADD COLUMN warc_record_id TEXT NOT NULL DEFAULT '';
ALTER TABLE fetches ADD COLUMN warc_date TEXT NOT NULL DEFAULT '';
ALTER TABLE fetches ADD COLUMN warc_payload_digest TEXT NOT NULL DEFAULT '';
ALTER TABLE urls ADD COLUMN earlier_record_id TEXT NOT NULL DEFAULT '';
ALTER TABLE urls ADD COLUMN earlier_url TEXT NOT NULL DEFAULT '';
ALTER TABLE urls ADD COLUMN earlier_date TEXT NOT NULL DEFAULT '';
ALTER TABLE urls ADD COLUMN earlier_payload_digest TEXT NOT NULL DEFAULT '';
ALTER TABLE robots ADD COLUMN earlier_record_id TEXT NOT NULL DEFAULT '';
ALTER TABLE robots ADD COLUMN earlier_url TEXT NOT NULL DEFAULT '';
ALTER TABLE robots ADD COLUMN earlier_date TEXT NOT NULL DEFAULT '';
ALTER TABLE robots ADD COLUMN earlier_payload_digest TEXT NOT NULL DEFAULT '';
