package rulebook

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/frontier/robots"
	"fetchd/frontier/store"
	"fetchd/test/must"
)

// robotsShelf is a store of robots.txt rows that counts the reads of their bodies.
type robotsShelf struct {
	store.Store
	body  []byte
	gate  chan struct{} // a read of a body waits until it receives a value or is closed
	heads func(origin string) (store.Robots, bool)

	mu    sync.Mutex
	reads map[string]int // by origin
	now   int
	saves int
}

func (s *robotsShelf) Robots(ctx context.Context, origins []string) (map[string]store.Robots, error) {
	s.mu.Lock()
	s.now++
	for _, o := range origins {
		s.reads[o]++
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	select {
	case <-s.gate:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	found := make(map[string]store.Robots)
	for _, o := range origins {
		found[o] = store.Robots{Origin: o, Status: 200, HasBody: true, BodyStatus: 200, Body: s.body}
	}
	return found, nil
}

func (s *robotsShelf) RobotsHeads(_ context.Context, origins []string) (map[string]store.Robots, error) {
	found := make(map[string]store.Robots)
	for _, o := range origins {
		if r, ok := s.heads(o); ok {
			r.Origin = o
			found[o] = r
		}
	}
	return found, nil
}

func (s *robotsShelf) SaveRobots(context.Context, store.Robots) error {
	s.saves++
	return nil
}

// newRobotsShelf returns a book on a robotsShelf where every origin has the same file.
func newRobotsShelf(t *testing.T, body string) (*Book, *robotsShelf) {
	t.Helper()
	s := &robotsShelf{body: []byte(body), gate: make(chan struct{}), reads: make(map[string]int)}
	s.heads = func(string) (store.Robots, bool) {
		return store.Robots{Status: 200, HasBody: true, BodySize: shortFile + 1}, true
	}
	b := New(Config{Store: s, Agent: "frontier", RetryDelay: time.Minute, Patience: time.Hour, MaxDelay: time.Minute})
	b.Storing = t.Context()
	return b, s
}

// longRules returns a file whose rules use the maximum of memory.
func longRules() string {
	return "User-agent: *\n" + strings.Repeat("Disallow: /private\n", robots.MaxBytes/20)
}

// TestRulebookIsBounded checks that the entries stay within maxBytes, and that the
// last one is kept.
func TestRulebookIsBounded(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, body string
		n          int
	}{
		{"many", "", 400_000},
		{"long", longRules(), 200},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := New(Config{})
			e := New(Config{Agent: "frontier"}).entryOf(store.Robots{Status: 200, Body: []byte(row.body)})
			for n := range row.n {
				origin := fmt.Sprintf("http://h%d.test", n)
				b.keep(origin, e)
				if _, ok := b.Known(origin); !ok {
					t.Fatalf("%s is not known", origin)
				}
				b.keep(origin, e) // counts once
			}
			sum := 0
			for origin, e := range b.entries {
				sum += e.size(origin)
			}
			if b.bytes != sum || sum > maxBytes || sum < maxBytes*9/10 {
				t.Errorf("%d entries of %d bytes, counted as %d; want at most %d", len(b.entries), sum, b.bytes, maxBytes)
			}
		})
	}
}

// TestRulebookKeepsShortFiles checks that short files stay when many long ones are added.
func TestRulebookKeepsShortFiles(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	short := New(Config{Agent: "frontier"}).entryOf(store.Robots{Status: 200, Body: []byte("User-agent: *\nDisallow: /p\n")})
	long := New(Config{Agent: "frontier"}).entryOf(store.Robots{Status: 200, Body: []byte(longRules())})
	const shorts = 20
	for n := range shorts {
		b.keep(fmt.Sprintf("http://short%d.test", n), short)
	}
	for n := range 10_000 {
		b.keep(fmt.Sprintf("http://long%d.test", n), long)
	}
	left := 0
	for n := range shorts {
		if _, ok := b.Known(fmt.Sprintf("http://short%d.test", n)); ok {
			left++
		}
	}
	if left < shorts*9/10 {
		t.Errorf("%d of %d short files are known", left, shorts)
	}
}

// TestPrepareOnce checks that long files that many callers ask for at once are read once
// each and one at a time, and that a short one does not wait for them.
func TestPrepareOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := newRobotsShelf(t, "User-agent: *\nDisallow: /p/\n")
		const origins, callers = 5, 20
		var wg sync.WaitGroup
		for n := range origins * callers {
			origin := fmt.Sprintf("http://h%d.test", n%origins)
			wg.Go(func() {
				e, err := b.Rules(t.Context(), origin)
				if d := e.Policy.Decide("/p/1"); err != nil || !e.Fresh() || d.Allowed {
					t.Errorf("rules(%s) = %+v, %v; want it fresh, and /p/1 forbidden", origin, e, err)
				}
			})
		}
		synctest.Wait()
		if s.now != 1 {
			t.Errorf("%d long files are being read, want 1", s.now)
		}
		short := func(context.Context) (store.Robots, bool, error) { return store.Robots{Status: 200}, true, nil }
		p, _ := b.prepare("http://short.test", 0, short)
		synctest.Wait()
		if !p.Ended() {
			t.Error("a short file waits for long ones")
		}
		for range origins { // each is as slow as the first
			s.gate <- struct{}{}
			synctest.Wait()
			if s.now > 1 {
				t.Errorf("%d long files are being read, want 1", s.now)
			}
		}
		wg.Wait()
		b.Wait()
		for n := range origins {
			if origin := fmt.Sprintf("http://h%d.test", n); s.reads[origin] != 1 {
				t.Errorf("%s was read %d times, want once", origin, s.reads[origin])
			}
		}
		if len(b.coming) != 0 {
			t.Errorf("%d preparations have not ended", len(b.coming))
		}
	})
}

