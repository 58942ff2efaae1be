package observe

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	"fetchd/fetch"
)

// Config says what is observed. The zero value counts, and traces nothing.
type Config struct {
	// Version of the program, for fetchd_build_info and the traces; empty means
	// "devel".
	Version string
	// TraceEndpoint takes the traces, by OTLP over gRPC: HOST:PORT, or
	// http://HOST:PORT, in plaintext, https://HOST:PORT with TLS. Empty means no
	// traces.
	TraceEndpoint string
	// TraceRatio is the share of fetches that are traced, 0 to 1, of those whose
	// caller sends no trace of its own. Where it does, its choice holds. Zero means
	// none.
	TraceRatio float64
	// TraceOrigins sends the trace's id to origins: see [fetch.Request].TraceParent.
	TraceOrigins bool
	// Exporter takes the spans in place of TraceEndpoint; nil means none.
	Exporter sdktrace.SpanExporter
	// Logger takes a line when traces are not taken, and when they are again; nil
	// means none.
	Logger *slog.Logger
	// DroppedLogLines returns how many lines of the log have been dropped. Nil means none.
	DroppedLogLines func() uint64
}

// Observer is a [fetch.Observer] that counts, and traces if it is asked to. It is
// safe for concurrent use. A nil one does nothing, but must not be given to package
// fetch, which calls it all the same.
type Observer struct {
	metrics *Metrics
	traces  *traces // nil: none
}

// New returns an observer. The error says which part of the configuration is not
// usable.
func New(cfg Config) (*Observer, error) {
	if cfg.TraceRatio < 0 || cfg.TraceRatio > 1 || cfg.TraceRatio != cfg.TraceRatio {
		return nil, errors.New("observe: TraceRatio must be from 0 to 1")
	}
	cfg.Version = orDefault(cfg.Version, "devel")
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
	return &Observer{newMetrics(cfg.Version, cfg.Logger, cfg.DroppedLogLines), traces}, nil
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

// Start begins the trace of a fetch that was asked for at since. It must come
// right before the fetch: the times of its attempts count from here. The context
// is for [fetch.Client.Fetch], whose end ends the trace; traceparent is for
// [fetch.Request].TraceParent, and empty where the origins are told nothing.
//
// The trace of the caller is that of ctx, or else of the metadata of its gRPC
// call.
func (o *Observer) Start(ctx context.Context, since time.Time) (_ context.Context, traceparent string) {
	if o == nil || o.traces == nil {
		return ctx, ""
	}
	return o.traces.start(ctx, since)
}

// Refused counts a call that is turned away, by the reason that its caller is
// told.
func (o *Observer) Refused(reason string) {
	if o != nil {
		o.metrics.Refused(reason)
	}
}

// Serving takes the functions that are asked with each scrape, and begins the
// series of every method of s at zero; it comes once all are registered.
func (o *Observer) Serving(s reflection.ServiceInfoProvider, g Gauges) {
	if o != nil {
		o.metrics.calls.InitializeMetrics(s)
		o.metrics.Gauges(g)
	}
}

// Handler answers GET /metrics. That of a nil observer is nil.
func (o *Observer) Handler() http.Handler {
	if o == nil {
		return nil
	}
	return o.metrics.Handler()
}

// ServerOptions are the interceptors that count calls, for the outside of all
// others.
func (o *Observer) ServerOptions() []grpc.ServerOption {
	if o == nil {
		return nil
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(o.metrics.calls.UnaryServerInterceptor()),
		grpc.ChainStreamInterceptor(o.metrics.calls.StreamServerInterceptor()),
	}
}

// flushTime bounds the last export.
const flushTime = 5 * time.Second

// Shutdown sends the traces that are not sent yet. It returns when that is done,
// after 5 s, or when ctx is, and leaves nothing running; the error tells that time
// was over first.
func (o *Observer) Shutdown(ctx context.Context) error {
	if o == nil || o.traces == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	return o.traces.shutdown(ctx)
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
