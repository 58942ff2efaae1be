package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite is a DB in a file. It writes through one connection, used by one caller at a time. Readers use
// others.
type SQLite struct {
	*DB
	path string // as given to OpenSQLite
	// immutable means that the file was read as one that does not change.
	immutable bool

	turn  chan struct{} // holds one token, which guards the fields below
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

// OpenSQLite opens the file at path, and migrates it if it must be, and may be.
func OpenSQLite(ctx context.Context, path string, config Config) (*SQLite, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	params, immutable := writing(), false
	if config.ReadOnly {
		params, immutable = reading(ctx, abs)
	}
	db, err := sql.Open("sqlite", sqliteDSN(abs, params))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(5)
	s := &SQLite{path: path, immutable: immutable, turn: make(chan struct{}, 1), stmts: make(map[string]*sql.Stmt)}
	s.DB, err = newDB(db, goose.DialectSQLite3, config, "{now}", "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)", "{max}", "max", "{min}", "min",
		"{ids}", "IN (SELECT value FROM json_each(?))", "{among}", "IN (SELECT value FROM json_each(?))", "{hashed}", "IN (SELECT unhex(value) FROM json_each(?))",
		"{migrated}", `EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'goose_db_version')`)
	s.exec, s.one = s.execOne, s.queryOne
	s.turn <- struct{}{}
	if err == nil {
		err = s.prepare(ctx, config.ReadOnly)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.Close())
	}
	return s, nil
}

// prepare migrates the file if it must be, and may be.
func (s *SQLite) prepare(ctx context.Context, readOnly bool) (err error) {
	if readOnly {
		return s.nameFile(s.check(ctx))
	}
	newer := func(err error) bool { return errors.Is(err, ErrNewerSchema) || errors.Is(err, ErrNormalForm) }
	if err := patiently(ctx, newer, func() error { return s.migrate(ctx) }); err != nil {
		return err
	}
	s.conn, err = s.Conn(ctx)
	return err
}

// patiently calls f until it succeeds, returns an error that is final, or has failed for ten
// seconds. SQLite has no lock that covers a whole migration: if two programs open a new file at
// once, one of them may see a part of the tables for a moment.
func patiently(ctx context.Context, final func(error) bool, f func() error) (err error) {
	const tries, pause = 40, 250 * time.Millisecond
	for range tries {
		if err = f(); err == nil || final(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
	return err
}

// writing returns the parameters of a file that is written.
//
// busy_timeout comes first because the change to WAL may have to wait too. With WAL, synchronous=NORMAL
// loses nothing in a crash of the program. A power failure can lose the last commits, and their URLs
// are then fetched again. A checkpoint waits for the disk, so we make one every 16 MiB instead of every
// 4. Prune deletes URLs whose outcomes stay, so foreign keys are not checked.
func writing() url.Values {
	return url.Values{"_pragma": {"busy_timeout(30000)", "journal_mode(WAL)", "synchronous(NORMAL)", "wal_autocheckpoint(4000)", "cache_size(-65536)"}}
}

// reading returns the parameters of a file that is only read. If this user cannot write the file or its
// folder, SQLite must not create the files next to it either, because the owner may not be able to write
// these. Without them no program has the file open, so it can be read as one that does not change.
func reading(ctx context.Context, path string) (params url.Values, immutable bool) {
	params = url.Values{"_pragma": {"busy_timeout(30000)", "query_only(ON)"}}
	if canWrite(ctx, path, params) {
		return params, false
	}
	params.Set("mode", "ro")
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		params.Set("immutable", "1")
		return params, true
	}
	return params, false
}

// canWrite reports whether this user can write the file at path, and files next to it.
func canWrite(ctx context.Context, path string, params url.Values) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = f.Close() // nothing was written
	db, err := sql.Open("sqlite", sqliteDSN(path, params))
	if err != nil {
		return false
	}
	defer func() { _ = db.Close() }() // reading has no other errors
	return db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(new(int)) == nil
}

func sqliteDSN(path string, params url.Values) string {
	u := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: params.Encode()}
	return u.String()
}

// Close closes the file. No other call may be in flight.
func (s *SQLite) Close() error {
	var errs []error
	for _, stmt := range s.stmts {
		errs = append(errs, stmt.Close())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	if _, err := os.Stat(s.path + "-wal"); s.immutable && err == nil {
		errs = append(errs, fmt.Errorf("%s was written to while it was read, so the result may be wrong: repeat the command", s.path))
	}
	return errors.Join(append(errs, s.DB.Close())...)
}

// Tx is a write transaction. Its statements ignore the cancellation of the caller's context:
// they are short, and an interrupted commit would leave it unknown what was recorded.
type Tx struct {
	s   *SQLite
	ctx context.Context
}

// Do runs f in a transaction that has the database to itself. doing is the start of the error
// text.
func (s *SQLite) Do(ctx context.Context, doing string, f func(Tx) error) error {
	if err := s.Transact(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// Transact runs f in a transaction that has the database to itself.
func (s *SQLite) Transact(ctx context.Context, f func(Tx) error) (err error) {
	if s.conn == nil {
		return errors.New("the database was opened only to read it")
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.turn:
	}
	defer func() {
		err = s.nameFile(err)
		s.turn <- struct{}{}
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	t := Tx{s: s, ctx: context.WithoutCancel(ctx)}
	if _, err := t.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err = f(t)
	if err == nil {
		_, err = t.Exec("COMMIT")
	}
	if err != nil {
		_, _ = t.Exec("ROLLBACK") // after a full disk SQLite has already rolled back
	}
	return err
}

// nameFile adds the path of the file to errors that the disk caused.
func (s *SQLite) nameFile(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff { // the primary code
		case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY:
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return err
}

func (t Tx) stmt(query string) (*sql.Stmt, error) {
	if stmt := t.s.stmts[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := t.s.conn.PrepareContext(t.ctx, t.s.Translate(query))
	if err != nil {
		return nil, err
	}
	t.s.stmts[query] = stmt
	return stmt, nil
}

// Query runs a statement that returns rows.
func (t Tx) Query(query string, args ...any) (*sql.Rows, error) {
	stmt, err := t.stmt(query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(t.ctx, args...)
}

// Exec runs a statement, and returns how many rows were changed.
func (t Tx) Exec(query string, args ...any) (int64, error) {
	stmt, err := t.stmt(query)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// One reads a row, and reports whether there was one.
func (t Tx) One(query string, args []any, into ...any) (bool, error) {
	stmt, err := t.stmt(query)
	if err != nil {
		return false, err
	}
	return found(stmt.QueryRowContext(t.ctx, args...).Scan(into...))
}

func (s *SQLite) execOne(ctx context.Context, query string, args ...any) (changed int64, err error) {
	err = s.Transact(ctx, func(t Tx) error {
		changed, err = t.Exec(query, args...)
		return err
	})
	return changed, err
}

func (s *SQLite) queryOne(ctx context.Context, query string, args []any, into ...any) (found bool, err error) {
	err = s.Transact(ctx, func(t Tx) error {
		found, err = t.One(query, args, into...)
		return err
	})
	return found, err
}
