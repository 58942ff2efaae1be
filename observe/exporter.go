package observe

import (
	"context"
	"log/slog"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exporter is a SpanExporter that can be given up, and whose failures go to the
// log: OpenTelemetry would write them to the standard error, with each export.
type exporter struct {
	sdktrace.SpanExporter
	logger  *slog.Logger
	over    context.Context // done when nothing more is to be sent
	giveUp  context.CancelFunc
	closed  chan struct{}
	once    sync.Once
	failing bool // one export runs at a time
}

func newExporter(inner sdktrace.SpanExporter, logger *slog.Logger) *exporter {
	e := &exporter{SpanExporter: inner, logger: logger, closed: make(chan struct{})}
	e.over, e.giveUp = context.WithCancel(context.Background())
	return e
}

// ExportSpans implements sdktrace.SpanExporter. It reports no error.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if e.over.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.over, cancel)()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !e.failing:
		e.logger.Warn("traces are lost: the trace endpoint does not take them", slog.Any("error", err))
	case err == nil && e.failing:
		e.logger.Info("the trace endpoint takes traces again")
	}
	e.failing = err != nil
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer e.once.Do(func() { close(e.closed) })
	return e.SpanExporter.Shutdown(ctx)
}
