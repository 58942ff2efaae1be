// Package database opens the two kinds of database that can hold a frontier, migrates them, and runs
// statements that are written once for both.
//
// [OpenSQLite] opens a file that is written through one connection, by one caller at a time.
// [OpenPostgres] opens a PostgreSQL database, in which each statement is a transaction.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
)

// Config says how to open a database.
type Config struct {
	Connections int   // maximum number of connections to PostgreSQL
	ReadOnly    bool  // open a database that exists, and never write to it
	Migrations  fs.FS // of this kind of database
	NormalForm  int   // version of the normal form of its URLs
	// Words are pairs of a placeholder and its SQL, in addition to those of [DB.Translate].
	Words []string
}

// DB is a database that is open and has the schema. It is safe for concurrent use.
type DB struct {
	*sql.DB
	words      *strings.Replacer
	numbered   bool // placeholders are $1, $2 instead of ?
	needs      *goose.Provider
	normalForm string
	// exec runs one translated statement that writes.
	exec func(ctx context.Context, query string, args ...any) (int64, error)
	// one does the same for a statement that returns at most one row, and reports whether it did.
	one func(ctx context.Context, query string, args []any, into ...any) (bool, error)
}

func newDB(db *sql.DB, dialect goose.Dialect, c Config, words ...string) (*DB, error) {
	needs, err := goose.NewProvider(dialect, db, c.Migrations, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		err = fmt.Errorf("read the migrations: %w", err)
	}
	return &DB{DB: db, words: strings.NewReplacer(append(words, c.Words...)...), numbered: dialect == goose.DialectPostgres, needs: needs, normalForm: strconv.Itoa(c.NormalForm)}, err
}

// Translate replaces the placeholders of a statement by the SQL of this database: {now}, {max},
// {min}, {among} and {ids} (is in a JSON list of texts or of ids), {hashed} (is in a JSON list
// in hexadecimal), {migrated} (there is a schema), those of Config.Words, and ?.
func (d *DB) Translate(query string) string {
	query = d.words.Replace(query)
	if !d.numbered {
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

// Query translates and runs a statement that reads.
func (d *DB) Query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return d.QueryContext(ctx, d.Translate(query), args...)
}

// QueryRow translates and runs a statement that reads one row.
func (d *DB) QueryRow(ctx context.Context, query string, args ...any) *sql.Row {
	return d.QueryRowContext(ctx, d.Translate(query), args...)
}

// Update translates and runs a statement that writes, and returns how many rows it changed.
// doing is the start of the error text.
func (d *DB) Update(ctx context.Context, doing, query string, args ...any) (int64, error) {
	n, err := d.exec(ctx, d.Translate(query), args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	return n, nil
}

// One translates and runs a statement that writes and returns at most one row, and reports whether it did.
func (d *DB) One(ctx context.Context, query string, args []any, into ...any) (bool, error) {
	return d.one(ctx, d.Translate(query), args, into...)
}

// Int returns the only value of a query's only row. doing is the start of the error text.
func (d *DB) Int(ctx context.Context, doing, query string, args ...any) (int64, error) {
	return scalar[int64](ctx, d, doing, query, args)
}

// Bool does the same as Int for a truth value.
func (d *DB) Bool(ctx context.Context, doing, query string, args ...any) (bool, error) {
	return scalar[bool](ctx, d, doing, query, args)
}

func scalar[T any](ctx context.Context, d *DB, doing, query string, args []any) (value T, err error) {
	if err := d.QueryRow(ctx, query, args...).Scan(&value); err != nil {
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
