package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// many is a frontier in some databases of one server.
type many struct {
	*fixture
	dsns []string
}

func openSeveral(t *testing.T, n int) *many {
	t.Helper()
	m := &many{}
	for range n {
		m.dsns = append(m.dsns, newPostgres(t))
	}
	s, err := Open(t.Context(), m.dsns[0], Config{Delay: time.Hour}, m.dsns[1:]...)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	m.fixture = &fixture{Store: s, t: t, dsn: m.dsns[0]}
	return m
}

// hostIn returns a host of a database.
func (m *many) hostIn(number, nth int) string {
	m.t.Helper()
	for i := range 10_000 {
		host := fmt.Sprintf("h%d.test", i)
		if m.many.numberOf(host) == number {
			if nth == 0 {
				return host
			}
			nth--
		}
	}
	m.t.Fatalf("no host is in database %d", number)
	return ""
}

// total is the sum of a number over all databases.
func (m *many) total(query string) (n int64) {
	m.t.Helper()
	for _, p := range m.many.parts {
		n += (&fixture{Store: p.Store, t: m.t}).number(query)
	}
	return n
}

// claimAll claims until every database has given all that it had.
func (m *many) claimAll() []Claim {
	m.t.Helper()
	var all []Claim
	for {
		claims, err := m.Claim(m.t.Context(), ClaimParams{Limit: 100, Worker: "test"})
		must(m.t, err)
		if all = append(all, claims...); len(claims) == 0 {
			return all
		}
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, a, b string
		same       bool
	}{
		{"a subdomain", "example.com", "a.b.example.com", true},
		{"another domain", "example.com", "example.org", false},
		{"below a country", "a.example.co.uk", "example.co.uk", true},
		{"others below a country", "one.co.uk", "two.co.uk", false},
		{"a country's domain", "a.example.de", "b.example.de", true},
		{"a label that is no domain of a country", "a.com.example", "b.com.example", true},
		{"ports", "example.com:8080", "example.com", true},
		{"a last dot", "example.com.", "example.com", true},
		{"IPv4", "192.0.2.1:80", "192.0.2.1", true},
		{"other IPv4", "192.0.2.1", "198.51.2.1", false},
		{"IPv6", "[2001:db8::1]:8080", "[2001:db8::1]", true},
		{"other IPv6", "[2001:db8::1]", "[2001:db8::2]", false},
		{"one label", "localhost", "localhost:9080", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := hostSlot(row.a) == hostSlot(row.b); got != row.same {
				t.Errorf("%s and %s have the same slot: %v, want %v", row.a, row.b, got, row.same)
			}
		})
	}
	f := open(t, newPostgres(t))
	hosts := []string{"a", "", ".", "co.uk", "x.co.uk", "x.y.com.au", "1.2.3.4", "1.2.3.4:5", "[::1]", "[::1]:5", "xn--bcher-kva.example", "a.b.c.d.e.f", "a..b", "com.au:", "x.gov.in.", "B.TEST"}
	for i := range 500 {
		hosts = append(hosts, fmt.Sprintf("h%d.example%d.co.nz", i%7, i))
	}
	used := map[int]bool{}
	for _, host := range hosts {
		var slot int
		must(t, f.db().QueryRow(`SELECT frontier_slot($1)`, host).Scan(&slot))
		if slot != hostSlot(host) {
			t.Errorf("the slot of %q is %d in SQL and %d in Go", host, slot, hostSlot(host))
		}
		used[slot] = true
	}
	if len(used) < 300 {
		t.Errorf("%d hosts have only %d slots", len(hosts), len(used))
	}
	// These are stored: they never change.
	if got := []int{hostSlot("example.com"), hostSlot("a.example.co.uk"), hostSlot("192.0.2.1")}; !slices.Equal(got, []int{653, 328, 223}) {
		t.Errorf("slots = %v", got)
	}
}

func TestFillSlots(t *testing.T) {
	t.Parallel()
	before := fillSlots(4)
	counts := make([]int, 5)
	for slot, number := range fillSlots(5) {
		counts[number]++
		if number != 4 && number != before[slot] {
			t.Errorf("with another database slot %d moves from %d to %d", slot, before[slot], number)
		}
	}
	for number, n := range counts {
		if n < slotCount/5*3/4 || n > slotCount/5*5/4 {
			t.Errorf("database %d of 5 has %d slots", number, n)
		}
	}
}

