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
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"fetchd/classify"
	"fetchd/fetch"
)

const (
	maxQueuedSpans   = 2048 // what is more than the exporter takes is lost, and no fetch waits
	maxSpansOfExport = 512
	exportTime       = 10 * time.Second // of one export, its retries included
	maxAttribute     = 1024             // bytes: a URL may have 8 KiB
)

// traces makes the spans: one for a fetch, and under it one for each attempt, and
// under that one for each hop.
type traces struct {
	provider *sdktrace.TracerProvider
	queue    sdktrace.SpanProcessor // of the spans to be sent
	tracer   trace.Tracer
	exporter *exporter
	origins  bool
}

// newTraces returns nil where no traces are wanted.
func newTraces(cfg *Config) (*traces, error) {
	sink := cfg.Exporter
	if sink == nil && cfg.TraceEndpoint == "" {
		if cfg.TraceOrigins {
			return nil, errors.New("observe: TraceOrigins needs a TraceEndpoint")
		}
		return nil, nil //nolint:nilnil // off
	}
	about, err := resource.New(context.Background(),
		resource.WithAttributes(semconv.ServiceName("fetchd"), semconv.ServiceVersion(cfg.Version)),
		resource.WithFromEnv()) // OTEL_RESOURCE_ATTRIBUTES, where a cluster says which replica this is
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
		trace.WithSchemaURL(semconv.SchemaURL)), e, cfg.TraceOrigins}, nil
}

// dialExporter connects when there is something to send.
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

// underWay is the key under which the context of a fetch holds its *traced.
type underWay struct{}

// traced is a fetch whose trace has begun. One goroutine at a time has it.
type traced struct {
	span     trace.Span
	begun    time.Time // what the offsets of hops count from
	requests int       // hops so far
}

func (t *traces) start(ctx context.Context, since time.Time) (context.Context, string) {
	begun := time.Now()
	ctx, span := t.tracer.Start(withParent(ctx), "fetch", trace.WithTimestamp(since), trace.WithSpanKind(trace.SpanKindServer))
	ctx = context.WithValue(ctx, underWay{}, &traced{span: span, begun: begun})
	if !t.origins {
		return ctx, ""
	}
	told := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, told)
	return ctx, told.Get("traceparent")
}

// attempted makes the spans of an attempt and its hops. A hop lasts until the
// next begins, the last until the attempt ends.
func (t *traces) attempted(ctx context.Context, e *fetch.AttemptFinished) {
	f, _ := ctx.Value(underWay{}).(*traced)
	if f == nil || !f.span.IsRecording() || len(e.Hops) == 0 {
		return
	}
	ended := time.Now()
	ctx, span := t.tracer.Start(trace.ContextWithSpan(context.Background(), f.span), "attempt",
		trace.WithTimestamp(f.begun.Add(e.Hops[0].Start)), trace.WithAttributes(ofAttempt(e)...))
	for i := range e.Hops {
		hop, until := &e.Hops[i], ended
		if i+1 < len(e.Hops) {
			until = f.begun.Add(e.Hops[i+1].Start)
		}
		attributes := ofHop(hop, f.requests)
		if e.Failure != nil && i+1 == len(e.Hops) {
			attributes = append(attributes, semconv.ErrorTypeKey.String(e.Failure.Class.String()))
		}
		_, made := t.tracer.Start(ctx, hop.Method, trace.WithTimestamp(f.begun.Add(hop.Start)),
			trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
		made.End(trace.WithTimestamp(until))
		f.requests++
	}
	span.End(trace.WithTimestamp(ended))
}

// fetched ends the trace of a fetch. One that was refused before it began has a
// span of no length.
func (t *traces) fetched(ctx context.Context, req *fetch.Request, out *fetch.Outcome) {
	f, _ := ctx.Value(underWay{}).(*traced)
	if f == nil {
		ctx, _ = t.start(ctx, time.Now().Add(-out.Total))
		f, _ = ctx.Value(underWay{}).(*traced)
	}
	defer f.span.End()
	if !f.span.IsRecording() {
		return
	}
	f.span.SetAttributes(ofFetch(req, out)...)
	if out.Kind == classify.Failed && out.Failure != nil {
		f.span.SetStatus(codes.Error, out.Failure.Class.String())
	}
}

func (t *traces) shutdown(ctx context.Context) error {
	err := t.queue.Shutdown(ctx) // the provider's does nothing where ctx is done
	t.exporter.giveUp()          // ends what is still under way, and with it the queue's goroutine
	<-t.exporter.closed
	return errors.Join(err, t.provider.Shutdown(context.WithoutCancel(ctx))) // from here on it makes no spans
}
