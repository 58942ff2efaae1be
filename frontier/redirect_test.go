package frontier

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/normal"
	"fetchd/frontier/store"
)

// redirectTo returns the path of a redirect to a URL.
func redirectTo(status int, where string) string {
	return fmt.Sprintf("/go/%d/1?to=%s", status, url.QueryEscape(where))
}

// TestFinalURL checks the list of S3, over one host and over several.
func TestFinalURL(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		from   func(r *rig) string // the URL to add
		final  func(r *rig) string // the row's URL afterwards
		seen   int                 // requests
		status int
		change func(p *Policy)
	}{
		{"plain 200", func(r *rig) string { return r.site.URL("a", "/p/1") }, nil, 1, 200, nil},
		{"301 to 302 to 200 of one host", func(r *rig) string { return r.site.URL("a", redirectTo(301, redirectTo(302, "/p/1"))) },
			func(r *rig) string { return r.site.URL("a", "/p/1?via=r") }, 3, 200, nil},
		{"301 to 302 to 200 over three hosts", func(r *rig) string {
			return r.site.URL("a", redirectTo(301, r.site.URL("b", redirectTo(302, r.site.URL("c", "/p/1")))))
		}, func(r *rig) string { return r.site.URL("c", "/p/1?via=r") }, 3, 200, nil},
		{"to another host and back", func(r *rig) string {
			return r.site.URL("a", redirectTo(307, r.site.URL("b", redirectTo(308, r.site.URL("a", "/p/9")))))
		}, func(r *rig) string { return r.site.URL("a", "/p/9?via=r") }, 3, 200, nil},
		{"not followed", func(r *rig) string { return r.site.URL("a", redirectTo(302, r.site.URL("b", "/p/1"))) },
			nil, 1, 302, func(p *Policy) { p.FollowRedirects = false }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, time.Millisecond, site.Config{})
			if row.change != nil {
				row.change(&r.config.Policy)
			}
			from := row.from(r)
			final := from
			if row.final != nil {
				final = row.final(r)
			}
			r.add(from)
			stats := r.crawl()
			got := r.row(final)
			if got.Status != store.Fetched || got.HTTPStatus != row.status || got.RetryCount != 0 || got.Host != normal.HostOf(final) {
				t.Errorf("row %+v, want %s fetched with %d", got, final, row.status)
			}
			if stats.Completed != 1 || len(r.paths()) != row.seen {
				t.Errorf("%+v, requests %q; want 1 completed, %d requests", stats, r.paths(), row.seen)
			}
			if final != from {
				if _, err := r.store.Why(t.Context(), from); err == nil {
					t.Errorf("the row of %s is still there", from)
				}
			}
		})
	}
}

// TestTwoRedirectsToOneURL runs two redirects to one URL at once: the first row gets it, the other
// one keeps its own.
func TestTwoRedirectsToOneURL(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	final := r.site.URL("c", "/p/1")
	r.add(r.site.URL("a", redirectTo(302, final)), r.site.URL("b", redirectTo(302, final)))
	if stats := r.crawl(); stats.Completed != 2 {
		t.Errorf("%+v, want 2 completed", stats)
	}
	owners := 0
	for u, err := range r.store.URLs(t.Context()) {
		must(t, err)
		if u.URL == final+"?via=r" {
			owners++
		} else if !strings.Contains(u.URL, "/go/302/") {
			t.Errorf("a row of %s", u.URL)
		}
	}
	if owners != 1 {
		t.Errorf("%d rows own %s, want 1", owners, final)
	}
}

// TestRedirectLimit checks that five redirects succeed and six fail, and that the origin receives
// six requests in both cases, over any number of hosts.
func TestRedirectLimit(t *testing.T) {
	t.Parallel()
	for _, hosts := range []int{1, 2, 7} {
		for _, redirects := range []int{5, 6} {
			t.Run(fmt.Sprintf("%d redirects over %d hosts", redirects, hosts), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, time.Millisecond, site.Config{})
				r.config.Policy.MaxURLRetries = 0
				at := r.site.URL("h0", "/p/1")
				for i := range redirects {
					at = r.site.URL(fmt.Sprintf("h%d", (i+1)%hosts), redirectTo(302, at))
				}
				r.add(at)
				r.crawl()
				if n := r.site.Count(); n != 6 {
					t.Errorf("%d requests, want 6: %q", n, r.paths())
				}
				rec := r.records[0]
				switch {
				case redirects == 5 && (rec.Status != "fetched" || rec.LastError != ""):
					t.Errorf("%+v, want it fetched", rec)
				case redirects == 6 && (rec.Status != "dead" || rec.LastError != "too_many_redirects" || rec.ErrorClass != "too_many_redirects" || r.row(at).LastError != "too_many_redirects"):
					t.Errorf("%+v, want too_many_redirects", rec)
				}
			})
		}
	}
}

// TestRedirectLoop checks that a loop is retried like too_many_redirects, over one host or two.
func TestRedirectLoop(t *testing.T) {
	t.Parallel()
	var r *rig
	r = newRig(t, time.Millisecond, site.Config{Robots: func(host string) (int, string) {
		other := map[string]string{"a.demo.test": "b", "b.demo.test": "a"}[host]
		return 302, r.site.URL(other, "/robots.txt") // here it is a page like any other
	}})
	r.config.Policy.MaxURLRetries = 2
	two, one := r.site.URL("a", "/robots.txt"), r.site.URL("c", "/loop/k/302")
	r.add(two, one)
	r.crawl()
	for _, u := range []string{two, one} {
		if got := r.row(u); got.Status != store.Dead || got.LastError != "redirect_loop" || got.FailureCount != 3 {
			t.Errorf("%+v, want a redirect_loop after two more tries", got)
		}
	}
}

// TestRedirectToClosedHost checks that a target whose host is closed for too long is added to the
// frontier, and the fetch does not wait.
func TestRedirectToClosedHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	r.config.MaxRedirectWait = time.Second
	to := r.site.URL("b", "/p/3?via=r")
	must(t, r.store.Block(t.Context(), normal.HostOf(to), 3*time.Second))
	from := r.site.URL("a", redirectTo(302, r.site.URL("b", "/p/3")))
	r.add(from)
	if stats := r.crawl(); stats.Completed != 2 {
		t.Errorf("%+v, want both fetched", stats)
	}
	if got := r.row(from); got.HTTPStatus != 302 {
		t.Errorf("%+v, want fetched with 302", got)
	}
	if got := r.row(to); got.Status != store.Fetched {
		t.Errorf("%+v, want it fetched later", got)
	}
}

// TestConditional checks that a fetch sends the validators of the last one, and that a 304 is a
// success.
func TestConditional(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	u := r.site.URL("a", "/p/1")
	r.add(u)
	r.crawl()
	if n, err := r.store.Refetch(t.Context(), 0, "", nil); err != nil || n != 1 {
		t.Fatalf("Refetch = %d, %v", n, err)
	}
	r.crawl()
	if got := r.row(u); got.Status != store.Fetched || got.HTTPStatus != 304 {
		t.Errorf("%+v, want 304", got)
	}
}
