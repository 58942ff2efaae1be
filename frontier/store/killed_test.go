package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// errKilled is the result of the statements of a mover that was killed.
var errKilled = errors.New("the mover was killed")

// mortal is a driver whose connections run some statements, and no more.
type mortal struct {
	driver.Connector
	left *atomic.Int64
}

func (m mortal) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := m.Connector.Connect(ctx)
	return mortalConn{conn, m.left}, err
}

type mortalConn struct {
	driver.Conn
	left *atomic.Int64
}

func (c mortalConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.left.Add(-1) < 0 {
		return nil, errKilled
	}
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return q.QueryContext(ctx, query, args)
}

func (c mortalConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.left.Add(-1) < 0 {
		return nil, errKilled
	}
	e, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return e.ExecContext(ctx, query, args)
}

// mortalMover returns a mover that runs some statements, and no more.
func (m *many) mortalMover(left *atomic.Int64) *mover {
	m.t.Helper()
	v := &mover{shards: &shards{}, report: func(Progress) {}}
	for number, dsn := range m.dsns {
		s, err := openOne(m.t.Context(), dsn, Config{Delay: time.Hour})
		must(m.t, err)
		settings, err := pgx.ParseConfig(dsn)
		must(m.t, err)
		settings.DefaultQueryExecMode = pgx.QueryExecModeExec
		must(m.t, s.Close())
		s.db.DB = sql.OpenDB(mortal{stdlib.GetConnector(*settings), left})
		m.t.Cleanup(func() { must(m.t, s.Close()) })
		pg, _ := s.kind.(*postgresDB)
		v.parts = append(v.parts, &part{Store: s, pg: pg, number: number, name: fmt.Sprint(number)})
	}
	return v
}

// TestMoverKilledAnywhere ends a move after each of its statements, and finishes it with another mover, while a worker puts,
// claims and records.
func TestMoverKilledAnywhere(t *testing.T) {
	t.Parallel()
	m := openSeveral(t, 2)
	host := m.hostIn(0, 0)
	slot := hostSlot(host)
	r := &repeatedMove{many: m, host: host, slot: slot, ids: map[string]int64{}, recorded: map[string]bool{}}
	zero := time.Duration(0)
	for _, name := range []string{host, "a." + host, "b." + host} {
		must(t, m.SetHost(t.Context(), name, HostParams{Delay: &zero}))
		must(t, m.SaveRobots(t.Context(), Robots{Origin: "http://" + name, Status: 200, Body: []byte("x")}))
	}
	var some, all atomic.Int64
	all.Store(math.MaxInt64)
	mortal, immortal := m.mortalMover(&some), m.mortalMover(&all)
	statements := int64(1)
	for ; ; statements++ {
		r.work(fmt.Sprint("before", statements))
		some.Store(statements)
		must(t, m.many.refresh(t.Context()))
		to := 1 - m.many.numberOf(host)
		err := mortal.alone(t.Context(), func(ctx context.Context) error { return mortal.moveAll(ctx, []int{slot}, to) })
		killed := some.Load() < 0
		if !killed && err != nil || killed && err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("after %d statements: %v", statements, err)
		}
		must(t, m.many.refresh(t.Context()))
		r.work(fmt.Sprint("between", statements))
		// The right of the one that was killed ends.
		_, err = m.many.parts[0].db.ExecContext(t.Context(), `UPDATE settings SET value = split_part(value, ' ', 1) || ' 0' WHERE name = 'mover_lease'`)
		must(t, err)
		must(t, immortal.alone(t.Context(), func(ctx context.Context) error { return immortal.moveAll(ctx, nil, 0) }))
		must(t, m.many.refresh(t.Context()))
		r.check(statements)
		if t.Failed() || !killed {
			break
		}
	}
	if n := m.many.numberOf(host); statements < 30 {
		t.Errorf("a move in database %d has only %d statements", n, statements)
	}
	t.Logf("a move has %d statements", statements)
}

// repeatedMove is what a worker does during moves, and what must be there after them.
type repeatedMove struct {
	*many
	host     string
	slot     int
	ids      map[string]int64 // of URLs
	recorded map[string]bool
}

// work puts URLs, claims them, and records one.
func (r *repeatedMove) work(name string) {
	r.t.Helper()
	urls := []string{"http://" + r.host + "/" + name, "http://a." + r.host + "/" + name, "http://b." + r.host + "/" + name}
	r.put(urls...)
	for _, u := range urls {
		r.ids[u] = 0
	}
	claims, err := r.Claim(r.t.Context(), ClaimParams{Limit: 2, Lease: time.Minute})
	must(r.t, err)
	for i, c := range claims {
		if i > 0 {
			_, err := r.Release(r.t.Context(), []Lease{c.Lease})
			must(r.t, err)
			continue
		}
		r.fetched(c)
		r.recorded[c.URL] = true
	}
}

// check compares all rows with those before.
func (r *repeatedMove) check(statements int64) {
	t := r.t
	t.Helper()
	_, err := r.Reap(t.Context()) // sends what has waited
	must(t, err)
	rows := r.rows()
	for id, one := range rows {
		if before := r.ids[one.URL]; before != 0 && before != id {
			t.Errorf("after %d statements: %s has id %d, and had %d", statements, one.URL, id, before)
		}
		if r.ids[one.URL] = id; r.recorded[one.URL] && one.Status != string(Fetched) {
			t.Errorf("after %d statements: %s is %s, and was fetched", statements, one.URL, one.Status)
		}
	}
	if len(rows) != len(r.ids) {
		t.Errorf("after %d statements: %d rows, want %d", statements, len(rows), len(r.ids))
	}
	if n := r.total(`SELECT count(*) FROM hosts`) - 3 + r.total(`SELECT count(*) FROM robots`) - 3 + r.total(`SELECT count(*) FROM hosts WHERE moving OR host LIKE '% %' OR in_flight <> 0`) +
		r.total(`SELECT count(*) FROM parcels`) + r.total(`SELECT count(*) FROM slots`) - slotCount; n != 0 {
		t.Errorf("after %d statements: there are %d rows too many of hosts, robots.txt, slots or parcels", statements, n)
	}
}
