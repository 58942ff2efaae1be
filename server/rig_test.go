package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/signatures"
	"fetchd/test/wait"
)

// TestMain checks for leaked goroutines. net/http sleeps half a second before it closes a
// connection whose request was too long.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("time.Sleep")) }

// rig is a service, an origin that it may reach, and clients of the service.
type rig struct {
	*testing.T
	*fetchdtest.Server
	logs *logs
}

// in returns r for a subtest.
func (r *rig) in(t *testing.T) *rig {
	c := *r
	c.T = t
	return &c
}

// newRig starts a rig on loopback. change may alter the configuration.
func newRig(t *testing.T, change ...func(*server.Config)) *rig {
	t.Helper()
	return startRig(t, fetchdtest.Options{}, change)
}

// bubble runs f in a testing/synctest bubble, with a rig whose connections are in memory.
func bubble(t *testing.T, f func(*rig), change ...func(*server.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(startRig(t, fetchdtest.Options{InMemory: true}, change)) })
}

func startRig(t *testing.T, o fetchdtest.Options, change []func(*server.Config)) *rig {
	t.Helper()
	r := &rig{T: t, logs: &logs{more: make(chan struct{}, 1)}}
	t.Cleanup(r.wantNothingHeld) // after the stop of the service
	t.Cleanup(func() {
		if leak := signatures.Leaked(r.logs.String()); leak != "" || strings.Contains(r.logs.String(), "hush") {
			t.Errorf("the key %q, or another secret, is in the log", leak)
		}
	})
	o.Configure = func(c *server.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
		for _, f := range change {
			f(c)
		}
	}
	r.Server = fetchdtest.Start(t, o)
	if sends, ok := r.HTTPClient.Transport.(*http.Transport); ok {
		r.HTTPClient.Transport = checked{t, sends}
	}
	return r
}

// wantNothingHeld waits until the server holds nothing for its callers. gRPC may drop an
// answer without releasing it; the answer is then released when it is collected. A refused
// call whose request has not ended is charged until its ten seconds are over.
func (r *rig) wantNothingHeld() {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 30*time.Second)
	defer cancel()
	held, polls := r.Service.Held(), 0
	if wait.Until(ctx, 5*time.Millisecond, func() bool {
		held = r.Service.Held()
		if polls++; held.Total() != 0 && polls&(polls-1) == 0 { // less and less often
			runtime.GC()
		}
		return held.Total() == 0
	}) != nil {
		r.Errorf("the server still holds %v, want nothing", held)
	}
}

// request returns a request for a path of the origin's plain listener, with retries that do not
// wait.
func (r *rig) request(path string) *pb.FetchRequest {
	return &pb.FetchRequest{Url: r.Origin.URL("http", path), RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(0)}}
}

// put returns a PUT with a body of n bytes.
func (r *rig) put(key string, n int) *pb.FetchRequest {
	in := r.request("/s/" + key + "/200")
	in.Method, in.Body = "PUT", make([]byte, n)
	return in
}

// answer holds the messages of a Fetch.
type answer struct {
	events   []*pb.FetchEvent
	order    []string // the events' names
	outcome  *pb.FetchOutcome
	body     []byte
	finished []*pb.AttemptFinished
	messages []string      // names of the events of each message
	late     time.Duration // between an event and its arrival, at most; exact in a bubble
	began    time.Time
	err      error
}

// fetch calls Fetch and reads to the end.
func (r *rig) fetch(ctx context.Context, in *pb.FetchRequest) *answer {
	r.Helper()
	began := time.Now()
	stream, err := r.Client.Fetch(ctx, in)
	if err != nil {
		return &answer{err: err}
	}
	a := &answer{began: began}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			a.err = err
			break
		}
		a.takeAll(r.T, m)
	}
	a.check(r.T, in)
	return a
}

// mustFetch is fetch for a call that must succeed.
func (r *rig) mustFetch(in *pb.FetchRequest) *answer {
	r.Helper()
	a := r.fetch(r.Context(), in)
	if a.err != nil {
		r.Fatalf("Fetch(%s) = %v, want OK", in.GetUrl(), a.err)
	}
	return a
}

// mustUnary is mustFetch for FetchUnary.
func (r *rig) mustUnary(in *pb.FetchRequest) *pb.FetchUnaryResponse {
	r.Helper()
	out, err := r.Client.FetchUnary(r.Context(), in)
	if err != nil {
		r.Fatalf("FetchUnary(%s) = %v, want OK", in.GetUrl(), err)
	}
	return out
}

