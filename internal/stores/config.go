package stores

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"fetchd/internal/archive"
	"fetchd/internal/secure"
)

// Set is the stores of a file. It is immutable. The zero value has none.
type Set struct {
	entries map[string]entry
	files   map[string][]byte // every file as it was read
}

// entry has a store or an archive.
type entry struct {
	store   *Store
	archive *archive.Archive
	source  Config // what the store was made of
	roots   []byte // and its authorities
	callers []string
}

// File is the file of stores. It is exported for its JSON Schema in deploy/schema.
type File struct {
	Stores map[string]struct {
		URL                 string   `yaml:"url"`
		Prefix              string   `yaml:"prefix"`
		Callers             []string `yaml:"callers"`
		MaxObjectBytes      int64    `yaml:"max-object-bytes"`
		AccessKeyID         string   `yaml:"access-key-id"`
		SecretAccessKey     string   `yaml:"secret-access-key"`
		SecretAccessKeyFile string   `yaml:"secret-access-key-file"`
		SessionToken        string   `yaml:"session-token"`
		CAFile              string   `yaml:"ca-file"`
	} `yaml:"stores"`
}

var storeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)

// ReadFile opens the stores that a YAML file describes; docs/stores.md has its keys. Stores that
// are as they were before stay open, and are in both sets. An error names the store and the key,
// contains no secret, and leaves nothing else open.
func ReadFile(path string, before *Set) (*Set, error) {
	s := &Set{entries: make(map[string]entry), files: make(map[string][]byte)}
	if err := s.read(path, before); err != nil {
		_ = s.Without(before).Close(context.Background()) // no upload has begun
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
		if p.Callers != nil && (len(p.Callers) == 0 || slices.Contains(p.Callers, "")) {
			return fmt.Errorf("stores: %s: callers: is empty or has an empty name: name the callers that may use the store, or leave it out", name)
		}
		e := entry{callers: p.Callers, source: Config{URL: p.URL, Prefix: p.Prefix, MaxObjectBytes: p.MaxObjectBytes,
			AccessKeyID: p.AccessKeyID, SecretAccessKey: p.SecretAccessKey, SessionToken: p.SessionToken}}
		if p.SecretAccessKeyFile != "" {
			if p.SecretAccessKey != "" {
				return fmt.Errorf("stores: %s: secret-access-key and secret-access-key-file are both set: give one", name)
			}
			secret, err := s.file(p.SecretAccessKeyFile)
			if err != nil {
				return fmt.Errorf("stores: %s: secret-access-key-file: %w", name, err)
			}
			e.source.SecretAccessKey = strings.TrimSpace(string(secret))
		}
		if p.CAFile != "" {
			if e.roots, err = s.file(p.CAFile); err != nil {
				return fmt.Errorf("stores: %s: ca-file: %w", name, err)
			}
		}
		if err := e.open(name, before); err != nil {
			return fmt.Errorf("stores: %w", err)
		}
		s.entries[name] = e
	}
	return nil
}

// open opens the store of an entry, unless it is as it was before.
func (e *entry) open(name string, before *Set) (err error) {
	old, ok := before.entries[name]
	if ok && bytes.Equal(old.roots, e.roots) && reflect.DeepEqual(old.source, e.source) {
		e.store, e.archive = old.store, old.archive
		return nil
	}
	if dir, ok := strings.CutPrefix(e.source.URL, "warc+file://"); ok {
		if e.archive, err = archive.Open(name, archive.Config{Dir: dir}); err != nil {
			return fmt.Errorf("store %s: %w", name, err)
		}
		return nil
	}
	c := e.source
	if e.roots != nil {
		c.CAs = x509.NewCertPool()
		if !c.CAs.AppendCertsFromPEM(e.roots) {
			return fmt.Errorf("store %s: ca-file: has no certificate in PEM", name)
		}
	}
	e.store, err = Open(name, c)
	return err
}

// file reads a file once.
func (s *Set) file(path string) ([]byte, error) {
	if raw, ok := s.files[path]; ok {
		return raw, nil
	}
	raw, err := os.ReadFile(path)
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
	return &Set{entries: rest}
}

// Get returns a store for bodies and the callers that may use it, or nil. No callers means every caller.
func (s *Set) Get(name string) (_ *Store, callers []string) {
	e := s.entries[name]
	return e.store, e.callers
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

// Close closes the stores. ctx limits the wait for their uploads.
func (s *Set) Close(ctx context.Context) error {
	var errs []error
	for store := range s.All() {
		errs = append(errs, store.Close(ctx))
	}
	for a := range s.Archives() {
		errs = append(errs, a.Close(ctx))
	}
	return errors.Join(errs...)
}
