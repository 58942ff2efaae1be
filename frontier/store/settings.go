package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"fetchd/frontier/store/database"
)

// Setting implements [Store].
func (c *core) Setting(ctx context.Context, name string) (string, error) {
	value, err := database.Scalar[string](ctx, c.db, "read setting "+name, `SELECT value FROM settings WHERE name = ?`, callerSetting+name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

// SetSetting implements [Store].
func (c *core) SetSetting(ctx context.Context, name, value string) error {
	_, err := c.db.Update(ctx, "store setting "+name, `INSERT INTO settings (name, value) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, callerSetting+name, value)
	return err
}

// AddToSetting implements [Store].
func (c *core) AddToSetting(ctx context.Context, name string, n int64) error {
	_, err := c.db.Update(ctx, "add to setting "+name, `INSERT INTO settings (name, value) VALUES (?, ?)
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
func (c *core) HostUse(ctx context.Context, host string) (Use, error) {
	return c.use(ctx, `SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), CAST(COALESCE(SUM(duration_ms), 0) AS BIGINT) FROM hosts WHERE host = ?`, host)
}

// TotalUse implements [Store].
func (c *core) TotalUse(ctx context.Context) (Use, error) {
	return c.use(ctx, `SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), CAST(COALESCE(SUM(duration_ms), 0) AS BIGINT) FROM hosts`)
}

func (c *core) use(ctx context.Context, query string, args ...any) (Use, error) {
	var u Use
	var ms int64
	if err := c.db.QueryRow(ctx, query, args...).Scan(&u.Bytes, &ms); err != nil {
		return Use{}, fmt.Errorf("read what hosts have used: %w", err)
	}
	u.Duration = time.Duration(ms) * time.Millisecond
	return u, nil
}
