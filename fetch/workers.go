package fetch

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// maxIdle is how many workers are kept for the next fetch.
const maxIdle = 256

// maxInline fetches at once carry their attempts out on the goroutines of their
// callers, which costs less. The stacks of so few are no matter.
const maxInline = 128

// workers are goroutines that carry out attempts. TLS and HTTP/2 need a deep
// stack, and a goroutine that has had one keeps it: ten thousand fetches that
// wait for their next attempt must not each hold one.
type workers struct {
	mu     sync.Mutex
	idle   []*worker // the last is the first to be called: its stack is warm
	closed bool
}

// worker is a goroutine, and the two channels over which it takes a job and tells
// how that ended.
type worker struct {
	jobs chan func()
	done chan ended
}

// ended is how a job ended.
type ended struct {
	panic any  // what it panicked with, or nil
	gone  bool // the goroutine went with it
}

func newWorkers() *workers { return &workers{} }

// call runs f on a worker and waits for it. It panics as f does.
func (w *workers) call(f func()) {
	one := w.take()
	one.jobs <- f
	e := <-one.done
	if !e.gone {
		w.put(one)
	}
	if e.panic != nil {
		panic(e.panic) //nolint:forbidigo // it is the caller's own
	}
}

// take returns an idle worker, or else a new one.
func (w *workers) take() *worker {
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		one := w.idle[n-1]
		w.idle[n-1], w.idle = nil, w.idle[:n-1]
		w.mu.Unlock()
		return one
	}
	w.mu.Unlock()
	one := &worker{make(chan func()), make(chan ended)}
	go one.work()
	return one
}

// put keeps a worker for the next job, unless there are enough.
func (w *workers) put(one *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) >= maxIdle {
		close(one.jobs)
		return
	}
	w.idle = append(w.idle, one)
}

// close ends the idle ones, and the others when they are done.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.idle {
		close(one.jobs)
	}
	w.idle, w.closed = nil, true
}

// kept is how many are idle.
func (w *workers) kept() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.idle)
}

func (one *worker) work() {
	for f := range one.jobs {
		one.run(f)
	}
}

// run carries f out. One that ends its goroutine ends the worker.
func (one *worker) run(f func()) {
	e := ended{gone: true}
	defer func() {
		if p := recover(); p != nil {
			e = ended{panic: fmt.Sprintf("%v\n%s", p, debug.Stack())} // the stack ends here
		}
		one.done <- e
	}()
	f()
	e.gone = false
}
