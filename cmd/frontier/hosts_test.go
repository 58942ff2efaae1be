package main

import (
	"strings"
	"testing"
	"time"

	"fetchd/frontier/store"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	c := newCrawl(t, page)
	for _, step := range []struct {
		command, told string
		claims        int // that a worker gets then
	}{
		{"resume", "The crawl was not paused.\n", 1},
		{"pause a.test", "Host a.test is paused: none of its URLs is fetched until \"frontier resume a.test\".\n", 0},
		{"pause", "The crawl is paused: no URL is fetched until \"frontier resume\".\n", 0},
		{"pause https://A.test./", "Host a.test is paused: none of its URLs is fetched until \"frontier resume a.test\".\nThe whole crawl is paused too.\n", 0},
		{"resume A.TEST", "Host a.test is no longer paused.\nBut the whole crawl is paused: \"frontier resume\" continues it.\n", 0},
		{"resume", "The crawl is no longer paused.\n", 1},
		{"pause a.test:8080", "Host a.test:8080 is paused: none of its URLs is fetched until \"frontier resume a.test:8080\".\nThe frontier has no URL of a.test:8080, but of a.test.\n", 1},
		{"resume exampel.com", "Host exampel.com was not paused.\nThe frontier has no URL of exampel.com.\n", 1},
		{"resume", "The crawl was not paused.\nHosts with a pause of their own: 1.\n", 1},
	} {
		diff(t, step.command, step.told, c.must(strings.Fields(step.command)...))
		c.store(func(s store.Store) error {
			claims, err := s.Claim(t.Context(), store.ClaimParams{})
			if err == nil && len(claims) != step.claims {
				t.Errorf("after %s a worker gets %d URLs, want %d", step.command, len(claims), step.claims)
			}
			for _, claim := range claims {
				if _, err := s.Release(t.Context(), []store.Lease{claim.Lease}); err != nil {
					return err
				}
			}
			return err
		})
	}
	c.store(func(s store.Store) error {
		_, err := s.Claim(t.Context(), store.ClaimParams{})
		return err
	})
	if got, want := c.must("pause"), "\n1 fetch is in flight, and will end.\n"; !strings.HasSuffix(got, want) {
		t.Errorf("pause = %q, want %q at its end", got, want)
	}
}

func TestHostKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ arg, want string }{
		{"example.org", "example.org"},
		{"EXAMPLE.org.", "example.org"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"example.org:8443", "example.org:8443"},
		{"example.org:80", "example.org"},
		{"example.org:443", "example.org"},
		{"http://example.org/a?b#c", "example.org"},
		{"http://example.org:443/", "example.org:443"},
		{"https://u:pw@example.org:444/", "example.org:444"},
		{"192.0.2.1", "192.0.2.1"},
		{"2001:DB8::1", "[2001:db8::1]"},
		{"[2001:db8::1]:80", "[2001:db8::1]"},
	} {
		if got, err := hostKey(tt.arg); got != tt.want || err != nil {
			t.Errorf("hostKey(%q) = %q, %v, want %q", tt.arg, got, err, tt.want)
		}
	}
	for _, arg := range []string{"", "/", "a b", "example.org/", "u@example.org", "example.org?x", "example.org:port", "ftp://example.org", "http://", "[::1"} {
		if got, err := hostKey(arg); err == nil {
			t.Errorf("hostKey(%q) = %q, want an error", arg, got)
		}
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	c := newCrawl(t, page)
	for _, step := range []struct {
		args  []string
		told  string
		delay time.Duration
		most  int
	}{
		{[]string{"--delay", "1m30s"}, "Host a.test: the delay is 1m30s.\n", 90 * time.Second, 1},
		{[]string{"--max-in-flight", "3"}, "Host a.test: at most 3 in flight.\n", 90 * time.Second, 3},
		{[]string{"--delay", "0s", "--max-in-flight", "2"}, "Host a.test: the delay is 0s.\nHost a.test: at most 2 in flight.\n", 0, 2},
		{[]string{"--delay", "default"}, "Host a.test: the delay is the default of the crawl.\n", time.Hour, 2},
	} {
		diff(t, "output", step.told, c.must(append([]string{"set", page}, step.args...)...))
		c.store(func(s store.Store) error {
			e, err := s.Why(t.Context(), page)
			if e.Host.Delay != step.delay || e.Host.MaxInFlight != step.most {
				t.Errorf("after %q: delay %v, at most %d in flight; want %v, %d", step.args, e.Host.Delay, e.Host.MaxInFlight, step.delay, step.most)
			}
			return err
		})
	}
	diff(t, "an unknown host", "Host unknown.test: the delay is 5s.\nThe frontier has no URL of unknown.test.\n", c.must("set", "unknown.test", "--delay", "5s"))
	c.must("add", "http://ports.test:8080/", "https://ports.test:8443/")
	diff(t, "another port", "Host ports.test: the delay is 5s.\nThe frontier has no URL of ports.test, but of ports.test:8080, ports.test:8443.\n", c.must("set", "ports.test", "--delay", "5s"))
	c.must("add", "http://unknown.test/")
	if got := c.must("why", "http://unknown.test/"); !strings.Contains(got, "\n  delay          5s\n") {
		t.Errorf("why lacks the delay that was set before the host was known:\n%s", got)
	}
}

func TestRefetch(t *testing.T) {
	t.Parallel()
	c := busy(t)
	diff(t, "too new", "0 URLs that were fetched at least 1h0m0s ago are pending again.\n", c.must("retry", "--fetched-before", "1h"))
	diff(t, "any age", "1 URL that was fetched is pending again.\n", c.must("retry", "--fetched-before", "0s"))
	diff(t, "none left", "0 URLs that were fetched are pending again.\n", c.must("retry", "--fetched-before", "0s"))
	if got := c.must("why", "http://fetched.test/"); !strings.Contains(got, "\n  status         pending\n") {
		t.Errorf("the URL that was fetched is not pending:\n%s", got)
	}
	diff(t, "what failed", "4 URLs that had failed are pending again.\n", c.must("retry"))
}

func TestRetry(t *testing.T) {
	t.Parallel()
	c := busy(t)
	diff(t, "another class", "0 URLs that had failed with robots_disallowed are pending again.\n", c.must("retry", "--class", "robots_disallowed"))
	diff(t, "another host", "0 URLs of fetched.test that had failed are pending again.\n", c.must("retry", "--host", "fetched.test"))
	diff(t, "an unknown host", "0 URLs of exampel.com that had failed are pending again.\nThe frontier has no URL of exampel.com.\n", c.must("retry", "--host", "exampel.com"))
	diff(t, "fetched URLs of a host", "1 URL of fetched.test that was fetched is pending again.\n", c.must("retry", "--host", "http://fetched.test/x", "--fetched-before", "0s"))
	diff(t, "a class", "1 URL that had failed with dns_not_found is pending again.\n", c.must("retry", "--class", "dns_not_found"))
	diff(t, "a host", "1 URL of none.test that had failed is pending again.\n", c.must("retry", "--host", "none.test"))
	diff(t, "all", "2 URLs that had failed are pending again.\n", c.must("retry"))
	diff(t, "none", "0 URLs that had failed are pending again.\n", c.must("retry"))
}
