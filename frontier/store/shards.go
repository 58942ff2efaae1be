package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fetchd/frontier/store/database"
)

var (
	// ErrShards means that the databases that were given are not those of one frontier, or not all of them.
	ErrShards = errors.New("these are not the databases of one frontier")
	// ErrUnreachable means that a database of a frontier in many cannot be reached, or that the slot of a host
	// moves. The others go on.
	ErrUnreachable = errors.New("the database cannot be reached")
)

// shardTable says which database has which slot. Each database of a frontier stores the same.
type shardTable struct {
	// Version is higher after each change.
	Version int64 `json:"version"`
	// Frontier is the name of the frontier, which is random.
	Frontier string `json:"frontier"`
	// Databases is how many there are. Their numbers start at 0.
	Databases int `json:"databases"`
	// Slots has the number of the database of each slot.
	Slots []int `json:"slots"`
	// Moving is the slot that moves, if one does.
	Moving *move `json:"moving,omitempty"`
	// Ready means that every database has the table. Before that, databases without one may join.
	Ready bool `json:"ready"`
}

// MaxDatabases is the maximum number of databases of a frontier: ids and tokens have ten bits for the number of theirs.
const MaxDatabases = 1 << 10

// firstID returns the lowest id of a row that a database with this number makes. Ids stay below 2^53, which JSON
// numbers carry.
func firstID(number int) int64 { return int64(number)<<43 | 1 }

// shards are the databases of a frontier in many of them.
type shards struct {
	parts []*part // by number
	table atomic.Pointer[shardTable]
	next  atomic.Uint64 // whose turn it is to give claims
	// changed receives a value when a database has said that it does not have a host.
	changed chan struct{}
	mover   int64                 // the number of this program while it moves slots; 0 otherwise
	foreign atomic.Pointer[error] // why this program must end: the databases are not those that it knows
}

// part is one of the databases.
type part struct {
	*Store
	pg      *postgresDB // of Store
	number  int
	changed chan<- struct{} // of shards
	name    string          // its address without secrets
	dsn     string          // its address

	mu         sync.Mutex
	failed     bool            // it could not be reached, and has not answered since
	claiming   bool            // a claim has not been answered yet
	took       time.Duration   // of the last claim that was answered
	reaping    atomic.Bool     // likewise
	recrawling atomic.Bool     // likewise
	sending    atomic.Bool     // likewise
	sweeping   atomic.Bool     // likewise
	refreshing atomic.Bool     // likewise
	using      atomic.Bool     // likewise
	open       context.Context // ends with Close
	shut       context.CancelFunc
	late       sync.WaitGroup // what may outlive its call
	urls       int64          // the number of its URLs when it was counted last
	counted    time.Time
	use        Use // that it has returned last
}

// openMany opens a frontier in many databases.
func openMany(ctx context.Context, dsns []string, config Config) (*Store, error) {
	if len(dsns) > MaxDatabases {
		return nil, fmt.Errorf("%d databases are more than %d", len(dsns), MaxDatabases)
	}
	opened := make([]*part, len(dsns))
	errs := make([]error, len(dsns))
	var wait sync.WaitGroup
	for i, dsn := range dsns {
		wait.Go(func() {
			p := &part{name: redacted(dsn), dsn: dsn}
			p.open, p.shut = context.WithCancel(context.WithoutCancel(ctx))
			if p.Store, errs[i] = openOne(ctx, dsn, config); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", p.name, errs[i])
			}
			if errs[i] == nil {
				if p.pg, _ = p.kind.(*postgresDB); p.pg != nil {
					p.pg.part = true
				} else {
					errs[i] = fmt.Errorf("%w: one of them is a SQLite file: give each as postgres://USER@HOST/NAME", ErrShards)
				}
			}
			opened[i] = p
		})
	}
	wait.Wait()
	// Programs that make a frontier of the same databases at once must begin with the same one.
	order := make([]int, len(opened))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(opened[a].name, opened[b].name) })
	parts, failed := make([]*part, len(opened)), make([]error, len(opened))
	for i, from := range order {
		parts[i], failed[i] = opened[from], errs[from]
	}
	s, err := join(ctx, parts, failed, config)
	for range joinTries {
		if !errors.Is(err, errAtOnce) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(joinPause):
		}
		s, err = join(ctx, parts, failed, config)
	}
	if err != nil {
		for _, p := range opened {
			p.shut()
			if p.Store != nil {
				err = errors.Join(err, p.Close())
			}
		}
		return nil, err
	}
	return s, nil
}

