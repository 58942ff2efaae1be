// Package bodies keeps response bodies in a directory or a bucket, under their
// digests: a body that several URLs have is kept once.
package bodies

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // file://
	_ "gocloud.dev/blob/memblob"  // mem://
	_ "gocloud.dev/blob/s3blob"   // s3://
)

// Store keeps bodies in one bucket. It is safe for concurrent use.
type Store struct{ bucket *blob.Bucket }

// Open opens the directory of a path, which is made if need be, or the bucket of
// a URL as gocloud.dev/blob has it: file:///DIR, mem:// or s3://BUCKET?region=….
// The error names the place, without the query of a URL, which may hold secrets.
// The caller closes what it got.
func Open(ctx context.Context, place string) (*Store, error) {
	at := place
	if !strings.Contains(place, "://") {
		dir, err := filepath.Abs(place)
		if err != nil {
			return nil, fmt.Errorf("open %s for bodies: %w", place, err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("open %s for bodies: %w", place, err)
		}
		// The digest is the name, so what tells more of a body beside it would be noise;
		// a temporary file elsewhere could not be renamed into place.
		at = (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir), RawQuery: "metadata=skip&no_tmp_dir=true"}).String()
	}
	bucket, err := blob.OpenBucket(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("open %s for bodies: %w", shown(place), errors.New(withoutQuery(fmt.Sprintf("%v", err), place)))
	}
	return &Store{bucket}, nil
}

// Name is where the body of a digest is, from the bucket's root.
func Name(sha256 string) string { return "sha256/" + sha256[:2] + "/" + sha256 }

// Keep stores body under its SHA-256 in 64 hexadecimal digits, unless it is there.
// What is written appears whole or not at all. An error that matches
// [context.Canceled] says that ctx ended first.
func (s *Store) Keep(ctx context.Context, sha256 string, body []byte) error {
	if raw, err := hex.DecodeString(sha256); err != nil || len(raw) != 32 {
		return fmt.Errorf("%.70q is no SHA-256 in hexadecimal", sha256)
	}
	name := Name(sha256)
	a, err := s.bucket.Attributes(ctx, name)
	if err == nil && a.Size == int64(len(body)) {
		return nil
	}
	if err := s.bucket.WriteAll(ctx, name, body, &blob.WriterOptions{ContentType: "application/octet-stream"}); err != nil {
		return fmt.Errorf("write body %s: %w", name, err)
	}
	return nil
}

// Read returns a body that was kept.
func (s *Store) Read(ctx context.Context, sha256 string) ([]byte, error) {
	return s.bucket.ReadAll(ctx, Name(sha256))
}

// Close ends the use of the bucket.
func (s *Store) Close() error { return s.bucket.Close() }

// shown is a place without what may be secret in it.
func shown(place string) string {
	if before, _, found := strings.Cut(place, "?"); found {
		return before + "?…"
	}
	return place
}

func withoutQuery(text, place string) string {
	if _, query, found := strings.Cut(place, "?"); found && query != "" {
		return strings.ReplaceAll(text, query, "…")
	}
	return text
}
