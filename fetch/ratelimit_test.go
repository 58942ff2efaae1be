package fetch_test

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/fetch"
)

// headerOf returns a header of lines such as "Name: value".
func headerOf(lines ...string) http.Header {
	h := make(http.Header)
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		h.Add(name, value)
	}
	return h
}

// TestRateLimits checks what is read of each kind of fields. The vectors check what follows from it.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 7, 0, 0, 0, time.UTC)
	own := func(name string, remaining, quota int64, reset, window time.Duration) fetch.RateLimit {
		return fetch.RateLimit{Name: name, Source: fetch.RateLimitField, Remaining: remaining, Quota: quota, Reset: reset, Window: window}
	}
	x := func(source fetch.RateLimitSource, name string, remaining, quota int64, reset time.Duration) fetch.RateLimit {
		return fetch.RateLimit{Name: name, Source: source, Remaining: remaining, Quota: quota, Reset: reset, Window: -1}
	}
	many := make([]fetch.RateLimit, 16)
	for i := range many {
		many[i] = own("a", 1, -1, -1, -1)
	}
	for _, row := range []struct {
		name   string
		header http.Header
		want   []fetch.RateLimit
	}{
		{"none", headerOf("Retry-After: 5", "RateLimit-Limit: 5"), nil},
		{"the draft's example", headerOf(`RateLimit: "default";r=50;t=30`, `RateLimit-Policy: "default";q=100;w=60`), []fetch.RateLimit{own("default", 50, 100, 30*time.Second, time.Minute)}},
		{"two policies and two limits", headerOf(`RateLimit: "day";r=100;t=36000, "burst";r=0`, `RateLimit-Policy: "burst";q=100;w=60;qu="requests", "day";q=1000;w=86400`),
			[]fetch.RateLimit{own("day", 100, 1000, 10*time.Hour, 24*time.Hour), own("burst", 0, 100, -1, time.Minute)}},
		{"a policy of no limit", headerOf(`RateLimit: "a";r=1`, `RateLimit-Policy: "b";q=5`), []fetch.RateLimit{own("a", 1, -1, -1, -1), own("b", -1, 5, -1, -1)}},
		{"partitions of a policy", headerOf(`RateLimit: "a";r=1;pk=:AA==:, "a";r=2;pk=:AQ==:`, `RateLimit-Policy: "a";q=5;w=1`), []fetch.RateLimit{own("a", 1, 5, -1, time.Second), own("a", 2, 5, -1, time.Second)}},
		{"a policy without a quota, or with a wrong one", headerOf(`RateLimit-Policy: "a";w=5, "b";q=-1, "c";q=1.5, "d";q=1;w=-1, "e";q=1;w="5"`), nil},
		{"malformed beside another field", headerOf(`RateLimit: "a`, `RateLimit-Policy: "a";q=5`), []fetch.RateLimit{own("a", -1, 5, -1, -1)}},
		{"a name of quotes", headerOf(`RateLimit: "\"\\";r=1`), []fetch.RateLimit{own(`"\`, 1, -1, -1, -1)}},
		{"long times", headerOf(`RateLimit: "a";r=999999999999999;t=999999999999999`), []fetch.RateLimit{own("a", 999999999999999, -1, math.MaxInt64/time.Second*time.Second, -1)}},
		{"many", headerOf("RateLimit: "+strings.Repeat(`"a";r=1, `, 40)+`"a";r=0`, `RateLimit-Policy: "b";q=1`, "X-RateLimit-Remaining: 1"), many},
		{"X-RateLimit", headerOf("X-RateLimit-Limit: 60, 60;w=60", "X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 4.5"), []fetch.RateLimit{x(fetch.XRateLimitField, "", 3, 60, 5*time.Second)}},
		{"X-RateLimit, the limit alone", headerOf("X-RateLimit-Limit: 60"), []fetch.RateLimit{x(fetch.XRateLimitField, "", -1, 60, -1)}},
		{"X-RateLimit, nothing usable", headerOf("X-RateLimit-Limit: many", "X-RateLimit-Remaining: -1", "X-RateLimit-Reset: 1h", "X-RateLimit-Resource: core"), nil},
		{"GitHub", headerOf("X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 4999", "X-RateLimit-Reset: 1772434860", "X-RateLimit-Used: 1", "X-RateLimit-Resource: core"),
			[]fetch.RateLimit{x(fetch.XRateLimitWithEpoch, "core", 4999, 5000, time.Minute)}},
		{"GitHub, in the past", headerOf("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1772434700"), []fetch.RateLimit{x(fetch.XRateLimitWithEpoch, "", 0, -1, 0)}},
		{"GitHub, by its own clock", headerOf("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1772434860", "Date: Mon, 02 Mar 2026 07:00:50 GMT"), []fetch.RateLimit{x(fetch.XRateLimitWithEpoch, "", 0, -1, 10*time.Second)}},
		{"both kinds", headerOf(`RateLimit: "a";r=1`, "X-RateLimit-Remaining: 2"), []fetch.RateLimit{own("a", 1, -1, -1, -1), x(fetch.XRateLimitField, "", 2, -1, -1)}},
		{"a long resource", headerOf("X-RateLimit-Remaining: 2", "X-RateLimit-Resource: "+strings.Repeat("x", 65)), []fetch.RateLimit{x(fetch.XRateLimitField, "", 2, -1, -1)}},
	} {
		if diff := cmp.Diff(row.want, fetch.RateLimits(row.header, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}

// TestRateLimitsOfNothing checks that other responses cost nothing.
func TestRateLimitsOfNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts what all goroutines allocate
	h := headerOf("Content-Type: text/html", "Retry-After: 5")
	if n := testing.AllocsPerRun(100, func() { fetch.RateLimits(h, time.Time{}) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// FuzzRateLimits checks that any fields are read within the limits.
func FuzzRateLimits(f *testing.F) {
	f.Add(`"default";r=50;t=30`, `"burst";q=100;w=60`, "0", "1772434860", "60")
	f.Add(`"a";r=0, ("b" "c");r=1;t=?1`, "b;q=1", "1, 2", "1.5", "-1")
	f.Add(`"\`, ";", "", "99999999999999999999", "1e9")
	f.Fuzz(func(t *testing.T, limit, policy, remaining, reset, quota string) {
		h := http.Header{"Ratelimit": {limit, limit}, "Ratelimit-Policy": {policy}, "X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {reset},
			"X-Ratelimit-Limit": {quota}, "X-Ratelimit-Resource": {limit}, "Date": {policy}, "Age": {remaining}}
		all := fetch.RateLimits(h, time.Unix(1772434800, 0))
		if len(all) > 16 {
			t.Errorf("%d limits", len(all))
		}
		for _, l := range all {
			if len(l.Name) > 64 || l.Remaining < -1 || l.Quota < -1 || l.Reset < -1 || l.Window < -1 || l.Source == 0 || l.Remaining < 0 && l.Quota < 0 && l.Reset < 0 {
				t.Errorf("%+v", l)
			}
		}
		if d := fetch.Exhausted(all); d < 0 {
			t.Errorf("exhausted for %v", d)
		}
	})
}
