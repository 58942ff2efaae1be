package frontier

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/fetch"
	"fetchd/frontier/normal"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
)

// TestRobots checks that each URL ends as the robots.txt of its host says.
func TestRobots(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{Robots: func(host string) (int, string) {
		switch host {
		case "closed.demo.test":
			return 200, "User-agent: *\nDisallow: /p/\n"
		case "named.demo.test":
			return 200, "User-agent: *\nDisallow: /\n\nUser-agent: frontier\nDisallow: /p/2\n"
		case "none.demo.test":
			return 404, ""
		case "broken.demo.test":
			return 500, ""
		case "part.demo.test":
			return 206, "User-agent: *\n"
		}
		return 200, ""
	}})
	r.config.IgnoreRobots, r.config.RobotsPatience = false, time.Millisecond
	r.config.Policy.MaxURLRetries = 0
	for _, row := range []struct {
		name, host, path string
		status           store.Status
		lastError        string // its start
		pages            int    // requests for the page
	}{
		{"an empty file allows", "open", "/p/1", store.Fetched, "", 1},
		{"a line forbids", "closed", "/p/1", store.Dead, "robots_disallowed: line 2, Disallow: /p/", 0},
		{"another path is allowed", "closed", "/", store.Fetched, "", 1},
		{"a group of its own", "named", "/p/1", store.Fetched, "", 1},
		{"and its line", "named", "/p/2", store.Dead, "robots_disallowed: line 5", 0},
		{"no file allows", "none", "/p/1", store.Fetched, "", 1},
		{"a file out of reach defers", "broken", "/p/1", store.Dead, "robots_unreachable: http_server_error", 0},
		{"a part of a file defers", "part", "/p/1", store.Dead, "robots_unreachable: integrity", 0},
		{"a redirect leads to a host that forbids", "open", redirectTo(302, "http://closed.demo.test:PORT/p/1"), store.Dead, "robots_disallowed: line 2, Disallow: /p/, of http://closed.demo.test:", 1},
		{"a redirect leads to a path that is allowed there", "open", redirectTo(302, "http://closed.demo.test:PORT/?x"), store.Fetched, "", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			_, port, _ := strings.Cut(r.site.Addr(), ":")
			u := r.site.URL(row.host, strings.ReplaceAll(row.path, "PORT", port))
			r.add(u)
			before := r.count(row.host, row.path)
			disallowed := int64(0)
			if strings.HasPrefix(row.lastError, ClassRobotsDisallowed) {
				disallowed = 1
			}
			if stats := r.crawl(); stats.Disallowed != disallowed {
				t.Errorf("%+v, want %d disallowed", stats, disallowed)
			}
			var rec Record
			for _, one := range r.records {
				if one.URL == u {
					rec = one
				}
			}
			if rec.Status != string(row.status) || !strings.HasPrefix(rec.LastError, row.lastError) || (row.lastError == "") != (rec.LastError == "") {
				t.Errorf("%+v, want %s and %q", rec, row.status, row.lastError)
			}
			if n := r.count(row.host, strings.ReplaceAll(row.path, "PORT", port)) - before; n != row.pages {
				t.Errorf("%d requests for the page, want %d", n, row.pages)
			}
		})
	}
	if n := r.count("open", "/robots.txt"); n != 1 {
		t.Errorf("%d requests for one robots.txt, want 1: the others have its answer", n)
	}
}

// count returns how many requests the site received for a path of a host.
func (r *rig) count(host, path string) int {
	n := 0
	for _, v := range r.site.Visits() {
		if v.Host == host+".demo.test" && v.Path == path {
			n++
		}
	}
	return n
}

// TestRobotsOfAnotherWorker checks that a worker uses the robots.txt that another one fetched, and
// its delay.
func TestRobotsOfAnotherWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{Robots: func(string) (int, string) {
		return 200, "User-agent: *\nCrawl-delay: 100\n"
	}})
	r.config.IgnoreRobots = false
	r.config.MaxCrawlDelay = 50 * time.Millisecond
	r.add(r.site.URL("a", "/p/1"))
	r.crawl()
	r.add(r.site.URL("a", "/p/2"))
	r.crawl() // another worker
	if n := r.count("a", "/robots.txt"); n != 1 {
		t.Errorf("%d requests for robots.txt, want 1", n)
	}
	if early := site.Early(r.site.Visits(), 50*time.Millisecond, nil); len(early) > 0 {
		t.Errorf("too early: %v", early)
	}
	e, err := r.store.Why(t.Context(), r.site.URL("a", "/p/1"))
	if err != nil || e.Host.Delay != 50*time.Millisecond {
		t.Errorf("delay %v, %v, want the file's, capped", e.Host.Delay, err)
	}
}

