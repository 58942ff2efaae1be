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

// DelayHosts implements [Store]. Each host is a separate statement, so locks have no order to keep.
func (c *core) DelayHosts(ctx context.Context, hosts []string) error {
	for _, host := range hosts {
		_, err := c.db.Update(ctx, "delay host "+host, `INSERT INTO hosts (host, next_at) VALUES (?, {now} + 1 + ?)
			ON CONFLICT (host) DO UPDATE SET
				next_at = {max}(hosts.next_at, {now} + 1 + {max}(COALESCE(hosts.delay_ms, ?), hosts.crawl_delay_ms))`,
			host, c.delayMS, c.delayMS)
		if err != nil {
			return err
		}
	}
	return nil
}

// Block implements [Store]. Fetches that end during a block have the same cause, so they do not
// double it.
func (c *core) Block(ctx context.Context, host string, retryAfter time.Duration) error {
	if err := c.addHost(ctx, host); err != nil {
		return err
	}
	if retryAfter > 0 {
		_, err := c.db.Update(ctx, "block host "+host, `UPDATE hosts SET blocked_until = {max}(blocked_until, {now} + 1 + ?) WHERE host = ?`,
			millis(retryAfter), host)
		return err
	}
	const next = `CASE WHEN block_ms = 0 OR {now} > blocked_until + ? THEN ?
		WHEN block_ms >= ? / 2 THEN ? ELSE block_ms * 2 END`
	first, longest, reset := millis(firstBlock), millis(longestBlock), millis(blockReset)
	_, err := c.db.Update(ctx, "block host "+host, `UPDATE hosts SET block_ms = `+next+`, blocked_until = {now} + 1 + `+next+`
		WHERE host = ? AND blocked_until <= {now}`,
		reset, first, longest, longest, reset, first, longest, longest, host)
	return err
}

// SetHost implements [Store].
func (c *core) SetHost(ctx context.Context, host string, params HostParams) error {
	if err := c.addHost(ctx, host); err != nil {
		return err
	}
	if d := params.Delay; d != nil {
		var delay any
		if *d >= 0 {
			delay = millis(*d)
		}
		if err := c.setHost(ctx, host, "delay_ms", delay); err != nil {
			return err
		}
	}
	if d := params.CrawlDelay; d != nil {
		if err := c.setHost(ctx, host, "crawl_delay_ms", millis(*d)); err != nil {
			return err
		}
	}
	if n := params.MaxInFlight; n != nil {
		return c.setHost(ctx, host, "max_in_flight", *n)
	}
	return nil
}

// setHost sets a column, and has the next claim look at the host again.
func (c *core) setHost(ctx context.Context, host, column string, value any) error {
	_, err := c.db.Update(ctx, "set "+column+" of host "+host,
		`UPDATE hosts SET `+column+` = ?, due_at = {max}(next_at, blocked_until) WHERE host = ?`, value, host)
	return err
}

// addHost adds the host's row if it is missing. A new row is not due until a URL is put. Prune does not
// delete the row before the caller has changed it, because it looks as if the host had just opened.
func (c *core) addHost(ctx context.Context, host string) error {
	_, err := c.db.Update(ctx, "add host "+host, `INSERT INTO hosts (host, next_at) VALUES (?, {now})
		ON CONFLICT (host) DO UPDATE SET next_at = {max}(hosts.next_at, excluded.next_at)`, host)
	return err
}

// Knows implements [Store].
func (c *core) Knows(ctx context.Context, host string) (bool, error) {
	return database.Scalar[bool](ctx, c.db, "look for host "+host, `SELECT EXISTS (SELECT 1 FROM hosts WHERE host = ?)`, host)
}

// Pause implements [Store].
func (c *core) Pause(ctx context.Context, host string) error {
	if host == "" {
		_, err := c.db.Update(ctx, "pause the crawl", `INSERT INTO settings (name, value) VALUES ('paused', 'true') ON CONFLICT (name) DO NOTHING`)
		return err
	}
	if err := c.addHost(ctx, host); err != nil {
		return err
	}
	return c.setHost(ctx, host, "paused", true)
}

// Resume implements [Store].
func (c *core) Resume(ctx context.Context, host string) error {
	if host == "" {
		_, err := c.db.Update(ctx, "resume the crawl", `DELETE FROM settings WHERE name = 'paused'`)
		return err
	}
	return c.setHost(ctx, host, "paused", false)
}
