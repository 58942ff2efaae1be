-- SQLite needs no functions for operations that change many rows.
-- +goose Up

-- SQLite would give the id of the last row again once that row is deleted. See nextID.
-- +goose StatementBegin
CREATE TRIGGER urls_last_id AFTER DELETE ON urls WHEN NOT EXISTS (SELECT 1 FROM urls WHERE id > old.id) BEGIN
    INSERT INTO settings (name, value) VALUES ('last_urls_id', old.id) ON CONFLICT (name) DO UPDATE SET value = max(CAST(value AS INTEGER), old.id);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER fetches_last_id AFTER DELETE ON fetches WHEN NOT EXISTS (SELECT 1 FROM fetches WHERE id > old.id) BEGIN
    INSERT INTO settings (name, value) VALUES ('last_fetches_id', old.id) ON CONFLICT (name) DO UPDATE SET value = max(CAST(value AS INTEGER), old.id);
END;
-- +goose StatementEnd
