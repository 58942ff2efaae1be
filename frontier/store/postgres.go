package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// postgresDB calls the functions that its migrations define. Each call is one round trip and one
// transaction.
type postgresDB struct {
	core
}

var _ Store = (*postgresDB)(nil)

// postgresConnections is the default of Config.Connections.
const postgresConnections = 8

func openPostgres(ctx context.Context, dsn string, config Config) (Store, error) {
	settings, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL: %w", err)
	}
	if !strings.Contains(dsn, "default_query_exec_mode") {
		// A pooler between may give each transaction another connection, so there are no prepared statements.
		settings.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	db := stdlib.OpenDB(*settings)
	connections := cmp.Or(config.Connections, postgresConnections)
	db.SetMaxOpenConns(max(connections, 2)) // for a migration
	db.SetMaxIdleConns(connections)
	p := &postgresDB{}
	p.core = core{
		db: db, chunks: p, exec: p.execOne, one: p.queryOne, delayMS: millis(config.Delay), numbered: true,
		words: strings.NewReplacer("{now}", "frontier_now()", "{max}", "GREATEST", "{min}", "LEAST",
			"{ids}", "= ANY (ARRAY (SELECT jsonb_array_elements_text(?)::bigint))",
			"{among}", "= ANY (ARRAY (SELECT jsonb_array_elements_text(?)))", "{hashed}", "= ANY (ARRAY (SELECT decode(x, 'hex') FROM jsonb_array_elements_text(?) AS x))",
			"{migrated}", "to_regclass('goose_db_version') IS NOT NULL", "{vacant}", "NOT frontier_has_urls(robots.origin)",
			"{unused}", fmt.Sprintf("frontier_unused(h, %d)", millis(unusedFor))),
	}
	if err := p.prepare(ctx, config.ReadOnly); err != nil {
		return nil, errors.Join(fmt.Errorf("open PostgreSQL: %w", err), db.Close())
	}
	db.SetMaxOpenConns(connections)
	return p, nil
}

