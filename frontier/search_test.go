package frontier

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/links"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
)

// TestPageBeyondLimits checks where a page of which a limit has left out links says so.
func TestPageBeyondLimits(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("<p>", 1000)
	for _, row := range []struct {
		name, page, cut, label string
		limits                 links.Limits
	}{
		{"links", "<a href=/x/2><a href=/x/3>", links.CutLinks, "links", links.Limits{Links: 1}},
		{"bytes of links", "<a href=/x/2><a href=/x/33333333333333333333333333333333333>", links.CutLinkBytes, "link_bytes", links.Limits{LinkBytes: 60}},
		{"work", "<a href=/x/2>" + many + "<a href=/x/3>", links.CutWork, "work", links.Limits{Work: 10_000}},
		{"bytes", "<a href=/x/2>" + many + "<a href=/x/3>", links.CutBytes, "bytes", links.Limits{Bytes: 1000}},
		{"a long tag", "<a href=/x/2><p " + strings.Repeat("x", 3<<20) + "><a href=/x/3>", links.CutToken, "token", links.Limits{}},
		{"no limit", "<a href=/x/2>", "", "", links.Limits{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			r := discoverRig(t, site.Config{Page: pagesOf(map[string]string{"/x/1": row.page, "/x/2": "x"})}, scope.Host, "a/x/1")
			r.config.Metrics, r.config.Discovery.Links = NewMetrics(registry), row.limits
			r.crawl()
			if got := r.requests(); got != "/x/1 /x/2" {
				t.Errorf("requests %s, want the links up to the limit", got)
			}
			want, metric := "", ""
			if row.cut != "" {
				want = "links left out: " + row.cut
				metric = fmt.Sprintf("# HELP frontier_cut_pages_total Pages of which a limit has left out links, by the limit.\n"+
					"# TYPE frontier_cut_pages_total counter\nfrontier_cut_pages_total{limit=%q} 1\n", row.label)
			}
			u := r.row(r.site.URL("a", "/x/1"))
			if u.Status != store.Fetched || u.LastError != want || u.ErrorClass != "" || u.FailureCount != 0 {
				t.Errorf("%s, last error %q, class %q; want fetched and %q", u.Status, u.LastError, u.ErrorClass, want)
			}
			if rec := r.records[0]; rec.LastError != want {
				t.Errorf("record %+v, want %q", rec, want)
			}
			if err := testutil.GatherAndCompare(registry, strings.NewReader(metric), "frontier_cut_pages_total"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDrainEndsSearches checks that a visit that waits to be searched gives its URL back in the end
// of the drain time, and that nothing that it found or would find is lost.
func TestDrainEndsSearches(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, robots string
		kind         store.Kind
	}{
		{"a page", "", store.Page},
		{"a sitemap", "", store.Sitemap},
		{"a robots.txt", "Sitemap: /x/map", store.Page},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, time.Millisecond, site.Config{
				Robots: func(string) (int, string) { return 200, row.robots },
				Page:   func(string, string) site.Page { return site.Page{Type: html, Body: urlset("/x/2") + "<a href=/x/2>"} },
			})
			r.config.Discovery = &Discovery{MaxDepth: -1}
			r.config.IgnoreRobots, r.config.DrainTime = row.robots == "", time.Millisecond
			u := r.site.URL("a", "/x/1")
			if _, err := r.store.Put(t.Context(), []store.Entry{{URL: u, Kind: row.kind}}, store.Limits{}); err != nil {
				t.Fatal(err)
			}
			w := r.worker()
			for range searchSlots() { // of others
				if _, err := w.search.turns.enter(t.Context(), "other"); err != nil {
					t.Fatal(err)
				}
			}
			stop := r.start(w)
			r.await("a search", func() bool {
				w.search.turns.mu.Lock()
				defer w.search.turns.mu.Unlock()
				return len(w.search.turns.waiting) > 0
			})
			stop()
			e, err := r.store.Why(t.Context(), u)
			if err != nil || e.URL.Status != store.Pending || e.URL.CrashCount+e.URL.FailureCount != 0 || e.Host.InFlight != 0 {
				t.Errorf("%+v, %v; want it pending and nothing counted", e, err)
			}
			if stats := w.Stats(); stats.Errors != 0 || stats.Open != 0 {
				t.Errorf("%+v, want no errors", stats)
			}
			r.crawl()
			if paths := r.paths(); !strings.Contains(strings.Join(paths, " "), "/x/2") {
				t.Errorf("requests %q, want the link too", paths)
			}
		})
	}
}

// TestWaitingSearches checks that visits that wait to be searched leave capacity to others, up to
// half of Open.
func TestWaitingSearches(t *testing.T) {
	t.Parallel()
	r := discoverRig(t, site.Config{}, scope.All, "a/p/1", "b/p/1", "c/p/1", "d/p/1", "e/p/1", "f/p/1", "g/p/1", "h/p/1")
	r.config.Open = 4
	w := r.worker()
	var others []*turn
	for range searchSlots() {
		held, err := w.search.turns.enter(t.Context(), "other")
		must(t, err)
		others = append(others, held)
	}
	ended := r.run(t.Context(), w)
	r.await("six searches", func() bool { return w.search.visits.Load() == 6 })
	if w.open() != 6 || w.busy() != 4 || r.site.Count() != 6 {
		t.Errorf("%d visits, %d of them count, %d requests; want 6, 4 and 6", w.open(), w.busy(), r.site.Count())
	}
	for _, held := range others {
		w.search.turns.leave(held, 1)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
	if n := r.site.Count(); n != 8 {
		t.Errorf("%d requests, want one for each page", n)
	}
}

// TestRulesTakeTurns checks that a decision by many rules about a long URL waits for the turn of its
// host, and that others do not.
func TestRulesTakeTurns(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 4000)
	r := newRig(t, time.Millisecond, site.Config{Robots: func(string) (int, string) {
		return 200, "User-agent: *\n" + strings.Repeat("Disallow: /*b\n", 1000)
	}})
	r.config.IgnoreRobots = false
	r.add(r.site.URL("a", "/p/1?"+long), r.site.URL("b", "/p/1"))
	w := r.worker()
	var others []*turn
	for range searchSlots() {
		held, err := w.search.turns.enter(t.Context(), "other")
		must(t, err)
		others = append(others, held)
	}
	ended := r.run(t.Context(), w)
	r.await("a short URL, and a long one that waits", func() bool {
		w.search.turns.mu.Lock()
		defer w.search.turns.mu.Unlock()
		return len(w.search.turns.waiting) == 1 && strings.Contains(strings.Join(r.paths(), " "), "b.demo.test/p/1")
	})
	if strings.Contains(strings.Join(r.paths(), " "), long) {
		t.Error("the long URL was fetched before its turn")
	}
	for _, held := range others {
		w.search.turns.leave(held, 1)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
	if !strings.Contains(strings.Join(r.paths(), " "), long) {
		t.Error("the long URL was not fetched")
	}
}
