package api

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"fetchd/test/must"
)

// TestShares checks how much callers that take what they get leave for one more.
func TestShares(t *testing.T) {
	t.Parallel()
	callLimit := newGate(maxCalls).calls
	for _, row := range []struct {
		limit   limit
		callers int
	}{
		{callLimit, 1}, {callLimit, 2}, {callLimit, 8},
		{reflectionLimit, 1}, {reflectionLimit, 2},
		{waitLimit, 1}, {waitLimit, 2}, {waitLimit, 8}, {waitLimit, 500},
		{watchLimit, 1}, {watchLimit, 2}, {watchLimit, 8}, {watchLimit, 30},
	} {
		t.Run(fmt.Sprintf("%s, %d callers", row.limit.things, row.callers), func(t *testing.T) {
			t.Parallel()
			g, l := newGate(maxCalls), row.limit
			calls := limit{"calls", callLimit.of, 1 << 30, 1 << 30, true}
			var leave []func()
			add := func(name string) (context.Context, error) {
				if !l.held {
					_, done, err := g.enter(name, l)
					if err == nil {
						leave = append(leave, done)
					}
					return t.Context(), err
				}
				c, over, err := g.enter(name, calls)
				must.Succeed(t, err)
				held, done, err := c.hold(t.Context(), l)
				if err == nil {
					leave = append(leave, done)
				}
				leave = append(leave, over)
				return held, err
			}
			oldest := make([]context.Context, row.callers)
			for i := range oldest {
				held, err := add(fmt.Sprint(i))
				must.Succeed(t, err)
				oldest[i] = held
				for range l.all {
					if _, err := add(fmt.Sprint(i)); err != nil {
						break
					}
				}
			}
			g.wantWithin(t, l)
			late, err := add("late")
			if err != nil {
				t.Errorf("the next caller gets none: %v", err)
			} else if late.Err() != nil {
				t.Error("what the next caller has ends at once")
			}
			ended := slices.ContainsFunc(oldest, func(held context.Context) bool { return held.Err() != nil })
			if full := l.caller*row.callers >= l.all; l.held && ended != full {
				t.Errorf("the oldest of a caller with most ended: %t, want %t", ended, full)
			}
			for _, done := range leave {
				done()
			}
			if len(g.callers) != 0 || g.all != (load{}) {
				t.Errorf("%d callers and %+v are left", len(g.callers), g.all)
			}
		})
	}
}

// wantWithin checks the limits of one kind of load.
func (g *gate) wantWithin(t *testing.T, l limit) {
	t.Helper()
	for name, c := range g.callers {
		if n := *l.of(&c.load); n > l.caller {
			t.Errorf("caller %s has %d of %d", name, n, l.all)
		}
	}
	if n := *l.of(&g.all); n > l.all {
		t.Errorf("%d are in flight, want at most %d", n, l.all)
	}
}
