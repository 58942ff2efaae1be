package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"
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

// callerSetting starts the names of callers' settings, which differ from those of the store.
const callerSetting = "caller_"

// Use is what the recorded fetches of a host, or of all, have used.
type Use struct {
	Bytes    int64         // of bodies
	Duration time.Duration // of the fetches
}

// HostUse implements [Store].
func (s *core) HostUse(ctx context.Context, host string) (Use, error) {
	u, err := s.use(ctx, `SELECT bytes, duration_ms FROM hosts WHERE host = ?`, host)
	if errors.Is(err, sql.ErrNoRows) {
		return Use{}, nil
	}
	return u, err
}

// TotalUse implements [Store].
func (s *core) TotalUse(ctx context.Context) (Use, error) {
	return s.use(ctx, `SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), CAST(COALESCE(SUM(duration_ms), 0) AS BIGINT) FROM hosts`)
}

func (s *core) use(ctx context.Context, query string, args ...any) (Use, error) {
	var u Use
	if err := s.db.QueryRow(ctx, query, args...).Scan(&u.Bytes, span{&u.Duration}); err != nil {
		return Use{}, fmt.Errorf("read what hosts have used: %w", err)
	}
	return u, nil
}
