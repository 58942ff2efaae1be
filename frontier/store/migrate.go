package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// migrate brings the schema up to date. It returns ErrNewerSchema for one that is newer than ours.
func migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, folder string) error {
	files, err := fs.Sub(migrations, "migrations/"+folder)
	if err != nil {
		return fmt.Errorf("find the migrations: %w", err)
	}
	p, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read the version of the schema: %w", err)
	}
	if current > target {
		return fmt.Errorf("%w: its schema is version %d, this program knows %d", ErrNewerSchema, current, target)
	}
	if current == target {
		return nil
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("bring the schema up to date: %w", err)
	}
	return nil
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
