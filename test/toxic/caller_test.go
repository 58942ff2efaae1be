package toxic

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/rig"
	"fetchd/test/rig/linktest"
)

// TestCallerSideHarmless checks that the answer is right, however the bytes arrive.
func TestCallerSideHarmless(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		toxic toxic
	}{
		{"latency", toxic{"latency", down, ms("latency", 100), atOnce}},
		{"latency upstream", toxic{"latency", up, ms("latency", 100), atOnce}},
		{"jitter", toxic{"latency", down, map[string]int{"latency": 60, "jitter": 50}, atOnce}},
		{"jitter upstream", toxic{"latency", up, map[string]int{"latency": 60, "jitter": 50}, atOnce}},
		{"bandwidth", toxic{"bandwidth", down, ms("rate", 200), atOnce}},
		{"bandwidth upstream", toxic{"bandwidth", up, ms("rate", 10), atOnce}},
		{"slicer", toxic{"slicer", down, map[string]int{"average_size": 300, "size_variation": 200, "delay": 10}, atOnce}},
		{"slicer upstream", toxic{"slicer", up, map[string]int{"average_size": 3, "size_variation": 2, "delay": 10}, atOnce}},
		{"slow_close", toxic{"slow_close", down, ms("delay", 200), atOnce}},
		{"slow_close upstream", toxic{"slow_close", up, ms("delay", 200), atOnce}},
		{"limit_data beyond the answer", toxic{"limit_data", down, ms("bytes", 10000000), atOnce}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t)
			row.toxic.prepare(r.Link)
			a := r.fetch(t.Context(), r.toxic, whole)
			if a.err != nil || a.outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
				t.Fatalf("Fetch = %v, outcome %s, want SUCCESS", a.err, a.outcome.GetKind())
			}
			if !bytes.Equal(a.body, r.origin.Body(bodyBytes)) {
				t.Errorf("the body of %d bytes differs from the origin's %d", len(a.body), bodyBytes)
			}
			out, err := r.toxic.FetchUnary(t.Context(), &pb.FetchRequest{Url: r.origin.URL("http", whole)})
			if err != nil {
				t.Fatalf("FetchUnary = %v, want OK", err)
			}
			if !bytes.Equal(out.GetOutcome().GetInlineBody(), r.origin.Body(bodyBytes)) {
				t.Errorf("the inline body of %d bytes differs from the origin's", len(out.GetOutcome().GetInlineBody()))
			}
		})
	}
}

// TestCallerSideBroken adds the toxic while the fetch is in flight. The caller gets a
// status, and the service releases the origin and the admission slot.
func TestCallerSideBroken(t *testing.T) {
	t.Parallel()
	const silent, talks = "/s/k/silent", "/s/k/200:size=1000000,drip=500@20ms"
	for _, row := range []struct {
		name    string
		toxic   toxic
		path    string
		timeout time.Duration // of the call; zero: none
		cancel  bool          // the caller cancels once the toxic is there
		want    codes.Code
		// OK: the service sees the deadline first and reports DEADLINE in the
		// outcome. On a slow machine the client's own status may arrive before.
	}{
		{"reset_peer", toxic{"reset_peer", down, ms("timeout", 0), afterRequest}, silent, 0, false, codes.Unavailable},
		{"reset_peer in the body", toxic{"reset_peer", down, ms("timeout", 0), afterRequest}, talks, 0, false, codes.Unavailable},
		{"reset_peer after a while", toxic{"reset_peer", down, ms("timeout", 200), afterRequest}, talks, 0, false, codes.Unavailable},
		{"reset_peer upstream", toxic{"reset_peer", up, ms("timeout", 0), afterRequest}, talks, 0, false, codes.Unavailable},
		{"timeout, then closed", toxic{"timeout", down, ms("timeout", 20), afterRequest}, silent, 0, false, codes.Unavailable},
		{"timeout upstream, then closed", toxic{"timeout", up, ms("timeout", 300), afterRequest}, silent, 0, false, codes.Unavailable},
		{"timeout for ever", toxic{"timeout", down, ms("timeout", 0), afterRequest}, silent, 5 * time.Second, false, codes.DeadlineExceeded},
		{"timeout for ever in the body", toxic{"timeout", down, ms("timeout", 0), afterRequest}, talks, 5 * time.Second, false, codes.DeadlineExceeded},
		{"timeout upstream for ever", toxic{"timeout", up, ms("timeout", 0), afterRequest}, silent, 5 * time.Second, false, codes.OK},
		{"timeout for ever, cancelled", toxic{"timeout", down, ms("timeout", 0), afterRequest}, silent, 0, true, codes.Canceled},
		{"limit_data", toxic{"limit_data", down, ms("bytes", 20), afterRequest}, silent, 0, false, codes.Unavailable},
		{"limit_data in the body", toxic{"limit_data", down, ms("bytes", 5000), afterRequest}, talks, 0, false, codes.Unavailable},
		{"limit_data upstream", toxic{"limit_data", up, ms("bytes", 0), afterRequest}, talks, 0, false, codes.Unavailable},
		{"latency over the deadline", toxic{"latency", down, ms("latency", 10_000), afterRequest}, silent, 5 * time.Second, false, codes.DeadlineExceeded},
		{"bandwidth over the deadline", toxic{"bandwidth", down, ms("rate", 1), afterRequest}, talks, 5 * time.Second, false, codes.DeadlineExceeded},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t)
			row.toxic.prepare(r.Link)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if row.timeout > 0 {
				ctx, cancel = context.WithTimeout(ctx, row.timeout)
				defer cancel()
			}
			ended := make(chan *answer, 1)
			running, over := context.WithCancel(t.Context())
			go func() {
				defer over()
				ended <- r.fetch(ctx, r.toxic, row.path)
			}()
			seen, err := r.origin.Await(running, "k", 1)
			if err != nil {
				t.Fatalf("the call ended before its request was at the origin: %v", (<-ended).err)
			}
			r.Add(row.toxic.asLink())
			if row.cancel {
				cancel()
			}
			a := <-ended
			if got := status.Code(a.err); got != row.want && !(row.want == codes.OK && got == codes.DeadlineExceeded) {
				t.Errorf("Fetch = %v, outcome %v, want %s", a.err, a.outcome, row.want)
			}
			if class := a.outcome.GetError().GetErrorClass(); a.err == nil && class != pb.ErrorClass_ERROR_CLASS_DEADLINE {
				t.Errorf("the outcome is %s, want DEADLINE", class)
			}
			r.wantReleased(seen)
		})
	}
}

