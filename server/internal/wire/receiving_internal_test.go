package wire

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"

	"fetchd/internal/budget"
)

// endedStream is a stream whose context ends with its status.
type endedStream struct {
	transportStream
	cancel func()
}

func (s endedStream) WriteStatus(*status.Status) error {
	s.cancel()
	return nil
}

// TestRequestTime checks when a call ends whose request does not arrive. Calls before and after it that get theirs
// change nothing.
func TestRequestTime(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name          string
		started, read bool
		released      bool // without a handler
	}{
		{"without a handler", false, false, true},
		{"its handler waits for the head of a message", true, false, false},
		{"its handler waits for the message", true, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := budget.New(1 << 30)
				r := NewReceiving(memory, func(string, string) {})
				expect := func() (*Call, context.Context) {
					<-time.After(time.Millisecond)
					ctx, cancel := context.WithCancel(t.Context())
					c, err := r.Expect(ctx, nil, nil)
					if err != nil {
						t.Fatal(err)
					}
					c.stream = endedStream{cancel: cancel}
					if row.started {
						c.Call.Start()
					}
					if row.read {
						c.read()
					}
					return c, ctx
				}
				before, _ := expect()
				late, ctx := expect()
				began := time.Now()
				after, _ := expect()
				r.Received(before)
				r.Received(after)
				held := memory.Usage().Total()
				<-time.After(time.Until(began.Add(FirstMessageTime - 1)))
				synctest.Wait()
				if ctx.Err() != nil || memory.Usage().Total() != held {
					t.Error("it ended too early")
				}
				<-time.After(1)
				synctest.Wait()
				if released := memory.Usage().Total() < held; released != row.released || (ctx.Err() != nil) != row.started {
					t.Errorf("released: %t, cancelled: %v", released, ctx.Err())
				}
				if r.received(late); r.expected.items.Len()+r.slow.items.Len() > 0 || len(r.calls) > 0 {
					t.Error("a call is still listed")
				}
			})
		})
	}
}

// TestSlotsOfOthers checks that a caller with too many slow requests ends its own, and none of another
// caller.
func TestSlotsOfOthers(t *testing.T) {
	t.Parallel()
	const slots = 4
	memory := budget.New(slots * receivingShare * (CallBytes + StreamWindow))
	r := NewReceiving(memory, func(string, string) {})
	start := func(caller string) *Call {
		ctx, cancel := context.WithCancel(t.Context())
		c := &Call{receiving: r, caller: caller, stream: endedStream{cancel: cancel}}
		c.Tapped(ctx)
		c.Call.Start()
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
