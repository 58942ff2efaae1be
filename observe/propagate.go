package observe

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// FromHeader returns ctx with the trace that the header of an HTTP call names
// (W3C Trace Context), for [Observer.Start].
func FromHeader(ctx context.Context, h http.Header) context.Context {
	if len(h["Traceparent"]) == 0 {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, lines(h.Values))
}

// withParent returns ctx with the trace that the metadata of its gRPC call names,
// if it has none yet.
func withParent(ctx context.Context) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, lines(func(key string) []string {
		return metadata.ValueFromIncomingContext(ctx, key)
	}))
}

// lines reads the values of a key. It is a propagation.TextMapCarrier.
type lines func(key string) []string

// Get implements propagation.TextMapCarrier. A traceparent that is there twice
// makes no sense when joined, and so counts as none.
func (l lines) Get(key string) string { return strings.Join(l(key), ",") }

// Set implements propagation.TextMapCarrier.
func (lines) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (lines) Keys() []string { return nil }