// putMany puts two URLs of three hosts in each of four databases.
func (m *many) putMany() (urls []string) {
	m.t.Helper()
	for number := range 4 {
		for nth := range 3 {
			host := m.hostIn(number, nth)
			urls = append(urls, "http://"+host+"/1", "http://"+host+"/2")
		}
	}
	if r := m.put(append(urls, urls[0], "nonsense")...); r.Added != 24 || r.Known != 1 || len(r.Bad) != 1 || r.Waiting != 0 {
		m.t.Fatalf("Put = %+v", r)
	}
	return urls
}

// leasesOf returns the leases of claims.
func leasesOf(claims []Claim) (leases []Lease) {
	for _, c := range claims {
		leases = append(leases, c.Lease)
	}
	return leases
}

func TestManyPut(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 4)
	urls := m.putMany()
	if r := m.put(urls...); r.Added != 0 || r.Known != 24 {
		t.Errorf("the second Put = %+v", r)
	}
	ids, err := m.IDs(t.Context(), urls)
	if err != nil || len(ids) != 24 {
		t.Errorf("IDs = %v, %v", ids, err)
	}
	seen := map[int64]bool{}
	for _, id := range ids {
		if seen[id] || id >= 1<<53 {
			t.Errorf("id %d is used twice, or too large for a JSON number", id)
		}
		seen[id] = true
	}
	rows := 0
	for _, err := range m.URLs(t.Context()) {
		must(t, err)
		if rows++; rows == 20 {
			break // in the last database
		}
	}
	if done, err := m.Prune(t.Context(), PruneParams{URLs: []Status{Pending}}, nil); err != nil || done.URLs != 24 {
		t.Errorf("Prune = %+v, %v", done, err)
	}
	if left, err := m.Left(t.Context()); err != nil || left {
		t.Errorf("Left = %v, %v", left, err)
	}
}

func TestManyLeases(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 4)
	m.putMany()
	claims := m.claimAll()
	if len(claims) != 12 {
		t.Fatalf("%d claims, want one of each host", len(claims))
	}
	for _, c := range claims {
		if got, want := m.DatabaseOf(c.Lease), m.many.numberOf(c.Host); got != want {
			t.Errorf("the lease of %s is of database %d, want %d", c.URL, got, want)
		}
	}
	leases := leasesOf(claims)
	lost := Lease{ID: 1, Token: 7}
	for what, call := range map[string]func(context.Context, []Lease) ([]Lease, error){
		"Extend": func(ctx context.Context, l []Lease) ([]Lease, error) { return m.Extend(ctx, l, time.Hour) }, "LeaveHosts": m.LeaveHosts,
	} {
		if held, err := call(t.Context(), append(leases, lost)); err != nil || len(held) != 12 {
			t.Errorf("%s = %d leases, %v, want 12", what, len(held), err)
		}
	}
	for what, call := range map[string]func(context.Context, []Lease) ([]Lease, error){"Release": m.Release, "Abandon": m.Abandon} {
		some := leases[:4]
		leases = leases[4:]
		if held, err := call(t.Context(), append(some[:4:4], lost)); err != nil || len(held) != 4 {
			t.Errorf("%s = %d leases, %v, want 4", what, len(held), err)
		}
		must(t, m.Postpone(t.Context(), some, time.Hour))
	}
	if n, err := m.Reap(t.Context()); err != nil || n != 0 {
		t.Errorf("Reap = %d, %v", n, err)
	}
}

func TestManyOutcomes(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 4)
	m.putMany()
	start, err := m.LastFetch(t.Context())
	must(t, err)
	fetches := []Fetch{{ID: 5, FetchedParams: FetchedParams{Token: 7}, Status: Dead}}
	for _, c := range m.claimAll() {
		fetches = append(fetches, Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1, Bytes: 10}, Status: Fetched})
	}
	each, err := m.RecordFetch(t.Context(), fetches)
	if err != nil || len(each) != 13 || errors.Join(each[1:]...) != nil || !errors.Is(each[0], ErrStale) {
		t.Errorf("RecordFetch = %v, %v", each, err)
	}
	n, err := m.Counts(t.Context())
	want := Counts{Pending: 12, Fetched: 12, Hosts: 12, HostsWaiting: 12, Waits: Waits{HostDelay: 12}}
	if diff := cmp.Diff(want, n, cmpopts.IgnoreFields(Counts{}, "NextDue", "LastOutcome")); err != nil || diff != "" || n.NextDue == 0 || n.LastOutcome.IsZero() {
		t.Errorf("Counts = %+v, %v (-want +got):\n%s", n, err, diff)
	}
	if u, err := m.TotalUse(t.Context()); err != nil || u.Bytes != 120 {
		t.Errorf("TotalUse = %+v, %v", u, err)
	}
	stats, err := m.Stats(t.Context(), 5)
	if err != nil || stats.LastMinute.Outcomes != 12 || stats.Bytes != 120 || len(stats.Slowest) != 5 || stats.Now.IsZero() {
		t.Errorf("Stats = %+v, %v", stats, err)
	}
	if again, err := m.Refetch(t.Context(), 0, "", nil); err != nil || again != 12 {
		t.Errorf("Refetch = %d, %v", again, err)
	}
	m.wantPages(start, 12)
}

