package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fetchd/frontier/store/database"
)

// postgresDB is a Store in PostgreSQL. It calls the functions that its migrations define. Each call is
// one round trip and one transaction.
type postgresDB struct {
	*core
}

// postgresWords are the placeholders that need functions or tables of the frontier: {vacant} (the host of a
// robots row has no URL) and {unused} (Prune deletes host h).
var postgresWords = []string{"{vacant}", "NOT frontier_has_urls(robots.origin)", "{unused}", fmt.Sprintf("frontier_unused(h, %d)", millis(unusedFor))}

func openPostgres(ctx context.Context, dsn string, config database.Config, delayMS int64) (engine, error) {
	config.Words = postgresWords
	db, err := database.OpenPostgres(ctx, dsn, config)
	if err != nil {
		return nil, err
	}
	p := &postgresDB{&core{db: db, delayMS: delayMS}}
	p.own = p
	return p, nil
}

// Close implements [Store].
func (p *postgresDB) Close() error { return p.db.Close() }

// Put implements [Store].
func (p *postgresDB) Put(ctx context.Context, entries []Entry, limits Limits) (PutResult, error) {
	good, bad := normaliseAll(entries)
	r := PutResult{Bad: bad}
	if len(good) > 0 {
		list, err := toJSON(good)
		if err == nil {
			row := p.db.QueryRowContext(ctx, `SELECT added, over, over_host, named FROM frontier_put_entries($1, $2, $3)`, list, limits.URLs, limits.URLsPerHost)
			err = row.Scan(&r.Added, &r.Over, &r.OverHost, &r.hosts)
		}
		if err != nil {
			return PutResult{}, fmt.Errorf("put URLs: %w", err)
		}
	}
	r.Known = int64(len(entries)-len(bad)) - r.Added - r.Over - r.OverHost
	return r, nil
}

// Recrawl implements [Store].
func (p *postgresDB) Recrawl(ctx context.Context) (int64, error) {
	return p.db.Int(ctx, "look for URLs to fetch again", `SELECT frontier_recrawl($1)`, recrawlChunk)
}

// Claim implements [Store].
func (p *postgresDB) Claim(ctx context.Context, params ClaimParams) ([]Claim, error) {
	params = params.withDefaults()
	rows, err := p.db.QueryContext(ctx, `SELECT * FROM frontier_take($1, $2, $3, $4, $5, $6, $7)`, params.Limit, millis(params.Lease), params.Worker,
		millis(params.Ahead), maxRow, maxRows, p.delayMS)
	claims, err := collect(rows, err, func(c *Claim) []any {
		return []any{&c.ID, &c.Token, &c.URL, &c.Host, &c.FailureCount, &c.CrashCount, &c.ETag, &c.LastModified, &c.BodyDigest,
			&c.Earlier.RecordID, &c.Earlier.URL, &c.Earlier.Date, &c.Earlier.PayloadDigest, &c.Kind, &c.Priority, &c.Depth, &c.Parent, &c.Need.PageID, &c.Need.Hops, &c.Metadata, span{&c.Recrawl}, &c.Digest, span{&c.Delay}, &c.Behind}
	})
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return claims, nil
}

// RecordFetch implements [Store].
func (p *postgresDB) RecordFetch(ctx context.Context, fetches []Fetch) ([]error, error) {
	ready, results := items(fetches)
	if len(ready) == 0 {
		return results, nil
	}
	list, err := toJSON(ready)
	var recorded map[Lease]bool
	if err == nil {
		recorded, err = p.leases(ctx, `SELECT * FROM frontier_record($1, $2)`, list, p.delayMS)
	}
	if err != nil {
		return nil, fmt.Errorf("record fetches: %w", err)
	}
	for _, it := range ready {
		if recorded[Lease{ID: it.ID, Token: it.Token}] {
			results[it.place] = nil
		}
	}
	return results, nil
}

// leases returns the leases that a query returned.
func (p *postgresDB) leases(ctx context.Context, query string, args ...any) (map[Lease]bool, error) {
	rows, err := p.db.QueryContext(ctx, query, args...)
	list, err := collect(rows, err, func(l *Lease) []any { return []any{&l.ID, &l.Token} })
	set := make(map[Lease]bool)
	for _, l := range list {
		set[l] = true
	}
	return set, err
}

// Extend implements [Store].
func (p *postgresDB) Extend(ctx context.Context, leases []Lease, d time.Duration) ([]Lease, error) {
	return p.each(ctx, "extend leases", leases, `WITH held AS (
			SELECT u.id FROM urls u JOIN jsonb_to_recordset($1) AS x (id bigint, token bigint) ON u.id = x.id AND u.token = x.token
			WHERE u.status || '' = 'fetching' ORDER BY u.id FOR UPDATE OF u)
		UPDATE urls SET lease_until = GREATEST(lease_until, frontier_now() + $2) FROM held WHERE urls.id = held.id RETURNING urls.id, urls.token`,
		millis(d))
}

