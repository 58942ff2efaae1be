package show

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/frontier/robots"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
)

func diff(t *testing.T, what, want, got string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	e := &why.Evidence{Explanation: store.Explanation{
		URL: store.URL{
			URL: "http://a.test/page", Host: "a.test", Status: store.Failed, LastError: "http_server_error: 503\x1b[2J", ErrorClass: "http_server_error",
			RetryCount: 2, FailureCount: 1, CrashCount: 3, HTTPStatus: 503, ReadyAt: now.Add(4*time.Minute + 10*time.Second),
			LeaseUntil: now.Add(-time.Hour), Worker: "w1", FetchedAt: now.Add(-72 * time.Hour),
			Place: store.Place{Priority: 7, Depth: 2, ParentURL: "http://a.test/\x1b"},
		},
		Host: store.Host{NextAt: now.Add(time.Second), Delay: 1500 * time.Millisecond, MaxInFlight: 1},
		Now:  now,
	}, Robots: rulebook.State{Origin: "http://a.test", Known: true, Fresh: true, Age: 2 * time.Hour, Decision: robots.Decision{
		Allowed: true, Reason: robots.ByRule, Line: robots.Line{Number: 3, Text: "Allow: /p\x1b"},
	}}}
	diff(t, "explanation", `It failed (http_server_error), and is tried again in 4m10s at the earliest.

http://a.test/page
  kind           page
  found          2 links from a start, on http://a.test/\x1b
  priority       7
  status         failed
  last error     http_server_error: 503\x1b[2J
  error class    http_server_error
  HTTP status    503
  retries        2 in its last fetch
  failures       1 since its last success
  crashes        3 leases that expired
  ready at       2026-01-02T03:08:15.678Z (in 4m10s)
  lease          until 2026-01-02T02:04:05.678Z (1h0m0s ago) by worker w1
  last ended     2025-12-30T03:04:05.678Z (3d0h ago)
  due again      none
Host a.test
  next at        2026-01-02T03:04:06.678Z (in 1s)
  blocked until  none
  delay          1.5s
  in flight      0 of at most 1
  paused         no
Origin http://a.test
  robots.txt     allowed by line 3, Allow: /p\x1b (read 2h0m0s ago)
  deferred until none
Crawl
  paused         no
  now            2026-01-02T03:04:05.678Z (the database's clock)
`, Explain(e))
}

func TestEnded(t *testing.T) {
	t.Parallel()
	for status, want := range map[store.Status]string{
		store.Fetched: "fetched at", store.Pending: "last ended", store.Fetching: "last ended", store.Failed: "last ended", store.Dead: "last ended",
	} {
		if got := ended(&store.URL{Status: status}); got != want {
			t.Errorf("%s: %q, want %q", status, got, want)
		}
	}
}

// Text from the database cannot control the terminal.
func TestExplainEscapes(t *testing.T) {
	t.Parallel()
	const bad = "a\x1b[2J\u009b\u202e"
	for _, tt := range []struct {
		name string
		e    why.Evidence
	}{
		{"dead", why.Evidence{Explanation: store.Explanation{URL: store.URL{Status: store.Dead}}}},
		{"failed", why.Evidence{Explanation: store.Explanation{URL: store.URL{Status: store.Failed, ReadyAt: time.Unix(1, 0)}}}},
		{"in flight", why.Evidence{Explanation: store.Explanation{URL: store.URL{Status: store.Fetching, LeaseUntil: time.Unix(1, 0)}}}},
		{"paused", why.Evidence{Explanation: store.Explanation{URL: store.URL{Status: store.Pending}, Host: store.Host{Paused: true}}}},
	} {
		e := &tt.e
		e.URL.URL, e.URL.Host, e.URL.ErrorClass, e.URL.LastError, e.URL.Worker = bad, bad, bad, bad, bad
		if got := Explain(e); strings.ContainsAny(got, "\x1b\u009b\u202e") {
			t.Errorf("%s: %q has what a terminal obeys", tt.name, got)
		}
	}
}
