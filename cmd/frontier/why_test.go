package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/frontier/show"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

const page = "http://a.test/page"

// forbidding is a robots.txt that forbids the page.
var forbidding = store.Robots{Origin: "http://a.test", Status: 200, Body: []byte("User-agent: *\nDisallow: /p\n")}

// robots stores a robots.txt as a worker would, for the page's origin by default.
func (c *fixture) robots(r store.Robots) {
	c.t.Helper()
	if r.Origin == "" {
		r.Origin = "http://a.test"
	}
	c.store(func(s store.Store) error { return s.SaveRobots(c.t.Context(), r) })
}

func TestWhy(t *testing.T) {
	t.Parallel()
	claim := func(s store.Store, lease time.Duration) error {
		_, err := s.Claim(t.Context(), store.ClaimParams{Worker: "w\x1b1", Lease: lease})
		return err
	}
	for _, tt := range []struct {
		name     string
		setup    func(c *fixture)
		reason   string
		sentence string // its start
	}{
		{"nothing", func(*fixture) {}, "its_turn", "It is not delayed: it waits for its turn"},
		{"fetched", func(c *fixture) {
			c.fetch(store.Fetch{Status: store.Fetched, FetchedParams: store.FetchedParams{HTTPStatus: 200}})
		}, "fetched", "It was fetched already, "},
		{"fetched, with links left out", func(c *fixture) {
			c.fetch(store.Fetch{Status: store.Fetched, LastError: "links left out: of many", FetchedParams: store.FetchedParams{HTTPStatus: 200}})
			c.exec(`UPDATE urls SET fetched_at = fetched_at - 180000000`)
		}, "fetched", "It was fetched already, 2d2h ago (links left out: of many)."},
		{"fetched, and due later", func(c *fixture) {
			c.fetch(store.Fetch{Status: store.Fetched, FetchedParams: store.FetchedParams{HTTPStatus: 200, RecrawlIn: 150 * time.Hour}})
		}, "fetched", `It was fetched already, `},
		{"fetched, and due", func(c *fixture) {
			c.fetch(store.Fetch{Status: store.Fetched, FetchedParams: store.FetchedParams{HTTPStatus: 200, RecrawlIn: time.Hour}})
			c.exec(`UPDATE urls SET fetched_at = fetched_at - 180000000, recrawl_at = recrawl_at - 180000000`)
		}, "fetched", `It was fetched already, 2d2h ago, and is due to be fetched again: start a run with --recrawl.`},
		{"dead", func(c *fixture) { c.fetch(failedIn("forbidden", store.Dead)) }, "dead",
			`It failed for good (forbidden): the site refuses this crawler or this page (403): say with --user-agent who you are and how to reach you; ` +
				`"frontier retry --class forbidden" tries these URLs again.`},
		{"dead by the egress guard", func(c *fixture) { c.fetch(failedIn("target_blocked", store.Dead)) }, "dead",
			`It failed for good (target_blocked): fetchd may not connect to the address or port: allow it with --egress-allow-cidr and --egress-allow-port, `},
		{"dead without a class", func(c *fixture) { c.fetch(failedIn("", store.Dead)) }, "dead", `It failed for good: "frontier retry" tries again.`},
		{"dead, and the crawl paused", func(c *fixture) { c.fetch(failedIn("forbidden", store.Dead)); c.must("pause") }, "dead", "It failed for good"},
		{"in flight", func(c *fixture) {
			c.store(func(s store.Store) error { return claim(s, time.Hour) })
		}, "fetching", `It is being fetched now by worker w\x1b1; the lease ends in `},
		{"left by its worker", func(c *fixture) {
			c.store(func(s store.Store) error { return claim(s, time.Hour) })
			c.exec(`UPDATE urls SET lease_until = 1`)
		}, "lease_expired", `It was being fetched by worker w\x1b1, but the lease expired `},
		{"crawl paused", func(c *fixture) { c.must("pause"); c.must("pause", "a.test") }, "crawl_paused", `The crawl is paused: "frontier resume" continues it.`},
		{"host paused", func(c *fixture) {
			c.must("pause", "a.test")
			c.store(func(s store.Store) error { return s.Block(t.Context(), "a.test", time.Hour) })
		}, "host_paused", `Its host is paused: "frontier resume a.test" continues it.`},
		{"another host paused", func(c *fixture) { c.must("pause", "b.test") }, "its_turn", "It is not delayed"},
		{"forbidden by robots.txt", func(c *fixture) { c.robots(forbidding); c.exec(`UPDATE robots SET saved_at = saved_at - 7200000`) }, "robots_disallowed",
			"robots.txt forbids it: line 2, Disallow: /p (read 2h0m"},
		{"forbidden by a robots.txt that is old", func(c *fixture) { c.robots(forbidding); c.exec(`UPDATE robots SET saved_at = 1`) }, "its_turn", "It is not delayed"},
		{"forbidden, and the crawl paused", func(c *fixture) { c.robots(forbidding); c.must("pause") }, "crawl_paused", "The crawl is paused"},
		{"robots.txt out of reach", func(c *fixture) {
			c.robots(store.Robots{ErrorClass: "dns_not_found", Unreachable: true})
			c.exec(`UPDATE robots SET unreachable_since = unreachable_since - 10800000`)
		}, "robots_unreachable", "The robots.txt of its origin, http://a.test, is unreachable for 3h0m"},
		{"robots.txt out of reach, and the URL waits", func(c *fixture) {
			c.fetch(failedIn("robots_unreachable", store.Failed))
			c.robots(store.Robots{ErrorClass: "dns_not_found", Unreachable: true})
		}, "robots_unreachable", "The robots.txt of its origin, http://a.test, is unreachable for "},
		{"robots.txt out of reach, and its origin is deferred", func(c *fixture) {
			c.robots(store.Robots{ErrorClass: "connect_refused", ErrorText: "the connection was refused; dial tcp 127.0.0.1:443\x1b.", Unreachable: true})
			c.exec(`UPDATE robots SET unreachable_since = unreachable_since - 261000000`)
			c.store(func(s store.Store) error { return s.Defer(t.Context(), "http://a.test", 100*time.Hour) })
			c.store(func(s store.Store) error { return s.Block(t.Context(), "a.test", time.Hour) })
		}, "robots_unreachable", `The robots.txt of its origin, http://a.test, is unreachable for 3d0h: connect_refused: the connection was refused; dial tcp 127.0.0.1:443\x1b. ` +
			"No URL of this origin is fetched until it can be read; it is tried again in 4d"},
		{"the other origin is deferred", func(c *fixture) {
			c.robots(store.Robots{Origin: "https://a.test", ErrorClass: "connect_refused", Unreachable: true})
			c.store(func(s store.Store) error { return s.Defer(t.Context(), "https://a.test", time.Hour) })
		}, "its_turn", "It is not delayed"},
		{"no robots.txt", func(c *fixture) { c.robots(store.Robots{Status: 404}) }, "its_turn", "It is not delayed"},
		{"robots.txt of another origin", func(c *fixture) {
			other := forbidding
			other.Origin = "https://a.test"
			c.robots(other)
		}, "its_turn", "It is not delayed"},
		{"dead by robots.txt", func(c *fixture) { c.robots(forbidding); c.fetch(failedIn("robots_disallowed", store.Dead)) }, "dead",
			"It failed for good (robots_disallowed); robots.txt: line 2, Disallow: /p (read "},
		{"dead without robots.txt", func(c *fixture) {
			c.robots(store.Robots{ErrorClass: "connect_refused", ErrorText: "the connection was refused.", Unreachable: true})
			c.exec(`UPDATE robots SET unreachable_since = unreachable_since - 261000000`)
			c.fetch(failedIn("robots_unreachable", store.Dead))
		}, "dead", "It failed for good (robots_unreachable); the robots.txt of http://a.test: unreachable for 3d0h: connect_refused: the connection was refused (tried "},
		{"dead otherwise", func(c *fixture) { c.robots(forbidding); c.fetch(failedIn("forbidden", store.Dead)) }, "dead", "It failed for good (forbidden): "},
		{"host blocked", func(c *fixture) {
			c.store(func(s store.Store) error { return s.Block(t.Context(), "a.test", 100*time.Hour) })
		}, "host_blocked", "Its host asked for a pause (429 or 503), which ends in 4d"},
		{"failed", func(c *fixture) { c.fetch(failedIn("http_server_error", store.Failed)) }, "backing_off",
			"It failed (http_server_error), and is tried again in 4"},
		{"failed, and its host blocked for longer", func(c *fixture) {
			c.fetch(failedIn("rate_limited", store.Failed))
			c.store(func(s store.Store) error { return s.Block(t.Context(), "a.test", 100*time.Hour) })
		}, "host_blocked", "Its host asked for a pause"},
		{"failed, and its host blocked for less", func(c *fixture) {
			c.fetch(failedIn("rate_limited", store.Failed))
			c.store(func(s store.Store) error { return s.Block(t.Context(), "a.test", time.Hour) })
		}, "backing_off", "It failed (rate_limited)"},
		{"another URL of its host in flight", func(c *fixture) {
			c.store(func(s store.Store) error { return claim(s, time.Hour) })
			c.must("add", "http://a.test/other")
			c.exec(`UPDATE urls SET status = CASE url WHEN '` + page + `' THEN 'pending' ELSE 'fetching' END`)
		}, "host_in_flight", "Its host has 1 of at most 1 fetches in flight."},
		{"its host just asked", func(c *fixture) {
			c.store(func(s store.Store) error { return s.DelayHosts(t.Context(), []string{"a.test"}) })
		}, "host_delay", "Its host was fetched from a moment ago, and may be fetched from again in "},
		{"waits for its group", func(c *fixture) {
			c.exec(`UPDATE hosts SET next_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + 100000, turn_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + 100000`)
		}, "group_turn", "Its host waits for a turn of its group (--group-by), and asks for it in 1m"},
		{"pending again", func(c *fixture) {
			c.fetch(failedIn("forbidden", store.Dead))
			c.must("retry")
			c.exec(`UPDATE hosts SET next_at = 0`)
		}, "its_turn", "It is not delayed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCrawl(t, page)
			c.t = t
			tt.setup(c)
			text := c.must("why", "HTTP://u:secret@A.test:80/page#top")
			if !strings.HasPrefix(text, tt.sentence) || strings.Contains(text, "secret") {
				t.Errorf("why says %q first, want %q", strings.SplitN(text, "\n", 2)[0], tt.sentence)
			}
			var got show.Explanation
			must(t, json.Unmarshal([]byte(c.must("why", "--json", page)), &got))
			if got.Reason != tt.reason || !strings.HasPrefix(got.Sentence, tt.sentence) || got.URL.URL != page || got.Host.Host != "a.test" {
				t.Errorf("why --json = %+v, want reason %s and %q", got, tt.reason, tt.sentence)
			}
		})
	}
}

