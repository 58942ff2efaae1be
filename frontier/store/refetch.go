package store

import (
	"context"
	"fmt"
	"time"
)

// Refetch implements [Store].
func (s *sqliteDB) Refetch(ctx context.Context, age time.Duration) (again int64, err error) {
	const which = `status = 'fetched' AND fetched_at <= {now} - ?`
	err = s.within(ctx, func(t tx) error {
		_, err := t.exec(`UPDATE hosts SET due_at = max(next_at, blocked_until)
			WHERE id IN (SELECT host_id FROM urls WHERE `+which+`)`, millis(age))
		if err != nil {
			return err
		}
		again, err = t.exec(`UPDATE urls SET status = 'pending', crash_count = 0, ready_at = 0 WHERE `+which, millis(age))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("fetch URLs again: %w", err)
	}
	return again, nil
}

// Refetch implements [Store].
func (p *postgresDB) Refetch(ctx context.Context, age time.Duration) (again int64, err error) {
	if err := p.db.QueryRowContext(ctx, `SELECT frontier_refetch($1)`, millis(age)).Scan(&again); err != nil {
		return 0, fmt.Errorf("fetch URLs again: %w", err)
	}
	return again, nil
}