// methods run a fetch through each method of each API.
var methods = map[string]func(*rig, *pb.FetchRequest) *pb.FetchOutcome{
	"Fetch":      func(r *rig, in *pb.FetchRequest) *pb.FetchOutcome { return r.mustFetch(in).outcome },
	"FetchUnary": func(r *rig, in *pb.FetchRequest) *pb.FetchOutcome { return r.mustUnary(in).GetOutcome() },
	"FetchMany": func(r *rig, in *pb.FetchRequest) *pb.FetchOutcome {
		m := r.many(r.Context())
		m.start(&pb.Task{Tag: "t", Request: in})
		m.finish("t")
		return m.outcomes["t"][0]
	},
	"HTTP": func(r *rig, in *pb.FetchRequest) *pb.FetchOutcome { return r.fetchWeb(r.Context(), in).outcome },
	"HTTP unary": func(r *rig, in *pb.FetchRequest) *pb.FetchOutcome {
		out := new(pb.FetchUnaryResponse)
		must(r, protojson.Unmarshal([]byte(r.text(r.post(r.Context(), "/v1/fetch:unary", r.json(in)))), out))
		return out.GetOutcome()
	},
}

// mustStream starts a Fetch.
func (r *rig) mustStream(ctx context.Context, in *pb.FetchRequest) grpc.ServerStreamingClient[pb.FetchResponse] {
	r.Helper()
	stream, err := r.Client.Fetch(ctx, in)
	must(r, err)
	return stream
}

// drain reads a stream to its end, and returns its error.
func drain[M any](stream grpc.ServerStreamingClient[M]) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// awaitRequest waits for the first request with a script key.
func (r *rig) awaitRequest(key string) origin.Request {
	r.Helper()
	seen, err := r.Origin.Await(r.Context(), key, 1)
	must(r, err)
	return seen
}

// wantRequests checks how many requests with a script key the origin has seen.
func (r *rig) wantRequests(key string, want int) {
	r.Helper()
	if n := len(r.Origin.Requests(key)); n != want {
		r.Errorf("the origin saw %d requests with the key %s, want %d", n, key, want)
	}
}

// wantNoConnections checks that the plain listener of the origin has seen no connection.
func (r *rig) wantNoConnections() {
	r.Helper()
	if n := r.Origin.Connections("http"); n != 0 {
		r.Errorf("the origin saw %d connections, want none", n)
	}
}

// shutDown stops the server. Shutdown must return nil.
func (r *rig) shutDown() {
	r.Helper()
	if err := r.Service.Shutdown(r.Context()); err != nil {
		r.Errorf("Shutdown = %v, want nil", err)
	}
}

// startShutDown runs shutDown in another goroutine. wait waits for its end.
func (r *rig) startShutDown() (wait func()) {
	var running sync.WaitGroup
	running.Go(r.shutDown)
	return running.Wait
}

// takeAll adds the events of a message.
func (a *answer) takeAll(t *testing.T, m *pb.FetchResponse) {
	t.Helper()
	if len(m.GetEvents()) == 0 {
		t.Error("a message has no event")
	}
	before := len(a.order)
	for _, e := range m.GetEvents() {
		a.take(e)
		a.late = max(a.late, time.Since(a.began)-e.GetElapsedOffset().AsDuration())
	}
	a.messages = append(a.messages, strings.Join(a.order[before:], " "))
}

func (a *answer) take(m *pb.FetchEvent) {
	a.events, a.order = append(a.events, m), append(a.order, eventName(m))
	switch e := m.GetEvent().(type) {
	case *pb.FetchEvent_BodyChunk:
		a.body = append(a.body, e.BodyChunk.GetData()...)
	case *pb.FetchEvent_AttemptFinished:
		a.finished = append(a.finished, e.AttemptFinished)
	case *pb.FetchEvent_Outcome:
		a.outcome = e.Outcome
	}
}

// last returns the last event of a message.
func last(m *pb.FetchResponse) *pb.FetchEvent {
	events := m.GetEvents()
	if len(events) == 0 {
		return nil
	}
	return events[len(events)-1]
}

func eventName(m *pb.FetchEvent) string {
	msg := m.ProtoReflect()
	field := msg.WhichOneof(msg.Descriptor().Oneofs().ByName("event"))
	if field == nil {
		return ""
	}
	return string(field.Name())
}