// wantPages checks that all outcomes after a cursor are read once, wherever a reader continues.
func (m *many) wantPages(start Cursor, n int) {
	t := m.t
	t.Helper()
	for _, p := range m.many.parts { // ids are not one after the other at the beginning
		(&fixture{Store: p.Store, t: t}).exec(`UPDATE fetches SET ended_at = ended_at - 6000`)
	}
	page, err := m.FetchesAfter(t.Context(), start, 100)
	if err != nil || len(page) != n || !page[n-1].Cursor.Valid() || strings.Count(string(page[n-1].Cursor), ".") != 3 {
		t.Fatalf("FetchesAfter = %+v, %v", page, err)
	}
	for i, f := range page {
		if rest, err := m.FetchesAfter(t.Context(), f.Cursor, 100); err != nil || len(rest) != n-i-1 {
			t.Errorf("FetchesAfter(%s) = %d outcomes, %v, want %d", f.Cursor, len(rest), err, n-i-1)
		}
	}
}

// TestManySettings checks what holds for all databases.
func TestManySettings(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 3)
	for number := range 3 {
		m.put("http://" + m.hostIn(number, 0) + "/")
	}
	must(t, m.Pause(t.Context(), ""))
	if claims := m.claimAll(); len(claims) != 0 {
		t.Errorf("a paused crawl gave %v", claims)
	}
	must(t, m.Resume(t.Context(), ""))
	must(t, m.SetSetting(t.Context(), "a", "1"))
	must(t, m.AddToSetting(t.Context(), "b", 2))
	must(t, m.AddToSetting(t.Context(), "b", 3))
	a, errA := m.Setting(t.Context(), "a")
	b, errB := m.Setting(t.Context(), "b")
	if errors.Join(errA, errB) != nil || a != "1" || b != "5" {
		t.Errorf("settings = %q, %q", a, b)
	}
	if n := m.total(`SELECT count(*) FROM settings WHERE name = 'caller_a'`); n != 3 {
		t.Errorf("%d databases have the setting, want all", n)
	}
}

// TestManyHosts checks what belongs to one host, or to one worker.
func TestManyHosts(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 3)
	for number := range 3 {
		m.put("http://" + m.hostIn(number, 0) + "/")
	}
	must(t, m.WorkerSeen(t.Context(), "w", true))
	if w, err := m.Workers(t.Context()); err != nil || len(w) != 1 || w[0].Vanished {
		t.Errorf("Workers = %+v, %v", w, err)
	}
	must(t, m.WorkerStopped(t.Context(), "w"))
	host := m.hostIn(1, 0)
	must(t, m.Pause(t.Context(), host))
	if known, err := m.Knows(t.Context(), host); err != nil || !known || !m.why("http://"+host+"/").Host.Paused {
		t.Errorf("Knows = %v, %v", known, err)
	}
	must(t, m.Resume(t.Context(), host))
	must(t, m.Block(t.Context(), host, time.Hour))
	r, err := m.Reserve(t.Context(), m.hostIn(2, 5), time.Minute)
	if err != nil || !r.Granted() {
		t.Errorf("Reserve = %+v, %v", r, err)
	}
	must(t, m.Settle(t.Context(), r))
	must(t, m.DelayHosts(t.Context(), []string{m.hostIn(0, 6), m.hostIn(1, 6)}))
}

func TestManyRobots(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 3)
	for number := range 3 {
		m.put("http://" + m.hostIn(number, 0) + "/")
	}
	origins := []string{"http://" + m.hostIn(0, 0), "https://" + m.hostIn(1, 0), "http://" + m.hostIn(2, 0)}
	for _, origin := range origins {
		must(t, m.SaveRobots(t.Context(), Robots{Origin: origin, Status: 200, Body: []byte("x")}))
	}
	if all, err := m.Robots(t.Context(), origins); err != nil || len(all) != 3 {
		t.Errorf("Robots = %v, %v", all, err)
	}
	must(t, m.Defer(t.Context(), origins[0], time.Hour))
	if all, err := m.DeferredOrigins(t.Context(), 5); err != nil || len(all) != 1 || all[0].Origin != origins[0] {
		t.Errorf("DeferredOrigins = %v, %v", all, err)
	}
	if n, err := m.RefreshRobots(t.Context(), origins); err != nil || n != 3 {
		t.Errorf("RefreshRobots = %d, %v", n, err)
	}
	some, next, err := m.RobotsToRefresh(t.Context(), "")
	slices.Sort(some)
	slices.Sort(origins)
	if diff := cmp.Diff(origins, some); err != nil || diff != "" || next != "" {
		t.Errorf("RobotsToRefresh: %q, %v\n%s", next, err, diff)
	}
	if _, deleted, err := m.SweepRobots(t.Context(), "", 0); err != nil || deleted != 0 {
		t.Errorf("SweepRobots = %d, %v, want none of hosts with URLs", deleted, err)
	}
}

