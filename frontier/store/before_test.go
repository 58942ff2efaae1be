package store

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"fetchd/test/need"
)

// before is the version of the schema that TestScaleBeforeAndAfter compares with.
const before = 5

// side is a database of a comparison, with the calls of its version.
type side struct {
	name   string
	dsn    string
	db     *sql.DB
	put    func(ctx context.Context, urls []string) error
	claim  func(ctx context.Context) ([]Lease, error)
	record func(ctx context.Context, fetches []Fetch) error
}

const sideBatch = 128

// TestScaleBeforeAndAfter compares the functions of an earlier schema with those of this one, in one run: WAL of a
// put, claims and records of many hosts and of one, and of one while a session holds a snapshot. Set
// FRONTIER_TEST_POSTGRES to a server that writes to a disk, and FRONTIER_PLANS to a file for the plans.
func TestScaleBeforeAndAfter(t *testing.T) {
	need.Long(t)
	sides := []*side{newSide(t, "before", before), newSide(t, "after", 0)}
	each := func(t *testing.T, what string, f func(s *side) string) {
		for _, s := range sides {
			t.Logf("%-36s %-7s %s", what, s.name, f(s))
		}
	}
	t.Run("put", func(t *testing.T) {
		each(t, "200,000 URLs of 10,000 hosts", (*side).putMany)
		each(t, "links of pages", (*side).putLinks)
	})
	t.Run("claim and record", func(t *testing.T) {
		var plans strings.Builder
		for _, s := range sides {
			s.fill(t, 1_000_000, 10_000)
			fmt.Fprintf(&plans, "==== %s ====\n%s\n", s.name, s.plans(t))
		}
		for round := range 3 {
			each(t, fmt.Sprintf("10,000 hosts, 4 workers, round %d", round+1), func(s *side) string { return s.work(t, 4, 6*time.Second) })
		}
		if name := os.Getenv("FRONTIER_PLANS"); name != "" {
			sides[0].must(t, os.WriteFile(name, []byte(plans.String()), 0o600))
		}
	})
	t.Run("one host", func(t *testing.T) {
		for _, s := range sides {
			s.fill(t, 200_000, 1)
			_, err := s.db.Exec(`UPDATE hosts SET max_in_flight = 128`)
			s.must(t, err)
		}
		for round := range 2 {
			each(t, fmt.Sprintf("4 workers, round %d", round+1), func(s *side) string { return s.work(t, 4, 5*time.Second) })
		}
		each(t, "4 workers, a snapshot is held", func(s *side) string {
			tx, err := s.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			s.must(t, err)
			defer tx.Rollback() //nolint:errcheck // it has written nothing
			s.must(t, tx.QueryRow(`SELECT 1`).Scan(new(int)))
			return s.work(t, 4, 10*time.Second)
		})
	})
}

// newSide opens a new database. A version of zero is the newest.
func newSide(t *testing.T, name string, version int64) *side {
	t.Helper()
	s := &side{name: name, dsn: newPostgres(t)}
	db, err := sql.Open("pgx", s.dsn)
	s.must(t, err)
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	s.db = db
	if version == 0 {
		store := open(t, s.dsn).Store
		store.delayMS = 0
		s.put = func(ctx context.Context, urls []string) error {
			_, err := store.Put(ctx, Entries(urls...), Limits{})
			return err
		}
		s.claim = func(ctx context.Context) (leases []Lease, err error) {
			claims, err := store.Claim(ctx, ClaimParams{Limit: sideBatch, Worker: "test"})
			for _, c := range claims {
				leases = append(leases, c.Lease)
			}
			return leases, err
		}
		s.record = func(ctx context.Context, fetches []Fetch) error {
			_, err := store.RecordFetch(ctx, fetches)
			return err
		}
		return s
	}
	files, err := fs.Sub(migrations, "migrations/postgres")
	s.must(t, err)
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithDisableGlobalRegistry(true))
	s.must(t, err)
	_, err = p.UpTo(t.Context(), version)
	s.must(t, err)
	old := older{db: db}
	s.put, s.claim, s.record = old.put, old.claim, old.record
	return s
}

// older has the calls of programs that know the schema of version 5.
type older struct{ db *sql.DB }

