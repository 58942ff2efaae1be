package progress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
)

func diff(t *testing.T, what, want, got string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// crawling is a crawl that completes ten URLs per second, of which every tenth fails.
type crawling struct {
	started time.Time
	urls    int64
	forbids int64         // URLs that robots.txt forbids, of those that fail
	reads   int           // of the table
	takes   time.Duration // a read
	fails   error         // each read
	robots  int64         // files that are read, two per second, before the first URL
	pauses  time.Duration // all hosts wait, for this long from the start
}

func (c *crawling) ended() int64 {
	since := time.Since(c.started) - time.Duration(c.robots)*time.Second/2
	return max(0, min(c.urls, int64(since.Seconds()*10)))
}

func (c *crawling) stats() frontier.Stats {
	n := c.ended()
	if c.pauses > 0 {
		return frontier.Stats{Completed: 9}
	}
	return frontier.Stats{Completed: n - n/10, Dead: n / 10, Disallowed: min(c.forbids, n/10), Open: 3,
		Robots: min(c.robots, int64(time.Since(c.started).Seconds()*2))}
}

func (c *crawling) counts(ctx context.Context) (store.Counts, error) {
	c.reads++
	left := c.urls - c.ended()
	if c.pauses > 0 {
		return store.Counts{Failed: 1, HostsWaiting: 1, NextDue: c.pauses - time.Since(c.started), Waits: store.Waits{RobotsUnreachable: 1}, OriginsDeferred: 1}, nil
	}
	select {
	case <-time.After(c.takes):
	case <-ctx.Done():
		return store.Counts{}, ctx.Err()
	}
	return store.Counts{Pending: left - left/4, Failed: left / 4, HostsWaiting: 7, HostsBlocked: 2}, c.fails
}

// watch shows the progress of the crawl for a time.
func (c *crawling) watch(p *Display, draws bool, d time.Duration) string {
	var out bytes.Buffer
	p.Out = &Console{Draws: draws, w: &out}
	c.started = time.Now()
	p.Counts, p.stats, p.started = c.counts, c.stats, c.started
	p.Deferred = func(context.Context) (string, error) { return "https://a.example/robots.txt: tls_certificate", nil }
	ctx, stop := context.WithTimeout(context.Background(), d)
	defer stop()
	p.run(ctx, nil)
	return out.String()
}

func TestProgressLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crawling{urls: 400}
		diff(t, "lines", `90 completed, 10 failed, 10/s, 300 to go in about 30s, 3 in flight, hosts: 7 waiting, 2 blocked
180 completed, 20 failed, 10/s, 200 to go in about 20s, 3 in flight, hosts: 7 waiting, 2 blocked
270 completed, 30 failed, 10/s, 100 to go in about 10s, 3 in flight, hosts: 7 waiting, 2 blocked
360 completed, 40 failed, 10/s, 0 to go, 3 in flight, hosts: 7 waiting, 2 blocked
360 completed, 40 failed, 0/s, 0 to go, 3 in flight, hosts: 7 waiting, 2 blocked
`, c.watch(&Display{}, false, 55*time.Second))
		c = &crawling{urls: 400, forbids: 4}
		diff(t, "with robots.txt", "90 completed, 6 failed, 4 disallowed by robots.txt, 10/s, 300 to go in about 30s, 3 in flight, hosts: 7 waiting, 2 blocked\n", c.watch(&Display{}, false, 15*time.Second))
		c = &crawling{urls: 100, robots: 40}
		diff(t, "reading robots.txt first", `0 completed, 0 failed, 0/s, 20 robots.txt read, 2/s, 100 to go, 3 in flight, hosts: 7 waiting, 2 blocked
0 completed, 0 failed, 0/s, 40 robots.txt read, 2/s, 100 to go, 3 in flight, hosts: 7 waiting, 2 blocked
90 completed, 10 failed, 10/s, 0 to go, 3 in flight, hosts: 7 waiting, 2 blocked
`, c.watch(&Display{}, false, 35*time.Second))
		c = &crawling{pauses: 25 * time.Second}
		diff(t, "all hosts wait", `https://a.example/robots.txt: tls_certificate
9 completed, 0 failed, 1/s, 1 to try again, the next in 15s, 0 in flight, hosts: 1 waiting, 0 blocked, 1 URL of 1 origin without robots.txt
9 completed, 0 failed, 0/s, 1 to try again, the next in 5s, 0 in flight, hosts: 1 waiting, 0 blocked, 1 URL of 1 origin without robots.txt
9 completed, 0 failed, 0/s, 1 to try again, 0 in flight, hosts: 1 waiting, 0 blocked, 1 URL of 1 origin without robots.txt
`, c.watch(&Display{}, false, 35*time.Second))
		c = &crawling{urls: 400, fails: errors.New("the database is away")}
		diff(t, "without counts", "90 completed, 10 failed, 10/s, 3 in flight\n", c.watch(&Display{}, false, 15*time.Second))
		c = &crawling{urls: 400}
		if got := c.watch(&Display{Endless: true}, false, 15*time.Second); strings.Contains(got, "about") || !strings.Contains(got, "300 to go,") {
			t.Errorf("an endless run tells of an end: %q", got)
		}
		c = &crawling{urls: 400}
		diff(t, "quiet", "", c.watch(&Display{Quiet: true}, false, 55*time.Second))
		if c.reads != 0 {
			t.Errorf("a quiet run has read the table %d times, want never", c.reads)
		}
	})
}

