package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	firstBlock   = time.Minute
	longestBlock = 24 * time.Hour
	blockReset   = 30 * time.Minute // without a block, after which the next is a first one
)

// DelayHosts implements [Store].
func (s *core) DelayHosts(ctx context.Context, hosts []string) error {
	for _, host := range hosts {
		_, err := s.db.Update(ctx, "delay host "+host, `INSERT INTO hosts (host, next_at) VALUES (?, {now} + 1 + ?)
			ON CONFLICT (host) DO UPDATE SET
				next_at = {max}(hosts.next_at, {now} + 1 + {max}(COALESCE(hosts.delay_ms, ?), hosts.crawl_delay_ms))`,
			host, s.delayMS, s.delayMS)
		if err != nil {
			return err
		}
	}
	return nil
}

// Block implements [Store].
func (s *core) Block(ctx context.Context, host string, retryAfter time.Duration) error {
	if err := s.addHost(ctx, host); err != nil {
		return err
	}
	if retryAfter > 0 {
		_, err := s.db.Update(ctx, "block host "+host, `UPDATE hosts SET blocked_until = {max}(blocked_until, {now} + 1 + ?) WHERE host = ?`,
			millis(retryAfter), host)
		return err
	}
	const next = `CASE WHEN block_ms = 0 OR {now} > blocked_until + ? THEN ?
		WHEN block_ms >= ? / 2 THEN ? ELSE block_ms * 2 END`
	first, longest, reset := millis(firstBlock), millis(longestBlock), millis(blockReset)
	_, err := s.db.Update(ctx, "block host "+host, `UPDATE hosts SET block_ms = `+next+`, blocked_until = {now} + 1 + `+next+`
		WHERE host = ? AND blocked_until <= {now}`,
		reset, first, longest, longest, reset, first, longest, longest, host)
	return err
}

// SetHost implements [Store].
func (s *core) SetHost(ctx context.Context, host string, params HostParams) error {
	for column, value := range params.columns() {
		if err := s.setHost(ctx, host, column, value); err != nil {
			return err
		}
	}
	return nil
}

// SetGroup implements [Store].
func (s *core) SetGroup(ctx context.Context, name string, params HostParams) error {
	params.CrawlDelay = nil
	for column, value := range params.columns() {
		_, err := s.db.Update(ctx, "set "+column+" of group "+name, `INSERT INTO host_groups (name, `+column+`) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET `+column+` = excluded.`+column, name, value)
		if err != nil {
			return err
		}
	}
	return nil
}

// columns returns the settings that p changes, by column.
func (p HostParams) columns() map[string]any {
	columns := make(map[string]any)
	if d := p.Delay; d != nil {
		columns["delay_ms"] = nil
		if *d >= 0 {
			columns["delay_ms"] = millis(*d)
		}
	}
	if d := p.CrawlDelay; d != nil {
		columns["crawl_delay_ms"] = millis(*d)
	}
	if n := p.MaxInFlight; n != nil {
		columns["max_in_flight"] = *n
	}
	return columns
}

// setHost adds the host if it is missing, sets a column, and has the next claim look at the host again.
func (s *core) setHost(ctx context.Context, host, column string, value any) error {
	if err := s.addHost(ctx, host); err != nil {
		return err
	}
	return s.changeHost(ctx, host, column, value)
}

func (s *core) changeHost(ctx context.Context, host, column string, value any) error {
	_, err := s.db.Update(ctx, "set "+column+" of host "+host,
		`UPDATE hosts SET `+column+` = ?, due_at = {max}(next_at, blocked_until) WHERE host = ?`, value, host)
	return err
}

// addHost adds the host's row if it is missing. A new row is not due until a URL is put. Prune does not
// delete the row before the caller has changed it, because it looks as if the host had just opened.
func (s *core) addHost(ctx context.Context, host string) error {
	_, err := s.db.Update(ctx, "add host "+host, `INSERT INTO hosts (host, next_at) VALUES (?, {now})
		ON CONFLICT (host) DO UPDATE SET next_at = {max}(hosts.next_at, excluded.next_at)`, host)
	return err
}

// Knows implements [Store].
func (s *core) Knows(ctx context.Context, host string) (bool, error) {
	return s.db.Bool(ctx, "look for host "+host, `SELECT EXISTS (SELECT 1 FROM hosts WHERE host = ?)`, host)
}

