package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
)

// Setting implements [Store].
func (s *core) Setting(ctx context.Context, name string) (value string, err error) {
	err = s.db.QueryRow(ctx, `SELECT value FROM settings WHERE name = ?`, callerSetting+name).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read setting %s: %w", name, err)
	}
	return value, nil
}

// SetSetting implements [Store].
func (s *core) SetSetting(ctx context.Context, name, value string) error {
	_, err := s.db.Update(ctx, "store setting "+name, `INSERT INTO settings (name, value) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, callerSetting+name, value)
	return err
}

// AddToSetting implements [Store].
func (s *core) AddToSetting(ctx context.Context, name string, n int64) error {
	_, err := s.db.Update(ctx, "add to setting "+name, `INSERT INTO settings (name, value) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(settings.value AS BIGINT) + CAST(excluded.value AS BIGINT) AS TEXT)`, callerSetting+name, strconv.FormatInt(n, 10))
	return err
}

// DelaySetting is the setting with the delay in milliseconds that the crawl has now. Why reports it, and needs no
// Config.Delay. It decides nothing.
const DelaySetting = "delay_ms"

// callerSetting starts the names of callers' settings, which differ from those of the store.
const callerSetting = "caller_"

// HostBytes implements [Store].
func (s *core) HostBytes(ctx context.Context, host string) (int64, error) {
	return s.bytes(ctx, ` WHERE host = ?`, host)
}

// TotalBytes implements [Store].
func (s *core) TotalBytes(ctx context.Context) (int64, error) { return s.bytes(ctx, "") }

func (s *core) bytes(ctx context.Context, where string, args ...any) (n int64, err error) {
	if err := s.db.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM hosts`+where, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("read what hosts have used: %w", err)
	}
	return n, nil
}
