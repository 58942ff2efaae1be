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

// provider returns the migrations of a kind of database.
func provider(db *sql.DB, dialect goose.Dialect, folder string) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations/"+folder)
	if err != nil {
		return nil, fmt.Errorf("find the migrations: %w", err)
	}
	p, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return p, nil
}

// compareSchemas compares the version of a schema with that of this program.
func compareSchemas(p *goose.Provider, theirs int64) error {
	sources := p.ListSources() // in the order of versions
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
