package store

import (
	"context"
	"fmt"
	"time"
)

const (
	firstBlock = time.Minute
	longest    = 24 * time.Hour
	quiet      = 30 * time.Minute
)

// Charge implements [Store]. Each host is a statement of its own, so no order of locks is at stake.
func (c *core) Charge(ctx context.Context, hosts []string) error {
	for _, host := range hosts {
		_, err := c.update(ctx, `INSERT INTO hosts (host, next_at) VALUES (?, {now} + 1 + ?)
			ON CONFLICT (host) DO UPDATE SET
				next_at = {max}(hosts.next_at, {now} + 1 + {max}(COALESCE(hosts.delay_ms, ?), hosts.crawl_delay_ms))`,
			host, c.delayMS, c.delayMS)
		if err != nil {
			return fmt.Errorf("charge host %s: %w", host, err)
		}
	}
	return nil
}

// Block implements [Store]. Several fetches that end during a block had one
// cause, so the block is not doubled for each.
func (c *core) Block(ctx context.Context, host string, retryAfter time.Duration) error {
	if err := c.know(ctx, host); err != nil {
		return err
	}
	var err error
	if retryAfter > 0 {
		_, err = c.update(ctx, `UPDATE hosts SET blocked_until = {max}(blocked_until, {now} + 1 + ?) WHERE host = ?`,
			millis(retryAfter), host)
	} else {
		const next = `CASE WHEN block_ms = 0 OR {now} > blocked_until + ? THEN ?
			WHEN block_ms >= ? / 2 THEN ? ELSE block_ms * 2 END`
		day, first, pause := millis(longest), millis(firstBlock), millis(quiet)
		_, err = c.update(ctx, `UPDATE hosts SET block_ms = `+next+`, blocked_until = {now} + 1 + `+next+`
			WHERE host = ? AND blocked_until <= {now}`,
			pause, first, day, day, pause, first, day, day, host)
	}
	if err != nil {
		return fmt.Errorf("block host %s: %w", host, err)
	}
	return nil
}

// SetHost implements [Store].
func (c *core) SetHost(ctx context.Context, host string, params HostParams) error {
	if err := c.know(ctx, host); err != nil {
		return err
	}
	set := func(column string, value any) error {
		_, err := c.update(ctx, `UPDATE hosts SET `+column+` = ?, due_at = {max}(next_at, blocked_until) WHERE host = ?`, value, host)
		if err != nil {
			return fmt.Errorf("set %s of host %s: %w", column, host, err)
		}
		return nil
	}
	if d := params.Delay; d != nil {
		var value any
		if *d >= 0 {
			value = millis(*d)
		}
		if err := set("delay_ms", value); err != nil {
			return err
		}
	}
	if d := params.CrawlDelay; d != nil {
		if err := set("crawl_delay_ms", millis(*d)); err != nil {
			return err
		}
	}
	if n := params.MaxInFlight; n != nil {
		return set("max_in_flight", *n)
	}
	return nil
}

// know makes the host's row. One that nothing waits for is due for nobody.
func (c *core) know(ctx context.Context, host string) error {
	if _, err := c.update(ctx, `INSERT INTO hosts (host) VALUES (?) ON CONFLICT (host) DO NOTHING`, host); err != nil {
		return fmt.Errorf("add host %s: %w", host, err)
	}
	return nil
}

// Knows implements [Store].
func (c *core) Knows(ctx context.Context, host string) (known bool, err error) {
	err = c.db.QueryRowContext(ctx, c.say(`SELECT EXISTS (SELECT 1 FROM hosts WHERE host = ?)`), host).Scan(&known)
	if err != nil {
		return false, fmt.Errorf("look for host %s: %w", host, err)
	}
	return known, nil
}

// Pause implements [Store].
func (c *core) Pause(ctx context.Context, host string) error {
	if host == "" {
		return c.pauseCrawl(ctx, `INSERT INTO settings (name, value) VALUES ('paused', 'true') ON CONFLICT (name) DO NOTHING`)
	}
	if err := c.know(ctx, host); err != nil {
		return err
	}
	return c.pauseHost(ctx, host, true)
}

// Resume implements [Store].
func (c *core) Resume(ctx context.Context, host string) error {
	if host == "" {
		return c.pauseCrawl(ctx, `DELETE FROM settings WHERE name = 'paused'`)
	}
	return c.pauseHost(ctx, host, false)
}

func (c *core) pauseCrawl(ctx context.Context, query string) error {
	if _, err := c.update(ctx, query); err != nil {
		return fmt.Errorf("pause or resume the crawl: %w", err)
	}
	return nil
}

func (c *core) pauseHost(ctx context.Context, host string, paused bool) error {
	_, err := c.update(ctx, `UPDATE hosts SET paused = ?, due_at = {max}(next_at, blocked_until) WHERE host = ?`, paused, host)
	if err != nil {
		return fmt.Errorf("pause or resume host %s: %w", host, err)
	}
	return nil
}
