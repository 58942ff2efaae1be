package api

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/frontier/v1"
	"fetchd/internal/door"
	"fetchd/internal/rejections"
)

// endedCall is a call for the log and the metrics.
type endedCall struct {
	method slog.Attr // or path
	name   string    // of a method of the contract; empty: another one
	caller string    // empty until it is known
	began  time.Time
}

type endedCallKey struct{}

// setCaller records the caller of the call of ctx.
func setCaller(ctx context.Context, name string) {
	if c, ok := ctx.Value(endedCallKey{}).(*endedCall); ok {
		c.caller = name
	}
}

// ownMethod returns the name of a method of the contract, or "".
func ownMethod(full string) string {
	name, own := strings.CutPrefix(full, "/"+pb.FrontierService_ServiceDesc.ServiceName+"/")
	if !own {
		return ""
	}
	return name
}

// refused logs and counts a call that was refused by its headers.
func (s *Server) refused(ctx context.Context, caller, method string, st *status.Status) {
	s.ended(ctx, &endedCall{method: slog.String("grpc.method", method), name: ownMethod(method), caller: caller, began: time.Now()}, "", st)
}

// logged is the interceptor that logs and counts the ends of calls.
func (s *Server) logged(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := &endedCall{method: slog.String("grpc.method", info.FullMethod), name: ownMethod(info.FullMethod), began: callOf(stream.Context()).Began()}
	if by := callOf(stream.Context()).caller; by != nil {
		c.caller = by.name
	}
	ctx := context.WithValue(stream.Context(), endedCallKey{}, c)
	wrapped := middleware.WrapServerStream(stream)
	wrapped.WrappedContext = ctx
	err := handler(srv, wrapped)
	address := ""
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	s.ended(ctx, c, address, status.Convert(err))
	return err
}

// ended logs and counts the end of a call. A call that was rejected has its own line at DEBUG only,
// because a caller can make thousands a second.
func (s *Server) ended(ctx context.Context, c *endedCall, address string, st *status.Status) {
	if c.name != "" {
		s.metrics.ended(c.name, c.caller, st.Code(), time.Since(c.began))
	}
	level := levelOf(st.Code())
	if level == slog.LevelInfo && isRejection(st.Code()) && c.caller != "" {
		if s.logger.Enabled(ctx, level) {
			s.rejected.Add(rejections.Call{Caller: c.caller, Reason: st.Code().String(), Method: c.method.Value.String(), Error: st.Message()})
		}
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{c.method, slog.String("grpc.code", st.Code().String()),
		slog.Float64("duration_seconds", time.Since(c.began).Round(time.Microsecond).Seconds()), slog.String("peer.address", address)}
	if c.caller != "" {
		attrs = append(attrs, slog.String("caller", c.caller))
	}
	if st.Message() != "" {
		attrs = append(attrs, slog.String("grpc.error", st.Message()))
	}
	s.logger.LogAttrs(ctx, level, "finished call", attrs...)
}

func levelOf(code codes.Code) slog.Level {
	switch code {
	case codes.OK, codes.Canceled,
		codes.Unauthenticated, // unauthenticated clients must not fill the log
		codes.Unavailable:     // an outage of the database has a line
		return slog.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	}
	return slog.LevelInfo
}

// isRejection reports whether a call with this status did nothing.
func isRejection(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.ResourceExhausted,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return true
	}
	return false
}

const (
	// maxNamedCallers limits the callers with their own series.
	maxNamedCallers = 256
	// otherCallers is the label value of all others.
	otherCallers = "other"
)

// Metrics counts calls, also those that are rejected. A nil one counts nothing.
type Metrics struct {
	calls    *prometheus.HistogramVec
	byCaller *prometheus.CounterVec
	closed   *prometheus.CounterVec
	named    atomic.Pointer[[]string] // sorted
}

// NewMetrics registers the metrics of a server.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "frontier_api_call_duration_seconds",
		Help: "Duration of calls of the API, gRPC and HTTP, by method and gRPC code.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}, []string{"method", "code"}),
		byCaller: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "frontier_api_caller_calls_total",
			Help: "Calls of the API, gRPC and HTTP, by caller and gRPC code."}, []string{"caller", "code"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "frontier_api_connections_closed_total",
			Help: "Connections that were closed for what their client did, by caller and cause."}, []string{"caller", "cause"})}
	m.named.Store(new([]string))
	r.MustRegister(m.calls, m.byCaller, m.closed)
	return m
}

func (m *Metrics) ended(method, caller string, code codes.Code, took time.Duration) {
	if m == nil {
		return
	}
	m.calls.WithLabelValues(method, code.String()).Observe(took.Seconds())
	m.byCaller.WithLabelValues(m.label(caller), code.String()).Inc()
}

// dropped counts a connection that is closed for what it did.
func (m *Metrics) dropped(caller string, cause door.Cause) {
	if m != nil {
		m.closed.WithLabelValues(m.label(caller), string(cause)).Inc()
	}
}

// label returns the label value of a caller.
func (m *Metrics) label(caller string) string {
	if _, named := slices.BinarySearch(*m.named.Load(), caller); !named {
		return otherCallers
	}
	return caller
}

func (m *Metrics) setCallers(names []string) {
	if m == nil {
		return
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	names = slices.DeleteFunc(names, func(name string) bool { return !utf8.ValidString(name) }) // no label value
	names = names[:min(len(names), maxNamedCallers)]
	for _, before := range *m.named.Swap(&names) {
		if !slices.Contains(names, before) && before != otherCallers {
			m.byCaller.DeletePartialMatch(prometheus.Labels{"caller": before})
			m.closed.DeletePartialMatch(prometheus.Labels{"caller": before})
		}
	}
}
