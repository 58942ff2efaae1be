//go:build linux

package crawls

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
	"fetchd/test/rig"
	"fetchd/test/rig/pgtest"
)

// TestMillions puts FETCHD_URLS URLs of a hundredth as many hosts into four databases, crawls a sample, and moves a quarter
// of the slots while the worker goes on. No URL may be lost, be there twice or be fetched twice, and each host must be where
// its slot is. Ten million URLs need 30 GB on the disk of TMPDIR.
func TestMillions(t *testing.T) {
	urls := number(t, "FETCHD_URLS", 10_000_000, "it takes an hour")
	ctx := rig.Long(t, 10*time.Minute+time.Duration(urls)*time.Millisecond)
	const databases, perHost, moved = 4, 100, 128
	var m many
	for range databases {
		s, err := pgtest.Start("-c", "max_wal_size=4GB", "-c", "shared_buffers=512MB")
		pgtest.Need(t, err)
		t.Cleanup(s.Remove)
		m = append(m, &postgres{T: t, Server: s})
	}
	c := newCrawlMany(ctx, t, m, 1, site.Config{Suffix: "test"})
	c.delay = time.Second
	c.putMany(urls/perHost, perHost)
	m.join(ctx)
	before := m.census(ctx)
	t.Logf("before: %v", before)
	if before.URLs != urls || before.Statuses["pending"] != urls {
		t.Fatalf("%d URLs, want %d that are pending", before.URLs, urls)
	}

	began := time.Now()
	w := c.plain(strings.Split(c.dsn, " "), "--delay", c.delay.String(), "--open", "64", "--endless")
	sample := min(urls/4, 50_000)
	c.requests(int(sample))
	t.Logf("%d URLs fetched in %v", sample, time.Since(began).Round(time.Second))
	first := c.site.Count()
	began = time.Now()
	for from := 0; from < databases; from += 2 {
		c.move(from, from+1, moved)
	}
	took := time.Since(began)
	during := c.site.Count() - first
	t.Logf("%d of 1,024 slots moved in %v, while %d URLs were fetched", databases/2*moved, took.Round(time.Second), during)
	if during == 0 {
		t.Errorf("no URL was fetched during the moves")
	}
	c.delivered()
	w.Signal(syscall.SIGTERM)
	w.exits(ctx, 130)

	after := m.census(ctx)
	t.Logf("after: %v", after)
	visits := c.site.Visits()
	fetched := int64(len(visits))
	if after.Statuses["fetched"] != fetched || after.Statuses["pending"] != urls-fetched || after.Outcomes != fetched {
		t.Errorf("after %d requests: %v", fetched, after)
	}
	if after.URLs != before.URLs || after.Hosts != before.Hosts || after.Sum != before.Sum {
		t.Errorf("the URLs are not the same as before")
	}
	for _, v := range visits {
		if v.Again {
			t.Errorf("%s%s was fetched twice", v.Host, v.Path)
		}
	}
	c.polite()
}

// putMany puts pages of hosts from several goroutines, each of which has its own hosts.
func (c *crawl) putMany(hosts, perHost int64) {
	c.Helper()
	const putters, batch, every = 4, 100, 30 * time.Second
	dsns := strings.Split(c.dsn, " ")
	s, err := store.Open(c.ctx, dsns[0], store.Config{}, dsns[1:]...)
	must(c, err)
	defer s.Close()
	began := time.Now()
	var next, added atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, putters)
	for i := range errs {
		all.Go(func() {
			for errs[i] == nil {
				first := next.Add(batch) - batch
				if first >= hosts {
					return
				}
				var urls []string
				for host := first; host < min(first+batch, hosts); host++ {
					for n := range perHost {
						urls = append(urls, c.site.URL(fmt.Sprintf("h%d", host), fmt.Sprintf("/p/%d", n)))
					}
				}
				var r store.PutResult
				r, errs[i] = s.Put(c.ctx, store.Entries(urls...), store.Limits{})
				added.Add(r.Added)
			}
		})
	}
	c.reporting(every, func() string { return fmt.Sprintf("%d URLs added", added.Load()) }, all.Wait)
	must(c, errors.Join(errs...))
	took := time.Since(began)
	c.Logf("%d URLs added in %v, %.0f/s", added.Load(), took.Round(time.Second), float64(added.Load())/took.Seconds())
}

// plain starts a worker without robots.txt, and without bodies and outcomes in files.
func (c *crawl) plain(dsns []string, flags ...string) *process {
	c.Helper()
	args := []string{"run", "--db", strings.Join(dsns, " "), "--server", strings.TrimPrefix(c.services[0].name, "fetchd at "),
		"--ignore-robots", "--accept", "any", "--total-timeout", totalTimeout, "--lease", lease}
	return start(c.T, "worker", "frontier", append(args, flags...)...)
}

// reporting logs a text from time to time until f returns.
func (c *crawl) reporting(every time.Duration, text func() string, f func()) {
	c.Helper()
	done := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.Log(text())
			case <-done:
				return
			}
		}
	})
	f()
	close(done)
	reporter.Wait()
}

