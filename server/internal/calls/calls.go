// Package calls has what calls over gRPC and over HTTP share: their slots and callers, and the line
// that each logs.
package calls

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"fetchd/internal/badrequest"
	"fetchd/internal/budget"
	"fetchd/internal/rejections"
	"fetchd/server/internal/admission"
)

// Shared is what all calls share.
type Shared struct {
	Budget   *budget.Budget
	Fetches  *admission.Slots
	Callers  *admission.Callers
	Draining context.Context // done from the start of a drain
	Stall    time.Duration   // how long a caller may read nothing
	InFlight atomic.Int64    // calls in flight, except health
	Logger   *slog.Logger
	Rejected *rejections.Log
}

// Mode is how the messages of a call are sent.
type Mode struct {
	Unblocked int     // bytes that are sent without waiting for the reader
	Copies    int64   // of each message that are held while it is sent
	Encoded   bool    // by gRPC, and not read by anything before
	ID        *string // receives the ID of the fetch, if it is set
}

// Stalled returns the status of a call whose caller stopped reading.
func Stalled(limit time.Duration) error {
	st := status.Newf(codes.Aborted, "the caller has read nothing for %s: keep reading, or choose another delivery in body_policy", limit)
	return badrequest.WithDetails(st, &errdetails.ErrorInfo{Reason: "CONSUMER_STALLED", Domain: admission.ErrorDomain})
}

// LogPanic logs the value and the stack of a panic. It returns the status of the call.
func (s *Shared) LogPanic(ctx context.Context, msg string, p any) error {
	s.Logger.ErrorContext(ctx, msg, slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	return status.Error(codes.Internal, "internal error")
}

// Stranger counts and logs a call whose credentials name no caller. All of them share a line a second.
func (s *Shared) Stranger(ctx context.Context, err error) {
	const reason = "UNAUTHENTICATED"
	s.Fetches.Refused(rejections.Other, reason)
	s.Rejected.Add(rejections.Call{Caller: rejections.Other, Reason: reason, Error: status.Convert(err).Message() + ", from " + admission.Caller(ctx)})
}

// LogEnd logs the end of a call. caller is its name, or empty, and text the text of its error. A call
// that was rejected has its own line at DEBUG only, because a caller can make thousands a second.
func (s *Shared) LogEnd(ctx context.Context, level slog.Level, method slog.Attr, caller string, began time.Time, st *status.Status, text string) {
	if level == slog.LevelInfo && isRejection(st.Code()) {
		if s.Logger.Enabled(ctx, level) {
			s.Rejected.Add(rejections.Call{Caller: cmp.Or(caller, admission.Caller(ctx)), Reason: reasonOf(st), Method: method.Value.String(), Error: text})
		}
		level = slog.LevelDebug
	}
	if !s.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{method, slog.String("grpc.code", st.Code().String()),
		slog.Float64("duration_seconds", time.Since(began).Round(time.Microsecond).Seconds())}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		attrs = append(attrs, slog.String("peer.address", p.Addr.String()))
	}
	if caller != "" {
		attrs = append(attrs, slog.String("caller", caller))
	}
	if text != "" {
		attrs = append(attrs, slog.String("grpc.error", text))
	}
	s.Logger.LogAttrs(ctx, level, "finished call", attrs...)
}

// isRejection reports whether a call with this status was rejected before it fetched anything.
func isRejection(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.ResourceExhausted,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.Unavailable:
		return true
	}
	return false
}

// reasonOf returns the ErrorInfo reason of a status, or else its code.
func reasonOf(st *status.Status) string {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return st.Code().String()
}

// Level returns the level of the line of a call. A successful call has a line from its fetch
// already.
func Level(code codes.Code) slog.Level {
	switch code {
	case codes.OK, codes.Unauthenticated: // unauthenticated clients must not fill the log
		return slog.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	}
	return slog.LevelInfo
}
