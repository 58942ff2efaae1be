package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite" // registers the driver
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteDB writes through one connection, used by one caller at a time. Readers use others.
type sqliteDB struct {
	core
	path string // as given to Open
	// immutable means that the file was read as one that does not change.
	immutable bool

	turn  chan struct{} // holds one token, which guards the fields below
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

var _ Store = (*sqliteDB)(nil)

func openSQLite(ctx context.Context, path string, config Config) (Store, error) {
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
	s := &sqliteDB{path: path, immutable: immutable, turn: make(chan struct{}, 1), stmts: make(map[string]*sql.Stmt)}
	s.core = core{
		db: db, chunks: s, exec: s.execOne, one: s.queryOne, delayMS: millis(config.Delay),
		words: strings.NewReplacer("{now}", "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)", "{max}", "max", "{min}", "min",
			"{ids}", "IN (SELECT value FROM json_each(?))", "{among}", "IN (SELECT value FROM json_each(?))", "{hashed}", "IN (SELECT unhex(value) FROM json_each(?))",
			"{migrated}", `EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'goose_db_version')`, "{unused}", fmt.Sprintf(`h.in_flight = 0 AND NOT h.paused AND h.delay_ms IS NULL AND h.max_in_flight = 1
				AND max(h.next_at, h.blocked_until) <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - CASE WHEN h.crawl_delay_ms > 0 THEN %[1]d + 86400000 ELSE %[1]d END
				AND NOT EXISTS (SELECT 1 FROM urls u WHERE u.host_id = h.id)`, millis(unusedFor)),
			"{vacant}", `NOT EXISTS (SELECT 1 FROM hosts h JOIN urls u ON u.host_id = h.id
				WHERE h.host = replace(replace(robots.origin, 'https://', ''), 'http://', ''))`),
	}
	s.turn <- struct{}{}
	if err := s.prepare(ctx, config.ReadOnly); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.Close())
	}
	return s, nil
}

// prepare migrates the file if it must be, and may be.
func (s *sqliteDB) prepare(ctx context.Context, readOnly bool) error {
	list, err := provider(s.db, goose.DialectSQLite3, "sqlite")
	if err != nil {
		return err
	}
	if readOnly {
		return s.nameFile(s.check(ctx, list))
	}
	newer := func(err error) bool { return errors.Is(err, ErrNewerSchema) || errors.Is(err, ErrNormalForm) }
	if err := patiently(ctx, newer, func() error { return s.migrate(ctx, list) }); err != nil {
		return err
	}
	s.conn, err = s.db.Conn(ctx)
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
	_, err = scalar[int](ctx, db, "read", `SELECT count(*) FROM sqlite_master`)
	return err == nil
}

func sqliteDSN(path string, params url.Values) string {
	u := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: params.Encode()}
	return u.String()
}

// Close implements [Store].
func (s *sqliteDB) Close() error {
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
	return errors.Join(append(errs, s.db.Close())...)
}

// tx is a write transaction. Its statements ignore the cancellation of the caller's context:
// they are short, and an interrupted commit would leave it unknown what was recorded.
type tx struct {
	s   *sqliteDB
	ctx context.Context
}

// do runs f in a transaction that has the database to itself. doing is the start of the error
// text.
func (s *sqliteDB) do(ctx context.Context, doing string, f func(tx) error) error {
	if err := s.transact(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

func (s *sqliteDB) transact(ctx context.Context, f func(tx) error) (err error) {
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
	t := tx{s: s, ctx: context.WithoutCancel(ctx)}
	if _, err := t.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err = f(t)
	if err == nil {
		_, err = t.exec("COMMIT")
	}
	if err != nil {
		_, _ = t.exec("ROLLBACK") // after a full disk SQLite has already rolled back
	}
	return err
}

// nameFile adds the path of the file to errors that the disk caused.
func (s *sqliteDB) nameFile(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff { // the primary code
		case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY:
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return err
}

func (t tx) stmt(query string) (*sql.Stmt, error) {
	if stmt := t.s.stmts[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := t.s.conn.PrepareContext(t.ctx, t.s.translate(query))
	if err != nil {
		return nil, err
	}
	t.s.stmts[query] = stmt
	return stmt, nil
}

// exec returns how many rows were changed.
func (t tx) exec(query string, args ...any) (int64, error) {
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

// one reads a row, and reports whether there was one.
func (t tx) one(query string, args []any, into ...any) (bool, error) {
	stmt, err := t.stmt(query)
	if err != nil {
		return false, err
	}
	return found(stmt.QueryRowContext(t.ctx, args...).Scan(into...))
}

func (s *sqliteDB) execOne(ctx context.Context, query string, args ...any) (changed int64, err error) {
	err = s.transact(ctx, func(t tx) error {
		changed, err = t.exec(query, args...)
		return err
	})
	return changed, err
}

func (s *sqliteDB) queryOne(ctx context.Context, query string, args []any, into ...any) (found bool, err error) {
	err = s.transact(ctx, func(t tx) error {
		found, err = t.one(query, args, into...)
		return err
	})
	return found, err
}
