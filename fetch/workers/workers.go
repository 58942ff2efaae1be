// Package workers reuses goroutines whose stacks have grown. TLS, HTTP/2 and JSON need
// a large stack. A new goroutine starts with a small one, which the runtime copies
// several times as it grows.
package workers

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// maxIdle is the maximum number of idle goroutines.
const maxIdle = 256

// Pool is a set of goroutines that run functions. The zero value is ready to use. A
// Pool is safe for concurrent use.
type Pool struct {
	mu     sync.Mutex
	idle   []chan func() // used last in, first out: the newest has a warm stack
	closed bool
}

// Go runs f on an idle goroutine or, if there is none, on a new one. It never waits.
// A panic in f is not recovered.
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

// Call runs f as Go does, and waits for it. A panic in f becomes a panic of Call.
func (p *Pool) Call(f func()) {
	done := make(chan any, 1)
	p.Go(func() {
		defer func() {
			reason := recover()
			if reason != nil {
				reason = fmt.Sprintf("%v\n%s", reason, debug.Stack()) // the panic of Call loses this stack
			}
			done <- reason
		}()
		f()
	})
	if reason := <-done; reason != nil {
		panic(reason) //nolint:forbidigo // the panic of f belongs to the caller
	}
}

// Close ends the idle goroutines. Busy ones end after their function returns. Go can
// still be called, and then starts a new goroutine.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, jobs := range p.idle {
		close(jobs)
	}
	p.idle, p.closed = nil, true
}

// Idle returns the number of idle goroutines.
func (p *Pool) Idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// work runs f and then further functions, until the pool is closed or has enough idle
// goroutines.
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
