package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Move is a slot on its way from one database to another. It is in the table of slots, so that whoever opens the
// frontier can finish it.
//
// First the slot is closed in its database: no host is added to it, its hosts are not claimed, and what is put waits.
// Each host is taken away when its last lease has ended, and copied. Then the slot is open in the other database, and
// what was copied is deleted. Every step can be repeated: a copy keeps what is there, and nothing changes a host between
// its copy and its deletion, because it has lost its name.
type move struct {
	Slot int  `json:"slot"`
	From int  `json:"from"`
	To   int  `json:"to"`
	Done bool `json:"done,omitempty"` // the slot is open at its new place
}

// Progress is how far [Store.AddDatabase] or [Store.MoveSlots] is.
type Progress struct {
	Slots, Of int   // that have been moved, and that are to be moved
	URLs      int64 // that have been copied
	Slot      int   // that moves
	Leased    int64 // hosts of this slot whose leases have not ended
}

// mover moves slots.
type mover struct {
	*shards
	store    *Store
	report   func(Progress)
	progress Progress
}

const (
	// moveHosts and moveURLs are how many rows a step of a move copies.
	moveHosts = 100
	moveURLs  = 1000
	// movePause is how long a move waits for leases to end before it looks again.
	movePause = 200 * time.Millisecond
)

// AddDatabase adds a PostgreSQL database without a frontier, and moves its share of the slots into it, while workers run.
// The frontier may be in one database before. Workers must be started again with all databases; those that run meanwhile
// stop with [ErrShards]. Calling it again finishes what was interrupted. report may be nil.
func (s *Store) AddDatabase(ctx context.Context, dsn string, config Config, report func(Progress)) error {
	added, err := openOne(ctx, dsn, config)
	if err != nil {
		return fmt.Errorf("%s: %w", redacted(dsn), err)
	}
	m, err := s.moverOf(ctx, report)
	number := 0
	if err == nil {
		number, err = m.addDatabase(ctx, added, redacted(dsn))
	}
	if err != nil {
		return errors.Join(err, added.Close())
	}
	table := m.table.Load()
	var slots []int
	for slot, to := range fillSlots(table.Databases) {
		if to == number && table.Slots[slot] != number {
			slots = append(slots, slot)
		}
	}
	return errors.Join(m.moveAll(ctx, slots, number), added.Close())
}

// MoveSlots moves slots to a database, while workers run. Without slots it only finishes what was interrupted.
func (s *Store) MoveSlots(ctx context.Context, slots []int, to int, report func(Progress)) error {
	m, err := s.moverOf(ctx, report)
	if err != nil {
		return err
	}
	if to < 0 || to >= len(m.parts) {
		return fmt.Errorf("%w: there is no database %d", ErrShards, to)
	}
	return m.moveAll(ctx, slots, to)
}

// moverOf returns a mover of a frontier. One in one database becomes one in many, of which there is one.
func (s *Store) moverOf(ctx context.Context, report func(Progress)) (*mover, error) {
	if report == nil {
		report = func(Progress) {}
	}
	if s.many != nil {
		m := &mover{shards: &shards{parts: slices.Clone(s.many.parts)}, store: s, report: report}
		m.table.Store(s.many.table.Load())
		return m, nil
	}
	pg, ok := s.kind.(*postgresDB)
	if !ok {
		return nil, fmt.Errorf("%w: a SQLite file cannot be one of many databases: export its URLs, and add them to a new frontier", ErrShards)
	}
	p := &part{Store: s, pg: pg, name: "the first"}
	table, _, err := s.readShards(ctx)
	if err == nil && table == nil {
		table = newShardTable(1)
		table.Ready = true
		err = p.enter(ctx, table)
	}
	if err != nil {
		return nil, err
	}
	m := &mover{shards: &shards{parts: []*part{p}}, store: s, report: report}
	m.table.Store(table)
	return m, nil
}

