package frontier

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
)

// TestOutcomes checks the state of a URL after faults of a real origin.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	r.config.MaxAttempts, r.config.Policy.MaxURLRetries = 2, 1
	r.config.MaxBodyBytes, r.config.Accept = 5000, []string{"text/html"}
	for _, row := range []struct {
		name, path string
		status     store.Status // at the end
		httpStatus int
		lastError  string // its start
		requests   int
		retries    int // of the last fetch
		failures   int
	}{
		{"200", "/p/1", store.Fetched, 200, "", 1, 0, 0},
		{"an empty page", "/s/a0/200:size=0,type=text%2Fhtml", store.Dead, 200, "empty_body: ", 1, 0, 1},
		{"204", "/s/a/204", store.Fetched, 204, "", 1, 0, 0},
		{"503 and then 200 in one fetch", "/s/b/503/200:size=9,type=text%2Fhtml", store.Fetched, 200, "", 2, 1, 0},
		{"404", "/missing", store.Dead, 404, "http_client_error: ", 1, 0, 1},
		{"410", "/s/c/410", store.Dead, 410, "http_client_error: ", 1, 0, 1},
		{"401", "/s/d/401", store.Dead, 401, "auth_required: ", 1, 0, 1},
		{"403", "/s/e/403", store.Dead, 403, "forbidden: ", 1, 0, 1},
		{"500", "/s/f/500", store.Dead, 500, "http_server_error: the origin answered with a server error; no attempt is left of max_attempts 2, set by the request; 500.demo.test:", 4, 1, 2},
		{"500 and then 200 in the second fetch", "/s/g/500/500/200:size=9,type=text%2Fhtml", store.Fetched, 200, "", 3, 0, 0},
		{"500 and then 404", "/s/h/500/500/404", store.Dead, 404, "http_client_error: ", 3, 0, 2},
		{"reset", "/s/i/reset", store.Dead, 0, "connection_reset: ", 4, 1, 2},
		{"no HTTP", "/s/j/bad-status-line", store.Dead, 0, "protocol: ", 1, 0, 1},
		{"another type", "/s/k/200:size=9,type=image%2Fpng", store.Dead, 200, "content_type: ", 1, 0, 1},
		{"too long", "/s/l/200:size=5001,type=text%2Fhtml", store.Dead, 200, "body_too_large: ", 1, 0, 1},
		{"as long as may be", "/s/m/200:size=5000,type=text%2Fhtml", store.Fetched, 200, "", 1, 0, 0},
		{"a body that breaks off", "/s/n/200:size=100,cut=9,type=text%2Fhtml", store.Dead, 200, "body_interrupted: ", 4, 1, 2},
		{"a part", "/s/part/206:size=9,type=text%2Fhtml,header=Content-Range=bytes%200-8%2F5000", store.Dead, 206, "integrity: the origin sent only a part", 2, 0, 2},
		{"a part and then 200", "/s/part2/206:size=9,type=text%2Fhtml/200:size=9,type=text%2Fhtml", store.Fetched, 200, "", 2, 0, 0},
		{"a 206 with everything", "/s/all/206:size=9,type=text%2Fhtml,header=Content-Range=bytes%200-8%2F9", store.Fetched, 206, "", 1, 0, 0},
		{"a redirect to no URL", "/s/o/302:to=http%3A%2F%2F%5B", store.Dead, 302, "redirect_rejected: ", 1, 0, 1},
		{"a redirect to another scheme", "/s/p/302:to=ftp%3A%2F%2Fa.test%2F", store.Dead, 302, "redirect_rejected: ", 1, 0, 1},
		{"a redirect without a target", "/s/q/302", store.Fetched, 302, "", 1, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			host := strings.NewReplacer(" ", "-", "HTTP", "http", "URL", "url").Replace(row.name)
			u := r.site.URL(host, row.path)
			r.add(u)
			r.crawl()
			got := r.row(u)
			if got.Status != row.status || got.HTTPStatus != row.httpStatus || got.RetryCount != row.retries || got.FailureCount != row.failures {
				t.Errorf("%+v, want %s, %d, %d retries, %d failures", got, row.status, row.httpStatus, row.retries, row.failures)
			}
			if !strings.HasPrefix(got.LastError, row.lastError) || (got.LastError == "") != (row.lastError == "") {
				t.Errorf("last error %q, want %q", got.LastError, row.lastError)
			}
			if n := r.count(host, row.path); n != row.requests {
				t.Errorf("%d requests, want %d", n, row.requests)
			}
		})
	}
}

