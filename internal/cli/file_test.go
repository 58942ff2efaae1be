package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fetchd/test/must"
)

// names are what a folder holds.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Succeed(t, err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func create(t *testing.T, name, text string) *wholeFile {
	t.Helper()
	f, err := createWhole(name)
	must.Succeed(t, err)
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return f
}

func want(t *testing.T, name, text string) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || string(got) != text {
		t.Errorf("%s holds %q, %v, want %q", filepath.Base(name), got, err, text)
	}
}

// TestKeep: the old file stays until the new one is whole, and lends it its mode.
func TestKeep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	must.Succeed(t, os.WriteFile(name, []byte("old"), 0o640))
	f := create(t, name, "new")
	want(t, name, "old")
	must.Succeed(t, f.Keep())
	f.Discard() // nothing is to be discarded any more
	want(t, name, "new")
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v, %v, want 0640", info.Mode(), err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
		t.Errorf("the folder holds %v, want the file alone", got)
	}
}

// TestTruncate: what is written again takes the place of what was dropped.
func TestTruncate(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "file")
	f := create(t, name, "abcdef")
	if !f.CanTruncate() {
		t.Error("CanTruncate = false, want true")
	}
	for _, step := range []struct {
		size int64
		text string
	}{{2, "XY"}, {4, "Z"}, {0, "new"}} {
		must.Succeed(t, f.Truncate(step.size))
		if _, err := f.Write([]byte(step.text)); err != nil {
			t.Fatal(err)
		}
	}
	must.Succeed(t, f.Keep())
	want(t, name, "new")
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := create(t, filepath.Join(dir, "file"), "half")
	f.Discard()
	f.Discard()
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("the folder holds %v, want nothing", got)
	}
}

// TestLink: a link goes on pointing where it points.
func TestLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	must.Succeed(t, errors.Join(os.WriteFile(target, []byte("old"), 0o600), os.Symlink(target, link)))
	must.Succeed(t, create(t, link, "new").Keep())
	want(t, target, "new")
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v, want a link still", info.Mode(), err)
	}
}

// TestDevice: what is no regular file is written to as it is.
func TestDevice(t *testing.T) {
	t.Parallel()
	f := create(t, os.DevNull, "gone")
	if f.CanTruncate() {
		t.Error("CanTruncate = true, want false")
	}
	if err := f.Keep(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s is %v, %v", os.DevNull, info.Mode(), err)
	}
}

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, path := range map[string]string{"a directory": dir, "no directory": filepath.Join(dir, "no", "file")} {
		if f, err := createWhole(path); err == nil {
			f.Discard()
			t.Errorf("%s: Create = nil, want an error", name)
		}
	}
}

// TestErrorsNameTheFile checks that errors have the name that the user gave, not the temporary one.
func TestErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	check := func(what string, err error) {
		t.Helper()
		if cause, ok := errors.AsType[*fs.PathError](err); !ok || filepath.Base(cause.Path) != "file" || strings.Contains(fmt.Sprint(err), ".part") {
			t.Errorf("%s: %v, want an error about %s", what, err, name)
		}
	}
	_, err := createWhole(filepath.Join(dir, "missing", "file"))
	check("create in a folder that is missing", err)
	f := create(t, name, "text")
	must.Succeed(t, os.Mkdir(name, 0o700))
	check("the name is taken by a folder", f.Keep())
	f = create(t, filepath.Join(dir, "sub-file"), "")
	f.name = name
	_ = f.file.Close()
	_, err = f.Write([]byte("x"))
	check("write to a closed file", err)
	check("truncate a closed file", f.Truncate(0))
	f.Discard()
}
