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

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
)

// TestSinkThatPanics checks that the exchange ends too. Nothing else would end it, because the
// caller's context may never end.
func TestSinkThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		c, err := fetch.New(fetch.Config{
			Egress: fetch.Egress{Unrestricted: true},
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, its := net.Pipe()
				go halfAnswer(its)
				return &closing{Conn: ours, closed: func() { gone.Store(true) }}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r := fetch.NewRequest(classify.Standard)
		r.URL, _ = urls.Parse("http://example.com/")
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
