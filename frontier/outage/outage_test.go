package outage_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/frontier/outage"
)

// TestOutage checks which calls have a line in the log. Time passes after each of them.
func TestOutage(t *testing.T) {
	t.Parallel()
	const again = `level=INFO msg="the database works again" `
	for _, row := range []struct {
		name  string
		calls string // f: fails, w: works
		every time.Duration
		want  []string
	}{
		{"works", "www", time.Minute, nil},
		{"fails", "ffff", time.Minute, []string{"level=ERROR msg=failed"}},
		{"comes back", "fffww", outage.Calm, []string{"level=ERROR msg=failed", again + "errors=3 duration_seconds=30"}},
		{"some calls work", "fwfwfwwww", outage.Calm / 3, []string{"level=ERROR msg=failed", again + "errors=3 duration_seconds=20"}},
		{"fails again", "fwf", outage.Calm, []string{"level=ERROR msg=failed", again + "errors=1 duration_seconds=0", "level=ERROR msg=failed"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var text bytes.Buffer
				logger := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey {
						return slog.Attr{}
					}
					return a
				}}))
				var o outage.Outage
				for _, call := range row.calls {
					if call == 'f' {
						logger.Log(t.Context(), o.Failed(), "failed")
					} else {
						o.Worked(t.Context(), logger)
					}
					<-time.After(row.every)
				}
				if got, want := text.String(), strings.Join(append(row.want, ""), "\n"); got != want {
					t.Errorf("the log is\n%swant\n%s", got, want)
				}
			})
		})
	}
}
