package api_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"fetchd/frontier/api"
	pb "fetchd/gen/frontier/v1"
	"fetchd/test/must"
)

// TestStrangers checks that connections without a token, whatever they send, lock out neither a caller
// nor a health check, and that a connection of a caller is not closed for them.
func TestStrangers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, sent string }{
		{"nothing", ""},
		{"half a head", "GET /healthz HT"},
		{"half a preface", "PRI * HTTP/2.0\r\n"},
		{"requests whose answers are not read", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *api.Config) {
				c.MaxConnections = 16
				c.Authenticate = func(token string, _ *tls.ConnectionState) (string, error) {
					if token != "secret" {
						return "", errors.New("send a token")
					}
					return "crawler", nil
				}
			})
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret")
			if _, err := r.Stats(ctx, new(pb.StatsRequest)); err != nil {
				t.Fatal(err)
			}
			stranger := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
			for range 40 {
				for _, port := range []string{r.grpc, r.web} {
					c, err := stranger.DialContext(t.Context(), "tcp", port)
					must.Succeed(t, err)
					defer c.Close()
					_, _ = c.Write([]byte(row.sent)) // it may be closed already
				}
			}
			if code, text := r.get("/healthz"); code != 200 {
				t.Errorf("/healthz: %d %s", code, text)
			}
			other, err := grpc.NewClient("passthrough:///"+r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
					return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 8)}}).DialContext(ctx, "tcp", address)
				}))
			must.Succeed(t, err)
			defer other.Close()
			if _, err := healthpb.NewHealthClient(other).Check(t.Context(), new(healthpb.HealthCheckRequest)); err != nil {
				t.Errorf("a health check: %v", err)
			}
			for _, client := range []pb.FrontierServiceClient{r, pb.NewFrontierServiceClient(other)} {
				if _, err := client.Stats(ctx, new(pb.StatsRequest)); err != nil {
					t.Errorf("a call with a token: %v", err)
				}
			}
		})
	}
}

// TestCallsOfAStranger checks that a connection without a token may make only a few calls.
func TestCallsOfAStranger(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *api.Config) {
		c.Authenticate = func(string, *tls.ConnectionState) (string, error) { return "", errors.New("send a token") }
	})
	health := healthpb.NewHealthClient(r.conn)
	for n := range 1000 { // more than it may make in the time of this test
		if _, err := health.Check(t.Context(), new(healthpb.HealthCheckRequest)); err != nil {
			if n < 64 {
				t.Errorf("call %d: %v", n+1, err)
			}
			return
		}
	}
	t.Error("1,000 calls are answered, want 64 and one a second")
}

// TestHTTPOnTheGRPCPort checks that a request of HTTP/1 gets an answer that names the HTTP port.
func TestHTTPOnTheGRPCPort(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.get("/healthz") // the HTTP API is served now
	_, port, _ := strings.Cut(r.web, ":")
	r.web = r.grpc
	if code, text := r.get("/v1/stats"); code != http.StatusBadRequest || text != "This is the gRPC port of frontier serve. The HTTP API is on port "+port+".\n" {
		t.Errorf("%d, %q; want 400 and the port %s", code, text, port)
	}
}
