package server_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

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
	if err != nil {
		r.Fatal(err)
	}
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
	r := newRig(t, knows)
	const ofConn, conns = 16, 64
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
// at DEBUG only.
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
	loud := slices.DeleteFunc(r.logs.all(t), func(line map[string]any) bool { return line["level"] == "DEBUG" })
	if len(loud) > 0 {
		t.Errorf("%v, want no line above DEBUG", loud)
	}
	if n := len(r.logs.lines(t, "finished call")); n < 4 {
		t.Errorf("%d calls logged, want Check and those of the HTTP endpoint", n)
	}
}
