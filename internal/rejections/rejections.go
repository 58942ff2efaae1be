// Package rejections sums up the rejected calls of a service for its log: one line a second for
// each caller and reason, however many calls a caller makes.
package rejections

import (
	"cmp"
	"context"
	"log/slog"
)

// Other stands for the callers that have no separate line.
const Other = "other"

// Call is a rejected call.
type Call struct {
	Caller string // its name, or else its address
	Reason string // one of few, such as TOO_MANY_FETCHES
	Method string // of gRPC, or a path
	Error  string // the text that the caller receives; empty: not logged
}

// key identifies a line.
type key struct{ caller, reason string }

// Log writes the lines. It is safe for concurrent use.
type Log struct{ *Sums[key, Call] }

// New returns a log of nothing.
func New(logger *slog.Logger) *Log {
	return &Log{NewSums(
		func(k key) key { return key{Other, k.reason} },
		func(a, b key) int { return cmp.Or(cmp.Compare(a.caller, b.caller), cmp.Compare(a.reason, b.reason)) },
		func(k key, count int, last Call) {
			attrs := []slog.Attr{slog.String("caller", k.caller), slog.String("reason", k.reason), slog.Int("count", count), slog.String("method", last.Method)}
			if last.Error != "" {
				attrs = append(attrs, slog.String("error", last.Error))
			}
			logger.LogAttrs(context.Background(), slog.LevelInfo, "calls rejected", attrs...)
		})}
}

// Add counts a call. Its line follows within a second.
func (l *Log) Add(c Call) { l.Sums.Add(key{c.Caller, c.Reason}, c) }
