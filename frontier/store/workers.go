package store

import (
	"context"
	"fmt"
	"time"
)

const (
	// VanishedAfter is how long a worker may stay silent. A worker that runs is seen every ten seconds.
	VanishedAfter = 30 * time.Second
	// forgetWorkers is how long a vanished worker is listed.
	forgetWorkers = 24 * time.Hour
)

// WorkerState is what the frontier knows about a worker.
type WorkerState struct {
	Name string
	// Started and Seen are zero if the worker uses the API, or has stopped.
	Started, Seen time.Time
	Claims        int64     // URLs that it holds
	LeaseUntil    time.Time // when the last of these is free; zero without claims
	// Vanished reports that the worker was not seen for VanishedAfter, and has not stopped.
	Vanished bool
	Process  string    // as given to [Store].WorkerSeen
	Now      time.Time // by the database's clock
}

// WorkerSeen implements [Store].
func (s *core) WorkerSeen(ctx context.Context, name, process string, started bool) error {
	if started {
		_, err := s.db.Update(ctx, "forget workers", `DELETE FROM workers WHERE seen_at < {now} - ?`, millis(forgetWorkers))
		if err != nil {
			return err
		}
	}
	_, err := s.db.Update(ctx, "keep the time of a worker", `INSERT INTO workers (name, started_at, seen_at, process) VALUES (?, {now}, {now}, ?)
		ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, process = excluded.process,
			started_at = CASE WHEN CAST(? AS BOOLEAN) THEN excluded.started_at ELSE workers.started_at END`, clean(name), clean(process), started)
	return err
}

// WorkerStopped implements [Store].
func (s *core) WorkerStopped(ctx context.Context, name string) error {
	_, err := s.db.Update(ctx, "remove a worker", `DELETE FROM workers WHERE name = ?`, clean(name))
	return err
}

// EndLeases implements [Store].
func (s *core) EndLeases(ctx context.Context, worker string) (int64, error) {
	return s.db.Update(ctx, "end the leases of a worker", `UPDATE urls SET lease_until = {now} WHERE status = 'fetching' AND worker = ?`, clean(worker))
}

// Workers implements [Store].
func (s *core) Workers(ctx context.Context) ([]WorkerState, error) {
	rows, err := s.db.Query(ctx, `SELECT w.name, w.started_at, w.seen_at, w.claims, w.lease_until,
			w.seen_at > 0 AND w.seen_at < {now} - ?, w.process, {now}
		FROM (SELECT name, max(started_at) AS started_at, max(seen_at) AS seen_at, max(process) AS process, sum(claims) AS claims, max(lease_until) AS lease_until
			FROM (SELECT name, started_at, seen_at, process, 0 AS claims, 0 AS lease_until FROM workers
				UNION ALL SELECT worker, 0, 0, '', count(*), max(lease_until) FROM urls WHERE status = 'fetching' GROUP BY worker) AS r
			GROUP BY name) AS w ORDER BY w.name`, millis(VanishedAfter))
	all, err := collect(rows, err, func(w *WorkerState) []any {
		return []any{&w.Name, instant{&w.Started}, instant{&w.Seen}, &w.Claims, instant{&w.LeaseUntil}, &w.Vanished, &w.Process, instant{&w.Now}}
	})
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	return all, nil
}
