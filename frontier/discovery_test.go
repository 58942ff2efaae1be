package frontier

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/links"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
	"fetchd/test/wait"
)

const html = "text/html; charset=utf-8"

// pagesOf serves documents by their targets.
func pagesOf(documents map[string]string) func(host, target string) site.Page {
	return func(_, target string) site.Page {
		body, found := documents[target]
		if !found {
			return site.Page{}
		}
		kind := html
		if strings.Contains(target, "map") {
			kind = "application/xml"
		}
		return site.Page{Type: kind, Body: body}
	}
}

// discoverRig returns a rig that discovers in the scope of its seeds.
func discoverRig(t *testing.T, cfg site.Config, by scope.By, seeds ...string) *rig {
	t.Helper()
	r := newRig(t, time.Millisecond, cfg)
	urls := make([]string, len(seeds))
	for i, seed := range seeds {
		host, path, _ := strings.Cut(seed, "/")
		urls[i] = r.site.URL(host, "/"+path)
	}
	s, err := scope.New(scope.Config{By: by, Places: scope.Places(by, urls)})
	must(t, err)
	r.config.Discovery = &Discovery{Scope: s, MaxDepth: -1}
	r.config.Accept = []string{"text/html"}
	r.add(urls...)
	return r
}

// requests returns the sorted requests of hosts, without robots.txt.
func (r *rig) requests() string {
	var all []string
	for _, p := range r.paths() {
		if !strings.HasSuffix(p, "/robots.txt") {
			all = append(all, strings.TrimPrefix(p, "a.demo.test"))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<p>text</p>\n", 100_000) // more than comes with an outcome
	for _, row := range []struct {
		name      string
		documents map[string]string
		change    func(*rig)
		want      string
		found     Found
	}{
		{"links, each once", map[string]string{
			"/x/1": `<a href=/x/2><a href=2#f><a href="//b.demo.test/x/no"><a href=/x/3>`, "/x/2": `<a href=/x/1><a href=/x/3>`, "/x/3": `<a href=/x/missing>`,
		}, nil, "/x/1 /x/2 /x/3 /x/missing", Found{Links: 6, Added: 3, OutOfScope: 1}},
		{"depth", map[string]string{"/x/1": `<a href=/x/2>`, "/x/2": `<a href=/x/3><a href=/x/1>`, "/x/3": `<a href=/x/4>`},
			func(r *rig) { r.config.Discovery.MaxDepth = 2 }, "/x/1 /x/2 /x/3", Found{Links: 3, Added: 2}},
		{"depth 0", map[string]string{"/x/1": `<a href=/x/2>`}, func(r *rig) { r.config.Discovery.MaxDepth = 0 }, "/x/1", Found{}},
		{"a long page", map[string]string{"/x/1": `<a href=/x/2>` + long + `<a href=/x/3>`, "/x/2": "x", "/x/3": "x"}, nil, "/x/1 /x/2 /x/3", Found{Links: 2, Added: 2}},
		{"a page longer than its limit", map[string]string{"/x/1": `<a href=/x/2>` + long + `<a href=/x/3>`, "/x/2": "x"},
			func(r *rig) { r.config.Discovery.Links.Bytes = 600 << 10 }, "/x/1 /x/2", Found{Links: 1, Added: 1, Cut: map[string]int64{links.CutBytes: 1}}},
		{"a short page longer than its limit", map[string]string{"/x/1": `<a href=/x/2>` + long[:2000] + `<a href=/x/3>`, "/x/2": "x"},
			func(r *rig) { r.config.Discovery.Links.Bytes = 1000 }, "/x/1 /x/2", Found{Links: 1, Added: 1, Cut: map[string]int64{links.CutBytes: 1}}},
		{"a long URL", map[string]string{"/x/1": `<a href="/x/` + strings.Repeat("x", 500<<10) + `"><a href=/x/2>`, "/x/2": "x"}, nil, "/x/1 /x/2", Found{Links: 1, Added: 1, TooLong: 1}},
		{"many links", map[string]string{"/x/1": `<a href=/x/2><a href=/x/3><a href=/x/4>`, "/x/2": "x", "/x/3": "x"},
			func(r *rig) { r.config.Discovery.Links.Links = 2 }, "/x/1 /x/2 /x/3", Found{Links: 2, Added: 2, Cut: map[string]int64{links.CutLinks: 1}}},
		{"nofollow", map[string]string{"/x/1": `<a rel=nofollow href=/x/no><a href=/x/2>`, "/x/2": `<meta name=robots content=nofollow><a href=/x/no>`}, nil,
			"/x/1 /x/2", Found{Links: 1, Added: 1, NoFollow: 2}},
		{"no HTML", map[string]string{"/x/1": `<a href=/x/map>`, "/x/map": `<a href=/x/no>`}, func(r *rig) { r.config.Accept = nil }, "/x/1 /x/map", Found{Links: 1, Added: 1}},
		{"after a redirect", map[string]string{"/x/1": `<a href="/go/302/1?to=/x/dir/2">`, "/x/dir/2?via=r": `<a href=3>`, "/x/dir/3": "x"}, nil,
			"/go/302/1?to=/x/dir/2 /x/1 /x/dir/2?via=r /x/dir/3", Found{Links: 2, Added: 2}},
	} {
		for _, bodies := range []bool{false, true} {
			if bodies && !strings.Contains(row.name, "long") {
				continue // a short body comes with its outcome
			}
			t.Run(fmt.Sprintf("%s, bodies %t", row.name, bodies), func(t *testing.T) {
				t.Parallel()
				r := discoverRig(t, site.Config{Page: pagesOf(row.documents)}, scope.Host, "a/x/1")
				if bodies {
					r.config.Bodies = new(shelf)
				}
				if row.change != nil {
					row.change(r)
				}
				w := r.worker()
				must(t, w.Run(t.Context()))
				if got := r.requests(); got != row.want {
					t.Errorf("requests %s\nwant %s", got, row.want)
				}
				if diff := cmp.Diff(row.found, w.Found()); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// TestRobotsTag checks the header X-Robots-Tag.
func TestRobotsTag(t *testing.T) {
	t.Parallel()
	r := discoverRig(t, site.Config{Page: func(_, target string) site.Page {
		switch target {
		case "/x/1":
			return site.Page{Type: html, Body: "<a href=/x/2><a href=/x/3>"}
		case "/x/2":
			return site.Page{Type: html, Body: "<a href=/x/no>", Header: map[string]string{"X-Robots-Tag": "noindex, nofollow"}}
		}
		return site.Page{Type: html, Body: "x"}
	}}, scope.Host, "a/x/1")
	r.crawl()
	if got, want := r.requests(), "/x/1 /x/2 /x/3"; got != want {
		t.Errorf("requests %s, want %s", got, want)
	}
}

// TestRedirectOutOfScope checks that a redirect out of the scope is neither followed nor added.
func TestRedirectOutOfScope(t *testing.T) {
	t.Parallel()
	documents := map[string]string{"/x/in/1": `<a href="/go/301/1?to=http://b.demo.test:PORT/p/1"><a href="/go/301/2?to=/x/out/1"><a href="/go/301/3?to=/x/in/2">` +
		`<a href="/go/301/4?to=http://b.demo.test:PORT` + strings.Repeat("/", 600) + `">`, // a URL without a normal form
		"/x/in/2?via=r": "x", "/x/out/1?via=r": "x"}
	for _, row := range []struct {
		name   string
		by     scope.By
		change func(*rig)
		dead   int
	}{
		{"host", scope.Host, func(*rig) {}, 2},
		{"patterns", scope.Host, func(r *rig) {
			s, err := scope.New(scope.Config{By: scope.Host, Places: scope.Places(scope.Host, []string{r.site.URL("a", "/")}), Exclude: []string{`/out/1\?via`}})
			must(r, err)
			r.config.Discovery.Scope = s
		}, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var r *rig
			r = discoverRig(t, site.Config{Page: func(host, target string) site.Page {
				p := pagesOf(documents)(host, target)
				p.Body = strings.ReplaceAll(p.Body, "PORT", fmt.Sprint(r.site.Port()))
				return p
			}}, row.by, "a/x/in/1")
			row.change(r)
			r.crawl()
			dead := 0
			for _, rec := range r.records {
				if rec.ErrorClass == ClassOutOfScope {
					dead++
					if rec.HTTPStatus != 301 || rec.Attempts != 1 || rec.Status != string(store.Dead) || !strings.Contains(rec.LastError, "http://") {
						t.Errorf("%+v", rec)
					}
				}
			}
			if dead != row.dead {
				t.Errorf("%d URLs out of scope, want %d: %s", dead, row.dead, r.requests())
			}
			for _, p := range r.paths() {
				if strings.HasPrefix(p, "b.") || row.dead == 3 && strings.HasPrefix(p, "a.demo.test/x/out") {
					t.Errorf("request of %s", p)
				}
			}
			if !strings.Contains(r.requests(), "/x/in/2") {
				t.Errorf("the redirect in the scope was not followed: %s", r.requests())
			}
		})
	}
}

func zip(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

func urlset(urls ...string) string {
	return "<urlset><url><loc>" + strings.Join(urls, "</loc></url><url><loc>") + "</loc></url></urlset>"
}

func index(urls ...string) string {
	return "<sitemapindex><sitemap><loc>" + strings.Join(urls, "</loc></sitemap><sitemap><loc>") + "</loc></sitemap></sitemapindex>"
}

func TestSitemaps(t *testing.T) {
	t.Parallel()
	many := make([]string, 50_001)
	for i := range many {
		many[i] = fmt.Sprintf("http://else.test/%d", i)
	}
	for _, row := range []struct {
		name, robots string
		documents    map[string]string // with HERE for the site
		want         string
		classes      map[string]string // of URLs that failed
	}{
		{"a sitemap", "Sitemap: /x/map", map[string]string{"/x/map": urlset("HERE/x/2", "http://b.test/no", "ftp://a.test/no", "/x/3"), "/x/2": "x", "/x/3": "x"},
			"/x/1 /x/2 /x/3 /x/map", nil},
		{"of another host", "Sitemap: http://b.demo.test/map", nil, "/x/1", nil},
		{"an index, compressed", "Sitemap: HERE/x/map", map[string]string{"/x/map": zip(index("/x/map2", "http://b.test/no")), "/x/map2": zip(urlset("/x/2")), "/x/2": "x"},
			"/x/1 /x/2 /x/map /x/map2", nil},
		{"indexes in each other", "Sitemap: /x/map", map[string]string{"/x/map": index("HERE/x/map", "HERE/x/map1"), "/x/map1": index("HERE/x/map2"),
			"/x/map2": index("HERE/x/map3"), "/x/map3": index("HERE/x/map4")}, "/x/1 /x/map /x/map1 /x/map2 /x/map3", nil},
		{"a page instead of a sitemap", "Sitemap: /x/map", map[string]string{"/x/map": "<!doctype html><html><a href=/x/no>"}, "/x/1 /x/map", map[string]string{"/x/map": ClassBadSitemap}},
		{"a sitemap that is cut off", "Sitemap: /x/map", map[string]string{"/x/map": "<urlset><url><loc>HERE/x/2</loc></url>", "/x/2": "x"}, "/x/1 /x/2 /x/map", map[string]string{"/x/map": ClassBadSitemap}},
		{"too many URLs", "Sitemap: /x/map", map[string]string{"/x/map": urlset(append([]string{"HERE/x/2"}, many...)...), "/x/2": "x"}, "/x/1 /x/2 /x/map", map[string]string{"/x/map": ClassBadSitemap}},
		{"a sitemap that does not exist", "Sitemap: /x/map", nil, "/x/1 /x/map", map[string]string{"/x/map": "http_client_error"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var r *rig
			here := func(s string) string {
				return strings.ReplaceAll(s, "HERE", "http://a.demo.test:"+fmt.Sprint(r.site.Port()))
			}
			r = discoverRig(t, site.Config{
				Robots: func(string) (int, string) { return 200, here(row.robots) },
				Page: func(host, target string) site.Page {
					p := pagesOf(row.documents)(host, target)
					if target == "/x/1" {
						p = site.Page{Type: html, Body: "x"}
					}
					if !strings.HasPrefix(p.Body, "\x1f") {
						p.Body = here(p.Body)
					}
					return p
				},
			}, scope.Host, "a/x/1")
			r.config.IgnoreRobots = false
			r.crawl()
			if got := r.requests(); got != row.want {
				t.Errorf("requests %s\nwant %s", got, row.want)
			}
			got := map[string]string{}
			for _, rec := range r.records {
				if rec.ErrorClass != "" {
					got[rec.URL[strings.Index(rec.URL, "/x"):]] = rec.ErrorClass
				}
			}
			if !maps.Equal(got, row.classes) {
				t.Errorf("failed: %v, want %v", got, row.classes)
			}
		})
	}
}

// TestSitemapOfAnotherDomain checks that a site cannot turn pages of another one into sitemaps, also if
// both belong to the crawl.
func TestSitemapOfAnotherDomain(t *testing.T) {
	t.Parallel()
	r := discoverRig(t, site.Config{
		Robots: func(string) (int, string) { return 200, "Sitemap: http://else.test/1\nSitemap: /x/map" },
		Page:   pagesOf(map[string]string{"/x/1": "x", "/x/map": index("http://else.test/2") + " "}),
	}, scope.All, "a/x/1")
	r.config.IgnoreRobots = false
	r.config.Discovery.Limits.URLs = 3
	w := r.worker()
	must(t, w.Run(t.Context()))
	if f := w.Found(); f.OutOfScope != 2 || f.Added != 1 || f.Over != 0 {
		t.Errorf("%+v, want one sitemap", f)
	}
}

// TestSitemapWithoutDiscovery checks that a worker that discovers nothing reads sitemaps that were
// added.
func TestSitemapWithoutDiscovery(t *testing.T) {
	t.Parallel()
	var r *rig
	r = newRig(t, time.Millisecond, site.Config{Page: func(_, target string) site.Page {
		if target == "/x/map" {
			return site.Page{Type: "application/xml", Body: urlset(r.site.URL("a", "/x/1"), r.site.URL("b", "/x/2"))}
		}
		return site.Page{Type: html, Body: "<a href=/x/no>"}
	}})
	r.config.Accept = []string{"text/html"}
	if _, err := r.store.Put(t.Context(), []store.Entry{{URL: r.site.URL("a", "/x/map"), Kind: store.Sitemap}}, store.Limits{}); err != nil {
		t.Fatal(err)
	}
	r.crawl()
	if got, want := r.requests(), "/x/1 /x/map b.demo.test/x/2"; got != want {
		t.Errorf("requests %s, want %s", got, want)
	}
}

// TestBadSitemapRules checks that a sitemap whose metadata has no usable rules adds nothing.
func TestBadSitemapRules(t *testing.T) {
	t.Parallel()
	for _, metadata := range []string{`{"frontier": 5}`, `{"frontier": {"scope": "site"}}`, `{"frontier": {"scope": "all", "include": ["("]}}`} {
		var r *rig
		r = newRig(t, time.Millisecond, site.Config{Page: func(string, string) site.Page {
			return site.Page{Type: "application/xml", Body: urlset(r.site.URL("a", "/x/1"))}
		}})
		u := r.site.URL("a", "/x/map")
		if _, err := r.store.Put(t.Context(), []store.Entry{{URL: u, Kind: store.Sitemap, Metadata: metadata}}, store.Limits{}); err != nil {
			t.Fatal(err)
		}
		r.crawl()
		if got, want := r.requests(), "/x/map"; got != want {
			t.Errorf("%s: requests %s, want %s", metadata, got, want)
		}
		if row := r.row(u); row.Status != store.Dead || row.ErrorClass != ClassBadSitemap {
			t.Errorf("%s: %s as %q, want dead as %s", metadata, row.Status, row.ErrorClass, ClassBadSitemap)
		}
	}
}

// failingPut fails when links are put.
type failingPut struct{ store.Store }

func (failingPut) Put(context.Context, []store.Entry, store.Limits) (store.PutResult, error) {
	return store.PutResult{}, errors.New("no space")
}

// TestLinksBeforeOutcome checks that a page whose links cannot be stored is not recorded.
func TestLinksBeforeOutcome(t *testing.T) {
	t.Parallel()
	r := discoverRig(t, site.Config{Page: pagesOf(map[string]string{"/x/1": "<a href=/x/2>"})}, scope.Host, "a/x/1")
	ctx, cancel := context.WithCancel(t.Context())
	w := r.worker()
	w.store = failingPut{r.store}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	must(t, wait.Until(ctx, time.Millisecond, func() bool { return w.Stats().Errors > 0 }))
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
	if len(r.records) > 0 {
		t.Errorf("recorded: %+v", r.records)
	}
	if u := r.row(r.site.URL("a", "/x/1")); u.Status != store.Pending {
		t.Errorf("status %s, want pending", u.Status)
	}
}

// TestTimeBudget checks that a worker stops when its time is over, and leaves the rest pending.
func TestTimeBudget(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Hour, site.Config{})
	r.add(r.site.URL("a", "/p/1"), r.site.URL("a", "/p/2"))
	r.config.Budget.Time = 200 * time.Millisecond
	if err := r.worker().Run(t.Context()); !errors.Is(err, ErrBudget) {
		t.Errorf("Run = %v, want %v", err, ErrBudget)
	}
	if u := r.row(r.site.URL("a", "/p/2")); u.Status != store.Pending {
		t.Errorf("status %s, want pending", u.Status)
	}
}
