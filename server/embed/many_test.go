package embed_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/client"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/server/embed"
	"fetchd/test/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestInside: what the two ends of a stream share is not changed after it was handed over, and the end of the service
// ends its streams.
func TestInside(t *testing.T) {
	origin := rig.Origin(t)
	rpc, stop, err := embed.Inside(server.Config{MemoryBudget: 16 << 20, Fetch: fetch.Config{Egress: fetch.Egress{Unrestricted: true}}})
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(stop)
	t.Cleanup(stop)
	pool := client.NewPool()
	defer pool.Close()
	pool.Open(t.Context(), client.Wrap(rpc), 2, nil)

	var chunks [][]byte
	large := &pb.FetchRequest{Url: origin.URL("http", "/s/large/200:size=3000000"),
		BodyPolicy: &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: new(pb.StreamDelivery)}}}
	out, err := pool.Do(t.Context(), client.Task{Request: large, Body: keep(func(p []byte) { chunks = append(chunks, p) })})
	if err != nil || !bytes.Equal(bytes.Join(chunks, nil), origin.Body(3_000_000)) {
		t.Errorf("Do = %v, %v with %d chunks; want the body of the origin", out, err, len(chunks))
	}

	for range 300 { // more than the memory budget together
		if out, err := pool.Do(t.Context(), client.Task{Request: &pb.FetchRequest{Url: origin.URL("http", "/s/many/200:size=100000")}}); err != nil {
			t.Fatalf("Do = %v, %v", out, err)
		}
	}

	silent := client.Task{Request: &pb.FetchRequest{Url: origin.URL("http", "/s/silent/silent")}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = origin.Await(t.Context(), "silent", 1)
		cancel()
	}()
	if out, err := pool.Do(ctx, silent); out.GetError().GetErrorClass() != pb.ErrorClass_ERROR_CLASS_CANCELLED {
		t.Errorf("Do of a cancelled fetch = %v, %v", out, err)
	}
	ended, err := rpc.FetchMany(ctx)
	if _, got := ended.Recv(); err != nil || status.Code(got) != codes.Canceled || !errors.Is(ended.Send(new(pb.FetchManyRequest)), io.EOF) {
		t.Errorf("FetchMany of a cancelled context = %v, then %v", err, got)
	}
	go func() {
		_, _ = origin.Await(t.Context(), "silent", 2)
		stop()
	}()
	if out, err := pool.Do(t.Context(), silent); err == nil {
		t.Errorf("Do in a service that stops = %v, want an error", out)
	}
	if _, err := rpc.FetchMany(t.Context()); status.Code(err) != codes.Canceled {
		t.Errorf("FetchMany of a stopped service = %v, want CANCELED", err)
	}
}

// stuck is a log that is not read: a line about a fetch that has ended stays until the test ends.
type stuck struct {
	slog.Handler
	held chan struct{} // receives each such line
	free <-chan struct{}
}

// Handle implements slog.Handler.
func (s stuck) Handle(_ context.Context, line slog.Record) error {
	if line.Message == "fetch finished" {
		s.held <- struct{}{}
		<-s.free
	}
	return nil
}

// TestStopOfStuckCall checks that stop returns although a call does not, after its limit for the streams and that for
// the service.
func TestStopOfStuckCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, stopStuckCall)
}

func stopStuckCall(t *testing.T) {
	held, free := make(chan struct{}, 1), make(chan struct{})
	rpc, stop, err := embed.Inside(server.Config{Logger: slog.New(stuck{slog.NewTextHandler(io.Discard, nil), held, free})})
	if err != nil {
		t.Fatal(err)
	}
	pool := client.NewPool()
	defer pool.Close()
	defer close(free)
	pool.Open(t.Context(), client.Wrap(rpc), 1, nil)
	go func() {
		_, _ = pool.Do(t.Context(), client.Task{Request: &pb.FetchRequest{Url: "http://127.0.0.1:1/"}}) // the egress guard blocks it
	}()
	<-held
	start := time.Now()
	stop()
	const most = 4 * time.Second
	if took := time.Since(start); took > most {
		t.Errorf("stop took %v, want at most %v", took, most)
	}
}

// keep is a body that keeps the pieces themselves.
type keep func([]byte)

func (k keep) Write(p []byte) (int, error) {
	k(p)
	return len(p), nil
}

func (keep) Truncate(int64) error { return nil }
