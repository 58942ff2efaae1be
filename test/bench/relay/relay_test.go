package relay_test

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/bench/origin"
	"fetchd/test/bench/relay"
	"fetchd/test/must"
)

// start runs a relay and an origin until the test ends.
func start(t *testing.T, cfg relay.Config) (*origin.Origin, pb.FetchServiceClient) {
	t.Helper()
	o, err := origin.Start()
	must.Succeed(t, err)
	cfg.RootCAs = x509.NewCertPool()
	cfg.RootCAs.AppendCertsFromPEM(o.Authority())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	s := relay.New(cfg)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	must.Succeed(t, err)
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		if err := errors.Join(<-served, o.Close()); err != nil {
			t.Error(err)
		}
	})
	return o, pb.NewFetchServiceClient(conn)
}

func TestFetchUnary(t *testing.T) {
	o, c := start(t, relay.Config{})
	for _, row := range []struct {
		name, listener, path string
		status               int32
		size                 int
		protocol             string
	}{
		{"1 KiB", "http", "/b/1024", 200, 1024, "HTTP/1.1"},
		{"nothing", "http", "/b/0", 200, 0, "HTTP/1.1"},
		{"TLS", "https", "/b/65536", 200, 65536, "HTTP/1.1"},
		{"HTTP/2", "h2", "/b/65536", 200, 65536, "HTTP/2.0"},
		{"a fault, which is not tried again", "http", "/f/100/1024", 503, 0, "HTTP/1.1"},
		{"more than it takes", "http", "/b/2000000", 200, 1 << 20, "HTTP/1.1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			url := o.URL(row.listener, row.path)
			resp, err := c.FetchUnary(t.Context(), &pb.FetchRequest{Url: url})
			must.Succeed(t, err)
			out := resp.GetOutcome()
			head := out.GetResponse()
			if head.GetStatusCode() != row.status || len(out.GetInlineBody()) != row.size || head.GetProtocol() != row.protocol || out.GetFinalUrl() != url {
				t.Errorf("%s = %d with %d bytes by %s from %q, want %d with %d by %s from %q", row.path, head.GetStatusCode(), len(out.GetInlineBody()),
					head.GetProtocol(), out.GetFinalUrl(), row.status, row.size, row.protocol, url)
			}
			if row.size > 0 && !strings.Contains(fmt.Sprint(head.GetHeaders()), "application/octet-stream") {
				t.Errorf("the headers have no Content-Type: %v", head.GetHeaders())
			}
		})
	}
}

// TestFetch counts the messages, because the goals of the benchmarks assume their number.
func TestFetch(t *testing.T) {
	o, c := start(t, relay.Config{})
	for _, row := range []struct {
		name           string
		size, messages int
		digest         bool
	}{
		{"no body", 0, 3, false},
		{"1 KiB", 1024, 4, false},
		{"one chunk", 31 << 10, 4, false},
		{"a byte more", 31<<10 + 1, 5, true},
		{"many", 1 << 20, 3 + 34, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			url := o.URL("http", fmt.Sprintf("/b/%d", row.size))
			stream, err := c.Fetch(t.Context(), &pb.FetchRequest{Url: url})
			must.Succeed(t, err)
			messages, body, out := read(t, stream)
			if messages != row.messages || len(body) != row.size {
				t.Errorf("%d messages with %d bytes, want %d with %d", messages, len(body), row.messages, row.size)
			}
			want := ""
			if row.digest {
				sum := sha256.Sum256(body)
				want = hex.EncodeToString(sum[:])
			}
			if got := out.GetBodySummary(); got.GetSha256() != want || got.GetSizeBytes() != int64(row.size) {
				t.Errorf("summary %v, want %d bytes with the digest %q", got, row.size, want)
			}
		})
	}
}

// read reads a stream to its end and checks the offsets of its chunks.
func read(t *testing.T, stream grpc.ServerStreamingClient[pb.FetchResponse]) (messages int, body []byte, out *pb.FetchOutcome) {
	t.Helper()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return messages, body, out
		}
		must.Succeed(t, err)
		messages++
		for _, e := range m.GetEvents() {
			out = e.GetOutcome()
			if chunk := e.GetBodyChunk(); chunk != nil {
				if chunk.GetOffsetBytes() != int64(len(body)) {
					t.Errorf("a chunk at %d, want it at %d", chunk.GetOffsetBytes(), len(body))
				}
				body = append(body, chunk.GetData()...)
			}
		}
	}
}

// TestWait checks that a stream sends one message and then nothing until it is cancelled.
func TestWait(t *testing.T) {
	o, c := start(t, relay.Config{Wait: time.Hour})
	ctx, leave := context.WithCancel(t.Context())
	stream, err := c.Fetch(ctx, &pb.FetchRequest{Url: o.URL("http", "/f/100/1024")})
	must.Succeed(t, err)
	if m, err := stream.Recv(); err != nil || len(m.GetEvents()) != 1 || m.GetEvents()[0].GetAdmitted() == nil {
		t.Fatalf("first message %v, %v, want Admitted", m, err)
	}
	leave()
	if m, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("then %v, %v, want %s", m, err, codes.Canceled)
	}
	if state, err := origin.Ask(t.Context(), o.Addr("http")); err != nil || state.Busy != 0 {
		t.Errorf("the origin was asked: %+v, %v", state, err)
	}
}

func TestNoOrigin(t *testing.T) {
	_, c := start(t, relay.Config{})
	for _, url := range []string{"http://127.0.0.1:1/b/1", "://"} {
		if _, err := c.FetchUnary(t.Context(), &pb.FetchRequest{Url: url}); err == nil {
			t.Errorf("%q was fetched", url)
		}
	}
}

// TestLength checks that the relay stays short.
func TestLength(t *testing.T) {
	text, err := os.ReadFile("relay.go")
	must.Succeed(t, err)
	if n := strings.Count(string(text), "\n"); n > 150 {
		t.Errorf("relay.go has %d lines, want 150 at most", n)
	}
}
