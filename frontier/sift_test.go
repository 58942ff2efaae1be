package frontier

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/normal"
	"fetchd/frontier/store"
)

// parkingStore has a robots.txt of every origin but one.
type parkingStore struct {
	store.Store
	released []store.Lease
}

func (s *parkingStore) RobotsHeads(_ context.Context, origins []string) (map[string]store.Robots, error) {
	found := make(map[string]store.Robots)
	for _, o := range origins {
		if o != "http://new.test" {
			found[o] = store.Robots{Origin: o, Status: 200, HasBody: true, BodyStatus: 200}
		}
	}
	return found, nil
}

func (s *parkingStore) Robots(ctx context.Context, origins []string) (map[string]store.Robots, error) {
	return s.RobotsHeads(ctx, origins)
}

func (s *parkingStore) Release(_ context.Context, leases []store.Lease) ([]store.Lease, error) {
	s.released = append(s.released, leases...)
	return leases, nil
}

// TestSift checks that a claim waits for a file that must be parsed, and delays no other.
func TestSift(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(parkingStore)
		w, err := New(s, []Service{{Name: "none"}}, Config{Policy: DefaultPolicy()})
		must(t, err)
		w.storing, w.rulebook.Storing = t.Context(), t.Context()
		c := newClaims(w)
		var taken []store.Claim
		for i, host := range []string{"file", "new", "file", "another"} {
			taken = append(taken, store.Claim{Lease: store.Lease{ID: int64(i)}, URL: "http://" + host + ".test/p", Host: host + ".test"})
		}
		ready, err := c.sift(t.Context(), taken, time.Time{})
		if err != nil || len(ready) != 1 || ready[0].Host != "new.test" || len(c.parked) != 3 {
			t.Errorf("%v start, %d are parked, %v; want new.test and 3", ready, len(c.parked), err)
		}
		w.rulebook.Wait()
		for _, p := range c.parked {
			if !p.rules.Ended() {
				t.Errorf("%s still waits", p.claim.URL)
			}
		}
		c.giveBackParked()
		if len(s.released) != 3 {
			t.Errorf("%d claims were given back, want 3", len(s.released))
		}
	})
}

// TestRedirectsLeaveFewRobots checks that the store keeps the robots.txt of hosts with
// URLs, and of few others, however many hosts redirects lead to.
func TestRedirectsLeaveFewRobots(t *testing.T) {
	t.Parallel()
	const kept, hosts = 2 * 16, 48 // package rulebook keeps at most twice 16
	r := newRig(t, time.Millisecond, site.Config{Robots: func(host string) (int, string) {
		if strings.HasPrefix(host, "to") {
			return 200, "User-agent: *\nDisallow: /p/\n"
		}
		return 200, ""
	}})
	r.config.IgnoreRobots = false
	var from, to []string
	for n := range hosts {
		target := r.site.URL(fmt.Sprintf("to%d", n), "/p/1")
		u := r.site.URL(fmt.Sprintf("from%d", n), redirectTo(302, target))
		r.add(u)
		for origins, u := range map[*[]string]string{&from: u, &to: target} {
			origin, _ := normal.OriginOf(u)
			*origins = append(*origins, origin)
		}
	}
	if stats := r.crawl(); stats.Dead != hosts {
		t.Errorf("%+v, want %d dead", stats, hosts)
	}
	for _, row := range []struct {
		name        string
		origins     []string
		least, most int
	}{
		{"hosts with URLs", from, hosts, hosts},
		{"hosts without", to, 1, kept - 1},
	} {
		heads, err := r.store.RobotsHeads(t.Context(), row.origins)
		if err != nil || len(heads) < row.least || len(heads) > row.most {
			t.Errorf("%s: %d rows, %v; want %d to %d", row.name, len(heads), err, row.least, row.most)
		}
	}
}
