package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"fetchd/classify"
	"fetchd/fetch"
)

const (
	maxQueuedSpans   = 2048 // further spans are dropped, so that no fetch waits for the exporter
	maxSpansOfExport = 512
	exportTime       = 10 * time.Second // time limit of one export, including its retries
	maxAttribute     = 1024             // bytes; a URL can have 8 KiB
)

// traces creates the spans: one per fetch with a child per attempt, which has a child
// per hop.
type traces struct {
	provider *sdktrace.TracerProvider
	queue    sdktrace.SpanProcessor // spans to export
	tracer   trace.Tracer
	exporter *exporter
}

// newTraces returns nil if traces are disabled.
func newTraces(cfg *Config) (*traces, error) {
	sink := cfg.Exporter
	if sink == nil && cfg.TraceEndpoint == "" {
		return nil, nil //nolint:nilnil // disabled
	}
	about, err := resource.New(context.Background(),
		resource.WithAttributes(semconv.ServiceName("fetchd"), semconv.ServiceVersion(cfg.Version)),
		resource.WithFromEnv()) // OTEL_RESOURCE_ATTRIBUTES identifies the replica in a cluster
	if err != nil {
		return nil, fmt.Errorf("observe: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if sink == nil {
		if sink, err = dialExporter(cfg.TraceEndpoint); err != nil {
			return nil, err
		}
	}
	e := newExporter(sink, cfg.Logger)
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	queue := sdktrace.NewBatchSpanProcessor(e, sdktrace.WithMaxQueueSize(maxQueuedSpans),
		sdktrace.WithMaxExportBatchSize(maxSpansOfExport), sdktrace.WithExportTimeout(exportTime))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithResource(about),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.TraceRatio))),
		sdktrace.WithSpanProcessor(queue))
	return &traces{provider, queue, provider.Tracer("fetchd", trace.WithInstrumentationVersion(cfg.Version),
		trace.WithSchemaURL(semconv.SchemaURL)), e}, nil
}

// dialExporter returns an exporter that connects at its first export.
func dialExporter(endpoint string) (sdktrace.SpanExporter, error) {
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.User != nil {
		return nil, errors.New("observe: TraceEndpoint is not HOST:PORT, http://HOST:PORT or https://HOST:PORT")
	}
	sink, err := otlptracegrpc.New(context.Background(), otlptracegrpc.WithEndpointURL(endpoint), otlptracegrpc.WithTimeout(exportTime))
	if err != nil {
		return nil, fmt.Errorf("observe: TraceEndpoint: %w", err)
	}
	return sink, nil
}

// fetchTraceKey is the context key of a *fetchTrace.
type fetchTraceKey struct{}

// fetchTrace is the trace of a fetch in flight. It is used by one goroutine at a time.
type fetchTrace struct {
	span     trace.Span
	started  time.Time // the offsets of hops count from here
	requests int       // hops so far
}

func (t *traces) start(ctx context.Context, since time.Time) context.Context {
	started := time.Now()
	ctx, span := t.tracer.Start(withParent(ctx), "fetch", trace.WithTimestamp(since), trace.WithSpanKind(trace.SpanKindServer))
	return context.WithValue(ctx, fetchTraceKey{}, &fetchTrace{span: span, started: started})
}

// attempted creates the spans of an attempt and its hops. A hop ends when the next
// one starts, and the last one with the attempt.
func (t *traces) attempted(ctx context.Context, e *fetch.AttemptFinished) {
	f, _ := ctx.Value(fetchTraceKey{}).(*fetchTrace)
	if f == nil || !f.span.IsRecording() || len(e.Hops) == 0 {
		return
	}
	ended := time.Now()
	ctx, span := t.tracer.Start(trace.ContextWithSpan(context.Background(), f.span), "attempt",
		trace.WithTimestamp(f.started.Add(e.Hops[0].Start)), trace.WithAttributes(attemptAttributes(e)...))
	for i := range e.Hops {
		hop, until := &e.Hops[i], ended
		if i+1 < len(e.Hops) {
			until = f.started.Add(e.Hops[i+1].Start)
		}
		attributes := hopAttributes(hop, f.requests)
		if e.Failure != nil && i+1 == len(e.Hops) {
			attributes = append(attributes, semconv.ErrorTypeKey.String(e.Failure.Class.String()))
		}
		_, hopSpan := t.tracer.Start(ctx, hop.Method, trace.WithTimestamp(f.started.Add(hop.Start)),
			trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
		hopSpan.End(trace.WithTimestamp(until))
		f.requests++
	}
	span.End(trace.WithTimestamp(ended))
}

// fetched ends the trace of a fetch. A fetch that was rejected before it started has
// a span without attempts.
func (t *traces) fetched(ctx context.Context, req *fetch.Request, out *fetch.Outcome) {
	f, _ := ctx.Value(fetchTraceKey{}).(*fetchTrace)
	if f == nil {
		ctx = t.start(ctx, time.Now().Add(-out.Total))
		f, _ = ctx.Value(fetchTraceKey{}).(*fetchTrace)
	}
	defer f.span.End()
	if !f.span.IsRecording() {
		return
	}
	f.span.SetAttributes(fetchAttributes(req, out)...)
	if out.Kind == classify.Failed && out.Failure != nil {
		f.span.SetStatus(codes.Error, out.Failure.Class.String())
	}
}

func (t *traces) shutdown(ctx context.Context) error {
	err := t.queue.Shutdown(ctx) // the provider's Shutdown does nothing if ctx is done
	t.exporter.cancel()          // ends an export in flight, and with it the queue's goroutine
	<-t.exporter.closed
	return errors.Join(err, t.provider.Shutdown(context.WithoutCancel(ctx))) // no more spans from here on
}

// exporter is a SpanExporter that can be cancelled and logs the first failure of a
// series. OpenTelemetry would write every failure to standard error.
type exporter struct {
	sdktrace.SpanExporter
	logger  *slog.Logger
	ctx     context.Context // cancelled when nothing more is to be sent
	cancel  context.CancelFunc
	closed  chan struct{}
	once    sync.Once
	failing bool // needs no lock: one export runs at a time
}

func newExporter(inner sdktrace.SpanExporter, logger *slog.Logger) *exporter {
	e := &exporter{SpanExporter: inner, logger: logger, closed: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// ExportSpans implements sdktrace.SpanExporter. It logs errors and returns none.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if e.ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !e.failing:
		e.logger.Warn("traces are lost: the trace endpoint does not accept them", slog.Any("error", err))
	case err == nil && e.failing:
		e.logger.Info("the trace endpoint accepts traces again")
	}
	e.failing = err != nil
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer e.once.Do(func() { close(e.closed) })
	return e.SpanExporter.Shutdown(ctx)
}

// FromHeader returns ctx with the trace context in the header of an HTTP call (W3C
// Trace Context). Pass it to [Observer.Start].
func FromHeader(ctx context.Context, h http.Header) context.Context {
	if len(h["Traceparent"]) == 0 {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, lines(h.Values))
}

// withParent returns ctx with the trace context in the metadata of its gRPC call, if
// ctx has none yet.
func withParent(ctx context.Context) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, lines(func(key string) []string {
		return metadata.ValueFromIncomingContext(ctx, key)
	}))
}

// lines is a read-only propagation.TextMapCarrier that returns the values of a key.
type lines func(key string) []string

// Get implements propagation.TextMapCarrier. It joins repeated values. A repeated
// traceparent is then invalid and is ignored.
func (l lines) Get(key string) string { return strings.Join(l(key), ",") }

// Set implements propagation.TextMapCarrier.
func (lines) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (lines) Keys() []string { return nil }
