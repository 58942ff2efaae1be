package store

import (
	"cmp"
	"context"
	"embed"
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

// NoDelay is a [Config.Delay] of none.
const NoDelay time.Duration = -1

// Open opens the frontier at dsn, creates it if necessary, and migrates its schema. A dsn that
// starts with postgres:// or postgresql:// is a PostgreSQL database. Any other is the path of a
// SQLite file.
//
// Open returns [ErrNewerSchema] for a database of a newer version, and [ErrNormalForm] if its
// URLs were normalised by other rules. With ReadOnly it returns [ErrOlderSchema] for a database that
// must be migrated, and without it [ErrReadOnly] for a PostgreSQL database that it cannot write. The caller
// closes the store.
func Open(ctx context.Context, dsn string, config Config) (Store, error) {
	if config.Delay < NoDelay {
		return nil, fmt.Errorf("a delay of %v is negative", config.Delay)
	}
	config.Delay = cmp.Or(config.Delay, time.Second)
	s, err := openDatabase(ctx, dsn, config, migrations)
	if err != nil || !config.Groups.on() {
		return s, err
	}
	return &groups{s, config.Groups}, nil
}

// openDatabase opens a database with migrations/sqlite or migrations/postgres of a folder.
func openDatabase(ctx context.Context, dsn string, config Config, folder fs.FS) (engine, error) {
	kind, open := "sqlite", openSQLite
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		kind, open = "postgres", openPostgres
	}
	files, err := fs.Sub(folder, "migrations/"+kind)
	if err != nil {
		return nil, fmt.Errorf("find the migrations: %w", err)
	}
	return open(ctx, dsn, database.Config{Connections: config.Connections, ReadOnly: config.ReadOnly, Migrations: files, NormalForm: normal.Version}, millis(max(config.Delay, 0)))
}

//go:embed migrations
var migrations embed.FS
