// Package outage follows whether a database works, so that the log of a program has one line when it fails and
// one when it works again, however many calls fail in between.
package outage

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Calm is how long no call may fail before the database counts as working again. It is longer than the time
// between two tries of any loop.
const Calm = 15 * time.Second

// Outage is the state of a database. The zero value is one that works. It is safe for concurrent use.
type Outage struct {
	mu          sync.Mutex
	first, last time.Time // errors; zero while the database works
	errors      int
}

// Failed records an error and returns the level of its line in the log: ERROR for the first one of an outage,
// DEBUG for the others.
func (o *Outage) Failed() slog.Level {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = time.Now()
	if o.errors++; o.errors > 1 {
		return slog.LevelDebug
	}
	o.first = o.last
	return slog.LevelError
}

// Worked records that a call of the database has succeeded. If this ends an outage, it logs that.
func (o *Outage) Worked(ctx context.Context, logger *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.errors == 0 || time.Since(o.last) < Calm {
		return
	}
	logger.InfoContext(ctx, "the database works again", slog.Int("errors", o.errors), slog.Float64("duration_seconds", o.last.Sub(o.first).Seconds()))
	o.first, o.last, o.errors = time.Time{}, time.Time{}, 0
}