// errAtOnce means that another program has made the frontier in the meantime, or still makes it.
var errAtOnce = errors.New("another program makes a frontier")

const (
	joinTries = 50
	joinPause = 100 * time.Millisecond
)

// redacted returns a name for a database that has no password.
func redacted(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return "a database"
	}
	return u.Host + u.Path
}

// join makes one frontier of databases that are open. errs has an error for each that is not. To read, some may be
// missing.
func join(ctx context.Context, opened []*part, errs []error, config Config) (*Store, error) {
	fatal := func(err error) bool { return err != nil && !(config.ReadOnly && isUnreachable(err)) }
	failed := errors.Join(errs...)
	if slices.ContainsFunc(errs, fatal) {
		return nil, failed
	}
	tables, newest, err := readTables(ctx, opened, errs)
	var table *shardTable
	switch {
	case err != nil:
		return nil, err
	case newest >= 0:
		table = tables[newest]
	case failed != nil:
		return nil, failed
	case config.ReadOnly:
		return nil, fmt.Errorf("%w: %s has no table of slots", ErrShards, opened[0].name)
	default:
		table, newest = newShardTable(len(opened)), 0
	}
	byNumber, err := inOrder(opened, errs, tables, table, opened[newest].name)
	if err == nil && !table.Ready {
		err = create(ctx, opened, tables, byNumber, table)
	}
	if err != nil {
		return nil, err
	}
	for i, p := range opened {
		if errs[i] == nil {
			continue
		}
		// Which one it is is not known. With one, it is the number that is missing.
		p.number = slices.Index(byNumber, nil)
		byNumber[p.number] = p
		if err := p.openUnreachable(errs[i], config); err != nil {
			return nil, err
		}
	}
	m := &shards{parts: byNumber, changed: make(chan struct{}, 1)}
	m.table.Store(table)
	if config.Repair {
		if err := (&mover{shards: m}).alone(ctx, m.repair); err != nil {
			return nil, err
		}
	}
	if err := m.checkOwners(ctx); err != nil {
		return nil, err
	}
	if !config.ReadOnly {
		if err := m.spread(ctx, m.table.Load()); err != nil { // a change of the table was interrupted
			return nil, err
		}
		m.watch()
	}
	s := &Store{core: &core{delayMS: millis(config.Delay)}, many: m, Queue: (*manyQueue)(m)}
	for _, p := range byNumber {
		p.whole, p.changed = s, m.changed
	}
	return s, nil
}

// ownerTries is how often a program that opens the frontier looks for a slot that is in the wrong database.
const ownerTries = 10

// checkOwners checks that each slot is in the database that has it by the table, and in no other. A database that was
// restored from a backup has slots that have moved away since, or lacks some that have come. While slots move, the table
// may be older than the slots. So a slot is wrong if it was each time.
func (m *shards) checkOwners(ctx context.Context) error {
	wrong, err := m.wrongSlots(ctx)
	for range ownerTries {
		if err != nil || len(wrong) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(joinPause):
		}
		if err := m.refresh(ctx); err != nil {
			return err
		}
		var again map[int]*part
		again, err = m.wrongSlots(ctx)
		maps.DeleteFunc(wrong, func(slot int, _ *part) bool { return again[slot] == nil })
	}
	table := m.table.Load()
	for slot, p := range wrong {
		return fmt.Errorf("%w: slot %d is in database %d by version %d of the table, and database %d (%s) disagrees: it was restored from a backup: repair it with \"frontier shards repair\"",
			ErrShards, slot, table.Slots[slot], table.Version, p.number, p.name)
	}
	return err
}

