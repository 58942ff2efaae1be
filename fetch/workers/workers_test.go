package workers

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestPool checks that goroutines are reused, that there are as many as needed, and
// that they end.
func TestPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p Pool
		for range 100 {
			p.Go(func() {})
			synctest.Wait() // the goroutine is idle again
		}
		if n := p.Idle(); n != 1 {
			t.Errorf("%d idle goroutines after one job at a time, want 1", n)
		}
		release := make(chan struct{})
		var all sync.WaitGroup
		var begun atomic.Int32
		all.Add(maxIdle + 50)
		for range maxIdle + 50 {
			p.Go(func() { defer all.Done(); begun.Add(1); <-release })
		}
		synctest.Wait()
		if n := begun.Load(); n != maxIdle+50 {
			t.Errorf("%d of %d jobs have begun, want all: none waits for another", n, maxIdle+50)
		}
		close(release)
		all.Wait()
		synctest.Wait()
		if n := p.Idle(); n != maxIdle {
			t.Errorf("%d idle goroutines, want no more than %d", n, maxIdle)
		}
		p.Close()
		p.Close()
		synctest.Wait()
		if n := p.Idle(); n != 0 {
			t.Errorf("%d idle goroutines after Close, want none", n)
		}
		ran := false
		p.Go(func() { ran = true })
		if synctest.Wait(); !ran {
			t.Error("a function passed to Go after Close did not run")
		}
		if n := p.Idle(); n != 0 {
			t.Errorf("%d idle goroutines of a closed pool, want none", n)
		}
	})
}

// TestGoexit checks that a function that calls runtime.Goexit affects no other.
func TestGoexit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p Pool
		defer p.Close()
		p.Go(func() {})
		synctest.Wait()
		p.Go(func() { runtime.Goexit() })
		synctest.Wait()
		ran := false
		p.Go(func() { ran = true })
		if synctest.Wait(); !ran {
			t.Error("the next job did not run")
		}
	})
}

// TestCallThatPanics checks that a panic reaches the caller of Call and leaves the pool usable.
func TestCallThatPanics(t *testing.T) {
	t.Parallel()
	var w Pool
	defer w.Close()
	func() {
		defer func() {
			if p, ok := recover().(string); !ok || !strings.Contains(p, "a reason") || !strings.Contains(p, "TestCallThatPanics") {
				t.Errorf("recovered %q, want the reason and the stack", p)
			}
		}()
		w.Call(func() { panic("a reason") })
		t.Error("Call returned after a function that panicked")
	}()
	w.Call(func() {}) // the pool still works
	w.Call(func() { runtime.Goexit() })
	w.Call(func() {})
}