func (o older) addHosts(ctx context.Context, hosts []string) error {
	slices.Sort(hosts)
	_, err := o.db.ExecContext(ctx, `INSERT INTO hosts (host) SELECT w.host FROM unnest($1::text[]) AS w (host)
		WHERE NOT EXISTS (SELECT 1 FROM hosts h WHERE h.host = w.host) ORDER BY w.host ON CONFLICT (host) DO NOTHING`, slices.Compact(hosts))
	return err
}

func (o older) put(ctx context.Context, urls []string) error {
	all, _ := normaliseAll(Entries(urls...))
	hosts := make([]string, len(all))
	for i, u := range all {
		hosts[i] = u.Host
	}
	list, err := toJSON(all)
	if err == nil {
		err = o.addHosts(ctx, hosts)
	}
	if err == nil {
		_, err = o.db.ExecContext(ctx, `SELECT frontier_put($1)`, list)
	}
	return err
}

func (o older) claim(ctx context.Context) ([]Lease, error) {
	rows, err := o.db.QueryContext(ctx, `SELECT * FROM frontier_claim_earlier($1, $2, 'test')`, sideBatch, 300_000)
	return collect(rows, err, func(l *Lease) []any {
		var failures, crashes int
		var texts [9]string
		return []any{&l.ID, &l.Token, &texts[0], &texts[1], &failures, &crashes, &texts[2], &texts[3], &texts[4], &texts[5], &texts[6], &texts[7], &texts[8]}
	})
}

func (o older) record(ctx context.Context, fetches []Fetch) error {
	ready, _ := items(fetches)
	var hosts []string
	for _, it := range ready {
		if it.FinalURL != "" {
			hosts = append(hosts, it.FinalHost)
		}
	}
	list, err := toJSON(withZeros(ready))
	if err == nil && len(hosts) > 0 {
		err = o.addHosts(ctx, hosts)
	}
	if err != nil {
		return err
	}
	rows, err := o.db.QueryContext(ctx, `SELECT * FROM frontier_record($1, 0)`, list)
	_, err = collect(rows, err, func(l *Lease) []any { return []any{&l.ID, &l.Token} })
	return err
}

// withZeros returns values of a type that has the fields of item, and keeps those that are zero in JSON.
func withZeros(ready []item) []any {
	var fields []reflect.StructField
	for f := range reflect.TypeFor[item]().Fields() {
		f.Tag = reflect.StructTag(strings.ReplaceAll(string(f.Tag), ",omitempty", ""))
		fields = append(fields, f)
	}
	full := reflect.StructOf(fields)
	list := make([]any, len(ready))
	for i, it := range ready {
		list[i] = reflect.ValueOf(it).Convert(full).Interface()
	}
	return list
}

func (s *side) must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
}

func (s *side) position() (bytes int64) {
	if err := s.db.QueryRow(`SELECT pg_current_wal_lsn() - '0/0'`).Scan(&bytes); err != nil {
		panic(err)
	}
	return bytes
}

// cpu returns the CPU time that the sessions of the database have used. It is zero if the server is on
// another machine. Unlike a rate it does not depend much on what else the machine does.
func (s *side) cpu() (ticks int64) {
	rows, err := s.db.Query(`SELECT pid FROM pg_stat_activity WHERE datname = current_database()`)
	pids, err := collect(rows, err, func(pid *int) []any { return []any{pid} })
	if err != nil {
		panic(err)
	}
	for _, pid := range pids {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // is gone if the session has ended
		_, fields, _ := strings.Cut(string(stat), ") ")
		for i, field := range strings.Fields(fields) {
			if i == 11 || i == 12 { // utime and stime
				n, _ := strconv.ParseInt(field, 10, 64) // it is a number
				ticks += n
			}
		}
	}
	return ticks
}

// measure returns the rate of what f does, and the WAL and the CPU time of the server that it uses.
func (s *side) measure(f func() int64) string {
	const tick = 10 * time.Millisecond
	wal, cpu, started := s.position(), s.cpu(), time.Now()
	n := max(1, f())
	took := time.Since(started)
	return fmt.Sprintf("%7.0f URLs/s, %5d B of WAL and %4.0f µs of CPU a URL", float64(n)/took.Seconds(), (s.position()-wal)/n,
		float64((time.Duration(s.cpu()-cpu)*tick).Microseconds())/float64(n))
}

