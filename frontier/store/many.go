package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// manyQueue is the Queue of a frontier in many databases.
type manyQueue shards

// group divides a list by the numbers of databases.
func group[T any](list []T, number func(T) int) map[int][]T {
	groups := make(map[int][]T)
	for _, one := range list {
		n := number(one)
		groups[n] = append(groups[n], one)
	}
	return groups
}

// inGroups calls f for each group, at once, and joins the errors.
func inGroups[T any](m *shards, groups map[int][]T, f func(p *part, some []T) error) error {
	errs := make(chan error, len(groups))
	for number, some := range groups {
		go func() { errs <- f(m.parts[number], some) }()
	}
	var all []error
	for range groups {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// Put implements [Queue]. What belongs into a database that cannot be reached waits in another one.
func (q *manyQueue) Put(ctx context.Context, entries []Entry, limits Limits) (PutResult, error) {
	good, bad := normaliseAll(entries)
	r, err := (*shards)(q).put(ctx, good, limits, true)
	if err != nil {
		return PutResult{}, err
	}
	r.Bad, r.Known = bad, int64(len(entries)-len(bad))-r.Added-r.Over-r.OverHost-r.Waiting
	return r, nil
}

// put adds URLs, and does not set Known. keep says whether some may wait in another database.
func (m *shards) put(ctx context.Context, good []normalised, limits Limits, keep bool) (r PutResult, err error) {
	var mu sync.Mutex
	err = inGroups(m, group(good, func(n normalised) int { return m.numberOf(n.Host) }), func(p *part, some []normalised) error {
		var one PutResult
		err := ErrUnreachable
		if !moving(m, some, func(n normalised) string { return n.Host }) {
			err = p.do(ctx, true, func(ctx context.Context) (err error) {
				one, err = p.pg.put(ctx, some, Limits{URLs: m.share(ctx, p, limits.URLs), URLsPerHost: limits.URLsPerHost})
				return err
			})
		}
		if keep && errors.Is(err, ErrUnreachable) && ctx.Err() == nil {
			one.Waiting, err = int64(len(some)), m.keep(ctx, p.number, parcel{Entries: some, Limits: limits})
		}
		mu.Lock()
		defer mu.Unlock()
		r.Added, r.Over, r.OverHost, r.Waiting = r.Added+one.Added, r.Over+one.Over, r.OverHost+one.OverHost, r.Waiting+one.Waiting
		return err
	})
	return r, err
}

// countFor is how long the number of URLs of a database is used for the limits of others.
const countFor = 2 * time.Second

// share returns how many URLs one of the databases may have if all of them may have limit: what the others have not
// used. A database that cannot be reached has as many as it had.
func (m *shards) share(ctx context.Context, mine *part, limit int64) int64 {
	if limit == 0 {
		return 0
	}
	for _, p := range m.parts {
		if p != mine {
			limit -= p.countURLs(ctx)
		}
	}
	return max(1, limit) // zero means no limit; a database that has a URL adds none then
}

func (p *part) countURLs(ctx context.Context) int64 {
	p.mu.Lock()
	n, old := p.urls, time.Since(p.counted) > countFor
	if old {
		p.counted = time.Now() // one call at once
	}
	p.mu.Unlock()
	if !old {
		return n
	}
	err := p.do(ctx, true, func(ctx context.Context) (err error) {
		n, err = p.db.Int(ctx, "count URLs", `SELECT frontier_url_count()`)
		return err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil { // otherwise the last number counts
		p.urls = n
	}
	return p.urls
}

// Claim implements [Queue]. The databases take turns. A call returns the URLs of the first that has some, so it costs as
// much as with one database. One that does not answer is not waited for longer than a moment, while others can.
//
// It may return URLs together with an error about another database. That one cannot be reached is an error only if no
// other has answered: otherwise a caller would wait for it, while it finds nothing that is due in the others.
func (q *manyQueue) Claim(ctx context.Context, params ClaimParams) ([]Claim, error) {
	m := (*shards)(q)
	if err := m.foreign.Load(); err != nil {
		return nil, *err
	}
	turn := int(m.next.Add(1) % uint64(len(m.parts)))
	var failed, unreachable error
	answered := false
	for i := range m.parts {
		claims, err := m.parts[(turn+i)%len(m.parts)].claim(ctx, params)
		switch {
		case err == nil:
			answered = true
		case errors.Is(err, ErrUnreachable):
			unreachable = errors.Join(unreachable, err)
		case !errors.Is(err, errClaiming):
			failed = errors.Join(failed, err)
		}
		if len(claims) > 0 || ctx.Err() != nil {
			return claims, failed
		}
	}
	if !answered {
		failed = errors.Join(failed, unreachable)
	}
	return nil, failed
}

// errClaiming means that an earlier claim has not been answered yet.
var errClaiming = errors.New("a claim is open")

// A claim waits claimWait for one database before it asks the next, or twice as long as the last claim there took, but at most
// slowWait. Otherwise nothing would ever be claimed from databases that are all slow.
const (
	claimWait = 250 * time.Millisecond
	slowWait  = 5 * time.Second
)

// claim claims URLs of one database. URLs that come too late are released.
func (p *part) claim(ctx context.Context, params ClaimParams) ([]Claim, error) {
	p.mu.Lock()
	busy, patience := p.claiming, max(claimWait, min(2*p.took, slowWait))
	p.claiming = true
	p.mu.Unlock()
	if busy {
		return nil, errClaiming
	}
	type result struct {
		claims []Claim
		err    error
	}
	answer, late := make(chan result), make(chan struct{})
	p.late.Go(func() {
		var r result
		started := time.Now()
		r.err = p.do(p.open, true, func(ctx context.Context) (err error) {
			r.claims, err = p.Store.Claim(ctx, params)
			return err
		})
		p.mu.Lock()
		p.claiming = false
		if r.err == nil {
			p.took = time.Since(started)
		}
		p.mu.Unlock()
		select {
		case answer <- r:
		case <-late:
			if len(r.claims) > 0 {
				leases := make([]Lease, len(r.claims))
				for i, c := range r.claims {
					leases[i] = c.Lease
				}
				_, _ = p.Release(p.open, leases) // otherwise they expire
			}
		}
	})
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case r := <-answer:
		return r.claims, r.err
	case <-wait.C:
		close(late)
		return nil, nil
	case <-ctx.Done():
		close(late)
		return nil, ctx.Err()
	}
}

// RecordFetch implements [Queue]. If some of the databases cannot be reached, the results of their leases match
// [ErrUnreachable].
func (q *manyQueue) RecordFetch(ctx context.Context, fetches []Fetch) ([]error, error) {
	m := (*shards)(q)
	ready, results := items(fetches)
	groups := group(ready, func(it item) int { return m.numberOfToken(it.Token) })
	var failed atomic.Int64
	err := inGroups(m, groups, func(p *part, some []item) error {
		var err error
		for range recordTries {
			err = p.do(ctx, false, func(ctx context.Context) error {
				if err := m.arrive(ctx, p, some); err != nil {
					return err
				}
				return p.pg.record(ctx, some, results)
			})
			if !isMoved(err) {
				break
			}
			// The host of a final URL was taken away. With the newest table that URL waits, or is elsewhere.
			if err := m.refresh(ctx); err != nil {
				return err
			}
		}
		if !errors.Is(err, ErrUnreachable) {
			return err
		}
		for _, it := range some {
			results[it.place] = err
		}
		if failed.Add(1) == int64(len(groups)) { // otherwise others have recorded something
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// recordTries is how often outcomes are recorded whose final URLs belong to hosts that were taken away meanwhile.
const recordTries = 3

// Extend implements [Queue]. It may return leases together with an error about others.
func (q *manyQueue) Extend(ctx context.Context, leases []Lease, d time.Duration) ([]Lease, error) {
	return q.each(ctx, leases, func(ctx context.Context, p *part, some []Lease) ([]Lease, error) { return p.Extend(ctx, some, d) })
}

// Release implements [Queue].
func (q *manyQueue) Release(ctx context.Context, leases []Lease) ([]Lease, error) {
	return q.each(ctx, leases, func(ctx context.Context, p *part, some []Lease) ([]Lease, error) { return p.Release(ctx, some) })
}

// Abandon implements [Queue].
func (q *manyQueue) Abandon(ctx context.Context, leases []Lease) ([]Lease, error) {
	return q.each(ctx, leases, func(ctx context.Context, p *part, some []Lease) ([]Lease, error) { return p.Abandon(ctx, some) })
}

// LeaveHosts implements [Queue].
func (q *manyQueue) LeaveHosts(ctx context.Context, leases []Lease) ([]Lease, error) {
	return q.each(ctx, leases, func(ctx context.Context, p *part, some []Lease) ([]Lease, error) { return p.LeaveHosts(ctx, some) })
}

// each calls f with the leases of each database, and returns all that f returned.
func (q *manyQueue) each(ctx context.Context, leases []Lease, f func(ctx context.Context, p *part, some []Lease) ([]Lease, error)) (held []Lease, err error) {
	m := (*shards)(q)
	var mu sync.Mutex
	err = inGroups(m, group(leases, func(l Lease) int { return m.numberOfToken(l.Token) }), func(p *part, some []Lease) error {
		return p.do(ctx, true, func(ctx context.Context) error {
			of, err := f(ctx, p, some)
			mu.Lock()
			defer mu.Unlock()
			held = append(held, of...)
			return err
		})
	})
	return held, err
}

// store returns the frontier.
func (q *manyQueue) store() *Store { return &Store{Queue: q, many: (*shards)(q)} }

// Reap implements [Queue]. It also sends what waits for databases that can be reached again.
func (q *manyQueue) Reap(ctx context.Context) (int64, error) {
	m := (*shards)(q)
	n, err := m.repeated(ctx, func(p *part) *atomic.Bool { return &p.reaping }, func(ctx context.Context, p *part) (int64, error) { return p.Store.Reap(ctx) })
	_, sent := m.repeated(ctx, func(p *part) *atomic.Bool { return &p.sending }, func(ctx context.Context, p *part) (int64, error) { return 0, m.sendFrom(ctx, p) })
	if errors.Is(sent, ErrUnreachable) {
		sent = nil // the first error says so
	}
	return n, errors.Join(err, sent)
}

// Recrawl implements [Queue].
func (q *manyQueue) Recrawl(ctx context.Context) (int64, error) {
	return (*shards)(q).repeated(ctx, func(p *part) *atomic.Bool { return &p.recrawling }, func(ctx context.Context, p *part) (int64, error) { return p.Store.Recrawl(ctx) })
}

// repeated calls f for each database, at once, and adds what it returns. One that does not answer is not waited for
// longer than a moment, because the others need the next call. It is not called again before it has answered.
func (m *shards) repeated(ctx context.Context, running func(p *part) *atomic.Bool, f func(ctx context.Context, p *part) (int64, error)) (total int64, err error) {
	err = soon(ctx, m, running, f, func(_ *part, n int64) { total += n })
	return total, err
}

// soon does what repeated does, and calls take with what f returns.
func soon[T any](ctx context.Context, m *shards, running func(p *part) *atomic.Bool, f func(ctx context.Context, p *part) (T, error), take func(p *part, t T)) (err error) {
	type result struct {
		p   *part
		t   T
		err error
	}
	results := make(chan result, len(m.parts))
	for _, p := range m.parts {
		open := running(p)
		if !open.CompareAndSwap(false, true) {
			results <- result{p: p, err: fmt.Errorf("database %d (%s) has not answered yet: %w", p.number, p.name, ErrUnreachable)}
			continue
		}
		p.late.Go(func() {
			r := result{p: p}
			r.err = p.do(p.open, true, func(ctx context.Context) (err error) {
				r.t, err = f(ctx, p)
				return err
			})
			open.Store(false)
			results <- r
		})
	}
	wait := time.NewTimer(repeatTime)
	defer wait.Stop()
	for range m.parts {
		select {
		case r := <-results:
			take(r.p, r.t)
			err = errors.Join(err, r.err)
		case <-wait.C:
			return errors.Join(err, fmt.Errorf("a database has not answered yet: %w", ErrUnreachable))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// Left implements [Queue].
func (q *manyQueue) Left(ctx context.Context) (bool, error) {
	n, err := q.store().sum(ctx, func(ctx context.Context, s *Store) (n int64, err error) {
		left, err := s.Left(ctx)
		if err == nil && !left {
			left, err = s.db.Bool(ctx, "look for what waits", `SELECT EXISTS (SELECT 1 FROM parcels WHERE NOT stuck)`)
		}
		if left {
			n = 1
		}
		return n, err
	})
	if n > 0 {
		return true, nil
	}
	return false, err
}
