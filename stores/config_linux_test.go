package stores_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/stores"
)

// descriptors returns how many files and directories below dir this process has open.
func descriptors(t *testing.T, dir string) (n int) {
	t.Helper()
	const fds = "/proc/self/fd"
	all, err := os.ReadDir(fds)
	must(t, err)
	for _, fd := range all {
		if at, err := os.Readlink(filepath.Join(fds, fd.Name())); err == nil && strings.HasPrefix(at, dir+"/") {
			n++
		}
	}
	return n
}

// TestReadFileCloses checks that a file with an error leaves nothing open, except the stores that were
// there before, and that only those that were replaced are closed.
func TestReadFileCloses(t *testing.T) {
	t.Parallel()
	const a, b = "  a: {url: 'file://DIR/a'}\n", "  b: {url: 'file://DIR/b'}\n"
	for _, row := range []struct {
		name, text string
		fails      bool
		open, left int // directories, after the file was read and after Without
	}{
		{"the same", a, false, 1, 1},
		{"another store", a + b, false, 2, 2},
		{"a store that is replaced", "  a: {url: 'file://DIR/a', prefix: p}\n", false, 2, 1},
		{"a store that is removed", b, false, 2, 1},
		{"none", "", false, 1, 0},
		{"an error after a store", a + b + "  c: {url: 'http://host/'}\n", true, 1, 1},
		{"an error after a store that is replaced", "  a: {url: 'file://DIR/b'}\n  b: {}\n", true, 1, 1},
		{"an error in a name", b + "  C: {url: 'file://DIR/c'}\n  d: {url: 'file://DIR/d'}\n", true, 1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			read := func(text string, before *stores.Set) (*stores.Set, error) {
				return stores.ReadFile(write(t, dir+"/stores.yaml", "stores:\n"+strings.ReplaceAll(text, "DIR", dir)), before)
			}
			before, err := read(a, new(stores.Set))
			must(t, err)
			old, _ := before.Get("a")
			now, err := read(row.text, before)
			if (err != nil) != row.fails {
				t.Fatalf("ReadFile = %v, want an error: %t", err, row.fails)
			}
			if n := descriptors(t, dir); n != row.open {
				t.Errorf("%d directories are open, want %d", n, row.open)
			}
			if _, err := upload(t.Context(), old, stores.Object{Key: "key", Size: -1}, nil, 1); err != nil {
				t.Errorf("the store that was there before: %v", err)
			}
			if row.fails {
				now = before
			}
			if err := before.Without(now).Close(t.Context()); err != nil {
				t.Error(err)
			}
			if n := descriptors(t, dir); n != row.left {
				t.Errorf("%d directories are open after the old ones were closed, want %d", n, row.left)
			}
			for s := range now.All() {
				if _, err := upload(t.Context(), s, stores.Object{Key: "key", Size: -1}, nil, 1); err != nil {
					t.Errorf("store %s: %v", s.Name(), err)
				}
			}
			if err := now.Close(t.Context()); err != nil || descriptors(t, dir) != 0 {
				t.Errorf("Close = %v, and %d directories are open", err, descriptors(t, dir))
			}
		})
	}
}