// TestUnreachable checks faults before any request reaches the site.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		url       func(r *rig) string
		change    func(c *Config)
		lastError string
		attempts  int
		charged   bool
	}{
		{"no such name", func(r *rig) string { return r.site.URL("gone-1", "/p/1") }, nil, "dns_not_found: ", 1, true},
		{"nothing listens", func(r *rig) string { return "http://127.0.0.2:" + strconv.Itoa(r.site.Port()) + "/" }, nil, "connect_refused: ", 1, true},
		{"a port that may not be asked", func(*rig) string { return "http://a.demo.test:1/" }, nil, "target_blocked: ", 1, true},
		{"a request that a fetchd does not take", func(r *rig) string { return r.site.URL("a", "/p/1") },
			func(c *Config) { c.Accept = []string{"no type"} }, "invalid_request: ", 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, time.Hour, site.Config{})
			r.config.Policy.MaxURLRetries = 0
			if row.change != nil {
				row.change(&r.config)
			}
			u := row.url(r)
			r.add(u)
			r.crawl()
			rec := r.recorded()[0]
			if rec.Status != "dead" || !strings.HasPrefix(rec.LastError, row.lastError) || rec.Attempts != row.attempts {
				t.Errorf("%+v, want it dead with %q and %d attempts", rec, row.lastError, row.attempts)
			}
			if e, err := r.store.Why(t.Context(), u); err != nil || e.Host.NextAt.After(e.Now) != row.charged {
				t.Errorf("%+v, %v; want the host charged: %v", e, err, row.charged)
			}
			if n := r.site.Count(); n != 0 {
				t.Errorf("%d requests, want none", n)
			}
		})
	}
}

// TestPauses checks that a host closes for as long as it asks, or for a minute after 503 and 429, and
// close no other host.
func TestPauses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path string
		least      time.Duration // how long the host stays closed
		most       time.Duration
	}{
		{"503 that asks", "/s/k/503:retry-after=2/200", time.Second, 2 * time.Second},
		{"429 that asks", "/s/k/429:retry-after=2/200", time.Second, 2 * time.Second},
		{"503", "/s/k/503", 55 * time.Second, time.Minute},
		{"429", "/s/k/429", 55 * time.Second, time.Minute},
		{"429 that asks for centuries", "/s/k/429:retry-after=9223372036", 23 * time.Hour, 24 * time.Hour},
		{"500", "/s/k/500", 0, 0},
		{"500 that asks", "/s/k/500:retry-after=100", 95 * time.Second, 100 * time.Second},
		{"404 that asks", "/s/k/404:retry-after=100", 95 * time.Second, 100 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, time.Millisecond, site.Config{})
			r.config.Policy.MaxURLRetries = 0
			u := r.site.URL("a", row.path)
			r.add(u)
			r.crawl()
			e, err := r.store.Why(t.Context(), u)
			must(t, err)
			// The store rounds a pause up to a whole millisecond.
			if d := e.Host.BlockedUntil.Sub(e.URL.FetchedAt); max(0, d) < row.least || d > row.most+time.Millisecond {
				t.Errorf("closed for %v, want %v to %v", d, row.least, row.most)
			}
		})
	}
}

// TestPauseHoldsOtherURLs checks that a pause applies to all URLs of the host, and to no others.
func TestPauseHoldsOtherURLs(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	r.add(r.site.URL("a", "/s/k/503:retry-after=1/200"))
	r.add(r.site.URL("a", "/p/1"), r.site.URL("b", "/p/1"), r.site.URL("b", "/p/2"), r.site.URL("b", "/p/3"))
	if stats := r.crawl(); stats.Completed != 5 || stats.Failed != 1 {
		t.Errorf("%+v, want all five fetched, one after a failure", stats)
	}
	var ends time.Duration
	for _, v := range r.site.Visits() {
		switch {
		case v.Host == "a.demo.test" && ends == 0:
			ends = v.End
		case v.Host == "a.demo.test" && v.Start < ends+time.Second:
			t.Errorf("%+v came within a second of the 503, which ended at %v", v, ends)
		}
	}
}

