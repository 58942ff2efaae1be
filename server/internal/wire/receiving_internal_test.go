package wire

import (
	"context"
	"testing"

	"fetchd/internal/budget"
)

// TestSlotsOfOthers checks that a caller with too many slow requests ends its own, and none of another
// caller.
func TestSlotsOfOthers(t *testing.T) {
	t.Parallel()
	const slots = 4
	memory := budget.New(slots * receivingShare * (CallBytes + StreamWindow))
	r := NewReceiving(memory, func(string, string) {})
	start := func(caller string) *Call {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := &Call{cancel: cancel, caller: caller}
		c.Tapped(ctx)
		c.Start()
		t.Cleanup(func() { r.arrived(c) })
		r.late(c)
		return c
	}
	honest := start("honest")
	var greedy []*Call
	for range slots {
		greedy = append(greedy, start("greedy"))
	}
	if honest.Err() != nil {
		t.Errorf("the request of the other caller ended: %v", context.Cause(honest))
	}
	for i, c := range greedy {
		if ended := c.Err() != nil; ended != (i == 0) {
			t.Errorf("request %d of the caller ended: %t, want only the oldest ended", i+1, ended)
		}
	}
}
