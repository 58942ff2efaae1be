package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/internal/budget"
	"fetchd/stores/archive"
	"fetchd/warc"
)

// body returns a body of n bytes that compresses little.
func body(n int) string { return random()[:n] }

var random = sync.OnceValue(func() string {
	var b strings.Builder
	for x := uint32(1); b.Len() < 1_000_000; x = x*1664525 + 1013904223 {
		fmt.Fprintf(&b, "%08x", x)
	}
	return b.String()
})

// TestNames checks the names of files while they are written and when they are whole.
func TestNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	a := openArchive(t, archive.Config{Dir: dir})
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("files %q before the first record", got)
	}
	records := record(t, a, getRequest, okResponse("hello"), plainExchange(5))
	want := regexp.MustCompile(`^fetchd-20\d{15}-00001-[A-Za-z0-9._]+~[a-z0-9]{8}\.warc\.gz$`)
	name := records[0].File
	if got := names(t, dir); !want.MatchString(name) || len(got) != 1 || got[0] != name+".open" {
		t.Errorf("outcome has %s, directory has %q", name, got)
	}
	if s := a.Stats(); !s.Up || s.OpenFiles != 1 || s.Requests != 1 || s.Responses != 1 || s.Bytes != uint64(records[0].Length+records[1].Length) {
		t.Errorf("%+v", s)
	}
	sameAs(t, records, readFile(t, filepath.Join(dir, name+".open"))[1:]) // before Close
	closeArchive(t, a)
	if got := names(t, dir); len(got) != 1 || got[0] != name {
		t.Errorf("after Close: %q", got)
	}
}

// TestSpools records messages of many sizes. What is longer than 64 KiB is in a temporary file.
func TestSpools(t *testing.T) {
	const piece = 5000
	for _, size := range []int{1, archive.SmallSize - 44, archive.SmallSize, archive.SmallSize + 1, archive.LargeSize, archive.LargeSize + 1,
		2*archive.LargeSize - 1, 3 * archive.LargeSize, 700_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir := t.TempDir()
			a := openArchive(t, archive.Config{Dir: dir, Redact: []string{"Server"}})
			memory := budget.New(1 << 20).Lease("caller")
			defer memory.Close()
			text := body(size)
			sent := "POST / HTTP/1.1\r\nContent-Length: " + fmt.Sprint(size) + "\r\n\r\n" + text
			received := okResponse(text)
			c := a.Begin(memory)
			for _, m := range []struct {
				text string
				add  func([]byte) error
			}{{sent, c.Sent}, {received, c.Received}} {
				for rest := []byte(m.text); len(rest) > 0; {
					n := min(piece, len(rest))
					p := bytes.Clone(rest[:n])
					must(t, m.add(p))
					clear(p) // a copy is kept
					rest = rest[n:]
				}
			}
			if held := memory.Held(budget.Body); held > 2*archive.LargeSize || size < 3000 && held > 2*archive.SmallSize+archive.LargeSize {
				t.Errorf("%d bytes are held", held)
			}
			if s := a.Stats(); (s.SpoolBytes > 0) != (len(received) > archive.LargeSize) || s.SpoolBytes > 2*int64(len(sent)) {
				t.Errorf("%d bytes are in files", s.SpoolBytes)
			}
			outcome, err := c.Commit(plainExchange(int64(size)))
			must(t, err)
			if held, s := memory.Held(budget.Body), a.Stats(); held != 0 || s.SpoolBytes != 0 {
				t.Errorf("%d bytes are held and %d are in files after Commit", held, s.SpoolBytes)
			}
			if err := errors.Join(c.Sent([]byte("late")), c.Received([]byte("late"))); err != nil {
				t.Error(err)
			}
			if _, err := c.Commit(plainExchange(0)); err == nil {
				t.Error("a second Commit succeeded")
			}
			closeArchive(t, a)
			records := readDir(t, dir)
			sameAs(t, outcome, records)
			if want := strings.Replace(received, "origin", "redacted", 1); records[0].block != sent || records[1].block != want {
				t.Errorf("blocks of %d and %d bytes are not those of the messages", len(records[0].block), len(records[1].block))
			}
		})
	}
}

