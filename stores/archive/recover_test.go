package archive_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fetchd/stores/archive"
	"fetchd/stores/flock"
)

// written returns a file with the records of three exchanges, its name, and where its records end.
func written(t *testing.T) (file []byte, name string, ends []int64) {
	t.Helper()
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir})
	for i := range 3 {
		for _, r := range record(t, a, getRequest, okResponse(body(10+300*i)), plainExchange(int64(10+300*i))) {
			if ends == nil {
				ends = append(ends, r.Offset)
			}
			ends = append(ends, r.Offset+r.Length)
		}
	}
	closeArchive(t, a)
	name = names(t, dir)[0]
	file, err := os.ReadFile(filepath.Join(dir, name))
	must(t, err)
	return file, name, ends
}

// memoryDir returns a directory in memory if there is one: a disk takes long to sync thousands of
// files.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "fetchd-archive")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestRecoverEveryByte cuts a file at every byte, as a process that dies leaves it. The next one
// makes a whole file of its whole records, or none if there are none but warcinfo.
func TestRecoverEveryByte(t *testing.T) {
	file, name, ends := written(t)
	dir := memoryDir(t)
	var files []string // by the length of the file
	for n := range len(file) + 1 {
		one := strings.Replace(name, "~", fmt.Sprintf("~%06d", n), 1)
		files = append(files, one)
		must(t, os.WriteFile(filepath.Join(dir, one+".open"), file[:n], 0o600))
	}
	a := openArchive(t, archive.Config{Dir: dir})
	n, err := a.Clean(t.Context())
	must(t, err)
	closeArchive(t, a)
	if s := a.Stats(); s.Errors != 0 || n > len(files) {
		t.Errorf("%d files, %+v", n, s)
	}
	for i, one := range files {
		length := int64(i)
		var want int64 // the length of its whole records
		for k, end := range ends {
			if k > 0 && end <= length {
				want = end
			}
		}
		got, err := os.ReadFile(filepath.Join(dir, one))
		if want == 0 {
			if !os.IsNotExist(err) {
				t.Fatalf("cut at %d: a file without records: %v", length, err)
			}
			continue
		}
		if err != nil || !bytes.Equal(got, file[:want]) {
			t.Fatalf("cut at %d: %d bytes, want %d: %v", length, len(got), want, err)
		}
	}
	for _, left := range names(t, dir) {
		if strings.HasSuffix(left, ".open") {
			t.Errorf("%s was not recovered", left)
		}
	}
}

