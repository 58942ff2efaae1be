package store

import (
	"context"
	"fmt"
	"time"

	"fetchd/frontier/store/database"
)

// sqliteDB is a Store in a SQLite file. It has the same calls as postgresDB, in statements that SQLite
// knows. Each is one transaction.
type sqliteDB struct {
	*core
	lite *database.SQLite
}

// sqliteWords are the same placeholders as postgresWords.
var sqliteWords = []string{"{unused}", fmt.Sprintf(`h.in_flight = 0 AND NOT h.paused AND h.delay_ms IS NULL AND h.max_in_flight = 1
		AND max(h.next_at, h.blocked_until) <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - CASE WHEN h.crawl_delay_ms > 0 THEN %[1]d + 86400000 ELSE %[1]d END
		AND NOT EXISTS (SELECT 1 FROM urls u WHERE u.host_id = h.id)`, millis(unusedFor)),
	"{vacant}", `NOT EXISTS (SELECT 1 FROM hosts h JOIN urls u ON u.host_id = h.id
		WHERE h.host = replace(replace(robots.origin, 'https://', ''), 'http://', ''))`}

func openSQLite(ctx context.Context, path string, config database.Config, delayMS int64) (engine, error) {
	config.Words = sqliteWords
	lite, err := database.OpenSQLite(ctx, path, config)
	if err != nil {
		return nil, err
	}
	s := &sqliteDB{&core{db: lite.DB, delayMS: delayMS}, lite}
	s.own = s
	return s, nil
}

// Close implements [Store].
func (s *sqliteDB) Close() error { return s.lite.Close() }

// tx is a transaction that changes the frontier.
type tx struct {
	database.Tx
	delayMS int64
}

// do runs f in a transaction. doing is the start of the error text.
func (s *sqliteDB) do(ctx context.Context, doing string, f func(tx) error) error {
	return s.lite.Do(ctx, doing, func(t database.Tx) error { return f(tx{t, s.delayMS}) })
}

// Extend implements [Store].
func (s *sqliteDB) Extend(ctx context.Context, leases []Lease, d time.Duration) ([]Lease, error) {
	return s.each(ctx, "extend leases", leases, func(t tx, l Lease) (bool, error) {
		n, err := t.Exec(`UPDATE urls SET lease_until = max(lease_until, {now} + ?) WHERE id = ? AND token = ? AND status = 'fetching'`,
			millis(d), l.ID, l.Token)
		return n == 1, err
	})
}

// released makes a URL pending again.
const released = `status = 'pending', lease_until = 0, worker = '' WHERE id = ? AND token = ? AND status = 'fetching'`

// Release implements [Store].
func (s *sqliteDB) Release(ctx context.Context, leases []Lease) ([]Lease, error) {
	return s.each(ctx, "release leases", leases, func(t tx, l Lease) (bool, error) {
		return t.end(tx.free, released, l.ID, l.Token)
	})
}

// backAfterCrash makes a URL pending again and counts a crash.
const backAfterCrash = `status = 'pending', lease_until = 0, worker = '', crash_count = crash_count + 1 `

// Abandon implements [Store].
func (s *sqliteDB) Abandon(ctx context.Context, leases []Lease) ([]Lease, error) {
	return s.each(ctx, "abandon leases", leases, func(t tx, l Lease) (bool, error) {
		return t.end(tx.delayHost, backAfterCrash+`WHERE id = ? AND token = ? AND status = 'fetching'`, l.ID, l.Token)
	})
}

// LeaveHosts implements [Store].
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

// afterDelay follows the time at which a fetch ends, and makes it the time when its host opens. ?3 is the
// default delay.
const afterDelay = `+ 1 + max(COALESCE(delay_ms, ?3), crawl_delay_ms)`

// free ends a fetch of a host to which it has sent nothing, or which it has left before.
func (t tx) free(host, holds int64) error {
	_, err := t.Exec(`UPDATE hosts SET in_flight = in_flight - ?, due_at = max(next_at, blocked_until) WHERE id = ?`, holds, host)
	return err
}

// delayHost ends a fetch of a host, whose delay starts now.
func (t tx) delayHost(host, holds int64) error {
	_, err := t.Exec(`UPDATE hosts SET in_flight = in_flight - ?1, next_at = max(next_at, {now} `+afterDelay+`),
			due_at = max(next_at, blocked_until, {now} `+afterDelay+`) WHERE id = ?2`, holds, host, t.delayMS)
	return err
}

