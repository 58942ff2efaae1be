package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// row is what must be the same before and after a move.
type row struct {
	URL, Status, Metadata string
	ID, Depth             int64
}

// rows returns the URLs of all databases by their ids, and fails if one is in the wrong database or there twice.
func (m *many) rows() map[int64]row {
	m.t.Helper()
	all := map[int64]row{}
	for _, p := range m.many.parts {
		rows, err := p.db.Query(context.Background(), `SELECT u.url, u.status, u.metadata, u.id, u.depth, h.host, h.moving FROM urls u JOIN hosts h ON h.id = u.host_id`)
		type line struct {
			row
			host   string
			moving bool
		}
		lines, err := collect(rows, err, func(l *line) []any {
			return []any{&l.URL, &l.Status, &l.Metadata, &l.ID, &l.Depth, &l.host, &l.moving}
		})
		must(m.t, err)
		for _, l := range lines {
			if _, twice := all[l.ID]; twice || l.moving || m.many.numberOf(l.host) != p.number {
				m.t.Errorf("%s of %s is in database %d (twice: %v, moving: %v)", l.URL, l.host, p.number, twice, l.moving)
			}
			all[l.ID] = l.row
		}
	}
	return all
}

// seed puts URLs of some hosts, and gives them different states.
func (m *many) seed(hosts, each int) {
	m.t.Helper()
	var entries []Entry
	for h := range hosts {
		for i := range each {
			entries = append(entries, Entry{URL: fmt.Sprintf("http://h%d.test/%d", h, i), Depth: i, Metadata: fmt.Sprintf(`{"n":%d}`, h)})
		}
	}
	r, err := m.Put(m.t.Context(), entries, Limits{})
	if err != nil || r.Added != int64(len(entries)) {
		m.t.Fatalf("Put = %+v, %v", r, err)
	}
	for i, c := range m.claimAll() {
		if i%2 == 0 {
			m.fetched(c)
		} else {
			_, err := m.Release(m.t.Context(), []Lease{c.Lease})
			must(m.t, err)
		}
	}
	must(m.t, m.Block(m.t.Context(), "h1.test", time.Hour))
	must(m.t, m.Pause(m.t.Context(), "h2.test"))
	must(m.t, m.SaveRobots(m.t.Context(), Robots{Origin: "https://h3.test", Status: 200, Body: []byte("User-agent: *")}))
}

// again opens the frontier of all dsns, in the place of the one before.
func (m *many) again() *many {
	m.t.Helper()
	s, err := Open(m.t.Context(), m.dsns[0], Config{Delay: time.Hour}, m.dsns[1:]...)
	must(m.t, err)
	m.t.Cleanup(func() { must(m.t, s.Close()) })
	return &many{fixture: &fixture{Store: s, t: m.t, dsn: m.dsn}, dsns: m.dsns}
}

