package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

var (
	// ErrNewerSchema means that a newer version of this program has migrated the database.
	ErrNewerSchema = errors.New("the database was made by a newer version of this program")
	// ErrOlderSchema means that the database must be migrated, which ReadOnly does not allow.
	ErrOlderSchema = errors.New("the database must be migrated")
	// ErrReadOnly means that PostgreSQL is a standby, or does not let this role change the frontier.
	ErrReadOnly = errors.New("the database cannot be written")
	// ErrIsolation means that transactions of PostgreSQL are not isolated by read committed by default.
	ErrIsolation = errors.New("default_transaction_isolation is not read committed")
	// ErrNormalForm means that the URLs of the database were normalised by other rules.
	ErrNormalForm = errors.New("the database has URLs in another version of the normal form")
)

// compare compares the version of a schema with that of this program.
func (d *DB) compare(theirs int64) error {
	sources := d.needs.ListSources() // in the order of versions
	switch ours := sources[len(sources)-1].Version; {
	case theirs > ours:
		return fmt.Errorf("%w: its schema is version %d, this program knows %d", ErrNewerSchema, theirs, ours)
	case theirs == 0:
		return fmt.Errorf("%w: it has no frontier yet", ErrOlderSchema)
	case theirs < ours:
		return fmt.Errorf("%w: its schema is version %d, this program needs %d", ErrOlderSchema, theirs, ours)
	}
	return nil
}

// check returns nil for a database that is ready, and ErrOlderSchema for one that must be migrated. It
// does not write.
func (d *DB) check(ctx context.Context) error {
	var theirs int64
	migrated, err := d.Bool(ctx, "look for the schema", `SELECT {migrated}`)
	if err == nil && migrated {
		theirs, err = d.Int(ctx, "read the version of the schema", `SELECT COALESCE(max(version_id), 0) FROM goose_db_version WHERE is_applied`)
	}
	if err != nil {
		return err
	}
	if err := d.compare(theirs); err != nil {
		return err
	}
	var form string
	err = d.QueryRow(ctx, `SELECT value FROM settings WHERE name = 'normal_form_version'`).Scan(&form)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: the version of its normal form is missing", ErrOlderSchema)
	case err != nil:
		return fmt.Errorf("read the version of the normal form: %w", err)
	case form != d.normalForm:
		return fmt.Errorf("%w: %s, not %s", ErrNormalForm, form, d.normalForm)
	}
	return nil
}

// migrate brings the schema up to date, and returns an error unless the database is ready then.
func (d *DB) migrate(ctx context.Context) error {
	theirs, err := d.needs.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read the version of the schema: %w", err)
	}
	if err := d.compare(theirs); err != nil && !errors.Is(err, ErrOlderSchema) {
		return err
	}
	if _, err := d.needs.Up(ctx); err != nil {
		return fmt.Errorf("bring the schema up to date: %w", err)
	}
	_, err = d.ExecContext(ctx, d.Translate(`INSERT INTO settings (name, value) VALUES ('normal_form_version', ?) ON CONFLICT (name) DO NOTHING`), d.normalForm)
	if err != nil {
		return fmt.Errorf("store the version of the normal form: %w", err)
	}
	return d.check(ctx)
}
