package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"fetchd/frontier/normal"
)

// Config says how to work with a frontier. The zero value works.
type Config struct {
	// Delay is from the end of a host's fetch to its next start, where the host was
	// not given one of its own. Zero means a second.
	Delay time.Duration
}

// Open opens the frontier that dsn names, makes it if need be, and brings its
// schema up to date: a PostgreSQL database if dsn begins with postgres:// or
// postgresql://, otherwise the SQLite file with that path.
//
// A database of a newer version is refused with [ErrNewerSchema], one whose URLs
// were normalised by other rules with [ErrNormalForm]. The caller closes what it got.
func Open(ctx context.Context, dsn string, config Config) (Repository, error) {
	if config.Delay < 0 {
		return Repository{}, fmt.Errorf("a delay of %v is negative", config.Delay)
	}
	if config.Delay == 0 {
		config.Delay = time.Second
	}
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		return asRepository(openPostgres(ctx, dsn, config))
	}
	return asRepository(openSQLite(ctx, dsn, config))
}

func asRepository[S Store](s S, err error) (Repository, error) {
	if err != nil {
		return Repository{}, err
	}
	return Repository{Store: s}, nil
}

// core is what the two databases have in common: statements that differ in words only.
type core struct {
	db *sql.DB
	// exec runs one writing statement, which core has translated.
	exec func(ctx context.Context, query string, args ...any) (int64, error)
	// one does so with a statement that returns a row, or none.
	one      func(ctx context.Context, query string, args []any, into ...any) (bool, error)
	words    *strings.Replacer
	numbered bool // $1, $2 in place of ?
	delayMS  int64
}

// say translates a statement into the database's own words: {now}, {max}, {min},
// {among} (a list as JSON), {vacant} (the host of a row of robots has no URL) and ?.
func (c *core) say(query string) string {
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

func (c *core) update(ctx context.Context, query string, args ...any) (int64, error) {
	return c.exec(ctx, c.say(query), args...)
}

// row is an update that returns a row, and says whether there was one.
func (c *core) row(ctx context.Context, query string, args []any, into ...any) (bool, error) {
	return c.one(ctx, c.say(query), args, into...)
}

// checkNormalForm holds the version of the stored URLs against ours. A new database gets ours.
func (c *core) checkNormalForm(ctx context.Context) error {
	ours := strconv.Itoa(normal.Version)
	_, err := c.update(ctx, `INSERT INTO settings (name, value) VALUES ('normal_form_version', ?) ON CONFLICT (name) DO NOTHING`, ours)
	if err != nil {
		return fmt.Errorf("store the version of the normal form: %w", err)
	}
	var theirs string
	err = c.db.QueryRowContext(ctx, `SELECT value FROM settings WHERE name = 'normal_form_version'`).Scan(&theirs)
	if err != nil {
		return fmt.Errorf("read the version of the normal form: %w", err)
	}
	if theirs != ours {
		return fmt.Errorf("%w: %s, not %s", ErrNormalForm, theirs, ours)
	}
	return nil
}

// closing adds the error of closing to err, for an Open that went wrong.
func closing(err error, close func() error) error {
	return errors.Join(err, close())
}

// millis is d as the database keeps it, rounded up: a wait is never cut short.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// clock is a time that the database kept; zero means never.
func clock(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
