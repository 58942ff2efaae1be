package frontier

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
)

const (
	politeHosts = 30
	politePages = 9 // of each host
	politeDelay = 100 * time.Millisecond
)

// politeCrawl runs three workers on one database, and returns their counts.
func politeCrawl(t *testing.T, change func(c *Config)) (*rig, Stats) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "frontier.db")
	r := newRig(t, time.Millisecond, site.Config{Robots: func(host string) (int, string) {
		if strings.HasPrefix(host, "h1") { // some have none
			return 404, ""
		}
		return 200, "User-agent: *\nDisallow: /never\n"
	}})
	r.store = openStore(t, path, politeDelay)
	r.config.IgnoreRobots = false
	change(&r.config)
	r.addPolite()
	var wait sync.WaitGroup
	var mu sync.Mutex
	var all Stats
	for n := range 3 {
		one := &rig{T: t, store: openStore(t, path, politeDelay), config: r.config}
		one.config.Name = fmt.Sprintf("worker %d", n)
		w := one.worker(r.service.as("inside"))
		wait.Go(func() {
			if err := w.Run(t.Context()); err != nil {
				t.Errorf("Run = %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			s := w.Stats()
			all.Completed, all.Failed, all.Dead = all.Completed+s.Completed, all.Failed+s.Failed, all.Dead+s.Dead
			all.Lost, all.Stale, all.Errors = all.Lost+s.Lost, all.Stale+s.Stale, all.Errors+s.Errors
		})
	}
	wait.Wait()
	return r, all
}

// addPolite adds pages of every host: plain ones, redirects to other hosts (two of which lead to
// the same page), redirects within the host, and temporary faults.
func (r *rig) addPolite() {
	r.Helper()
	for h := range politeHosts {
		host := fmt.Sprintf("h%d", h)
		for n := range politePages {
			switch {
			case n%3 == 0: // host h and the next redirect to the same page of another host, which is not claimed yet
				to := r.site.URL(fmt.Sprintf("to%d", h/2), fmt.Sprintf("/p/%d", n))
				r.add(r.site.URL(host, redirectTo(302, to)))
			case n == 4:
				r.add(r.site.URL(host, redirectTo(307, fmt.Sprintf("/p/within-%d", n))))
			case n == 5:
				r.add(r.site.URL(host, fmt.Sprintf("/s/%s-%d/500/200:size=9", host, n)))
			default:
				r.add(r.site.URL(host, fmt.Sprintf("/p/%d", n)))
			}
		}
	}
}

// TestPolite checks that requests before the end of a host's delay belong to the current fetch of
// the host: redirects within it, and retries.
func TestPolite(t *testing.T) {
	t.Parallel()
	r, stats := politeCrawl(t, func(c *Config) { c.MaxAttempts = 2 })
	// The page of a redirect within the host is missing, so each of them is dead.
	const all = politeHosts * politePages
	if stats != (Stats{Completed: all - politeHosts, Dead: politeHosts}) {
		t.Errorf("%+v, want all %d fetched but %d", stats, all, politeHosts)
	}
	visits := r.site.Visits()
	begins := func(v site.Visit) bool {
		return !(v.Kind == site.Redirected && strings.HasPrefix(v.Path, "/p/within-")) && !(v.Again && strings.HasPrefix(v.Path, "/s/"))
	}
	if early := site.Early(visits, politeDelay, begins); len(early) > 0 {
		t.Errorf("%d too early, such as %v", len(early), early[0])
	}
	kinds := map[string]int{}
	for _, v := range visits {
		if begins(v) {
			kinds[v.Kind.String()]++
		} else {
			kinds["same fetch"]++
		}
	}
	// These are the requests that the check above looked at. Each host has one robots.txt.
	for kind, want := range map[string]int{"first": all, "redirected": politeHosts * 3, "robots": politeHosts + politeHosts/2, "same fetch": politeHosts * 2} {
		if kinds[kind] != want {
			t.Errorf("%d requests of kind %s, want %d", kinds[kind], kind, want)
		}
	}
	if counts, err := r.store.Counts(t.Context()); err != nil || counts.HostsInFlight != 0 || counts.Fetching != 0 {
		t.Errorf("%+v, %v; want no host in flight", counts, err)
	}
}