// TestFaultsAreNamed checks that, without a terminal, each line names the most frequent class since
// the last line, including temporary failures.
func TestFaultsAreNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, draws := range []bool{false, true} {
			c, p := &crawling{urls: 400}, &Display{}
			var given atomic.Int64
			record := p.Recorded(func(frontier.Record) error { given.Add(1); return nil })
			fail := func(classes ...string) {
				for _, class := range classes {
					if err := record(frontier.Record{ErrorClass: class}); err != nil {
						t.Error(err)
					}
				}
			}
			time.AfterFunc(5*time.Second, func() { fail("dns_not_found", "forbidden", "dns_not_found", "", "", "") })
			time.AfterFunc(15*time.Second, func() { fail("forbidden", "b", "b", "forbidden") })
			got := c.watch(p, draws, 35*time.Second)
			if draws {
				if strings.Contains(got, "lately") {
					t.Errorf("a line that is drawn names a class: %q", got)
				}
				continue
			}
			want := []string{"10 failed, lately 2 dns_not_found, 10/s", "20 failed, lately 2 b, 10/s", "30 failed, 10/s"}
			lines := strings.Split(got, "\n")
			for i := range want {
				if !strings.Contains(lines[i], want[i]) {
					t.Errorf("line %d is %q, want %q in it", i, lines[i], want[i])
				}
			}
			if n := given.Load(); n != 10 {
				t.Errorf("%d outcomes were given on, want 10", n)
			}
		}
		if err := new(Display).Recorded(nil)(frontier.Record{ErrorClass: "x"}); err != nil {
			t.Errorf("an outcome for nobody: %v", err)
		}
	})
}

// TestProgressDrawn checks that there is a line each second, and a count every five seconds if
// counting takes 50 ms. Between counts the URLs that have ended are not "to go".
func TestProgressDrawn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crawling{urls: 400, takes: 50 * time.Millisecond}
		lines := strings.Split(c.watch(&Display{}, true, 12500*time.Millisecond), "\r\x1b[K")
		if len(lines) != 12 || c.reads != 3 {
			t.Fatalf("%d lines and %d counts in 12 s, want 12 and 3: %q", len(lines), c.reads, lines)
		}
		diff(t, "the first line", "9 completed, 1 failed, 10/s, 390 to go, 3 in flight, hosts: 7 waiting, 2 blocke", lines[0])
		diff(t, "the last line", "108 completed, 12 failed, 10/s, 280 to go in about 28s, 3 in flight, hosts: 7 w", lines[11])
	})
}

// TestCountsAreRare uses a table that takes two seconds to count.
func TestCountsAreRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crawling{urls: 400, takes: 2 * time.Second}
		c.watch(&Display{}, true, 199*time.Second)
		if c.reads != 1 {
			t.Errorf("the table was read %d times in 199 s, want once", c.reads)
		}
		c = &crawling{urls: 400, takes: 2 * time.Second}
		c.watch(&Display{}, true, 210*time.Second)
		if c.reads != 2 {
			t.Errorf("the table was read %d times in 210 s, want twice", c.reads)
		}
	})
}

func TestEstimate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		left   []int64 // counted every ten seconds, the last one just now
		p      *Display
		want   time.Duration
		wanted bool
	}{
		{"never counted", nil, &Display{}, 0, false},
		{"counted once", []int64{100}, &Display{}, 0, false},
		{"falls", []int64{200, 100}, &Display{}, 10 * time.Second, true},
		{"falls ever slower", []int64{300, 200, 180}, &Display{}, 30 * time.Second, true},
		{"stands", []int64{100, 100}, &Display{}, 0, false},
		{"grows", []int64{100, 200}, &Display{}, 0, false},
		{"at its end", []int64{100, 0}, &Display{}, 0, false},
		{"hardly falls", []int64{1_000_000_000, 999_999_999}, &Display{}, 0, false},
		{"falls, and is endless", []int64{200, 100}, &Display{Endless: true}, 0, false},
		{"falls, and is paused", []int64{200, 100}, &Display{last: store.Counts{Paused: true}}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for i, n := range tt.left {
				tt.p.left.add(now.Add(time.Duration(i-len(tt.left)+1)*10*time.Second), n, trendOver)
			}
			if got, ok := tt.p.estimate(now); got != tt.want || ok != tt.wanted {
				t.Errorf("estimate = %v, %v, want %v, %v", got, ok, tt.want, tt.wanted)
			}
		})
	}
}

