package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// database is the flag that every command has which works on a frontier.
type database struct {
	DB string `name:"db" variable:"FRONTIER_DB" default:"frontier.db" placeholder:"DSN" help:"The frontier's database: the path of a SQLite file, or postgres://USER@HOST/NAME ($$FRONTIER_DB). Default: frontier.db."`
}

// mode says what to do where there is no database yet.
type mode bool

const (
	existing mode = false // say so
	creating mode = true  // make it
)

// with opens the database, calls f, and returns the exit status of what came of it.
func (d database) with(ctx context.Context, a *app, m mode, f func(store.Store) error) int {
	s, err := d.open(ctx, m, store.Config{})
	if err == nil {
		err = errors.Join(f(s), s.Close())
	}
	return a.end(ctx, err)
}

// open opens the database. The caller closes it.
func (d database) open(ctx context.Context, m mode, config store.Config) (store.Store, error) {
	if err := d.check(m); err != nil {
		return nil, err
	}
	return store.Open(ctx, d.DB, config)
}

// address is what is meant for a driver and is no path. It may hold a password.
var address = regexp.MustCompile(`(?i)://|^file:|^postgres|(^|\s)(host|user|dbname|password)\s*=`)

// check says what is wrong with the file before the driver makes one or waits for a lock.
func (d database) check(m mode) error {
	switch {
	case strings.HasPrefix(d.DB, "postgres://"), strings.HasPrefix(d.DB, "postgresql://"):
		return nil
	case d.DB == "":
		return cli.UsageError("--db", "is empty: give the path of a SQLite file, or postgres://USER@HOST/NAME")
	case address.MatchString(d.DB) && !isFile(d.DB):
		return cli.UsageError("--db", "is neither the path of a file nor an address that begins with postgres:// or postgresql://")
	}
	info, err := os.Stat(d.DB)
	switch {
	case errors.Is(err, fs.ErrNotExist) && m == creating:
		return checkFolder(d.DB)
	case errors.Is(err, fs.ErrNotExist), err == nil && info.Mode().IsRegular() && info.Size() == 0 && m == existing:
		return fmt.Errorf(`no database at %s: "frontier add" makes one, --db names another`, d.DB)
	case err != nil:
		return fmt.Errorf("database: %w", err)
	case info.IsDir():
		return fmt.Errorf("database %s is a directory: --db takes a file", d.DB)
	case !info.Mode().IsRegular():
		return fmt.Errorf("database %s is no regular file: --db takes one", d.DB)
	}
	return checkHeader(d.DB)
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
	return fmt.Errorf("no database can be made at %s: %s is no folder; make it first", path, dir)
}

// checkHeader reads the first bytes of a file that is not empty.
// https://www.sqlite.org/fileformat.html#magic_header_string
func checkHeader(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	magic := []byte("SQLite format 3\x00")
	head := make([]byte, len(magic))
	n, err := io.ReadFull(f, head)
	switch {
	case errors.Is(err, io.EOF): // add makes a database of an empty file
		return nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("database: %w", err)
	case !bytes.Equal(head[:n], magic):
		return fmt.Errorf("%s is no SQLite database: --db names another file", path)
	}
	return nil
}