// wrongSlots returns the slots about which a database disagrees with the table, and the database.
func (m *shards) wrongSlots(ctx context.Context) (map[int]*part, error) {
	table := m.table.Load()
	wrong := map[int]*part{}
	for _, p := range m.parts {
		if !p.reachable() {
			continue
		}
		has, err := p.slots(ctx, `SELECT slot FROM slots`)
		if err != nil {
			return nil, fmt.Errorf("database %d (%s): %w", p.number, p.name, err)
		}
		for slot, number := range table.Slots {
			if has[slot] != (number == p.number) && (table.Moving == nil || table.Moving.Slot != slot) {
				wrong[slot] = p
			}
		}
	}
	return wrong, nil
}

// slots returns for each slot whether a query has it.
func (p *part) slots(ctx context.Context, query string) (has [slotCount]bool, err error) {
	rows, err := p.db.Query(ctx, query)
	some, err := collect(rows, err, func(slot *int) []any { return []any{slot} })
	if err != nil {
		return has, fmt.Errorf("read the slots: %w", err)
	}
	for _, slot := range some {
		has[slot] = true
	}
	return has, nil
}

// repair makes each database have the slots that the table gives it. Only one program moves slots or repairs at once, and
// has read the newest table since.
func (m *shards) repair(ctx context.Context) error {
	table := m.table.Load()
	for _, p := range m.parts {
		for slot, number := range table.Slots {
			if table.Moving != nil && table.Moving.Slot == slot {
				continue
			}
			var err error
			if number == p.number {
				_, err = p.db.Update(ctx, "repair a slot", `INSERT INTO slots (slot) SELECT ? WHERE frontier_fence(?) ON CONFLICT (slot) DO UPDATE SET open = TRUE, leaving = FALSE`, slot, m.mover)
			} else {
				_, err = p.db.Update(ctx, "repair a slot", `WITH closed AS (UPDATE slots SET open = FALSE, leaving = FALSE WHERE slot = ? AND frontier_fence(?) RETURNING slot)
					UPDATE hosts h SET host = 'gone ' || h.host FROM closed c WHERE frontier_slot(h.host) = c.slot AND h.host NOT LIKE '% %'`, slot, m.mover)
				if err == nil {
					err = p.forget(ctx, m.mover, slot)
				}
			}
			if err != nil {
				return fmt.Errorf("database %d (%s): %w", p.number, p.name, err)
			}
		}
		if _, err := p.db.ExecContext(ctx, skipIDs, idGap); err != nil {
			return fmt.Errorf("database %d (%s): skip ids: %w", p.number, p.name, err)
		}
	}
	return m.spread(ctx, table)
}

// A database that was restored does not know which ids it has given since the backup. They may be in use elsewhere. So it
// continues with ids that are higher by idGap, of 2^43.
const (
	skipIDs = `SELECT setval(s, nextval(s) + $1) FROM unnest(ARRAY [pg_get_serial_sequence('urls', 'id'), pg_get_serial_sequence('fetches', 'id')]) AS s`
	idGap   = int64(1) << 32
)

// refreshEvery is how often a program that may write reads the table of slots.
const refreshEvery = time.Second

// watch reads the table of slots until Close.
func (m *shards) watch() {
	first := m.parts[0]
	first.late.Go(func() {
		tick := time.NewTicker(refreshEvery)
		defer tick.Stop()
		for {
			select {
			case <-first.open.Done():
				return
			case <-m.changed:
			case <-tick.C:
			}
			if err := m.refresh(first.open); errors.Is(err, ErrShards) {
				m.foreign.Store(&err)
				return
			}
		}
	})
}