// TestRobotsOnce checks that one of many visits of a host fetches its robots.txt, and that no page is
// fetched before.
func TestRobotsOnce(t *testing.T) {
	t.Parallel()
	const pages = 60
	for _, row := range []struct {
		name   string
		status int
	}{
		{"a file", 200},
		{"no file", 404},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			read := make(chan struct{})
			r := newRig(t, time.Millisecond, site.Config{Robots: func(string) (int, string) {
				<-read
				return row.status, ""
			}})
			r.config.IgnoreRobots = false
			for n := range pages {
				r.add(r.site.URL("a", fmt.Sprintf("/p/%d", n)))
			}
			r.setInFlight("a", pages)
			w := r.worker()
			ended := r.run(t.Context(), w)
			r.awaitCounts("all visits", func(c store.Counts) bool { return c.Fetching == pages })
			close(read)
			if err := <-ended; err != nil || w.Stats().Completed != pages || w.Stats().Errors != 0 {
				t.Errorf("Run = %v, %+v, want %d completed", err, w.Stats(), pages)
			}
			if n := r.count("a", "/robots.txt"); n != 1 {
				t.Errorf("%d requests for robots.txt, want 1", n)
			}
			var robots site.Visit
			for _, v := range r.site.Visits() {
				if v.Kind == site.Robots {
					robots = v
				} else if robots.End == 0 || v.Start < robots.End {
					t.Errorf("%s was fetched at %v, before robots.txt, which ended at %v", v.Path, v.Start, robots.End)
				}
			}
		})
	}
}

// TestRobotsOnceLate has a visit that found no file, and gets its turn after another one has stored it.
func TestRobotsOnceLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	r.config.IgnoreRobots = false
	r.add(r.site.URL("a", "/p"))
	w := r.worker()
	w.storing, w.draining, w.rulebook.Storing = t.Context(), t.Context(), t.Context() // as Run sets them
	claims, err := r.store.Claim(t.Context(), store.ClaimParams{Limit: 1})
	if err != nil || len(claims) != 1 {
		t.Fatalf("Claim = %v, %v", claims, err)
	}
	v := &visit{w: w, claim: claims[0], ctx: t.Context()}
	origin, path := normal.OriginOf(v.claim.URL)
	must(t, w.saveAnswer(t.Context(), store.Robots{Origin: origin, Status: 404}, 0))
	if e := v.fetchOwnRobots(origin, path, false); e.how != giveBackDelayed {
		t.Errorf("the visit ends with %v, want its URL given back", e.how)
	}
	if paths := r.paths(); len(paths) != 0 {
		t.Errorf("requests %q, want none: the file is stored", paths)
	}
}

// TestRobotsOnceDrained checks that visits which wait for another one's robots.txt give their URLs
// back at once when the worker stops.
func TestRobotsOnceDrained(t *testing.T) {
	t.Parallel()
	const pages = 20
	reading, read := make(chan struct{}), make(chan struct{})
	r := newRig(t, time.Millisecond, site.Config{Robots: func(string) (int, string) {
		close(reading)
		<-read
		return 200, ""
	}})
	r.config.IgnoreRobots = false
	for n := range pages {
		r.add(r.site.URL("a", fmt.Sprintf("/p/%d", n)))
	}
	r.setInFlight("a", pages)
	w := r.worker()
	stop := r.start(w)
	<-reading
	r.awaitCounts("all visits", func(c store.Counts) bool { return c.Fetching == pages })
	stop(func() {
		r.awaitCounts("the visits that wait to give their URLs back", func(c store.Counts) bool { return c.Fetching == 1 && c.Pending == pages-1 })
		close(read)
	})
	r.awaitCounts("the last one", func(c store.Counts) bool { return c.Pending == pages })
}

