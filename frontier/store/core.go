package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"sync"
	"time"

	"fetchd/frontier/store/database"
)

// core has the methods that are the same for both databases.
type core struct {
	db      *database.DB
	delayMS int64
	own     changes

	requisites sync.Mutex // held by PutRequisites
}

// base returns what a Store of one database has in common with that of the other.
func (s *core) base() *core { return s }

// changes are the steps of long operations, which each database does in its own statements. Each changes rows in one
// transaction. ids has at most chunkSize ids. Rows that are no longer selected do not change.
type changes interface {
	Put(ctx context.Context, entries []Entry, limits Limits) (PutResult, error)
	again(ctx context.Context, ids []int64, a again) (int64, error)
	abort(ctx context.Context, ids []int64, class, text string) (int64, error)
	prune(ctx context.Context, ids []int64, p pruning) (int64, error)
	pruneHosts(ctx context.Context, ids []int64) (int64, error)
}

// again selects the URLs that RetryFailed or Refetch makes pending.
type again struct {
	fetched bool   // instead of those that failed
	class   string // empty for any
	host    string // likewise
	until   int64  // fetched by then
}

// pruning selects the URLs that Prune deletes.
type pruning struct {
	statuses []Status
	until    int64 // fetched by then; zero for any
}

// recrawlChunk is how many URLs one transaction of Recrawl makes pending.
const recrawlChunk = 1000

// collect reads all rows of a query that returned rows and err, and closes rows. columns returns where the
// columns of a row go.
func collect[T any](rows *sql.Rows, err error, columns func(*T) []any) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err returns the error
	var all []T
	for rows.Next() {
		var row T
		if err := rows.Scan(columns(&row)...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// millis converts d to milliseconds, rounded up so that no wait is too short.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// instant reads a stored time, and span a number of milliseconds.
type (
	instant struct{ *time.Time }
	span    struct{ *time.Duration }
)

// Scan implements sql.Scanner.
func (t instant) Scan(value any) error {
	var ms sql.NullInt64
	err := ms.Scan(value)
	*t.Time = clock(ms.Int64)
	return err
}

// Scan implements sql.Scanner.
func (d span) Scan(value any) error {
	var ms sql.NullInt64
	err := ms.Scan(value)
	*d.Duration = time.Duration(ms.Int64) * time.Millisecond
	return err
}

// clock converts a stored time. Zero means never, and less is the order of a URL that is needed.
func clock(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func toJSON(list any) (string, error) {
	b, err := json.Marshal(list)
	return string(b), err
}
