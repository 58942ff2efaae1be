package wire

import (
	"context"
	"testing"
	"time"

	"fetchd/internal/budget"
)

// TestSlotsOfOthers checks that a caller without memory ends its own slow requests, and none of
// another caller.
func TestSlotsOfOthers(t *testing.T) {
	t.Parallel()
	memory := budget.New(64 << 20)
	r := NewReceiving(memory, func(string, string) {})
	start := func(caller string) *Call {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := &Call{Context: ctx, cancel: cancel, caller: caller, due: time.Now().Add(time.Hour)}
		t.Cleanup(func() { r.arrived(c) })
		r.late(c)
		return c
	}
	honest, first := start("honest"), start("greedy")
	held := memory.Lease("greedy")
	defer held.Close()
	for held.Grow(budget.Body, 1<<20) {
	}
	second := start("greedy")
	if honest.Err() != nil {
		t.Errorf("the request of the other caller ended: %v", context.Cause(honest))
	}
	if first.Err() == nil || second.Err() != nil {
		t.Errorf("the caller's own requests ended with %v and %v, want only the oldest ended", context.Cause(first), context.Cause(second))
	}
}
