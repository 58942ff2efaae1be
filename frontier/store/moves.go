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
// Each host is taken away when its last lease has ended, and its URLs are copied. What delays or blocks it meanwhile, or
// changes its settings, changes the row that was taken away. When all are, the hosts themselves are copied, and the slot
// is open in the other database. Then what was copied is deleted. Every step can be repeated: a copy keeps the URLs that
// are there, and nothing changes a host between its copy and its deletion, because it has lost its name.
//
// Each step ends without effect if another program moves slots since, see [mover.alone].
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
	report   func(Progress)
	progress Progress
}

const (
	// moveHosts and moveURLs are how many rows a step of a move copies.
	moveHosts = 100
	moveURLs  = 1000
	// moveBytes is how long the rows may be, about.
	moveBytes = 4 << 20
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
	m, err := s.moverOf(report)
	if err == nil {
		err = m.alone(ctx, func(ctx context.Context) error {
			number, err := m.addDatabase(ctx, added, redacted(dsn))
			if err != nil {
				return err
			}
			table := m.table.Load()
			var slots []int
			for slot, to := range fillSlots(table.Databases) {
				if to == number && table.Slots[slot] != number {
					slots = append(slots, slot)
				}
			}
			return m.moveAll(ctx, slots, number)
		})
	}
	return errors.Join(err, added.Close())
}

// MoveSlots moves slots to a database, while workers run. Without slots it only finishes what was interrupted.
func (s *Store) MoveSlots(ctx context.Context, slots []int, to int, report func(Progress)) error {
	m, err := s.moverOf(report)
	if err != nil {
		return err
	}
	if to < 0 || to >= len(m.parts) {
		return fmt.Errorf("%w: there is no database %d", ErrShards, to)
	}
	return m.alone(ctx, func(ctx context.Context) error { return m.moveAll(ctx, slots, to) })
}

// moverOf returns a mover of a frontier, for [mover.alone].
func (s *Store) moverOf(report func(Progress)) (*mover, error) {
	if report == nil {
		report = func(Progress) {}
	}
	if s.many != nil {
		return &mover{shards: &shards{parts: slices.Clone(s.many.parts)}, report: report}, nil
	}
	pg, ok := s.kind.(*postgresDB)
	if !ok {
		return nil, fmt.Errorf("%w: a SQLite file cannot be one of many databases: export its URLs, and add them to a new frontier", ErrShards)
	}
	return &mover{shards: &shards{parts: []*part{{Store: s, pg: pg, name: "the first"}}}, report: report}, nil
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
	if err := m.fence(ctx, p); err != nil {
		return 0, err
	}
	return number, m.write(ctx, table)
}