// fixture is an origin, a server that can reach it, and two clients of that server: one
// through the proxy and one direct.
type fixture struct {
	*linktest.Link
	origin        *origin.Origin
	toxic, direct pb.FetchServiceClient
}

// heartbeat is longer than the downstream timeout toxics, which count from the last
// bytes that they dropped.
const heartbeat = 100 * time.Millisecond

// newFixture starts a server that runs one fetch at a time and has a short heartbeat.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	s := fetchdtest.Start(t, fetchdtest.Options{Configure: func(c *server.Config) {
		c.Limits.MaxFetches, c.Heartbeat = 1, heartbeat
	}})
	p := linktest.New(t, s.Addr)
	return &fixture{p, s.Origin, pb.NewFetchServiceClient(rig.Dial(t, p.Addr().String())), s.Client}
}

// request returns a GET of path whose body is not buffered.
func (r *fixture) request(path string) *pb.FetchRequest {
	return &pb.FetchRequest{Url: r.origin.URL("http", path),
		BodyPolicy: &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: &pb.StreamDelivery{MaxHoldBackBytes: proto.Int64(0)}}}}
}

// answer is what a Fetch returned.
type answer struct {
	outcome *pb.FetchOutcome
	body    []byte
	err     error
}

// fetch calls Fetch and reads to the end.
func (r *fixture) fetch(ctx context.Context, c pb.FetchServiceClient, path string) *answer {
	stream, err := c.Fetch(ctx, r.request(path))
	if err != nil {
		return &answer{err: err}
	}
	a := new(answer)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			a.err = err
			return a
		}
		for _, e := range m.GetEvents() {
			a.body = append(a.body, e.GetBodyChunk().GetData()...)
			if o := e.GetOutcome(); o != nil {
				a.outcome = o
			}
		}
	}
}

// wantReleased waits until the service has released the origin, and calls it without the
// proxy until the one slot is free.
func (r *fixture) wantReleased(seen origin.Request) {
	r.Helper()
	end := time.NewTimer(15 * time.Second)
	defer end.Stop()
	select {
	case <-seen.Done:
	case <-end.C:
		r.Fatal("the service has not released its request to the origin")
	}
	if got := r.origin.Requests("k")[0].End; got != origin.EndClientGone {
		r.Errorf("the origin's exchange ended as %q, want %q", got, origin.EndClientGone)
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		a := r.fetch(r.Context(), r.direct, "/s/next/200:size=40000")
		if a.err == nil {
			if !bytes.Equal(a.body, r.origin.Body(bodyBytes)) {
				r.Errorf("the next call's body of %d bytes differs from the origin's %d", len(a.body), bodyBytes)
			}
			return
		}
		if status.Code(a.err) != codes.ResourceExhausted {
			r.Fatalf("the next call: %v, want OK", a.err)
		}
		select {
		case <-again.C:
		case <-end.C:
			r.Fatal("the slot of a finished call is not free")
		}
	}
}