// TestManyLimits checks that the budget of URLs holds for all databases, within one URL for each.
func TestManyLimits(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 4)
	var all PutResult
	for i := range 40 {
		m.pause()
		r, err := m.Put(t.Context(), Entries("http://"+m.hostIn(i%4, 0)+"/"+fmt.Sprint(i)), Limits{URLs: 20})
		must(t, err)
		all.Added, all.Over = all.Added+r.Added, all.Over+r.Over
	}
	if all.Added < 20 || all.Added > 23 || all.Added+all.Over != 40 {
		t.Errorf("%d URLs were added and %d left out, want 20, or one more for each other database", all.Added, all.Over)
	}
}

// TestManyLimitsAfterPrune checks that URLs that were deleted from one database make room in another.
func TestManyLimitsAfterPrune(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	a, b := m.hostIn(0, 0), m.hostIn(1, 0)
	put := func(urls ...string) PutResult {
		m.pause()
		r, err := m.Put(t.Context(), Entries(urls...), Limits{URLs: 4})
		must(t, err)
		return r
	}
	put("http://"+a+"/1", "http://"+a+"/2", "http://"+a+"/3")
	put("http://" + b + "/1")
	_, err := m.Prune(t.Context(), PruneParams{URLs: []Status{Pending}, Host: a}, nil)
	must(t, err)
	if r := put("http://"+b+"/2", "http://"+b+"/3"); r.Added != 2 {
		t.Errorf("Put = %+v, want 2 more URLs", r)
	}
}

// TestManyRedirects checks the two steps of a redirect into another database, and that either can be repeated.
func TestManyRedirects(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	from, to := m.hostIn(0, 0), m.hostIn(1, 0)
	entries := Entries("http://" + from + "/")
	entries[0].Metadata, entries[0].Depth, entries[0].Priority, entries[0].Parent = `{"a":1}`, 3, 7, 5
	_, err := m.Put(t.Context(), entries, Limits{})
	must(t, err)
	c := m.claimAll()[0]
	final := "http://" + to + "/final"
	f := Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1, ETag: `"x"`, BodyDigest: "d", RecrawlIn: time.Hour}, Status: Fetched, FinalURL: final}
	ready, results := items([]Fetch{f})
	must(t, m.many.arrive(t.Context(), m.many.parts[0], ready)) // and then the worker is killed
	if ready[0].FinalHash != "" || results[0] == nil {
		t.Errorf("items = %+v", ready)
	}
	for range 2 {
		must(t, m.record(f))
		u := m.url(final)
		if u.Status != Fetched || u.HTTPStatus != 200 || u.Metadata != `{"a":1}` || u.Depth != 3 || u.Priority != 7 || u.RecrawlAt.IsZero() || u.Host != to {
			t.Errorf("the final URL is %+v", u)
		}
		if n := m.total(`SELECT count(*) FROM urls WHERE parent_id = 5`); n != 2 {
			t.Errorf("%d rows have the parent, want both", n)
		}
		if u := m.url("http://" + from + "/"); u.Status != Fetched {
			t.Errorf("the row with the redirect is %+v", u)
		}
		if n := m.total(`SELECT count(*) FROM urls`); n != 2 {
			t.Errorf("%d rows, want 2", n)
		}
		// The same again, when the final URL is known.
		if n, err := m.Refetch(t.Context(), 0, from, nil); err != nil || n != 1 {
			t.Errorf("Refetch = %d, %v", n, err)
		}
		for _, p := range m.many.parts {
			(&fixture{Store: p.Store, t: t}).openHosts()
		}
		c = m.claimAll()[0]
		f.ID, f.Token = c.ID, c.Token
	}
	m.wantFinal(final)
	// A lease that was lost leaves nothing.
	f.Token++
	f.FinalURL = "http://" + to + "/other"
	if err := m.record(f); !errors.Is(err, ErrStale) {
		t.Errorf("record = %v, want ErrStale", err)
	}
	if _, err := m.Why(t.Context(), f.FinalURL); !errors.Is(err, ErrUnknownURL) {
		t.Errorf("Why = %v, want ErrUnknownURL", err)
	}
}