// TestGrow adds a second and a third database to a frontier in one.
func TestGrow(t *testing.T) {
	t.Parallel()
	alone := open(t, newPostgres(t))
	one := &many{fixture: alone, dsns: []string{alone.dsn}}
	one.seed(60, 5)
	before := map[int64]row{}
	for u, err := range one.URLs(t.Context()) {
		must(t, err)
		before[u.ID] = row{u.URL, string(u.Status), u.Metadata, u.ID, int64(u.Depth)}
	}
	held := one.Store
	for n := 2; n <= 3; n++ {
		added := newPostgres(t)
		var last Progress
		must(t, held.AddDatabase(t.Context(), added, Config{Delay: time.Hour}, func(p Progress) { last = p }))
		if last.Slots != last.Of || last.Slots < slotCount/n/2 || last.URLs == 0 {
			t.Errorf("progress = %+v", last)
		}
		one.dsns = append(one.dsns, added)
		m := one.again()
		if diff := cmp.Diff(before, m.rows()); diff != "" {
			t.Errorf("with %d databases (-before +after):\n%s", n, diff)
		}
		if n := m.total(`SELECT count(*) FROM hosts`); n != 60 {
			t.Errorf("%d hosts, want 60", n)
		}
		if e := m.why("http://h1.test/4"); !e.Host.BlockedUntil.After(e.Now) {
			t.Errorf("h1.test is not blocked: %+v", e.Host)
		}
		if e := m.why("http://h2.test/4"); !e.Host.Paused {
			t.Errorf("h2.test is not paused: %+v", e.Host)
		}
		if r, err := m.Robots(t.Context(), []string{"https://h3.test"}); err != nil || string(r["https://h3.test"].Body) != "User-agent: *" {
			t.Errorf("Robots = %+v, %v", r, err)
		}
		shards, moving, err := m.Shards(t.Context())
		if err != nil || moving != -1 || len(shards) != n || shards[n-1].Slots == 0 || shards[n-1].Err != nil {
			t.Errorf("Shards = %+v, %d, %v", shards, moving, err)
		}
		must(t, m.AddDatabase(t.Context(), added, Config{}, nil)) // again, although it is done
		held = m.Store
	}
	if _, err := alone.Claim(t.Context(), ClaimParams{}); !errors.Is(err, ErrShards) {
		alone.forgetCheck()
		if _, err = alone.Claim(t.Context(), ClaimParams{}); !errors.Is(err, ErrShards) {
			t.Errorf("a program that knows one database claims: %v", err)
		}
	}
}

// forgetCheck makes the next claim look for other databases, as after aloneFor.
func (f *fixture) forgetCheck() {
	if p, ok := f.kind.(*postgresDB); ok {
		p.checked.Store(0)
	}
}

// busy puts, claims and records until a context ends.
type busy struct {
	*many
	added int64 // URLs
}

func (b *busy) work(ctx context.Context) error {
	for i := 0; ctx.Err() == nil; i++ {
		r, err := b.Put(ctx, Entries(fmt.Sprintf("http://h%d.test/new%d", i%100, i), fmt.Sprintf("http://h%d.test/new%d", (i+7)%100, i)), Limits{})
		if b.added += r.Added + r.Waiting; err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnreachable) {
			return err
		}
		claims, err := b.Claim(ctx, ClaimParams{Limit: 5, Lease: time.Minute})
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnreachable) {
			return err
		}
		for _, c := range claims {
			f := Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1}, Status: Fetched}
			if i%3 == 0 {
				f.FinalURL = fmt.Sprintf("http://h%d.test/final%d", (i+1)%80, i)
			}
			if err := b.recordAtLast(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordAtLast records a fetch, also if its database cannot be reached at first.
func (b *busy) recordAtLast(f Fetch) error {
	for {
		_, err := b.RecordFetch(context.Background(), []Fetch{f})
		if !errors.Is(err, ErrUnreachable) {
			return err
		}
	}
}

// moveAtLast moves a quarter of the slots of a database. It interrupts the move at random moments and repeats it, and
// returns how many times it did.
func (m *many) moveAtLast(from, to int) (interrupted int) {
	t := m.t
	t.Helper()
	slots := m.again().SlotsOf(from)
	slots = slots[:len(slots)/4]
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(200+rand.IntN(1500))*time.Millisecond)
		mover, err := Open(t.Context(), m.dsns[0], Config{Delay: time.Hour}, m.dsns[1])
		must(t, err)
		err = mover.MoveSlots(ctx, slots, to, nil)
		over := ctx.Err() != nil
		cancel()
		must(t, mover.Close())
		switch {
		case err == nil:
			return interrupted
		case !over:
			t.Fatalf("MoveSlots = %v", err)
		}
		interrupted++
	}
}