// TestLimits checks what a capture may hold.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir, MaxSpoolBytes: 4 * archive.LargeSize})
	small := budget.New(1 << 20).Lease("caller")
	defer small.Close()
	if !small.Grow(budget.Fetch, 768<<10-2*archive.SmallSize) { // a caller may have three quarters
		t.Fatal("refused")
	}
	c := a.Begin(small)
	must(t, c.Sent([]byte(getRequest)))
	if err := c.Received(make([]byte, archive.SmallSize+1)); !errors.Is(err, budget.ErrRefused) {
		t.Errorf("without memory: %v", err)
	}
	if _, err := c.Commit(plainExchange(0)); !errors.Is(err, budget.ErrRefused) || small.Held(budget.Body) != 0 {
		t.Errorf("Commit without memory: %v, %d bytes are held", err, small.Total())
	}

	other := budget.New(1 << 20).Lease("other")
	defer other.Close()
	first, second := a.Begin(nil), a.Begin(other)
	must(t, errors.Join(first.Sent([]byte(getRequest)), second.Sent([]byte(getRequest)), first.Received(make([]byte, 3*archive.LargeSize))))
	if err := a.Ready(); err != nil {
		t.Error(err)
	}
	full := func(err error) {
		t.Helper()
		if e, ok := errors.AsType[*archive.Error](err); !ok || e.Reason() != archive.ReasonFull || !strings.HasPrefix(e.Detail(), "store crawl has no space") {
			t.Errorf("%v, want %s", err, archive.ReasonFull)
		}
	}
	full(second.Received(make([]byte, 3*archive.LargeSize)))
	_, err := second.Commit(plainExchange(0))
	full(err)
	if err := first.Received(make([]byte, archive.LargeSize)); err != nil { // three of four in the file
		t.Error(err)
	}
	full(first.Received(make([]byte, archive.LargeSize)))
	if err := a.Ready(); err != nil {
		t.Errorf("a caller has its share, and others are refused: %v", err)
	}
	first.Discard()
	first.Discard()
	if err := a.Ready(); err != nil || a.Stats().SpoolBytes != 0 {
		t.Errorf("after Discard: %v, %+v", err, a.Stats())
	}
	if records := record(t, a, "", "", plainExchange(0)); records != nil {
		t.Errorf("%d records of an exchange of which nothing was sent", len(records))
	}
	closeArchive(t, a)
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("files %q without a record", got)
	}
}

// TestShares lets one caller write to temporary files until it is refused. Others can still record.
func TestShares(t *testing.T) {
	t.Parallel()
	const all = 64 // in units of a piece in a file
	for _, row := range []struct {
		name    string
		callers []string // in the order in which they take what they get
		want    []int64  // pieces
	}{
		{"one caller", []string{"a"}, []int64{48}},
		{"two callers", []string{"a", "b"}, []int64{48, 8}},
		{"a third caller gets a little", []string{"a", "b", "c"}, []int64{48, 8, 1}},
		{"the first caller again", []string{"a", "a"}, []int64{48, 0}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := openArchive(t, archive.Config{Dir: t.TempDir(), MaxSpoolBytes: all * archive.LargeSize})
			for i, caller := range row.callers {
				memory := budget.New(1 << 20).Lease(caller)
				defer memory.Close()
				c, before := a.Begin(memory), a.Stats().SpoolBytes
				defer c.Discard()
				must(t, c.Sent([]byte(getRequest)))
				var err error
				for err == nil {
					err = c.Received(make([]byte, archive.LargeSize))
				}
				if e, ok := errors.AsType[*archive.Error](err); !ok || e.Reason() != archive.ReasonFull {
					t.Errorf("caller %s: %v, want %s", caller, err, archive.ReasonFull)
				}
				if got := (a.Stats().SpoolBytes - before) / archive.LargeSize; got != row.want[i] {
					t.Errorf("caller %s has %d of %d pieces in files, want %d", caller, got, all, row.want[i])
				}
			}
			if err := a.Ready(); err != nil || !a.Stats().Up {
				t.Errorf("the archive refuses every caller: %v", err)
			}
		})
	}
}

// TestRotation checks when a file is made whole.
func TestRotation(t *testing.T) {
	t.Run("by size", func(t *testing.T) {
		dir := t.TempDir()
		a := openArchive(t, archive.Config{Dir: dir, MaxFileBytes: 30_000})
		var outcomes []archive.Record
		for range 20 {
			outcomes = append(outcomes, record(t, a, getRequest, okResponse(body(9000)), plainExchange(9000))...)
		}
		closeArchive(t, a)
		sameAs(t, outcomes, readDir(t, dir))
		if n := len(names(t, dir)); n < 3 || n > 10 {
			t.Errorf("%d files", n)
		}
		for _, name := range names(t, dir) {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() > 40_000 {
				t.Errorf("%v, %v", info, err)
			}
		}
	})
	t.Run("by age", func(t *testing.T) {
		dir := t.TempDir()
		a := openArchive(t, archive.Config{Dir: dir, MaxFileAge: 10 * time.Millisecond})
		outcomes := record(t, a, getRequest, okResponse("hello"), plainExchange(5))
		until(t, "the file is whole without another record", func() bool { return a.Stats().OpenFiles == 0 })
		outcomes = append(outcomes, record(t, a, getRequest, okResponse("hello"), plainExchange(5))...)
		closeArchive(t, a)
		sameAs(t, outcomes, readDir(t, dir))
		if n := len(names(t, dir)); n != 2 {
			t.Errorf("%d files, want 2", n)
		}
	})
}

