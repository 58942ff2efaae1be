package rejections_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/internal/rejections"
)

// TestLog checks that a flood of rejected calls has one line a second for each caller and reason.
func TestLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, out := newLog()
		call := rejections.Call{Caller: "nightly", Reason: "MEMORY", Method: "/v1/fetch", Error: "the memory is used up"}
		for range 8335 { // for 2.5 s
			l.Add(call)
			time.Sleep(300 * time.Microsecond) //nolint:forbidigo // in a bubble
		}
		l.Add(rejections.Call{Caller: "alice", Reason: "MEMORY", Method: "/v1/raw"})
		l.Add(rejections.Call{Caller: "nightly", Reason: "InvalidArgument", Method: "/v1/fetch"})
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		synctest.Wait()
		want := `msg="calls rejected" caller=nightly reason=MEMORY count=3334 method=/v1/fetch error="the memory is used up"
msg="calls rejected" caller=nightly reason=MEMORY count=3334 method=/v1/fetch error="the memory is used up"
msg="calls rejected" caller=alice reason=MEMORY count=1 method=/v1/raw
msg="calls rejected" caller=nightly reason=InvalidArgument count=1 method=/v1/fetch
msg="calls rejected" caller=nightly reason=MEMORY count=1667 method=/v1/fetch error="the memory is used up"
`
		if got := out.String(); got != want {
			t.Errorf("lines\n%s\nwant\n%s", got, want)
		}
		out.Reset()
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		l.Flush()
		if out.Len() > 0 {
			t.Errorf("lines without calls: %s", out)
		}
	})
}

// TestManyCallers checks that the lines, and the memory for them, are limited, and that no call is lost.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	l, out := newLog()
	for i := range 10_000 {
		l.Add(rejections.Call{Caller: fmt.Sprintf("192.0.2.%d", i), Reason: []string{"MEMORY", "TOO_MANY_FETCHES"}[i%2]})
	}
	l.Flush()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 102 {
		t.Errorf("%d lines, want 100 of callers and 2 of the others", len(lines))
	}
	for _, reason := range []string{"MEMORY", "TOO_MANY_FETCHES"} {
		if want := "caller=other reason=" + reason + " count=4950 "; !strings.Contains(out.String(), want) {
			t.Errorf("no line has %q", want)
		}
	}
}

func newLog() (*rejections.Log, *bytes.Buffer) {
	out := new(bytes.Buffer)
	return rejections.New(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))), out
}
