package store

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Stats are the counts of a frontier.
type Stats struct {
	Counts
	Now        time.Time // by the database's clock
	LastMinute Sums
	Bytes      int64 // of all bodies
	Classes    []ClassCount
	Slowest    []HostStats   // the longest mean duration first
	Closed     []HostStats   // blocked or paused, those that open last first
	Workers    []WorkerState // by name; at most 100
}

// Sums are sums over outcomes.
type Sums struct{ Outcomes, Bytes int64 }

// ClassCount is the number of URLs whose last fetch failed with a class.
type ClassCount struct {
	Class        string
	Failed, Dead int64
}

// HostStats are sums over the outcomes of a host, and its state.
type HostStats struct {
	Host         string
	Fetches      int64
	Failures     int64
	Duration     time.Duration // of all fetches
	Bytes        int64
	BlockedUntil time.Time
	Paused       bool
	InFlight     int
}

const (
	maxClasses = 50
	maxWorkers = 100
	// maxRecent is the number of outcomes that LastMinute reads. The table has no index by time, because
	// each outcome would pay for it.
	maxRecent = 100_000
)

// Stats reads whole tables, as Counts does. hosts is the length of each list of hosts.
func (s *Store) Stats(ctx context.Context, hosts int) (n Stats, err error) {
	if n.Counts, err = s.Counts(ctx); err != nil {
		return Stats{}, err
	}
	if s.many != nil {
		all, err := gather(ctx, s, func(ctx context.Context, s *Store) ([]Stats, error) {
			one := Stats{}
			return []Stats{one}, s.readStats(ctx, hosts, &one)
		})
		n.add(all, hosts)
		return n, s.partly(err)
	}
	if err := s.readStats(ctx, hosts, &n); err != nil {
		return Stats{}, err
	}
	return n, nil
}

// readStats reads all but the counts.
func (s *Store) readStats(ctx context.Context, hosts int, n *Stats) error {
	for _, read := range []func(context.Context, int, *Stats) error{s.readSums, s.readClasses, s.readHosts, s.readWorkers} {
		if err := read(ctx, hosts, n); err != nil {
			return fmt.Errorf("read statistics: %w", err)
		}
	}
	return nil
}

// add adds what the databases have returned, apart from the counts. hosts is the length of each list of hosts.
func (n *Stats) add(all []Stats, hosts int) {
	classes := map[string]*ClassCount{}
	var workers []WorkerState
	for i := range all {
		one := &all[i]
		if one.Now.After(n.Now) {
			n.Now = one.Now
		}
		n.LastMinute.Outcomes += one.LastMinute.Outcomes
		n.LastMinute.Bytes += one.LastMinute.Bytes
		n.Bytes += one.Bytes
		for _, c := range one.Classes {
			if classes[c.Class] == nil {
				classes[c.Class] = &ClassCount{Class: c.Class}
			}
			classes[c.Class].Failed += c.Failed
			classes[c.Class].Dead += c.Dead
		}
		n.Slowest = append(n.Slowest, one.Slowest...)
		n.Closed = append(n.Closed, one.Closed...)
		workers = append(workers, one.Workers...)
	}
	for _, c := range classes {
		n.Classes = append(n.Classes, *c)
	}
	slices.SortFunc(n.Classes, func(a, b ClassCount) int {
		return cmp.Or(cmp.Compare(b.Failed+b.Dead, a.Failed+a.Dead), cmp.Compare(a.Class, b.Class))
	})
	slices.SortFunc(n.Slowest, func(a, b HostStats) int {
		return cmp.Or(cmp.Compare(int64(b.Duration)/b.Fetches, int64(a.Duration)/a.Fetches), cmp.Compare(a.Host, b.Host))
	})
	slices.SortFunc(n.Closed, func(a, b HostStats) int {
		return cmp.Or(b.BlockedUntil.Compare(a.BlockedUntil), cmp.Compare(a.Host, b.Host))
	})
	n.Classes = n.Classes[:min(len(n.Classes), maxClasses)]
	n.Slowest, n.Closed = n.Slowest[:min(len(n.Slowest), hosts)], n.Closed[:min(len(n.Closed), hosts)]
	n.Workers = mergeWorkers(workers)
	n.Workers = n.Workers[:min(len(n.Workers), maxWorkers)]
}

