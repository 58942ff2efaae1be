package fetch_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"fetchd/fetch"
)

// TestSinkThatPanics checks that the exchange ends too. Nothing else would end it, because the
// caller's context may never end.
func TestSinkThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		c := newClient(t, fetch.Config{
			Egress: unrestricted,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, its := net.Pipe()
				go halfAnswer(its)
				return &closing{Conn: ours, closed: func() { gone.Store(true) }}, nil
			},
		})
		r := get(t, "http://example.com/")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not reach the caller")
				}
			}()
			c.Fetch(ctx, r, func(e fetch.Event) error {
				if _, ok := e.(fetch.ResponseStarted); ok {
					panic("a reason")
				}
				return nil
			})
		}()
		if synctest.Wait(); !gone.Load() {
			t.Error("the connection is still open")
		}
	})
}

// halfAnswer answers one request and never sends the whole body.
func halfAnswer(conn net.Conn) {
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
		return
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
	_, _ = io.Copy(io.Discard, conn)
}