// setInFlight lets a host have n fetches at a time.
func (r *rig) setInFlight(host string, n int) {
	r.Helper()
	must(r, r.store.SetHost(r.Context(), normal.HostOf(r.site.URL(host, "/")), store.HostParams{MaxInFlight: &n}))
}

// awaitCounts waits until the counts of the store are right.
func (r *rig) awaitCounts(what string, right func(store.Counts) bool) {
	r.Helper()
	r.await(what, func() bool {
		c, err := r.store.Counts(r.Context())
		return err == nil && right(c)
	})
}

// TestRobotsRefreshed checks that a worker that runs stops to use a file which is to be fetched again.
func TestRobotsRefreshed(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	w := r.worker()
	w.rulebook.Storing = t.Context()
	a, b := "http://a.test", "http://b.test"
	for _, origin := range []string{a, b} {
		if _, err := w.rulebook.SaveAnswer(t.Context(), store.Robots{Origin: origin, Status: 200}, 0); err != nil {
			t.Fatal(err)
		}
	}
	known := func() (inA, inB bool) {
		_, inA = w.rulebook.Known(a)
		_, inB = w.rulebook.Known(b)
		return inA, inB
	}
	if _, err := w.rulebook.Refresh(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if inA, inB := known(); !inA || !inB {
		t.Errorf("before: %v, %v, want both", inA, inB)
	}
	if _, err := r.store.RefreshRobots(t.Context(), []string{a}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.rulebook.Refresh(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if inA, inB := known(); inA || !inB {
		t.Errorf("after: %v, %v, want only the other", inA, inB)
	}
	if e, err := w.rulebook.Rules(t.Context(), a); err != nil || e.Fresh() {
		t.Errorf("rules = %+v, %v, want them not fresh", e, err)
	}
	w.rulebook.Wait()
}

// TestRobotsBehindClosedHost checks that a robots.txt behind a redirect to a host that does not
// open in time is unreachable. It must not count as missing, which would allow everything.
func TestRobotsBehindClosedHost(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, to  string // where robots.txt is
		status    store.Status
		lastError string
	}{
		{"a closed host", "http://b.demo.test:PORT/robots.txt", store.Dead, "robots_unreachable: redirect_host_closed"},
		{"an open host", "http://c.demo.test:PORT/robots.txt", store.Fetched, ""},
		{"no URL", "http://[", store.Fetched, ""},
		{"no http", "ftp://b.demo.test/robots.txt", store.Fetched, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var r *rig
			r = newRig(t, time.Millisecond, site.Config{Robots: func(host string) (int, string) {
				if host == "a.demo.test" {
					_, port, _ := strings.Cut(r.site.Addr(), ":")
					return 302, strings.ReplaceAll(row.to, "PORT", port)
				}
				return 200, ""
			}})
			r.config.IgnoreRobots, r.config.MaxRedirectWait, r.config.Policy.MaxURLRetries = false, time.Second, 0
			r.config.RobotsPatience = time.Millisecond
			must(t, r.store.Block(t.Context(), normal.HostOf(r.site.URL("b", "/")), time.Hour))
			u := r.site.URL("a", "/p/1")
			r.add(u)
			r.crawl()
			if got := r.row(u); got.Status != row.status || got.LastError != row.lastError {
				t.Errorf("%+v, want %s and %q", got, row.status, row.lastError)
			}
		})
	}
}

// TestRobotsOfForeignHost checks that the robots.txt of a redirect's target is fetched once,
// however many redirects lead there at the same time.
func TestRobotsOfForeignHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	r.config.IgnoreRobots = false
	for _, from := range []string{"a", "b", "c", "d"} {
		r.add(r.site.URL(from, redirectTo(302, r.site.URL("to", "/p/1"))))
	}
	if stats := r.crawl(); stats.Completed != 4 {
		t.Errorf("%+v, want four fetched", stats)
	}
	if n := r.count("to", "/robots.txt"); n != 1 {
		t.Errorf("%d requests for one robots.txt, want 1", n)
	}
}

