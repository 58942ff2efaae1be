package archive_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"fetchd/stores/archive"
)

// TestFileChanged truncates and removes files that are written. Records are not lost without an error.
func TestFileChanged(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir})
	records := record(t, a, getRequest, okResponse("hello"), plainExchange(5))
	must(t, os.RemoveAll(dir))
	if err := a.Close(t.Context()); err == nil {
		t.Errorf("no error although %s is gone", records[0].File)
	}
}

// TestFileRemoved removes the file that is written, and then the directory. The next records are in a file that
// has a name, or the commit fails.
func TestFileRemoved(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir})
	first := record(t, a, getRequest, okResponse("hello"), plainExchange(5))
	must(t, os.Remove(filepath.Join(dir, first[0].File+".open")))
	second := record(t, a, getRequest, okResponse("hello"), plainExchange(5))
	if got := names(t, dir); len(got) != 1 || got[0] != second[0].File+".open" || second[0].File == first[0].File {
		t.Errorf("files %q, records in %s and then in %s", got, first[0].File, second[0].File)
	}
	must(t, os.RemoveAll(dir))
	_, err := capture(t, a, getRequest, okResponse("hello")).Commit(plainExchange(5))
	if e, ok := errors.AsType[*archive.Error](err); !ok || e.Reason() != archive.ReasonError {
		t.Errorf("without the directory: %v, want store_error", err)
	}
	if err := a.Close(t.Context()); err == nil {
		t.Error("no error although records are lost")
	}
}

// TestBrokenSingle breaks the only file of an archive. No other file is created.
func TestBrokenSingle(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{File: filepath.Join(dir, "a.warc")})
	record(t, a, getRequest, okResponse("hello"), plainExchange(5))
	a.Break()
	for range 10 {
		_, err := capture(t, a, getRequest, okResponse("hello")).Commit(plainExchange(5))
		if e, ok := errors.AsType[*archive.Error](err); !ok || e.Reason() != archive.ReasonError {
			t.Fatal(err)
		}
	}
	if a.Ready() == nil {
		t.Error("the archive is ready")
	}
	if err := a.Close(t.Context()); err == nil {
		t.Error("no error although the file is not whole")
	}
	if got := names(t, dir); len(got) != 1 || got[0] != "a.warc.open" {
		t.Errorf("files %q, want a.warc.open", got)
	}
	if got := readFile(t, filepath.Join(dir, "a.warc.open")); len(got) != 3 {
		t.Errorf("%d records, want 3", len(got))
	}
}

// TestBadExchange commits what a record cannot have. The archive stays open to others.
func TestBadExchange(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir})
	e := plainExchange(-1)
	e.Earlier = &archive.Earlier{ID: "no URI", URL: e.URL, Date: began}
	e.Bodyless = true
	for range 10 {
		_, err := capture(t, a, getRequest, "HTTP/1.1 304 Not Modified\r\n\r\n").Commit(e)
		if e, ok := errors.AsType[*archive.Error](err); !ok || e.Reason() != archive.ReasonError || e.Detail() != "store crawl: write record: the record cannot be written" {
			t.Fatal(err)
		}
	}
	if err := a.Ready(); err != nil || !a.Stats().Up {
		t.Error(err)
	}
	outcomes := record(t, a, getRequest, okResponse("hello"), plainExchange(5))
	closeArchive(t, a)
	sameAs(t, outcomes, readDir(t, dir))
}

// TestOpenErrors checks what keeps an archive from being opened.
func TestOpenErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]archive.Config{
		"a file as the directory":        {Dir: file},
		"a negative size":                {Dir: t.TempDir(), MaxFileBytes: -1},
		"a negative age":                 {Dir: t.TempDir(), MaxFileAge: -1},
		"a negative spool":               {Dir: t.TempDir(), MaxSpoolBytes: -1},
		"an operator of two lines":       {Dir: t.TempDir(), Operator: "a\nb"},
		"a single file that is uploaded": {File: filepath.Join(t.TempDir(), "a.warc"), Upload: new(bucket).upload},
	} {
		if a, err := archive.Open("crawl", c); err == nil {
			t.Errorf("%s: no error", name)
			closeArchive(t, a)
		}
	}
}

// TestBrokenFile checks that a file that cannot even be truncated is not used again, keeps the name of
// an open one, and is recovered later.
func TestBrokenFile(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir})
	outcomes := record(t, a, getRequest, okResponse("hello"), plainExchange(5))
	a.Break()
	_, err := capture(t, a, getRequest, okResponse("hello")).Commit(plainExchange(5))
	if e, ok := errors.AsType[*archive.Error](err); !ok || e.Reason() != archive.ReasonError {
		t.Fatal(err)
	}
	outcomes = append(outcomes, record(t, a, getRequest, okResponse("hello"), plainExchange(5))...)
	if outcomes[0].File == outcomes[2].File {
		t.Error("the file is used again")
	}
	until(t, "the file is recovered", func() bool { _, err := os.Stat(filepath.Join(dir, outcomes[0].File)); return err == nil })
	if err := a.Close(t.Context()); err == nil {
		t.Error("Close reports no error")
	}
	sameAs(t, outcomes, readDir(t, dir))
	if s := a.Stats(); s.Errors < 2 || s.OpenFiles != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPause refuses records after five failures in a row, and takes them again after a pause. The time is
// that of a bubble: a slow machine does not end the pause.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		gone := filepath.Join(dir, "gone")
		a := openArchive(t, archive.Config{Dir: gone})
		must(t, os.RemoveAll(gone))
		for i := range 5 {
			if err := a.Ready(); err != nil {
				t.Errorf("after %d failures: %v", i, err)
			}
			if _, err := capture(t, a, getRequest, okResponse("hello")).Commit(plainExchange(5)); err == nil {
				t.Fatal("no error without a directory")
			}
		}
		if e, ok := errors.AsType[*archive.Error](a.Ready()); !ok || e.Reason() != archive.ReasonUnavailable || a.Stats().Up {
			t.Errorf("%v, %+v", a.Ready(), a.Stats())
		}
		must(t, os.Mkdir(gone, 0o700))
		until(t, "the archive is ready", func() bool { return a.Ready() == nil })
		if a.Stats().Up {
			t.Error("up before a success")
		}
		outcomes := record(t, a, getRequest, okResponse("hello"), plainExchange(5))
		if !a.Stats().Up {
			t.Error("down after a success")
		}
		closeArchive(t, a)
		sameAs(t, outcomes, readDir(t, gone))
	})
}
