package frontier

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
)

// shelf stores bodies in memory.
type shelf struct {
	refuse func(digest string) error
	before func(digest string) // is called first

	mu   sync.Mutex
	kept map[string]int // by digest
	bad  []string
	open int // bodies that were not dropped
	full int // writes that fail

	narrow  int     // bodies that have no room
	reserve func()  // is called by each wait for room; may be nil
	waited  []int64 // for so many bytes

	empty   bool   // an empty body is right
	written func() // is called for each piece; may be nil
}

func (s *shelf) New(context.Context) Body {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return &shelved{shelf: s}
}

func (s *shelf) Lacks(sha256 string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[sha256] == 0
}

// shelved is a body of a shelf.
type shelved struct {
	shelf *shelf
	bytes.Buffer
}

func (b *shelved) Write(p []byte) (int, error) {
	b.shelf.mu.Lock()
	defer b.shelf.mu.Unlock()
	if b.shelf.written != nil {
		b.shelf.written()
	}
	if b.shelf.narrow > 0 && b.Len() > 0 {
		b.shelf.narrow--
		return 0, &NoRoomError{int64(b.Len())}
	}
	if b.shelf.full > 0 && b.Len() > 0 {
		b.shelf.full--
		return 0, errors.New("the disk is full")
	}
	return b.Buffer.Write(p)
}

func (b *shelved) Reserve(ctx context.Context, bytes int64) error {
	b.shelf.mu.Lock()
	b.shelf.waited = append(b.shelf.waited, bytes)
	b.shelf.mu.Unlock()
	if b.shelf.reserve == nil {
		return nil
	}
	b.shelf.reserve()
	<-ctx.Done()
	return ctx.Err()
}

func (b *shelved) Truncate(size int64) error { b.Buffer.Truncate(int(size)); return nil }

func (b *shelved) Drop() {
	b.shelf.mu.Lock()
	defer b.shelf.mu.Unlock()
	b.shelf.open--
}

func (b *shelved) Commit(digest string, last []byte) error {
	b.Buffer.Write(last)
	return b.shelf.keep(digest, b.Bytes())
}

func (s *shelf) keep(digest string, body []byte) error {
	if s.before != nil {
		s.before(digest)
	}
	if s.refuse != nil {
		if err := s.refuse(digest); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = make(map[string]int)
	}
	s.kept[digest]++
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != digest || len(body) == 0 && !s.empty {
		s.bad = append(s.bad, digest)
	}
	return nil
}

// TestBodies checks that each body is stored once, under its digest, before its outcome is
// recorded.
func TestBodies(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	s := &shelf{before: func(digest string) {
		for f, err := range r.store.Fetches(t.Context()) {
			if err != nil || f.BodyDigest == digest {
				t.Errorf("%+v, %v: recorded before its body was kept", f, err)
			}
		}
	}}
	r.config.Bodies = s
	r.config.Policy.MaxURLRetries = 0
	r.add(r.site.URL("a", "/p/1"), r.site.URL("b", "/p/1"), r.site.URL("a", "/missing"), r.site.URL("b", "/s/k/500:size=9"))
	if stats := r.crawl(); stats.Completed != 2 || stats.Dead != 2 {
		t.Errorf("%+v, want two fetched and two dead", stats)
	}
	if len(s.kept) != 2 || len(s.bad) > 0 || s.open != 0 {
		t.Errorf("kept %v, of them not what their digest says %q; want two. %d bodies were not dropped", s.kept, s.bad, s.open)
	}
	for f, err := range r.store.Fetches(t.Context()) {
		must(t, err)
		want := 0
		if f.Status == store.Fetched {
			want = 1
		}
		if s.kept[f.BodyDigest] != want {
			t.Errorf("%+v: its body was kept %d times, want %d", f, s.kept[f.BodyDigest], want)
		}
	}
}

