// Package stores writes objects into directories and S3 buckets. An object becomes visible when it
// is complete, or never.
//
// A directory is file:///DIR. An object is written to DIR/.incoming, synced, and renamed. Files and
// directories get the modes 0644 and 0755 less the umask. Keys and symbolic links cannot leave DIR. A
// process that dies leaves a file in .incoming; the next [Open] removes it, because no process has it
// locked.
//
// A bucket is s3://BUCKET?region=REGION, with the optional parameters endpoint and use_path_style.
// An object of up to 5 MiB is one PutObject, a longer one a multipart upload with parts of 5 MiB, so
// an object has at most 10,000 parts or 48.8 GiB. The credentials need s3:PutObject and
// s3:AbortMultipartUpload; s3:GetObject to find an object when a response was lost (without it the
// upload counts as failed); and s3:ListBucketMultipartUploads for [Store.Clean]. A process that dies
// leaves a multipart upload, which no reader sees: a lifecycle rule of the bucket with
// AbortIncompleteMultipartUpload removes it, and so does Clean. A bucket with a default retention
// (Object Lock) does not work, because it requires a checksum that is not sent.
//
// An upload to a bucket holds up to one part in memory, charged in pieces of 64 KiB. Each request has
// a limit of 20 s, so the network must carry 265 kB/s for each upload. It is repeated once after that
// limit, and twice after 5xx, 429 and broken connections. After five failed uploads in a row, a store
// refuses uploads for 5 s, then lets one through. See decision 20.
package stores

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"fetchd/internal/budget"
)

// Config configures a store.
type Config struct {
	// URL is file:///DIR, or s3://BUCKET?region=REGION with the optional parameters
	// endpoint=https://HOST and use_path_style=true. An endpoint with http:// is allowed, for
	// private networks: bodies and keys are then sent in clear text. Credentials are signed, not
	// sent, except SessionToken.
	URL string `yaml:"url"`
	// Prefix is put before each key, with a slash between them.
	Prefix string `yaml:"prefix"`
	// MaxObjectBytes limits the size of an object. Zero means no limit.
	MaxObjectBytes int64 `yaml:"max-object-bytes"`
	// AccessKeyID and SecretAccessKey are required for S3. The environment, profiles and metadata
	// services are never asked.
	AccessKeyID     string `yaml:"access-key-id"`
	SecretAccessKey string `yaml:"secret-access-key"`
	SessionToken    string `yaml:"session-token"`
	// CAs are the authorities of an S3 endpoint with TLS. Nil means those of the system.
	CAs *x509.CertPool `yaml:"-"`
}

// Store is a directory or a bucket. It is safe for concurrent use.
type Store struct {
	name    string
	prefix  string // empty, or with a slash at the end
	max     int64
	backend backend
	breaker breaker

	mu     sync.Mutex
	stats  Stats
	closed bool
	empty  chan struct{} // if closed: closed when no upload is left
}

// Stats are counters of a store.
type Stats struct {
	Up       bool // false while the store refuses uploads because the last ones failed; true if none has tried it for a minute
	InFlight int  // uploads, and clean-ups of aborted ones

	Committed, Failed, Aborted uint64 // uploads that have ended; Failed by the store
	Bytes                      uint64 // of committed objects
	RequestErrors              uint64 // requests, or operations on files, that failed, with those that were repeated
}

// backend is a kind of store.
type backend interface {
	// begin returns a sink for an object. key has the prefix; it is empty if the digest will name
	// the object.
	begin(key string, o Object, memory *budget.Lease) (sink, error)
	// namesLate reports whether the key may be known at the end only.
	namesLate() bool
	maxSize() int64
	clean(ctx context.Context, prefix string, before time.Time) (int, error)
	close()
}

// sink writes one object. Its errors are *Error, [budget.ErrRefused] or the cause of a context
// that ended.
type sink interface {
	// space returns memory for the next bytes, at least one. wrote adds the first n of them.
	space(ctx context.Context) ([]byte, error)
	wrote(n int)
	commit(ctx context.Context, key string) (Stored, error)
	// discard removes what is not committed. It blocks for a limited time if busy reports true.
	discard(ctx context.Context)
	busy() bool
}

// Open returns a store. It makes no request. It creates the directory of a file store, and removes
// files there that a process left unfinished when it died.
func Open(name string, c Config) (*Store, error) {
	s, err := open(name, c)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", name, err)
	}
	return s, nil
}

func open(name string, c Config) (*Store, error) {
	if c.MaxObjectBytes < 0 {
		return nil, fmt.Errorf("the maximum size of an object is %d: give zero or more", c.MaxObjectBytes)
	}
	prefix, err := checkPrefix(c.Prefix)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("the URL cannot be parsed: give file:///DIR or s3://BUCKET?region=REGION")
	}
	if u.User != nil {
		return nil, errors.New("the URL contains a user or password: give the credentials as access-key-id and secret-access-key")
	}
	if u.Fragment != "" || u.Opaque != "" {
		return nil, errors.New("the URL must be file:///DIR or s3://BUCKET?region=REGION, without a fragment")
	}
	s := &Store{name: name, prefix: prefix, empty: make(chan struct{})}
	switch u.Scheme {
	case "file":
		s.backend, err = openFile(s, u, c)
	case "s3":
		s.backend, err = openS3(s, u, c)
	default:
		err = fmt.Errorf("the URL has the scheme %.20q: give file:///DIR or s3://BUCKET?region=REGION", u.Scheme)
	}
	if err != nil {
		return nil, err
	}
	s.max = s.backend.maxSize()
	if c.MaxObjectBytes > 0 {
		s.max = min(s.max, c.MaxObjectBytes)
	}
	return s, nil
}