// wantFinal checks the final URL of all outcomes.
func (m *many) wantFinal(final string) {
	m.t.Helper()
	for row, err := range m.Fetches(m.t.Context()) {
		if err != nil || row.FinalURL != final {
			m.t.Errorf("outcome = %+v, %v", row, err)
		}
	}
}

// TestManyWrongDatabases checks what Open says about databases that do not belong together.
func TestManyWrongDatabases(t *testing.T) {
	t.Parallel()
	m, other := openSeveral(t, 3), openSeveral(t, 2)
	alone, fresh := newPostgres(t), newPostgres(t)
	f := open(t, alone)
	f.put("http://a.test/")
	f.fetched(f.claim(1)[0]) // nothing is left to do
	for _, row := range []struct {
		name string
		dsns []string
		want string
	}{
		{"in another order", []string{m.dsns[2], m.dsns[0], m.dsns[1]}, ""},
		{"one is missing", m.dsns[:2], "number 2 is missing"},
		{"alone", m.dsns[1:2], "this is number 1 of 3"},
		{"one twice", []string{m.dsns[0], m.dsns[1], m.dsns[1]}, "has number 1 of 3, as another one"},
		{"a foreign one", []string{m.dsns[0], m.dsns[1], other.dsns[0]}, "belong to different frontiers"},
		{"one too many", append(slices.Clone(m.dsns), newPostgres(t)), "has no table of slots"},
		{"a frontier of one", []string{alone, fresh}, "is a frontier of one database: add others"},
		{"a new one in the place of one that is lost", []string{m.dsns[0], m.dsns[1], newPostgres(t)}, "has no table of slots"},
		{"a file", []string{m.dsns[0], filepath.Join(t.TempDir(), "file.db")}, "one of them is a SQLite file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, err := Open(t.Context(), row.dsns[0], Config{}, row.dsns[1:]...)
			if err == nil {
				must(t, s.Close())
			}
			if (row.want == "") != (err == nil) || err != nil && (!errors.Is(err, ErrShards) || !strings.Contains(fmt.Sprint(err), row.want)) {
				t.Errorf("Open = %v, want %q", err, row.want)
			}
		})
	}
	open(t, fresh).put("http://a.test/") // it is as it was
	p := m.many.parts[1]
	newer := *m.many.table.Load()
	newer.Version++
	must(t, p.writeTable(t.Context(), &newer)) // a change of the table was interrupted here
	if table, _, err := m.again().many.parts[0].readShards(t.Context()); err != nil || table.Version != newer.Version {
		t.Errorf("the table of another database is %+v, %v, want version %d", table, err, newer.Version)
	}
	_, err := p.db.ExecContext(t.Context(), `INSERT INTO hosts (host) VALUES ($1)`, m.hostIn(0, 0))
	if err == nil || !strings.Contains(fmt.Sprint(err), "is not in this database") {
		t.Errorf("a host of another database was added: %v", err)
	}
}

// TestManyAtOnce checks that several programs may make the frontier at once.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	dsns := []string{newPostgres(t), newPostgres(t), newPostgres(t)}
	results := make(chan error)
	for range 4 {
		go func() {
			s, err := Open(context.Background(), dsns[0], Config{}, dsns[1:]...)
			if err == nil {
				err = s.Close()
			}
			results <- err
		}()
	}
	for range 4 {
		if err := <-results; err != nil {
			t.Errorf("Open = %v", err)
		}
	}
}

// outage is a frontier of three databases, one of which cannot be reached.
type outage struct {
	*many
	name     string // of the database that is down
	up, down string // a host of another one, and of it
	claims   []Claim
}

// reach allows connections to the database, or ends them.
func (o *outage) reach(allow string) {
	o.t.Helper()
	admin(o.t, "ALTER DATABASE "+o.name+" ALLOW_CONNECTIONS "+allow)
	admin(o.t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+o.name+"'")
	o.pause()
}

