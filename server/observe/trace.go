package observe

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

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