// Name returns the name given to [Open].
func (s *Store) Name() string { return s.name }

// Lacks reports whether a directory has no object that is named by this digest. It asks no bucket, and is false there.
func (s *Store) Lacks(sha256 string) bool {
	d, ok := s.backend.(*directory)
	if !ok || checkDigest(sha256) != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(d.path, filepath.FromSlash(s.prefix+digestKey(sha256))))
	return errors.Is(err, fs.ErrNotExist)
}

// MaxObjectBytes returns the size of the largest object that the store accepts.
func (s *Store) MaxObjectBytes() int64 { return s.max }

// Check returns an error if an object cannot have this key. The key may be empty, so that the
// object is named by its digest, if the store can name it at the end or sha256 is known. The
// text of the error follows the name of a field.
func (s *Store) Check(key, sha256 string) error {
	if key == "" {
		if sha256 != "" {
			return checkDigest(sha256)
		}
		if !s.backend.namesLate() {
			return fmt.Errorf("is empty: give a key, or the SHA-256 of the body, because the store %s must know the name at the start", s.name)
		}
		return nil
	}
	if err := checkKey(key); err != nil {
		return err
	}
	if n := len(s.prefix) + len(key); n > maxKey {
		return fmt.Errorf("has %d bytes with the prefix of the store: give at most %d", n, maxKey)
	}
	return nil
}

// Ready returns nil, or an [*Error] that matches [ErrUnavailable] while the store refuses uploads
// because the last ones failed. When that time is over, it returns nil once, and the upload that
// follows decides.
func (s *Store) Ready() error {
	if !s.breaker.ready() {
		return s.unavailable()
	}
	return nil
}

func (s *Store) unavailable() error {
	return &Error{store: s.name, reason: ReasonUnavailable, err: ErrUnavailable, text: fmt.Sprint(ErrUnavailable)}
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Up = s.breaker.up()
	return stats
}

// Close waits for uploads in flight, and for clean-ups of aborted ones. No upload begins after it.
// If ctx ends first, Close returns its cause.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		if s.stats.InFlight == 0 {
			close(s.empty)
		}
	}
	idle := s.stats.InFlight == 0
	s.mu.Unlock()
	if !idle {
		select {
		case <-s.empty:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.backend.close()
	return nil
}

// Clean aborts unfinished uploads below the prefix, and removes temporary files, that began more
// than olderThan ago. It returns how many. It cannot distinguish uploads to a bucket that are still
// in flight, so olderThan must exceed the time of the longest fetch.
func (s *Store) Clean(ctx context.Context, olderThan time.Duration) (int, error) {
	return s.backend.clean(ctx, s.prefix, time.Now().Add(-olderThan))
}

// countError counts a failed request.
func (s *Store) countError() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.RequestErrors++
}

const (
	maxKey     = 1024 // bytes, the limit of S3; it includes the prefix
	maxPrefix  = 512  // bytes, so that a digest fits
	maxSegment = 255  // bytes, the limit of most file systems
	incoming   = ".incoming"
)

// checkKey returns an error if key is not valid. The rule is the same for every kind of store, so
// that a caller need not know the kind. The text follows the name of a field.
func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("is empty: give a key")
	case len(key) > maxKey:
		return fmt.Errorf("has %d bytes: give at most %d", len(key), maxKey)
	case !utf8.ValidString(key):
		return errors.New("is not valid UTF-8")
	}
	for _, r := range key {
		// XML cannot contain U+FFFE and U+FFFF, so a bucket with such a key could not be listed.
		if unicode.IsControl(r) || r == '\\' || r == 0xfffe || r == 0xffff {
			return fmt.Errorf("contains %q: use no control characters and no backslash", r)
		}
	}
	for segment := range strings.SplitSeq(key, "/") {
		switch {
		case segment == "":
			return errors.New("has an empty segment: give names separated by single slashes, without a slash at either end")
		case segment == "." || segment == "..":
			return fmt.Errorf("has the segment %q, which is not a name", segment)
		case len(segment) > maxSegment:
			return fmt.Errorf("has a segment of %d bytes: give at most %d", len(segment), maxSegment)
		case strings.EqualFold(segment, incoming): // in any place, because a symbolic link may lead back to the root
			return fmt.Errorf("has the segment %s, where the store keeps unfinished files", incoming)
		}
	}
	return nil
}

// checkPrefix returns the prefix with a slash at the end, or an empty one.
func checkPrefix(prefix string) (string, error) {
	if prefix == "" {
		return "", nil
	}
	prefix = strings.TrimSuffix(prefix, "/")
	if err := checkKey(prefix); err != nil {
		return "", fmt.Errorf("the prefix %w", err)
	}
	if len(prefix) > maxPrefix {
		return "", fmt.Errorf("the prefix has %d bytes: give at most %d", len(prefix), maxPrefix)
	}
	return prefix + "/", nil
}

// checkDigest returns an error unless sha256 is a SHA-256 in lower-case hexadecimal.
func checkDigest(sha256 string) error {
	if raw, err := hex.DecodeString(sha256); err != nil || len(raw) != 32 || strings.ToLower(sha256) != sha256 {
		return fmt.Errorf("%.70q is not a SHA-256 in lower-case hexadecimal", sha256)
	}
	return nil
}

// digestKey returns the key of an object that is named by its digest.
func digestKey(sha256 string) string { return "sha256/" + sha256[:2] + "/" + sha256 }
