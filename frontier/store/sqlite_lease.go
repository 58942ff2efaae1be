package store

import (
	"context"
	"time"

	"fetchd/frontier/store/database"
)

// Extend implements queue.
func (s *sqliteDB) Extend(ctx context.Context, leases []Lease, d time.Duration) ([]Lease, error) {
	return s.each(ctx, "extend leases", leases, func(t tx, l Lease) (bool, error) {
		n, err := t.Exec(`UPDATE urls SET lease_until = max(lease_until, {now} + ?) WHERE id = ? AND token = ? AND status = 'fetching'`,
			millis(d), l.ID, l.Token)
		return n == 1, err
	})
}

// Release implements queue.
func (s *sqliteDB) Release(ctx context.Context, leases []Lease) ([]Lease, error) {
	return s.each(ctx, "release leases", leases, func(t tx, l Lease) (bool, error) {
		return t.end(tx.free, `status = 'pending', lease_until = 0, worker = '' WHERE id = ? AND token = ? AND status = 'fetching'`, l.ID, l.Token)
	})
}

// backAfterCrash makes a URL pending again and counts a crash.
const backAfterCrash = `status = 'pending', lease_until = 0, worker = '', crash_count = crash_count + 1 `

// Abandon implements queue.
func (s *sqliteDB) Abandon(ctx context.Context, leases []Lease) ([]Lease, error) {
	return s.each(ctx, "abandon leases", leases, func(t tx, l Lease) (bool, error) {
		return t.end(tx.delayHost, backAfterCrash+`WHERE id = ? AND token = ? AND status = 'fetching'`, l.ID, l.Token)
	})
}

// LeaveHosts implements queue.
func (s *sqliteDB) LeaveHosts(ctx context.Context, leases []Lease) ([]Lease, error) {
	return s.each(ctx, "leave hosts", leases, func(t tx, l Lease) (bool, error) {
		var host int64
		held, err := t.One(`UPDATE urls SET holds = 0 WHERE id = ? AND token = ? AND status = 'fetching' AND holds = 1 RETURNING host_id`,
			[]any{l.ID, l.Token}, &host)
		if err != nil || !held {
			return false, err
		}
		return true, t.delayHost(host, 1)
	})
}

// each calls f for every lease, and returns those for which f returned true.
func (s *sqliteDB) each(ctx context.Context, doing string, leases []Lease, f func(tx, Lease) (bool, error)) (held []Lease, err error) {
	err = s.do(ctx, doing, func(t tx) error {
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
		return nil, err
	}
	return held, nil
}

// end sets columns of at most one URL that is being fetched, and calls host for the host that it
// holds. It reports whether there was such a URL.
func (t tx) end(host func(t tx, id, holds int64) error, set string, args ...any) (bool, error) {
	var id, holds int64
	held, err := t.One(`UPDATE urls SET `+set+` RETURNING host_id, holds`, args, &id, &holds)
	if err != nil || !held {
		return false, err
	}
	return true, host(t, id, holds)
}

// Reap implements queue.
func (s *sqliteDB) Reap(ctx context.Context) (reaped int64, err error) {
	err = s.do(ctx, "reap", func(t tx) error {
		for reaped = 0; ; reaped++ {
			more, err := t.end(tx.delayHost, backAfterCrash+`WHERE id = (SELECT id FROM urls WHERE status = 'fetching' AND lease_until <= {now} LIMIT 1)`)
			if err != nil || !more {
				return err
			}
		}
	})
	if err != nil {
		return 0, err
	}
	return reaped, nil
}

// Left implements queue. It names the indexes, so a query that could not use them fails.
func (s *sqliteDB) Left(ctx context.Context) (bool, error) {
	return database.Scalar[bool](ctx, s.db, "look for URLs that are left", `SELECT
		EXISTS (SELECT 1 FROM urls INDEXED BY urls_waiting WHERE status IN ('pending', 'failed'))
		OR EXISTS (SELECT 1 FROM urls INDEXED BY urls_leased WHERE status = 'fetching')`)
}

// Recrawl implements queue.
func (s *sqliteDB) Recrawl(ctx context.Context) (again int64, err error) {
	err = s.do(ctx, "look for URLs to fetch again", func(t tx) error {
		var now int64
		if _, err := t.One(`SELECT {now}`, nil, &now); err != nil {
			return err
		}
		const due = `FROM urls WHERE status = 'fetched' AND recrawl_at > 0 AND recrawl_at <= ?1 ORDER BY recrawl_at, id LIMIT ?2)`
		_, err := t.Exec(`UPDATE hosts SET due_at = max(next_at, blocked_until) WHERE `+sleeps+` AND id IN (SELECT host_id `+due, now, recrawlChunk)
		if err != nil {
			return err
		}
		again, err = t.Exec(`UPDATE urls SET status = 'pending', crash_count = 0, ready_at = recrawl_at WHERE id IN (SELECT id `+due, now, recrawlChunk)
		return err
	})
	if err != nil {
		return 0, err
	}
	return again, nil
}
