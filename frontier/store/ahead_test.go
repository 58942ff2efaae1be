package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// ahead claims with ClaimParams.Ahead, as a worker does.
func (f *fixture) ahead(limit int) []Claim {
	f.t.Helper()
	claims, err := f.Claim(context.Background(), ClaimParams{Limit: limit, Worker: "test", Ahead: 200 * time.Millisecond})
	must(f.t, err)
	return claims
}

// numbered returns n URLs of a host.
func numbered(host string, n int) []string {
	urls := make([]string, n)
	for i := range urls {
		urls[i] = fmt.Sprintf("http://%s/%02d", host, i)
	}
	return urls
}

func (f *fixture) setDelay(host string, d time.Duration) {
	f.t.Helper()
	must(f.t, f.SetHost(f.t.Context(), host, HostParams{Delay: &d}))
}

// TestAhead checks how many URLs of a host one claim takes, and in which order.
func TestAhead(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, f *fixture) {
		for i, row := range []struct {
			name  string
			delay time.Duration
			set   func(f *fixture, host string)
			want  int
		}{
			{"no delay", 0, nil, maxRow},
			{"a short delay", 5 * time.Millisecond, nil, maxRow},
			{"a delay at which fewer would start in time", 6 * time.Millisecond, nil, 1},
			{"slow answers", 0, func(f *fixture, host string) {
				f.exec(`UPDATE hosts SET fetch_count = 10, duration_ms = 60 WHERE host = ?`, host)
			}, 1},
			{"a Crawl-delay", 0, func(f *fixture, host string) {
				must(f.t, f.SetHost(f.t.Context(), host, HostParams{CrawlDelay: new(time.Minute)}))
			}, 1},
			{"two at a time", 0, func(f *fixture, host string) {
				must(f.t, f.SetHost(f.t.Context(), host, HostParams{MaxInFlight: new(2)}))
			}, 1},
			{"a crash", 0, func(f *fixture, host string) {
				f.exec(`UPDATE urls SET crash_count = 1 WHERE url = ?`, "http://"+host+"/05")
			}, 1},
			{"a crash, and the first one is not ready", 0, func(f *fixture, host string) {
				f.exec(`UPDATE urls SET crash_count = 1 WHERE url = ?`, "http://"+host+"/05")
				f.exec(`UPDATE urls SET ready_at = {now} + 3600000, priority = 2 WHERE url = ?`, "http://"+host+"/09")
			}, 1},
			{"an origin is deferred", 0, func(f *fixture, host string) {
				must(f.t, f.Defer(f.t.Context(), "https://"+host, time.Hour))
			}, 1},
		} {
			t.Run(row.name, func(t *testing.T) {
				f, host := f.in(t), fmt.Sprintf("h%d.test", i)
				urls := numbered(host, maxRow+8)
				f.put(urls...)
				f.setDelay(host, row.delay)
				f.exec(`UPDATE urls SET priority = 1 WHERE url = ?`, urls[7])
				if row.set != nil {
					row.set(f, host)
				}
				want := slices.Concat(urls[7:8], urls[:7], urls[8:])[:row.want]
				var got []string
				for i, c := range f.ahead(1) {
					got = append(got, c.URL)
					if c.Behind != (i > 0) || (row.want > 1 && c.Delay != row.delay) {
						t.Errorf("%s: behind %v, delay %v", c.URL, c.Behind, c.Delay)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("claimed %q, want %q", got, want)
				}
				must(t, f.Pause(t.Context(), host))
			})
		}
	})
}

// TestAheadOfMany checks that rows of many hosts together are limited, and count as one URL each.
func TestAheadOfMany(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, f *fixture) {
		for i := range 10 {
			host := fmt.Sprintf("h%d.test", i)
			f.put(numbered(host, 40)...)
			f.setDelay(host, 0)
		}
		heads := 0
		claims := f.ahead(10)
		for _, c := range claims {
			if !c.Behind {
				heads++
			}
		}
		if heads != 10 || len(claims) != 10*(maxRows/10) {
			t.Errorf("%d rows with %d URLs, want 10 with %d", heads, len(claims), 10*(maxRows/10))
		}
		if again := f.ahead(10); len(again) > 0 {
			t.Errorf("claimed %v of hosts that are in use", again)
		}
	})
}

