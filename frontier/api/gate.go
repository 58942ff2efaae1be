package api

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits of one server, and of one caller of it. A caller may have no more calls than are free, so that
// the first ones leave something for others. If there are as many waits or watches as there may be, the
// caller with most of them loses its oldest for one of a caller that has fewer.
const (
	maxCalls                           = 2048      // in flight, waiting claims and watches included; half of them of one caller
	maxWaits, maxWaitsOfCaller         = 1024, 512 // claims that wait
	maxWatches, maxWatchesOfCaller     = 64, 32
	maxReflections                     = 16    // of one caller and in all
	maxReceiving, maxReceivingOfCaller = 32, 8 // requests that arrive, or are long
)

// gate limits calls, so that the memory for callers has a limit.
type gate struct {
	receiving chan struct{}
	calls     limit

	mu      sync.Mutex
	all     load
	callers map[string]*caller
}

// load is what is in flight.
type load struct{ calls, reflections, waits, watches int }

// caller is a caller with calls in flight.
type caller struct {
	load
	gate      *gate
	name      string
	receiving chan struct{}
	holds     []*hold // oldest first
}

// hold is a wait or a watch. It may be ended for one of another caller.
type hold struct {
	things string
	end    context.CancelFunc
	undo   func()
}

// newGate returns a gate for at most that many calls.
func newGate(calls int) *gate {
	return &gate{calls: limit{"calls", func(l *load) *int { return &l.calls }, calls, max(calls/2, 1), false}, receiving: make(chan struct{}, maxReceiving), callers: make(map[string]*caller)}
}

// limit is a kind of load and its limits.
type limit struct {
	things      string
	of          func(*load) *int
	all, caller int
	held        bool // see [caller.hold]
}

var (
	waitLimit  = limit{"waiting claims", func(l *load) *int { return &l.waits }, maxWaits, maxWaitsOfCaller, true}
	watchLimit = limit{"watches", func(l *load) *int { return &l.watches }, maxWatches, maxWatchesOfCaller, true}

	reflectionLimit = limit{"calls of reflection", func(l *load) *int { return &l.reflections }, maxReflections, maxReflections, false}
)

// enter admits a call. leave must be called when it ends.
func (g *gate) enter(name string, l limit) (c *caller, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c = g.callers[name]
	if c == nil {
		c = &caller{gate: g, name: name, receiving: make(chan struct{}, maxReceivingOfCaller)}
	}
	undo, err := c.addLocked(l)
	if err != nil {
		return c, nil, err
	}
	g.callers[name] = c
	return c, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		undo()
	}, nil
}

// hold admits a part of a call that may take long. Its context also ends when the part must end for one
// of another caller. leave must be called when it has ended.
func (c *caller) hold(ctx context.Context, l limit) (held context.Context, leave func(), err error) {
	g := c.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if *l.of(&g.all) >= l.all {
		g.endOldestLocked(l, *l.of(&c.load)+1)
	}
	undo, err := c.addLocked(l)
	if err != nil {
		return nil, nil, err
	}
	held, cancel := context.WithCancel(ctx)
	h := &hold{l.things, cancel, undo}
	c.holds = append(c.holds, h)
	return held, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		c.endLocked(h)
	}, nil
}

// endOldestLocked ends the oldest part of the caller with most of them, if these are more than than.
func (g *gate) endOldestLocked(l limit, than int) {
	var most *caller
	for _, c := range g.callers {
		if n := *l.of(&c.load); n > than {
			most, than = c, n
		}
	}
	if most == nil {
		return
	}
	if i := slices.IndexFunc(most.holds, func(h *hold) bool { return h.things == l.things }); i >= 0 {
		most.endLocked(most.holds[i])
	}
}

// endLocked ends a part of a call, unless it has ended.
func (c *caller) endLocked(h *hold) {
	if i := slices.Index(c.holds, h); i >= 0 {
		c.holds = slices.Delete(c.holds, i, i+1)
		h.end()
		h.undo()
	}
}

// addLocked counts something, unless there is too much of it. undo must be called with the lock.
func (c *caller) addLocked(l limit) (undo func(), err error) {
	g := c.gate
	all, own := l.of(&g.all), l.of(&c.load)
	if *all >= l.all || *own >= l.caller || !l.held && *own >= l.all-*all {
		return nil, status.Errorf(codes.ResourceExhausted, "too many %s are in flight: at most %d, %d of one caller; retry later", l.things, l.all, l.caller)
	}
	*all++
	*own++
	return func() {
		*all--
		*own--
		if c.load == (load{}) {
			delete(g.callers, c.name)
		}
	}, nil
}

// receive waits until a request may arrive. done must be called when the request is not held any more.
func (c *caller) receive(ctx context.Context) (done func(), err error) {
	for i, slots := range []chan struct{}{c.receiving, c.gate.receiving} {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-c.receiving
			}
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	return sync.OnceFunc(func() {
		<-c.gate.receiving
		<-c.receiving
	}), nil
}

type callerKey struct{}

// withCaller returns the context of a call that enter has admitted.
func withCaller(ctx context.Context, c *caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf returns the caller of a call.
func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}