func TestTrend(t *testing.T) {
	t.Parallel()
	var r trend
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for n := range int64(60) {
		r.add(started.Add(time.Duration(n)*time.Second), n*n, 10*time.Second)
	}
	if got, want := r.rate(), float64(59*59-49*49)/10; got != want || len(r) != 11 {
		t.Errorf("the rate is %v over %d readings, want %v over 11", got, len(r), want)
	}
}

// TestSum checks that a quiet run prints the summary too.
func TestSum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			stats frontier.Stats
			want  string
		}{
			{frontier.Stats{Retried: 1}, "0 completed, 0 failed, 1 retry in 1m1.2s\n"},
			{frontier.Stats{}, "0 completed, 0 failed, 0 retries in 1m1.2s\n"},
			{frontier.Stats{Dead: 5, Disallowed: 3, Failed: 1}, "0 completed, 2 failed, 0 retries, 3 disallowed by robots.txt, 1 postponed in 1m1.2s\n"},
			{frontier.Stats{Completed: 1, Dead: 2, Retried: 3, Failed: 4, Lost: 5, Stale: 6, Errors: 7, Open: 8},
				"1 completed, 2 failed, 3 retries, 4 postponed, 5 lost, 6 stale, 7 errors in 1m1.2s\n"},
		} {
			var out bytes.Buffer
			p := &Display{Out: &Console{w: &out}, Quiet: true, started: time.Now().Add(-61234 * time.Millisecond), stats: func() frontier.Stats { return tt.stats }}
			p.sum()
			diff(t, fmt.Sprint(tt.stats), tt.want, out.String())
		}
	})
}

// TestFaultsSum checks that there is a line for each class, the most frequent one first.
func TestFaultsSum(t *testing.T) {
	t.Parallel()
	var p Display
	f := &p.faults
	diff(t, "none", "", f.sum())
	record := p.Recorded(nil)
	for class, statuses := range map[string][]store.Status{
		"":                  {store.Fetched},
		"deadline":          {store.Failed, store.Dead, store.Failed},
		"forbidden":         {store.Dead, store.Dead},
		"connect_refused":   {store.Failed},
		"http_client_error": {store.Dead, store.Dead},
		"robots_disallowed": {store.Dead, store.Dead, store.Dead},
	} {
		for _, status := range statuses {
			if err := record(frontier.Record{ErrorClass: class, Status: string(status)}); err != nil {
				t.Error(err)
			}
		}
	}
	f.lately() // changes nothing
	diff(t, "classes", "robots_disallowed: 3: "+why.Remedy("robots_disallowed")+"\nforbidden: 2 failed: "+why.Remedy("forbidden")+"\nhttp_client_error: 2 failed: "+why.Remedy("http_client_error")+
		"\ndeadline: 1 failed, 2 postponed: "+why.Remedy("deadline")+"\nconnect_refused: 1 postponed\n", f.sum())
}

func TestStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for quiet, want := range map[bool]string{false: "stopping: waiting for fetches in flight; a second signal stops at once\n", true: ""} {
			var out bytes.Buffer
			c := &crawling{started: time.Now()}
			p := &Display{Out: &Console{w: &out}, Quiet: quiet, Counts: c.counts, stats: c.stats, started: time.Now()}
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
			draining, drain := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, drain)
			p.run(ctx, draining.Done())
			stop()
			drain()
			diff(t, fmt.Sprintf("quiet %v", quiet), want, out.String())
		}
	})
}

// TestLine checks when progress is shown, on a terminal and elsewhere.
func TestLine(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		terminal bool
		pause    time.Duration
		want     string
	}{
		{"a terminal, too early", true, 400 * time.Millisecond, ""},
		{"a terminal", true, 2 * time.Second, "\r\x1b[K4000 URLs, 2000/s\r\x1b[K"},
		{"a file, too early", false, 9 * time.Second, ""},
		{"a file", false, 10 * time.Second, "4000 URLs, 400/s\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var told strings.Builder
			m := NewLine(&told)
			m.Terminal = row.terminal
			time.Sleep(row.pause) //nolint:forbidigo // time in a bubble
			m.Show(4000, "4000 URLs")
			m.Show(4001, "4001 URLs")
			m.Clear()
			m.Clear()
			diff(t, row.name, row.want, told.String())
		})
	}
}
