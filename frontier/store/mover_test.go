package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// stage is what a move has done when a test looks.
type stage int

const (
	closed   stage = iota // the slot has no new hosts
	taken                 // the hosts were taken away, and their URLs copied
	left                  // the hosts were copied, too
	opened                // the slot is open in both databases
	switched              // the table of slots is new
)

// moveUntil moves a slot until it has reached a stage, and leaves it there, as a mover that was killed.
func (m *many) moveUntil(slot, from, to int, last stage) {
	m.t.Helper()
	mover, err := m.moverOf(nil)
	must(m.t, err)
	must(m.t, mover.alone(m.t.Context(), func(ctx context.Context) error { return mover.until(ctx, slot, from, to, last) }))
}

func (m *mover) until(ctx context.Context, slot, number, to int, last stage) error {
	a, b := m.parts[number], m.parts[to]
	var names []string
	for i, f := range []func() error{
		func() error {
			if err := m.index(ctx); err != nil {
				return err
			}
			if err := m.change(ctx, func(t *shardTable) { t.Moving = &move{Slot: slot, From: number, To: to} }); err != nil {
				return err
			}
			return m.closeSlot(ctx, a, b, slot)
		},
		func() (err error) {
			if names, err = m.takeAway(ctx, a, slot); err != nil {
				return err
			}
			return m.copyHosts(ctx, a, b, names)
		},
		func() error { return m.handOver(ctx, a, b, slot) },
		func() error { return m.openSlot(ctx, a, b, slot) },
		func() error {
			return m.change(ctx, func(t *shardTable) { t.Slots[slot], t.Moving = to, &move{slot, number, to, true} })
		},
	} {
		if stage(i) > last {
			break
		}
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// moves reports whether a move is in the table of slots, which it reads again.
func (m *many) moves() bool {
	m.t.Helper()
	must(m.t, m.many.refresh(m.t.Context()))
	return m.many.table.Load().Moving != nil
}

// TestTwoMovers checks that a second program that moves slots or repairs stops, and that the first one goes on.
func TestTwoMovers(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	host := m.hostIn(0, 0)
	m.put("http://"+host+"/", "http://"+m.hostIn(0, 1)+"/")
	claims := m.claimAll()
	first := m.again()
	done := make(chan error, 1)
	go func() { done <- first.MoveSlots(context.Background(), []int{hostSlot(host)}, 1, nil) }()
	for !m.moves() {
		pause(t, 10*time.Millisecond)
	}
	for what, f := range map[string]func() error{
		"move":   func() error { return m.MoveSlots(t.Context(), []int{hostSlot(m.hostIn(0, 1))}, 1, nil) },
		"add":    func() error { return m.AddDatabase(t.Context(), newPostgres(t), Config{}, nil) },
		"repair": func() error { _, err := Open(t.Context(), m.dsns[0], Config{Repair: true}, m.dsns[1]); return err },
	} {
		if err := f(); !errors.Is(err, ErrShards) || !strings.Contains(fmt.Sprint(err), "another program moves slots") {
			t.Errorf("%s next to a move = %v", what, err)
		}
	}
	for _, c := range claims {
		m.fetched(c)
	}
	must(t, <-done)
	if rows := m.again().rows(); len(rows) != 2 {
		t.Errorf("%d URLs, want 2", len(rows))
	}
}

// TestMoverKilled checks that the next program waits until the right of one that was killed has ended, and that the
// databases refuse the steps of the first one if it was only suspended.
func TestMoverKilled(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	host := m.hostIn(0, 0)
	slot := hostSlot(host)
	m.put("http://" + host + "/")
	suspended, err := m.moverOf(nil)
	must(t, err)
	must(t, suspended.acquire(t.Context()))
	must(t, suspended.begin(t.Context()))
	must(t, suspended.until(t.Context(), slot, 0, 1, taken))
	lease := &fixture{Store: m.many.parts[0].Store, t: t}
	lease.exec(`UPDATE settings SET value = split_part(value, ' ', 1) || ' ' || (frontier_now() + 1500) WHERE name = 'mover_lease'`)
	started := time.Now()
	must(t, m.again().MoveSlots(t.Context(), nil, 1, nil))
	if waited := time.Since(started); waited < time.Second {
		t.Errorf("the second mover began after %v, before the right of the first had ended", waited)
	}
	a, b := suspended.parts[0], suspended.parts[1]
	for what, f := range map[string]func(context.Context) error{
		"change":    func(ctx context.Context) error { return suspended.change(ctx, func(*shardTable) {}) },
		"close":     func(ctx context.Context) error { return suspended.closeSlot(ctx, b, a, slot) },
		"take away": func(ctx context.Context) error { _, err := suspended.takeAway(ctx, b, slot); return err },
		"copy":      func(ctx context.Context) error { return suspended.copyHosts(ctx, b, a, []string{host}) },
		"hand over": func(ctx context.Context) error { return suspended.handOver(ctx, b, a, slot) },
		"open":      func(ctx context.Context) error { return suspended.openSlot(ctx, b, b, slot) },
		"forget":    func(ctx context.Context) error { return b.forget(ctx, suspended.mover, slot) },
		"repair":    suspended.repair,
	} {
		if err := f(t.Context()); err == nil || !strings.Contains(fmt.Sprint(err), fencedCode) && !errors.Is(err, errMover) {
			t.Errorf("%s by a mover that has lost its right = %v", what, err)
		}
	}
	if n, err := suspended.extend(t.Context(), `0`); err != nil || n != 0 {
		t.Errorf("it has extended its right: %d, %v", n, err)
	}
	if rows := m.again().rows(); len(rows) != 1 {
		t.Errorf("%d URLs, want 1", len(rows))
	}
}

// TestRepairReadsNewest checks that a repair does not use a table that is older than what has moved.
func TestRepairReadsNewest(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	host := m.hostIn(0, 0)
	m.put("http://" + host + "/")
	old := m.many.table.Load()
	repairs := m.again() // has read the table
	must(t, m.MoveSlots(t.Context(), []int{hostSlot(host)}, 1, nil))
	repairs.many.table.Store(old)
	must(t, (&mover{shards: repairs.many}).alone(t.Context(), repairs.many.repair))
	if rows := m.again().rows(); len(rows) != 1 {
		t.Errorf("%d URLs, want 1", len(rows))
	}
}

// TestOpenDuringMoves opens the frontier again and again while a slot moves as fast as it can.
func TestOpenDuringMoves(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	slot := m.SlotsOf(0)[0]
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	mover := m.again()
	go func() {
		for i := 0; ; i++ {
			if err := mover.MoveSlots(ctx, []int{slot}, 1-i%2, nil); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 20 {
		s, err := Open(t.Context(), m.dsns[0], Config{}, m.dsns[1])
		must(t, err)
		must(t, s.Close())
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestMovingHost changes and reads a host at each stage of its move. Nothing is lost, and nothing waits for the leases of
// other hosts.
func TestMovingHost(t *testing.T) {
	t.Parallel()
	for last, name := range []string{"closed", "taken", "left", "opened", "switched"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := openSeveral(t, 2)
			m.testMovingHost(stage(last))
		})
	}
}

func (m *many) testMovingHost(last stage) {
	t := m.t
	host, other := m.hostIn(0, 0), "sub."+m.hostIn(0, 0)
	slot := hostSlot(host)
	m.put("http://"+host+"/failed", "http://"+host+"/1", "http://"+host+"/2")
	for _, c := range m.claimAll() {
		m.mustRecord(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, Attempts: 1, Bytes: 7}, Status: Dead, ErrorClass: "timeout"})
	}
	reservation, err := m.Reserve(t.Context(), other, time.Minute)
	must(t, err)
	must(t, m.Pause(t.Context(), other))
	m.moveUntil(slot, 0, 1, last)
	user := m.Store // that knows the old table
	delay := time.Hour
	var use Use
	var known bool
	done := make(chan error)
	calls := map[string]func(ctx context.Context) error{
		"Block":      func(ctx context.Context) error { return user.Block(ctx, host, 50*time.Hour) },
		"Defer":      func(ctx context.Context) error { return user.Defer(ctx, "https://"+host, 3*time.Hour) },
		"SetHost":    func(ctx context.Context) error { return user.SetHost(ctx, host, HostParams{Delay: &delay}) },
		"Pause":      func(ctx context.Context) error { return user.Pause(ctx, host) },
		"Resume":     func(ctx context.Context) error { return user.Resume(ctx, other) },
		"Settle":     func(ctx context.Context) error { return user.Settle(ctx, reservation) },
		"DelayHosts": func(ctx context.Context) error { return user.DelayHosts(ctx, []string{"new." + host}) },
		"HostUse":    func(ctx context.Context) (err error) { use, err = user.HostUse(ctx, host); return err },
		"Knows":      func(ctx context.Context) (err error) { known, err = user.Knows(ctx, host); return err },
		"Why":        func(ctx context.Context) error { _, err := user.Why(ctx, "http://"+host+"/1"); return err },
	}
	start := func(calls map[string]func(ctx context.Context) error) {
		for what, f := range calls {
			go func() {
				if err := f(context.Background()); err != nil {
					done <- fmt.Errorf("%s: %w", what, err)
					return
				}
				done <- nil
			}()
		}
	}
	wait := func(n int) {
		t.Helper()
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	start(calls)
	if last <= taken {
		wait(len(calls)) // before the move goes on
	}
	urls := map[string]func(ctx context.Context) error{
		"RetryFailed": func(ctx context.Context) error {
			if n, err := user.RetryFailed(ctx, "timeout", host, nil); n != 1 || err != nil {
				return fmt.Errorf("%d, %w", n, err)
			}
			return nil
		},
	}
	start(urls)
	must(t, m.again().MoveSlots(t.Context(), nil, 1, nil))
	if last > taken {
		wait(len(calls))
	}
	wait(len(urls))
	m.wantMoved(host, other)
	if use.Bytes != 7 || !known {
		t.Errorf("HostUse = %+v, Knows = %v", use, known)
	}
}

// wantMoved checks that a host has all that testMovingHost has changed.
func (m *many) wantMoved(host, other string) {
	m.t.Helper()
	s := m.again()
	p := &fixture{Store: s.many.parts[1].Store, t: m.t}
	for what, query := range map[string]string{
		"block, delay, pause and deferral": `SELECT count(*) FROM hosts WHERE host = '` + host + `' AND blocked_until > {now} + 40 * 3600000 AND delay_ms = 3600000 AND paused AND https_deferred_until > {now}`,
		"resumed and settled":              `SELECT count(*) FROM hosts WHERE host = '` + other + `' AND NOT paused AND reserved_until = 0`,
		"delayed":                          `SELECT count(*) FROM hosts WHERE host = 'new.` + host + `' AND next_at > {now} + 3000000`,
		"retried":                          `SELECT count(*) FROM urls WHERE status = 'pending' AND last_error = '' AND error_class = 'timeout'`,
	} {
		if p.number(query) != 1 {
			m.t.Errorf("the host has lost that it was %s", what)
		}
	}
	if n := s.total(`SELECT count(*) FROM hosts`); n != 3 {
		m.t.Errorf("%d hosts, want 3", n)
	}
	if len(s.rows()) != 3 {
		m.t.Error("URLs are lost")
	}
}

// TestRetryDuringMove retries all URLs while a slot moves into a database that had its turn already.
func TestRetryDuringMove(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	here, there := m.hostIn(0, 0), m.hostIn(1, 0)
	slot := hostSlot(there)
	m.put("http://"+here+"/", "http://"+there+"/", "http://"+m.hostIn(1, 1)+"/")
	for _, c := range m.claimAll() {
		m.mustRecord(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, Attempts: 1}, Status: Dead, ErrorClass: "timeout"})
	}
	moved := false
	n, err := m.RetryFailed(t.Context(), "", "", func(int64) {
		if !moved { // the first database has had its turn
			moved = true
			must(t, m.again().MoveSlots(t.Context(), []int{slot}, 0, nil))
		}
	})
	if n != 3 || err != nil {
		t.Errorf("RetryFailed = %d, %v, want 3", n, err)
	}
	if n := m.total(`SELECT count(*) FROM urls WHERE status = 'pending'`); n != 3 {
		t.Errorf("%d URLs are pending, want 3", n)
	}
}

// TestWhyParentElsewhere looks for the parent of a URL in another database.
func TestWhyParentElsewhere(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	parent := "http://" + m.hostIn(1, 0) + "/"
	m.put(parent)
	ids, err := m.IDs(t.Context(), []string{parent})
	must(t, err)
	child := Entry{URL: "http://" + m.hostIn(0, 0) + "/", Parent: ids[parent]}
	_, err = m.Put(t.Context(), []Entry{child}, Limits{})
	must(t, err)
	if got := m.url(child.URL).ParentURL; got != parent {
		t.Errorf("the parent is %q, want %q", got, parent)
	}
}

// TestFinalURLOfMovingHost records a redirect to a host that is taken away while the record waits for its lock.
func TestFinalURLOfMovingHost(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	from, to := m.hostIn(0, 0), m.hostIn(0, 1)
	slot := hostSlot(to)
	m.put("http://" + from + "/")
	c := m.claimAll()[0]
	m.put("http://" + to + "/1")
	m.moveUntil(slot, 0, 1, closed)
	p := m.many.parts[0]
	tx, err := p.db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), `SELECT frontier_take_away(0, $1, 100)`, slot)
	must(t, err)
	recorded := make(chan error, 1)
	f := Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1}, Status: Fetched, FinalURL: "http://" + to + "/final"}
	table := *m.many.table.Load()
	table.Moving = nil // it knows an older table
	m.many.table.Store(&table)
	go func() { recorded <- m.record(f) }()
	waitForLock(t, p, recorded)
	must(t, tx.Commit())
	must(t, <-recorded)
	last := m.again()
	must(t, last.MoveSlots(t.Context(), nil, 1, nil))
	last = m.again()
	for range 5 {
		last.pause()
		_, err := last.Reap(t.Context())
		must(t, err)
	}
	if u := last.url(f.FinalURL); u.Status != Fetched {
		t.Errorf("the final URL is %s, want fetched", u.Status)
	}
	if u := last.url("http://" + from + "/"); u.Status != Fetched {
		t.Errorf("the URL with the redirect is %s, want fetched", u.Status)
	}
}