// TestOn overrides the action for a class.
func TestOn(t *testing.T) {
	t.Parallel()
	t.Run("retry", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, time.Millisecond, site.Config{})
		r.config.Policy.On = map[string]Action{"http_client_error": Retry}
		again, dead := r.site.URL("a", "/s/k/404/404/200"), r.site.URL("a", "/s/l/403")
		r.add(again, dead)
		r.crawl()
		if got := r.row(again); got.Status != store.Fetched || r.site.Count() != 4 {
			t.Errorf("%+v, want it fetched in the end", got)
		}
		if got := r.row(dead); got.Status != store.Dead {
			t.Errorf("%+v, want it dead: it is of another class", got)
		}
	})
	t.Run("abort-host", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, time.Millisecond, site.Config{})
		r.config.Policy.On = map[string]Action{"forbidden": AbortHost}
		bad, waiting, other := r.site.URL("a", "/s/k/403"), r.site.URL("a", "/p/1"), r.site.URL("b", "/p/1")
		r.add(bad)
		r.add(waiting, other, r.site.URL("b", "/p/2"))
		if stats := r.crawl(); stats.Completed != 2 || stats.Dead != 1 {
			t.Errorf("%+v, want the other host's two fetched", stats)
		}
		if got := r.row(bad); got.Status != store.Dead || got.ErrorClass != "forbidden" {
			t.Errorf("%+v, want it forbidden", got)
		}
		if got := r.row(waiting); got.Status != store.Dead || got.ErrorClass != ClassHostAborted || got.LastError != "aborted after forbidden" {
			t.Errorf("%+v, want its host given up", got)
		}
	})
	t.Run("abort-crawl", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, time.Hour, site.Config{})
		r.config.Policy.On = map[string]Action{"forbidden": AbortCrawl}
		bad, waiting := r.site.URL("a", "/s/k/403"), r.site.URL("a", "/p/1")
		r.add(bad)
		r.add(waiting)
		if err := r.worker().Run(t.Context()); !errors.Is(err, ErrCrawlAborted) || !strings.Contains(errorText(err), bad) {
			t.Errorf("Run = %v, want ErrCrawlAborted that names %s", err, bad)
		}
		e, err := r.store.Why(t.Context(), waiting)
		if err != nil || !e.Paused || e.URL.Status != store.Pending || r.row(bad).Status != store.Dead {
			t.Errorf("%+v, %v; want the crawl paused and the URL pending", e, err)
		}
	})
}

// TestMaxCrashes checks that a URL whose fetches were lost too often is dead without another fetch.
func TestMaxCrashes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		crashes, limit int
		want           store.Status
	}{{2, 3, store.Fetched}, {3, 3, store.Dead}, {4, 3, store.Dead}, {4, 0, store.Fetched}} {
		t.Run(strconv.Itoa(row.crashes)+" of "+strconv.Itoa(row.limit), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, time.Millisecond, site.Config{})
			r.config.Policy.MaxCrashes = row.limit
			u := r.site.URL("a", "/p/1")
			r.add(u)
			for range row.crashes {
				if _, err := r.store.Abandon(t.Context(), []store.Lease{r.claimOne().Lease}); err != nil {
					t.Fatal(err)
				}
			}
			r.crawl()
			got := r.row(u)
			if got.Status != row.want || (got.ErrorClass == ClassCrashed) != (row.want == store.Dead) {
				t.Errorf("%+v, want %s", got, row.want)
			}
			if asked := r.site.Count() > 0; asked != (row.want == store.Fetched) {
				t.Errorf("asked %v", asked)
			}
		})
	}
}

// claimOne claims the next URL as soon as its host is open.
func (r *rig) claimOne() store.Claim {
	r.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		claims, err := r.store.Claim(r.Context(), store.ClaimParams{Worker: "before"})
		must(r, err)
		if len(claims) > 0 {
			return claims[0]
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			r.Fatal("nothing is ever due")
		}
	}
}

// TestRecordedEnds checks that an error of Config.Recorded stops the worker with that error.
func TestRecordedEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Hour, site.Config{})
	full := errors.New("the disk is full")
	r.config.Recorded = func(Record) error { return full }
	r.add(r.site.URL("a", "/p/1"))
	r.add(r.site.URL("a", "/p/2"))
	if err := r.worker().Run(t.Context()); !errors.Is(err, full) {
		t.Errorf("Run = %v, want %v", err, full)
	}
	if got := r.row(r.site.URL("a", "/p/1")); got.Status != store.Fetched {
		t.Errorf("%+v, want it fetched: it was recorded before", got)
	}
}

// TestClasses checks that Classes has those of the contract and of the scheduler, once each.
func TestClasses(t *testing.T) {
	t.Parallel()
	all := Classes()
	if !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("%q: not in order, or twice", all)
	}
	for name, want := range map[string]bool{"forbidden": true, "dns_not_found": true, "crashed": true, "host_aborted": true,
		"robots_disallowed": true, "robots_unreachable": true, "unspecified": false, "": false, "FORBIDDEN": false} {
		if got := slices.Contains(all, name); got != want {
			t.Errorf("%q among the classes: %v, want %v", name, got, want)
		}
	}
}
