package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// moverLease is how long a program has the right to move slots after it has asked for it last. Whoever comes after one
	// that was killed waits for its end.
	moverLease = 15 * time.Second
	// renewMover is how often a program that moves slots asks again.
	renewMover = 3 * time.Second
	// moverPause is how long one that waits looks again after.
	moverPause = 200 * time.Millisecond
	// releaseTime is how long a program that was interrupted has to give the right back.
	releaseTime = 5 * time.Second
)

// errMover means that another program moves slots or repairs a database.
var errMover = fmt.Errorf("%w: another program moves slots or repairs: let it end, and repeat the command", ErrShards)

// fencedCode is the code of an error of frontier_fence.
const fencedCode = "FR002"

// alone runs f with the newest table of slots, while no other program moves slots or repairs. A program that has
// the right to do so has a number, which is higher than that of each before. Database 0 has the number and until when it
// holds, which the program extends while it works. That needs no session, so a pooler may be between. Each database has
// the number too, and refuses the steps of other programs: one that was suspended meanwhile does no harm.
func (m *mover) alone(ctx context.Context, f func(ctx context.Context) error) error {
	if err := m.acquire(ctx); err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	var wait sync.WaitGroup
	wait.Go(func() { m.renew(inner, cancel) })
	err := m.begin(inner)
	if err == nil {
		err = f(inner)
	}
	pg, isPg := errors.AsType[*pgconn.PgError](err)
	if err != nil && (errors.Is(context.Cause(inner), errMover) || isPg && pg.Code == fencedCode) {
		err = errMover
	}
	cancel(nil)
	wait.Wait()
	m.release(ctx)
	return err
}

// acquire waits until no program moves slots, unless one does.
func (m *mover) acquire(ctx context.Context) error {
	for first := int64(0); ; {
		var number, until int64
		err := m.parts[0].db.QueryRow(ctx, `WITH mine AS (
				INSERT INTO settings (name, value) VALUES ('mover_lease', frontier_now() || ' ' || (frontier_now() + ?))
				ON CONFLICT (name) DO UPDATE SET value = GREATEST(split_part(settings.value, ' ', 1)::bigint + 1, frontier_now()) || ' ' || (frontier_now() + ?)
					WHERE split_part(settings.value, ' ', 2)::bigint <= frontier_now()
				RETURNING split_part(value, ' ', 1)::bigint AS number)
			SELECT COALESCE((SELECT number FROM mine), 0), COALESCE((SELECT split_part(value, ' ', 2)::bigint FROM settings WHERE name = 'mover_lease'), 0)`,
			millis(moverLease), millis(moverLease)).Scan(&number, &until)
		switch {
		case err != nil:
			return fmt.Errorf("find out whether another program moves slots: %w", err)
		case number > 0:
			m.mover = number
			return nil
		case first != 0 && until != first:
			return errMover
		}
		first = until
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(moverPause):
		}
	}
}

// renew extends the right to move slots until ctx ends, and calls cancel if another program has it.
func (m *mover) renew(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(renewMover)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n, err := m.extend(ctx, `frontier_now() + `+fmt.Sprint(millis(moverLease)))
		if err == nil && n == 0 {
			cancel(errMover)
		} // after an error the databases refuse the next step, if they must
	}
}

// release lets the next program move slots.
func (m *mover) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	_, _ = m.extend(ctx, `0`) // otherwise the next one waits
	m.mover = 0
}

func (m *mover) extend(ctx context.Context, until string) (int64, error) {
	return m.parts[0].db.Update(ctx, "say that this program moves slots", `UPDATE settings SET value = split_part(value, ' ', 1) || ' ' || `+until+`
		WHERE name = 'mover_lease' AND split_part(value, ' ', 1)::bigint = ?`, m.mover)
}

// fence has a database refuse the steps of programs that moved slots before.
func (m *mover) fence(ctx context.Context, p *part) error {
	n, err := p.db.Update(ctx, "say that this program moves slots", `INSERT INTO settings (name, value) VALUES ('mover', ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE settings.value::bigint < excluded.value::bigint`, fmt.Sprint(m.mover))
	switch {
	case err != nil:
		return fmt.Errorf("database %d (%s): %w", p.number, p.name, err)
	case n == 0:
		return errMover
	}
	return nil
}

// begin fences all databases, and then reads the newest table of slots. A frontier in one database becomes one in many, of
// which there is one.
func (m *mover) begin(ctx context.Context) error {
	for _, p := range m.parts {
		if err := m.fence(ctx, p); err != nil {
			return err
		}
	}
	var newest *shardTable
	for _, p := range m.parts {
		table, _, err := p.readShards(ctx)
		if err != nil {
			return fmt.Errorf("database %d (%s): %w", p.number, p.name, err)
		}
		if newest == nil || table != nil && table.Version > newest.Version {
			newest = table
		}
	}
	if newest == nil {
		table := newShardTable(1)
		table.Ready = true
		if err := m.parts[0].enter(ctx, table); err != nil {
			return err
		}
		m.table.Store(table)
		return nil
	}
	if n := newest.Databases; n != len(m.parts) {
		return fmt.Errorf("%w: the frontier has %d databases, and this program knows %d: name all of them (--db)", ErrShards, n, len(m.parts))
	}
	m.table.Store(newest)
	return nil
}
