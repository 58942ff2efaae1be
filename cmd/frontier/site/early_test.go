package site_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/cmd/frontier/site"
)

const ms = time.Millisecond

// visit returns a visit with times in milliseconds.
func visit(host, path string, start, end int, kind site.Kind) site.Visit {
	return site.Visit{
		Host: host, Path: path, Method: "GET", Start: time.Duration(start) * ms, End: time.Duration(end) * ms, Kind: kind,
	}
}

func TestEarly(t *testing.T) {
	t.Parallel()
	const first, redirected, robots = site.First, site.Redirected, site.Robots
	firsts := func(v site.Visit) bool { return v.Kind == first }
	long := visit("a", "/long", 1000, 5000, first)
	type found struct {
		before, visit string
		by            time.Duration
	}
	for _, tc := range []struct {
		name   string
		visits []site.Visit
		delay  time.Duration
		which  func(site.Visit) bool
		want   []found
	}{
		{name: "none"},
		{name: "one", visits: []site.Visit{long}, delay: time.Second},
		{
			name:   "exactly the delay",
			visits: []site.Visit{visit("a", "/1", 1, 100, first), visit("a", "/2", 1100, 1200, first)},
			delay:  1000 * ms,
		},
		{
			name:   "less than the delay by 1 ns",
			visits: []site.Visit{visit("a", "/1", 1, 100, first), visit("a", "/2", 1100, 1200, first)},
			delay:  1000*ms + 1,
			want:   []found{{"/1", "/2", 1}},
		},
		{
			name:   "the delay from the start is not enough",
			visits: []site.Visit{visit("a", "/1", 1, 500, first), visit("a", "/2", 1001, 1200, first)},
			delay:  1000 * ms,
			want:   []found{{"/1", "/2", 499 * ms}},
		},
		{
			name:   "another host",
			visits: []site.Visit{visit("a", "/1", 1, 100, first), visit("b", "/2", 2, 100, first)},
			delay:  1000 * ms,
		},
		{
			name:   "overlap, no delay",
			visits: []site.Visit{visit("a", "/1", 1, 100, first), visit("a", "/2", 99, 200, first)},
			want:   []found{{"/1", "/2", 1 * ms}},
		},
		{
			name:   "back to back, no delay",
			visits: []site.Visit{visit("a", "/1", 1, 100, first), visit("a", "/2", 100, 200, first)},
		},
		{
			name:   "inside another",
			visits: []site.Visit{long, visit("a", "/2", 2000, 3000, first)},
			want:   []found{{"/long", "/2", 3000 * ms}},
		},
		{
			name: "after one that ended, within the one before it",
			visits: []site.Visit{
				long, visit("a", "/2", 1500, 1600, redirected), visit("a", "/3", 4000, 4100, first),
			},
			which: firsts,
			want:  []found{{"/long", "/3", 1000 * ms}},
		},
		{
			name: "the one before is judged by no kind",
			visits: []site.Visit{
				visit("a", "/robots.txt", 1, 100, robots), visit("a", "/2", 600, 700, first),
				visit("a", "/3", 1800, 1900, redirected), visit("a", "/4", 2000, 2100, first),
			},
			delay: 1000 * ms, which: firsts,
			want: []found{{"/robots.txt", "/2", 500 * ms}, {"/3", "/4", 900 * ms}},
		},
		{
			name: "not asked for",
			visits: []site.Visit{
				visit("a", "/1", 1, 100, first), visit("a", "/2", 101, 200, redirected), visit("a", "/3", 202, 300, robots),
			},
			delay: 1000 * ms, which: firsts,
		},
		{
			name:   "one that goes on",
			visits: []site.Visit{visit("a", "/1", 1, 0, first), visit("a", "/2", 9000, 9100, first)},
			delay:  1000 * ms,
			want:   []found{{"/1", "/2", 1000 * ms}},
		},
		{
			name: "one that goes on stays the last",
			visits: []site.Visit{
				visit("a", "/1", 1, 0, redirected), visit("a", "/2", 9000, 9100, redirected), visit("a", "/3", 99000, 99100, first),
			},
			which: firsts,
			want:  []found{{"/1", "/3", 1}},
		},
		{
			name: "one that goes on after one that ended",
			visits: []site.Visit{
				visit("a", "/1", 1, 100, first), visit("a", "/2", 200, 0, redirected), visit("a", "/3", 9000, 9100, first),
			},
			delay: 1000 * ms, which: firsts,
			want: []found{{"/2", "/3", 1000 * ms}},
		},
		{
			name:   "one that goes on and comes last",
			visits: []site.Visit{visit("a", "/1", 1, 100, first), visit("a", "/2", 1100, 0, first)},
			delay:  1000 * ms,
		},
		{
			name:   "at once",
			visits: []site.Visit{visit("a", "/1", 1, 100, first), visit("a", "/2", 1, 50, first)},
			want:   []found{{"/1", "/2", 99 * ms}},
		},
		{
			name:   "at once, with one that is not asked for",
			visits: []site.Visit{visit("a", "/1", 1, 100, first), visit("a", "/2", 1, 50, robots)},
			which:  firsts,
			want:   []found{{"/2", "/1", 49 * ms}},
		},
		{
			name:   "out of order",
			visits: []site.Visit{visit("a", "/2", 600, 700, first), visit("b", "/3", 1, 2, first), visit("a", "/1", 1, 100, first)},
			delay:  1000 * ms,
			want:   []found{{"/1", "/2", 500 * ms}},
		},
		{
			name: "each once",
			visits: []site.Visit{
				visit("a", "/1", 1, 100, first), visit("a", "/2", 200, 300, first), visit("a", "/3", 400, 500, first),
			},
			delay: 1000 * ms,
			want:  []found{{"/1", "/2", 900 * ms}, {"/2", "/3", 900 * ms}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			given := slices.Clone(tc.visits)
			var got []found
			for _, v := range site.Early(tc.visits, tc.delay, tc.which) {
				if v.Host != v.Visit.Host || v.Host != v.Before.Host {
					t.Errorf("violation %v is of %s", v, v.Host)
				}
				got = append(got, found{v.Before.Path, v.Visit.Path, v.By})
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(found{})); diff != "" {
				t.Errorf("Early(%+v, %v) (-want +got):\n%s", tc.visits, tc.delay, diff)
			}
			if diff := cmp.Diff(given, tc.visits); diff != "" {
				t.Errorf("Early changed what it was given (-before +after):\n%s", diff)
			}
		})
	}
}

func TestViolationString(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		v    site.Violation
		want string
	}{
		{
			"ended",
			site.Violation{
				Host: "a", Before: visit("a", "/1", 1, 100, site.Redirected), Visit: visit("a", "/2", 600, 700, site.First), By: 500 * ms,
			},
			"a: first /2 started at 600ms, 500ms too early: redirected /1, started at 1ms, ended at 100ms",
		},
		{
			"goes on",
			site.Violation{
				Host: "a", Before: visit("a", "/robots.txt", 1, 0, site.Robots), Visit: visit("a", "/2", 600, 700, site.First), By: 1000 * ms,
			},
			"a: first /2 started at 600ms, 1s too early: robots /robots.txt, started at 1ms, has not ended",
		},
	} {
		if got := tc.v.String(); got != tc.want {
			t.Errorf("%s: String() = %q, want %q", tc.name, got, tc.want)
		}
	}
}
