package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fetchd/stores/archive"
)

// bucket takes files.
type bucket struct {
	mu    sync.Mutex
	files map[string][]byte
	fails int // of the next uploads
	calls int
}

func (b *bucket) upload(_ context.Context, name string, f *os.File, size int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if b.fails > 0 {
		b.fails--
		return errors.New("the bucket is down")
	}
	content, err := io.ReadAll(f)
	if err != nil || int64(len(content)) != size || b.files[name] != nil {
		return fmt.Errorf("%s: %d bytes of %d, there before: %t: %w", name, len(content), size, b.files[name] != nil, err)
	}
	if b.files == nil {
		b.files = map[string][]byte{}
	}
	b.files[name] = bytes.Clone(content)
	return nil
}

// records writes the files to a directory and reads them.
func (b *bucket) records(t *testing.T) []found {
	t.Helper()
	dir := t.TempDir()
	for name, content := range b.files {
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return readDir(t, dir)
}

// TestUpload uploads whole files, again after errors, and removes them.
func TestUpload(t *testing.T) {
	dir := t.TempDir()
	b := &bucket{fails: 5}
	a := openArchive(t, archive.Config{Dir: dir, Upload: b.upload, MaxFileBytes: 1})
	var outcomes []archive.Record
	for range 4 {
		outcomes = append(outcomes, record(t, a, getRequest, okResponse("hello"), plainExchange(5))...)
	}
	closeArchive(t, a)
	sameAs(t, outcomes, b.records(t))
	if got := names(t, dir); len(got) != 0 || len(b.files) != 4 {
		t.Errorf("%d files were uploaded, %q are left", len(b.files), got)
	}
	if s := a.Stats(); s.Errors != 5 || s.WaitingFiles != 0 || s.WaitingBytes != 0 {
		t.Errorf("%+v", s)
	}
}

// TestUploadLater closes an archive before its files are uploaded. The next one uploads them, and those
// of a process that died.
func TestUploadLater(t *testing.T) {
	dir := t.TempDir()
	down := &bucket{fails: 1 << 30}
	a := openArchive(t, archive.Config{Dir: dir, Upload: down.upload})
	outcomes := record(t, a, getRequest, okResponse("hello"), plainExchange(5))
	if err := a.Close(ended()); err == nil || !strings.Contains(fmt.Sprint(err), "1 files in "+dir+" wait for their upload") {
		t.Error(err)
	}
	closeArchive(t, a) // reports it once
	dead, name, _ := written(t)
	must(t, os.WriteFile(filepath.Join(dir, name+".open"), dead[:len(dead)-1], 0o600))
	b := new(bucket)
	a = openArchive(t, archive.Config{Dir: dir, Upload: b.upload})
	until(t, "both files are uploaded", func() bool { return len(names(t, dir)) == 0 })
	closeArchive(t, a)
	var ours []found
	for _, r := range b.records(t) {
		if r.file == outcomes[0].File {
			ours = append(ours, r)
		}
	}
	sameAs(t, outcomes, ours)
	if got := len(b.files[name]); got < len(dead)/2 || got == len(dead) {
		t.Errorf("%d bytes of the dead process were uploaded", got)
	}
}

// TestUploadFull refuses records while files that wait use all of the space.
func TestUploadFull(t *testing.T) {
	dir := t.TempDir()
	b := &bucket{fails: 1 << 30}
	a := openArchive(t, archive.Config{Dir: dir, Upload: b.upload, MaxFileBytes: 1, MaxSpoolBytes: 5000})
	for a.Ready() == nil {
		record(t, a, getRequest, okResponse(body(1000)), plainExchange(1000))
		until(t, "the file is whole", func() bool { return a.Stats().OpenFiles == 0 })
	}
	e, ok := errors.AsType[*archive.Error](a.Ready())
	if s := a.Stats(); !ok || e.Reason() != archive.ReasonFull || s.Up || s.WaitingBytes < 5000 || s.WaitingFiles < 2 || s.OldestWaiting <= 0 {
		t.Errorf("%v, %+v", e, s)
	}
	b.mu.Lock()
	b.fails = 0
	b.mu.Unlock()
	until(t, "records are taken again", func() bool { return a.Ready() == nil && a.Stats().Up })
	closeArchive(t, a)
}

// TestUploadsOfTwo opens an archive twice, as two processes do. Each file is uploaded once.
func TestUploadsOfTwo(t *testing.T) {
	dir := t.TempDir()
	b := new(bucket)
	var two [2]*archive.Archive
	for i := range two {
		two[i] = openArchive(t, archive.Config{Dir: dir, Upload: b.upload, MaxFileBytes: 1})
	}
	var outcomes []archive.Record
	for i := range 40 {
		outcomes = append(outcomes, record(t, two[i%2], getRequest, okResponse("hello"), plainExchange(5))...)
	}
	closeArchive(t, two[0])
	closeArchive(t, two[1])
	if b.calls != 40 || len(names(t, dir)) != 0 {
		t.Errorf("%d uploads, files %q are left", b.calls, names(t, dir))
	}
	sameAs(t, outcomes, b.records(t))
}
