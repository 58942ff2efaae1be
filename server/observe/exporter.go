package observe

import (
	"context"
	"log/slog"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

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
