package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// moveWait is how long a call waits for a slot that moves.
	moveWait = 30 * time.Second
	// moveLook is how long such a call waits before it looks again.
	moveLook = 100 * time.Millisecond
)

// onHost calls f with the database of a host and the name that the host has there: it has another one while its URLs are
// copied into another database, and what changes the host then moves with it. f reports whether it has found the host.
// While the host itself is copied, onHost waits, and then calls f at its new place.
func (s *Store) onHost(ctx context.Context, host string, f func(ctx context.Context, s *Store, name string) (found bool, err error)) error {
	return s.onNames(ctx, host, []string{host, "gone " + host}, f)
}

// onHostURLs is onHost for what changes or reads the URLs of a host: it waits until the host is at its new place.
func (s *Store) onHostURLs(ctx context.Context, host string, f func(ctx context.Context, s *Store) (found bool, err error)) error {
	return s.onNames(ctx, host, []string{host}, func(ctx context.Context, s *Store, _ string) (bool, error) { return f(ctx, s) })
}

func (s *Store) onNames(ctx context.Context, host string, names []string, f func(ctx context.Context, s *Store, name string) (bool, error)) error {
	if s.many == nil {
		_, err := f(ctx, s, host)
		return err
	}
	return s.many.untilMoved(ctx, hostSlot(host), func(p *part) (moves bool, err error) {
		for _, name := range names {
			if moves, err = p.onName(ctx, host, name, f); !moves || err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// onName calls f, and reports whether the host moves, or has moved.
func (p *part) onName(ctx context.Context, host, name string, f func(ctx context.Context, s *Store, name string) (bool, error)) (moves bool, err error) {
	err = p.do(ctx, true, func(ctx context.Context) error {
		found, err := f(ctx, p.Store, name)
		if err != nil || found {
			return err
		}
		// Before its slot is handed over, a host that is not there by any name is unknown.
		moves, err = p.db.Bool(ctx, "read a slot", `SELECT NOT EXISTS (SELECT 1 FROM slots WHERE slot = ? AND (open OR leaving AND NOT EXISTS (SELECT 1 FROM hosts WHERE host IN (?, ?))))`,
			hostSlot(host), "gone "+host, "left "+host)
		return err
	})
	if isMoved(err) {
		return true, nil
	}
	return moves, err
}

// isMoved reports whether a database has said that it does not have a host.
func isMoved(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == movedCode
}

// stayed returns the slots that were open before a call of f and after it: what f does to their hosts moves with them.
func (p *part) stayed(ctx context.Context, f func() error) (open [slotCount]bool, err error) {
	const query = `SELECT slot FROM slots WHERE open`
	if open, err = p.slots(ctx, query); err != nil {
		return open, err
	}
	if err := f(); err != nil {
		return open, err
	}
	after, err := p.slots(ctx, query)
	for slot := range open {
		open[slot] = open[slot] && after[slot]
	}
	return open, err
}

// inSlot calls f if a slot is open, and reports whether the slot moves.
func (p *part) inSlot(ctx context.Context, slot int, f func() error) (moves bool, err error) {
	err = p.do(ctx, true, func(ctx context.Context) error {
		for range 2 {
			moves, err = p.db.Bool(ctx, "read a slot", `SELECT NOT EXISTS (SELECT 1 FROM slots WHERE slot = ? AND open)`, slot)
			if err != nil || moves || f == nil {
				return err
			}
			if err := f(); err != nil {
				return err
			}
			f = nil
		}
		return nil
	})
	return moves, err
}

// untilMoved calls f with the database of a slot until f does not report that the slot moves.
func (m *shards) untilMoved(ctx context.Context, slot int, f func(p *part) (moves bool, err error)) error {
	for end := time.Now().Add(moveWait); ; {
		table := m.table.Load()
		moves, err := f(m.parts[table.Slots[slot]])
		switch {
		case err != nil || !moves:
			return err
		case time.Now().After(end):
			return fmt.Errorf("slot %d moves from database %d: repeat this later, or finish the move with \"frontier shards move\": %w", slot, table.Slots[slot], ErrUnreachable)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("slot %d moves: %w", slot, ctx.Err())
		case <-time.After(moveLook):
		}
		if err := m.refresh(ctx); err != nil {
			return err
		}
	}
}
