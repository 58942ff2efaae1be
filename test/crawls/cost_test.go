//go:build linux

package crawls

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
	"fetchd/test/rig"
	"fetchd/test/rig/pgtest"
	"fetchd/test/wait"
)

// TestCostOfDatabases compares the CPU time of the worker and of all servers for each URL, with one, two and four
// databases on a server each, in FETCHD_ROUNDS interleaved rounds. Each round crawls the same URLs into new databases, and
// ends with a vacuum and a checkpoint, so that their time counts and autovacuum does not disturb another round. What a
// server needs while it waits counts too.
func TestCostOfDatabases(t *testing.T) {
	rounds := number(t, "FETCHD_ROUNDS", 10, "each round takes a minute")
	ctx := rig.Long(t, 5*time.Minute+time.Duration(rounds)*10*time.Minute)
	const hosts, perHost, goal = 5_000, 5, 1.1
	counts := []int{1, 2, 4}
	var servers many
	for range slices.Max(counts) {
		s, err := pgtest.Start("-c", "autovacuum=off", "-c", "checkpoint_timeout=1h", "-c", "max_wal_size=4GB", "-c", "track_functions=pl")
		pgtest.Need(t, err)
		t.Cleanup(s.Remove)
		servers = append(servers, &postgres{T: t, Server: s})
	}
	c := newCrawlOf(ctx, t, servers[0].dsn(), 1, site.Config{Suffix: "test"})
	costs := map[int][]cost{}
	for round := range rounds {
		for _, n := range counts {
			spent := c.cost(servers[:n], fmt.Sprintf("round_%d_%d", round, n), hosts, perHost)
			t.Logf("round %d, %d servers: %v", round+1, n, spent)
			costs[n] = append(costs[n], spent)
		}
		slices.Reverse(counts)
	}
	slices.Sort(counts)
	for _, n := range counts {
		t.Logf("%d servers: %s", n, c.idle(servers[:n], fmt.Sprintf("idle_%d", n)))
	}
	for _, n := range counts {
		for _, row := range []struct {
			what string
			of   func(cost) float64
		}{
			{"put, servers", func(s cost) float64 { return s.put }},
			{"worker", func(s cost) float64 { return s.worker }},
			{"servers", func(s cost) float64 { return s.servers }},
			{"worker and servers", func(s cost) float64 { return s.worker + s.servers }},
			{"claims", func(s cost) float64 { return s.claims }},
			{"batches of outcomes", func(s cost) float64 { return s.batches }},
		} {
			var all, ratios []float64
			for i, s := range costs[n] {
				all, ratios = append(all, row.of(s)), append(ratios, row.of(s)/row.of(costs[1][i]))
			}
			ratio := median(ratios)
			t.Logf("%d servers: %-19s %8.3f for each URL, ratio to one server %.3f [%.3f–%.3f]", n, row.what, median(all), ratio, slices.Min(ratios), slices.Max(ratios))
			if row.what == "worker and servers" && ratio > goal {
				t.Logf("MISS: %.2f is the goal", goal)
			}
		}
	}
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// cost is what a URL costs, in microseconds of CPU time.
type cost struct {
	put, worker, servers float64
	claims, batches      float64 // calls
	took                 time.Duration
}

func (s cost) String() string {
	return fmt.Sprintf("put %.0f µs; worker %.0f µs, servers %.0f µs, %.3f claims, %.3f batches of outcomes for each URL in %v", s.put, s.worker, s.servers, s.claims, s.batches, s.took.Round(time.Second))
}

// cost crawls pages of hosts into a new database of each server.
func (c *crawl) cost(servers many, database string, hosts, perHost int) (s cost) {
	c.Helper()
	urls := make([]string, 0, hosts*perHost)
	for n := range hosts * perHost {
		urls = append(urls, c.site.URL(fmt.Sprintf("h%d", n%hosts), fmt.Sprintf("/p/%d", n/hosts)))
	}
	dsns := servers.create(c.ctx, database)
	frontier, err := store.Open(c.ctx, dsns[0], store.Config{}, dsns[1:]...)
	must(c, err)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(len(urls)) }
	used := servers.used()
	for some := range slices.Chunk(urls, 10_000) {
		_, err := frontier.Put(c.ctx, store.Entries(some...), store.Limits{})
		must(c, err)
	}
	must(c, frontier.Close())
	s.put = each(servers.used() - used)

	used, began := servers.used(), time.Now()
	w := c.plain(dsns, "--delay", "100ms")
	w.exits(c.ctx, 0)
	if text := w.log.String(); strings.Contains(text, "level=") {
		c.Logf("the worker logged:\n%s", last(text, 10))
	}
	s.took = time.Since(began)
	for i := range servers {
		execute(c.ctx, c.T, dsns[i], `VACUUM ANALYZE urls, hosts, fetches`, `CHECKPOINT`)
	}
	s.worker, s.servers = each(w.State.UserTime()+w.State.SystemTime()), each(servers.used()-used)
	fetched := 0
	for _, p := range servers {
		calls := func(function string) float64 {
			return float64(p.countIn(c.ctx, database, `SELECT COALESCE(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = '`+function+`'`)) / float64(len(urls))
		}
		s.claims, s.batches = s.claims+calls("frontier_take"), s.batches+calls("frontier_record")
		fetched += p.countIn(c.ctx, database, `SELECT count(*) FROM urls WHERE status = 'fetched'`)
	}
	if fetched != len(urls) {
		c.Errorf("%d URLs fetched, want %d", fetched, len(urls))
	}
	servers.drop(c.ctx, database)
	return s
}

// idle returns what a worker without URLs and its servers need.
func (c *crawl) idle(servers many, database string) string {
	c.Helper()
	const lasts = 30 * time.Second
	w := c.plain(servers.create(c.ctx, database), "--endless")
	wait.For(c.ctx, 5*time.Second) // it opens the databases
	before, used := w.used(), servers.used()
	wait.For(c.ctx, lasts)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / lasts.Seconds() }
	text := fmt.Sprintf("without URLs, the worker needs %.1f ms and the servers need %.1f ms of CPU time a second", each(w.used()-before), each(servers.used()-used))
	w.Signal(syscall.SIGTERM)
	w.exits(c.ctx, 130)
	servers.drop(c.ctx, database)
	return text
}

// used returns the CPU time that a process has used.
func (p *process) used() time.Duration {
	p.Helper()
	used, err := p.CPU()
	must(p, err)
	return used
}

// create makes a database on each server, and returns their connection strings.
func (m many) create(ctx context.Context, database string) (dsns []string) {
	m[0].Helper()
	for _, p := range m {
		execute(ctx, p.T, p.dsn(), `CREATE DATABASE `+database)
		dsns = append(dsns, p.DSN(database))
	}
	return dsns
}

func (m many) drop(ctx context.Context, database string) {
	m[0].Helper()
	for _, p := range m {
		execute(ctx, p.T, p.dsn(), `DROP DATABASE `+database+` WITH (FORCE)`)
	}
}

// used returns the CPU time that servers have used.
func (m many) used() (total time.Duration) {
	m[0].Helper()
	for _, p := range m {
		used, err := p.CPU()
		must(p, err)
		total += used
	}
	return total
}
