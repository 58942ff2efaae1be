// Package sample logs in each way that the programs do.
package sample

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
)

const stop = "stopped"

var span = attribute.Key("sample.key")

type worker struct{ logger *slog.Logger }

func (w *worker) run(ctx context.Context, name string, old bool) {
	w.logger.Info("started", slog.String("name", name))
	msg, level := "is new", slog.LevelInfo
	if old {
		msg, level = "is old", slog.LevelWarn
	}
	w.logger.Log(ctx, level, msg, slog.Bool("old", old))
	attrs := []any{slog.Int("count", 1)}
	attrs = append(attrs, limits()...)
	w.logger.InfoContext(ctx, stop, attrs...)
	w.fail("read")
	w.fail("write")
	w.line(level, "by a function", slog.Any("error", ctx.Err()))
	w.line(level, "by a function too", attr(slog.Float64("f", 1)))
}

func (w *worker) end() { w.took(slog.String("kept", string(span)), 1) }

func limits() []any { return []any{slog.Int64("limit", 5)} }

func attr(a slog.Attr) slog.Attr { return a }

func (w *worker) fail(doing string) { w.logger.Error("cannot "+doing, slog.String(doing+"_error", "")) }

func (w *worker) line(level slog.Level, msg string, attrs ...slog.Attr) {
	record := slog.NewRecord(time.Now(), level, msg, 0)
	record.AddAttrs(attrs...)
	_ = w.logger.Handler().Handle(context.Background(), record)
}

func (w *worker) took(method slog.Attr, n int) { w.logger.Warn("took", method, slog.Int("n", n)) }

func check(blocked string) (name, reason string) {
	if blocked == "" {
		return "x", "not_allowed"
	}
	reason = "denied"
	return "y", reason
}