// readSums reads the newest outcomes. If they do not reach back a minute, it extrapolates.
func (s *Store) readSums(ctx context.Context, _ int, n *Stats) error {
	const minute = int64(time.Minute / time.Millisecond)
	var now, first, read int64
	err := s.db.QueryRow(ctx, `SELECT {now}, count(*), COALESCE(min(ended_at), 0), COALESCE(sum(CASE WHEN ended_at > {now} - ? THEN 1 END), 0),
			COALESCE(sum(CASE WHEN ended_at > {now} - ? THEN bytes END), 0), (SELECT COALESCE(sum(bytes), 0) FROM {hosts} AS h)
		FROM (SELECT ended_at, bytes FROM fetches ORDER BY id DESC LIMIT ?) AS f`, minute, minute, maxRecent).
		Scan(&now, &read, &first, &n.LastMinute.Outcomes, &n.LastMinute.Bytes, &n.Bytes)
	if span := now - first; err == nil && read == maxRecent && span > 0 && span < minute {
		n.LastMinute.Outcomes = n.LastMinute.Outcomes * minute / span
		n.LastMinute.Bytes = int64(float64(n.LastMinute.Bytes) * float64(minute) / float64(span))
	}
	n.Now = clock(now)
	return err
}

func (s *Store) readClasses(ctx context.Context, _ int, n *Stats) error {
	rows, err := s.db.Query(ctx, `SELECT error_class, count(CASE WHEN status = 'failed' THEN 1 END), count(CASE WHEN status = 'dead' THEN 1 END)
		FROM {urls} AS u WHERE status IN ('failed', 'dead') GROUP BY error_class ORDER BY count(*) DESC, error_class LIMIT ?`, maxClasses)
	n.Classes, err = collect(rows, err, func(c *ClassCount) []any { return []any{&c.Class, &c.Failed, &c.Dead} })
	return err
}

func (s *Store) readHosts(ctx context.Context, hosts int, n *Stats) (err error) {
	if n.Slowest, err = s.hostStats(ctx, hosts, `fetch_count > 0 ORDER BY duration_ms / fetch_count DESC, host`); err != nil {
		return err
	}
	n.Closed, err = s.hostStats(ctx, hosts, `paused OR blocked_until > {now} ORDER BY blocked_until DESC, host`)
	return err
}

func (s *Store) hostStats(ctx context.Context, limit int, which string) ([]HostStats, error) {
	rows, err := s.db.Query(ctx, `SELECT host, fetch_count, failure_count, duration_ms, bytes,
		CASE WHEN blocked_until > {now} THEN blocked_until ELSE 0 END, paused, in_flight FROM {hosts} AS h WHERE `+which+` LIMIT ?`, limit)
	return collect(rows, err, func(h *HostStats) []any {
		return []any{hostName{&h.Host}, &h.Fetches, &h.Failures, span{&h.Duration}, &h.Bytes, instant{&h.BlockedUntil}, &h.Paused, &h.InFlight}
	})
}

func (s *Store) readWorkers(ctx context.Context, _ int, n *Stats) error {
	all, err := s.Workers(ctx)
	n.Workers = all[:min(len(all), maxWorkers)]
	return err
}

// settleTime is how long a transaction may take from an outcome's id to its commit.
const settleTime = 5 * time.Second

// Cursor is a place between outcomes, to read those after it. It is text that callers keep and do not read: the id of an
// outcome, or one for each of many databases, separated by dots. Numbers that are missing are 0, before the first one.
type Cursor string

// Valid reports whether the text may be a cursor.
func (c Cursor) Valid() bool {
	return len(c) <= MaxDatabases*len("9007199254740992.") && validCursor.MatchString(string(c))
}

var validCursor = regexp.MustCompile(`^[0-9]{1,18}(\.[0-9]{1,18})*$`)

// ids returns the ids of a cursor, one for each of n databases.
func (c Cursor) ids(n int) []int64 {
	ids := make([]int64, n)
	for i, text := range strings.Split(string(c), ".") {
		if i < n {
			ids[i], _ = strconv.ParseInt(text, 10, 64) // a cursor that is valid has numbers
		}
	}
	return ids
}

func cursorOf(ids []int64) Cursor {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.FormatInt(id, 10)
	}
	return Cursor(strings.Join(texts, "."))
}

// LastFetch returns the cursor after the newest outcome.
func (s *Store) LastFetch(ctx context.Context) (Cursor, error) {
	parts := s.all()
	ids := make([]int64, len(parts))
	for i, p := range parts {
		var err error
		if ids[i], err = p.db.Int(ctx, "read the last outcome", `SELECT COALESCE(max(id), 0) FROM fetches`); err != nil {
			return "", s.nameDatabase(p, err)
		}
	}
	return cursorOf(ids), nil
}