// TestRecoverDamage recovers files that a power failure has damaged, and leaves those of others alone.
func TestRecoverDamage(t *testing.T) {
	file, name, ends := written(t)
	zeros := append(bytes.Clone(file[:ends[2]]), make([]byte, 5000)...)
	middle := bytes.Clone(file)
	middle[ends[4]+100] ^= 0xff
	dir := t.TempDir()
	whole := map[string][]byte{ // what a file becomes
		"zeros": file[:ends[2]], "middle": file[:ends[4]], "whole": file,
	}
	for kind, content := range map[string][]byte{"zeros": zeros, "middle": middle, "whole": file} {
		must(t, os.WriteFile(filepath.Join(dir, strings.Replace(name, "~", "~"+kind, 1)+".open"), content, 0o600))
	}
	others := []string{"HERITRIX-1.warc.gz.open", "fetchd-notes.open", "fetchd-1.warc.gz.tmp", ".fetchd-spool", "fetchd-dir.warc.gz.open/file"}
	for _, other := range others {
		path := filepath.Join(dir, other)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte("other"), 0o600))
	}
	must(t, os.WriteFile(filepath.Join(dir, ".fetchd-spool-ABC"), []byte("spool"), 0o600))
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.Symlink(outside, filepath.Join(dir, strings.Replace(name, "~", "~middle", 1)+".damaged")))
	var log bytes.Buffer
	a := openArchive(t, archive.Config{Dir: dir, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	if _, err := a.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	closeArchive(t, a)
	for kind, want := range whole {
		got, err := os.ReadFile(filepath.Join(dir, strings.Replace(name, "~", "~"+kind, 1)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d: %v", kind, len(got), len(want), err)
		}
	}
	for kind, want := range map[string][]byte{"zeros": zeros[ends[2]:], "middle": middle[ends[4]:], "whole": nil} {
		got, _ := os.ReadFile(filepath.Join(dir, strings.Replace(name, "~", "~"+kind, 1)+".damaged"))
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the rest has %d bytes, want %d", kind, len(got), len(want))
		}
	}
	if _, err := os.Lstat(outside); !os.IsNotExist(err) {
		t.Errorf("a file was written through a link: %v", err)
	}
	for _, other := range others {
		if got, err := os.ReadFile(filepath.Join(dir, other)); err != nil || string(got) != "other" {
			t.Errorf("%s: %q, %v", other, got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ".fetchd-spool-ABC")); !os.IsNotExist(err) {
		t.Errorf("the temporary file is there: %v", err)
	}
	if got := strings.Count(log.String(), `"bytes_removed":5000`); got != 1 {
		t.Errorf("log: %s", log.String())
	}
}

// TestRecoverLater recovers a file whose process dies while the archive is open, and not before.
func TestRecoverLater(t *testing.T) {
	file, name, _ := written(t)
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	f, err := os.Create(path + ".open")
	must(t, err)
	defer f.Close()
	must(t, flock.Lock(f))
	if _, err := f.Write(file[:len(file)-10]); err != nil {
		t.Fatal(err)
	}
	a := openArchive(t, archive.Config{Dir: dir})
	if n, err := a.Clean(t.Context()); n != 0 || err != nil {
		t.Errorf("%d files, %v", n, err)
	}
	if _, err := os.Stat(path + ".open"); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil { // unlocks it
		t.Fatal(err)
	}
	until(t, "the file is recovered", func() bool { _, err := os.Stat(path); return err == nil })
	closeArchive(t, a)
	if n := len(readDir(t, dir)); n != 5 {
		t.Errorf("%d records, want 5", n)
	}
}

// TestSingleFile appends to one file, also after a crash.
func TestSingleFile(t *testing.T) {
	for _, name := range []string{"crawl.warc.gz", "crawl.warc"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			var outcomes []archive.Record
			session := func() *archive.Archive {
				a := openArchive(t, archive.Config{File: path, MaxFileBytes: 10, MaxFileAge: time.Nanosecond})
				for range 3 {
					got := record(t, a, getRequest, okResponse(body(100_000)), plainExchange(100_000))
					outcomes = append(outcomes, got...)
					if got[0].File != name {
						t.Errorf("file %s", got[0].File)
					}
				}
				return a
			}
			closeArchive(t, session())
			if first := readFile(t, path); len(first) != 7 || first[0].Filename != name {
				t.Errorf("%d records, file name %q", len(first), first[0].Filename)
			}
			a := session()
			if _, err := archive.Open("again", archive.Config{File: path}); err == nil || !strings.Contains(fmt.Sprint(err), "another process writes") {
				t.Errorf("opened twice: %v", err)
			}
			closeArchive(t, a)
			if err := os.Rename(path, path+".open"); err != nil { // as a crash leaves it
				t.Fatal(err)
			}
			f, err := os.OpenFile(path+".open", os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			part := "WARC/1.1\r\npart"
			if strings.HasSuffix(path, ".gz") {
				part = "\x1f\x8b\x08\x00"
			}
			if _, err := f.WriteString(part); err != nil || f.Close() != nil {
				t.Fatal(err)
			}
			closeArchive(t, session())
			var records []found
			infos := 0
			for _, r := range readFile(t, path) {
				if r.Type == "warcinfo" {
					infos++
				} else {
					records = append(records, r)
				}
			}
			sameAs(t, outcomes, records)
			before, err := os.ReadFile(path)
			if err != nil || infos != 3 {
				t.Errorf("%d warcinfo records, %v", infos, err)
			}
			closeArchive(t, openArchive(t, archive.Config{File: path})) // without a record
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file has changed: %d and %d bytes, %v", len(before), len(after), err)
			}
			if got := names(t, filepath.Dir(path)); len(got) != 1 {
				t.Errorf("files %q", got)
			}
		})
	}
}

// TestSingleFileRefused checks which files records are not appended to.
func TestSingleFileRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	write("both.warc.open", "WARC/1.1\r\n")
	for _, tt := range []struct{ name, path, want string }{
		{"text", write("notes.txt", "my notes"), "is not a WARC file"},
		{"plain content of a compressed name", write("a.warc.gz", "WARC/1.1\r\n"), "is not a WARC file"},
		{"both files", write("both.warc", "WARC/1.1\r\n"), "move one of them"},
		{"directory", dir, "directory"},
		{"no directory", filepath.Join(dir, "none", "a.warc"), "no such file"},
		{"device", os.DevNull, "is not a regular file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := strings.Join(names(t, dir), " ")
			if _, err := archive.Open("one", archive.Config{File: tt.path}); err == nil || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("%v, want %q in it", err, tt.want)
			}
			if after := strings.Join(names(t, dir), " "); after != before {
				t.Errorf("files %s, before %s", after, before)
			}
		})
	}
	path := filepath.Join(dir, "empty.warc.gz")
	closeArchive(t, openArchive(t, archive.Config{File: path}))
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a file without records is there: %v", err)
	}
}