// prepare migrates the database if it must be, and may be.
func (p *postgresDB) prepare(ctx context.Context, readOnly bool) error {
	var isolation string
	var reads, standby bool
	err := p.db.QueryRowContext(ctx, `SELECT current_setting('default_transaction_isolation'), current_setting('transaction_read_only')::bool, pg_is_in_recovery()`).
		Scan(&isolation, &reads, &standby)
	switch {
	case err != nil:
		return err
	case isolation != "read committed":
		return fmt.Errorf("%w: it is %s", ErrIsolation, isolation)
	case readOnly:
	case standby:
		return fmt.Errorf("%w: this server is a standby", ErrReadOnly)
	case reads:
		return fmt.Errorf("%w: default_transaction_read_only is on", ErrReadOnly)
	}
	list, err := provider(p.db, goose.DialectPostgres, "postgres")
	if err != nil {
		return err
	}
	for {
		switch err := p.check(ctx, list); {
		case err == nil && !readOnly:
			return p.checkRole(ctx)
		case readOnly || !errors.Is(err, ErrOlderSchema):
			return err
		}
		if done, err := p.migrateAlone(ctx, list); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// checkRole returns an error if the role may only read. A worker would repeat its calls for ever.
func (p *postgresDB) checkRole(ctx context.Context) error {
	may, err := scalar[bool](ctx, p.db, "read the privileges of the role", `SELECT has_table_privilege('urls', 'UPDATE')`)
	if err == nil && !may {
		return fmt.Errorf("%w: the role may not update the table urls", ErrReadOnly)
	}
	return err
}

// migrateAlone migrates under a lock, and reports whether it got the lock. A transaction holds the lock,
// because a pooler may give it a connection for no longer. It does not wait for the lock, because the
// migration may need the connection that would wait.
func (p *postgresDB) migrateAlone(ctx context.Context, list *goose.Provider) (alone bool, err error) {
	const key = 0x66726f6e74696572 // "frontier"
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // it has done nothing
	if _, err := tx.ExecContext(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
		return false, err
	}
	err = tx.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock($1)`, key).Scan(&alone)
	if err != nil || !alone {
		return false, err
	}
	return true, p.migrate(ctx, list)
}

// Close implements [Store].
func (p *postgresDB) Close() error { return p.db.Close() }

func (p *postgresDB) execOne(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := p.db.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (p *postgresDB) queryOne(ctx context.Context, query string, args []any, into ...any) (bool, error) {
	return found(p.db.QueryRowContext(ctx, query, args...).Scan(into...))
}

// Put implements [Store].
func (p *postgresDB) Put(ctx context.Context, entries []Entry, limits Limits) (PutResult, error) {
	good, bad := normaliseAll(entries)
	r := PutResult{Bad: bad}
	if len(good) == 0 {
		return r, nil
	}
	list, err := toJSON(good)
	if err == nil {
		row := p.db.QueryRowContext(ctx, `SELECT added, over, over_host FROM frontier_put_entries($1, $2, $3)`, list, limits.URLs, limits.URLsPerHost)
		err = row.Scan(&r.Added, &r.Over, &r.OverHost)
	}
	if err != nil {
		return PutResult{}, fmt.Errorf("put URLs: %w", err)
	}
	r.Known = int64(len(entries)-len(bad)) - r.Added - r.Over - r.OverHost
	return r, nil
}

func toJSON(list any) (string, error) {
	b, err := json.Marshal(list)
	return string(b), err
}

// Recrawl implements [Store].
func (p *postgresDB) Recrawl(ctx context.Context) (int64, error) {
	return scalar[int64](ctx, p.db, "look for URLs to fetch again", `SELECT frontier_recrawl($1)`, recrawlChunk)
}

// Claim implements [Store].
func (p *postgresDB) Claim(ctx context.Context, params ClaimParams) ([]Claim, error) {
	params = params.withDefaults()
	rows, err := p.db.QueryContext(ctx, `SELECT * FROM frontier_take($1, $2, $3)`, params.Limit, millis(params.Lease), params.Worker)
	claims, err := collect(rows, err, func(scan func(...any) error) (c Claim, err error) {
		var recrawl int64
		err = scan(&c.ID, &c.Token, &c.URL, &c.Host, &c.FailureCount, &c.CrashCount, &c.ETag, &c.LastModified, &c.BodyDigest,
			&c.Earlier.RecordID, &c.Earlier.URL, &c.Earlier.Date, &c.Earlier.PayloadDigest, &c.Kind, &c.Priority, &c.Depth, &c.Metadata, &recrawl)
		c.Recrawl = time.Duration(recrawl) * time.Millisecond
		return c, err
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
	list, err := collect(rows, err, func(scan func(...any) error) (l Lease, err error) {
		err = scan(&l.ID, &l.Token)
		return l, err
	})
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
	type row struct {
		ID    int64 `json:"id"`
		Token int64 `json:"token"`
	}
	list := make([]row, len(leases))
	for i, l := range leases {
		list[i] = row(l)
	}
	text, err := toJSON(list)
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
	return scalar[int64](ctx, p.db, "reap", `SELECT frontier_reap($1)`, p.delayMS)
}

// Left implements [Store].
func (p *postgresDB) Left(ctx context.Context) (bool, error) {
	return scalar[bool](ctx, p.db, "look for URLs that are left", `SELECT frontier_left()`)
}

// again implements chunks.
func (p *postgresDB) again(ctx context.Context, ids []int64, a again) (int64, error) {
	return scalar[int64](ctx, p.db, "make URLs pending", `SELECT frontier_again($1, $2, $3, $4)`, ids, a.fetched, a.class, a.until)
}

// abort implements chunks.
func (p *postgresDB) abort(ctx context.Context, ids []int64, class, text string) (int64, error) {
	return scalar[int64](ctx, p.db, "make URLs dead", `SELECT frontier_abort_some($1, $2, $3)`, ids, class, text)
}

// prune implements chunks.
func (p *postgresDB) prune(ctx context.Context, ids []int64, pr pruning) (int64, error) {
	statuses := make([]string, len(pr.statuses))
	for i, s := range pr.statuses {
		statuses[i] = string(s)
	}
	return scalar[int64](ctx, p.db, "delete", `SELECT frontier_prune($1, $2, $3)`, ids, statuses, pr.until)
}

// pruneHosts implements chunks.
func (p *postgresDB) pruneHosts(ctx context.Context, ids []int64) (int64, error) {
	return scalar[int64](ctx, p.db, "delete", `SELECT frontier_prune_hosts($1, $2)`, ids, millis(unusedFor))
}