// addDatabase makes a database one of the frontier, unless it is one already, and returns its number.
func (m *mover) addDatabase(ctx context.Context, added *Store, name string) (int, error) {
	pg, ok := added.kind.(*postgresDB)
	if !ok {
		return 0, fmt.Errorf("%w: %s is a SQLite file: give postgres://USER@HOST/NAME", ErrShards, name)
	}
	table, number, err := added.readShards(ctx)
	if err != nil {
		return 0, err
	}
	current := m.table.Load()
	p := &part{Store: added, pg: pg, name: name, number: len(m.parts)}
	if table == nil {
		used, err := added.used(ctx)
		if err != nil {
			return 0, err
		}
		if used {
			return 0, fmt.Errorf("%w: %s has a frontier: add an empty database, and add its URLs with \"frontier export\" and \"frontier add\"", ErrShards, name)
		}
		next := *current
		next.Version, next.Databases = current.Version+1, len(m.parts)+1
		if err := p.enter(ctx, &next); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		if table, number, err = added.readShards(ctx); err != nil {
			return 0, err
		}
	}
	switch {
	case table.Frontier != current.Frontier:
		return 0, fmt.Errorf("%w: %s belongs to another frontier", ErrShards, name)
	case number < p.number:
		return number, nil
	case number > p.number:
		return 0, fmt.Errorf("%w: %s has number %d, and number %d is missing", ErrShards, name, number, p.number)
	}
	m.parts = append(m.parts, p)
	return number, m.write(ctx, table)
}

// spread stores a table in the databases that have an older one.
func (m *shards) spread(ctx context.Context, table *shardTable) error {
	text, err := json.Marshal(table)
	if err != nil {
		return err
	}
	for _, p := range m.parts {
		_, err := p.db.Update(ctx, "store the table of slots", `UPDATE settings SET value = ? WHERE name = '`+tableSetting+`' AND CAST(CAST(value AS jsonb) ->> 'version' AS BIGINT) < ?`,
			string(text), table.Version)
		if err != nil {
			return fmt.Errorf("database %d (%s): %w", p.number, p.name, err)
		}
	}
	return nil
}

// write stores the next table in all databases. Whoever finds different ones takes the newest, so it can be repeated.
func (m *mover) write(ctx context.Context, table *shardTable) error {
	if err := m.spread(ctx, table); err != nil {
		return err
	}
	text, err := json.Marshal(table)
	if err != nil {
		return err
	}
	for _, p := range m.parts { // another program may have been first
		stored, _, err := p.readShards(ctx)
		if err != nil {
			return fmt.Errorf("database %d (%s): %w", p.number, p.name, err)
		}
		if again, err := json.Marshal(stored); err != nil || string(again) != string(text) {
			return fmt.Errorf("%w: another program moves slots at the same time: let it end, and repeat the command", ErrShards)
		}
	}
	m.table.Store(table)
	return nil
}

// change stores the next version of the table.
func (m *mover) change(ctx context.Context, change func(*shardTable)) error {
	next := *m.table.Load()
	next.Version++
	next.Slots = slices.Clone(next.Slots)
	change(&next)
	return m.write(ctx, &next)
}

// moveAll finishes a move that was interrupted, and moves slots.
func (m *mover) moveAll(ctx context.Context, slots []int, to int) error {
	if err := m.index(ctx); err != nil {
		return err
	}
	table := m.table.Load()
	slots = slices.DeleteFunc(slices.Clone(slots), func(slot int) bool { return table.Slots[slot] == to })
	m.progress.Of = len(slots)
	if old := table.Moving; old != nil {
		m.progress.Of++
		if err := m.move(ctx, *old); err != nil {
			return err
		}
		slots = slices.DeleteFunc(slots, func(slot int) bool { return slot == old.Slot && old.To == to })
	}
	for _, slot := range slots {
		next := move{Slot: slot, From: m.table.Load().Slots[slot], To: to}
		if err := m.change(ctx, func(t *shardTable) { t.Moving = &next }); err != nil {
			return err
		}
		if err := m.move(ctx, next); err != nil {
			return fmt.Errorf("move slot %d from database %d to %d: %w", slot, next.From, to, err)
		}
	}
	return nil
}