// TestReserveUnused checks that a host that received no request stays reserved.
func TestReserveUnused(t *testing.T) {
	t.Parallel()
	_, v := claimed(t)
	defer v.release()
	const host = "b.test"
	patience, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var until [3]int64
	for i := range until {
		if i == 2 {
			v.unused = false // as after a request
		}
		if granted, e := v.reserve(patience, host); !granted || e != nil {
			t.Fatalf("reserve = %v, %+v; want it granted", granted, e)
		}
		until[i] = v.reservation.Until
	}
	if until[0] != until[1] || until[1] == until[2] {
		t.Errorf("reserved until %v, want the first two the same", until)
	}
}

// TestRobotsUnreachable checks that URLs wait for an unreachable robots.txt, without counted
// failures, and are fetched once the file is there.
func TestRobotsUnreachable(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	r := newRig(t, time.Millisecond, site.Config{Robots: func(string) (int, string) {
		if asked.Add(1) == 1 {
			return 500, ""
		}
		return 200, ""
	}})
	r.config.IgnoreRobots = false
	for n := range 20 {
		r.add(r.site.URL("a", fmt.Sprintf("/p/%d", n)))
	}
	if stats := r.crawl(); stats.Completed != 20 || stats.Failed+stats.Dead != 0 || asked.Load() != 2 {
		t.Errorf("%+v after %d questions, want 20 fetched, and nothing else counted", stats, asked.Load())
	}
}

// TestRobotsOfUnknownHost checks that the URLs of a host that does not exist end as they would without
// robots.txt.
func TestRobotsOfUnknownHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	r.config.IgnoreRobots, r.config.Policy.MaxURLRetries = false, 0
	gone, blocked := r.site.URL("gone-1", "/p/1"), "http://127.0.0.1:1/"
	r.add(gone, blocked)
	r.crawl()
	for u, class := range map[string]string{gone: "dns_not_found", blocked: "target_blocked"} {
		if got := r.row(u); got.Status != store.Dead || got.ErrorClass != class {
			t.Errorf("%+v, want it dead as %s", got, class)
		}
	}
}

// TestBlockedRobotsAreNotKept checks that a robots.txt that fetchd may not reach is fetched as soon
// as fetchd may.
func TestBlockedRobotsAreNotKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	r.config.IgnoreRobots = false
	for n := range 20 {
		r.add(r.site.URL("a", fmt.Sprintf("/p/%d", n)))
	}
	u := r.site.URL("a", "/p/0")
	closed := newFetchdWith(r.T, r.site, fetch.Egress{})
	if stats := r.crawl(closed.as("closed")); stats.Dead != 20 || r.site.Count() != 0 {
		t.Fatalf("%+v after %d requests, want 20 dead and no request", stats, r.site.Count())
	}
	if got := r.row(u); got.ErrorClass != "target_blocked" || !strings.Contains(got.LastError, "--egress-allow-port") || got.RetryCount != 0 {
		t.Errorf("%+v, want target_blocked and what opens it", got)
	}
	if got, err := rulebook.Ask(t.Context(), r.store, "frontier", u); err != nil || got.Known {
		t.Errorf("AskRobots = %+v, %v, want nothing known", got, err)
	}
	if e, err := r.store.Why(t.Context(), u); err != nil || !e.Host.NextAt.IsZero() {
		t.Errorf("the host opens at %v, %v, want it open: nothing was sent", e.Host.NextAt, err)
	}
	if n, err := r.store.RetryFailed(t.Context(), "target_blocked", "", nil); n != 20 || err != nil {
		t.Fatalf("RetryFailed = %d, %v", n, err)
	}
	if stats := r.crawl(); stats.Completed != 20 || r.count("a", "/robots.txt") != 1 {
		t.Errorf("%+v after %d requests for robots.txt, want 20 fetched and one", stats, r.count("a", "/robots.txt"))
	}
}

// TestRobotsLeadToBlocked checks that a robots.txt that redirects to a blocked target counts as a
// request, after which the host has its delay.
func TestRobotsLeadToBlocked(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond
	r := newRig(t, delay, site.Config{Robots: func(string) (int, string) { return 302, "http://127.0.0.1:1/robots.txt" }})
	r.config.IgnoreRobots = false
	for n := range 3 {
		r.add(r.site.URL("a", fmt.Sprintf("/p/%d", n)))
	}
	u := r.site.URL("a", "/p/0")
	if stats := r.crawl(); stats.Dead != 3 || r.count("a", "/p/0") != 0 {
		t.Errorf("%+v, want all dead and no page asked for", stats)
	}
	if got := r.row(u); got.ErrorClass != "target_blocked" {
		t.Errorf("%+v, want target_blocked", got)
	}
	if got, err := rulebook.Ask(t.Context(), r.store, "frontier", u); err != nil || got.Known {
		t.Errorf("AskRobots = %+v, %v, want nothing known", got, err)
	}
	if early := site.Early(r.site.Visits(), delay, nil); len(early) > 0 {
		t.Errorf("too early: %v", early)
	}
}

