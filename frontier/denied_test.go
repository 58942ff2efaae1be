package frontier

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/fetch"
	"fetchd/frontier/store"
	"fetchd/internal/policies"
	"fetchd/server"
	"fetchd/server/fetchdtest"
)

// policySet returns a set with one policy for all callers, which reaches the site.
func (r *rig) policySet(egress, request string) *policies.Set {
	r.Helper()
	set, faults := policies.Parse([]byte(fmt.Sprintf("policies: {crawler: {egress: {allow-addresses: [127.0.0.0/8], ports: [%d]%s}, request: {%s}}}\ndefault: crawler\n", r.site.Port(), egress, request)))
	if len(faults) > 0 {
		r.Fatal(faults)
	}
	return set
}

// newPolicyRig returns a rig whose service has a policy for its callers.
func newPolicyRig(t *testing.T, cfg site.Config, egress, request string) *rig {
	t.Helper()
	r := newRig(t, time.Millisecond, cfg)
	r.service = &fetchd{fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, InMemory: true, Configure: func(c *server.Config) {
		c.Fetch.Resolver = r.site.Resolver()
		c.Fetch.Egress = fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{uint16(r.site.Port())}} //nolint:gosec // a port
		c.Policies = r.policySet(egress, request)
	}})}
	r.config.IgnoreRobots = false
	return r
}

// TestPolicyBlocks checks that no URL is fetched whose robots.txt, or whose redirect, the policy of the service
// blocks: the URL is dead, says why, and delays nothing. It is fetched once the policy permits it.
func TestPolicyBlocks(t *testing.T) {
	t.Parallel()
	const denied = `target_blocked: of its robots.txt: the policy "crawler" of this caller forbids the target: its name is in deny-names (domain:no.demo.test)`
	for _, row := range []struct {
		name, host, path string // PORT is that of the site
		robots           string // of the host "to": the target of a redirect
		requests         int    // before the policy permits it
		closed           bool
	}{
		{"its host", "no", "/p/1", "", 0, false},
		{"a host below it", "a.no", "/p/1", "", 0, false},
		{"its robots.txt leads there", "to", "/p/1", "http://no.demo.test:PORT/robots.txt", 1, true},
		{"its page leads there", "open", redirectTo(302, "http://no.demo.test:PORT/p/1"), "", 2, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var port string
			r := newPolicyRig(t, site.Config{Robots: func(host string) (int, string) {
				if row.robots != "" && host == "to.demo.test" {
					return 302, strings.ReplaceAll(row.robots, "PORT", port)
				}
				return 404, ""
			}}, `, deny-names: ["domain:no.demo.test"]`, "")
			_, port, _ = strings.Cut(r.site.Addr(), ":")
			r.config.RobotsPatience = time.Hour
			blocked, other := r.site.URL(row.host, strings.ReplaceAll(row.path, "PORT", port)), r.site.URL("other", "/p/1")
			r.add(blocked)
			if stats := r.crawl(); stats.Dead != 1 || stats.Failed != 0 || r.site.Count() != row.requests {
				t.Errorf("%+v after %d requests, want one dead after %d", stats, r.site.Count(), row.requests)
			}
			e, err := r.store.Why(t.Context(), blocked)
			must(t, err)
			if e.URL.Status != store.Dead || !strings.HasPrefix(e.URL.LastError, denied) {
				t.Errorf("%s %q, want it dead with %q", e.URL.Status, e.URL.LastError, denied)
			}
			if e.Host.NextAt.IsZero() == row.closed || !e.Host.BlockedUntil.IsZero() || !e.Deferred.IsZero() {
				t.Errorf("%+v, deferred until %v, want the host closed only for its delay after a request", e.Host, e.Deferred)
			}
			r.service.Service.SetPolicies(r.policySet("", ""))
			n, err := r.store.RetryFailed(t.Context(), "target_blocked", "", nil)
			must(t, err)
			r.add(other)
			if stats := r.crawl(); n != 1 || stats.Completed != 2 {
				t.Errorf("%d to retry, %+v, want both fetched once the policy permits it", n, stats)
			}
		})
	}
}

// logged is a slog.Handler that sends the lines of the log from a level on.
type logged struct {
	slog.Handler

	least slog.Level
	lines chan string
}

// Enabled implements slog.Handler.
func (l logged) Enabled(_ context.Context, level slog.Level) bool { return level >= l.least }

