package store

import (
	"context"
	"fmt"

	"fetchd/frontier/store/database"
)

// sqliteDB has the same calls as postgresDB, in statements that SQLite knows. Each is one transaction.
type sqliteDB struct {
	*core
	lite *database.SQLite
}

// sqliteWords are the same placeholders as postgresWords.
var sqliteWords = []string{"{unused}", fmt.Sprintf(`h.in_flight = 0 AND NOT h.paused AND h.delay_ms IS NULL AND h.max_in_flight = 1
		AND max(h.next_at, h.blocked_until) <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - CASE WHEN h.crawl_delay_ms > 0 THEN %[1]d + 86400000 ELSE %[1]d END
		AND NOT EXISTS (SELECT 1 FROM urls u WHERE u.host_id = h.id)`, millis(unusedFor)),
	"{vacant}", `NOT EXISTS (SELECT 1 FROM hosts h JOIN urls u ON u.host_id = h.id
		WHERE h.host = replace(replace(robots.origin, 'https://', ''), 'http://', ''))`}

func openSQLite(ctx context.Context, path string, config database.Config, delayMS int64) (*Store, error) {
	lite, err := database.OpenSQLite(ctx, path, config)
	if err != nil {
		return nil, err
	}
	c := &core{lite.DB, delayMS}
	return &Store{c, &sqliteDB{c, lite}}, nil
}

// Close implements queue.
func (s *sqliteDB) Close() error { return s.lite.Close() }

// tx is a transaction that changes the frontier.
type tx struct {
	database.Tx
	delayMS int64
}

// do runs f in a transaction. doing is the start of the error text.
func (s *sqliteDB) do(ctx context.Context, doing string, f func(tx) error) error {
	return s.lite.Do(ctx, doing, func(t database.Tx) error { return f(tx{t, s.delayMS}) })
}
