// Package bodies stores response bodies in a directory or a bucket, under their digests. Equal
// bodies are stored once.
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

// Store stores bodies in one bucket. It is safe for concurrent use.
type Store struct{ bucket *blob.Bucket }

// Open opens a directory, which it creates if necessary, or the bucket of a gocloud.dev/blob URL:
// file:///DIR, mem:// or s3://BUCKET?region=…. The error contains the place without the query of a
// URL, which may contain secrets. The caller closes the store.
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
		// No metadata files, because the digest is the name. A temporary file in another directory
		// could not be renamed into place.
		at = (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir), RawQuery: "metadata=skip&no_tmp_dir=true"}).String()
	}
	bucket, err := blob.OpenBucket(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("open %s for bodies: %w", shown(place), errors.New(withoutQuery(fmt.Sprintf("%v", err), place)))
	}
	return &Store{bucket}, nil
}

// Name returns the path of a body from the root of the bucket.
func Name(sha256 string) string { return "sha256/" + sha256[:2] + "/" + sha256 }

// Keep stores body completely or not at all, unless it is stored already. sha256 is its SHA-256 in
// 64 hexadecimal digits. The error matches [context.Canceled] if ctx was cancelled first.
func (s *Store) Keep(ctx context.Context, sha256 string, body []byte) error {
	if raw, err := hex.DecodeString(sha256); err != nil || len(raw) != 32 {
		return fmt.Errorf("%.70q is not a SHA-256 in hexadecimal", sha256)
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

// Close closes the bucket.
func (s *Store) Close() error { return s.bucket.Close() }

// shown returns a place without its query, which may contain secrets.
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