// TestMoveInterrupted interrupts moves at random moments while others put, claim and record, and repeats the command.
func TestMoveInterrupted(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	m.seed(80, 4)
	before := m.rows()
	ctx, stop := context.WithCancel(t.Context())
	worker := &busy{many: m.again()}
	delay := time.Duration(0)
	for h := range 80 {
		must(t, worker.SetHost(ctx, fmt.Sprintf("h%d.test", h), HostParams{Delay: &delay}))
	}
	done := make(chan error)
	go func() { done <- worker.work(ctx) }()
	interrupted := 0
	for round := range 4 {
		interrupted += m.moveAtLast(round%2, 1-round%2)
	}
	stop()
	must(t, <-done)
	for range 5 {
		worker.pause()
		_, err := worker.Reap(t.Context())
		must(t, err)
	}
	last := m.again()
	rows := last.rows()
	if n := last.total(`SELECT count(*) FROM parcels`) + last.total(`SELECT count(*) FROM hosts WHERE host LIKE 'gone %' OR moving OR in_flight <> 0`); n != 0 {
		t.Errorf("%d rows are left of moves, or wait, or have fetches in flight", n)
	}
	urls := map[string]bool{}
	for _, r := range rows {
		if urls[r.URL] {
			t.Errorf("%s is there twice", r.URL)
		}
		urls[r.URL] = true
	}
	for id := range before {
		if _, ok := rows[id]; !ok {
			t.Errorf("URL %d is lost", id)
		}
	}
	t.Logf("%d URLs, %d were added, %d interruptions", len(rows), worker.added, interrupted)
	if want := len(before) + int(worker.added); len(rows) < want {
		t.Errorf("%d URLs, want at least %d", len(rows), want)
	}
}

// TestRestored restores one database from a backup that was made before slots moved from it and to it.
func TestRestored(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	m.seed(60, 2)
	before := len(m.rows())
	p := m.many.parts[0]
	backup := func(query string) {
		t.Helper()
		for _, table := range []string{"hosts", "urls", "slots", "settings"} {
			_, err := p.db.ExecContext(t.Context(), strings.ReplaceAll(query, "NAME", table))
			must(t, err)
		}
	}
	backup(`CREATE TABLE backup_NAME AS SELECT * FROM NAME`)
	lastID := (&fixture{Store: p.Store, t: t}).number(`SELECT max(id) FROM urls`)
	away, here := m.SlotsOf(0)[:100], m.SlotsOf(1)[:100]
	nth := 0
	for !slices.Contains(away, hostSlot(m.hostIn(0, nth))) {
		nth++
	}
	m.put("http://" + m.hostIn(0, nth) + "/later")
	before++
	must(t, m.MoveSlots(t.Context(), away, 1, nil))
	must(t, m.again().MoveSlots(t.Context(), here, 0, nil))
	came := 0 // URLs that have moved into the database
	for _, r := range m.again().rows() {
		for _, slot := range here {
			if hostSlot(strings.Split(r.URL, "/")[2]) == slot {
				came++
			}
		}
	}
	if _, err := p.db.ExecContext(t.Context(), `TRUNCATE urls, hosts, slots, settings CASCADE`); err != nil {
		t.Fatal(err)
	}
	_, err := p.db.ExecContext(t.Context(), `INSERT INTO slots SELECT * FROM backup_slots`)
	must(t, err)
	for _, table := range []string{"hosts", "urls", "settings"} {
		_, err := p.db.ExecContext(t.Context(), `INSERT INTO `+table+` OVERRIDING SYSTEM VALUE SELECT * FROM backup_`+table)
		must(t, err)
	}
	_, err = p.db.ExecContext(t.Context(), `SELECT setval(pg_get_serial_sequence('urls', 'id'), $1)`, lastID)
	must(t, err)
	if _, err := Open(t.Context(), m.dsns[0], Config{}, m.dsns[1]); !errors.Is(err, ErrShards) || !strings.Contains(fmt.Sprint(err), "was restored from a backup") {
		t.Fatalf("Open = %v", err)
	}
	s, err := Open(t.Context(), m.dsns[0], Config{Repair: true}, m.dsns[1])
	must(t, err)
	must(t, s.Close())
	again := m.again()
	again.put("http://" + again.hostIn(0, 0) + "/") // its id is not that of /later
	if got := len(again.rows()); got != before-came+1 || came == 0 {
		t.Errorf("%d URLs, want %d without the %d that had moved into it", got, before, came)
	}
}

