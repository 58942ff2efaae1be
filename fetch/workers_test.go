package fetch

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestWorkers are used again, are as many as are needed, and end.
func TestWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers()
		for range 100 {
			w.call(func() {})
			synctest.Wait() // the worker is idle again
		}
		if n := w.kept(); n != 1 {
			t.Errorf("%d idle workers after one job at a time, want 1", n)
		}
		release := make(chan struct{})
		var all sync.WaitGroup
		var begun atomic.Int32
		for range maxIdle + 50 {
			all.Go(func() { w.call(func() { begun.Add(1); <-release }) })
		}
		synctest.Wait()
		if n := begun.Load(); n != maxIdle+50 {
			t.Errorf("%d of %d jobs have begun, want all: none waits for another", n, maxIdle+50)
		}
		close(release)
		all.Wait()
		synctest.Wait()
		if n := w.kept(); n != maxIdle {
			t.Errorf("%d idle workers, want no more than %d", n, maxIdle)
		}
		w.close()
		w.close()
		synctest.Wait()
		if n := w.kept(); n != 0 {
			t.Errorf("%d idle workers after close, want none", n)
		}
		ran := false
		w.call(func() { ran = true })
		if synctest.Wait(); !ran {
			t.Error("a job after close did not run: fetches under way must go on")
		}
	})
}

// TestWorkerThatPanics hands the panic to who waits for the job, and nobody else.
func TestWorkerThatPanics(t *testing.T) {
	t.Parallel()
	w := newWorkers()
	defer w.close()
	func() {
		defer func() {
			if p, ok := recover().(string); !ok || !strings.Contains(p, "a reason") || !strings.Contains(p, "TestWorkerThatPanics") {
				t.Errorf("recovered %q, want the reason and the stack", p)
			}
		}()
		w.call(func() { panic("a reason") })
		t.Error("call returned from a job that panicked")
	}()
	w.call(func() {}) // the worker lives
	w.call(func() { runtime.Goexit() })
	w.call(func() {})
}