// pause lets every database be tried again, as after partPause.
func (m *many) pause() {
	for _, p := range m.many.parts {
		p.mu.Lock()
		p.failed, p.counted = false, time.Time{}
		p.mu.Unlock()
	}
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{many: openSeveral(t, 3)}
	o.up, o.down = o.hostIn(0, 0), o.hostIn(1, 0)
	o.put("http://"+o.up+"/1", "http://"+o.up+"/2", "http://"+o.hostIn(2, 0)+"/", "http://"+o.down+"/1")
	o.name, _, _ = strings.Cut(o.dsns[1][strings.Index(o.dsns[1], "/frontier_")+1:], "?")
	o.reach("false")
	for range 6 {
		o.pause() // so that the other database is called each time
		some, err := o.Claim(t.Context(), ClaimParams{Limit: 10})
		if err != nil {
			t.Errorf("Claim = %v, although other databases have answered", err)
		}
		o.claims = append(o.claims, some...)
	}
	if len(o.claims) != 2 {
		t.Fatalf("%d claims, want one of each host that can be reached", len(o.claims))
	}
	return o
}

// TestManyOneDown checks that a database that cannot be reached delays only its hosts, and loses nothing.
func TestManyOneDown(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	if r := o.put("http://"+o.up+"/3", "http://"+o.down+"/2", "http://"+o.down+"/1"); r.Added != 1 || r.Waiting != 2 || r.Known != 0 {
		t.Errorf("Put = %+v", r)
	}
	f := Fetch{ID: o.claims[0].ID, FetchedParams: FetchedParams{Token: o.claims[0].Token, HTTPStatus: 200, Attempts: 1}, Status: Fetched, FinalURL: "http://" + o.down + "/final"}
	must(t, o.record(f))
	o.fetched(o.claims[1])
	if n, err := o.Counts(t.Context()); err != nil || n.Fetched != 2 || n.Fetching != 0 || n.Pending != 2 {
		t.Errorf("Counts = %+v, %v", n, err)
	}
	if got := o.Unreachable(); len(got) != 1 || !strings.HasPrefix(got[0], "1 (") || !strings.Contains(got[0], o.name) {
		t.Errorf("Unreachable = %q", got)
	}
	if _, err := o.Reap(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("Reap = %v, want an error about the database", err)
	}
	if left, err := o.Left(t.Context()); err != nil || !left {
		t.Errorf("Left = %v, %v, want true for what waits", left, err)
	}

	// One call with leases of several databases.
	again := o.claims[1].Lease
	each, err := o.RecordFetch(t.Context(), []Fetch{
		{ID: again.ID, FetchedParams: FetchedParams{Token: again.Token}, Status: Fetched}, {ID: firstID(1), FetchedParams: FetchedParams{Token: 1<<20 | 1<<10}, Status: Fetched}})
	if err != nil || !errors.Is(each[0], ErrStale) || !errors.Is(each[1], ErrUnreachable) {
		t.Errorf("RecordFetch = %v, %v, want that the first is stale, and the second cannot be reached", each, err)
	}
	o.wantSent()
	if claims := o.claimAll(); len(claims) != 1 || claims[0].Host != o.down {
		t.Errorf("claims = %v, want one of %s", claims, o.down)
	}
}

// TestManyBadParcel checks that what cannot be delivered does not keep back the rest, and is reported once.
func TestManyBadParcel(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	for _, number := range []int{0, 2} {
		(&fixture{Store: o.many.many.parts[number].Store, t: t}).exec(`INSERT INTO parcels (body) VALUES ('{')`)
	}
	if r := o.put("http://" + o.down + "/2"); r.Waiting != 1 {
		t.Errorf("Put = %+v", r)
	}
	o.reach("true")
	for range 10 { // the first calls may get connections that have ended
		_, _ = o.Reap(t.Context())
		o.pause()
	}
	if n := o.total(`SELECT count(*) FROM parcels`); n != 2 {
		t.Errorf("%d parcels are left, want the 2 that are bad", n)
	}
	if u := o.url("http://" + o.down + "/2"); u.Status != Pending {
		t.Errorf("the URL is %s", u.Status)
	}
	for _, p := range o.many.many.parts {
		(&fixture{Store: p.Store, t: t}).exec(`DELETE FROM urls`)
	}
	if left, err := o.Left(t.Context()); err != nil || !left {
		t.Errorf("Left = %v, %v, although parcels wait", left, err)
	}
	for _, number := range []int{0, 2} { // after a while
		(&fixture{Store: o.many.many.parts[number].Store, t: t}).exec(`UPDATE parcels SET failed_at = failed_at - 600000 WHERE failed_at > 0`)
	}
	for _, want := range []int{2, 0} {
		if _, err := o.Reap(t.Context()); strings.Count(fmt.Sprint(err), "deliver parcel") != want {
			t.Errorf("Reap = %v, want %d bad parcels", err, want)
		}
	}
	if left, err := o.Left(t.Context()); err != nil || left {
		t.Errorf("Left = %v, %v, although only bad parcels are left", left, err)
	}
	shards, _, err := o.Shards(t.Context())
	must(t, err)
	if shards[0].Stuck != 1 || shards[0].Waiting != 1 || shards[1].Stuck != 0 || shards[2].Stuck != 1 {
		t.Errorf("Shards = %+v", shards)
	}
}

