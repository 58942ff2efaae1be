package store

import (
	"context"
	"time"
)

// Postpone implements [Store]. A worker may claim a URL between the two steps; then it keeps it.
func (p *postgresDB) Postpone(ctx context.Context, leases []Lease, d time.Duration) error {
	held, err := p.Release(ctx, leases)
	if err != nil {
		return err
	}
	return p.postpone(ctx, held, d)
}

// Postpone implements [Store].
func (s *sqliteDB) Postpone(ctx context.Context, leases []Lease, d time.Duration) error {
	held, err := s.Release(ctx, leases)
	if err != nil {
		return err
	}
	return s.postpone(ctx, held, d)
}

// postpone leaves due_at, which may be early.
func (c *core) postpone(ctx context.Context, released []Lease, d time.Duration) error {
	for _, l := range released {
		_, err := c.update(ctx, "postpone a URL", `UPDATE urls SET ready_at = {now} + ? WHERE id = ? AND token = ? AND status IN ('pending', 'failed')`,
			millis(d), l.ID, l.Token)
		if err != nil {
			return err
		}
	}
	return nil
}