// TestSaveFollows checks that save follows a preparation that started before, which may
// not have seen the new row.
func TestSaveFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := newRobotsShelf(t, "User-agent: *\nDisallow: /old\n")
		const origin = "http://a.test"
		before, _ := b.prepare(origin, 0, b.stored(origin))
		synctest.Wait()
		var wg sync.WaitGroup
		wg.Go(func() {
			r := store.Robots{Origin: origin, Status: 200, Body: []byte("User-agent: *\nDisallow: /new\n")}
			if err := b.save(t.Context(), r); err != nil {
				t.Errorf("save = %v", err)
			}
		})
		synctest.Wait()
		if s.saves != 0 {
			t.Error("it was saved while the row was being read")
		}
		close(s.gate)
		wg.Wait()
		if e, _ := before.wait(t.Context()); e.Policy.Decide("/old").Allowed {
			t.Errorf("%+v, want the old rule", e)
		}
		if e, ok := b.Known(origin); !ok || e.Policy.Decide("/new").Allowed || !e.Policy.Decide("/old").Allowed || s.saves != 1 {
			t.Errorf("%+v, %v after %d saves; want the new rule", e, ok, s.saves)
		}
		b.Wait()
	})
}

// TestPrepare checks that only files that must be parsed are read, and that claims of other origins do not wait.
func TestPrepare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := newRobotsShelf(t, "User-agent: *\n")
		const day = 24 * time.Hour
		rows := map[string]store.Robots{
			"http://file.test":    {Status: 200, HasBody: true, BodyStatus: 200},
			"http://old.test":     {Status: 200, HasBody: true, BodyStatus: 200, Age: day},
			"http://none.test":    {Status: 404, HasBody: true, BodyStatus: 404},
			"http://down.test":    {ErrorClass: "dns_not_found", Unreachable: true, HasBody: true, BodyStatus: 200, UnreachableFor: day},
			"http://gone.test":    {ErrorClass: "dns_not_found", Unreachable: true, HasBody: true, BodyStatus: 200, UnreachableFor: 30 * day},
			"http://another.test": {Status: 200, HasBody: true, BodyStatus: 200},
		}
		s.heads = func(origin string) (store.Robots, bool) { r, ok := rows[origin]; return r, ok }
		var claims []store.Claim
		for i, host := range []string{"file", "new", "file", "old", "none", "down", "gone", "another"} {
			claims = append(claims, store.Claim{Lease: store.Lease{ID: int64(i)}, URL: "http://" + host + ".test/p", Host: host + ".test"})
		}
		began := time.Now()
		waits, err := b.Prepare(t.Context(), claims)
		must.Succeed(t, err)
		if took := time.Since(began); took > 0 {
			t.Errorf("Prepare took %v: it waited for a file", took)
		}
		if got, want := slices.Sorted(maps.Keys(waits)), []string{"http://another.test", "http://file.test", "http://gone.test"}; !slices.Equal(got, want) {
			t.Errorf("%v wait, want %v", got, want)
		}
		for _, origin := range []string{"http://none.test", "http://down.test"} {
			if _, ok := b.Known(origin); !ok {
				t.Errorf("%s is not known, and its row has all that matters", origin)
			}
		}
		close(s.gate)
		b.Wait()
		if s.reads["http://file.test"] != 1 || len(s.reads) != 3 {
			t.Errorf("read %v, want each of the three files once", s.reads)
		}
		select {
		case <-b.Ready:
		default:
			t.Error("no claim was woken when files were ready")
		}
		for origin, p := range waits {
			if !p.Ended() {
				t.Errorf("%s still waits", origin)
			}
		}
	})
}

// forgetful remembers what it was told to forget.
type forgetful struct {
	store.Store
	forgotten []string
}

func (f *forgetful) ForgetRobots(_ context.Context, origins []string) (int64, error) {
	f.forgotten = append(f.forgotten, origins...)
	return int64(len(origins)), nil
}

// TestStrays checks that the robots.txt of hosts that redirects lead to are dropped, the
// oldest first and a few at a time.
func TestStrays(t *testing.T) {
	t.Parallel()
	f := new(forgetful)
	b := New(Config{Store: f})
	b.Storing = t.Context()
	for n := range 1000 {
		must.Succeed(t, b.Stray(fmt.Sprint(n)))
		if kept := n + 1 - len(f.forgotten); kept != len(b.strays) || kept >= 2*strayPiece {
			t.Fatalf("%d are kept after %d, and %d were dropped", len(b.strays), n+1, len(f.forgotten))
		}
	}
	for i, origin := range f.forgotten {
		if origin != fmt.Sprint(i) {
			t.Fatalf("%s is dropped, want %d", origin, i)
		}
	}
}

// TestOnceEnough checks how many attempts a robots.txt gets: the host waits meanwhile.
func TestOnceEnough(t *testing.T) {
	t.Parallel()
	away := Entry{away: time.Now()}
	for _, row := range []struct {
		name  string
		known *Entry // of http
		entry Entry  // of https
		want  bool
	}{
		{"nothing is known", nil, Entry{}, false},
		{"it was unreachable", nil, away, true},
		{"http answers", &Entry{Until: time.Now().Add(time.Hour)}, Entry{}, true},
		{"http is unreachable", &Entry{Until: time.Now().Add(time.Hour), away: time.Now()}, Entry{}, false},
	} {
		b := New(Config{})
		if row.known != nil {
			b.keep("http://a.test", *row.known)
		}
		if got := b.OnceEnough("https://a.test", row.entry); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
		if b.OnceEnough("https://b.test", Entry{}) {
			t.Errorf("%s: one attempt is enough for another host", row.name)
		}
	}
}