// TestManyParcelBytes checks that the limit follows what waits.
func TestManyParcelBytes(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	o.put("http://"+o.down+"/2", "http://"+o.down+"/3")
	o.put("http://" + o.down + "/final")
	const wrong = `SELECT (SELECT value::bigint FROM settings WHERE name = 'parcel_bytes') - (SELECT COALESCE(sum(octet_length(body)), 0) FROM parcels)`
	up := []*part{o.many.many.parts[0], o.many.many.parts[2]}
	for _, p := range up {
		if n := (&fixture{Store: p.Store, t: t}).number(wrong); n != 0 {
			t.Errorf("database %d counts %d bytes too many", p.number, n)
		}
		(&fixture{Store: p.Store, t: t}).exec(`UPDATE settings SET value = value::bigint + 1073741820 WHERE name = 'parcel_bytes'`)
	}
	if _, err := o.Put(t.Context(), Entries("http://"+o.down+"/4"), Limits{}); err == nil || !strings.Contains(fmt.Sprint(err), "bytes for others already") {
		t.Errorf("Put = %v, although the databases are full", err)
	}
	for _, p := range up {
		(&fixture{Store: p.Store, t: t}).exec(`UPDATE settings SET value = value::bigint - 1073741820 WHERE name = 'parcel_bytes'`)
	}
	o.reach("true")
	for range 10 {
		_, _ = o.Reap(t.Context())
		o.pause()
	}
	if n := o.total(`SELECT value::bigint FROM settings WHERE name = 'parcel_bytes'`) + o.total(`SELECT count(*) FROM parcels`); n != 0 {
		t.Errorf("%d bytes or parcels are left", n)
	}
}

// wantSent ends the outage, and checks that what has waited is where it belongs.
func (o *outage) wantSent() {
	t := o.t
	t.Helper()
	o.reach("true")
	for range 10 { // the first calls may get connections that have ended
		if _, err := o.Reap(t.Context()); err == nil {
			break
		}
		o.pause()
	}
	if n := o.total(`SELECT count(*) FROM parcels`); n != 0 {
		t.Errorf("%d parcels were not sent", n)
	}
	if a, b := o.url("http://"+o.down+"/2"), o.url("http://"+o.down+"/final"); a.Status != Pending || b.Status != Fetched {
		t.Errorf("what was sent is %s and %s, want pending and fetched", a.Status, b.Status)
	}
	if n := o.total(`SELECT count(*) FROM urls`); n != 7 || len(o.Unreachable()) != 0 {
		t.Errorf("%d URLs, want 7; unreachable: %q", n, o.Unreachable())
	}
}

// TestManyOneHangs checks that a database that does not answer does not keep back what a worker does in the others.
func TestManyOneHangs(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	host := m.hostIn(1, 0)
	m.put("http://"+m.hostIn(0, 0)+"/", "http://"+host+"/")
	tx, err := m.many.parts[1].db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { must(t, tx.Rollback()) }()
	_, err = tx.ExecContext(t.Context(), `LOCK TABLE urls, hosts, parcels, robots`)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		for what, f := range map[string]func(context.Context) (int64, error){"Reap": m.Reap, "Recrawl": m.Recrawl} {
			if _, err := f(ctx); ctx.Err() != nil || !errors.Is(err, ErrUnreachable) {
				t.Fatalf("%s = %v, want an error about the database that does not answer", what, err)
			}
		}
	}
	if claims, err := m.Claim(ctx, ClaimParams{Limit: 10}); err != nil || len(claims) != 1 {
		t.Errorf("Claim = %v, %v, want the URL of the other database", claims, err)
	}
	p := &fixture{Store: m.many.parts[0].Store, t: t}
	p.exec(`INSERT INTO robots (origin, saved_at, status, error_class) VALUES ('http://stray.test', 1, 200, '')`)
	p.exec(`UPDATE hosts SET bytes = 7`)
	for range 2 {
		next, _, err := m.SweepRobots(ctx, "", time.Hour)
		if ctx.Err() != nil || err != nil || next != "" {
			t.Fatalf("SweepRobots = %q, %v", next, err)
		}
		if u, err := m.TotalUse(ctx); ctx.Err() != nil || err != nil || u.Bytes != 7 {
			t.Fatalf("TotalUse = %+v, %v", u, err)
		}
	}
	if n := p.number(`SELECT count(*) FROM robots WHERE origin = 'http://stray.test'`); n != 0 {
		t.Error("the other database was not swept")
	}
	p.exec(`INSERT INTO robots (origin, saved_at, status, error_class) VALUES ('http://again.test', 0, 200, '')`)
	for range 2 {
		if origins, _, err := m.RobotsToRefresh(ctx, ""); ctx.Err() != nil || err != nil || len(origins) != 1 {
			t.Fatalf("RobotsToRefresh = %q, %v", origins, err)
		}
	}
}

