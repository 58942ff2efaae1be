package store

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/store/database"
)

// Config configures a frontier. The zero value is usable.
type Config struct {
	// Delay is the time between the end of one fetch of a host and the start of the next, for
	// hosts without a delay of their own. Zero means one second.
	Delay time.Duration
	// Groups makes hosts share that delay and a number of open fetches. All users of a frontier should have the same.
	Groups Grouping
	// Connections is the maximum number of connections to PostgreSQL. Zero means 8. A migration uses
	// two.
	Connections int
	// ReadOnly opens a frontier that exists, and never writes to it. Only methods that read work. The
	// database may be a standby, the role may have only SELECT, and a SQLite file may be one that this
	// user cannot write.
	ReadOnly bool
}

// Open opens the frontier at dsn, creates it if necessary, and migrates its schema. A dsn that
// starts with postgres:// or postgresql:// is a PostgreSQL database. Any other is the path of a
// SQLite file.
//
// Open returns [ErrNewerSchema] for a database of a newer version, and [ErrNormalForm] if its
// URLs were normalised by other rules. With ReadOnly it returns [ErrOlderSchema] for a database that
// must be migrated, and without it [ErrReadOnly] for a PostgreSQL database that it cannot write. The caller
// closes the store.
func Open(ctx context.Context, dsn string, config Config) (*Store, error) {
	if config.Delay < 0 {
		return nil, fmt.Errorf("a delay of %v is negative", config.Delay)
	}
	config.Delay = cmp.Or(config.Delay, time.Second)
	s, err := openDatabase(ctx, dsn, config, migrations)
	if err == nil && config.Groups.on() {
		s.groups = &groups{Queue: s.Queue, store: s, Grouping: config.Groups}
		s.Queue = s.groups
	}
	return s, err
}

// openDatabase opens a database with migrations/sqlite or migrations/postgres of a folder.
func openDatabase(ctx context.Context, dsn string, config Config, folder fs.FS) (*Store, error) {
	kind, open, words := "sqlite", openSQLite, sqliteWords
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		kind, open, words = "postgres", openPostgres, postgresWords
	}
	files, err := fs.Sub(folder, "migrations/"+kind)
	if err != nil {
		return nil, fmt.Errorf("find the migrations: %w", err)
	}
	return open(ctx, dsn, database.Config{Connections: config.Connections, ReadOnly: config.ReadOnly, Migrations: files, NormalForm: normal.Version, Words: words}, millis(config.Delay))
}

//go:embed migrations
var migrations embed.FS

// Store is one frontier. It is safe for concurrent use, also by several stores in
// several processes. Its users declare which of its methods they need.
type Store struct {
	*core // without a database if there are many
	Queue
	kind   kind
	groups *groups // nil if each host is alone
}

// core is what the two databases have in common.
type core struct {
	db      *database.DB
	delayMS int64
}

// Queue has the URLs, from Put and Claim to the outcome. Each database does this in its own statements.
type Queue interface {
	// Put adds URLs in their normal form, in this order, as far as limits allow. Of a URL that exists
	// already, only these change: Depth becomes the smaller one, and a page that was fetched before
	// Changed, and is due to be fetched again at some time, is due now.
	Put(ctx context.Context, entries []Entry, limits Limits) (PutResult, error)
	// Claim leases ready URLs: at most one of a host, unless SetHost allowed more. Of a host it takes
	// those of the highest priority first, and of these the one that has waited longest. It never
	// waits. If nothing is due, or the crawl is paused, it returns none.
	Claim(ctx context.Context, params ClaimParams) ([]Claim, error)
	// RecordFetch records fetches in one transaction and opens their hosts, each after its delay
	// if it received a request. The first result has one entry for each fetch: nil if it was
	// recorded, an error that matches [ErrStale] if the lease was lost, or another error if the
	// fetch is not valid.
	//
	// The row of a Fetched URL gets FinalURL in its normal form, unless another row has that URL.
	RecordFetch(ctx context.Context, fetches []Fetch) ([]error, error)
	// Extend makes leases last at least d from now, and returns those that were still held.
	Extend(ctx context.Context, leases []Lease, d time.Duration) ([]Lease, error)
	// Release returns URLs that were claimed but not requested. Their hosts open at once, and
	// nothing is counted. It returns the leases that were still held.
	Release(ctx context.Context, leases []Lease) ([]Lease, error)
	// Abandon returns URLs whose fetches were lost. It counts a crash for each, and its host opens
	// after its delay. It returns the leases that were still held.
	Abandon(ctx context.Context, leases []Lease) ([]Lease, error)
	// LeaveHosts reports that the last request to the hosts of these claims has ended, although their
	// fetches continue at other hosts. The hosts open after their delay, and the leases stay. It
	// returns the leases that were held and had not departed before.
	LeaveHosts(ctx context.Context, leases []Lease) ([]Lease, error)
	// Reap makes the URLs of expired leases pending again and counts a crash for each. It returns
	// their number.
	Reap(ctx context.Context) (int64, error)
	// Recrawl makes some URLs pending that are due to be fetched again, and returns their number, which
	// is zero if none is due. It keeps their validators.
	Recrawl(ctx context.Context) (int64, error)
	// Left reports whether any URL is pending, failed or being fetched, so that there is more to
	// do, now or later. It is cheap, however many URLs there are.
	Left(ctx context.Context) (bool, error)
}

// kind is a kind of database.
type kind interface {
	Close() error

	// The methods below change rows in one transaction. ids has at most chunkSize ids. Rows that are no longer
	// selected do not change.

	again(ctx context.Context, ids []int64, a again) (int64, error)
	abort(ctx context.Context, ids []int64, class, text string) (int64, error)
	prune(ctx context.Context, ids []int64, p pruning) (int64, error)
	pruneHosts(ctx context.Context, ids []int64) (int64, error)

	takeTurns(ctx context.Context, asks []turnAsk) ([]turnWait, error)
	endTurns(ctx context.Context, ends []turnEnd) error
	extendTurns(ctx context.Context, leases []Lease, d time.Duration) error
	// lineUp closes the hosts of claims that have to wait, and releases these.
	lineUp(ctx context.Context, waits []turnWait) error
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

// Close closes the database. No other call may be in flight.
func (s *Store) Close() error { return s.kind.Close() }

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

// clock converts a stored time. Zero means never.
func clock(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func toJSON(list any) (string, error) {
	b, err := json.Marshal(list)
	return string(b), err
}