// Release implements [Store].
func (p *postgresDB) Release(ctx context.Context, leases []Lease) ([]Lease, error) {
	return p.each(ctx, "release leases", leases, `SELECT * FROM frontier_release($1)`)
}

// Abandon implements [Store].
func (p *postgresDB) Abandon(ctx context.Context, leases []Lease) ([]Lease, error) {
	return p.each(ctx, "abandon leases", leases, `SELECT * FROM frontier_abandon($1, $2)`, p.delayMS)
}

// LeaveHosts implements [Store].
func (p *postgresDB) LeaveHosts(ctx context.Context, leases []Lease) ([]Lease, error) {
	return p.each(ctx, "leave hosts", leases, `SELECT * FROM frontier_depart($1, $2)`, p.delayMS)
}

// each runs a query on leases, and returns those of them that the query returned.
func (p *postgresDB) each(ctx context.Context, doing string, leases []Lease, query string, args ...any) ([]Lease, error) {
	text, err := toJSON(append([]Lease{}, leases...)) // not null
	var held map[Lease]bool
	if err == nil {
		held, err = p.leases(ctx, query, append([]any{text}, args...)...)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return slices.DeleteFunc(slices.Clone(leases), func(l Lease) bool { return !held[l] }), nil
}

// Reap implements [Store].
func (p *postgresDB) Reap(ctx context.Context) (int64, error) {
	return p.db.Int(ctx, "reap", `SELECT frontier_reap($1)`, p.delayMS)
}

// Left implements [Store].
func (p *postgresDB) Left(ctx context.Context) (bool, error) {
	return p.db.Bool(ctx, "look for URLs that are left", `SELECT frontier_left()`)
}

// again implements changes.
func (p *postgresDB) again(ctx context.Context, ids []int64, a again) (int64, error) {
	return p.db.Int(ctx, "make URLs pending", `SELECT frontier_again($1, $2, $3, $4)`, ids, a.fetched, a.class, a.until)
}

// abort implements changes.
func (p *postgresDB) abort(ctx context.Context, ids []int64, class, text string) (int64, error) {
	return p.db.Int(ctx, "make URLs dead", `SELECT frontier_abort_some($1, $2, $3)`, ids, class, text)
}

// prune implements changes.
func (p *postgresDB) prune(ctx context.Context, ids []int64, pr pruning) (int64, error) {
	statuses := make([]string, len(pr.statuses))
	for i, s := range pr.statuses {
		statuses[i] = string(s)
	}
	return p.db.Int(ctx, "delete", `SELECT frontier_prune($1, $2, $3)`, ids, statuses, pr.until)
}

// pruneHosts implements changes.
func (p *postgresDB) pruneHosts(ctx context.Context, ids []int64) (int64, error) {
	return p.db.Int(ctx, "delete", `SELECT frontier_prune_hosts($1, $2)`, ids, millis(unusedFor))
}

// takeTurns implements engine.
func (p *postgresDB) takeTurns(ctx context.Context, asks []turnAsk) ([]turnWait, error) {
	list, err := toJSON(asks)
	if err != nil {
		return nil, err
	}
	rows, err := p.db.QueryContext(ctx, `SELECT * FROM frontier_take_turns($1, $2, $3)`, list, p.delayMS, promisedAhead.Milliseconds())
	waits, err := collect(rows, err, func(w *turnWait) []any { return []any{&w.ID, &w.Token, &w.WaitMS, &w.Promised} })
	if err != nil {
		return nil, fmt.Errorf("take turns of groups: %w", err)
	}
	return waits, nil
}

// endTurns implements engine.
func (p *postgresDB) endTurns(ctx context.Context, ends []turnEnd) error {
	return p.call(ctx, "end turns of groups", `SELECT frontier_end_turns($1, $2)`, ends, p.delayMS)
}

// extendTurns implements engine.
func (p *postgresDB) extendTurns(ctx context.Context, leases []Lease, d time.Duration) error {
	return p.call(ctx, "extend turns of groups", `WITH held AS (
			SELECT t.url_id, t.token FROM turns t JOIN jsonb_to_recordset($1) AS x (id bigint, token bigint) ON t.url_id = x.id AND t.token = x.token
			ORDER BY t.url_id, t.token FOR UPDATE OF t)
		UPDATE turns t SET ends_at = GREATEST(t.ends_at, frontier_now() + $2) FROM held h WHERE t.url_id = h.url_id AND t.token = h.token`, append([]Lease{}, leases...), millis(d))
}

// lineUp implements engine.
func (p *postgresDB) lineUp(ctx context.Context, waits []turnWait) error {
	return p.call(ctx, "have hosts wait for their groups", `SELECT frontier_line_up($1)`, waits)
}

func (p *postgresDB) call(ctx context.Context, doing, query string, list any, args ...any) error {
	text, err := toJSON(list)
	if err == nil {
		_, err = p.db.ExecContext(ctx, query, append([]any{text}, args...)...)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