// TestMoveRecrawl looks for URLs to fetch again while those that have moved are deleted.
func TestMoveRecrawl(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	host := m.hostIn(0, 0)
	m.put("http://" + host + "/")
	p := m.many.parts[0]
	f := &fixture{Store: p.Store, t: t, dsn: m.dsns[0]}
	f.exec(`UPDATE hosts SET host = 'gone ' || host, moving = TRUE`)
	f.exec(`UPDATE slots SET open = FALSE WHERE slot = frontier_slot($1)`, host)
	recrawl, err := p.pg.db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = recrawl.Exec(`SELECT 1 FROM hosts FOR UPDATE`)
	must(t, err)
	forgotten := make(chan error, 1)
	go func() { forgotten <- p.forget(t.Context(), 0, hostSlot(host)) }()
	f.until(`SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%forget%' AND datname = current_database()`)
	_, err = recrawl.Exec(`SELECT 1 FROM urls FOR UPDATE`)
	must(t, err)
	must(t, recrawl.Commit())
	must(t, <-forgotten)
	if n := f.number(`SELECT count(*) FROM urls`); n != 0 {
		t.Errorf("%d URLs are left", n)
	}
}

// TestMoveBack moves a slot away and back. A program that knows the table from before puts and records meanwhile.
func TestMoveBack(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	host, other := m.hostIn(0, 0), m.hostIn(0, 1)
	m.put("http://"+host+"/1", "http://"+other+"/")
	claims := m.claimAll()
	c := claims[slices.IndexFunc(claims, func(c Claim) bool { return c.Host == other })]
	m.fetched(claims[slices.IndexFunc(claims, func(c Claim) bool { return c.Host == host })])
	before := m.many.table.Load()
	slot := []int{hostSlot(host)}
	must(t, m.MoveSlots(t.Context(), slot, 1, nil))
	old, mover := m.again(), m.again()
	old.many.table.Store(before)
	if ids, err := old.IDs(t.Context(), []string{"http://" + host + "/1", "http://" + other + "/none"}); err != nil || len(ids) != 1 {
		t.Errorf("IDs = %v, %v, want that of the URL that has moved", ids, err)
	}
	copied := false
	must(t, mover.MoveSlots(t.Context(), slot, 0, func(p Progress) {
		if copied || p.URLs == 0 {
			return
		}
		copied = true
		old.many.table.Store(before)
		if r, err := old.Put(t.Context(), Entries("http://"+host+"/2"), Limits{}); err != nil || r.Waiting != 1 {
			t.Errorf("Put = %+v, %v, want one that waits", r, err)
		}
		old.many.table.Store(before)
		final := Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1}, Status: Fetched, FinalURL: "http://" + host + "/3"}
		if _, err := old.RecordFetch(t.Context(), []Fetch{final}); err != nil && !errors.Is(err, ErrUnreachable) {
			t.Errorf("RecordFetch = %v, want none or ErrUnreachable", err)
		}
	}))
	if !copied {
		t.Error("nothing was put during the move")
	}
	last := m.again()
	_, err := last.Reap(t.Context())
	must(t, err)
	ids, err := last.IDs(t.Context(), []string{"http://" + host + "/1", "http://" + host + "/2", "http://" + other + "/"})
	if rows := last.rows(); err != nil || len(ids) != 3 || len(rows) < 3 {
		t.Errorf("URLs = %v, %v, %v, want at least 3", rows, ids, err)
	}
}

// TestMoveOwnURL records a page without a redirect while its slot moves.
func TestMoveOwnURL(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	host := m.hostIn(0, 0)
	m.put("http://" + host + "/")
	c := m.claimAll()[0]
	moving := *m.many.table.Load()
	moving.Moving = &move{Slot: hostSlot(host), From: 0, To: 1}
	m.many.table.Store(&moving)
	m.mustRecord(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1}, Status: Fetched, FinalURL: c.URL})
	if n := m.total(`SELECT count(*) FROM parcels`); n != 0 {
		t.Errorf("%d parcels wait for a page that is where it was", n)
	}
	if rows := m.rows(); len(rows) != 1 || rows[c.ID].Status != "fetched" {
		t.Errorf("URLs = %v, want one that is fetched", rows)
	}
}