// TestLongBodies checks that a body that arrives in pieces is stored whole or not at all, whatever
// happens on the way.
func TestLongBodies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path string
		limit      int64
		full       int
		status     store.Status
		bytes      int64
		requests   int
	}{
		{"whole", "/s/k/200:size=3000000", 0, 0, store.Fetched, 3_000_000, 1},
		{"at the limit", "/s/k/200:size=3000000", 3_000_000, 0, store.Fetched, 3_000_000, 1},
		{"over the limit", "/s/k/200:size=3000001,chunked", 3_000_000, 0, store.Dead, 0, 1},
		{"over the default limit", "/s/k/200:size=16777217", 0, 0, store.Dead, 0, 1},
		{"interrupted, then whole", "/s/k/200:size=3000000,cut=2000000/200:size=3000000", 0, 0, store.Fetched, 3_000_000, 2},
		{"interrupted, then empty", "/s/k/200:size=3000000,cut=2000000/200:size=0", 0, 0, store.Fetched, 0, 2},
		{"interrupted, then shorter", "/s/k/200:size=3000000,cut=2000000/200:size=70000", 0, 0, store.Fetched, 70_000, 2},
		{"interrupted, then resumed", "/s/k/200:size=3000000,cut=2000000,etag=%22v%22,range/200:size=3000000,etag=%22v%22,range", 0, 0, store.Fetched, 3_000_000, 2},
		{"interrupted for good", "/s/k/200:size=3000000,cut=2000000", 0, 0, store.Dead, 0, 2},
		{"interrupted, then a 404", "/s/k/200:size=3000000,cut=2000000/404", 0, 0, store.Dead, 0, 2},
		{"a part", "/s/k/206:size=3000000,header=Content-Range=bytes%200-2999999%2F9000000", 0, 0, store.Dead, 0, 1},
		{"it cannot be written", "/s/k/200:size=3000000", 0, 1, store.Fetched, 3_000_000, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, time.Millisecond, site.Config{})
			s := &shelf{full: row.full, empty: true}
			r.config.Bodies, r.config.MaxBodyBytes, r.config.MaxAttempts = s, row.limit, 2
			r.config.Policy.MaxURLRetries = 0
			r.add(r.site.URL("a", row.path))
			r.crawl()
			got := r.recorded()
			if len(got) != 1 || got[0].Status != string(row.status) || row.status == store.Fetched && got[0].Bytes != row.bytes {
				t.Fatalf("%+v, want %s with %d bytes", got, row.status, row.bytes)
			}
			want := map[string]int{}
			if row.status == store.Fetched {
				sum := sha256.Sum256(r.site.Origin().Body(row.bytes))
				want[hex.EncodeToString(sum[:])] = 1
			}
			if !maps.Equal(s.kept, want) || len(s.bad) > 0 || s.open != 0 {
				t.Errorf("kept %v, want %v; %q are not what their digests say, %d were not dropped", s.kept, want, s.bad, s.open)
			}
			if n := r.site.Count(); n != row.requests {
				t.Errorf("%d requests, want %d", n, row.requests)
			}
		})
	}
}

// TestBodyNotStored checks that a fetch whose body cannot be stored is not recorded, its host is
// delayed, and the worker pauses claims.
func TestBodyNotStored(t *testing.T) {
	t.Parallel()
	const delay = 100 * time.Millisecond
	r := newRig(t, delay, site.Config{})
	u := r.site.URL("a", "/p/1")
	var w *Worker
	s := &shelf{}
	var mu sync.Mutex
	failures := 0
	s.refuse = func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if failures++; failures < 3 {
			return errors.New("the disk is full")
		}
		return nil
	}
	s.before = func(string) {
		if len(r.recorded()) > 0 || w.backoff.wait() > 0 {
			t.Error("a fetch while nothing can be kept, or one that was recorded")
		}
	}
	r.config.Bodies = s
	r.add(u)
	w = r.worker()
	must(t, w.Run(t.Context()))
	got, visits := r.row(u), r.site.Visits()
	if got.Status != store.Fetched || got.FailureCount != 0 || got.CrashCount != 0 || len(r.recorded()) != 1 || w.Stats().Errors != 2 {
		t.Errorf("%+v, %d records, %+v; want it fetched after two errors, once", got, len(r.recorded()), w.Stats())
	}
	if early := site.Early(visits, delay, nil); len(visits) != 3 || len(early) > 0 {
		t.Errorf("%d requests, want 3; too early: %v", len(visits), early)
	}
	for i, pause := range []time.Duration{time.Second, 2 * time.Second} {
		if d := visits[i+1].Start - visits[i].End; d < pause {
			t.Errorf("request %d came %v after the one before, want %v and more", i+2, d, pause)
		}
	}
	if w.backoff.wait() > 0 {
		t.Error("claims are still delayed although a body was stored")
	}
}

