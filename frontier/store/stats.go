package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
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

// Stats implements [Store].
func (s *core) Stats(ctx context.Context, hosts int) (n Stats, err error) {
	if n.Counts, err = s.Counts(ctx); err != nil {
		return Stats{}, err
	}
	for _, read := range []func(context.Context, int, *Stats) error{s.readSums, s.readClasses, s.readHosts, s.readWorkers} {
		if err := read(ctx, hosts, &n); err != nil {
			return Stats{}, fmt.Errorf("read statistics: %w", err)
		}
	}
	return n, nil
}

// readSums reads the newest outcomes. If they do not reach back a minute, it extrapolates.
func (s *core) readSums(ctx context.Context, _ int, n *Stats) error {
	const minute = int64(time.Minute / time.Millisecond)
	var now, first, read int64
	err := s.db.QueryRow(ctx, `SELECT {now}, count(*), COALESCE(min(ended_at), 0), COALESCE(sum(CASE WHEN ended_at > {now} - ? THEN 1 END), 0),
			COALESCE(sum(CASE WHEN ended_at > {now} - ? THEN bytes END), 0), (SELECT COALESCE(sum(bytes), 0) FROM hosts AS h)
		FROM (SELECT ended_at, bytes FROM fetches ORDER BY id DESC LIMIT ?) AS f`, minute, minute, maxRecent).
		Scan(&now, &read, &first, &n.LastMinute.Outcomes, &n.LastMinute.Bytes, &n.Bytes)
	if span := now - first; err == nil && read == maxRecent && span > 0 && span < minute {
		n.LastMinute.Outcomes = n.LastMinute.Outcomes * minute / span
		n.LastMinute.Bytes = int64(float64(n.LastMinute.Bytes) * float64(minute) / float64(span))
	}
	n.Now = clock(now)
	return err
}

func (s *core) readClasses(ctx context.Context, _ int, n *Stats) error {
	rows, err := s.db.Query(ctx, `SELECT error_class, count(CASE WHEN status = 'failed' THEN 1 END), count(CASE WHEN status = 'dead' THEN 1 END)
		FROM urls AS u WHERE status IN ('failed', 'dead') GROUP BY error_class ORDER BY count(*) DESC, error_class LIMIT ?`, maxClasses)
	n.Classes, err = collect(rows, err, func(c *ClassCount) []any { return []any{&c.Class, &c.Failed, &c.Dead} })
	return err
}

func (s *core) readHosts(ctx context.Context, hosts int, n *Stats) (err error) {
	if n.Slowest, err = s.hostStats(ctx, hosts, `fetch_count > 0 ORDER BY duration_ms / fetch_count DESC, host`); err != nil {
		return err
	}
	n.Closed, err = s.hostStats(ctx, hosts, `paused OR blocked_until > {now} ORDER BY blocked_until DESC, host`)
	return err
}

func (s *core) hostStats(ctx context.Context, limit int, which string) ([]HostStats, error) {
	rows, err := s.db.Query(ctx, `SELECT host, fetch_count, failure_count, duration_ms, bytes,
		CASE WHEN blocked_until > {now} THEN blocked_until ELSE 0 END, paused, in_flight FROM hosts AS h WHERE `+which+` LIMIT ?`, limit)
	return collect(rows, err, func(h *HostStats) []any {
		return []any{&h.Host, &h.Fetches, &h.Failures, span{&h.Duration}, &h.Bytes, instant{&h.BlockedUntil}, &h.Paused, &h.InFlight}
	})
}

func (s *core) readWorkers(ctx context.Context, _ int, n *Stats) error {
	all, err := s.Workers(ctx)
	n.Workers = all[:min(len(all), maxWorkers)]
	return err
}

// settleTime is how long a transaction may take from an outcome's id to its commit.
const settleTime = 5 * time.Second

// LastFetch implements [Store].
func (s *core) LastFetch(ctx context.Context) (id int64, err error) {
	return s.db.Int(ctx, "read the last outcome", `SELECT COALESCE(max(id), 0) FROM fetches`)
}

// FetchesAfter implements [Store].
func (s *core) FetchesAfter(ctx context.Context, id int64, limit int) ([]WatchedFetch, error) {
	var now time.Time
	rows, err := s.db.Query(ctx, `SELECT `+fetchColumns+`, COALESCE(u.metadata, ''), {now}
		FROM fetches f LEFT JOIN urls u ON u.id = f.url_id WHERE f.id > ? ORDER BY f.id LIMIT ?`, id, limit)
	page, err := collect(rows, err, func(f *WatchedFetch) []any { return append(f.columns(), &f.Metadata, instant{&now}) })
	if err != nil {
		return nil, fmt.Errorf("read outcomes after %d: %w", id, err)
	}
	settled := now.Add(-settleTime)
	for i, f := range page {
		if f.ID != id+1 && f.EndedAt.After(settled) {
			return page[:i], nil
		}
		id = f.ID
	}
	return page, nil
}

// WatchedFetch is a recorded fetch with the metadata of its URL.
type WatchedFetch struct {
	FetchRow
	Metadata string
}

// IDs implements [Store].
func (s *core) IDs(ctx context.Context, urls []string) (map[string]int64, error) {
	hashes := make([]string, 0, len(urls))
	given := make(map[string][]string, len(urls)) // hashes of URLs, without session ids last
	for _, u := range urls {
		for _, keyed := range []bool{false, true} {
			if n, err := normalise(u, keyed); err == nil && !slices.Contains(given[u], n.Hash) {
				hashes, given[u] = append(hashes, n.Hash), append(given[u], n.Hash)
			}
		}
	}
	ids := make(map[string]int64, len(given))
	if len(given) == 0 {
		return ids, nil
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
	for u, of := range given {
		for _, hash := range slices.Backward(of) {
			if id, ok := found[hash]; ok {
				ids[u] = id
			}
		}
	}
	return ids, nil
}
