package stores

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"fetchd/internal/secure"
	"fetchd/stores/archive"
)

// Set is the stores of a file. It is immutable. The zero value has none.
type Set struct {
	entries map[string]entry
	files   map[string][]byte // every file as it was read
	logger  *slog.Logger      // of archives
}

// entry has a store for bodies, or an archive.
type entry struct {
	store   *Store
	archive *archive.Archive
	bucket  *Store // to which the archive uploads files; nil if it does not
	source  source
	callers []string
}

// source is what a store was made of.
type source struct {
	config  Config
	archive archiveConfig
	roots   []byte // authorities
}

// Empty returns a set without stores. Archives in sets that are read after it log to logger.
func Empty(logger *slog.Logger) *Set { return &Set{logger: logger} }

// File is the file of stores. It is exported for its JSON Schema in deploy/schema.
type File struct {
	Stores map[string]struct {
		Config              `yaml:",inline"`
		archiveConfig       `yaml:",inline"`
		Callers             []string `yaml:"callers"`
		SecretAccessKeyFile string   `yaml:"secret-access-key-file"`
		CAFile              string   `yaml:"ca-file"`
	} `yaml:"stores"`
}

// dropTime is how long Drop waits.
const dropTime = 2 * time.Second

var storeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)

// ReadFile opens the stores that a YAML file describes; docs/stores.md has its keys. Stores that
// are as they were before stay open, and are in both sets. An error names the store and the key,
// contains no secret, and leaves nothing else open. The archives log as those of before do.
func ReadFile(path string, before *Set) (*Set, error) {
	s := &Set{entries: make(map[string]entry), files: make(map[string][]byte), logger: before.logger}
	if err := s.read(path, before); err != nil {
		s.Without(before).Drop()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func (s *Set) read(path string, before *Set) error {
	raw, err := s.file(path)
	if err != nil {
		return err
	}
	var f File
	if err := secure.DecodeYAML(raw, &f, "YAML with stores, and in each the keys of docs/stores.md, each once"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f.Stores)) { // an error is the same each time
		p := f.Stores[name]
		if !storeName.MatchString(name) {
			return fmt.Errorf("stores: %.80q: give a name of 1 to 64 lower-case letters, digits, dots, dashes and underscores", name)
		}
		e := entry{callers: p.Callers, source: source{config: p.Config, archive: p.archiveConfig}}
		if p.SecretAccessKeyFile != "" {
			if p.SecretAccessKey != "" {
				return fmt.Errorf("stores: %s: secret-access-key and secret-access-key-file are both set: give one", name)
			}
			secret, err := s.file(p.SecretAccessKeyFile)
			if err != nil {
				return fmt.Errorf("stores: %s: secret-access-key-file: %w", name, err)
			}
			e.source.config.SecretAccessKey = strings.TrimSpace(string(secret))
		}
		if p.CAFile != "" {
			if e.source.roots, err = s.file(p.CAFile); err != nil {
				return fmt.Errorf("stores: %s: ca-file: %w", name, err)
			}
		}
		if err := e.open(s, name, before); err != nil {
			return fmt.Errorf("stores: %w", err)
		}
		s.entries[name] = e
	}
	return nil
}

// open opens the store of an entry, unless it is as it was before.
func (e *entry) open(s *Set, name string, before *Set) (err error) {
	if old, ok := before.entries[name]; ok && reflect.DeepEqual(old.source, e.source) {
		e.store, e.archive, e.bucket = old.store, old.archive, old.bucket
		return nil
	}
	c := e.source.config
	if e.source.roots != nil {
		c.CAs = x509.NewCertPool()
		if !c.CAs.AppendCertsFromPEM(e.source.roots) {
			return fmt.Errorf("store %s: ca-file: has no certificate in PEM", name)
		}
	}
	switch {
	case strings.HasPrefix(c.URL, archiveScheme):
		if e.archive, e.bucket, err = openArchive(s, name, c, e.source.archive); err != nil {
			return fmt.Errorf("store %s: %w", name, err)
		}
	case !e.source.archive.isZero():
		return fmt.Errorf("store %s: spool-dir, max-file-bytes, max-file-age, max-spool-bytes, redact, operator and file-mode are for stores for records, "+
			"whose URL begins with %s: remove them", name, archiveScheme)
	default:
		e.store, err = Open(name, c)
	}
	return err
}

// file reads a file once.
func (s *Set) file(path string) ([]byte, error) {
	if raw, ok := s.files[path]; ok {
		return raw, nil
	}
	raw, err := secure.ReadFile(path)
	if err == nil {
		s.files[path] = raw
	}
	return raw, err
}

// Same reports whether all files are as they were.
func (s *Set) Same(before *Set) bool { return maps.EqualFunc(s.files, before.files, bytes.Equal) }

// Without returns the stores that other does not have.
func (s *Set) Without(other *Set) *Set {
	rest := maps.Clone(s.entries)
	maps.DeleteFunc(rest, func(name string, e entry) bool {
		o := other.entries[name]
		return e.store == o.store && e.archive == o.archive
	})
	return &Set{entries: rest, logger: s.logger}
}

// Get returns a store for bodies and the callers that may use it, or nil. No callers means every caller.
func (s *Set) Get(name string) (_ *Store, callers []string) {
	e := s.entries[name]
	return e.store, e.callers
}

// Callers returns the callers that the stores name.
func (s *Set) Callers() (names []string) {
	for _, e := range s.entries {
		names = append(names, e.callers...)
	}
	return names
}

// All returns the stores for bodies, sorted by name.
func (s *Set) All() iter.Seq[*Store] {
	return func(yield func(*Store) bool) {
		for _, name := range slices.Sorted(maps.Keys(s.entries)) {
			if store := s.entries[name].store; store != nil && !yield(store) {
				return
			}
		}
	}
}

// Archive returns a store for records and the callers that may use it, or nil. No callers means
// every caller.
func (s *Set) Archive(name string) (_ *archive.Archive, callers []string) {
	e := s.entries[name]
	return e.archive, e.callers
}

// Archives returns the stores for records, sorted by name.
func (s *Set) Archives() iter.Seq[*archive.Archive] {
	return func(yield func(*archive.Archive) bool) {
		for _, name := range slices.Sorted(maps.Keys(s.entries)) {
			if a := s.entries[name].archive; a != nil && !yield(a) {
				return
			}
		}
	}
}

// Of returns a set of one store for records, under its name, for programs that contain the service.
func Of(a *archive.Archive) *Set {
	return &Set{entries: map[string]entry{a.Name(): {archive: a}}}
}

// CloseArchives closes the stores for records. ctx limits the wait for uploads of their files. It may
// be called again, and Close may follow.
func (s *Set) CloseArchives(ctx context.Context) error {
	var errs []error
	for a := range s.Archives() {
		errs = append(errs, a.Close(ctx))
	}
	return errors.Join(errs...)
}

// Close closes the stores. ctx limits the wait for their uploads.
func (s *Set) Close(ctx context.Context) error {
	errs := []error{s.CloseArchives(ctx)}
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		if store := s.entries[name].backend(); store != nil {
			errs = append(errs, store.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// Drop closes stores that have not been used. It waits for no upload, and a moment for those of WARC
// files that are being aborted.
func (s *Set) Drop() {
	ctx, cancel := context.WithTimeout(context.Background(), dropTime)
	defer cancel()
	now, ended := context.WithCancel(ctx)
	ended()
	_ = s.CloseArchives(now) // files that wait for their upload wait until the store is opened again
	_ = s.Close(ctx)
}

// Clean removes what dead processes have left in the stores, and calls done for each of them, as
// [Store.Clean] and [archive.Archive.Clean] describe it.
func (s *Set) Clean(ctx context.Context, olderThan time.Duration, done func(name string, uploads, files int, err error)) {
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[name]
		var uploads, files int
		var errs [2]error
		if store := e.backend(); store != nil {
			uploads, errs[0] = store.Clean(ctx, olderThan)
		}
		if e.archive != nil {
			files, errs[1] = e.archive.Clean(ctx)
		}
		done(name, uploads, files, errors.Join(errs[:]...))
	}
}

// backend returns the store for bodies, or the one to which an archive uploads files, or nil.
func (e entry) backend() *Store {
	if e.store != nil {
		return e.store
	}
	return e.bucket
}