// readTables reads the tables and numbers of the databases that are open. newest is the place of the table with the
// highest version, or -1 if there is none.
func readTables(ctx context.Context, opened []*part, errs []error) (tables []*shardTable, newest int, err error) {
	tables, newest = make([]*shardTable, len(opened)), -1
	for i, p := range opened {
		if errs[i] != nil {
			continue
		}
		if tables[i], p.number, err = p.readShards(ctx); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", p.name, err)
		}
		if t := tables[i]; t != nil && (newest < 0 || t.Version > tables[newest].Version) {
			newest = i
		}
	}
	return tables, newest, nil
}

// inOrder returns the databases by their numbers. Those that cannot be reached, or have no table yet, are nil. from is the
// name of the database that table is from.
func inOrder(opened []*part, errs []error, tables []*shardTable, table *shardTable, from string) ([]*part, error) {
	byNumber := make([]*part, table.Databases)
	for i, p := range opened {
		if errs[i] != nil {
			continue
		}
		switch t := tables[i]; {
		case t == nil && table.Ready:
			return nil, fmt.Errorf("%w: %s has no table of slots, but %s has: it is another database, or a new one in the place of one that is lost", ErrShards, p.name, from)
		case t == nil:
			continue
		case t.Frontier != table.Frontier:
			return nil, fmt.Errorf("%w: %s and %s belong to different frontiers", ErrShards, p.name, from)
		case p.number >= table.Databases || byNumber[p.number] != nil:
			return nil, fmt.Errorf("%w: %s has number %d of %d, as another one", ErrShards, p.name, p.number, table.Databases)
		}
		byNumber[p.number] = p
	}
	if len(opened) != table.Databases {
		return nil, fmt.Errorf("%w: the frontier of %s has %d databases, and --db names %d: %s", ErrShards, from, table.Databases, len(opened), missing(byNumber))
	}
	return byNumber, nil
}

func missing(parts []*part) string {
	var numbers []string
	for number, p := range parts {
		if p == nil {
			numbers = append(numbers, fmt.Sprint(number))
		}
	}
	if len(numbers) == 0 {
		return "name each of them once"
	}
	return "number " + strings.Join(numbers, ", ") + " is missing"
}

func newShardTable(databases int) *shardTable {
	return &shardTable{Version: 1, Frontier: rand.Text(), Databases: databases, Slots: fillSlots(databases)}
}