// index makes the index of hosts by slots where it is missing. Programs can write meanwhile.
func (m *mover) index(ctx context.Context) error {
	for _, p := range m.parts {
		if _, err := p.db.ExecContext(ctx, `CREATE INDEX CONCURRENTLY IF NOT EXISTS hosts_slot ON hosts (frontier_slot(host))`); err != nil {
			return fmt.Errorf("database %d (%s): %w", p.number, p.name, err)
		}
	}
	return nil
}

// move moves a slot, from whatever step it has reached.
func (m *mover) move(ctx context.Context, v move) error {
	from, to := m.parts[v.From], m.parts[v.To]
	m.progress.Slot = v.Slot
	if !v.Done {
		if err := m.copySlot(ctx, from, to, v.Slot); err != nil {
			return err
		}
		err := m.change(ctx, func(t *shardTable) {
			t.Slots[v.Slot] = v.To
			t.Moving = &move{v.Slot, v.From, v.To, true}
		})
		if err != nil {
			return err
		}
	}
	if err := from.forgetGroups(ctx, v.Slot); err != nil {
		return err
	}
	if err := from.forget(ctx, v.Slot); err != nil {
		return err
	}
	m.progress.Slots++
	m.report(m.progress)
	return m.change(ctx, func(t *shardTable) { t.Moving = nil })
}

// forget deletes what has been copied from a slot.
func (p *part) forget(ctx context.Context, slot int) error {
	for more := true; more; {
		err := p.db.QueryRow(ctx, `SELECT frontier_forget_slot(?, ?)`, slot, moveURLs).Scan(&more)
		if err != nil {
			return fmt.Errorf("delete what has moved: %w", err)
		}
	}
	return nil
}

// copySlot closes a slot, copies its hosts as their leases end, and opens it at its new place.
func (m *mover) copySlot(ctx context.Context, from, to *part, slot int) error {
	opened, err := to.db.Bool(ctx, "read a slot", `SELECT COALESCE((SELECT open FROM slots WHERE slot = ?), FALSE)`, slot)
	if err != nil || opened { // it was interrupted after this
		return err
	}
	if _, err := from.db.Update(ctx, "close a slot", `UPDATE slots SET open = FALSE WHERE slot = ?`, slot); err != nil {
		return err
	}
	if _, err := to.db.Update(ctx, "make a slot", `INSERT INTO slots (slot, open) VALUES (?, FALSE) ON CONFLICT (slot) DO NOTHING`, slot); err != nil {
		return err
	}
	// What was taken away by a move that was interrupted has to be copied too.
	hosts, err := from.goneHosts(ctx, slot)
	if err == nil {
		err = m.copyHosts(ctx, from, to, hosts)
	}
	for err == nil {
		if hosts, err = from.takeAway(ctx, slot, &m.progress.Leased); err == nil {
			err = m.copyHosts(ctx, from, to, hosts)
		}
		m.report(m.progress)
		switch {
		case err != nil || len(hosts.names) > 0:
		case m.progress.Leased == 0:
			return m.openSlot(ctx, from, to, slot)
		default:
			err = m.wait(ctx, from)
		}
	}
	return err
}

// wait waits for leases to end, and takes expired ones back.
func (m *mover) wait(ctx context.Context, from *part) error {
	if _, err := from.Reap(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(movePause):
		return nil
	}
}

// takenHosts are hosts that were taken away: their rows as JSON, and their names.
type takenHosts struct {
	rows  string
	names []string
}

