package observe

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	"fetchd/fetch"
)

// Config configures an [Observer]. The zero value enables metrics and no traces.
type Config struct {
	// Version is the program's version, for fetchd_build_info and the traces. Empty
	// means "devel".
	Version string
	// TraceEndpoint receives the traces, by OTLP over gRPC. HOST:PORT and
	// http://HOST:PORT use plaintext, https://HOST:PORT uses TLS. Empty means no
	// traces, unless Exporter is set.
	TraceEndpoint string
	// TraceRatio is the fraction of fetches to trace, from 0 to 1. It applies to
	// fetches whose caller sends no trace context; otherwise the caller's sampling
	// decision applies.
	TraceRatio float64
	// Exporter receives the spans in place of TraceEndpoint. Nil means TraceEndpoint.
	Exporter sdktrace.SpanExporter
	// Logger receives a line when exporting traces starts to fail, and when it works
	// again. Nil means no log.
	Logger *slog.Logger
	// DroppedLogLines returns how many log lines have been dropped so far. Nil means
	// none.
	DroppedLogLines func() uint64
	// Collectors are metrics of other parts of the program, which /metrics has too. Their
	// names must not be those of an Observer.
	Collectors []prometheus.Collector
}

// Observer is a [fetch.Observer] that provides metrics and, if configured, traces.
// It is safe for concurrent use. The methods that the server calls do nothing on a
// nil Observer. Do not pass a nil Observer to package fetch: Attempted and Fetched
// would panic.
type Observer struct {
	metrics *Metrics
	traces  *traces // nil: none
}

// New returns an observer. The error names the field that is invalid.
func New(cfg Config) (*Observer, error) {
	if cfg.TraceRatio < 0 || cfg.TraceRatio > 1 || cfg.TraceRatio != cfg.TraceRatio {
		return nil, errors.New("observe: TraceRatio must be from 0 to 1")
	}
	cfg.Version = cmp.Or(cfg.Version, "devel")
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.DroppedLogLines == nil {
		cfg.DroppedLogLines = func() uint64 { return 0 }
	}
	traces, err := newTraces(&cfg)
	if err != nil {
		return nil, err
	}
	metrics := newMetrics(cfg.Version, cfg.Logger, cfg.DroppedLogLines)
	metrics.registry.MustRegister(cfg.Collectors...)
	return &Observer{metrics, traces}, nil
}

// Attempted implements [fetch.Observer].
func (o *Observer) Attempted(ctx context.Context, req *fetch.Request, e *fetch.AttemptFinished) {
	o.metrics.Attempted(ctx, req, e)
	if o.traces != nil {
		o.traces.attempted(ctx, e)
	}
}

// Fetched implements [fetch.Observer].
func (o *Observer) Fetched(ctx context.Context, req *fetch.Request, out *fetch.Outcome) {
	o.metrics.Fetched(ctx, req, out)
	if o.traces != nil {
		o.traces.fetched(ctx, req, out)
	}
}

// Start starts the trace of a fetch whose request arrived at since. Call it right
// before [fetch.Client.Fetch], and pass it the returned context: the offsets of the
// attempts count from this call, and the trace ends with the fetch.
//
// The parent span is the one in ctx or, if there is none, the one in the metadata of
// the gRPC call.
func (o *Observer) Start(ctx context.Context, since time.Time) context.Context {
	if o == nil || o.traces == nil {
		return ctx
	}
	return o.traces.start(ctx, since)
}

// Denied counts a decision of a policy of callers; see [Metrics.Denied].
func (o *Observer) Denied(policy, reason string, reported bool) {
	if o != nil {
		o.metrics.Denied(policy, reason, reported)
	}
}

// Refused counts a rejected call. reason is the ErrorInfo reason that the caller
// receives, such as TOO_MANY_FETCHES.
func (o *Observer) Refused(caller, reason string) {
	if o != nil {
		o.metrics.Refused(caller, reason)
	}
}

// Serving sets the functions that each scrape calls, and creates the series of every
// method of s with the value zero. Call it after all services are registered.
func (o *Observer) Serving(s reflection.ServiceInfoProvider, g Gauges) {
	if o != nil {
		o.metrics.calls.initialize(s)
		o.metrics.Gauges(g)
	}
}

// Handler returns the handler of GET /metrics, or nil if o is nil.
func (o *Observer) Handler() http.Handler {
	if o == nil {
		return nil
	}
	return o.metrics.Handler()
}

// ServerOptions returns the interceptors that count calls. They must be the
// outermost ones, so that they also count calls that another interceptor rejects.
func (o *Observer) ServerOptions() []grpc.ServerOption {
	if o == nil {
		return nil
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(interceptors.UnaryServerInterceptor(o.metrics.calls)),
		grpc.ChainStreamInterceptor(interceptors.StreamServerInterceptor(o.metrics.calls)),
	}
}

// flushTime is the time limit of the last export.
const flushTime = 5 * time.Second

// Shutdown exports the remaining traces and stops all goroutines. It takes at most
// 5 s, and ends earlier if ctx does. It returns an error if not everything was
// exported in that time.
func (o *Observer) Shutdown(ctx context.Context) error {
	if o == nil || o.traces == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	return o.traces.shutdown(ctx)
}
