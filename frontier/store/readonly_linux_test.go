package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// obey makes the permissions of files hold for root too, in this goroutine.
func obey(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // the thread ends with the test
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	must(t, unix.Capget(&head, &data[0]))
	data[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	must(t, unix.Capset(&head, &data[0]))
}

// TestSQLiteWithoutPermission reads a file that this user cannot write.
func TestSQLiteWithoutPermission(t *testing.T) {
	for _, row := range []struct {
		name         string
		file, folder os.FileMode
		open         bool // by a worker
		later        bool // a worker opens it meanwhile
	}{
		{"the file", 0o444, 0o755, false, false},
		{"the folder", 0o644, 0o555, false, false},
		{"both", 0o444, 0o555, false, false},
		{"both, next to a worker", 0o444, 0o555, true, false},
		{"the file, next to a worker", 0o444, 0o755, true, false},
		{"a worker that starts meanwhile", 0o444, 0o555, false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "frontier.db")
			worker, err := Open(t.Context(), path, Config{})
			must(t, err)
			f := newFixture(t, worker, path)
			f.toRead()
			if row.open {
				defer worker.Close()
			} else if err := worker.Close(); err != nil {
				t.Fatal(err)
			}
			before := files(t, path)
			protect := func(file, folder os.FileMode) {
				for _, err := range []error{os.Chmod(path, file), os.Chmod(filepath.Dir(path), folder)} {
					must(t, err)
				}
			}
			protect(row.file, row.folder)
			t.Cleanup(func() { protect(0o644, 0o755) })
			obey(t)
			if row.later {
				s, err := Open(t.Context(), path, Config{ReadOnly: true})
				must(t, err)
				protect(0o644, 0o755)
				open(t, path).put("http://b.test/")
				if err := s.Close(); err == nil || !strings.Contains(fmt.Sprint(err), "was written to while it was read") {
					t.Errorf("Close = %v, want an error that says that the file has changed", err)
				}
				return
			}
			for name, mode := range map[string]os.FileMode{path: row.file, path + "-new": row.folder &^ 0o111} {
				if _, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644); mode == 0o444 && !errors.Is(err, os.ErrPermission) {
					t.Fatalf("%s can be written: %v", name, err)
				}
			}
			_ = os.Remove(path + "-new")
			readable(t, path)
			if after := files(t, path); after != before {
				t.Errorf("the folder has %q, want %q as before", after, before)
			}
		})
	}
}

// files lists the files next to path.
func files(t *testing.T, path string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
