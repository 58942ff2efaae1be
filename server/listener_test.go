package server_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// served reports whether the server accepts a connection of gRPC.
func served(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // a failed read means the same
	_, err := io.WriteString(conn, http2.ClientPreface)
	if err == nil {
		err = http2.NewFramer(conn, nil).WriteSettings()
	}
	return err == nil && answers(conn)
}

// answers reports whether the server sends something.
func answers(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // as above
	_, err := io.ReadFull(conn, make([]byte, 9))
	return err == nil
}

// over waits until the server has closed a connection.
func over(conn net.Conn) error {
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // as above
	if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
		return err
	}
	return nil
}

// TestUnauthenticatedConnections checks that idle unauthenticated connections, however many,
// lock out neither a probe nor callers, and close no caller's connection.
func TestUnauthenticatedConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, knows, func(c *server.Config) { c.MaxConnections, c.MaxConnectionsPerCaller = 32, 6 }) // 8 for unauthenticated clients
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer right")
	watch, err := r.healthFrom(3).Watch(t.Context(), new(healthpb.HealthCheckRequest)) // of a client that has made no call
	if err != nil {
		t.Fatal(err)
	}
	r.wantHealth(watch, healthpb.HealthCheckResponse_SERVING)
	m := r.many(ctx) // the caller's only connection
	m.start(r.task("a", "/s/a/200"))
	m.until(1) // its connection is authenticated
	var idle []net.Conn
	for i := range 100 {
		conn := r.dialFrom(byte(4 + i%2))
		if !served(conn) {
			t.Fatalf("unauthenticated connection %d is not accepted", i+1)
		}
		idle = append(idle, conn)
	}
	for i, conn := range idle[:len(idle)-8] {
		if err := over(conn); err != nil {
			t.Fatalf("connection %d of %d: %v, want it closed for a newer one", i+1, len(idle), err)
		}
	}
	for i := range 3 {
		if _, err := r.healthFrom(2).Check(t.Context(), new(healthpb.HealthCheckRequest)); err != nil {
			t.Errorf("probe %d: %v", i+1, err)
		}
	}
	m.start(r.task("b", "/s/b/200"))
	m.finish("a", "b")
	m.wantClass("a", ok)
	m.wantClass("b", ok)
	down := r.startShutDown()
	r.wantHealth(watch, healthpb.HealthCheckResponse_NOT_SERVING)
	down()
}

// TestUnauthenticatedConnectionsOverHTTP checks that a connection to the HTTP API belongs to a caller
// once a call on it is authenticated.
func TestUnauthenticatedConnectionsOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, knows, func(c *server.Config) { c.MaxConnections = 8 })
	dials := 0
	r.HTTPClient.Transport = &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	call := func() *http.Response {
		resp := r.post(t.Context(), "/v1/fetch:unary", `{"url": "`+r.Origin.URL("http", "/s/k/200")+`"}`, func(req *http.Request) { req.Header.Set("Authorization", "Bearer right") })
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is reused
		_ = resp.Body.Close()
		return resp
	}
	first := call()
	for range 20 {
		conn := r.dial(r.DialHTTP)
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil || !answers(conn) {
			t.Fatalf("an unauthenticated request: %v, or no answer", err)
		}
	}
	if second := call(); first.StatusCode != http.StatusOK || second.StatusCode != http.StatusOK || dials != 1 {
		t.Errorf("%s, then %s, on %d connections; want both answered on one", first.Status, second.Status, dials)
	}
}

// TestUnauthenticatedBytes checks that an unauthenticated connection can send only a limited
// number of bytes, whatever they are, and that a caller's connection is not limited.
func TestUnauthenticatedBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t, knows)
	for _, row := range []struct {
		name, token string
		closed      bool
	}{{"an unauthenticated client", "", true}, {"a caller", "Bearer right", false}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := r.in(t)
			h := r.hostile()
			h.open(1, pb.FetchService_FetchMany_FullMethodName, [2]string{"authorization", row.token})
			var err error
			for n := 0; n < 1<<20 && err == nil; n += 8 << 10 {
				err = h.framer.WriteRawFrame(http2.FrameType(0xee), 0, 0, make([]byte, 8<<10)) // of an unknown type, which is ignored
			}
			if err == nil {
				err = h.framer.WritePing(false, [8]byte{7})
			}
			for err == nil {
				var frame http2.Frame
				frame, err = h.framer.ReadFrame()
				if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() && ping.Data == [8]byte{7} {
					break
				}
			}
			if isTimeout(err) || (err != nil) != row.closed {
				t.Errorf("%v, want closed: %t", err, row.closed)
			}
		})
	}
}

// TestRequestsWithoutAWindowEnd checks that HTTP/2 requests without a window for their answers are
// limited in time, and those of unauthenticated clients in number too.
func TestRequestsWithoutAWindowEnd(t *testing.T) {
	t.Parallel()
	certified := httptest.NewUnstartedServer(nil)
	certified.EnableHTTP2 = true
	certified.StartTLS()
	defer certified.Close()
	r := newRig(t, knows, func(c *server.Config) { c.TLS = certified.TLS })
	for _, row := range []struct {
		name, token, path string
		window            uint32
		refused           int // at once; the others end later
	}{
		{"an unauthenticated client", "Bearer wrong", "/nothing", 0, 32 - 16},
		{"a caller", "Bearer right", "/nothing", 64 << 10, 0},
		{"a caller without a window", "Bearer right", "/nothing", 0, 0},
		{"a caller without a window, a call", "Bearer right", "/v1/raw", 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := r.in(t)
			dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
			conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.URL, "https://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(40 * time.Second))
			h := r.raw(conn, window(row.window))
			began := time.Now()
			for i := range uint32(32) {
				h.must(h.head(2*i+1, true, [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", row.path}, {":authority", "localhost"}, {"authorization", row.token}}...))
			}
			refused, ended := 0, 0
			for ended < 32 {
				frame, err := h.framer.ReadFrame()
				if err != nil {
					t.Fatalf("%v after %d of 32 have ended", err, ended)
				}
				reset, ok := frame.(*http2.RSTStreamFrame)
				if ok && reset.ErrCode == http2.ErrCodeInternal && time.Since(began) < 10*time.Second {
					refused++
				}
				if ok || frame.Header().Flags.Has(http2.FlagDataEndStream) && frame.Header().Type == http2.FrameData {
					ended++
				}
			}
			if refused != row.refused {
				t.Errorf("%d refused at once, want %d", refused, row.refused)
			}
		})
	}
}
