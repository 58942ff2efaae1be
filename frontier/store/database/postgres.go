package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// postgres is a DB in PostgreSQL. Each statement is one round trip and one transaction.
type postgres struct{ *DB }

// PostgresConnections is the default of Config.Connections.
const PostgresConnections = 8

// OpenPostgres opens the database at dsn, and migrates it if it must be, and may be.
func OpenPostgres(ctx context.Context, dsn string, config Config) (*DB, error) {
	settings, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL: %w", err)
	}
	if !strings.Contains(dsn, "default_query_exec_mode") {
		// A pooler between may give each transaction another connection, so there are no prepared statements.
		settings.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	db := stdlib.OpenDB(*settings)
	connections := cmp.Or(config.Connections, PostgresConnections)
	db.SetMaxOpenConns(max(connections, 2)) // for a migration
	db.SetMaxIdleConns(connections)
	d, err := newPostgres(db, config)
	if err == nil {
		err = postgres{d}.prepare(ctx, config.ReadOnly)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open PostgreSQL: %w", err), db.Close())
	}
	db.SetMaxOpenConns(connections)
	return d, nil
}

// newPostgres returns a DB.
func newPostgres(db *sql.DB, config Config) (*DB, error) {
	d, err := newDB(db, goose.DialectPostgres, config, "{now}", "frontier_now()", "{max}", "GREATEST", "{min}", "LEAST",
		"{ids}", "= ANY (ARRAY (SELECT jsonb_array_elements_text(?)::bigint))",
		"{among}", "= ANY (ARRAY (SELECT jsonb_array_elements_text(?)))", "{hashed}", "= ANY (ARRAY (SELECT decode(x, 'hex') FROM jsonb_array_elements_text(?) AS x))",
		"{migrated}", "to_regclass('goose_db_version') IS NOT NULL")
	p := postgres{d}
	d.exec, d.one = p.execOne, p.queryOne
	return d, err
}

// prepare migrates the database if it must be, and may be.
func (p postgres) prepare(ctx context.Context, readOnly bool) error {
	var isolation string
	var reads, standby bool
	err := p.QueryRowContext(ctx, `SELECT current_setting('default_transaction_isolation'), current_setting('transaction_read_only')::bool, pg_is_in_recovery()`).
		Scan(&isolation, &reads, &standby)
	switch {
	case err != nil:
		return err
	case isolation != "read committed":
		return fmt.Errorf("%w: it is %s", ErrIsolation, isolation)
	case readOnly:
	case standby:
		return fmt.Errorf("%w: this server is a standby", ErrReadOnly)
	case reads:
		return fmt.Errorf("%w: default_transaction_read_only is on", ErrReadOnly)
	}
	for {
		switch err := p.check(ctx); {
		case err == nil && !readOnly:
			return p.checkRole(ctx)
		case readOnly || !errors.Is(err, ErrOlderSchema):
			return err
		}
		if done, err := p.migrateAlone(ctx); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// checkRole returns an error if the role may only read. A worker would repeat its calls for ever.
func (p postgres) checkRole(ctx context.Context) error {
	may, err := p.DB.Bool(ctx, "read the privileges of the role", `SELECT has_table_privilege('urls', 'UPDATE')`)
	if err == nil && !may {
		return fmt.Errorf("%w: the role may not update the table urls", ErrReadOnly)
	}
	return err
}

// migrateAlone migrates under a lock, and reports whether it got the lock. A transaction holds the lock,
// because a pooler may give it a connection for no longer. It does not wait for the lock, because the
// migration may need the connection that would wait.
func (p postgres) migrateAlone(ctx context.Context) (alone bool, err error) {
	const key = 0x66726f6e74696572 // "frontier"
	tx, err := p.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // it has done nothing
	if _, err := tx.ExecContext(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
		return false, err
	}
	err = tx.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock($1)`, key).Scan(&alone)
	if err != nil || !alone {
		return false, err
	}
	return true, p.migrate(ctx)
}

func (p postgres) execOne(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := p.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (p postgres) queryOne(ctx context.Context, query string, args []any, into ...any) (bool, error) {
	return found(p.QueryRowContext(ctx, query, args...).Scan(into...))
}
