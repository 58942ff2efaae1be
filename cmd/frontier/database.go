package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// database is the flag of all commands that work on a frontier.
type database struct {
	DB string `name:"db" variable:"FRONTIER_DB" default:"frontier.db" placeholder:"DSN" help:"The frontier's database: the path of a SQLite file, or postgres://USER@HOST/NAME ($$FRONTIER_DB). Default: frontier.db."`
}

// pool is the flag of commands that use a database for long.
type pool struct {
	Connections int `name:"db-connections" default:"8" group:"Work:" help:"Maximum number of connections to PostgreSQL. Default: 8."`
}

// mode says how a command uses a database.
type mode int

const (
	readOnly mode = iota // only read it
	existing             // write to it, and return an error if there is none
	creating             // create it if there is none
)

// with opens the database, calls f, and returns the exit code.
func (d database) with(ctx context.Context, a *app, m mode, f func(store.Store) error) int {
	s, err := d.open(ctx, m, store.Config{})
	if err == nil {
		err = errors.Join(f(s), s.Close())
	}
	return a.end(ctx, err)
}

// withHost is with, for a command about a host, which may be empty. The note says that the frontier does not
// know it, because it may be misspelt, or is empty.
func (d database) withHost(ctx context.Context, a *app, m mode, host string, f func(s store.Store, note string) error) int {
	return d.with(ctx, a, m, func(s store.Store) error {
		if host == "" {
			return f(s, "")
		}
		known, err := s.Knows(ctx, host)
		if err != nil {
			return err
		}
		note := ""
		if !known {
			others, err := s.OtherPorts(ctx, host)
			if err != nil {
				return err
			}
			note = fmt.Sprintf("The frontier has no URL of %s", host)
			if len(others) > 0 {
				note += ", but of " + strings.Join(others, ", ")
			}
			note += ".\n"
		}
		return f(s, note)
	})
}

// open opens the database. The caller closes it.
func (d database) open(ctx context.Context, m mode, config store.Config) (store.Store, error) {
	if err := check(d.DB, m); err != nil {
		return nil, err
	}
	config.ReadOnly = m == readOnly
	return store.Open(ctx, d.DB, config)
}

func isPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// name returns the name of the database without credentials, which is that of its crawl.
func (d database) name() string {
	path := d.DB
	if isPostgres(path) {
		u, err := url.Parse(path)
		if err != nil {
			return ""
		}
		return strings.Trim(u.Path, "/")
	}
	return strings.TrimSuffix(filepath.Base(path), ".db")
}

// address matches text that is meant as an address and is not a path. It may contain a password.
var address = regexp.MustCompile(`(?i)://|^file:|^postgres|(^|\s)(host|user|dbname|password)\s*=`)

// check checks the path before the driver creates a file or waits for a lock.
func check(dsn string, m mode) error {
	switch {
	case isPostgres(dsn):
		return nil
	case dsn == "":
		return cli.UsageError("--db", "is empty: give the path of a SQLite file, or postgres://USER@HOST/NAME")
	case address.MatchString(dsn) && !isFile(dsn):
		return cli.UsageError("--db", "is neither the path of a file nor an address that starts with postgres:// or postgresql://")
	}
	info, err := os.Stat(dsn)
	switch {
	case errors.Is(err, fs.ErrNotExist) && m == creating:
		return checkFolder(dsn)
	case errors.Is(err, fs.ErrNotExist), err == nil && info.Mode().IsRegular() && info.Size() == 0 && m != creating:
		return fmt.Errorf(`no database at %s: create it with "frontier add" or "frontier crawl URL", or name another with --db`, dsn)
	case err != nil:
		return fmt.Errorf("database: %w", err)
	case info.IsDir():
		return fmt.Errorf("database %s is a directory: --db must name a file", dsn)
	case !info.Mode().IsRegular():
		return fmt.Errorf("database %s is not a regular file", dsn)
	}
	return checkHeader(dsn, m)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func checkFolder(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	return fmt.Errorf("cannot create a database at %s: %s is not a directory", path, dir)
}

// checkHeader checks the first bytes of a file, and that this user may write it if that is needed.
// https://www.sqlite.org/fileformat.html#magic_header_string
func checkHeader(path string, m mode) error {
	access := os.O_RDWR
	if m == readOnly {
		access = os.O_RDONLY
	}
	f, err := os.OpenFile(path, access, 0)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer func() { _ = f.Close() }() // reading has no other errors
	magic := []byte("SQLite format 3\x00")
	head := make([]byte, len(magic))
	n, err := io.ReadFull(f, head)
	switch {
	case errors.Is(err, io.EOF): // "frontier add" turns an empty file into a database
		return nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("database: %w", err)
	case !bytes.Equal(head[:n], magic):
		return fmt.Errorf("%s is not a SQLite database: name another file with --db", path)
	}
	return nil
}

// migrateCmd is "frontier migrate".
type migrateCmd struct{ database }

func (c *migrateCmd) run(ctx context.Context, a *app) int {
	return c.with(ctx, a, existing, func(store.Store) error { // opening it migrates it
		out := &cli.Printer{W: a.Out}
		out.Printf("The database has the schema of this version.\n")
		return out.End()
	})
}
