package bodies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"fetchd/frontier"
	"fetchd/stores"
	"fetchd/test/must"
)

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	place, err := stores.Open("bodies", stores.Config{URL: "file://" + dir})
	if err != nil {
		t.Fatalf("Open(%s) = %v", dir, err)
	}
	t.Cleanup(func() {
		if err := place.Close(context.Background()); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return New(place, 1<<30)
}

// keep stores a body, all but the last bytes of it in pieces.
func keep(s *Store, name, body string, last int) error {
	b := s.New(context.Background())
	defer b.Drop()
	for piece := range slices.Chunk([]byte(body[:len(body)-last]), 70_000) {
		if _, err := b.Write(piece); err != nil {
			return err
		}
	}
	return b.Commit(name, []byte(body[len(body)-last:]))
}

// files returns the files below dir with their contents.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		found[filepath.ToSlash(name)] = string(text)
		return err
	})
	must.Succeed(t, err)
	return found
}

func nameOf(digest string) string { return "sha256/" + digest[:2] + "/" + digest }

// TestCommit checks that a body is stored under its digest, even if several goroutines store it, and
// that nothing else is left.
func TestCommit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b c")
	s := open(t, dir)
	want := make(map[string]string)
	for _, body := range []string{"", "a body", strings.Repeat("x", 1<<20)} {
		want[nameOf(digest(body))] = body
		var wait sync.WaitGroup
		for n := range 8 {
			wait.Go(func() {
				if err := keep(s, digest(body), body, len(body)*(n%3)/2); err != nil {
					t.Errorf("keep(%d bytes) = %v", len(body), err)
				}
			})
		}
		wait.Wait()
	}
	if got := files(t, dir); !maps.Equal(got, want) {
		t.Errorf("files %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	if s.Lacks(digest("a body")) || !s.Lacks(digest("another")) || s.Lacks("") {
		t.Error("Lacks does not say which bodies are there")
	}
}

// TestCommitRepairs checks that a file of the wrong length is replaced.
func TestCommitRepairs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	path := filepath.Join(dir, filepath.FromSlash(nameOf(digest("a body"))))
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(t, os.WriteFile(path, []byte("a b"), 0o644))
	must.Succeed(t, keep(s, digest("a body"), "a body", 0))
	if got, err := os.ReadFile(path); err != nil || string(got) != "a body" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

// kinds returns a store of each kind of body. Both lead to a directory.
func kinds(t *testing.T) map[string]func(dir string) *Store {
	return map[string]func(string) *Store{
		"direct": func(dir string) *Store { return open(t, dir) },
		"spooled": func(dir string) *Store {
			s := open(t, dir)
			s.slots = make(chan struct{}, 1)
			return s
		},
	}
}

// TestStartsOver checks a body that starts over, and that what was dropped leaves nothing.
func TestStartsOver(t *testing.T) {
	for name, open := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			dir, spool := t.TempDir(), t.TempDir()
			t.Setenv("TMPDIR", spool)
			s := open(dir)
			long := strings.Repeat("x", 1<<20)
			write := func(b frontier.Body, text string) {
				t.Helper()
				if n, err := b.Write([]byte(text)); n != len(text) || err != nil {
					t.Fatalf("Write = %d, %v", n, err)
				}
			}
			for _, text := range []string{"shorter", ""} {
				b := s.New(t.Context())
				write(b, long)
				write(b, long)
				must.Succeed(t, b.Truncate(0))
				if text != "" {
					write(b, text)
				}
				must.Succeed(t, b.Commit(digest(text), nil))
				b.Drop()
			}
			b := s.New(t.Context())
			write(b, long)
			if left := files(t, spool); len(left) > 0 {
				t.Errorf("a crash would leave %d files", len(left))
			}
			if err := b.Truncate(5); err == nil {
				t.Error("Truncate(5) = nil, want an error")
			}
			b.Drop()
			b.Drop()
			s.New(t.Context()).Drop()
			want := map[string]string{nameOf(digest("")): "", nameOf(digest("shorter")): "shorter"}
			if got := files(t, dir); !maps.Equal(got, want) {
				t.Errorf("files %q, want %q", got, want)
			}
			if left := files(t, spool); len(left) > 0 {
				t.Errorf("%d temporary files are left", len(left))
			}
		})
	}
}

// TestCommitRefuses checks that a wrong name and a context that has ended store nothing.
func TestCommitRefuses(t *testing.T) {
	for name, open := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(dir)
			for _, name := range []string{"", "abc", strings.Repeat("g", 64), "../../" + digest("a")[:58]} {
				if err := keep(s, name, "a", 0); err == nil {
					t.Errorf("keep(%q) = nil, want an error", name)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			b := s.New(ctx)
			defer b.Drop()
			if err := b.Commit(digest("b"), []byte("b")); !errors.Is(err, context.Canceled) {
				t.Errorf("Commit with a context that is over = %v", err)
			}
			if got := files(t, dir); len(got) > 0 {
				t.Errorf("files %q, want none", got)
			}
		})
	}
}

// TestDigests checks that a body that is not what its digest says is not stored, whether it came in pieces or at
// once.
func TestDigests(t *testing.T) {
	for name, open := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s, body, other := open(dir), strings.Repeat("x", 200_000), strings.Repeat("x", 199_999)+"y"
			for _, last := range []int{0, 1, len(body)} {
				err := keep(s, digest(other), body, last)
				if e, ok := errors.AsType[*frontier.DigestError](err); !ok || e.Got != digest(body) || e.Want != digest(other) {
					t.Errorf("with %d bytes at once: %v, want both digests", last, err)
				}
			}
			if got := files(t, dir); len(got) > 0 {
				t.Errorf("files %q, want none", slices.Sorted(maps.Keys(got)))
			}
		})
	}
}

// TestSpoolFull checks that the error of a temporary directory is returned.
func TestSpoolFull(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "no"))
	s := kinds(t)["spooled"](t.TempDir())
	b := s.New(t.Context())
	defer b.Drop()
	if _, err := b.Write([]byte("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Write = %v, want an error of the temporary directory", err)
	}
}
