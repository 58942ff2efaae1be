package store

import (
	"context"
	"fmt"
)

// AbortHost implements [Store].
func (s *sqliteDB) AbortHost(ctx context.Context, host, class, text string) (ended int64, err error) {
	err = s.within(ctx, func(t tx) error {
		ended, err = t.exec(`UPDATE urls SET status = 'dead', error_class = ?, last_error = ?
			WHERE host_id = (SELECT id FROM hosts WHERE host = ?) AND status IN ('pending', 'failed')`, clean(class), clean(text), host)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("give up host %s: %w", host, err)
	}
	return ended, nil
}

// AbortHost implements [Store].
func (p *postgresDB) AbortHost(ctx context.Context, host, class, text string) (ended int64, err error) {
	if err := p.db.QueryRowContext(ctx, `SELECT frontier_abort($1, $2, $3)`, host, clean(class), clean(text)).Scan(&ended); err != nil {
		return 0, fmt.Errorf("give up host %s: %w", host, err)
	}
	return ended, nil
}