// TestRetryForgetsRobots checks that after the retry of a URL its robots.txt is fetched again, also
// by a worker that is running.
func TestRetryForgetsRobots(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path, class string
		status            int
		file              string // at first; later everything is allowed
	}{
		{"a line", "/p/1", ClassRobotsDisallowed, 200, "User-agent: *\nDisallow: /p/"},
		{"out of reach", "/p/1", ClassRobotsUnreachable, 500, ""},
		{"a line where a redirect leads", "", ClassRobotsDisallowed, 200, "User-agent: *\nDisallow: /p/"},
	} {
		for _, endless := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, endless %v", row.name, endless), func(t *testing.T) {
				t.Parallel()
				var open atomic.Bool
				r := newRig(t, time.Millisecond, site.Config{Robots: func(host string) (int, string) {
					if open.Load() || host != "a.demo.test" {
						return 200, ""
					}
					return row.status, row.file
				}})
				r.config.IgnoreRobots, r.config.RobotsPatience, r.config.Endless = false, time.Millisecond, endless
				r.config.Policy.RetryDelay = time.Hour // after which an unreachable file is fetched again
				records := make(chan Record, 2)
				r.config.Recorded = func(rec Record) error { records <- rec; return nil }
				u := r.site.URL("a", row.path)
				if row.path == "" {
					u = r.site.URL("from", redirectTo(302, r.site.URL("a", "/p/1")))
				}
				r.add(u)
				crawl := func() func() { r.crawl(); return func() {} }
				if endless {
					crawl = func() func() { return r.background() }
				}
				end := crawl()
				if rec := <-records; rec.Status != string(store.Dead) || rec.ErrorClass != row.class {
					t.Errorf("%+v, want it dead as %s", rec, row.class)
				}
				open.Store(true)
				if n, err := r.store.RetryFailed(t.Context(), row.class, "", nil); n != 1 || err != nil {
					t.Errorf("RetryFailed = %d, %v", n, err)
				}
				if !endless {
					if got, err := rulebook.Ask(t.Context(), r.store, "frontier", r.site.URL("a", "/p/1")); err != nil || got.Known {
						t.Errorf("AskRobots = %+v, %v, want nothing known", got, err)
					}
					end = crawl()
				}
				if rec := <-records; rec.Status != string(store.Fetched) {
					t.Errorf("%+v, want it fetched", rec)
				}
				end()
			})
		}
	}
}

// background crawls until the returned function is called.
func (r *rig) background() (end func()) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan struct{})
	w := r.worker()
	go func() {
		defer close(ended)
		_ = w.Run(ctx) // it was told to stop
	}()
	return func() {
		cancel()
		<-ended
	}
}

// TestRedirectToAnotherScheme checks a redirect to another scheme of the same host: the robots.txt
// of that origin gets its own turn, and the visit does not wait for its own host.
func TestRedirectToAnotherScheme(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	r.config.IgnoreRobots, r.config.RobotsPatience, r.config.MaxRedirectWait = false, 4*time.Second, 5*time.Minute
	secure := "https" + strings.TrimPrefix(r.site.URL("a", "/p/1?via=r"), "http")
	from := r.site.URL("a", redirectTo(301, secure))
	r.add(from)
	started := time.Now()
	r.crawl()
	if took := time.Since(started); took > 2*time.Minute {
		t.Errorf("it took %v", took)
	}
	// No server speaks TLS there, so the target waits for its robots.txt as a URL of its own.
	if got := r.row(from); got.Status != store.Fetched || got.HTTPStatus != 301 {
		t.Errorf("%+v, want it fetched with 301", got)
	}
	if got := r.row(secure); got.Status != store.Dead || got.ErrorClass != ClassRobotsUnreachable {
		t.Errorf("%+v, want %s", got, ClassRobotsUnreachable)
	}
}
