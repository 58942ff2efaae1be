package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"fetchd/frontier/normal"
)

// Config configures a frontier. The zero value is usable.
type Config struct {
	// Delay is the time between the end of one fetch of a host and the start of the next, for
	// hosts without a delay of their own. Zero means one second.
	Delay time.Duration
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
func Open(ctx context.Context, dsn string, config Config) (Store, error) {
	if config.Delay < 0 {
		return nil, fmt.Errorf("a delay of %v is negative", config.Delay)
	}
	config.Delay = cmp.Or(config.Delay, time.Second)
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		return openPostgres(ctx, dsn, config)
	}
	return openSQLite(ctx, dsn, config)
}

// core implements what the two databases have in common.
type core struct {
	db *sql.DB
	// exec runs one translated statement that writes.
	exec func(ctx context.Context, query string, args ...any) (int64, error)
	// one does the same for a statement that returns at most one row, and reports whether it did.
	one      func(ctx context.Context, query string, args []any, into ...any) (bool, error)
	chunks   chunks
	words    *strings.Replacer
	numbered bool // placeholders are $1, $2 instead of ?
	delayMS  int64
}

// recrawlChunk is how many URLs one transaction of Recrawl makes pending.
const recrawlChunk = 1000

// translate replaces the placeholders of a statement by the SQL of this database: {now}, {max},
// {min}, {among} and {ids} (is in a JSON list of texts or of ids), {hashed} (is in a JSON list
// in hexadecimal), {vacant} (the host of a robots row has no URL), {unused} (Prune deletes host h), {migrated} (there is a schema) and ?.
func (c *core) translate(query string) string {
	query = c.words.Replace(query)
	if !c.numbered {
		return query
	}
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(query, "?") {
		if n > 0 {
			b.WriteString("$" + strconv.Itoa(n))
		}
		b.WriteString(part)
		n++
	}
	return b.String()
}

// update translates and runs a statement that writes, and returns how many rows it changed.
// doing is the start of the error text.
func (c *core) update(ctx context.Context, doing, query string, args ...any) (int64, error) {
	n, err := c.exec(ctx, c.translate(query), args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	return n, nil
}

// check returns nil for a database that is ready, and ErrOlderSchema for one that must be migrated. It
// does not write.
func (c *core) check(ctx context.Context, p *goose.Provider) error {
	var theirs int64
	migrated, err := scalar[bool](ctx, c.db, "look for the schema", c.translate(`SELECT {migrated}`))
	if err == nil && migrated {
		theirs, err = scalar[int64](ctx, c.db, "read the version of the schema", `SELECT COALESCE(max(version_id), 0) FROM goose_db_version WHERE is_applied`)
	}
	if err != nil {
		return err
	}
	if err := compareSchemas(p, theirs); err != nil {
		return err
	}
	var form string
	err = c.db.QueryRowContext(ctx, `SELECT value FROM settings WHERE name = 'normal_form_version'`).Scan(&form)
	switch ours := strconv.Itoa(normal.Version); {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: the version of its normal form is missing", ErrOlderSchema)
	case err != nil:
		return fmt.Errorf("read the version of the normal form: %w", err)
	case form != ours:
		return fmt.Errorf("%w: %s, not %s", ErrNormalForm, form, ours)
	}
	return nil
}

// migrate brings the schema up to date, and returns an error unless the database is ready then.
func (c *core) migrate(ctx context.Context, p *goose.Provider) error {
	theirs, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read the version of the schema: %w", err)
	}
	if err := compareSchemas(p, theirs); err != nil && !errors.Is(err, ErrOlderSchema) {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("bring the schema up to date: %w", err)
	}
	_, err = c.db.ExecContext(ctx, c.translate(`INSERT INTO settings (name, value) VALUES ('normal_form_version', ?) ON CONFLICT (name) DO NOTHING`),
		strconv.Itoa(normal.Version))
	if err != nil {
		return fmt.Errorf("store the version of the normal form: %w", err)
	}
	return c.check(ctx, p)
}

// scalar returns the only value of a query's only row. doing is the start of the error text.
func scalar[T any](ctx context.Context, db *sql.DB, doing, query string, args ...any) (value T, err error) {
	if err := db.QueryRowContext(ctx, query, args...).Scan(&value); err != nil {
		return value, fmt.Errorf("%s: %w", doing, err)
	}
	return value, nil
}

// found reports whether a query for at most one row returned one.
func found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// collect reads all rows of a query that returned rows and err, and closes rows.
func collect[T any](rows *sql.Rows, err error, read func(scan func(...any) error) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err returns the error
	var all []T
	for rows.Next() {
		row, err := read(rows.Scan)
		if err != nil {
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

// clock converts a stored time. Zero means never.
func clock(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
