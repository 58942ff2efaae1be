package door

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
)

// Call is the context of a gRPC call from its headers until its handler has returned. The tap of a server
// returns it, with what the call holds from then on. Whoever runs the handler calls Start, and then releases
// that and calls End. gRPC starts no handler
//
//   - for a call whose context has ended when the tap returns. It asks once, and Err answers nil;
//   - for a call whose grpc-encoding it does not know. So a program must call GiveUp some time later.
//
// Its methods are safe for concurrent use.
type Call struct {
	context.Context

	conn  *Conn
	began time.Time
	stage atomic.Int32
}

// The stages of a call.
const (
	tapped  = iota // until gRPC asks whether the context has ended
	waiting        // for its handler
	started
	givenUp
)

// Tapped makes c the call of a context.
func (c *Call) Tapped(ctx context.Context) {
	c.Context, c.conn, c.began = ctx, FromContext(ctx), time.Now()
}

// Began returns when the headers of the call arrived.
func (c *Call) Began() time.Time { return c.began }

// Err implements context.Context.
func (c *Call) Err() error {
	if c.stage.CompareAndSwap(tapped, waiting) {
		return nil
	}
	return c.Context.Err()
}

// Start records that the handler has started. It returns false if the call was given up before: then the
// handler must return at once.
func (c *Call) Start() bool { return c.leave(started) }

// GiveUp reports whether no handler has started. Then what the call holds must be released.
func (c *Call) GiveUp() bool { return c.leave(givenUp) }

func (c *Call) leave(to int32) bool {
	return c.stage.CompareAndSwap(waiting, to) || c.stage.CompareAndSwap(tapped, to)
}

// End records that the handler has returned. A call that was cancelled after a second or more costs the client
// nothing: see [Credentials].
func (c *Call) End() {
	if c.conn != nil && c.Context.Err() != nil && time.Since(c.began) >= longCall {
		c.conn.paid.Add(1)
	}
}

// Tap returns the option with which tapped admits a call before it has a goroutine. A call that it refuses is counted by
// its connection.
func Tap(tapped tap.ServerInHandle) grpc.ServerOption {
	return grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
		call, err := tapped(ctx, info)
		if err != nil {
			FromContext(ctx).Refused()
		}
		return call, err
	})
}

// Methods returns the full names of the methods that are registered with s.
func Methods(s *grpc.Server) map[string]bool {
	methods := make(map[string]bool)
	for service, info := range s.GetServiceInfo() {
		for _, m := range info.Methods {
			methods["/"+service+"/"+m.Name] = true
		}
	}
	return methods
}
