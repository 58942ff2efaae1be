package server

import (
	"context"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// pushback is when a caller that was refused may come again.
const pushback = 250 * time.Millisecond

// admission counts the fetches in flight and refuses those over a limit. It
// never makes one wait: a queue would hide the overload from the caller, who can
// go to another replica.
type admission struct {
	total     int // in all
	perCaller int // of one caller; 0: no limit of its own

	mu       sync.Mutex
	inFlight int
	callers  map[string]int
}

// enter admits a fetch and returns what must be called at its end, or
// RESOURCE_EXHAUSTED. It must come before the first message of a stream: stock
// clients try again what was refused before that, and only that.
func (a *admission) enter(ctx context.Context) (leave func(), err error) {
	caller := callerOf(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.inFlight >= a.total:
		return nil, refuse(ctx, "TOO_MANY_FETCHES", "the server carries out as many fetches as it may")
	case a.perCaller > 0 && a.callers[caller] >= a.perCaller:
		return nil, refuse(ctx, "TOO_MANY_FETCHES_OF_CALLER", "this caller has as many fetches under way as one may")
	}
	a.inFlight++
	a.callers[caller]++
	return func() { a.leave(caller) }, nil
}

func (a *admission) leave(caller string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inFlight--
	if a.callers[caller]--; a.callers[caller] == 0 {
		delete(a.callers, caller)
	}
}

// refuse says no, why, and when to come again: as a detail for people and
// programs, and as the metadata that gRPC's own retry obeys (gRFC A6).
func refuse(ctx context.Context, reason, text string) error {
	_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(pushback.Milliseconds(), 10))) // fails outside a call only
	return withDetails(status.Newf(codes.ResourceExhausted, "%s: try again in %s, or ask another replica", text, pushback),
		&errdetails.RetryInfo{RetryDelay: durationpb.New(pushback)},
		&errdetails.ErrorInfo{Reason: reason, Domain: errorDomain})
}