// TestWhyDelay checks that why reports the delay of the crawl, which is not the default, and that a run of a crawl that is
// paused says so.
func TestWhyDelay(t *testing.T) {
	t.Parallel()
	c := newCrawl(t, "http://127.0.0.1:9/")
	c.must("pause")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	got := runWith(ctx, strings.NewReader(""), nil, "crawl", "--db", c.db, "--delay", "7s")
	if !strings.Contains(got.err, "The crawl is paused: no URL is fetched until \"frontier resume\".\n") {
		t.Errorf("a run of a crawl that is paused: %q", got.err)
	}
	if got := c.must("why", "http://127.0.0.1:9/"); !strings.Contains(got, "\n  delay          7s\n") {
		t.Errorf("why has not the delay of the crawl:\n%s", got)
	}
}

func TestWhyUnknown(t *testing.T) {
	t.Parallel()
	c := newCrawl(t, page)
	got := c.cli("why", "HTTP://u:secret@A.test:80/Page#top")
	want := "frontier: the frontier does not have http://a.test/Page: add it with \"frontier add\"\n"
	if got.code != cli.ExitNothing || got.err != want || got.out != "" {
		t.Errorf("exit status %d, %q, %q; want %d, %q and nothing", got.code, got.err, got.out, cli.ExitNothing, want)
	}
}

func TestWhyUserAgent(t *testing.T) {
	t.Parallel()
	c := newCrawl(t, page)
	c.robots(store.Robots{Status: 200, Body: []byte("User-agent: bot\nDisallow: /p # all\n\nUser-agent: frontier\nAllow: /page\n")})
	for _, tt := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"the default", nil, `"known":true,"allowed":true,"reason":"by_rule","line":5,"rule":"Allow: /page",`},
		{"one that is forbidden", []string{"--user-agent", "Bot/2.0 (+https://bot.test)"}, `"known":true,"allowed":false,"reason":"by_rule","line":2,"rule":"Disallow: /p",`},
		{"one that is not named", []string{"--user-agent", "other"}, `"known":true,"allowed":true,"reason":"no_rule",`},
	} {
		got := c.must(append([]string{"why", "--json", page}, tt.flags...)...)
		if want := `"robots":{"origin":"http://a.test",` + tt.want; !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", tt.name, got, want)
		}
	}
}