// spread stores a table in the databases that have an older one.
func (m *shards) spread(ctx context.Context, table *shardTable) error {
	text, err := json.Marshal(table)
	if err != nil {
		return err
	}
	for _, p := range m.parts {
		_, err := p.db.Update(ctx, "store the table of slots", `UPDATE settings SET value = ? WHERE name = '`+tableSetting+`' AND CAST(CAST(value AS jsonb) ->> 'version' AS BIGINT) < ? AND frontier_fence(?)`,
			string(text), table.Version, m.mover)
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
			return errMover
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
		broken, err := p.db.Bool(ctx, "look at an index", `SELECT EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass('hosts_slot') AND NOT indisvalid)`)
		if err == nil && broken { // its creation was interrupted
			_, err = p.db.ExecContext(ctx, `DROP INDEX CONCURRENTLY hosts_slot`)
		}
		if err != nil {
			return fmt.Errorf("database %d (%s): %w", p.number, p.name, err)
		}
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
	if err := m.forgetGroups(ctx, from, v.Slot); err != nil {
		return err
	}
	if err := from.forget(ctx, m.mover, v.Slot); err != nil {
		return err
	}
	m.progress.Slots++
	m.report(m.progress)
	return m.change(ctx, func(t *shardTable) { t.Moving = nil })
}

// forget deletes what has been copied from a slot.
func (p *part) forget(ctx context.Context, mover int64, slot int) error {
	for more := true; more; {
		err := p.db.QueryRow(ctx, `SELECT frontier_forget_slot(?, ?, ?)`, mover, slot, moveURLs).Scan(&more)
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
	if err := m.closeSlot(ctx, from, to, slot); err != nil {
		return err
	}
	// What was taken away by a move that was interrupted has to be copied too.
	err = m.eachGone(ctx, from, slot, func(names []string) error { return m.copyHosts(ctx, from, to, names) })
	for err == nil {
		var names []string
		if names, err = m.takeAway(ctx, from, slot); err == nil {
			err = m.copyHosts(ctx, from, to, names)
		}
		m.report(m.progress)
		switch {
		case err != nil || len(names) > 0:
		case m.progress.Leased == 0:
			if err = m.handOver(ctx, from, to, slot); err == nil {
				return m.openSlot(ctx, from, to, slot)
			}
		default:
			err = m.wait(ctx, from)
		}
	}
	return err
}

// closeSlot keeps hosts from being added to a slot.
func (m *mover) closeSlot(ctx context.Context, from, to *part, slot int) error {
	_, err := from.db.Update(ctx, "close a slot", `UPDATE slots SET open = FALSE, leaving = TRUE WHERE slot = ? AND open AND frontier_fence(?)`, slot, m.mover)
	if err == nil {
		_, err = to.db.Update(ctx, "make a slot", `INSERT INTO slots (slot, open) SELECT ?, FALSE WHERE frontier_fence(?) ON CONFLICT (slot) DO NOTHING`, slot, m.mover)
	}
	return err
}

// handOver copies the hosts of a slot as they are now, which nothing changes any more.
func (m *mover) handOver(ctx context.Context, from, to *part, slot int) error {
	if _, err := from.db.Update(ctx, "hand a slot over", `UPDATE slots SET leaving = FALSE WHERE slot = ? AND frontier_fence(?)`, slot, m.mover); err != nil {
		return err
	}
	for n := int64(moveURLs); n > 0; {
		var err error
		n, err = from.db.Update(ctx, "hand hosts over", `UPDATE hosts SET host = 'left ' || substr(host, 6)
			WHERE id IN (SELECT id FROM hosts WHERE frontier_slot(host) = ? AND host LIKE 'gone %' LIMIT ?) AND (SELECT frontier_fence(?))`, slot, moveURLs, m.mover)
		if err != nil {
			return err
		}
	}
	return m.eachGone(ctx, from, slot, func(names []string) error { return m.settleHosts(ctx, from, to, names) })
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

// takeAway takes some hosts of a slot away, and returns their names.
func (m *mover) takeAway(ctx context.Context, from *part, slot int) (names []string, err error) {
	var list string
	err = from.db.QueryRow(ctx, `SELECT COALESCE(to_jsonb(names), '[]'), waiting FROM frontier_take_away(?, ?, ?)`, m.mover, slot, moveHosts).Scan(&list, &m.progress.Leased)
	if err == nil {
		err = json.Unmarshal([]byte(list), &names)
	}
	if err != nil {
		return nil, fmt.Errorf("take hosts away: %w", err)
	}
	return names, nil
}

// eachGone calls f with the names of the hosts of a slot that were taken away, some at once.
func (m *mover) eachGone(ctx context.Context, from *part, slot int, f func(names []string) error) error {
	type row struct {
		id   int64
		name string
	}
	for after := int64(0); ; {
		rows, err := from.db.Query(ctx, `SELECT id, substr(host, 6) FROM hosts WHERE frontier_slot(host) = ? AND host LIKE '% %' AND id > ? ORDER BY id LIMIT ?`, slot, after, moveHosts)
		some, err := collect(rows, err, func(r *row) []any { return []any{&r.id, &r.name} })
		if err != nil {
			return fmt.Errorf("read the hosts that were taken away: %w", err)
		}
		var names []string
		for _, r := range some {
			after, names = r.id, append(names, r.name)
		}
		if len(names) > 0 {
			err = f(names)
		}
		if err != nil || len(names) < moveHosts {
			return err
		}
	}
}

// takenNames returns the names that hosts may have that were taken away, as JSON.
func takenNames(names []string) (string, error) {
	var taken []string
	for _, name := range names {
		taken = append(taken, "gone "+name, "left "+name)
	}
	return toJSON(taken)
}

// settleHosts copies the rows of hosts that were taken away.
func (m *mover) settleHosts(ctx context.Context, from, to *part, names []string) error {
	list, err := takenNames(names)
	if err != nil {
		return err
	}
	var rows string
	err = from.db.QueryRow(ctx, `SELECT COALESCE(jsonb_agg(to_jsonb(h) || jsonb_build_object('host', substr(h.host, 6))), '[]') FROM hosts h WHERE h.host {among}`, list).Scan(&rows)
	if err == nil {
		_, err = to.db.ExecContext(ctx, `SELECT frontier_settle_hosts($1, $2)`, m.mover, rows)
	}
	if err != nil {
		return fmt.Errorf("copy hosts: %w", err)
	}
	return nil
}

// copyHosts copies hosts with their URLs and robots.txt.
func (m *mover) copyHosts(ctx context.Context, from, to *part, names []string) error {
	if len(names) == 0 {
		return nil
	}
	if err := m.settleHosts(ctx, from, to, names); err != nil {
		return err
	}
	if err := m.copyURLs(ctx, from, to, names); err != nil {
		return fmt.Errorf("copy URLs: %w", err)
	}
	var origins []string
	for _, name := range names {
		origins = append(origins, "http://"+name, "https://"+name)
	}
	for some := range slices.Chunk(origins, 8) { // a robots.txt has up to 512 KiB
		if err := m.copyRobots(ctx, from, to, some); err != nil {
			return fmt.Errorf("copy robots.txt: %w", err)
		}
	}
	return nil
}

// copyURLs copies the URLs of hosts. It reads them once, because pages in the order of ids would sort all URLs of the
// hosts for each, and it holds no more than one page.
func (m *mover) copyURLs(ctx context.Context, from, to *part, names []string) (err error) {
	list, err := takenNames(names)
	if err != nil {
		return err
	}
	rows, err := from.db.Query(ctx, `SELECT to_jsonb(u) || jsonb_build_object('host', substr(h.host, 6)) FROM urls u JOIN hosts h ON h.id = u.host_id WHERE h.host {among}`, list)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var page []json.RawMessage
	size := 0
	settle := func() error {
		text, err := toJSON(page)
		var copied int64
		if err == nil {
			err = to.db.QueryRow(ctx, `SELECT frontier_settle_urls(?, ?)`, m.mover, text).Scan(&copied)
		}
		m.progress.URLs += copied
		page, size = page[:0], 0
		return err
	}
	for rows.Next() {
		var one []byte
		if err := rows.Scan(&one); err != nil {
			return err
		}
		page, size = append(page, one), size+len(one)
		if len(page) < moveURLs && size < moveBytes {
			continue
		}
		if err := settle(); err != nil {
			return err
		}
		m.report(m.progress)
	}
	if err := rows.Err(); err != nil || len(page) == 0 {
		return err
	}
	return settle()
}

func (m *mover) copyRobots(ctx context.Context, from, to *part, origins []string) error {
	list, err := toJSON(origins)
	if err != nil {
		return err
	}
	var rows string
	err = from.db.QueryRow(ctx, `SELECT COALESCE(jsonb_agg(to_jsonb(r)), '[]') FROM robots r WHERE r.origin {among}`, list).Scan(&rows)
	if err != nil || rows == "[]" {
		return err
	}
	_, err = to.db.ExecContext(ctx, `INSERT INTO robots SELECT r.* FROM jsonb_populate_recordset(NULL::robots, $1) AS r WHERE (SELECT frontier_fence($2)) ON CONFLICT (origin) DO NOTHING`, rows, m.mover)
	return err
}

// openSlot checks that everything was copied, and opens the slot at its new place.
func (m *mover) openSlot(ctx context.Context, from, to *part, slot int) error {
	if err := m.copyGroups(ctx, from, to, slot); err != nil {
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
	// One statement, so that no host is found before the slot is open.
	_, err := to.db.ExecContext(ctx, `WITH opened AS (UPDATE slots SET open = TRUE WHERE slot = $1 AND frontier_fence($2) RETURNING slot)
		UPDATE hosts h SET host = substr(h.host, 5), moving = FALSE, due_at = GREATEST(h.next_at, h.blocked_until) FROM opened o WHERE frontier_slot(h.host) = o.slot AND h.moving`, slot, m.mover)
	if err != nil {
		return fmt.Errorf("open a slot: %w", err)
	}
	return nil
}

// refresh reads the table of slots again. The error is [ErrShards] if the frontier has databases that this program does not
// know.
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
	for old := m.table.Load(); newest.Version > old.Version && !m.table.CompareAndSwap(old, newest); {
		old = m.table.Load() // another call has stored one
	}
	return nil
}

// Shard is a database of a frontier in many.
type Shard struct {
	Number  int
	Name    string // its address without secrets
	Slots   int
	URLs    int64 // an estimate
	Waiting int64 // parcels for other databases
	Stuck   int64 // those of them that were refused for long
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
			return p.db.QueryRow(ctx, `SELECT GREATEST(0, (SELECT reltuples FROM pg_class WHERE oid = to_regclass('urls')))::bigint, n, stuck FROM (SELECT count(*) AS n, count(*) FILTER (WHERE stuck) AS stuck FROM parcels) AS p`).Scan(&one.URLs, &one.Waiting, &one.Stuck)
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
