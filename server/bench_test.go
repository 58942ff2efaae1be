package server_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/daemon"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/server/observe"
)

// benchBody is the number of bytes that a fetch of these benchmarks reads.
const benchBody = 1 << 10

// BenchmarkFetchUnary makes one call after another over loopback, with metrics and log lines. It
// counts the allocations of the whole process, including the client and the origin.
func BenchmarkFetchUnary(b *testing.B) {
	client, url := benchServer(b)
	in := &pb.FetchRequest{Url: url}
	b.ReportAllocs()
	for b.Loop() {
		resp, err := client.FetchUnary(b.Context(), in)
		must(b, err)
		if got := len(resp.GetOutcome().GetInlineBody()); got != benchBody {
			b.Fatalf("%v with %d bytes, want %d", resp.GetOutcome(), got, benchBody)
		}
	}
}

// BenchmarkFetchStream is BenchmarkFetchUnary for Fetch, with the default events.
func BenchmarkFetchStream(b *testing.B) {
	client, url := benchServer(b)
	in := &pb.FetchRequest{Url: url}
	b.ReportAllocs()
	for b.Loop() {
		stream, err := client.Fetch(b.Context(), in)
		must(b, err)
		got := 0
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			must(b, err)
			for _, e := range m.GetEvents() {
				got += len(e.GetBodyChunk().GetData())
			}
		}
		if got != benchBody {
			b.Fatalf("%d bytes, want %d", got, benchBody)
		}
	}
}

// BenchmarkFetchMany sends 16 tasks in a message, and reads their outcomes before it sends the next
// message. One operation is 16 fetches.
func BenchmarkFetchMany(b *testing.B) {
	client, url := benchServer(b)
	in := new(pb.FetchManyRequest)
	for i := range 16 {
		in.Tasks = append(in.Tasks, &pb.Task{Tag: strconv.Itoa(i), Request: &pb.FetchRequest{Url: url}})
	}
	stream, err := client.FetchMany(b.Context())
	must(b, err)
	b.ReportAllocs()
	for b.Loop() {
		must(b, stream.Send(in))
		for left := len(in.GetTasks()); left > 0; {
			m, err := stream.Recv()
			must(b, err)
			for _, answer := range m.GetEvents() {
				if got := len(answer.GetEvent().GetOutcome().GetInlineBody()); got != benchBody {
					b.Fatalf("%v with %d bytes, want %d", answer.GetEvent(), got, benchBody)
				}
				left--
			}
		}
	}
	must(b, stream.CloseSend())
	if m, err := stream.Recv(); !errors.Is(err, io.EOF) {
		b.Fatalf("at the end: %v, %v; want EOF", m, err)
	}
}

// benchServer starts a server and an origin on loopback. url has a body of benchBody bytes.
func benchServer(b *testing.B) (client pb.FetchServiceClient, url string) {
	b.Helper()
	observer, err := observe.New(observe.Config{})
	must(b, err)
	lines := daemon.NewLogQueue(io.Discard)
	b.Cleanup(func() { lines.Close(time.Second) })
	s := fetchdtest.Start(b, fetchdtest.Options{NoOrigin: true, Configure: func(c *server.Config) {
		c.Fetch.Egress = fetch.Egress{Unrestricted: true}
		c.Observe, c.Logger = observer, lines.Logger("json", slog.LevelInfo)
	}})
	return s.Client, benchOrigin(b)
}

// benchOrigin serves a body of benchBody bytes at the URL that it returns.
func benchOrigin(b *testing.B) string {
	b.Helper()
	body := strings.Repeat("x", benchBody)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, body)
	}))
	b.Cleanup(s.Close)
	return s.URL
}
