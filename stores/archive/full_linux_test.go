package archive_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"fetchd/stores/archive"
	"fetchd/test/need"
)

// TestFullDisk records until the disk is full, with exchanges of several sizes. What was written stays
// whole, and recording goes on when there is space again.
func TestFullDisk(t *testing.T) {
	for name, size := range map[string]int{"small": 900, "one piece": 50_000, "spooled": 90_000} {
		t.Run(name, func(t *testing.T) {
			dir := need.SmallDisk(t, "size=256k")
			synctest.Test(t, func(t *testing.T) { // a slow machine does not end the pause after failures
				ballast := filepath.Join(dir, "ballast")
				must(t, os.WriteFile(ballast, make([]byte, 100<<10), 0o600))
				a := openArchive(t, archive.Config{Dir: dir})
				var outcomes []archive.Record
				failures := 0
				for range 1000 {
					c := a.Begin(nil)
					err := errors.Join(c.Sent([]byte(getRequest)), c.Received([]byte(okResponse(body(size)))))
					records, committed := c.Commit(plainExchange(int64(size)))
					if err == nil {
						err = committed
					}
					if err == nil {
						outcomes = append(outcomes, records...)
						continue
					}
					if records != nil {
						t.Error("a failed commit has records")
					}
					if e, ok := errors.AsType[*archive.Error](err); !ok || e.Reason() != archive.ReasonFull ||
						!strings.HasSuffix(e.Detail(), ": no space left on device") {
						t.Fatalf("%v, want %s", err, archive.ReasonFull)
					}
					if failures++; failures == 5 {
						break
					}
				}
				if failures < 5 || len(outcomes) == 0 {
					t.Fatalf("%d failures, %d records", failures, len(outcomes))
				}
				if e, ok := errors.AsType[*archive.Error](a.Ready()); !ok || e.Reason() != archive.ReasonFull || a.Stats().Up || a.Stats().Errors < 5 {
					t.Errorf("%v, %+v", a.Ready(), a.Stats())
				}
				must(t, os.Remove(ballast))
				until(t, "the archive is ready after a pause", func() bool { return a.Ready() == nil })
				outcomes = append(outcomes, record(t, a, getRequest, okResponse("hello"), plainExchange(5))...)
				if !a.Stats().Up {
					t.Error("down after a success")
				}
				closeArchive(t, a)
				sameAs(t, outcomes, readDir(t, dir))
			})
		})
	}
}

// TestFileLimit records until files cannot grow (EFBIG). Other files take the next records.
func TestFileLimit(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir})
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	limit := before
	limit.Cur = 4 << 20 // the log of the tests is a file, too
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before) }()
	var outcomes []archive.Record
	failures := 0
	for range 30 {
		records, err := capture(t, a, getRequest, okResponse(body(1_000_000))).Commit(plainExchange(1_000_000))
		if e, ok := errors.AsType[*archive.Error](err); ok && e.Reason() == archive.ReasonError && strings.HasSuffix(e.Detail(), "file too large") {
			failures++
		} else {
			must(t, err)
		}
		outcomes = append(outcomes, records...)
	}
	closeArchive(t, a)
	sameAs(t, outcomes, readDir(t, dir))
	if n := len(names(t, dir)); failures < 2 || failures > n || len(outcomes) != 2*(30-failures) {
		t.Errorf("%d failures, %d files, %d records", failures, n, len(outcomes))
	}
}
