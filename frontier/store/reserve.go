package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Reservation is the result of [Store.Reserve].
type Reservation struct {
	Host  string
	Until int64         // when it expires, in milliseconds by the database's clock; zero if not granted
	Wait  time.Duration // after which to ask again; zero if granted
}

// Granted reports whether the caller may use the host, exclusively.
func (r Reservation) Granted() bool { return r.Until != 0 }

// Guesses for when a host opens, if the database does not say.
const (
	waitForRequest = 100 * time.Millisecond // until a fetch or another reservation ends
	waitForResume  = time.Second            // until a user resumes the host or the crawl
)

// Reserve asks for a host for one request that no claim covers, such as that of a redirect.
// The request ends within d, which must be more than zero. If it is granted, nobody else
// claims or reserves the host until Settle, or until d has passed. If not, the host is paused
// or closed, has its maximum of fetches, or is reserved, and the result says when to ask
// again. An unknown host is added. Only next_at keeps the host closed, so it opens by then even if the
// caller crashes. reserved_until records why.
func (s *Store) Reserve(ctx context.Context, host string, d time.Duration) (Reservation, error) {
	r := Reservation{Host: host}
	if d <= 0 {
		return r, fmt.Errorf("reserve host %s for %v: the time must be more than zero", host, d)
	}
	granted, err := s.db.One(ctx, `INSERT INTO hosts (host, next_at, reserved_until)
		SELECT ?, t.until, t.until FROM (SELECT {now} + ? AS until) AS t WHERE NOT EXISTS (SELECT 1 FROM settings WHERE name = 'paused')
		ON CONFLICT (host) DO UPDATE SET next_at = excluded.next_at, reserved_until = excluded.next_at
			WHERE NOT hosts.paused AND hosts.in_flight < hosts.max_in_flight AND {max}(hosts.next_at, hosts.blocked_until) <= {now}
		RETURNING next_at`, []any{host, millis(d)}, &r.Until)
	if err == nil && !granted {
		r.Wait, err = s.closedFor(ctx, host)
	}
	if err != nil {
		return Reservation{Host: host}, fmt.Errorf("reserve host %s: %w", host, err)
	}
	return r, nil
}

// closedFor returns how long the host stays closed, as far as that is known.
func (s *Store) closedFor(ctx context.Context, host string) (time.Duration, error) {
	var left int64
	var busy, paused bool
	err := s.db.QueryRow(ctx, `SELECT
			{max}(CASE WHEN next_at = reserved_until THEN 0 ELSE next_at END, blocked_until) - {now},
			in_flight >= max_in_flight OR next_at = reserved_until,
			paused OR EXISTS (SELECT 1 FROM settings WHERE name = 'paused')
		FROM hosts WHERE host = ?`, host).Scan(&left, &busy, &paused)
	if errors.Is(err, sql.ErrNoRows) {
		return waitForResume, nil // only a paused crawl keeps Reserve from adding the host
	}
	if err != nil {
		return 0, err
	}
	wait := max(time.Millisecond, time.Duration(left)*time.Millisecond)
	if busy {
		wait = max(wait, waitForRequest)
	}
	if paused {
		wait = max(wait, waitForResume)
	}
	return wait, nil
}

// Settle reports that the request of a reservation has ended. The host opens after its delay,
// or later if it was charged for more. Settle does nothing if r was not granted, was settled
// before, or has expired and the host was used since.
func (s *Store) Settle(ctx context.Context, r Reservation) error {
	if !r.Granted() {
		return nil
	}
	const next = `{now} + 1 + {max}(COALESCE(delay_ms, ?), crawl_delay_ms)`
	_, err := s.db.Update(ctx, "settle the reservation of host "+r.Host, `UPDATE hosts SET reserved_until = 0, next_at = `+next+`,
			due_at = CASE WHEN due_at IS NOT NULL THEN {min}(due_at, {max}(blocked_until, `+next+`)) END
		WHERE host = ? AND next_at = ? AND reserved_until = next_at`, s.delayMS, s.delayMS, r.Host, r.Until)
	return err
}