// TestBodyWithoutRoom checks that a body without room is fetched again when there is room, with the delay of its
// host, and that this counts neither as a failure of the URL nor of the place.
func TestBodyWithoutRoom(t *testing.T) {
	t.Parallel()
	const delay = 100 * time.Millisecond
	for _, row := range []struct {
		name     string
		path     func(r *rig) string
		max      int64
		narrow   int
		waited   []int64
		requests int
	}{
		{"once", func(*rig) string { return "/s/k/200:size=3000000" }, 0, 1, []int64{minRoom}, 2},
		{"more than once", func(*rig) string { return "/s/k/200:size=3000000" }, 0, 3, []int64{minRoom, minRoom, minRoom}, 4},
		{"a smaller maximum", func(*rig) string { return "/s/k/200:size=3000000" }, 4_000_000, 1, []int64{4_000_000}, 2},
		{"behind a redirect to another host", func(r *rig) string { return redirectTo(302, r.site.URL("b", "/s/k/200:size=3000000")) }, 0, 1, []int64{minRoom}, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, delay, site.Config{})
			s := &shelf{narrow: row.narrow}
			r.config.Bodies, r.config.MaxBodyBytes = s, row.max
			r.add(r.site.URL("a", row.path(r)))
			stats := r.crawl()
			got, visits := r.recorded(), r.site.Visits()
			if len(got) != 1 || got[0].Status != string(store.Fetched) || got[0].RetryCount != 0 || stats.Errors != 0 {
				t.Errorf("%+v and %+v, want it fetched without errors", got, stats)
			}
			for i := range visits { // the origin notices the end of a cancelled request late
				visits[i].End = visits[i].Start
			}
			early := site.Early(visits, delay, nil)
			if len(visits) != row.requests || len(early) > 0 {
				t.Errorf("%d requests, want %d; too early: %v", len(visits), row.requests, early)
			}
			if !slices.Equal(s.waited, row.waited) || len(s.kept) != 1 || len(s.bad) > 0 || s.open != 0 {
				t.Errorf("waited for %v, want %v; kept %v, %q are not what their digests say, %d were not dropped", s.waited, row.waited, s.kept, s.bad, s.open)
			}
		})
	}
}

// TestEndWithoutRoom checks that a worker which stops does not wait for room, and gives the URL back.
func TestEndWithoutRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	ctx, stop := context.WithCancel(t.Context())
	s := &shelf{narrow: 1, reserve: stop}
	r.config.Bodies = s
	u := r.site.URL("a", "/s/k/200:size=3000000")
	r.add(u)
	if err := r.worker().Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want %v", err, context.Canceled)
	}
	if got := r.row(u); got.Status != store.Pending || got.CrashCount != 0 || got.FailureCount != 0 || len(r.recorded()) != 0 || s.open != 0 {
		t.Errorf("%+v and %d records, %d bodies open; want it pending", got, len(r.recorded()), s.open)
	}
}

// TestBodyChanged checks that a URL whose body has changed on its way is retried later, and that its error has
// both digests.
func TestBodyChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	u := r.site.URL("a", "/p/1")
	var want string
	s := &shelf{refuse: func(digest string) error {
		if want != "" {
			return nil
		}
		err := &DigestError{Got: strings.Repeat("0", 64), Want: digest}
		want = fmt.Sprint("integrity: ", err)
		return err
	}}
	r.config.Bodies, r.config.Policy.RetryDelay = s, time.Millisecond
	r.add(u)
	w := r.worker()
	must(t, w.Run(t.Context()))
	got := r.recorded()
	if len(got) != 2 || got[0].Status != string(store.Failed) || got[0].LastError != want || got[0].BodySHA256 != "" || got[1].Status != string(store.Fetched) {
		t.Errorf("%+v, want %q, then the body", got, want)
	}
	if w.Stats().Errors != 0 || w.backoff.wait() > 0 || s.open != 0 {
		t.Errorf("%+v, claims wait for %v, %d bodies are open; want neither errors nor waits", w.Stats(), w.backoff.wait(), s.open)
	}
}

// recorded returns the outcomes reported so far.
func (r *rig) recorded() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Record(nil), r.records...)
}

// TestBodyCancelled checks that a fetch that is cancelled in the middle of its body leaves no body,
// and gives its URL back.
func TestBodyCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	ctx, stop := context.WithCancel(t.Context())
	s := &shelf{written: stop}
	r.config.Bodies, r.config.DrainTime = s, time.Millisecond
	u := r.site.URL("a", "/s/k/200:size=10000000,stall=3000000")
	r.add(u)
	if err := r.worker().Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want %v", err, context.Canceled)
	}
	if got := r.row(u); got.Status != store.Pending || got.CrashCount != 0 || len(r.recorded()) != 0 {
		t.Errorf("%+v and %d records, want it pending", got, len(r.recorded()))
	}
	if len(s.kept) > 0 || s.open != 0 {
		t.Errorf("kept %v, and %d bodies were not dropped", s.kept, s.open)
	}
}
