package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"fetchd/internal/badrequest"
	"fetchd/internal/door"
)

// Credentials are the credentials of a call.
type Credentials struct {
	// Token is the token of the Authorization header, if its scheme is Bearer. Empty means
	// that the call has none.
	Token string
	// TLS is the state of the connection. Nil means plaintext.
	TLS *tls.ConnectionState
}

// Authenticator returns the name of the caller with these credentials. If it returns an error,
// the call is refused with UNAUTHENTICATED and the text of the error, which must not contain
// secrets. It is called concurrently.
type Authenticator func(Credentials) (caller string, err error)

// callerName is the key under which the context of a call holds its [callerContext].
type callerName struct{}

// Caller returns the name of the caller of a call, or its address if it has no name.
func Caller(ctx context.Context) string {
	if c := callerContextOf(ctx); c != nil {
		return c.name
	}
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	return door.Address(p.Addr)
}

// callerContext is the context of an authenticated call.
type callerContext struct {
	context.Context
	name  string
	shown Credentials
	// Guarded by Callers.mu once the call is in flight.
	round   int64     // the round in which the name was determined
	call    Revocable // nil: not in flight yet
	revoked bool
	over    bool
}

// Value implements context.Context.
func (c *callerContext) Value(key any) any {
	if key == (callerName{}) {
		return c
	}
	return c.Context.Value(key)
}

func callerContextOf(ctx context.Context) *callerContext {
	c, _ := ctx.Value(callerName{}).(*callerContext)
	return c
}

// Name returns the name of the caller of a call, or "" if it has none.
func Name(ctx context.Context) string {
	if c := callerContextOf(ctx); c != nil {
		return c.name
	}
	return ""
}

// Revocable is a call that ends if its caller is revoked.
type Revocable interface{ Cancel(err error) }

// RevokeFunc is a function as a [Revocable].
type RevokeFunc func()

// Cancel implements Revocable.
func (f RevokeFunc) Cancel(error) { f() }

// revokedConnTime is the delay before a connection is closed whose client certificate
// named a revoked caller. Its calls have ended by then.
const revokedConnTime = 5 * time.Second

var (
	errRevoked = errors.New("the caller is no longer allowed")
	// StatusRevoked is the status of those calls. It is not UNAUTHENTICATED, which says that nothing was
	// sent to an origin.
	StatusRevoked = badrequest.WithDetails(status.Newf(codes.Aborted, "%v", errRevoked), &errdetails.ErrorInfo{Reason: "CALLER_REVOKED", Domain: ErrorDomain})
)

// Callers asks an Authenticator for the caller of each call, and asks again for
// the calls in flight when its answers may have changed.
type Callers struct {
	Ask    Authenticator             // nil admits every caller
	hangUp func(ctx context.Context) // closes the connection of a call
	rounds atomic.Int64              // how often it has asked again

	mu       sync.Mutex
	inFlight map[*callerContext]struct{}
}

// NewCallers returns the callers of a server. Nil ask admits every caller. hangUp closes the
// connection of a call.
func NewCallers(ask Authenticator, hangUp func(ctx context.Context)) *Callers {
	return &Callers{Ask: ask, hangUp: hangUp, inFlight: make(map[*callerContext]struct{})}
}

// Identify returns a context with the caller's name, or UNAUTHENTICATED. The connection
// is then authenticated.
func (a *Callers) Identify(ctx context.Context, shown Credentials) (context.Context, error) {
	if a.Ask == nil {
		door.FromContext(ctx).Authenticated("")
		return ctx, nil
	}
	round := a.rounds.Load() // before asking: Enter notices a later change
	name, err := a.Ask(shown)
	if err != nil {
		return ctx, status.Errorf(codes.Unauthenticated, "%v", err)
	}
	door.FromContext(ctx).Authenticated(name)
	return &callerContext{Context: ctx, name: name, shown: shown, round: round}, nil
}

// ByCertificate reports whether a client certificate alone identifies a caller.
func (a *Callers) ByCertificate(state *tls.ConnectionState) bool {
	if a.Ask == nil {
		return false
	}
	_, err := a.Ask(Credentials{TLS: state})
	return err == nil
}

// Enter records that a call is in flight, until [Callers.Leave]. It must be called after the request
// has arrived: gRPC answers CANCELLED if a stream's context ends before that. The first call to Enter sets what is
// cancelled if the caller is revoked.
func (a *Callers) Enter(ctx context.Context, call Revocable) error {
	c := callerContextOf(ctx)
	if c == nil {
		return nil
	}
	a.mu.Lock()
	if c.call == nil {
		c.call = call
	}
	if !c.over {
		a.inFlight[c] = struct{}{}
	}
	asked := c.round == a.rounds.Load()
	a.mu.Unlock()
	if asked {
		return nil
	}
	if name, err := a.Ask(c.shown); err != nil || name != c.name { // the call was identified just before a reload
		return status.Errorf(codes.Unauthenticated, "%v", errRevoked)
	}
	return nil
}

// Leave records that a call has ended. It sets the status if the caller was revoked.
func (a *Callers) Leave(ctx context.Context, err *error) {
	c := callerContextOf(ctx)
	if c == nil {
		return
	}
	a.mu.Lock()
	c.over = true
	delete(a.inFlight, c)
	revoked := c.revoked
	a.mu.Unlock()
	if *err != nil && revoked {
		*err = StatusRevoked
	}
}

// Again asks for every call in flight. It cancels those whose caller has another name or
// none, and returns how many.
func (a *Callers) Again() int {
	if a.Ask == nil {
		return 0
	}
	round := a.rounds.Add(1)
	type answer struct {
		name string
		err  error
	}
	answers := make(map[Credentials]answer) // many calls have the same credentials
	var revoked []Revocable
	conns := make(map[*door.Conn]context.Context)
	a.mu.Lock()
	for c := range a.inFlight {
		now, known := answers[c.shown]
		if !known {
			now.name, now.err = a.Ask(c.shown)
			answers[c.shown] = now
		}
		if now.err == nil && now.name == c.name {
			c.round = round
			continue
		}
		c.revoked = true
		revoked = append(revoked, c.call)
		if conn := door.FromContext(c); conn != nil && c.shown.Token == "" && c.shown.TLS != nil {
			conns[conn] = c
		}
	}
	a.mu.Unlock()
	for _, call := range revoked {
		call.Cancel(StatusRevoked)
	}
	for _, ctx := range conns {
		time.AfterFunc(revokedConnTime, func() { a.hangUp(ctx) }) // closing it now would cut off the ends of its calls
	}
	return len(revoked)
}
