package observe

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

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
