package fetch_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"fetchd/classify"
	"fetchd/fetch"
)

// TestUndelivered checks that the summary of a body counts what the sink took, and not a chunk that it
// refused or that was never passed to it.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	const size, chunk = 100_000, 31 << 10
	w := newWire(t)
	request := w.request("http", "/s/k/200:size=100000,chunked")
	for _, row := range []struct {
		name     string
		holdBack int64
		taken    int // chunks that the sink takes before it fails
		err      error
		size     int64
	}{
		{"the caller is gone", size, 1, errors.New("gone"), chunk},
		{"cancelled", size, 1, fetch.ErrCancelled, chunk},
		{"no memory", size, 2, fetch.ErrOutOfMemory, 2 * chunk},
		{"the last chunk", size, 3, fetch.ErrCancelled, 3 * chunk},
		{"nothing was delivered", size, 0, fetch.ErrCancelled, size}, // what was read
		{"cancelled after a chunk", size, 1, nil, chunk},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := *request
			r.HoldBackBytes = row.holdBack
			chunks, refused := 0, false
			var got int64
			out := w.client.Fetch(ctx, &r, func(e fetch.Event) error {
				b, ok := e.(fetch.BodyChunk)
				switch {
				case !ok:
					return nil
				case refused:
					t.Error("a chunk after one that was refused")
				case chunks == row.taken:
					refused = true
					return row.err
				}
				chunks++
				got += int64(len(b.Data))
				if chunks == row.taken && row.err == nil {
					cancel()
				}
				return nil
			})
			if out.Failure == nil || out.Body.Size != row.size {
				t.Errorf("summary has %d bytes, %d were delivered; failure %+v", out.Body.Size, got, out.Failure)
			}
			if got > 0 && out.Body.SHA256 != "" {
				t.Errorf("digest %s of bytes that were not all delivered", out.Body.SHA256)
			}
		})
	}
}

// TestRefusedChunkIsNotReused checks that no later fetch writes into a chunk that a sink has refused:
// package server may still be sending it when its task ends.
func TestRefusedChunkIsNotReused(t *testing.T) { //nolint:paralleltest // other tests would take the memory from the pool
	w := newWire(t)
	for i, row := range []struct {
		name     string
		holdBack int64
		refused  int // index of the chunk
		err      error
	}{
		{"the caller is gone", 0, 0, errors.New("gone")},
		{"cancelled", 0, 1, fetch.ErrCancelled},
		{"no memory", 0, 0, fetch.ErrOutOfMemory},
		{"the first of a hold-back", 100_000, 0, fetch.ErrCancelled},
		{"the last of a hold-back", 100_000, 3, errors.New("gone")},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := w.in(t)
			r := w.request("http", fmt.Sprintf("/s/k%d/200:size=100000,chunked", i))
			r.HoldBackBytes = row.holdBack
			chunks := 0
			var kept, want []byte
			w.client.Fetch(t.Context(), r, func(e fetch.Event) error {
				if b, ok := e.(fetch.BodyChunk); ok {
					if chunks++; chunks > row.refused {
						kept, want = b.Data, bytes.Clone(b.Data)
						return row.err
					}
				}
				return nil
			})
			for n := range 20 {
				w.client.Fetch(t.Context(), w.request("http", fmt.Sprintf("/s/k%d-%d/200:body=other", i, n)), nil)
			}
			if len(kept) == 0 || !bytes.Equal(kept, want) {
				t.Errorf("the chunk of %d bytes starts with %.5q, want %.5q", len(kept), kept, want)
			}
		})
	}
}

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

// TestOriginThatStopsReading uses an HTTP/2 origin that opens its window for the request and then
// stops reading its connection. The attempt ends by its own limit, and the connection and the
// goroutines that write to it end soon after.
func TestOriginThatStopsReading(t *testing.T) {
	t.Parallel()
	certificate, roots := selfSigned(t)
	given := make(chan struct{})
	c := newClient(t, fetch.Config{
		Egress: unrestricted, RootCAs: roots,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			ours, its := net.Pipe()
			go deafOrigin(tls.Server(its, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"},
				SessionTicketsDisabled: true})) // a pipe has no buffer for a ticket that no one reads
			return &closing{Conn: ours, closed: sync.OnceFunc(func() { close(given) })}, nil
		},
	})
	r := get(t, "https://example.com/")
	r.Method, r.Body = "PUT", make([]byte, 1<<20)
	r.Policy.MaxAttempts = 1
	r.HeaderTimeout = time.Second
	if f := c.Fetch(t.Context(), r, nil).Failure; f == nil || f.Class != classify.WriteTimeout {
		t.Errorf("%+v, want write_timeout", f)
	}
	select {
	case <-given:
	case <-time.After(20 * time.Second):
		t.Error("the connection is still open 20 s later")
	}
}

// closing is a connection that reports its close.
type closing struct {
	net.Conn
	closed func()
}

func (c *closing) Close() error {
	c.closed()
	return c.Conn.Close()
}

// deafOrigin completes the handshake, opens its windows and reads nothing more.
func deafOrigin(conn *tls.Conn) {
	if conn.Handshake() != nil {
		return
	}
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(conn, nil)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 16 << 20})
	_ = f.WriteWindowUpdate(0, 16<<20)
}

// selfSigned returns a certificate for 127.0.0.1 and example.com, and a pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.TLS.Certificates[0], roots
}
