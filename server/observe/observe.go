package observe

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
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
// It is safe for concurrent use, and the metrics have their own registry. The methods that the server calls do nothing on a
// nil Observer. Do not pass a nil Observer to package fetch: Attempted and Fetched
// would panic.
//
// The methods called for each attempt look series up by number, not by label text,
// and do not allocate.
type Observer struct {
	traces *traces // nil: none

	registry *prometheus.Registry
	calls    *calls
	gauges   atomic.Pointer[Gauges]
	logger   *slog.Logger

	ended    []prometheus.Counter  // by kind, except failed fetches
	failed   []prometheus.Counter  // by class
	seconds  []prometheus.Observer // by kind
	attempts attempts
	delays   []prometheus.Observer // by source
	phases   [phaseCount]prometheus.Observer
	refused  map[string]prometheus.Counter
	other    prometheus.Counter // rejected for another reason
	callers  *callers
	denied   *prometheus.CounterVec

	bodyBytes, encodedBytes prometheus.Counter
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
	o := &Observer{traces: traces, logger: cfg.Logger}
	o.makeMetrics(&cfg)
	return o, nil
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

// Serving sets the functions that each scrape calls, and creates the series of every
// method of s with the value zero. Call it after all services are registered.
func (o *Observer) Serving(s reflection.ServiceInfoProvider, g Gauges) {
	if o != nil {
		o.calls.initialize(s)
		o.Gauges(g)
	}
}

// ServerOptions returns the interceptors that count calls. They must be the
// outermost ones, so that they also count calls that another interceptor rejects.
func (o *Observer) ServerOptions() []grpc.ServerOption {
	if o == nil {
		return nil
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(interceptors.UnaryServerInterceptor(o.calls)),
		grpc.ChainStreamInterceptor(interceptors.StreamServerInterceptor(o.calls)),
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
