package frontier

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/frontier/outage"
)

// awayFromLoops is a store whose calls by loops fail, too.
type awayFromLoops struct{ *broken }

func (a awayFromLoops) Reap(context.Context) (int64, error)    { return 0, a.err() }
func (a awayFromLoops) Recrawl(context.Context) (int64, error) { return 0, a.err() }
func (a awayFromLoops) WorkerSeen(context.Context, string, string, bool) error {
	return a.err()
}

// TestOutage checks that a database that is away for a minute has two lines in the log of a worker.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w, b := newBroken(t, time.Minute)
		w.store, w.logger = awayFromLoops{b}, slog.New(slog.NewTextHandler(&log, nil))
		w.config.Name, w.config.Recrawl.Every = "w", time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute+outage.Calm+reapEvery)
		defer cancel()
		for _, loop := range []func(context.Context){w.reapLoop, w.seenLoop, w.recrawlLoop} {
			w.others.Go(func() { loop(ctx) })
		}
		w.others.Go(func() {
			for !w.delayHosts([]string{"a.test"}) { // as at the end of a visit
			}
		})
		w.others.Wait()
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), `level=ERROR msg="cannot `) || !strings.Contains(log.String(), `level=INFO msg="the database works again"`) {
			t.Errorf("the log has %d lines, want an error and the end of the outage:\n%s", n, log.String())
		}
		if w.Stats().Errors < 20 {
			t.Errorf("%d errors are counted, want each", w.Stats().Errors)
		}
	})
}
