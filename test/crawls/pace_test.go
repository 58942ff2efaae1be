package crawls

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"fetchd/client"
	"fetchd/cmd/frontier/site"
	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/internal/daemon"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/rig"
)

// TestPace crawls ten thousand hosts with a hundred URLs each (in the short form four thousand with ten
// each, of which it fetches six), with five seconds between the fetches of a host. No fetch may be
// early, and the rate must be what the delay allows.
func TestPace(t *testing.T) {
	rig.Long(t, 4*time.Minute)
	const delay = 5 * time.Second
	hosts, pages, lasts := rig.Pick("FETCHD_CRAWLS", 4_000, 10_000), rig.Pick("FETCHD_CRAWLS", 10, 100), rig.Pick("FETCHD_CRAWLS", 30*time.Second, 40*time.Second)
	daemon.HoldHeap() // as the programs do
	s := rig.Site(t, site.Config{})
	db := filepath.Join(t.TempDir(), "frontier.db")
	st, err := store.Open(t.Context(), db, store.Config{Delay: delay})
	must(t, err)
	defer st.Close()
	started := time.Now()
	var batch []string
	for n := range hosts * pages {
		batch = append(batch, s.URL(fmt.Sprintf("h%d", n%hosts), fmt.Sprintf("/p/%d", n/hosts)))
		if len(batch) == 10_000 {
			if _, err := st.Put(t.Context(), store.Entries(batch...), store.Limits{}); err != nil {
				t.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	t.Logf("%d URLs put in %v", hosts*pages, time.Since(started).Round(time.Second))
	service := inside(t, s)
	policy := frontier.DefaultPolicy()
	w, err := frontier.New(st, []frontier.Service{service}, frontier.Config{Open: 128, IgnoreRobots: true, Policy: policy})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	cpu := cpuTime(t)
	share := profiled(t)
	if err := w.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Run = %v", err)
	}
	used := cpuTime(t) - cpu
	t.Logf("the store's share of the CPU: %.1f %%", share("fetchd/frontier/store"))
	visits := s.Visits()
	if early := site.Early(visits, delay, nil); len(early) > 0 {
		t.Errorf("%d requests are early, such as %v", len(early), early[0])
	}
	rate, mean := pace(visits, 15*time.Second)
	ideal := float64(hosts) / (delay + mean).Seconds()
	t.Logf("%d requests of %d hosts, %.0f/s of an ideal %.0f/s (%.1f %%), CPU %v per fetch, including the origin", len(visits), hosts, rate, ideal, 100*rate/ideal, used/time.Duration(len(visits)))
	late := lateness(visits, delay, 15*time.Second)
	t.Logf("a host waits longer than the delay by %v in the median, %v in 9 of 10 cases, %v in 99 of 100", late(0.5), late(0.9), late(0.99))
	if rate < ideal*0.99 {
		t.Logf("MISS: 99 %% of the ideal rate is the goal")
	}
}

// pace returns the sum of the rates of all hosts, and the mean time of a visit. The rate of a
// host is measured from its first start after lead to its last one. Hosts are fetched in
// waves, so a fixed span of time that is not a multiple of the delay would be less exact.
func pace(visits []site.Visit, lead time.Duration) (rate float64, mean time.Duration) {
	type span struct {
		first, last time.Duration
		n           int
	}
	hosts := make(map[string]span)
	var n time.Duration
	for _, v := range visits {
		if v.Start < lead {
			continue
		}
		s, seen := hosts[v.Host]
		if !seen {
			s.first = v.Start
		} else {
			s.n++
		}
		s.last = v.Start
		hosts[v.Host] = s
		mean += v.End - v.Start
		n++
	}
	for _, s := range hosts {
		if s.n > 0 {
			rate += float64(s.n) / (s.last - s.first).Seconds()
		}
	}
	return rate, mean / max(n, 1)
}

// lateness returns a function from a quantile to the extra time between visits of a host.
func lateness(visits []site.Visit, delay, lead time.Duration) func(q float64) time.Duration {
	ended := make(map[string]time.Duration)
	var late []time.Duration
	for _, v := range visits {
		if end, seen := ended[v.Host]; seen && v.Start >= lead {
			late = append(late, v.Start-end-delay)
		}
		ended[v.Host] = v.End
	}
	slices.Sort(late)
	return func(q float64) time.Duration {
		if len(late) == 0 {
			return 0
		}
		return late[int(q*float64(len(late)-1))].Round(100 * time.Microsecond)
	}
}

func inside(t *testing.T, s *site.Site) frontier.Service {
	t.Helper()
	f := fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, InMemory: true, Configure: func(c *server.Config) {
		c.Fetch.Resolver, c.Fetch.Egress.AllowPorts = s.Resolver(), []uint16{uint16(s.Port())}
	}})
	return frontier.Service{Name: "inside", Client: client.New(f.Conn)}
}
