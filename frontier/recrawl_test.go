package frontier

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
)

func TestRecrawlNext(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	ok := func(digest string) store.Fetch {
		return store.Fetch{FetchedParams: store.FetchedParams{HTTPStatus: 200, BodyDigest: digest}}
	}
	status := func(n int) store.Fetch { return store.Fetch{FetchedParams: store.FetchedParams{HTTPStatus: n}} }
	recorded := func(digest string) store.Fetch {
		return store.Fetch{FetchedParams: store.FetchedParams{HTTPStatus: 200, Archived: store.Archived{PayloadDigest: digest}}}
	}
	weekly := Recrawl{Every: 8 * day}
	for _, tt := range []struct {
		name    string
		recrawl Recrawl
		claim   store.Claim
		fetch   store.Fetch
		want    time.Duration
	}{
		{"never", Recrawl{}, store.Claim{Recrawl: day}, ok("a"), 0},
		{"the first fetch", weekly, store.Claim{}, ok("a"), 8 * day},
		{"the first with recrawl, and a 304", weekly, store.Claim{BodyDigest: "a"}, status(304), 8 * day},
		{"a 304", weekly, store.Claim{Recrawl: 8 * day}, status(304), 16 * day},
		{"an equal body", weekly, store.Claim{Recrawl: 8 * day, BodyDigest: "a"}, ok("a"), 16 * day},
		{"another body", weekly, store.Claim{Recrawl: 8 * day, BodyDigest: "a"}, ok("b"), 4 * day},
		{"an equal payload", weekly, store.Claim{Recrawl: 8 * day, Earlier: store.Earlier{PayloadDigest: "a"}}, recorded("a"), 16 * day},
		{"another payload", weekly, store.Claim{Recrawl: 8 * day, Earlier: store.Earlier{PayloadDigest: "a"}}, recorded("b"), 4 * day},
		{"bodies before payloads", weekly, store.Claim{Recrawl: 8 * day, BodyDigest: "a", Earlier: store.Earlier{PayloadDigest: "a"}}, ok("b"), 4 * day},
		{"no body before", weekly, store.Claim{Recrawl: 8 * day}, ok("a"), 8 * day},
		{"no body now", weekly, store.Claim{Recrawl: 8 * day, BodyDigest: "a"}, ok(""), 8 * day},
		{"a redirect", weekly, store.Claim{Recrawl: 8 * day, BodyDigest: "a"}, status(301), 8 * day},
		{"no longer than eight times", weekly, store.Claim{Recrawl: 60 * day}, status(304), 64 * day},
		{"no shorter than a quarter", weekly, store.Claim{Recrawl: 3 * day, BodyDigest: "a"}, ok("b"), 2 * day},
		{"another interval than before", Recrawl{Every: day}, store.Claim{Recrawl: 64 * day}, status(200), 8 * day},
	} {
		tt.claim.URL = "http://a.test/"
		if got := tt.recrawl.next(tt.claim, tt.fetch); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestRecrawlRules(t *testing.T) {
	t.Parallel()
	r := Recrawl{Every: 7, Rules: []RecrawlRule{
		{Pattern: regexp.MustCompile(`/news/`), Every: 1},
		{Host: "a.test", Every: 2},
		{Host: "*.a.test", Every: 3},
		{Host: "b.test:8080", Every: 0},
	}}
	for url, want := range map[string]time.Duration{
		"http://c.test/news/1":   1,
		"http://a.test/news/1":   1,
		"http://a.test/":         2,
		"https://a.test/x":       2,
		"http://a.test:8080/":    7,
		"http://x.a.test/":       3,
		"http://x.y.a.test/":     3,
		"http://xa.test/":        7,
		"http://a.test.c.test/":  7,
		"http://b.test:8080/":    0,
		"http://b.test/?a.test":  7,
		"http://c.test/new?news": 7,
	} {
		if got := r.base(url); got != want {
			t.Errorf("base(%s) = %d, want %d", url, got, want)
		}
	}
}

// TestRecrawl checks that a worker fetches pages again, ever less often if they stay the same and ever
// more often if they change, and keeps the delay of their hosts.
func TestRecrawl(t *testing.T) {
	t.Parallel()
	const every, delay = 40 * time.Millisecond, 2 * time.Millisecond
	var changing strings.Builder
	for n := range 200 {
		fmt.Fprintf(&changing, "/200:size=%d", n+1)
	}
	for _, tt := range []struct {
		name, path string
		bodies     bool
		want       time.Duration // the interval in the end
	}{
		{"a 304", "/p/1", true, 8 * every},
		{"a 304 without bodies", "/p/1", false, 8 * every},
		{"equal bodies", "/s/equal/200:size=9", true, 8 * every},
		{"other bodies", "/s/other" + changing.String(), true, every / 4},
		{"bodies that are not compared", "/s/unknown/200:size=9", false, every},
		{"a redirect that is not followed", "/go/302/1?to=/p/2", false, every},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, delay, site.Config{})
			r.config.Recrawl = Recrawl{Every: every}
			r.config.Policy.FollowRedirects = false
			if tt.bodies {
				r.config.Bodies = new(shelf)
			}
			u := r.site.URL("a", tt.path)
			r.add(u)
			stop := r.start(r.worker())
			r.await("the interval", func() bool {
				row := r.row(u)
				return r.site.Count() >= 4 && row.Status == store.Fetched && row.RecrawlAt.Sub(row.FetchedAt) == tt.want
			})
			stop()
			for f, err := range r.store.Fetches(t.Context()) {
				if must(t, err); f.HTTPStatus == http.StatusNotModified && (f.BodyDigest != "") != tt.bodies {
					t.Errorf("a 304 has the digest %q, want that of its body", f.BodyDigest)
				}
			}
			if early := site.Early(r.site.Visits(), delay, nil); len(early) > 0 {
				t.Errorf("too early: %v", early)
			}
		})
	}
}

