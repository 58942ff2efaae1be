package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// unusedFor is how long a host must have been open before Prune deletes it. It is longer than
	// blockReset, and than a request to the host can take.
	unusedFor = time.Hour
	// vanishedFor is how long a worker must not have been seen before Prune deletes its row.
	vanishedFor = 24 * time.Hour
)

// PruneParams selects what Prune deletes.
type PruneParams struct {
	OutcomesAge *time.Duration // outcomes that are at least this old, without the last one of all; nil means none

	URLs    []Status       // the states of URLs to delete, without Fetching; empty means none
	URLsAge *time.Duration // only URLs whose last fetch ended at least this long ago; nil means any
	Host    string         // only URLs of this host; empty means any

	// Hosts selects hosts without URLs and without settings that have been open for an hour, or for
	// 25 hours after a robots.txt with a Crawl-delay, because a worker may have that file in memory. It also
	// selects the robots.txt of hosts without URLs, and workers that vanished a day ago.
	Hosts bool

	DryRun bool // count only
}

// Pruned are the numbers of rows that Prune has deleted.
type Pruned struct {
	Outcomes, URLs, Hosts, Robots, Workers int64
}

// Prune implements [Store].
func (s *core) Prune(ctx context.Context, params PruneParams, progress func(Pruned)) (done Pruned, err error) {
	var now int64
	report := func(n *int64) func(int64) {
		return func(now int64) {
			if *n = now; progress != nil {
				progress(done)
			}
		}
	}
	if now, err = s.db.Int(ctx, "prune", `SELECT {now}`); err != nil {
		return done, err
	}
	if age := params.OutcomesAge; age != nil {
		if done.Outcomes, err = s.pruneOutcomes(ctx, now-millis(*age), params.DryRun, report(&done.Outcomes)); err != nil {
			return done, fmt.Errorf("prune outcomes: %w", err)
		}
	}
	if len(params.URLs) > 0 {
		if done.URLs, err = s.pruneURLs(ctx, params, now, report(&done.URLs)); err != nil {
			return done, fmt.Errorf("prune URLs: %w", err)
		}
	}
	if params.Hosts {
		if done.Hosts, err = s.pruneHosts(ctx, params.DryRun, report(&done.Hosts)); err != nil {
			return done, fmt.Errorf("prune hosts: %w", err)
		}
		if done.Robots, done.Workers, err = s.pruneRest(ctx, params.DryRun, report(&done.Robots)); err != nil {
			return done, fmt.Errorf("prune robots.txt and workers: %w", err)
		}
	}
	return done, nil
}

// pruneOutcomes deletes outcomes that ended by until. They are in the order in which they ended, apart
// from those of one moment, so it stops at the first chunk without one. The last outcome stays: SQLite
// would give its id to the next one, which FetchesAfter would then miss.
func (s *core) pruneOutcomes(ctx context.Context, until int64, dry bool, progress func(int64)) (done int64, err error) {
	type row struct{ id, ended int64 }
	for after := int64(0); ; {
		rows, err := s.db.Query(ctx, `SELECT id, ended_at FROM fetches
			WHERE id > ? AND id < (SELECT max(id) FROM fetches) ORDER BY id LIMIT ?`, after, chunkSize)
		chunk, err := collect(rows, err, func(r *row) []any { return []any{&r.id, &r.ended} })
		if err != nil {
			return done, err
		}
		old := int64(0)
		for _, r := range chunk {
			if r.ended <= until {
				old++
			}
		}
		if old == 0 {
			return done, nil
		}
		last := chunk[len(chunk)-1].id
		if !dry {
			if old, err = s.db.Update(ctx, "delete", `DELETE FROM fetches WHERE id > ? AND id <= ? AND ended_at <= ?`, after, last, until); err != nil {
				return done, err
			}
		}
		after, done = last, done+old
		progress(done)
	}
}

func (s *core) pruneURLs(ctx context.Context, params PruneParams, now int64, progress func(int64)) (int64, error) {
	p := pruning{statuses: params.URLs}
	for _, s := range p.statuses {
		if s == Fetching {
			return 0, errors.New("a URL that is being fetched cannot be deleted")
		}
	}
	which := `u.status IN (?` + strings.Repeat(`, ?`, len(p.statuses)-1) + `)`
	var args []any
	for _, s := range p.statuses {
		args = append(args, s)
	}
	if params.URLsAge != nil {
		p.until = now - millis(*params.URLsAge)
		which, args = which+` AND u.fetched_at BETWEEN 1 AND ?`, append(args, p.until)
	}
	remove := func(ids []int64) (int64, error) { return s.own.prune(ctx, ids, p) }
	if params.DryRun {
		remove = func(ids []int64) (int64, error) { return int64(len(ids)), nil }
	}
	return s.inChunks(ctx, params.Host, which, args, nil, remove, progress)
}

func (s *core) pruneHosts(ctx context.Context, dry bool, progress func(int64)) (done int64, err error) {
	type row struct {
		id     int64
		unused bool
	}
	for after := int64(0); ; {
		rows, err := s.db.Query(ctx, `SELECT h.id, {unused} FROM hosts h WHERE h.id > ? ORDER BY h.id LIMIT ?`, after, chunkSize)
		page, err := collect(rows, err, func(r *row) []any { return []any{&r.id, &r.unused} })
		if err != nil || len(page) == 0 {
			return done, err
		}
		var ids []int64
		for _, r := range page {
			if after = r.id; r.unused {
				ids = append(ids, r.id)
			}
		}
		deleted := int64(len(ids))
		if !dry && deleted > 0 {
			if deleted, err = s.own.pruneHosts(ctx, ids); err != nil {
				return done, err
			}
		}
		if done += deleted; deleted > 0 {
			progress(done)
		}
	}
}

// pruneRest deletes the robots.txt of hosts without URLs, and workers that have vanished.
func (s *core) pruneRest(ctx context.Context, dry bool, progress func(int64)) (robots, workers int64, err error) {
	const vanished = ` FROM workers WHERE seen_at <= {now} - ?`
	if dry {
		robots, err = s.db.Int(ctx, "count", `SELECT count(*) FROM robots WHERE saved_at <= {now} - ? AND {vacant}`, millis(unusedFor))
		if err == nil {
			workers, err = s.db.Int(ctx, "count", `SELECT count(*)`+vanished, millis(vanishedFor))
		}
		return robots, workers, err
	}
	for after := ""; ; {
		next, deleted, err := s.SweepRobots(ctx, after, unusedFor)
		if robots += deleted; err != nil {
			return robots, 0, err
		}
		if progress(robots); next == "" {
			break
		}
		after = next
	}
	_, err = s.db.Update(ctx, "delete turns of groups", `DELETE FROM turns WHERE ends_at <= {now} - ?`, millis(unusedFor))
	if err == nil {
		_, err = s.db.Update(ctx, "delete groups", `DELETE FROM host_groups WHERE delay_ms IS NULL AND max_in_flight = 1 AND {max}(next_at, promised_at) <= {now} - ?
			AND NOT EXISTS (SELECT 1 FROM turns WHERE group_name = name)`, millis(unusedFor))
	}
	if err == nil {
		_, err = s.db.Update(ctx, "delete patterns", `DELETE FROM patterns WHERE NOT EXISTS (SELECT 1 FROM hosts AS h WHERE h.host = patterns.host)`)
	}
	if err == nil {
		workers, err = s.db.Update(ctx, "delete", `DELETE`+vanished, millis(vanishedFor))
	}
	return robots, workers, err
}
