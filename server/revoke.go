package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// revokedTime is how long a stream of a revoked caller may still report how its
	// tasks ended.
	revokedTime = 2 * time.Second
	// revokedConnTime is when the connection is closed whose client certificate named
	// a revoked caller. Its calls have ended by then.
	revokedConnTime = 5 * time.Second
)

var (
	// errRevoked is the cause with which the calls of a revoked caller are cancelled.
	errRevoked = errors.New("the caller is not allowed any more")
	// statusRevoked is what its calls end with.
	statusRevoked = status.Errorf(codes.Unauthenticated, "%v", errRevoked)
)

// authentication asks an Authenticator who calls, and again for the calls in flight
// when its answers may have changed.
type authentication struct {
	ask    Authenticator // nil admits everybody
	rounds atomic.Int64  // how often the calls in flight were asked for

	mu       sync.Mutex
	inFlight map[*callerContext]struct{}
}

// callerContext is the context of a call that was authenticated.
type callerContext struct {
	context.Context
	name  string
	shown Credentials
	// What follows is guarded by authentication.mu once the call is in flight.
	round  int64                   // in which the name was asked for
	revoke context.CancelCauseFunc // cancels the call
	over   bool
}

// Value implements context.Context.
func (c *callerContext) Value(key any) any {
	if key == (callerName{}) {
		return c
	}
	return c.Context.Value(key)
}

func newAuthentication(ask Authenticator) *authentication {
	return &authentication{ask: ask, inFlight: make(map[*callerContext]struct{})}
}

// identify returns a context that names who calls, or UNAUTHENTICATED. The connection is no
// stranger's any more.
func (a *authentication) identify(ctx context.Context, shown Credentials) (context.Context, error) {
	if a.ask == nil {
		return ctx, nil
	}
	round := a.rounds.Load() // before it asks: what changes meanwhile is noticed by enter
	name, err := a.ask(shown)
	if err != nil {
		return ctx, status.Errorf(codes.Unauthenticated, "%v", err)
	}
	connOf(ctx).authenticated()
	return &callerContext{Context: ctx, name: name, shown: shown, round: round}, nil
}

// cancellable returns a context that ends when the caller is revoked. It must be called
// before enter.
func cancellable(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if c := callerContextOf(ctx); c != nil {
		c.revoke = cancel
	}
	return ctx, cancel
}

func callerContextOf(ctx context.Context) *callerContext {
	c, _ := ctx.Value(callerName{}).(*callerContext)
	return c
}

// enter notes that a call is in flight, until leave. gRPC answers CANCELLED if a stream's
// context ends while a message is awaited, so this must be called when the request has come.
func (a *authentication) enter(ctx context.Context) error {
	c := callerContextOf(ctx)
	if c == nil {
		return nil
	}
	a.mu.Lock()
	if !c.over {
		a.inFlight[c] = struct{}{}
	}
	asked := c.round == a.rounds.Load()
	a.mu.Unlock()
	if asked {
		return nil
	}
	if name, err := a.ask(c.shown); err != nil || name != c.name { // it was identified just before a reload
		return statusRevoked
	}
	return nil
}

// leave notes that a call is over, and why if its caller was revoked.
func (a *authentication) leave(ctx context.Context, err *error) {
	c := callerContextOf(ctx)
	if c == nil {
		return
	}
	a.mu.Lock()
	c.over = true
	delete(a.inFlight, c)
	a.mu.Unlock()
	if *err != nil && errors.Is(context.Cause(ctx), errRevoked) {
		*err = statusRevoked
	}
}

// enterStream is enter for a call that awaits messages as long as it lives: revoke is called
// in place of a cancel.
func (a *authentication) enterStream(ctx context.Context, revoke func()) error {
	if c := callerContextOf(ctx); c != nil {
		a.mu.Lock()
		c.revoke = func(error) { revoke() }
		a.mu.Unlock()
	}
	return a.enter(ctx)
}

// again asks for every call in flight, cancels those whose caller is not named as before, and
// returns how many.
func (a *authentication) again() int {
	if a.ask == nil {
		return 0
	}
	round := a.rounds.Add(1)
	type answer struct {
		name string
		err  error
	}
	answers := make(map[Credentials]answer) // many calls show the same
	var revoked []context.CancelCauseFunc
	conns := make(map[*conn]struct{})
	a.mu.Lock()
	for c := range a.inFlight {
		now, known := answers[c.shown]
		if !known {
			now.name, now.err = a.ask(c.shown)
			answers[c.shown] = now
		}
		if now.err == nil && now.name == c.name {
			c.round = round
			continue
		}
		revoked = append(revoked, c.revoke)
		if conn := connOf(c); conn != nil && c.shown.Token == "" && c.shown.TLS != nil {
			conns[conn] = struct{}{}
		}
	}
	a.mu.Unlock()
	for _, revoke := range revoked {
		revoke(errRevoked)
	}
	for conn := range conns {
		time.AfterFunc(revokedConnTime, conn.drop) // at once would cut off what its calls end with
	}
	return len(revoked)
}

// Reauthenticate asks the [Authenticator] again for each call in flight, and cancels
// those whose caller it no longer names as before: they end with UNAUTHENTICATED, a
// stream of FetchMany after the outcomes of its tasks. A connection whose client
// certificate alone named such a caller is closed after that. It returns how many
// calls it has cancelled.
func (s *Server) Reauthenticate() int { return s.service.callers.again() }
