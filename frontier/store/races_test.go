package store

import (
	"context"
	"testing"
	"time"
)

// TestMoveWhileHostIsAdded moves a slot while a transaction adds a host to it.
func TestMoveWhileHostIsAdded(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	host := m.hostIn(0, 0)
	slot := hostSlot(host)
	must(t, m.MoveSlots(t.Context(), nil, 0, nil)) // makes the index, which waits for transactions
	db := m.many.parts[0].db
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), `INSERT INTO hosts (host) VALUES ($1)`, host)
	must(t, err)
	moved := make(chan error, 1)
	go func() { moved <- m.MoveSlots(t.Context(), []int{slot}, 1, nil) }()
	waitForLock(t, m.many.parts[0], moved)
	must(t, tx.Commit())
	must(t, <-moved)
	last := m.again()
	if n := last.many.numberOf(host); n != 1 {
		t.Errorf("the host is in database %d by the table, want 1", n)
	}
	for number, want := range []int64{0, 1} {
		p := &fixture{Store: last.many.parts[number].Store, t: t}
		if n := p.number(`SELECT count(*) FROM hosts`); n != want {
			t.Errorf("database %d has %d hosts, want %d", number, n, want)
		}
	}
}

// waitForLock returns when a statement waits for a lock, or a call has ended.
func waitForLock(t *testing.T, p *part, ended chan error) {
	t.Helper()
	for range 1000 {
		waits, err := p.db.Bool(t.Context(), "look for waiting statements", `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
		must(t, err)
		if waits {
			return
		}
		select {
		case err := <-ended:
			ended <- err
			return
		default:
			pause(t, 5*time.Millisecond)
		}
	}
	t.Fatal("no statement waits, and the call has not ended")
}

// TestMoveWhileHostIsUsed uses a host while it is taken away.
func TestMoveWhileHostIsUsed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		use  func(ctx context.Context, s *Store, host string) error
	}{
		{"reserved", func(ctx context.Context, s *Store, host string) error {
			_, err := s.Reserve(ctx, host, time.Minute)
			return err
		}},
		{"blocked", func(ctx context.Context, s *Store, host string) error { return s.Block(ctx, host, time.Minute) }},
		{"delayed", func(ctx context.Context, s *Store, host string) error { return s.DelayHosts(ctx, []string{host}) }},
		{"put", func(ctx context.Context, s *Store, host string) error {
			_, err := s.Put(ctx, Entries("http://"+host+"/2"), Limits{})
			return err
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := openSeveral(t, 2)
			host := m.hostIn(0, 0)
			slot := hostSlot(host)
			m.put("http://" + host + "/1")
			p := m.many.parts[0]
			_, err := p.db.Update(t.Context(), "close a slot", `UPDATE slots SET open = FALSE, leaving = TRUE WHERE slot = ?`, slot)
			must(t, err)
			tx, err := p.db.BeginTx(t.Context(), nil)
			must(t, err)
			_, err = tx.ExecContext(t.Context(), `SELECT frontier_take_away(0, $1, 100)`, slot)
			must(t, err)
			used := make(chan error, 1)
			go func() { used <- row.use(t.Context(), m.Store, host) }()
			waitForLock(t, p, used)
			must(t, tx.Commit())
			must(t, <-used) // what was put waits, and the rest moves with the host
			if n := (&fixture{Store: p.Store, t: t}).number(`SELECT count(*) FROM hosts WHERE host = '` + host + `'`); n != 0 {
				t.Errorf("the host is there again")
			}
			must(t, m.MoveSlots(t.Context(), []int{slot}, 1, nil))
		})
	}
}

// TestMoveDeparted moves a host that a fetch has left before it ended.
func TestMoveDeparted(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	host := m.hostIn(0, 0)
	slot := hostSlot(host)
	m.put("http://" + host + "/1")
	c := m.claimAll()[0]
	_, err := m.LeaveHosts(t.Context(), []Lease{c.Lease})
	must(t, err)
	waits := make(chan struct{}, 1)
	moved := make(chan error, 1)
	go func() {
		moved <- m.MoveSlots(t.Context(), []int{slot}, 1, func(p Progress) {
			if p.Leased > 0 {
				select {
				case waits <- struct{}{}:
				default:
				}
			}
		})
	}()
	select {
	case <-waits:
	case err := <-moved:
		t.Errorf("the move ended before the fetch: %v", err)
		moved <- err
	}
	if err := m.record(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1}, Status: Fetched}); err != nil {
		t.Errorf("record = %v", err)
	}
	must(t, <-moved)
	if u := m.again().url("http://" + host + "/1"); u.Status != Fetched {
		t.Errorf("the URL is %s, want fetched", u.Status)
	}
}

// TestMoveWhilePruned prunes while a host has been copied in part.
func TestMoveWhilePruned(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		params PruneParams
	}{
		{"hosts", PruneParams{Hosts: true}},
		{"URLs", PruneParams{URLs: []Status{Pending}}},
	} {
		for _, number := range []int{0, 1} {
			t.Run(row.name+" of "+[]string{"the old database", "the new one"}[number], func(t *testing.T) {
				m := openSeveral(t, 2)
				host := m.hostIn(0, 0)
				slot := hostSlot(host)
				m.put("http://"+host+"/1", "http://sub."+host+"/")
				p := m.many.parts[0]
				(&fixture{Store: p.Store, t: t}).exec(`DELETE FROM urls WHERE url LIKE '%/1'`) // the host has no URL
				(&fixture{Store: p.Store, t: t}).exec(`UPDATE hosts SET next_at = 1`)
				m.moveUntil(slot, 0, 1, taken)
				_, err := m.many.parts[number].Prune(t.Context(), row.params, nil)
				must(t, err)
				must(t, m.again().MoveSlots(t.Context(), nil, 1, nil))
			})
		}
	}
}
