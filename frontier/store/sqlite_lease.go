package store

import (
	"context"
	"fmt"
	"time"
)

// Extend implements [Store].
func (s *sqliteDB) Extend(ctx context.Context, leases []Lease, d time.Duration) ([]Lease, error) {
	return s.each(ctx, "extend leases", leases, func(t tx, l Lease) (bool, error) {
		n, err := t.exec(`UPDATE urls SET lease_until = max(lease_until, {now} + ?) WHERE id = ? AND token = ? AND status = 'fetching'`,
			millis(d), l.ID, l.Token)
		return n == 1, err
	})
}

// Release implements [Store].
func (s *sqliteDB) Release(ctx context.Context, leases []Lease) ([]Lease, error) {
	return s.each(ctx, "release leases", leases, func(t tx, l Lease) (bool, error) {
		var host, holds int64
		held, err := t.one(`UPDATE urls SET status = 'pending', lease_until = 0, worker = ''
			WHERE id = ? AND token = ? AND status = 'fetching' RETURNING host_id, holds`, []any{l.ID, l.Token}, &host, &holds)
		if err != nil || !held {
			return false, err
		}
		return true, t.free(host, holds)
	})
}

// Abandon implements [Store].
func (s *sqliteDB) Abandon(ctx context.Context, leases []Lease) ([]Lease, error) {
	return s.each(ctx, "abandon leases", leases, func(t tx, l Lease) (bool, error) {
		var host, holds int64
		held, err := t.one(`UPDATE urls SET status = 'pending', lease_until = 0, worker = '', crash_count = crash_count + 1
			WHERE id = ? AND token = ? AND status = 'fetching' RETURNING host_id, holds`, []any{l.ID, l.Token}, &host, &holds)
		if err != nil || !held {
			return false, err
		}
		return true, t.open(host, holds, s.delayMS)
	})
}

// Depart implements [Store].
func (s *sqliteDB) Depart(ctx context.Context, leases []Lease) ([]Lease, error) {
	return s.each(ctx, "leave hosts", leases, func(t tx, l Lease) (bool, error) {
		var host int64
		held, err := t.one(`UPDATE urls SET holds = 0 WHERE id = ? AND token = ? AND status = 'fetching' AND holds = 1 RETURNING host_id`,
			[]any{l.ID, l.Token}, &host)
		if err != nil || !held {
			return false, err
		}
		return true, t.open(host, 1, s.delayMS)
	})
}

// each returns the leases for which f found that they were held.
func (s *sqliteDB) each(ctx context.Context, doing string, leases []Lease, f func(tx, Lease) (bool, error)) ([]Lease, error) {
	var held []Lease
	err := s.within(ctx, func(t tx) error {
		for _, l := range leases {
			ok, err := f(t, l)
			if err != nil {
				return err
			}
			if ok {
				held = append(held, l)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return held, nil
}

// Reap implements [Store].
func (s *sqliteDB) Reap(ctx context.Context) (reaped int64, err error) {
	err = s.within(ctx, func(t tx) error {
		for reaped = 0; ; reaped++ {
			var host, holds int64
			found, err := t.one(`UPDATE urls SET status = 'pending', lease_until = 0, worker = '', crash_count = crash_count + 1
				WHERE id = (SELECT id FROM urls WHERE status = 'fetching' AND lease_until <= {now} LIMIT 1)
				RETURNING host_id, holds`, nil, &host, &holds)
			if err != nil || !found {
				return err
			}
			if err := t.open(host, holds, s.delayMS); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return 0, fmt.Errorf("reap: %w", err)
	}
	return reaped, nil
}

// Left implements [Store]. An index that did not serve would be an error.
func (s *sqliteDB) Left(ctx context.Context) (left bool, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT
		EXISTS (SELECT 1 FROM urls INDEXED BY urls_waiting WHERE status IN ('pending', 'failed'))
		OR EXISTS (SELECT 1 FROM urls INDEXED BY urls_leased WHERE status = 'fetching')`).Scan(&left)
	if err != nil {
		return false, fmt.Errorf("look for URLs that are left: %w", err)
	}
	return left, nil
}

// RetryFailed implements [Store].
func (s *sqliteDB) RetryFailed(ctx context.Context, class string) (again int64, err error) {
	if err := s.forgetVerdicts(ctx, class); err != nil {
		return 0, fmt.Errorf("retry failed URLs: %w", err)
	}
	const which = `status IN ('failed', 'dead') AND (?1 = '' OR error_class = ?1)`
	err = s.within(ctx, func(t tx) error {
		_, err := t.exec(`UPDATE hosts SET due_at = max(next_at, blocked_until)
			WHERE id IN (SELECT host_id FROM urls WHERE `+which+`)`, class)
		if err != nil {
			return err
		}
		again, err = t.exec(`UPDATE urls SET status = 'pending', failure_count = 0, crash_count = 0, ready_at = 0 WHERE `+which, class)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("retry failed URLs: %w", err)
	}
	return again, nil
}