// create stores the first table in each database that has none yet, and then that it is ready. It can be repeated,
// also by several programs at once.
func create(ctx context.Context, opened []*part, tables []*shardTable, byNumber []*part, table *shardTable) error {
	for i, p := range opened {
		if tables[i] != nil {
			continue
		}
		used, err := p.used(ctx)
		if err != nil {
			return err
		}
		if used {
			return fmt.Errorf("%w: %s is a frontier of one database: add others to it with \"frontier shards add\"", ErrShards, p.name)
		}
	}
	for i, p := range opened {
		if tables[i] != nil {
			continue
		}
		p.number = slices.Index(byNumber, nil)
		if err := p.enter(ctx, table); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		stored, number, err := p.readShards(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", p.name, err)
		case stored == nil || stored.Frontier != table.Frontier || number != p.number:
			return fmt.Errorf("%w of %s", errAtOnce, p.name)
		}
		byNumber[p.number] = p
	}
	table.Ready = true
	for _, p := range byNumber {
		if err := p.writeTable(ctx, table); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// used reports whether the database has a frontier already.
func (s *core) used(ctx context.Context) (bool, error) {
	return s.db.Bool(ctx, "look for hosts", `SELECT EXISTS (SELECT 1 FROM hosts)`)
}

// enter makes this database one of many, with its number. It does nothing to one that is one already.
func (p *part) enter(ctx context.Context, table *shardTable) error {
	text, err := json.Marshal(table)
	if err != nil {
		return err
	}
	var own []int
	for slot, number := range table.Slots {
		if number == p.number {
			own = append(own, slot)
		}
	}
	// One transaction. The insert of the number fails if another program was first. Programs that use the database lock rows of
	// both tables, in either order.
	_, err = p.db.ExecContext(ctx, fmt.Sprintf(`DO $do$ BEGIN
		PERFORM set_config('lock_timeout', '200ms', TRUE);
		LOOP
			BEGIN
				LOCK TABLE hosts, settings IN SHARE ROW EXCLUSIVE MODE;
				EXIT;
			EXCEPTION WHEN lock_not_available THEN
				PERFORM pg_sleep(0.05);
			END;
		END LOOP;
		IF EXISTS (SELECT 1 FROM settings WHERE name = '%[1]s') THEN
			RETURN;
		END IF;
		INSERT INTO settings (name, value) VALUES ('%[1]s', $json$%[2]s$json$), ('%[3]s', '%[4]d');
		INSERT INTO slots (slot) SELECT unnest(ARRAY [%[5]s]::int[]);
		CREATE OR REPLACE FUNCTION frontier_shard() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT %[4]d::bigint';
		PERFORM setval(pg_get_serial_sequence('urls', 'id'), GREATEST(%[6]d, (SELECT last_value FROM pg_sequences WHERE schemaname = current_schema() AND sequencename = 'urls_id_seq') + 1), FALSE);
		PERFORM setval(pg_get_serial_sequence('fetches', 'id'), GREATEST(%[6]d, (SELECT last_value FROM pg_sequences WHERE schemaname = current_schema() AND sequencename = 'fetches_id_seq') + 1), FALSE);
		CREATE TRIGGER own_host BEFORE INSERT ON hosts FOR EACH ROW EXECUTE FUNCTION frontier_own_host();
	END $do$`, tableSetting, text, numberSetting, p.number, slotList(own), firstID(p.number)))
	if err != nil {
		return fmt.Errorf("make the database one of many: %w", err)
	}
	return nil
}

// The names of the settings with the table of slots, and with the number of this database.
const (
	tableSetting  = "shards"
	numberSetting = "shard"
)

func (p *part) writeTable(ctx context.Context, table *shardTable) error {
	text, err := json.Marshal(table)
	if err != nil {
		return err
	}
	_, err = p.db.Update(ctx, "store the table of slots", `UPDATE settings SET value = ? WHERE name = '`+tableSetting+`'`, string(text))
	return err
}

// openUnreachable makes a database of one that could not be opened. All that it does fails with the same error.
func (p *part) openUnreachable(cause error, config Config) error {
	d, err := databaseConfig(config, "postgres", postgresWords)
	if err != nil {
		return err
	}
	db, err := database.Unreachable(cause, d)
	if err != nil {
		return err
	}
	p.pg = &postgresDB{core: &core{db, millis(config.Delay)}, part: true}
	p.Store = &Store{core: p.pg.core, Queue: p.pg, kind: p.pg}
	p.failed = true
	return nil
}

// readShards returns the table of slots and the number of this database. The table is nil if the frontier has one
// database.
func (s *core) readShards(ctx context.Context) (table *shardTable, number int, err error) {
	var text string
	err = s.db.QueryRow(ctx, `SELECT COALESCE((SELECT value FROM settings WHERE name = '`+tableSetting+`'), ''),
		CAST(COALESCE((SELECT value FROM settings WHERE name = '`+numberSetting+`'), '0') AS BIGINT)`).Scan(&text, &number)
	if err != nil {
		return nil, 0, fmt.Errorf("read the table of slots: %w", err)
	}
	if text == "" {
		return nil, 0, nil
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil || len(table.Slots) != slotCount {
		return nil, 0, fmt.Errorf("read the table of slots: %w", cmp.Or(err, fmt.Errorf("it has %d slots", len(table.Slots))))
	}
	return table, number, nil
}

// checkAlone returns an error for a database that is one of many. first reports whether it is the only one of a frontier
// to which others are added.
func (s *core) checkAlone(ctx context.Context) (first bool, err error) {
	table, number, err := s.readShards(ctx)
	if err != nil || table == nil {
		return false, err
	}
	if table.Databases > 1 {
		return false, fmt.Errorf("%w: this is number %d of %d: name the others with --db too", ErrShards, number, table.Databases)
	}
	return true, nil
}
