package store

import (
	"context"
	"errors"
	"iter"
)

// urls yields every URL once, also if its slot moves meanwhile: while the table of slots has the slot where it was at the
// beginning, the URLs are complete there. Of a slot that has moved since, the rest is read at its new place.
func (m *shards) urls(ctx context.Context) iter.Seq2[URL, error] {
	return func(yield func(URL, error) bool) {
		errs := []error{m.refresh(ctx)}
		e := &exporter{shards: m, first: m.table.Load(), rest: map[int]int64{}, yield: yield}
		for _, p := range m.parts {
			err := p.do(ctx, false, func(ctx context.Context) error { return e.read(ctx, p) })
			if errors.Is(err, errEnough) {
				return
			}
			errs = append(errs, err)
		}
		for slot, after := range e.rest {
			err := m.untilMoved(ctx, slot, func(p *part) (moves bool, err error) {
				err = p.do(ctx, false, func(ctx context.Context) error {
					after, moves, err = e.readSlot(ctx, p, slot, after)
					return err
				})
				return moves, err
			})
			if errors.Is(err, errEnough) {
				return
			}
			errs = append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			yield(URL{}, err)
		}
	}
}

// exporter is the state of [shards.urls].
type exporter struct {
	*shards
	first *shardTable   // at the beginning
	rest  map[int]int64 // slots that have moved, and the highest id that was read of each
	yield func(URL, error) bool
}

// read yields the URLs of a database, without those of slots that have come or gone.
func (e *exporter) read(ctx context.Context, p *part) error {
	return p.urlPages(ctx, ``, nil, 0, func(page []URL, after int64, now *shardTable) error {
		for slot, number := range e.first.Slots {
			if _, gone := e.rest[slot]; !gone && number == p.number && now.Slots[slot] != number {
				e.rest[slot] = after
			}
		}
		for _, u := range page {
			slot := hostSlot(u.Host)
			if _, gone := e.rest[slot]; gone || e.first.Slots[slot] != p.number {
				continue
			}
			if !e.yield(u, nil) {
				return errEnough
			}
		}
		return nil
	})
}

// errMovedOn means that a slot has moved while it was read.
var errMovedOn = errors.New("the slot has moved")

// readSlot yields the URLs of a slot after one, and returns the last one. moved reports that the rest is elsewhere.
func (e *exporter) readSlot(ctx context.Context, p *part, slot int, after int64) (last int64, moved bool, err error) {
	err = p.urlPages(ctx, `u.host_id IN (SELECT id FROM hosts WHERE frontier_slot(host) = ?) AND `, []any{slot}, after, func(page []URL, _ int64, now *shardTable) error {
		if now.Slots[slot] != p.number {
			return errMovedOn
		}
		for _, u := range page {
			if after = u.ID; !e.yield(u, nil) {
				return errEnough
			}
		}
		return nil
	})
	if errors.Is(err, errMovedOn) {
		return after, true, nil
	}
	return after, false, err
}

// urlPages calls f with some URLs that which selects, the id before them, and the table of slots that the database has then.
func (p *part) urlPages(ctx context.Context, which string, args []any, after int64, f func(page []URL, after int64, now *shardTable) error) error {
	const size = 1000
	for {
		rows, err := p.db.Query(ctx, `SELECT `+urlColumns+` FROM urls u JOIN hosts h ON h.id = u.host_id WHERE `+which+`u.id > ? ORDER BY u.id LIMIT ?`,
			append(args[:len(args):len(args)], after, size)...)
		page, err := collect(rows, err, (*URL).columns)
		if err != nil {
			return err
		}
		now, _, err := p.readShards(ctx)
		if err == nil {
			err = f(page, after, now)
		}
		if err != nil || len(page) < size {
			return err
		}
		after = page[size-1].ID
	}
}
