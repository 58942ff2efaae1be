// Package workers keeps goroutines whose stacks have grown. TLS, HTTP/2 and JSON need
// a deep stack, and a goroutine that begins with a shallow one copies it several
// times on the way.
package workers

import "sync"

// maxIdle is how many are kept for the next job.
const maxIdle = 256

// Pool is a set of goroutines that carry jobs out. The zero value is ready for use,
// by many at once.
type Pool struct {
	mu     sync.Mutex
	idle   []chan func() // the last is the first to be used: its stack is warm
	closed bool
}

// Go runs f on a goroutine of its own: an idle one, or else a new one. No job waits
// for another. What f panics with nobody recovers.
func (p *Pool) Go(f func()) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		jobs := p.idle[n-1]
		p.idle[n-1], p.idle = nil, p.idle[:n-1]
		p.mu.Unlock()
		jobs <- f
		return
	}
	p.mu.Unlock()
	go p.work(f)
}

// Close ends the idle goroutines, and the others when they are done. Go may still be
// called.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, jobs := range p.idle {
		close(jobs)
	}
	p.idle, p.closed = nil, true
}

// Idle is how many goroutines wait for a job.
func (p *Pool) Idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// work carries f out, then what else comes, unless there are enough that wait for it.
func (p *Pool) work(f func()) {
	jobs := make(chan func(), 1)
	for more := true; more; f, more = <-jobs {
		f()
		if !p.keep(jobs) {
			return
		}
	}
}

func (p *Pool) keep(jobs chan func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdle {
		return false
	}
	p.idle = append(p.idle, jobs)
	return true
}
