package bodies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func open(t *testing.T, place string) *Store {
	t.Helper()
	s, err := Open(t.Context(), place)
	if err != nil {
		t.Fatalf("Open(%s) = %v", place, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestKeep checks for each kind of place that a stored body can be read, even if several goroutines
// store it.
func TestKeep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, place := range map[string]string{"directory that is not there": filepath.Join(dir, "a", "b c"), "file URL": "file://" + dir + "?metadata=skip", "memory": "mem://"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, place)
			for _, body := range []string{"", "a body", strings.Repeat("x", 1<<20)} {
				var wait sync.WaitGroup
				for range 8 {
					wait.Go(func() {
						if err := s.Keep(t.Context(), digest(body), []byte(body)); err != nil {
							t.Errorf("Keep(%d bytes) = %v", len(body), err)
						}
					})
				}
				wait.Wait()
				if got, err := s.bucket.ReadAll(t.Context(), Name(digest(body))); err != nil || string(got) != body {
					t.Errorf("Read = %d bytes, %v, want %d", len(got), err, len(body))
				}
			}
		})
	}
}

// TestKeepLeavesOneFile checks that nothing but the body is left.
func TestKeepLeavesOneFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for range 2 {
		if err := s.Keep(t.Context(), digest("a"), []byte("a")); err != nil {
			t.Fatal(err)
		}
	}
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) != 1 || files[0] != filepath.Join(dir, filepath.FromSlash(Name(digest("a")))) {
		t.Errorf("files %q, %v, want the body alone", files, err)
	}
}

// TestKeepRepairs checks that a file of the wrong length is replaced.
func TestKeepRepairs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	path := filepath.Join(dir, filepath.FromSlash(Name(digest("a body"))))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("a b"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Keep(t.Context(), digest("a body"), []byte("a body")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "a body" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

func TestKeepRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	for _, name := range []string{"", "abc", strings.Repeat("g", 64), "../../" + digest("a")[:58]} {
		if err := s.Keep(t.Context(), name, nil); err == nil {
			t.Errorf("Keep(%q) = nil, want an error", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Keep(ctx, digest("b"), []byte("b")); !errors.Is(err, context.Canceled) {
		t.Errorf("Keep with a context that is over = %v", err)
	}
	if _, err := s.bucket.ReadAll(t.Context(), Name(digest("b"))); err == nil {
		t.Error("it was written all the same")
	}
}

// TestOpenRefuses checks that the error contains the place, and no secret of its query.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{filepath.Join(file, "dir"), "ftp://bucket", "mem://?secret=hunter2", "file:///nowhere/at/all"} {
		_, err := Open(t.Context(), place)
		text := fmt.Sprintf("%v", err)
		if before, _, _ := strings.Cut(place, "?"); err == nil || !strings.Contains(text, before) || strings.Contains(text, "hunter2") {
			t.Errorf("Open(%s) = %v, want an error that names the place and no secret", place, err)
		}
	}
}