// TestAheadEnds checks that a host opens after its delay when all of its URLs have ended that were claimed together,
// in each way.
func TestAheadEnds(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put(numbered("a.test", 9)...)
		f.setDelay("a.test", 0)
		claims := f.ahead(1)
		f.setDelay("a.test", time.Hour)
		for _, c := range claims[:3] {
			f.fetched(c)
		}
		if more := f.ahead(9); len(more) > 0 {
			t.Fatalf("claimed %v of a host that is in use", more)
		}
		var leases []Lease
		for _, c := range claims[3:] {
			leases = append(leases, c.Lease)
		}
		_, err := f.LeaveHosts(t.Context(), leases[:1])
		must(t, err)
		_, err = f.Abandon(t.Context(), leases[1:2])
		must(t, err)
		_, err = f.Release(t.Context(), leases[2:4])
		must(t, err)
		f.expire()
		n, err := f.Reap(t.Context())
		if must(t, err); n != 3 { // the one that has left the host too
			t.Errorf("%d reaped, want 3", n)
		}
		f.wantNext("a.test", time.Hour)
		f.setDelay("a.test", 0)
		f.openHosts()
		var crashed int
		for range 6 { // each URL that may have crashed the worker is fetched alone
			one := f.ahead(1)
			if len(one) == 0 {
				t.Fatal("nothing is claimed")
			}
			for _, c := range one {
				if crashed += c.CrashCount; c.CrashCount > 0 && len(one) > 1 {
					t.Errorf("%s was claimed with %d others after a crash", c.URL, len(one)-1)
				}
				f.fetched(c)
			}
			f.openHosts()
		}
		if crashed != 4 {
			t.Errorf("%d crashes, want 4", crashed)
		}
	})
}

// TestGoOn checks what stops the fetches of URLs that are claimed already.
func TestGoOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, f *fixture) {
		for i, row := range []struct {
			name string
			set  func(host string) error
			undo func(host string) error
			ok   bool
			wait time.Duration
		}{
			{name: "nothing", ok: true},
			{name: "a pause of the host", set: func(host string) error { return f.Pause(t.Context(), host) }},
			{
				name: "a pause of the crawl", set: func(string) error { return f.Pause(t.Context(), "") },
				undo: func(string) error { return f.Resume(t.Context(), "") },
			},
			{name: "a delay", set: func(host string) error { return f.SetHost(t.Context(), host, HostParams{Delay: new(time.Second)}) }},
			{name: "a Crawl-delay", set: func(host string) error { return f.SetHost(t.Context(), host, HostParams{CrawlDelay: new(time.Second)}) }},
			{name: "more at a time", set: func(host string) error { return f.SetHost(t.Context(), host, HostParams{MaxInFlight: new(4)}) }},
			{name: "a deferral", set: func(host string) error { return f.Defer(t.Context(), "http://"+host, time.Hour) }},
			{name: "a block", set: func(host string) error { return f.Block(t.Context(), host, time.Hour) }, ok: true, wait: time.Hour},
			{name: "a request of another worker", set: func(host string) error { return f.DelayHosts(t.Context(), []string{host}) }, ok: true},
			{name: "a lease that is over", set: func(host string) error {
				f.exec(`UPDATE urls SET lease_until = 1 WHERE url = ?`, "http://"+host+"/00")
				return nil
			}},
			{name: "a lost lease", set: func(host string) error { f.expire(); _, err := f.Reap(t.Context()); return err }},
		} {
			t.Run(row.name, func(t *testing.T) {
				f, host := f.in(t), fmt.Sprintf("h%d.test", i)
				f.put(numbered(host, 3)...)
				f.setDelay(host, 0)
				claims := f.ahead(1)
				if row.set != nil {
					must(t, row.set(host))
				}
				wait, ok, err := f.GoOn(t.Context(), claims[0])
				if must(t, err); ok != row.ok || wait.Round(time.Minute) != row.wait {
					t.Errorf("GoOn = %v, %v; want %v, %v", wait, ok, row.wait, row.ok)
				}
				if row.undo != nil {
					must(t, row.undo(host))
				}
			})
		}
	})
}

// TestAbortAhead checks that a host is aborted with the URLs that a worker has claimed ahead and gives back.
func TestAbortAhead(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put(numbered("a.test", 8)...)
		f.setDelay("a.test", 0)
		claims := f.ahead(1)[:8]
		aborted := make(chan int64)
		go func() {
			n, err := f.AbortHost(t.Context(), "a.test", "host_aborted", "test")
			if err != nil {
				t.Errorf("AbortHost = %v", err)
			}
			aborted <- n
		}()
		for wait := time.Duration(0); wait < 100*time.Millisecond; pause(t, 5*time.Millisecond) { // as a worker does
			var err error
			wait, _, err = f.GoOn(t.Context(), claims[0])
			must(t, err)
		}
		var rest []Lease
		for _, c := range claims[1:] {
			rest = append(rest, c.Lease)
		}
		_, err := f.Release(t.Context(), rest)
		must(t, err)
		if n := <-aborted; n != 7 {
			t.Errorf("%d URLs aborted, want 7", n)
		}
		f.fetched(claims[0])
	})
}
