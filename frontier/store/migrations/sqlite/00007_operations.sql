-- SQLite needs no functions for operations that change many rows.
-- +goose Up

-- SQLite would give the id of the last URL to another one after that is deleted, and the outcomes of the first with it.
-- +goose StatementBegin
CREATE TRIGGER urls_last AFTER DELETE ON urls WHEN NOT EXISTS (SELECT 1 FROM urls WHERE id > old.id) BEGIN
    INSERT INTO settings (name, value) VALUES ('last_url_id', old.id) ON CONFLICT (name) DO UPDATE SET value = max(CAST(value AS INTEGER), old.id);
END;
-- +goose StatementEnd