func (a *answer) admitted() *pb.Admitted {
	if len(a.events) == 0 {
		return nil
	}
	return a.events[0].GetAdmitted()
}

// check holds what is true of every stream.
func (a *answer) check(t *testing.T, in *pb.FetchRequest) {
	t.Helper()
	var offset int64
	var elapsed time.Duration
	for i, m := range a.events {
		if got := m.GetSequence(); got != int64(i+1) {
			t.Errorf("%s: event %s has sequence %d, want %d", in.GetUrl(), a.order[i], got, i+1)
		}
		if got := m.GetElapsedOffset(); got == nil || got.AsDuration() < elapsed {
			t.Errorf("event %s at %v, after one at %v", a.order[i], got, elapsed)
		}
		elapsed = m.GetElapsedOffset().AsDuration()
		if first := i == 0 && in.GetEventLevel() != pb.EventLevel_EVENT_LEVEL_OUTCOME; (m.GetAdmitted() != nil) != first {
			t.Errorf("event %d is %s, admitted wanted there: %v", i+1, a.order[i], first)
		}
		if last := i == len(a.events)-1 && a.err == nil; (m.GetOutcome() != nil) != last {
			t.Errorf("event %d of %d is %s, outcome wanted there: %v", i+1, len(a.events), a.order[i], last)
		}
		if s := m.GetResponseStarted(); s != nil && streamOf(in).GetRecovery() == pb.BodyRecovery_BODY_RECOVERY_RESTART {
			offset = s.GetBodyOffsetBytes()
		}
		if c := m.GetBodyChunk(); c != nil {
			if c.GetOffsetBytes() != offset || len(c.GetData()) == 0 || len(c.GetData()) > 64<<10 {
				t.Errorf("chunk at offset %d of %d bytes, want offset %d and 1 to 64 KiB", c.GetOffsetBytes(), len(c.GetData()), offset)
			}
			offset += int64(len(c.GetData()))
		}
	}
	if a.err == nil {
		a.checkOutcome(t)
	}
}

func (a *answer) checkOutcome(t *testing.T) {
	t.Helper()
	o := a.outcome
	if o == nil {
		t.Fatal("the call is OK without an outcome")
	}
	if failed := o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_FAILED; failed != (o.GetError() != nil) {
		t.Errorf("kind %s with error %v", o.GetKind(), o.GetError())
	}
	if admitted := a.admitted(); admitted != nil && admitted.GetFetchId() != o.GetFetchId() || o.GetFetchId() == "" {
		t.Errorf("fetch_id %q in the outcome, %q when admitted", o.GetFetchId(), admitted.GetFetchId())
	}
	if admitted := a.admitted(); admitted != nil && len(a.finished) != int(o.GetAttemptCount()) {
		t.Errorf("attempts: %d finished, the outcome says %d", len(a.finished), o.GetAttemptCount())
	}
}

// wantClass checks the class, the stop reason and the attempts of an outcome.
func wantClass(t *testing.T, o *pb.FetchOutcome, class pb.ErrorClass, stop pb.StopReason, attempts int32) {
	t.Helper()
	e := o.GetError()
	if e.GetErrorClass() != class || e.GetStopReason() != stop || o.GetAttemptCount() != attempts {
		t.Errorf("outcome %s, %s, %d attempts; want %s, %s, %d", e.GetErrorClass(), e.GetStopReason(), o.GetAttemptCount(), class, stop, attempts)
	}
}

// auto is the delivery auto, and streamed the delivery stream.
func auto(d *pb.StreamDelivery) *pb.BodyPolicy {
	return &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Auto{Auto: d}}
}

func streamed(d *pb.StreamDelivery) *pb.BodyPolicy {
	return &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: d}}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// marshal encodes a message.
func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	must(t, err)
	return raw
}

// wantTook checks how long something took.
func wantTook(t testing.TB, what string, began time.Time, want time.Duration) {
	t.Helper()
	if took := time.Since(began); took != want {
		t.Errorf("%s after %s, want %s", what, took, want)
	}
}

// wantCode checks the status code of an error.
func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s = %v (%v), want %s", what, got, err, want)
	}
}

// repeat returns n bytes of text.
func repeat(n int) string { return string(bytes.Repeat([]byte("x"), n)) }

// key returns a script key of the origin for row i of a table.
func key(i int) string { return "k" + strconv.Itoa(i) }
