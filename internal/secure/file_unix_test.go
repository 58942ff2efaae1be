//go:build unix

package secure_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fetchd/internal/secure"
	"fetchd/test/must"
)

// TestReadFile checks that no file keeps a service from reading others, or fills its memory.
func TestReadFile(t *testing.T) {
	at := func(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "file") }
	sparse := func(size int64) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			name := at(t)
			must.Succeed(t, errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, size)))
			return name
		}
	}
	fifo := func(t *testing.T) string {
		t.Helper()
		name := at(t)
		must.Succeed(t, syscall.Mkfifo(name, 0o600))
		return name
	}
	for _, row := range []struct {
		name string
		file func(*testing.T) string
		size int    // -1: an error
		says string // of the error
	}{
		{"empty", sparse(0), 0, ""},
		{"the maximum", sparse(secure.MaxFileBytes), secure.MaxFileBytes, ""},
		{"more", sparse(secure.MaxFileBytes + 1), -1, "has more than 16 MiB"},
		{"a device", func(*testing.T) string { return "/dev/zero" }, -1, "has more than 16 MiB"},
		{"a pipe without a writer", fifo, -1, "nothing is written to it"},
		{"a folder", func(t *testing.T) string { t.Helper(); return t.TempDir() }, -1, "is a directory"},
		{"nothing", at, -1, "no such file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			text, err := secure.ReadFile(row.file(t))
			switch {
			case row.size >= 0 && (err != nil || len(text) != row.size):
				t.Errorf("%d bytes, %v, want %d", len(text), err, row.size)
			case row.size < 0 && (err == nil || !strings.Contains(err.Error(), row.says)): //nolint:forbidigo // the text is for people, and tested as such
				t.Errorf("%d bytes, %v, want an error that says %q", len(text), err, row.says)
			}
		})
	}
}

// TestReadPipe checks that a pipe is read to its end, as a shell's <(command) needs.
func TestReadPipe(t *testing.T) {
	r, w, err := os.Pipe()
	must.Succeed(t, err)
	defer r.Close()
	want := bytes.Repeat([]byte("x"), 100_000) // more than a pipe holds
	go func() {
		_, _ = w.Write(want)
		_ = w.Close()
	}()
	name := fmt.Sprintf("/dev/fd/%d", r.Fd())
	got, err := secure.ReadFile(name)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(want))
	}
}
