package fetch

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// maxIdle is how many workers are kept for the next fetch.
const maxIdle = 256

// workers are goroutines that carry out attempts. TLS and HTTP/2 need a deep
// stack, and a goroutine that has had one keeps it: ten thousand fetches that
// wait for their next attempt must not each hold one.
type workers struct {
	jobs   chan job
	places chan struct{} // of the idle
	closed chan struct{}
	close  func() // ends the idle ones, and the others when they are done
}

type job struct {
	f    func()
	done chan any // what f panicked with, or nil
}

func newWorkers() *workers {
	closed := make(chan struct{})
	return &workers{jobs: make(chan job), places: make(chan struct{}, maxIdle), closed: closed,
		close: sync.OnceFunc(func() { close(closed) })}
}

// call runs f on a worker and waits for it. It panics as f does.
func (w *workers) call(f func()) {
	j := job{f, make(chan any, 1)}
	select {
	case w.jobs <- j:
	default:
		go w.work(j)
	}
	if p := <-j.done; p != nil {
		panic(p) //nolint:forbidigo // it is the caller's own
	}
}

// work runs j, then what else comes, unless there are enough that wait for it.
func (w *workers) work(j job) {
	for {
		j.run()
		select {
		case w.places <- struct{}{}:
		default:
			return
		}
		select {
		case j = <-w.jobs:
			<-w.places
		case <-w.closed:
			<-w.places
			return
		}
	}
}

func (j *job) run() {
	defer func() {
		if p := recover(); p != nil {
			j.done <- fmt.Sprintf("%v\n%s", p, debug.Stack()) // the stack ends here
			return
		}
		j.done <- nil
	}()
	j.f()
}
