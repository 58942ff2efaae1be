package fetch

import (
	"runtime"
	"strings"
	"testing"

	"fetchd/fetch/workers"
)

// TestCallThatPanics checks that a panic reaches the caller of call and nobody else.
func TestCallThatPanics(t *testing.T) {
	t.Parallel()
	var w workers.Pool
	defer w.Close()
	func() {
		defer func() {
			if p, ok := recover().(string); !ok || !strings.Contains(p, "a reason") || !strings.Contains(p, "TestCallThatPanics") {
				t.Errorf("recovered %q, want the reason and the stack", p)
			}
		}()
		call(&w, func() { panic("a reason") })
		t.Error("call returned from a job that panicked")
	}()
	call(&w, func() {}) // the worker lives
	call(&w, func() { runtime.Goexit() })
	call(&w, func() {})
}