// Handle implements slog.Handler.
func (l logged) Handle(_ context.Context, r slog.Record) error { //nolint:gocritic // the interface
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.Value.String()
		return true
	})
	l.lines <- text
	return nil
}

// TestPolicyDeniesSettings checks that a worker whose settings the policy of the service forbids loses no URL: it
// waits, says which setting, and continues when the policy permits it.
func TestPolicyDeniesSettings(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, request, message string }{
		{"the size", "max-size-bytes: 1000000", "request.body_policy.max_size_bytes is 16777216: the policy permits at most 1000000: give a lower --max-body-bytes, or permit it in the policy"},
		{"the time", "max-total-timeout: 30s", "request.timeout_policy.total_timeout is 1m0s: the policy permits at most 30s: give a shorter --total-timeout, or permit it in the policy"},
		{"the attempts", "max-attempts: 1", "request.retry_policy.max_attempts is 2: the policy permits at most 1: give a lower --max-attempts, or permit it in the policy"},
		{"the redirects", "max-redirects: 4", "request.redirect_policy.max_redirects is 5: the policy permits at most 4: set a lower CRAWLER_MAX_REDIRECTS, or permit it in the policy"},
		{"the method", "methods: [HEAD]", `request.method is "GET": the policy permits HEAD: permit it in the policy`},
		{"a label", "required-labels: [team]", `request.labels lacks "team": the policy requires it: permit it in the policy`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newPolicyRig(t, site.Config{}, "", row.request)
			r.config.MaxAttempts = 2
			lines := make(chan string, 1000)
			r.config.Logger = slog.New(logged{slog.DiscardHandler, slog.LevelError, lines})
			for n := range 20 {
				r.add(r.site.URL(fmt.Sprintf("h%d", n), "/p/1"))
			}
			done := make(chan error)
			w := r.worker()
			go func() { done <- w.Run(t.Context()) }()
			if got, want := <-lines, `cannot fetch the policy "crawler" of this caller forbids the request: `+row.message; got != want {
				t.Errorf("the log has %q, want %q", got, want)
			}
			if c, err := r.store.Counts(t.Context()); err != nil || c.Failed+c.Dead+c.Fetched != 0 {
				t.Errorf("%+v, %v, want no outcome", c, err)
			}
			r.service.Service.SetPolicies(r.policySet("", ""))
			must(t, <-done)
			if stats := w.Stats(); stats.Completed != 20 || stats.Failed+stats.Dead != 0 {
				t.Errorf("%+v, want 20 fetched", stats)
			}
			if len(lines) > 1 {
				t.Errorf("%d more errors in the log, want one for each delay", len(lines))
			}
		})
	}
}

// TestPolicySmallFiles checks that a policy with a small maximum does not stop the fetches of robots.txt and of sitemaps,
// whose maximum is not a setting. A robots.txt over it forbids.
func TestPolicySmallFiles(t *testing.T) {
	t.Parallel()
	r := newPolicyRig(t, site.Config{Robots: func(host string) (int, string) {
		if host == "long.demo.test" {
			return 200, "User-agent: *\n" + strings.Repeat("#\n", 1000)
		}
		return 200, "User-agent: *\nDisallow: /p/2\n"
	}, Page: func(string, string) site.Page {
		return site.Page{Type: "application/xml", Body: `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"></urlset>`}
	}}, "", "max-size-bytes: 1500")
	r.config.MaxBodyBytes, r.config.RobotsPatience = 1500, time.Millisecond
	r.config.Policy.MaxURLRetries = 0
	allowed, forbidden, long, list := r.site.URL("a", "/p/1"), r.site.URL("a", "/p/2"), r.site.URL("long", "/p/1"), r.site.URL("b", "/x/sitemap.xml")
	r.add(allowed, forbidden, long)
	if got, err := r.store.Put(t.Context(), []store.Entry{{URL: list, Kind: store.Sitemap}}, store.Limits{}); err != nil || len(got.Bad) > 0 {
		t.Fatal(got, err)
	}
	r.crawl()
	for u, want := range map[string]string{allowed: "", list: "", forbidden: "robots_disallowed", long: "robots_unreachable"} {
		if got := r.row(u); got.ErrorClass != want {
			t.Errorf("%s ends as %q: %s, want %q", u, got.ErrorClass, got.LastError, want)
		}
	}
}
