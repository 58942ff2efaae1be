package store

import (
	"context"
	"time"

	"fetchd/frontier/store/database"
)

// again implements queue.
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

// abort implements queue.
func (s *sqliteDB) abort(ctx context.Context, ids []int64, class, text string) (int64, error) {
	return s.chunk(ctx, ids, []any{class, text},
		`UPDATE urls SET status = 'dead', error_class = ?2, last_error = ?3 WHERE `+amongIDs+`status IN ('pending', 'failed')`)
}

// prune implements queue.
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

// pruneHosts implements queue.
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
	busy, err := database.Scalar[bool](ctx, s.db, "look for workers", `SELECT EXISTS (SELECT 1 FROM urls INDEXED BY urls_leased WHERE status = 'fetching')`)
	if err != nil || !busy {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(took + busyPoll):
	}
	return nil
}
