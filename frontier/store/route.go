package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// of returns the database that has a host: s itself unless there are many.
func (s *Store) of(host string) *Store {
	if s.many == nil {
		return s
	}
	return s.many.parts[s.many.numberOf(host)].Store
}

// Databases returns how many databases the frontier has.
func (s *Store) Databases() int { return len(s.all()) }

// DatabaseOf returns the number of the database that gave a lease, from 0.
func (s *Store) DatabaseOf(l Lease) int {
	if s.many == nil {
		return 0
	}
	return s.many.numberOfToken(l.Token)
}

// ofOrigin is of for the host of an origin.
func (s *Store) ofOrigin(origin string) *Store {
	if s.many == nil {
		return s
	}
	host, _ := deferredColumn(origin)
	return s.of(host)
}

func (m *shards) numberOf(host string) int { return m.table.Load().Slots[hostSlot(host)] }

// numberOfToken returns the number of the database that gave a lease.
func (m *shards) numberOfToken(token int64) int {
	return min(int(token>>10&(MaxDatabases-1)), len(m.parts)-1)
}

// all are the databases: s itself unless there are many.
func (s *Store) all() []*Store {
	if s.many == nil {
		return []*Store{s}
	}
	all := make([]*Store, len(s.many.parts))
	for i, p := range s.many.parts {
		all[i] = p.Store
	}
	return all
}

// everywhere calls f for each database, at once, and joins their errors. Of many databases, one that is known to be
// unreachable is not called.
func (s *Store) everywhere(ctx context.Context, f func(ctx context.Context, s *Store) error) error {
	if s.many == nil {
		return f(ctx, s)
	}
	return s.many.atOnce(ctx, func(ctx context.Context, p *part) error { return f(ctx, p.Store) })
}

// atOnce calls f for each database, at once, and joins the errors.
func (m *shards) atOnce(ctx context.Context, f func(ctx context.Context, p *part) error) error {
	errs := make([]error, len(m.parts))
	var wait sync.WaitGroup
	for i, p := range m.parts {
		wait.Go(func() { errs[i] = p.do(ctx, true, func(ctx context.Context) error { return f(ctx, p) }) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// each calls f for one database after the other, and joins the errors.
func (m *shards) each(ctx context.Context, f func(ctx context.Context, p *part) error) error {
	errs := make([]error, len(m.parts))
	for i, p := range m.parts {
		errs[i] = p.do(ctx, true, func(ctx context.Context) error { return f(ctx, p) })
	}
	return errors.Join(errs...)
}

// gather returns what f returns for each database, also with an error. A slot that moves is in two databases, and f reads
// it in one: where the table has it. If the table changes meanwhile, gather starts again.
func gather[T any](ctx context.Context, s *Store, f func(ctx context.Context, s *Store) ([]T, error)) (all []T, err error) {
	if s.many == nil {
		return f(ctx, s)
	}
	err = s.many.refresh(ctx)
	for range gatherTries {
		if err != nil {
			return nil, err
		}
		table := s.many.table.Load()
		all = nil
		var mu sync.Mutex
		failed := s.many.atOnce(ctx, func(ctx context.Context, p *part) error {
			some, err := f(ctx, table.reader(p))
			mu.Lock()
			defer mu.Unlock()
			all = append(all, some...)
			return err
		})
		if err = s.many.refresh(ctx); s.many.table.Load().Version == table.Version || failed != nil {
			return all, failed
		}
	}
	return all, err
}

// gatherTries is how often what is read is read again, if slots move as fast. The numbers may be wrong then by those of a
// slot.
const gatherTries = 3

// reader returns a Store to read what a database has, without the slot that moves if another one has it.
func (t *shardTable) reader(p *part) *Store {
	v := t.Moving
	if v == nil || v.From != p.number && v.To != p.number || t.Slots[v.Slot] == p.number {
		return p.Store
	}
	out := fmt.Sprintf(`(SELECT id FROM hosts WHERE frontier_slot(host) = %d))`, v.Slot)
	c := *p.core
	c.db = p.db.With("{hosts}", "(SELECT * FROM hosts WHERE id NOT IN "+out, "{urls}", "(SELECT * FROM urls WHERE host_id NOT IN "+out)
	reader := *p.Store
	reader.core = &c
	return &reader
}

// byOrigin divides origins by the numbers of their databases.
func (m *shards) byOrigin(origins []string) map[int][]string {
	return group(origins, func(origin string) int {
		host, _ := deferredColumn(clean(origin))
		return m.numberOf(host)
	})
}

// continued calls f for each database, with its own place to continue from. The places of all are one text, which is
// empty at the beginning and at the end. One that cannot be reached keeps its place.
func (m *shards) continued(ctx context.Context, after string, running func(p *part) *atomic.Bool, f func(ctx context.Context, s *Store, after string) ([]string, string, error)) (all []string, next string, err error) {
	places := strings.Split(after, " ") // no origin has a space
	if len(places) != len(m.parts) {
		places = make([]string, len(m.parts))
	}
	type page struct {
		some []string
		next string
		read bool
	}
	from := slices.Clone(places)
	err = soon(ctx, m, running, func(ctx context.Context, p *part) (page, error) {
		some, next, err := f(ctx, p.Store, from[p.number])
		return page{some, next, err == nil}, err
	}, func(p *part, one page) {
		if one.read {
			places[p.number], all = one.next, append(all, one.some...)
		}
	})
	err = m.parts[0].whole.partly(err)
	if strings.Join(places, "") != "" {
		next = strings.Join(places, " ")
	}
	return all, next, err
}

// moving reports whether the host of one of a list is in a slot that moves.
func moving[T any](m *shards, list []T, host func(T) string) bool {
	v := m.table.Load().Moving
	return v != nil && !v.Done && slices.ContainsFunc(list, func(one T) bool { return hostSlot(host(one)) == v.Slot })
}

// Unreachable returns the names of those of many databases that cannot be reached now.
func (s *Store) Unreachable() []string {
	var names []string
	if s.many != nil {
		for _, p := range s.many.parts {
			p.mu.Lock()
			if p.failed {
				names = append(names, fmt.Sprintf("%d (%s)", p.number, p.name))
			}
			p.mu.Unlock()
		}
	}
	return names
}

// partly is for reads: it returns an error only if no database could be reached, or for another reason.
func (s *Store) partly(err error) error {
	if s.many == nil || err == nil || !errors.Is(err, ErrUnreachable) || len(s.Unreachable()) == len(s.many.parts) {
		return err
	}
	return nil
}

// nameDatabase adds to an error which of many databases it is about.
func (s *Store) nameDatabase(of *Store, err error) error {
	if s.many == nil || err == nil {
		return err
	}
	for _, p := range s.many.parts {
		if p.Store == of {
			return fmt.Errorf("database %d (%s): %w", p.number, p.name, err)
		}
	}
	return err
}

// sum adds what f returns for each database. It returns the sum of those that can be reached, also with an error.
func (s *Store) sum(ctx context.Context, f func(ctx context.Context, s *Store) (int64, error)) (int64, error) {
	var total atomic.Int64
	err := s.everywhere(ctx, func(ctx context.Context, s *Store) error {
		n, err := f(ctx, s)
		total.Add(n)
		return err
	})
	return total.Load(), err
}
