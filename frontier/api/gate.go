package api

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits of one server, and of one caller of it.
const (
	maxCalls, maxCallsOfCaller         = 2048, 1024 // in flight, waiting claims and watches included
	maxWaits, maxWaitsOfCaller         = 1024, 512  // claims that wait
	maxWatches, maxWatchesOfCaller     = 64, 32
	maxReflections                     = 16    // of one caller and in all
	maxReceiving, maxReceivingOfCaller = 32, 8 // requests that arrive, or are long
)

// gate limits calls, so that the memory for callers has a limit.
type gate struct {
	receiving chan struct{}

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
}

func newGate() *gate {
	return &gate{receiving: make(chan struct{}, maxReceiving), callers: make(map[string]*caller)}
}

// limit is a kind of load and its limits.
type limit struct {
	things      string
	of          func(*load) *int
	all, caller int
}

var (
	callLimit  = limit{"calls", func(l *load) *int { return &l.calls }, maxCalls, maxCallsOfCaller}
	waitLimit  = limit{"waiting claims", func(l *load) *int { return &l.waits }, maxWaits, maxWaitsOfCaller}
	watchLimit = limit{"watches", func(l *load) *int { return &l.watches }, maxWatches, maxWatchesOfCaller}

	reflectionLimit = limit{"calls of reflection", func(l *load) *int { return &l.reflections }, maxReflections, maxReflections}
)

// enter admits a call. leave must be called when it ends.
func (g *gate) enter(name string, l limit) (c *caller, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c = g.callers[name]
	if c == nil {
		c = &caller{gate: g, name: name, receiving: make(chan struct{}, maxReceivingOfCaller)}
	}
	leave, err = c.addLocked(l)
	if err == nil {
		g.callers[name] = c
	}
	return c, leave, err
}

// add admits a part of a call, such as a wait.
func (c *caller) add(l limit) (leave func(), err error) {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	return c.addLocked(l)
}

func (c *caller) addLocked(l limit) (leave func(), err error) {
	g := c.gate
	all, own := l.of(&g.all), l.of(&c.load)
	if *all >= l.all || *own >= l.caller {
		return nil, status.Errorf(codes.ResourceExhausted, "too many %s are in flight: at most %d, %d of one caller; retry later", l.things, l.all, l.caller)
	}
	*all++
	*own++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
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