// Reap implements [Store].
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

// Left implements [Store]. It names the indexes, so a query that could not use them fails.
func (s *sqliteDB) Left(ctx context.Context) (bool, error) {
	return s.db.Bool(ctx, "look for URLs that are left", `SELECT
		EXISTS (SELECT 1 FROM urls INDEXED BY urls_waiting WHERE status IN ('pending', 'failed'))
		OR EXISTS (SELECT 1 FROM urls INDEXED BY urls_leased WHERE status = 'fetching')`)
}

// sleeps selects hosts that a claim would look at too late if a URL became ready now. A host that is paused or
// has no capacity becomes due when that ends.
const sleeps = `NOT paused AND in_flight < max_in_flight AND (due_at IS NULL OR due_at > max(next_at, blocked_until))`

// Recrawl implements [Store].
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

// again implements changes.
func (s *sqliteDB) again(ctx context.Context, ids []int64, a again) (int64, error) {
	which, args := `status IN ('failed', 'dead') AND ?2 IN ('', error_class)`, []any{a.class}
	if a.fetched {
		which, args = `status = 'fetched' AND fetched_at <= ?2`, []any{a.until}
	}
	return s.chunk(ctx, ids, args,
		`UPDATE hosts SET due_at = max(next_at, blocked_until)
			WHERE id IN (SELECT host_id FROM urls WHERE `+amongIDs+which+`) AND COALESCE(due_at > max(next_at, blocked_until), TRUE)`,
		`UPDATE urls SET status = 'pending', failure_count = 0, crash_count = 0, ready_at = 0 WHERE `+amongIDs+which)
}

// abort implements changes.
func (s *sqliteDB) abort(ctx context.Context, ids []int64, class, text string) (int64, error) {
	return s.chunk(ctx, ids, []any{class, text},
		`UPDATE urls SET status = 'dead', error_class = ?2, last_error = ?3 WHERE `+amongIDs+`status IN ('pending', 'failed')`)
}

// prune implements changes.
func (s *sqliteDB) prune(ctx context.Context, ids []int64, p pruning) (int64, error) {
	statuses, err := toJSON(p.statuses)
	if err != nil {
		return 0, err
	}
	const which = amongIDs + `status IN (SELECT value FROM json_each(?2)) AND (?3 = 0 OR fetched_at BETWEEN 1 AND ?3)`
	return s.chunk(ctx, ids, []any{statuses, p.until},
		`UPDATE hosts SET url_count = NULL WHERE url_count IS NOT NULL AND id IN (SELECT host_id FROM urls WHERE `+which+`)`,
		`DELETE FROM settings WHERE name = 'url_count' AND EXISTS (SELECT 1 FROM urls WHERE `+which+`)`,
		`DELETE FROM urls WHERE `+which)
}

// pruneHosts implements changes.
func (s *sqliteDB) pruneHosts(ctx context.Context, ids []int64) (int64, error) {
	return s.chunk(ctx, ids, nil, `DELETE FROM hosts AS h WHERE `+amongIDs+`{unused}`)
}

// amongIDs selects the ids of a chunk.
const amongIDs = `id IN (SELECT value FROM json_each(?1)) AND `

// chunk runs statements in one transaction, and returns the number of rows that the last one changed.
// The first argument of each is the list of ids.
func (s *sqliteDB) chunk(ctx context.Context, ids []int64, args []any, statements ...string) (changed int64, err error) {
	list, err := toJSON(ids)
	if err != nil {
		return 0, err
	}
	var started time.Time
	err = s.lite.Transact(ctx, func(t database.Tx) error {
		started = time.Now() // the lock is ours now
		for _, query := range statements {
			if changed, err = t.Exec(query, append([]any{list}, args...)...); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = s.yield(ctx, time.Since(started))
	}
	return changed, err
}

// busyPoll is a little more than the longest time after which a process that waits for SQLite's lock
// asks for it again.
const busyPoll = 110 * time.Millisecond

// yield waits for longer than a transaction took, if there are workers. SQLite's lock has no queue,
// so each of them must be able to ask for it.
func (s *sqliteDB) yield(ctx context.Context, took time.Duration) error {
	busy, err := s.db.Bool(ctx, "look for workers", `SELECT EXISTS (SELECT 1 FROM urls INDEXED BY urls_leased WHERE status = 'fetching')`)
	if err != nil || !busy {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(took + busyPoll):
	}
	return nil
}
