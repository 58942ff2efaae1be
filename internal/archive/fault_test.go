package archive_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"fetchd/internal/archive"
)

// TestFileChanged truncates and removes files that are written. Records are not lost without an error.
func TestFileChanged(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir})
	records := record(t, a, getRequest, okResponse("hello"), plainExchange(5))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(t.Context()); err == nil {
		t.Errorf("no error although %s is gone", records[0].File)
	}
}

// TestBadExchange commits what a record cannot have. The archive stays open to others.
func TestBadExchange(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir})
	e := plainExchange(-1)
	e.Earlier = &archive.Earlier{ID: "no URI", URL: "http://a/", Date: began}
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
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
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