// move moves slots with the program.
func (c *crawl) move(from, to, slots int) {
	c.Helper()
	began := time.Now()
	have := func(n int) int { return c.many[n].count(c.ctx, `SELECT count(*) FROM slots WHERE open`) }
	want := have(to) + slots
	p := start(c.T, "frontier shards move", "frontier", "shards", "move", "--db", c.dsn, "--from", fmt.Sprint(from), "--to", fmt.Sprint(to), "--slots", fmt.Sprint(slots))
	c.reporting(30*time.Second, func() string { return fmt.Sprintf("%d slots left to move from %d to %d", want-have(to), from, to) }, func() { p.exits(c.ctx, 0) })
	if got := have(to); got != want {
		c.Fatalf("database %d has %d slots, want %d:\n%s", to, got, want, p.log.String())
	}
	c.Logf("%d slots moved from database %d to %d in %v", slots, from, to, time.Since(began).Round(time.Second))
}

// census is what a database has, or all.
type census struct {
	URLs, Hosts, Outcomes int64
	Sum                   int64 // of hashes of the URLs with their ids
	Statuses              map[string]int64
	Slots                 []int
	Bytes                 int64
	Faults                map[string]int64 // numbers that should be zero
}

func (n census) String() string {
	text := fmt.Sprintf("%d URLs of %d hosts, %d outcomes, %d MiB", n.URLs, n.Hosts, n.Outcomes, n.Bytes>>20)
	for _, status := range slices.Sorted(maps.Keys(n.Statuses)) {
		text += fmt.Sprintf(", %d %s", n.Statuses[status], status)
	}
	return text
}

// census counts what the databases have. It fails the test for a slot that is in two of them or in none, for a host or a URL
// that is not where its slot is, and for what waits or is in flight. So no URL is in two databases.
func (m many) census(ctx context.Context) (all census) {
	m[0].Helper()
	each, errs := make([]census, len(m)), make([]error, len(m))
	var wait sync.WaitGroup
	for i, p := range m {
		wait.Go(func() { each[i], errs[i] = p.census(ctx) })
	}
	wait.Wait()
	must(m[0], errors.Join(errs...))
	all.Statuses = map[string]int64{}
	for i, n := range each {
		m[0].Logf("database %d with %d slots: %v", i, len(n.Slots), n)
		all.URLs, all.Hosts, all.Outcomes, all.Sum, all.Bytes = all.URLs+n.URLs, all.Hosts+n.Hosts, all.Outcomes+n.Outcomes, all.Sum+n.Sum, all.Bytes+n.Bytes
		for status, some := range n.Statuses {
			all.Statuses[status] += some
		}
		all.Slots = append(all.Slots, n.Slots...)
		for what, some := range n.Faults {
			if some != 0 {
				m[0].Errorf("database %d: %s: %d, want 0", i, what, some)
			}
		}
	}
	slices.Sort(all.Slots)
	if found := slices.Compact(slices.Clone(all.Slots)); len(found) != 1024 || len(all.Slots) != 1024 {
		m[0].Errorf("the databases have %d slots, %d different ones, want 1024", len(all.Slots), len(found))
	}
	return all
}

func (p *postgres) census(ctx context.Context) (n census, err error) {
	db, err := sql.Open("pgx", p.dsn())
	if err != nil {
		return n, err
	}
	defer db.Close()
	var text string
	err = db.QueryRowContext(ctx, `SELECT jsonb_build_object(
		'URLs', count(*), 'Sum', COALESCE(sum(hashtextextended(url, id) & 4294967295), 0),
		'Hosts', (SELECT count(*) FROM hosts), 'Outcomes', (SELECT count(*) FROM fetches WHERE status = 'fetched'),
		'Statuses', (SELECT jsonb_object_agg(status, n) FROM (SELECT status, count(*) AS n FROM urls GROUP BY status) AS x),
		'Slots', (SELECT jsonb_agg(slot) FROM slots WHERE open), 'Bytes', pg_database_size(current_database()),
		'Faults', jsonb_build_object(
			'URLs twice', count(*) - count(DISTINCT url_hash),
			'URLs of another host', (SELECT count(*) FROM urls u LEFT JOIN hosts h ON h.id = u.host_id WHERE starts_with(u.url, 'http://' || h.host || '/') IS NOT TRUE),
			'hosts of another database', (SELECT count(*) FROM hosts WHERE NOT EXISTS (SELECT 1 FROM slots WHERE slot = frontier_slot(host) AND open)),
			'hosts that move', (SELECT count(*) FROM hosts WHERE moving),
			'fetches in flight', (SELECT COALESCE(sum(in_flight), 0) FROM hosts),
			'parcels', (SELECT count(*) FROM parcels))) FROM urls`).Scan(&text)
	if err != nil {
		return n, err
	}
	return n, json.Unmarshal([]byte(text), &n)
}