func (s *side) putAll(urls int, url func(n int) string) string {
	return s.measure(func() int64 {
		const batch = 1000
		for n := 0; n < urls; n += batch {
			var list []string
			for i := n; i < n+batch; i++ {
				list = append(list, url(i))
			}
			if err := s.put(context.Background(), list); err != nil {
				panic(err)
			}
		}
		return int64(urls)
	})
}

func (s *side) putMany() string {
	return s.putAll(200_000, func(n int) string { return fmt.Sprintf("http://h%d.test/page/%d", n%10_000, n) })
}

// putLinks puts what pages of one host after the other link to. Three of four links are known.
func (s *side) putLinks() string {
	return s.putAll(100_000, func(n int) string { return fmt.Sprintf("http://l%d.test/link/%d", n/1000, n/4) })
}

// fill adds URLs without the functions under test.
func (s *side) fill(t *testing.T, urls, hosts int) {
	t.Helper()
	for _, query := range []string{
		`TRUNCATE fetches, urls, hosts`,
		fmt.Sprintf(`INSERT INTO hosts (host, due_at) SELECT 'h' || n || '.test', 0 FROM generate_series(0, %d) AS n`, hosts-1),
		fmt.Sprintf(`INSERT INTO urls (host_id, url, url_hash) SELECT h.id, 'http://' || h.host || '/page/' || n, sha256(n::text::bytea)
			FROM generate_series(1, %d) AS n JOIN hosts h ON h.host = 'h' || (n::bigint * 7919 %% %d) || '.test'`, urls, hosts),
		`VACUUM ANALYZE`, `CHECKPOINT`,
	} {
		_, err := s.db.Exec(query)
		s.must(t, err)
	}
}

// work has workers claim and record for some time.
func (s *side) work(t *testing.T, workers int, d time.Duration) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return s.measure(func() int64 {
		var wg sync.WaitGroup
		var done atomic.Int64
		for range workers {
			wg.Go(func() {
				for ctx.Err() == nil {
					leases, err := s.claim(t.Context())
					if err == nil && len(leases) == 0 {
						pause(t, time.Millisecond)
						continue
					}
					if err == nil {
						err = s.record(t.Context(), outcomes(leases))
					}
					if err != nil {
						t.Errorf("%s: %v", s.name, err)
						return
					}
					done.Add(int64(len(leases)))
				}
			})
		}
		wg.Wait()
		return done.Load()
	})
}

// outcomes returns successes with the values that a page usually has.
func outcomes(leases []Lease) []Fetch {
	fetches := make([]Fetch, len(leases))
	for i, l := range leases {
		fetches[i] = Fetch{ID: l.ID, Status: Fetched, FetchedParams: FetchedParams{
			Token: l.Token, HTTPStatus: 200, Attempts: 1, Duration: 100 * time.Millisecond, Bytes: 40_000, ETag: `"5f3a-1c0d"`,
			BodyDigest: strings.Repeat("0123456789abcdef", 4), Content: Content{ContentType: "text/html", Charset: "utf-8"},
		}}
	}
	return fetches
}

// plans returns the plans of a put, a claim and a record, with those of the statements in the functions.
func (s *side) plans(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	config, err := pgx.ParseConfig(s.dsn)
	s.must(t, err)
	seen := make(map[string]bool)
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		_, query, _ := strings.Cut(n.Message, "Query Text: ") // after the time
		query, _, _ = strings.Cut(query, "(cost=")
		if !seen[query] {
			fmt.Fprintln(&text, n.Message)
		}
		seen[query] = true
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, query := range []string{`LOAD 'auto_explain'`, `SET auto_explain.log_min_duration = 0`, `SET auto_explain.log_nested_statements = on`,
		`SET auto_explain.log_analyze = on`, `SET auto_explain.log_level = notice`} {
		_, err := db.Exec(query)
		s.must(t, err)
	}
	old := older{db: db}
	leases, err := old.claim(t.Context()) // a wrapper of the newest function
	s.must(t, err)
	s.must(t, old.record(t.Context(), outcomes(leases)))
	var list []string
	for n := range 1000 {
		list = append(list, fmt.Sprintf("http://h%d.test/new/%d", n%50, n))
	}
	s.must(t, old.put(t.Context(), list))
	return text.String()
}
