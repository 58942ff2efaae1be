package server_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

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
	must(t, err)
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

// TestHTTPOnTheGRPCPort checks that a request of HTTP/1 gets an answer that names the HTTP port, also if the gRPC
// port uses TLS.
func TestHTTPOnTheGRPCPort(t *testing.T) {
	t.Parallel()
	secure := func(c *server.Config) { c.TLS = &tls.Config{MinVersion: tls.VersionTLS13} }
	for name, change := range map[string]func(*server.Config){"plaintext": func(*server.Config) {}, "TLS": secure} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change)
			web := r.dial(r.DialHTTP)
			if _, err := io.WriteString(web, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil || !answers(web) { // over TLS, with 400
				t.Fatalf("the HTTP API is not served: %v", err)
			}
			conn := r.dial(r.DialGRPC)
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // a failed read means the same
			if _, err := io.WriteString(conn, "POST /v1/fetch HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn)
			_, port, _ := net.SplitHostPort(strings.SplitN(r.URL, "://", 2)[1])
			if want := "\r\n\r\nThis is the gRPC port of fetchd. The HTTP API is on port " + port + ".\n"; err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || !strings.HasSuffix(string(answer), want) {
				t.Errorf("%q, %v; want 400 and %q", answer, err, want)
			}
		})
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
			must(t, err)
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

// healthFrom returns a health client of connFrom.
func (r *rig) healthFrom(last byte) healthpb.HealthClient {
	r.Helper()
	return healthpb.NewHealthClient(r.connFrom(last))
}

// connFrom returns a gRPC connection from the address 127.0.0.last.
func (r *rig) connFrom(last byte) *grpc.ClientConn {
	r.Helper()
	conn, err := grpc.NewClient(r.Conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return r.dialFrom(last), nil }))
	must(r, err)
	r.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestHealthIsNotRead checks that a health call is answered before its request has
// arrived. Unauthenticated clients send it, and it may be long and compressed.
func TestHealthIsNotRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, knows)
	long := binary.BigEndian.AppendUint32([]byte{0}, 2<<20-16)
	packed := append([]byte{1, 0, 0, 0, 8}, "not gzip"...)
	for _, row := range []struct {
		name, method string
		data         []byte
		fields       [][2]string
	}{
		{"Check of nothing", healthpb.Health_Check_FullMethodName, nil, nil},
		{"Check that does not end", healthpb.Health_Check_FullMethodName, long, nil},
		{"List that does not end", healthpb.Health_List_FullMethodName, long, nil},
		{"compressed Check", healthpb.Health_Check_FullMethodName, packed, [][2]string{{"grpc-encoding", "gzip"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := r.in(t)
			h := r.hostile()
			h.open(1, row.method, row.fields...)
			h.must(h.framer.WriteData(1, false, row.data))
			_, data, fields, err := h.read(1)
			if err != nil || fields["grpc-status"] != "0" || len(data) < 7 || data[0] != 0 || fields["grpc-encoding"] == "gzip" {
				t.Errorf("%x, %v, %v; want a message that is not compressed, and OK", data, fields, err)
			}
		})
	}
}

// TestHealthThatIsNotTaken checks that a client without a window for answers cannot
// accumulate calls that never end.
func TestHealthThatIsNotTaken(t *testing.T) {
	t.Parallel()
	r := newRig(t, knows)
	const ofConn = 16
	for _, method := range []string{healthpb.Health_Check_FullMethodName, healthpb.Health_Watch_FullMethodName} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			r := r.in(t)
			h := r.hostile(window(0))
			for i := range uint32(60) {
				h.open(2*i+1, method)
			}
			for range 60 - ofConn {
				if _, _, fields, err := h.read(0); err != nil || fields["grpc-status"] != "8" {
					t.Fatalf("%v, %v; want RESOURCE_EXHAUSTED of all but %d", fields, err, ofConn)
				}
			}
			if _, _, fields, err := h.read(0); err == nil || isTimeout(err) {
				t.Errorf("%v, %v; want a closed connection", fields, err)
			}
		})
	}
}