// TestClose checks what happens to captures when the archive is closed.
func TestClose(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir})
	open := capture(t, a, getRequest, okResponse(body(200_000)))
	record(t, a, getRequest, okResponse("hello"), plainExchange(5))
	closeArchive(t, a)
	for name, c := range map[string]*archive.Capture{"begun before": open, "begun after": capture(t, a, getRequest, okResponse("hello"))} {
		_, err := c.Commit(plainExchange(5))
		if e, ok := errors.AsType[*archive.Error](err); !ok || e.Reason() != archive.ReasonUnavailable || e.Detail() != "store crawl is closed" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a.Ready() == nil || a.Stats().SpoolBytes != 0 || a.Stats().OpenFiles != 0 {
		t.Errorf("%v, %+v", a.Ready(), a.Stats())
	}
	closeArchive(t, a)
	if n := len(readDir(t, dir)); n != 2 {
		t.Errorf("%d records, want 2", n)
	}
}

// TestConcurrentCommits records from many goroutines, with long exchanges between short ones, while
// files rotate.
func TestConcurrentCommits(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir, MaxFileBytes: 300_000, MaxFileAge: 50 * time.Millisecond})
	var mu sync.Mutex
	var outcomes []archive.Record
	want := map[string]string{} // blocks of responses by target URI
	var all sync.WaitGroup
	for worker := range 24 {
		all.Go(func() {
			for i := range 15 {
				size := 100 + 37*i
				if worker%6 == 0 {
					size = 150_000
				}
				e := plainExchange(int64(size))
				e.URL = fmt.Sprintf("http://origin.example/%d/%d", worker, i)
				response := okResponse(body(size))
				c := a.Begin(nil)
				var both sync.WaitGroup
				both.Go(func() { _ = c.Sent([]byte(getRequest)) })
				for rest := []byte(response); len(rest) > 0; {
					n := min(30_000, len(rest))
					if err := c.Received(rest[:n]); err != nil {
						t.Error(err)
					}
					rest = rest[n:]
				}
				both.Wait()
				records, err := c.Commit(e)
				mu.Lock()
				if err == nil {
					outcomes = append(outcomes, records...)
					want[e.URL] = response
				} else {
					t.Error(err)
				}
				mu.Unlock()
				if open := a.Stats().OpenFiles; open > 8 {
					t.Errorf("%d files are open", open)
				}
			}
		})
	}
	all.Wait()
	closeArchive(t, a)
	records := readDir(t, dir)
	sameAs(t, outcomes, records)
	for _, r := range records {
		if r.Type == warc.Response && r.block != want[r.TargetURI] {
			t.Errorf("%s: the block has %d bytes and is not the response", r.TargetURI, len(r.block))
		}
	}
	if s := a.Stats(); s.SpoolBytes != 0 || s.Errors != 0 || s.Requests != uint64(len(records))/2 {
		t.Errorf("%+v", s)
	}
}

// TestCloseDuringCommits closes the archive while commits are in flight. Each one is whole or fails. With
// a single file, most of them wait for it.
func TestCloseDuringCommits(t *testing.T) {
	for name, single := range map[string]bool{"several files": false, "a single file": true} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				dir := t.TempDir()
				c := archive.Config{Dir: dir}
				if single {
					c.File = filepath.Join(dir, "crawl.warc.gz")
				}
				closeDuringCommits(t, openArchive(t, c), dir)
			}
		})
	}
}

func closeDuringCommits(t *testing.T, a *archive.Archive, dir string) {
	t.Helper()
	var mu sync.Mutex
	var outcomes []archive.Record
	var all sync.WaitGroup
	started := make(chan struct{}, 1)
	for range 6 {
		all.Go(func() {
			for {
				records, err := capture(t, a, getRequest, okResponse(body(300_000))).Commit(plainExchange(300_000))
				select {
				case started <- struct{}{}:
				default:
				}
				if e, ok := errors.AsType[*archive.Error](err); ok && e.Reason() == archive.ReasonUnavailable {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				outcomes = append(outcomes, records...)
				mu.Unlock()
			}
		})
	}
	<-started
	if err := a.Close(context.Background()); err != nil {
		t.Error(err)
	}
	all.Wait()
	sameAs(t, outcomes, readDir(t, dir))
}

// TestManyLong commits long exchanges while others use all turns of long ones. A short exchange does
// not wait for them.
func TestManyLong(t *testing.T) {
	long := body(100_000)
	synctest.Test(t, func(t *testing.T) {
		a := openArchive(t, archive.Config{Dir: t.TempDir()})
		release := archive.Occupy(a)
		var all sync.WaitGroup
		var ended atomic.Int32
		for range 10 {
			c := capture(t, a, getRequest, okResponse(long))
			all.Go(func() {
				if _, err := c.Commit(plainExchange(100_000)); err != nil {
					t.Error(err)
				}
				ended.Add(1)
			})
		}
		synctest.Wait()
		record(t, a, getRequest, okResponse("hello"), plainExchange(5))
		if n := ended.Load(); n > 0 {
			t.Errorf("%d long exchanges were recorded without a turn", n)
		}
		release()
		all.Wait()
		closeArchive(t, a)
	})
}
