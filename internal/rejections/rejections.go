// Package rejections sums up the rejected calls of a service for its log: one line a second for
// each caller and reason, however many calls a caller makes.
package rejections

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// interval is the time from the first rejected call to the lines.
	interval = time.Second
	// maxLines limits the lines with the name of a caller, and the memory for them. The calls of
	// further callers have one line for each reason.
	maxLines = 100
	// Other stands for all of those callers.
	Other = "other"
)

// Call is a rejected call.
type Call struct {
	Caller string // its name, or else its address
	Reason string // one of few, such as TOO_MANY_FETCHES
	Method string // of gRPC, or a path
	Error  string // the text that the caller receives; empty: not logged
}

// key identifies a line.
type key struct{ caller, reason string }

// sum is what a line says.
type sum struct {
	count int
	last  Call
}

// Log writes the lines. It is safe for concurrent use. It has a timer only while there are
// calls to report.
type Log struct {
	logger *slog.Logger

	mu    sync.Mutex
	sums  map[key]*sum
	named int
	timer *time.Timer
}

// New returns a log of nothing.
func New(logger *slog.Logger) *Log { return &Log{logger: logger, sums: make(map[key]*sum)} }

// Add counts a call. Its line follows within a second.
func (l *Log) Add(c Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sums[key{c.Caller, c.Reason}]
	if s == nil && l.named >= maxLines {
		c.Caller = Other
		s = l.sums[key{c.Caller, c.Reason}]
	}
	if s == nil {
		s = new(sum)
		l.sums[key{c.Caller, c.Reason}] = s
		if c.Caller != Other {
			l.named++
		}
	}
	s.count++
	s.last = c
	if l.timer == nil {
		l.timer = time.AfterFunc(interval, l.Flush)
	}
}

// Flush writes the lines that are due later. Call it before the program ends.
func (l *Log) Flush() {
	l.mu.Lock()
	sums := l.sums
	if l.timer != nil {
		l.timer.Stop()
	}
	l.sums, l.named, l.timer = make(map[key]*sum), 0, nil
	l.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(sums), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.caller, b.caller), cmp.Compare(a.reason, b.reason))
	}) {
		s := sums[k]
		attrs := []slog.Attr{slog.String("caller", k.caller), slog.String("reason", k.reason), slog.Int("count", s.count), slog.String("method", s.last.Method)}
		if s.last.Error != "" {
			attrs = append(attrs, slog.String("error", s.last.Error))
		}
		l.logger.LogAttrs(context.Background(), slog.LevelInfo, "calls rejected", attrs...)
	}
}