// TestUnauthenticatedWatchDoesNotDelayShutdown checks that a stream that cannot end, because it has no
// window, does not delay the server's shutdown.
func TestUnauthenticatedWatchDoesNotDelayShutdown(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		conn := r.dial(r.DialGRPC)
		h := r.raw(conn, window(0))
		go func() { _, _ = io.Copy(io.Discard, conn) }() // the server must not wait for its reader
		h.open(1, healthpb.Health_Watch_FullMethodName)
		synctest.Wait()
		began := time.Now()
		r.shutDown()
		if took := time.Since(began); took > 2*time.Second {
			r.Errorf("Shutdown took %s, want 2 s at most", took)
		}
	}, knows)
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// TestProbeIsAlwaysAnswered checks that clients that use up all health calls lock out
// neither an orchestrator's probe nor a watch from another address.
func TestProbeIsAlwaysAnswered(t *testing.T) {
	t.Parallel()
	const ofConn, conns, call = 16, 64, 72 << 10
	r := newRig(t, knows, withMemory(8*ofConn*conns*call))
	var watches []healthpb.Health_WatchClient
	watch := func(health healthpb.HealthClient) (healthpb.Health_WatchClient, error) {
		w, err := health.Watch(t.Context(), new(healthpb.HealthCheckRequest))
		if err == nil {
			_, err = w.Recv()
		}
		return w, err
	}
	for i := range conns {
		health := r.healthFrom(byte(2 + i%2))
		for range ofConn {
			w, err := watch(health)
			for tries := 0; status.Code(err) == codes.ResourceExhausted && tries < 100; tries++ { // a call that is over may still be counted
				w, err = watch(health)
			}
			if err != nil {
				t.Fatalf("watch %d: %v", len(watches)+1, err)
			}
			watches = append(watches, w)
		}
	}
	_, err := watch(r.healthFrom(2))
	wantCode(t, "one more watch from the same address", err, codes.ResourceExhausted)
	mine, err := watch(r.healthFrom(9))
	if err != nil {
		t.Fatalf("a watch from another address: %v", err)
	}
	for i := range 3 {
		resp, err := r.healthFrom(9).Check(t.Context(), new(healthpb.HealthCheckRequest))
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("probe %d: %s, %v; want SERVING", i+1, resp.GetStatus(), err)
		}
	}
	for _, w := range []healthpb.Health_WatchClient{watches[0], watches[ofConn]} { // the oldest of either address
		if _, err := w.Recv(); err == nil || !strings.Contains(fmt.Sprint(err), "was ended for") {
			t.Errorf("the oldest watch: %v, want that it was ended for a newer one", err)
		}
	}
	go r.Service.Shutdown(context.Background()) //nolint:errcheck // the rig's own call returns the error
	if resp, err := mine.Recv(); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("my watch: %s, %v; want NOT_SERVING", resp.GetStatus(), err)
	}
}

// TestUnauthenticatedClientsAreNotLogged checks that what anyone can send without credentials is logged
// at DEBUG only, but for the sum of the calls.
func TestUnauthenticatedClientsAreNotLogged(t *testing.T) {
	t.Parallel()
	r := newRig(t, knows)
	h := r.hostile()
	for i, method := range []string{healthpb.Health_Check_FullMethodName, healthpb.Health_ServiceDesc.ServiceName, "/" + healthpb.Health_ServiceDesc.ServiceName + "/Nothing",
		"/nothing/Nothing", "/fetchd.v1.FetchService/Fetch", "/fetchd.v1.FetchService/FetchMany", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"} {
		id := uint32(2*i + 1)
		h.open(id, method)
		if _, _, _, err := h.read(id); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
	}
	_, err := r.healthFrom(3).Check(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer wrong"), new(healthpb.HealthCheckRequest))
	wantCode(t, "Check with a wrong token", err, codes.OK)
	for _, header := range [][2]string{{"X-None", "x"}, {"Authorization", "Bearer wrong"}, {"Origin", "https://evil.example"}} {
		r.post(t.Context(), "/v1/fetch", "{}", func(req *http.Request) { req.Header.Set(header[0], header[1]) })
	}
	_, _ = io.WriteString(r.dialFrom(4), "no HTTP/2 at all, and longer than a preface\r\n\r\n")
	if !served(r.dialFrom(4)) { // the server has read the previous connection
		t.Error("a connection is not served")
	}
	loud := slices.DeleteFunc(r.logs.all(t), func(line map[string]any) bool { return line["level"] == "DEBUG" || line["reason"] == "UNAUTHENTICATED" })
	if len(loud) > 0 {
		t.Errorf("%v, want no line above DEBUG", loud)
	}
	if n := len(r.logs.lines(t, "finished call")); n < 4 {
		t.Errorf("%d calls logged, want Check and those of the HTTP endpoint", n)
	}
}
