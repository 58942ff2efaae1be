package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// Setting returns a setting that the caller has stored for all workers, or an empty string.
func (s *Store) Setting(ctx context.Context, name string) (value string, err error) {
	if s.many != nil { // set writes to the first one at last
		for _, p := range s.many.parts {
			if value, err = p.Setting(ctx, name); err == nil || !isUnreachable(err) {
				break
			}
		}
		return value, err
	}
	err = s.db.QueryRow(ctx, `SELECT value FROM settings WHERE name = ?`, callerSetting+name).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read setting %s: %w", name, err)
	}
	return value, nil
}

// set runs a statement about the whole frontier. It does nothing if one of many databases cannot be reached. If one fails
// nevertheless, the first one has not changed, which others read.
func (s *Store) set(ctx context.Context, doing, query string, args ...any) error {
	all := s.all()
	var err error
	if len(all) > 1 {
		err = s.everywhere(ctx, func(ctx context.Context, s *Store) error { return s.db.PingContext(ctx) })
	}
	for i := len(all) - 1; i >= 0 && err == nil; i-- {
		_, err = all[i].db.Update(ctx, doing, query, args...)
		err = s.nameDatabase(all[i], err)
	}
	return err
}

// SetSetting stores a setting.
func (s *Store) SetSetting(ctx context.Context, name, value string) error {
	return s.set(ctx, "store setting "+name, `INSERT INTO settings (name, value) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, callerSetting+name, value)
}

// AddToSetting adds n to a setting that is a number, and 0 at first.
func (s *Store) AddToSetting(ctx context.Context, name string, n int64) error {
	_, err := s.all()[0].db.Update(ctx, "add to setting "+name, `INSERT INTO settings (name, value) VALUES (?, ?)
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

// HostUse returns what the fetches of a host have used.
func (s *Store) HostUse(ctx context.Context, host string) (Use, error) {
	var u Use
	err := s.onHost(ctx, host, func(ctx context.Context, s *Store, name string) (bool, error) {
		var err error
		u, err = s.use(ctx, `SELECT bytes, duration_ms FROM hosts WHERE host = ?`, name)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		return true, err
	})
	return u, err
}

// TotalUse returns the sum over all hosts, whose rows it reads. Of many databases, one that does not answer counts with what
// it has returned last.
func (s *Store) TotalUse(ctx context.Context) (total Use, err error) {
	if s.many == nil {
		return s.use(ctx, `SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), CAST(COALESCE(SUM(duration_ms), 0) AS BIGINT) FROM {hosts} AS h`)
	}
	err = soon(ctx, s.many, func(p *part) *atomic.Bool { return &p.using }, func(ctx context.Context, p *part) (Use, error) {
		u, err := s.many.table.Load().reader(p).TotalUse(ctx)
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.use = u
		}
		return u, err
	}, func(*part, Use) {})
	for _, p := range s.many.parts {
		p.mu.Lock()
		total.Bytes, total.Duration = total.Bytes+p.use.Bytes, total.Duration+p.use.Duration
		p.mu.Unlock()
	}
	return total, s.partly(err)
}

func (s *Store) use(ctx context.Context, query string, args ...any) (Use, error) {
	var u Use
	if err := s.db.QueryRow(ctx, query, args...).Scan(&u.Bytes, span{&u.Duration}); err != nil {
		return Use{}, fmt.Errorf("read what hosts have used: %w", err)
	}
	return u, nil
}