// takeAway takes some hosts of a slot away. leased becomes the number of those that have leases.
func (p *part) takeAway(ctx context.Context, slot int, leased *int64) (t takenHosts, err error) {
	var names string
	err = p.db.QueryRow(ctx, `SELECT COALESCE(hosts, '[]'), COALESCE(to_jsonb(names), '[]'), waiting FROM frontier_take_away(?, ?)`, slot, moveHosts).Scan(&t.rows, &names, leased)
	if err == nil {
		err = json.Unmarshal([]byte(names), &t.names)
	}
	if err != nil {
		return t, fmt.Errorf("take hosts away: %w", err)
	}
	return t, nil
}

// goneHosts returns the hosts of a slot that were taken away before.
func (p *part) goneHosts(ctx context.Context, slot int) (t takenHosts, err error) {
	var names string
	err = p.db.QueryRow(ctx, `SELECT COALESCE(jsonb_agg(to_jsonb(h) || jsonb_build_object('host', substr(h.host, 6))), '[]'), COALESCE(jsonb_agg(substr(h.host, 6)), '[]')
		FROM hosts h WHERE frontier_slot(h.host) = ? AND h.host LIKE 'gone %'`, slot).Scan(&t.rows, &names)
	if err == nil {
		err = json.Unmarshal([]byte(names), &t.names)
	}
	if err != nil {
		return t, fmt.Errorf("read the hosts that were taken away: %w", err)
	}
	return t, nil
}

// copyHosts copies hosts with their URLs and robots.txt.
func (m *mover) copyHosts(ctx context.Context, from, to *part, hosts takenHosts) error {
	if len(hosts.names) == 0 {
		return nil
	}
	if _, err := to.db.ExecContext(ctx, `SELECT frontier_settle_hosts($1)`, hosts.rows); err != nil {
		return fmt.Errorf("copy hosts: %w", err)
	}
	var gone []string
	for _, name := range hosts.names {
		gone = append(gone, "gone "+name)
	}
	names, err := toJSON(gone)
	if err != nil {
		return err
	}
	for after := int64(0); ; {
		var rows string
		var n, copied int64
		err := from.db.QueryRow(ctx, `SELECT COALESCE(jsonb_agg(to_jsonb(u)), '[]'), count(*), COALESCE(max(u.id), 0) FROM (
				SELECT u.*, substr(h.host, 6) AS host FROM urls u JOIN hosts h ON h.id = u.host_id WHERE h.host {among} AND u.id > ? ORDER BY u.id LIMIT ?) AS u`,
			names, after, moveURLs).Scan(&rows, &n, &after)
		if err == nil && n > 0 {
			err = to.db.QueryRow(ctx, `SELECT frontier_settle_urls(?)`, rows).Scan(&copied)
		}
		if err != nil {
			return fmt.Errorf("copy URLs: %w", err)
		}
		if m.progress.URLs += copied; n < moveURLs {
			break
		}
		m.report(m.progress)
	}
	var origins []string
	for _, name := range hosts.names {
		origins = append(origins, "http://"+name, "https://"+name)
	}
	for some := range slices.Chunk(origins, 8) { // a robots.txt has up to 512 KiB
		if err := copyRobots(ctx, from, to, some); err != nil {
			return fmt.Errorf("copy robots.txt: %w", err)
		}
	}
	return nil
}

func copyRobots(ctx context.Context, from, to *part, origins []string) error {
	list, err := toJSON(origins)
	if err != nil {
		return err
	}
	var rows string
	err = from.db.QueryRow(ctx, `SELECT COALESCE(jsonb_agg(to_jsonb(r)), '[]') FROM robots r WHERE r.origin {among}`, list).Scan(&rows)
	if err != nil || rows == "[]" {
		return err
	}
	_, err = to.db.ExecContext(ctx, `INSERT INTO robots SELECT * FROM jsonb_populate_recordset(NULL::robots, $1) ON CONFLICT (origin) DO NOTHING`, rows)
	return err
}