// TestRecrawlEnds checks that a URL that failed for good is not fetched again, and that a worker without
// Recrawl takes URLs off the schedule and ends.
func TestRecrawlEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	gone, page := r.site.URL("a", "/s/gone/200/404"), r.site.URL("b", "/p/1")
	r.add(gone, page)
	r.config.Recrawl = Recrawl{Every: 20 * time.Millisecond}
	stop := r.start(r.worker())
	r.await("the page that is gone", func() bool { return r.row(gone).Status == store.Dead })
	r.await("the other page", func() bool { return r.row(page).Status == store.Fetched })
	stop()
	if n := r.count("a", "/s/gone/200/404"); n != 2 {
		t.Errorf("%d requests for the page that is gone, want 2", n)
	}
	if _, err := r.store.Refetch(t.Context(), 0, "", nil); err != nil {
		t.Fatal(err)
	}
	r.config.Recrawl = Recrawl{}
	r.crawl()
	if row := r.row(page); !row.RecrawlAt.IsZero() {
		t.Errorf("%+v, want it not to be due again", row)
	}
}

// TestRecrawlSitemap checks that a page is fetched before its time if a sitemap that is fetched again says
// that the page has changed, and not otherwise.
func TestRecrawlSitemap(t *testing.T) {
	t.Parallel()
	var r *rig
	r = newRig(t, time.Millisecond, site.Config{Page: func(_, target string) site.Page {
		if target != "/x/sitemap.xml" {
			return site.Page{}
		}
		entry := func(path string, changed time.Time) string {
			return "<url><loc>" + r.site.URL("a", path) + "</loc><lastmod>" + changed.UTC().Format(time.RFC3339Nano) + "</lastmod></url>"
		}
		return site.Page{Type: "application/xml", Body: `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">` +
			entry("/p/1", time.Now()) + entry("/p/2", time.Now().Add(-time.Hour)) + "</urlset>"}
	}})
	r.config.Recrawl = Recrawl{Every: time.Hour, Rules: []RecrawlRule{{Pattern: regexp.MustCompile(`sitemap`), Every: 20 * time.Millisecond}}}
	entries := store.Entries(r.site.URL("a", "/x/sitemap.xml"))
	entries[0].Kind = store.Sitemap
	if got, err := r.store.Put(t.Context(), entries, store.Limits{}); err != nil || got.Added != 1 {
		t.Fatalf("Put = %+v, %v", got, err)
	}
	stop := r.start(r.worker())
	r.await("the page that changes", func() bool { return r.count("a", "/p/1") >= 4 })
	stop()
	if n := r.count("a", "/p/2"); n != 1 {
		t.Errorf("%d requests for the page that did not change, want 1", n)
	}
}