// TestCountsDuringMove counts and exports at each stage of a move. Each URL is there once.
func TestCountsDuringMove(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	m.seed(20, 3)
	host := m.hostIn(0, 0)
	read := func(s *many) (c Counts, st Stats, use Use, due int64, urls map[string]bool) {
		t.Helper()
		c, err := s.Counts(t.Context())
		must(t, err)
		st, err = s.Stats(t.Context(), 50)
		must(t, err)
		use, err = s.TotalUse(t.Context())
		must(t, err)
		due, _, err = s.Due(t.Context())
		must(t, err)
		urls = map[string]bool{}
		for u, err := range s.URLs(t.Context()) {
			must(t, err)
			if urls[u.URL] || !strings.Contains(u.URL, "//"+u.Host+"/") {
				t.Errorf("%s of host %q is exported twice, or with a wrong host", u.URL, u.Host)
			}
			urls[u.URL] = true
		}
		return c, st, use, due, urls
	}
	ignore := []cmp.Option{cmpopts.IgnoreFields(Counts{}, "NextDue", "HostsDue", "HostsWaiting", "LastOutcome"), cmpopts.IgnoreFields(Stats{}, "Now", "Workers")}
	c, st, use, _, urls := read(m)
	reader, err := Open(t.Context(), m.dsns[0], Config{ReadOnly: true}, m.dsns[1])
	must(t, err)
	defer func() { must(t, reader.Close()) }()
	for last := closed; last <= switched; last++ {
		m.moveUntil(hostSlot(host), 0, 1, last)
		c2, st2, use2, due, urls2 := read(&many{fixture: &fixture{Store: reader, t: t}})
		if diff := cmp.Diff(c, c2, ignore...) + cmp.Diff(st, st2, ignore...) + cmp.Diff(use, use2) + cmp.Diff(urls, urls2); diff != "" || due > 20 {
			t.Errorf("stage %d, %d due (-before +after):\n%s", last, due, diff)
		}
		must(t, m.again().MoveSlots(t.Context(), nil, 1, nil))
		must(t, m.again().MoveSlots(t.Context(), []int{hostSlot(host)}, 0, nil))
	}
}

