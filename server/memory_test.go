package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/server"
)

// withMemory sets a memory budget of which one caller may use n bytes.
func withMemory(n int64) func(*server.Config) {
	return func(c *server.Config) { c.MemoryBudget = n }
}

// TestAdmissionWithoutMemory checks that every method refuses a fetch without memory
// before its first message, and says when to retry.
func TestAdmissionWithoutMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, withMemory(40<<10))
	in := r.request("/s/k/200")
	stream := r.mustStream(t.Context(), in)
	event, err := stream.Recv()
	if event != nil {
		t.Errorf("%v was sent before the refusal", event)
	}
	wantRefused(t, "Fetch", err, stream.Trailer(), "MEMORY")

	var trailer metadata.MD
	_, err = r.Client.FetchUnary(t.Context(), &pb.FetchUnaryRequest{Request: in}, grpc.Trailer(&trailer))
	wantRefused(t, "FetchUnary", err, trailer, "MEMORY")

	many, err := r.Client.FetchMany(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	message, err := many.Recv()
	if message != nil {
		t.Errorf("%v was sent before the refusal", message)
	}
	wantRefused(t, "FetchMany", err, many.Trailer(), "MEMORY")

	for _, path := range []string{"/v1/fetch", "/v1/fetch:unary"} {
		resp := r.post(t.Context(), path, r.json(in))
		r.wantStatus(resp, http.StatusTooManyRequests, codes.ResourceExhausted, "memory")
		if got := resp.Header.Get("Retry-After"); got != "1" {
			t.Errorf("%s: Retry-After %q, want 1", path, got)
		}
	}
	r.wantRequests("k", 0)
}

// TestOutOfMemoryInFlight checks that a fetch that runs out of memory ends with one
// outcome, by every method, and that other fetches continue.
func TestOutOfMemoryInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t, withMemory(4<<20)) // a stream of FetchMany reserves 2 MiB of it
	long := func(key string) *pb.FetchRequest {
		in := r.request("/s/" + key + "/200:size=1040000,chunked")
		in.BodyPolicy = &pb.BodyPolicy{Delivery: pb.BodyDelivery_BODY_DELIVERY_INLINE}
		in.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
		return in
	}
	filler := r.many(t.Context()) // it holds memory that the others then lack
	for r.Service.Held()[budget.Receiving] < 2<<20 {
		runtime.Gosched()
	}
	want := func(what string, o *pb.FetchOutcome, key string) {
		t.Helper()
		wantClass(t, o, pb.ErrorClass_ERROR_CLASS_OUT_OF_MEMORY, pb.RetryVerdict_RETRY_VERDICT_STOPPED, 1)
		if e := o.GetError(); !e.GetRetryable() || o.GetExchanges() != 1 || o.GetResponse().GetStatusCode() != 200 || len(o.GetInlineBody()) != 0 {
			t.Errorf("%s: %v, want a retryable one, after a 200", what, o)
		}
		r.wantRequests(key, 1)
	}
	a := r.mustFetch(long("stream"))
	want("Fetch", a.outcome, "stream")
	if len(a.finished) != 1 {
		t.Errorf("Fetch: %d attempts finished, want 1", len(a.finished))
	}
	want("FetchUnary", r.mustUnary(long("unary")).GetOutcome(), "unary")
	want("/v1/fetch", r.fetchWeb(t.Context(), long("web")).outcome, "web")

	task := r.task("long", "/s/task/200:size=1040000,chunked")
	task.Request.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
	filler.start(r.task("before", "/s/before/200:delay=100ms"), task, r.task("after", "/s/after/200"))
	filler.until(3)
	filler.finish("before", "long", "after")
	filler.wantClass("long", pb.ErrorClass_ERROR_CLASS_OUT_OF_MEMORY)
	filler.wantClass("before", ok)
	filler.wantClass("after", ok)
}

// TestEventsWithoutMemory checks that events are sent without headers if there is no
// memory for them, and that none is lost.
func TestEventsWithoutMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, withMemory(200<<10))
	in := r.request("/s/k/200:head-size=60000,size=100")
	in.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
	a := r.mustFetch(in)
	if len(a.finished) != 1 || a.outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || string(a.body) != string(r.Origin.Body(100)) {
		t.Fatalf("%d attempts finished, %s with %d bytes, want 1, and success", len(a.finished), a.outcome.GetKind(), len(a.body))
	}
	for i, m := range a.events {
		for what, resp := range map[string]*pb.HttpResponse{"response_started": m.GetResponseStarted().GetResponse(), "attempt_finished": m.GetAttemptFinished().GetResponse()} {
			if resp != nil && (resp.GetStatusCode() != 200 || resp.GetContentLength() != 100 || len(resp.GetHeaders()) != 0) {
				t.Errorf("event %d, %s: status %d, length %d, %d headers, want only the status and the length", i+1, what, resp.GetStatusCode(), resp.GetContentLength(), len(resp.GetHeaders()))
			}
		}
	}
	if n := len(a.outcome.GetResponse().GetHeaders()); n == 0 {
		t.Error("the outcome has no headers")
	}
}

// TestUnreadMany checks that the unread answers of a cancelled FetchMany stream are
// released.
func TestUnreadMany(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		end  func(r *rig, cancel context.CancelFunc)
	}{
		{"cancelled", func(_ *rig, cancel context.CancelFunc) { cancel() }},
		{"the connection is closed", func(r *rig, _ context.CancelFunc) { _ = r.Conn.Close() }},
		{"the server is cut off", func(r *rig, _ context.CancelFunc) {
			gone, cancel := context.WithCancel(r.Context())
			cancel()
			if err := r.Service.Shutdown(gone); !errors.Is(err, context.Canceled) {
				r.Errorf("Shutdown = %v, want CANCELED", err)
			}
		}},
	} {
		for _, size := range []string{"100", "100000"} {
			t.Run(row.name+", bodies of "+size, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				m, err := r.Client.FetchMany(ctx)
				if err != nil {
					t.Fatal(err)
				}
				tasks := new(pb.FetchManyRequest)
				for i := range 40 {
					tasks.Tasks = append(tasks.Tasks, r.task(key(i), "/s/"+key(i)+"/200:size="+size))
				}
				tasks.Tasks = append(tasks.Tasks, r.task("silent", "/s/silent/silent"))
				must(t, m.Send(tasks))
				r.logs.await(t, "fetch finished", 40)
				if _, err := m.Recv(); err != nil {
					t.Fatal(err)
				}
				if held := r.Service.Held(); held[budget.Fetch] == 0 || held[budget.Receiving] == 0 {
					t.Errorf("%v is held while a task is in flight", held)
				}
				row.end(r, cancel)
				for err == nil {
					_, err = m.Recv()
				}
				if errors.Is(err, io.EOF) {
					t.Error("the stream ended well")
				}
				r.wantNothingHeld()
			})
		}
	}
}