// FetchesAfter returns outcomes after a cursor that is valid: at most limit of each database, in the order of ids. Ids
// are given before transactions commit, so a missing one may still come. It does not return what follows until that is
// too late. Of many databases, one that cannot be reached is left out, and its outcomes follow later.
func (s *Store) FetchesAfter(ctx context.Context, after Cursor, limit int) (all []WatchedFetch, err error) {
	if s.many != nil {
		ids := after.ids(len(s.many.parts))
		err := s.partly(s.many.each(ctx, func(ctx context.Context, p *part) error {
			some, err := p.FetchesAfter(ctx, Cursor(strconv.FormatInt(ids[p.number], 10)), limit)
			for i := range some {
				ids[p.number] = some[i].ID
				some[i].Cursor = cursorOf(ids)
			}
			all = append(all, some...)
			return err
		}))
		return all, err
	}
	id := after.ids(1)[0]
	var now time.Time
	rows, err := s.db.Query(ctx, `SELECT `+fetchColumns+`, COALESCE(u.metadata, ''), {now}
		FROM fetches f LEFT JOIN urls u ON u.id = f.url_id WHERE f.id > ? ORDER BY f.id LIMIT ?`, id, limit)
	page, err := collect(rows, err, func(f *WatchedFetch) []any { return append(f.columns(), &f.Metadata, instant{&now}) })
	if err != nil {
		return nil, fmt.Errorf("read outcomes after %d: %w", id, err)
	}
	settled := now.Add(-settleTime)
	for i := range page {
		f := &page[i]
		if f.ID != id+1 && f.EndedAt.After(settled) {
			return page[:i], nil
		}
		id = f.ID
		f.Cursor = Cursor(strconv.FormatInt(id, 10))
	}
	return page, nil
}

// WatchedFetch is a recorded fetch with the metadata of its URL.
type WatchedFetch struct {
	FetchRow
	Metadata string
	Cursor   Cursor // the place after it
}

// IDs returns the ids of URLs. One that the frontier does not have is missing.
func (s *Store) IDs(ctx context.Context, urls []string) (map[string]int64, error) {
	hashes := make([]string, 0, len(urls))
	given, hosts := make(map[string]string, len(urls)), make(map[string]string) // hashes and hosts of URLs
	for _, u := range urls {
		if n, err := normalise(u); err == nil {
			hashes, given[u], hosts[u] = append(hashes, n.Hash), n.Hash, n.Host
		}
	}
	ids := make(map[string]int64, len(given))
	if len(given) == 0 {
		return ids, nil
	}
	if s.many != nil {
		return s.many.ids(ctx, hosts)
	}
	list, err := toJSON(hashes)
	if err != nil {
		return nil, err
	}
	type row struct {
		id   int64
		hash []byte
	}
	rows, err := s.db.Query(ctx, `SELECT id, url_hash FROM urls WHERE url_hash {hashed}`, list)
	all, err := collect(rows, err, func(r *row) []any { return []any{&r.id, &r.hash} })
	if err != nil {
		return nil, fmt.Errorf("look for %d URLs: %w", len(given), err)
	}
	found := make(map[string]int64, len(all)) // ids of hashes
	for _, r := range all {
		found[hex.EncodeToString(r.hash)] = r.id
	}
	for u, hash := range given {
		if id, ok := found[hash]; ok {
			ids[u] = id
		}
	}
	return ids, nil
}

// ids returns the ids of URLs, whose hosts are given. If some are missing, it looks for them again with the newest table:
// their slots may have moved.
func (m *shards) ids(ctx context.Context, hosts map[string]string) (map[string]int64, error) {
	ids := make(map[string]int64, len(hosts))
	for again := false; ; again = true {
		version := m.table.Load().Version
		missing := slices.DeleteFunc(slices.Collect(maps.Keys(hosts)), func(u string) bool { return ids[u] != 0 })
		for number, some := range group(missing, func(u string) int { return m.numberOf(hosts[u]) }) {
			p := m.parts[number]
			of, err := p.IDs(ctx, some)
			if err != nil {
				return nil, fmt.Errorf("database %d (%s): %w", p.number, p.name, err)
			}
			maps.Copy(ids, of)
		}
		if again || len(ids) == len(hosts) || m.refresh(ctx) != nil || m.table.Load().Version == version {
			return ids, nil
		}
	}
}
