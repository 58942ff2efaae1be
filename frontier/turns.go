package frontier

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"fetchd/frontier/work"
)

// search limits the searches for links.
type search struct {
	turns    *turns
	visits   atomic.Int64        // that search or wait for their turn
	pages    *semaphore.Weighted // whose links are in memory
	sitemaps *semaphore.Weighted // that are being read
}

// maxPages is how many pages have their links in memory at once, and maxSitemaps how many sitemaps
// are being read. One of either holds 1 MiB of URLs.
const (
	maxPages    = 16
	maxSitemaps = 32
)

func newSearch() search {
	return search{turns: newTurns(searchSlots()), pages: semaphore.NewWeighted(maxPages), sitemaps: semaphore.NewWeighted(maxSitemaps)}
}

// turns lets a few searches run at once, and hosts take turns by the work that they cause. So a host
// that sends pages that take long to search waits for itself, and the others get their share.
//
// It is fair queueing (Demers, Keshav, Shenker: Analysis and Simulation of a Fair Queueing Algorithm,
// 1989) in a virtual time that counts the work of one host. A search starts when the one of its host
// before it would have ended, or now, and the one that would end first runs next. The time is the
// start of the latest search that has run, as in start-time fair queueing; it also moves as if all
// known hosts had the same share, so that new hosts cannot stop it. The work of a search is not known
// before. It is expected to be that of the host's last search. It is safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	slots   int // searches that may run at once
	free    int // of slots
	now     int // virtual time
	shares  map[string]share
	waiting []*turn // in order of arrival
}

// share is what is known about a host.
type share struct {
	next int // the start of its next search, in virtual time
	last int // the work of its last search; zero if there was none
}

// turn is a search that runs or waits.
type turn struct {
	host     string
	expected int           // work
	end      int           // in virtual time, if the work is as expected
	granted  chan struct{} // is closed when it may run
	ended    bool          // it neither runs nor waits
}

// credit is how much of its share a host keeps while it has nothing to search, such as during its
// delay: a few large pages.
const credit = 4 << 20

func newTurns(n int) *turns { return &turns{slots: n, free: n, shares: make(map[string]share)} }

// enter waits until a search of a host may start. The error is that of ctx.
func (q *turns) enter(ctx context.Context, host string) (*turn, error) {
	q.mu.Lock()
	t := &turn{host: host, expected: cmp.Or(q.shares[host].last, work.Quantum)}
	q.waitLocked(t)
	q.mu.Unlock()
	return t, q.await(ctx, t)
}

// pause lets other searches run before one that goes on, if they are due.
func (q *turns) pause(ctx context.Context, t *turn, spent int) error {
	q.mu.Lock()
	q.endLocked(t, spent)
	t.expected = work.Quantum
	q.waitLocked(t)
	q.mu.Unlock()
	return q.await(ctx, t)
}

// leave ends a search that has caused some work since enter or pause. It does nothing if the search
// has ended, also by the context of enter or pause.
func (q *turns) leave(t *turn, spent int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	q.endLocked(t, spent)
	q.grantLocked()
	q.forgetLocked()
}

// await waits for a turn. If ctx ends before, it takes the turn back.
func (q *turns) await(ctx context.Context, t *turn) error {
	select {
	case <-t.granted:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t.ended = true
	if i := slices.Index(q.waiting, t); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.correctLocked(t, 0)
	} else { // it was granted meanwhile
		q.endLocked(t, 0)
		q.grantLocked()
	}
	q.forgetLocked()
	return context.Cause(ctx)
}

// waitLocked adds a search.
func (q *turns) waitLocked(t *turn) {
	s := q.shares[t.host]
	t.end = max(q.now-credit, s.next) + t.expected
	s.next = t.end
	q.shares[t.host] = s
	t.granted = make(chan struct{})
	q.waiting = append(q.waiting, t)
	q.grantLocked()
}

// endLocked frees the slot of a search, and moves the virtual time.
func (q *turns) endLocked(t *turn, spent int) {
	q.now += spent / max(1, len(q.shares))
	q.free++
	q.correctLocked(t, spent)
}

// searchSlots returns how many searches run at once: half of the processors, so that the rest of a
// worker, which fetches and stores, does not wait for searches, however many there are.
func searchSlots() int { return (runtime.GOMAXPROCS(0) + 1) / 2 }

// correctLocked replaces the work that was expected by what it was, also for the searches of the host
// that wait.
func (q *turns) correctLocked(t *turn, spent int) {
	s := q.shares[t.host]
	s.next += spent - t.expected
	for _, w := range q.waiting {
		if w.host == t.host {
			w.end += spent - t.expected
		}
	}
	s.last = cmp.Or(spent, s.last)
	q.shares[t.host] = s
}

// grantLocked starts searches.
func (q *turns) grantLocked() {
	for q.free > 0 && len(q.waiting) > 0 {
		first := 0
		for i, t := range q.waiting {
			if t.end < q.waiting[first].end {
				first = i
			}
		}
		t := q.waiting[first]
		q.waiting = slices.Delete(q.waiting, first, first+1)
		q.free--
		q.now = max(q.now, t.end-t.expected)
		close(t.granted)
	}
}

// maxShares limits the hosts whose work is known.
const maxShares = 10_000

// forgetLocked drops what hosts have caused when nothing runs or waits, so that they start equal, or
// if there are too many hosts.
func (q *turns) forgetLocked() {
	if q.free == q.slots && len(q.waiting) == 0 || len(q.shares) > maxShares {
		clear(q.shares)
	}
}

// queues makes visits that need the same host, or the file of the same origin, wait for each other in
// order of arrival, so that only the first asks for it. It is safe for concurrent use.
type queues struct {
	mu    sync.Mutex
	hosts map[string]*queue
}

type queue struct {
	turn   *semaphore.Weighted
	visits int // that wait for the turn or have it
}

func newQueues() queues { return queues{hosts: make(map[string]*queue)} }

// try takes the turn of a host if no other visit has it or waits for it.
func (q *queues) try(host string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hosts[host] != nil {
		return false
	}
	h := &queue{turn: semaphore.NewWeighted(1), visits: 1}
	q.hosts[host] = h
	return h.turn.TryAcquire(1)
}

// wait waits for the turn of a host. The error is that of ctx.
func (q *queues) wait(ctx context.Context, host string) error {
	q.mu.Lock()
	h := q.hosts[host]
	if h == nil {
		h = &queue{turn: semaphore.NewWeighted(1)}
		q.hosts[host] = h
	}
	h.visits++
	q.mu.Unlock()
	if err := h.turn.Acquire(ctx, 1); err != nil {
		q.forget(host)
		return err
	}
	return nil
}

// leave passes the turn to the next visit.
func (q *queues) leave(host string) {
	q.mu.Lock()
	q.hosts[host].turn.Release(1)
	q.mu.Unlock()
	q.forget(host)
}

func (q *queues) forget(host string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.hosts[host]
	if h.visits--; h.visits == 0 {
		delete(q.hosts, host)
	}
}