// TestManySlowDelivery checks that a database that does not answer does not keep back what waits for another one.
func TestManySlowDelivery(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 3)
	tx, err := m.many.parts[1].db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { must(t, tx.Rollback()) }()
	_, err = tx.ExecContext(t.Context(), `LOCK TABLE urls, hosts`)
	must(t, err)
	for _, number := range []int{1, 1, 2} {
		good, _ := normaliseAll(Entries("http://" + m.hostIn(number, 0) + "/"))
		body, err := toJSON(parcel{Entries: good})
		must(t, err)
		_, err = m.many.parts[0].db.ExecContext(t.Context(), `INSERT INTO parcels (body) VALUES ($1)`, body)
		must(t, err)
	}
	_, _ = m.Reap(t.Context())
	p := &fixture{Store: m.many.parts[2].Store, t: t}
	for end := time.Now().Add(time.Minute); p.number(`SELECT count(*) FROM urls`) == 0; pause(t, 50*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the URL was not delivered")
		}
	}
}

// TestManyAllOrNothing checks that what holds for all databases fails as a whole if one is down.
func TestManyAllOrNothing(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	for what, err := range map[string]error{
		"Pause":      o.Pause(t.Context(), ""),
		"SetSetting": o.SetSetting(t.Context(), "a", "1"),
		"Block":      o.Block(t.Context(), o.down, time.Hour),
	} {
		if err == nil {
			t.Errorf("%s succeeded without a database that it is about", what)
		}
	}
	for number := range 3 {
		if number != 1 {
			p := &fixture{Store: o.many.many.parts[number].Store, t: t}
			if n := p.number(`SELECT count(*) FROM settings WHERE name IN ('paused', 'caller_a')`); n != 0 {
				t.Errorf("database %d has a setting that others lack", number)
			}
		}
	}
	if _, err := Open(t.Context(), o.dsns[0], Config{}, o.dsns[1:]...); err == nil || !strings.Contains(fmt.Sprint(err), o.name) {
		t.Errorf("Open = %v, want an error about %s", err, o.name)
	}
}

// TestManyReader checks that a reader sees what can be reached, and what it lacks.
func TestManyReader(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	r, err := Open(t.Context(), o.dsns[2], Config{ReadOnly: true}, o.dsns[0], o.dsns[1])
	must(t, err)
	defer func() { must(t, r.Close()) }()
	if got := r.Unreachable(); len(got) != 1 || !strings.HasPrefix(got[0], "1 (") {
		t.Errorf("Unreachable = %q", got)
	}
	if n, err := r.Counts(t.Context()); err != nil || n.Pending+n.Fetching != 3 {
		t.Errorf("Counts = %+v, %v", n, err)
	}
	rows := 0
	var last error
	for _, err := range r.URLs(t.Context()) {
		if last = err; err == nil {
			rows++
		}
	}
	if rows != 3 || !errors.Is(last, ErrUnreachable) {
		t.Errorf("%d URLs, %v, want those of two databases, and an error", rows, last)
	}
	if _, err := r.Why(t.Context(), "http://"+o.down+"/1"); err == nil || errors.Is(err, ErrUnknownURL) {
		t.Errorf("Why = %v", err)
	}
}

// TestEnterBusy makes a database one of many while a program puts URLs.
func TestEnterBusy(t *testing.T) {
	t.Parallel()
	f := open(t, newPostgres(t))
	f.put("http://a.test/1")
	put, err := f.db().BeginTx(t.Context(), nil)
	must(t, err)
	_, err = put.Exec(`UPDATE hosts SET due_at = due_at`)
	must(t, err)
	entered := make(chan error, 1)
	go func() { entered <- (&part{Store: f.Store}).enter(t.Context(), newShardTable(1)) }()
	f.until(`SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%LOCK TABLE%' AND datname = current_database()`)
	_, err = put.Exec(`UPDATE settings SET value = '1' WHERE name = 'url_count'`)
	must(t, err)
	must(t, put.Commit())
	must(t, <-entered)
}