// TestExportDuringMoves moves slots in both directions while URLs are exported.
func TestExportDuringMoves(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	m.seed(30, 100)
	mover := m.again()
	seen := map[string]int{}
	n := 0
	for u, err := range m.URLs(t.Context()) {
		must(t, err)
		seen[u.URL]++
		switch n++; n {
		case 200, 900:
			must(t, mover.MoveSlots(t.Context(), []int{hostSlot(m.hostIn(0, 0)), hostSlot(m.hostIn(0, 1))}, 1, nil))
			must(t, mover.MoveSlots(t.Context(), []int{hostSlot(m.hostIn(1, 3)), hostSlot(m.hostIn(1, 4))}, 0, nil))
		case 1900, 2700:
			must(t, mover.MoveSlots(t.Context(), []int{hostSlot(m.hostIn(0, 2))}, 1, nil))
			must(t, mover.MoveSlots(t.Context(), []int{hostSlot(m.hostIn(1, 0))}, 0, nil))
		}
	}
	for url, times := range seen {
		if times != 1 {
			t.Errorf("%s was exported %d times", url, times)
		}
	}
	if len(seen) != 3000 {
		t.Errorf("%d URLs were exported, want 3000", len(seen))
	}
}

// TestMoveBehindPoolers moves slots behind poolers that give each transaction another connection.
func TestMoveBehindPoolers(t *testing.T) {
	t.Parallel()
	m := &many{dsns: []string{newBouncer(t, newPostgres(t)), newBouncer(t, newPostgres(t))}, fixture: &fixture{t: t}}
	m = m.again()
	m.seed(40, 3)
	before := m.rows()
	must(t, m.MoveSlots(t.Context(), m.SlotsOf(0)[:60], 1, nil))
	if diff := cmp.Diff(before, m.again().rows()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