// openSlot checks that everything was copied, and opens the slot at its new place.
func (m *mover) openSlot(ctx context.Context, from, to *part, slot int) error {
	if err := copyGroups(ctx, from, to, slot); err != nil {
		return err
	}
	var counts [2][2]int64
	for i, p := range []*part{from, to} {
		err := p.db.QueryRow(ctx, `SELECT count(DISTINCT h.id), count(u.id) FROM hosts h LEFT JOIN urls u ON u.host_id = h.id WHERE frontier_slot(h.host) = ? AND h.moving`, slot).
			Scan(&counts[i][0], &counts[i][1])
		if err != nil {
			return fmt.Errorf("compare the copy: %w", err)
		}
	}
	if counts[0] != counts[1] {
		return fmt.Errorf("slot %d has %d hosts and %d URLs in database %d, and %d and %d in the copy: nothing was deleted", slot,
			counts[0][0], counts[0][1], from.number, counts[1][0], counts[1][1])
	}
	// One statement, so that no host is claimed before the slot is open.
	_, err := to.db.ExecContext(ctx, `WITH opened AS (UPDATE slots SET open = TRUE WHERE slot = $1 RETURNING slot)
		UPDATE hosts h SET moving = FALSE, due_at = GREATEST(h.next_at, h.blocked_until) FROM opened o WHERE frontier_slot(h.host) = o.slot AND h.moving`, slot)
	if err != nil {
		return fmt.Errorf("open a slot: %w", err)
	}
	return nil
}

// refresh reads the table of slots again, and writes the newest to databases that lack it. The error is [ErrShards] if the
// frontier has databases that this program does not know.
func (m *shards) refresh(ctx context.Context) error {
	newest := m.table.Load()
	for _, p := range m.parts {
		var table *shardTable
		err := p.do(ctx, true, func(ctx context.Context) (err error) {
			table, _, err = p.readShards(ctx)
			return err
		})
		switch {
		case errors.Is(err, ErrUnreachable):
		case err != nil:
			return err
		case table == nil || table.Frontier != newest.Frontier:
			return fmt.Errorf("%w: database %d (%s) has another frontier, or none", ErrShards, p.number, p.name)
		case table.Version > newest.Version:
			newest = table
		}
	}
	if newest.Databases != len(m.parts) {
		return fmt.Errorf("%w: the frontier has %d databases now, and this program knows %d: start it again with all of them (--db)", ErrShards, newest.Databases, len(m.parts))
	}
	m.table.Store(newest)
	return nil
}

// Shard is a database of a frontier in many.
type Shard struct {
	Number  int
	Name    string // its address without secrets
	Slots   int
	URLs    int64 // an estimate
	Waiting int64 // parcels for other databases
	Err     error // why it could not be read; nil if it could
}

// Shards returns the databases by number, and the slot that moves or -1.
func (s *Store) Shards(ctx context.Context) (all []Shard, moving int, err error) {
	if s.many == nil {
		return nil, -1, fmt.Errorf("%w: this frontier has one database", ErrShards)
	}
	table := s.many.table.Load()
	moving = -1
	if table.Moving != nil {
		moving = table.Moving.Slot
	}
	for _, p := range s.many.parts {
		one := Shard{Number: p.number, Name: p.name}
		for _, number := range table.Slots {
			if number == p.number {
				one.Slots++
			}
		}
		one.Err = p.do(ctx, false, func(ctx context.Context) error {
			return p.db.QueryRow(ctx, `SELECT GREATEST(0, (SELECT reltuples FROM pg_class WHERE oid = to_regclass('urls')))::bigint, (SELECT count(*) FROM parcels)`).Scan(&one.URLs, &one.Waiting)
		})
		all = append(all, one)
	}
	return all, moving, nil
}

// SlotsOf returns the slots of a database, in their order.
func (s *Store) SlotsOf(number int) (slots []int) {
	if s.many == nil {
		return nil
	}
	for slot, of := range s.many.table.Load().Slots {
		if of == number {
			slots = append(slots, slot)
		}
	}
	return slots
}

// slotList writes numbers for SQL.
func slotList(slots []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(slots)), ","), "[]")
}
