package fetch

import (
	"context"
	"net"
	"net/http/httptrace"
	"testing"

	"fetchd/fetch/timers"
)

// TestAnswerBeforeItsRequest: over HTTP/1 an answer that begins before its
// request was written is somebody else's (SECURITY.md).
func TestAnswerBeforeItsRequest(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		written bool
		early   bool
	}{
		{"before the request", false, true},
		{"after the request", true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			here, there := net.Pipe()
			defer func() { _, _ = here.Close(), there.Close() }()
			early := false
			w := new(timers.Limit)
			w.Init(new(timers.Clock), func(error) {})
			defer w.Stop()
			x := &trace{watch: w, limits: &Request{}, left: 1, end: func(error) { early = true }}
			hooks := httptrace.ContextClientTrace(httptrace.WithClientTrace(context.Background(), x.hooks(false)))
			hooks.GotConn(httptrace.GotConnInfo{Conn: &observedConn{Conn: here}, Reused: true})
			if row.written {
				hooks.WroteHeaders()
			}
			hooks.GotFirstResponseByte()
			if early != row.early {
				t.Errorf("taken for somebody else's: %t, want %t", early, row.early)
			}
		})
	}
}