// OtherPorts implements [Store].
func (s *core) OtherPorts(ctx context.Context, host string) ([]string, error) {
	name := strings.TrimRight(host, "0123456789")
	if name = strings.TrimSuffix(name, ":"); name == "" || !strings.Contains(host, name+":") {
		name = host // it has no port
	}
	rows, err := s.db.Query(ctx, `SELECT host FROM hosts WHERE host <> ? AND (host = ? OR substr(host, 1, ?) = ?) ORDER BY host LIMIT 3`, host, name, len(name)+1, name+":")
	return collect(rows, err, func(other *string) []any { return []any{other} })
}

// Pause implements [Store].
func (s *core) Pause(ctx context.Context, host string) error {
	if host == "" {
		_, err := s.db.Update(ctx, "pause the crawl", `INSERT INTO settings (name, value) VALUES ('paused', 'true') ON CONFLICT (name) DO NOTHING`)
		return err
	}
	return s.setHost(ctx, host, "paused", true)
}

// Resume implements [Store].
func (s *core) Resume(ctx context.Context, host string) error {
	if host == "" {
		_, err := s.db.Update(ctx, "resume the crawl", `DELETE FROM settings WHERE name = 'paused'`)
		return err
	}
	return s.changeHost(ctx, host, "paused", false)
}

// Postpone implements [Store].
func (s *core) Postpone(ctx context.Context, released []Lease, d time.Duration) error {
	ids := make([]int64, len(released))
	for i, l := range released {
		ids[i] = l.ID
	}
	list, err := toJSON(ids)
	if err != nil {
		return err
	}
	// A URL may have been claimed since, and may have failed. Then it keeps a later time.
	_, err = s.db.Update(ctx, "postpone URLs", `UPDATE urls SET ready_at = {max}(ready_at, {now} + ?) WHERE status IN ('pending', 'failed') AND id {ids}`, millis(d), list)
	return err
}

// Reservation is the result of [Store.Reserve].
type Reservation struct {
	Host  string
	Until int64         // when it expires, in milliseconds by the database's clock; zero if not granted
	Wait  time.Duration // after which to ask again; zero if granted
	// Address is where the host was last fetched from, see [Store.SetAddress]. Empty means that it is not known.
	Address string
	turn    Lease // of its group; zero if it has none
}

// Granted reports whether the caller may use the host, exclusively.
func (r Reservation) Granted() bool { return r.Until != 0 }

// Guesses for when a host opens, if the database does not say.
const (
	waitForRequest = 100 * time.Millisecond // until a fetch or another reservation ends
	waitForResume  = time.Second            // until a user resumes the host or the crawl
)

// Reserve implements [Store].
func (s *core) Reserve(ctx context.Context, host string, d time.Duration) (Reservation, error) {
	if d <= 0 {
		return Reservation{Host: host}, fmt.Errorf("reserve host %s for %v: the time must be more than zero", host, d)
	}
	r := Reservation{Host: host}
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
func (s *core) closedFor(ctx context.Context, host string) (time.Duration, error) {
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

// Settle implements [Store].
func (s *core) Settle(ctx context.Context, r Reservation) error {
	if !r.Granted() {
		return nil
	}
	const next = `{now} + 1 + {max}(COALESCE(delay_ms, ?), crawl_delay_ms)`
	_, err := s.db.Update(ctx, "settle the reservation of host "+r.Host, `UPDATE hosts SET reserved_until = 0, next_at = `+next+`,
			due_at = CASE WHEN due_at IS NOT NULL THEN {min}(due_at, {max}(blocked_until, `+next+`)) END
		WHERE host = ? AND next_at = ? AND reserved_until = next_at`, s.delayMS, s.delayMS, r.Host, r.Until)
	return err
}

// GoOn implements [Store].
func (s *core) GoOn(ctx context.Context, c Claim) (wait time.Duration, ok bool, err error) {
	ok, err = s.db.One(ctx, `SELECT {max}(next_at, blocked_until) - {now} FROM hosts WHERE host = ? AND NOT paused AND max_in_flight = 1
			AND {max}(COALESCE(delay_ms, ?), crawl_delay_ms) = ? AND {max}(http_deferred_until, https_deferred_until) <= {now}
			AND NOT EXISTS (SELECT 1 FROM settings WHERE name = 'paused')
			AND EXISTS (SELECT 1 FROM urls WHERE id = ? AND token = ? AND status = 'fetching' AND lease_until > {now})`, []any{c.Host, s.delayMS, millis(c.Delay), c.ID, c.Token}, span{&wait})
	if err != nil {
		return 0, false, fmt.Errorf("look whether host %s is open: %w", c.Host, err)
	}
	return max(0, wait), ok, nil
}

// SetAddress implements [Store]. Only groups need the address.
func (s *core) SetAddress(context.Context, string, string) error { return nil }
