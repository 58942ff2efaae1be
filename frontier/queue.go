package frontier

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

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
