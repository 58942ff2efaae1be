package store

import (
	"context"
	"time"

	"fetchd/frontier/store/database"
)

const (
	firstBlock   = time.Minute
	longestBlock = 24 * time.Hour
	blockReset   = 30 * time.Minute // without a block, after which the next is a first one
)

// DelayHosts reports that a request to each of hosts has just ended. Their URLs are not claimed
// until the delay has passed. Each host is a separate statement, so locks have no order to keep.
func (s *Store) DelayHosts(ctx context.Context, hosts []string) error {
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

// Block closes a host for retryAfter. If that is zero, it closes the host for 60 s, and for
// twice as long each further time up to a day, until the host was open for 30 minutes. It
// never shortens a block. Fetches that end during a block have the same cause, so they do not
// double it.
func (s *Store) Block(ctx context.Context, host string, retryAfter time.Duration) error {
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

// SetHost changes the settings of a host, known or not, that params has.
func (s *Store) SetHost(ctx context.Context, host string, params HostParams) error {
	if err := s.addHost(ctx, host); err != nil {
		return err
	}
	if d := params.Delay; d != nil {
		var delay any
		if *d >= 0 {
			delay = millis(*d)
		}
		if err := s.setHost(ctx, host, "delay_ms", delay); err != nil {
			return err
		}
	}
	if d := params.CrawlDelay; d != nil {
		if err := s.setHost(ctx, host, "crawl_delay_ms", millis(*d)); err != nil {
			return err
		}
	}
	if n := params.MaxInFlight; n != nil {
		return s.setHost(ctx, host, "max_in_flight", *n)
	}
	return nil
}

// setHost sets a column, and has the next claim look at the host again.
func (s *Store) setHost(ctx context.Context, host, column string, value any) error {
	_, err := s.db.Update(ctx, "set "+column+" of host "+host,
		`UPDATE hosts SET `+column+` = ?, due_at = {max}(next_at, blocked_until) WHERE host = ?`, value, host)
	return err
}

// addHost adds the host's row if it is missing. A new row is not due until a URL is put. Prune does not
// delete the row before the caller has changed it, because it looks as if the host had just opened.
func (s *Store) addHost(ctx context.Context, host string) error {
	_, err := s.db.Update(ctx, "add host "+host, `INSERT INTO hosts (host, next_at) VALUES (?, {now})
		ON CONFLICT (host) DO UPDATE SET next_at = {max}(hosts.next_at, excluded.next_at)`, host)
	return err
}

// Knows reports whether a host was ever named to the frontier: by a URL, by a redirect, or by
// a call that sets, blocks, charges, reserves or pauses it. The frontier has no URL of an
// unknown host. Knows reads one row.
func (s *Store) Knows(ctx context.Context, host string) (bool, error) {
	return database.Scalar[bool](ctx, s.db, "look for host "+host, `SELECT EXISTS (SELECT 1 FROM hosts WHERE host = ?)`, host)
}

// Pause stops claims of one host, or of the whole crawl if host is empty.
func (s *Store) Pause(ctx context.Context, host string) error {
	if host == "" {
		_, err := s.db.Update(ctx, "pause the crawl", `INSERT INTO settings (name, value) VALUES ('paused', 'true') ON CONFLICT (name) DO NOTHING`)
		return err
	}
	if err := s.addHost(ctx, host); err != nil {
		return err
	}
	return s.setHost(ctx, host, "paused", true)
}

// Resume undoes the Pause with the same argument, and no other.
func (s *Store) Resume(ctx context.Context, host string) error {
	if host == "" {
		_, err := s.db.Update(ctx, "resume the crawl", `DELETE FROM settings WHERE name = 'paused'`)
		return err
	}
	return s.setHost(ctx, host, "paused", false)
}

// Postpone makes URLs wait for d whose leases were released. Other URLs of their hosts do not wait. A
// worker may have claimed some of them since; these do not change. It leaves due_at, which may be early.
func (s *Store) Postpone(ctx context.Context, released []Lease, d time.Duration) error {
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
