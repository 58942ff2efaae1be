package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/conformance/origin"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// TestMain looks for goroutines left behind. net/http sleeps half a second before
// it closes a connection whose request was too long.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("time.Sleep")) }

// rig is an origin, a server that may reach it, and a client of that server.
type rig struct {
	*testing.T
	origin *origin.Origin
	server *server.Server
	conn   *grpc.ClientConn
	client pb.FetchServiceClient
	logs   *logs

	dialling chan struct{} // of one place; in a bubble
}

// newRig puts all of it on loopback. change may alter the configuration.
func newRig(t *testing.T, change ...func(*server.Config)) *rig {
	t.Helper()
	o, err := origin.Start(origin.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at, err := netip.ParseAddrPort(o.Addr("http"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{Fetch: fetch.Config{RootCAs: o.CA(), Egress: fetch.Egress{
		AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{at.Port()}}}}
	r := &rig{T: t, origin: o}
	t.Cleanup(func() { _ = o.Close() })
	r.start(&cfg, l, "passthrough:///"+l.Addr().String(), change)
	return r
}

// bubble runs f in a testing/synctest bubble, with a rig whose both hops are in
// memory.
func bubble(t *testing.T, f func(*rig), change ...func(*server.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(bubbleOn(t, bufconn.Listen(64<<10), change...)) })
}

// bubbleOn makes that rig. Its server is on outer.
func bubbleOn(t *testing.T, outer *bufconn.Listener, change ...func(*server.Config)) *rig {
	t.Helper()
	r := &rig{T: t, origin: origin.New(origin.Config{Seed: 1}), dialling: make(chan struct{}, 1)}
	inner := bufconn.Listen(64 << 10)
	served := make(chan error, 1)
	go func() { served <- r.origin.Serve(inner) }()
	t.Cleanup(func() {
		_ = r.origin.Close()
		if err := <-served; err != nil {
			t.Errorf("origin: Serve = %v, want nil", err)
		}
	})
	cfg := server.Config{Fetch: fetch.Config{
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx, inner) }}}
	r.start(&cfg, outer, "passthrough:///bubble", change,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.dial(ctx, outer) }))
	return r
}

// dial connects one at a time. A connection of bufconn begins with timers that fire at
// once, and of those Go 1.26's race detector takes no two in one bubble at one time: the
// process would crash.
func (r *rig) dial(ctx context.Context, l *bufconn.Listener) (net.Conn, error) {
	select {
	case r.dialling <- struct{}{}: // not a mutex: a bubble's clock stands still for who waits for one
		defer func() { <-r.dialling }()
		return l.DialContext(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// start serves on l and connects to it, until the test ends.
func (r *rig) start(cfg *server.Config, l net.Listener, target string, change []func(*server.Config), dial ...grpc.DialOption) {
	r.Helper()
	r.logs = &logs{more: make(chan struct{}, 1)}
	cfg.Logger = slog.New(slog.NewJSONHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, f := range change {
		f(cfg)
	}
	var err error
	if r.server, err = server.New(*cfg); err != nil {
		r.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(l) }()
	r.Cleanup(func() {
		_ = r.server.Shutdown(r.Context()) // over by now: what still runs is cut off
		if err := <-served; err != nil {
			r.Errorf("Serve = %v, want nil", err)
		}
		r.wantNothingHeld()
	})
	r.conn, err = grpc.NewClient(target, append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())...)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = r.conn.Close() })
	r.client = pb.NewFetchServiceClient(r.conn)
}

// wantNothingHeld checks that the server holds nothing for its callers. gRPC may drop an
// answer without releasing it; the answer is then released when it is collected.
func (r *rig) wantNothingHeld() {
	r.Helper()
	held := r.server.Held()
	for i := 0; held.Total() != 0 && i < 200; i++ {
		runtime.GC()
		runtime.Gosched()
		held = r.server.Held()
	}
	if held.Total() != 0 {
		r.Errorf("the server still holds %v, want nothing", held)
	}
}

// request asks the origin's plain listener for path, and retries at once.
func (r *rig) request(path string) *pb.FetchRequest {
	return &pb.FetchRequest{Url: r.origin.URL("http", path), RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(0)}}
}

// answer is what a Fetch sent, taken apart.
type answer struct {
	events   []*pb.FetchResponse
	order    []string // the events' names
	outcome  *pb.FetchOutcome
	body     []byte
	finished []*pb.AttemptFinished
	err      error
}

// fetch calls Fetch and reads to the end.
func (r *rig) fetch(ctx context.Context, in *pb.FetchRequest) *answer {
	r.Helper()
	stream, err := r.client.Fetch(ctx, in)
	if err != nil {
		return &answer{err: err}
	}
	a := new(answer)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			a.err = err
			break
		}
		a.take(m)
	}
	a.check(r.T, in)
	return a
}

// mustFetch is fetch for calls that must be OK.
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
	out, err := r.client.FetchUnary(r.Context(), &pb.FetchUnaryRequest{Request: in})
	if err != nil {
		r.Fatalf("FetchUnary(%s) = %v, want OK", in.GetUrl(), err)
	}
	return out
}

func (a *answer) take(m *pb.FetchResponse) {
	a.events, a.order = append(a.events, m), append(a.order, eventName(m))
	switch e := m.GetEvent().(type) {
	case *pb.FetchResponse_BodyChunk:
		a.body = append(a.body, e.BodyChunk.GetData()...)
	case *pb.FetchResponse_AttemptFinished:
		a.finished = append(a.finished, e.AttemptFinished)
	case *pb.FetchResponse_Outcome:
		a.outcome = e.Outcome
	}
}

func eventName(m *pb.FetchResponse) string {
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
	if admitted := a.admitted(); admitted != nil && len(a.finished) != int(o.GetAttempts()) {
		t.Errorf("attempts: %d finished, the outcome says %d", len(a.finished), o.GetAttempts())
	}
}

// wantClass holds an outcome against a class and a stop reason.
func wantClass(t *testing.T, o *pb.FetchOutcome, class pb.ErrorClass, stop pb.RetryVerdict, attempts int32) {
	t.Helper()
	e := o.GetError()
	if e.GetErrorClass() != class || e.GetStopReason() != stop || o.GetAttempts() != attempts {
		t.Errorf("outcome %s, %s, %d attempts; want %s, %s, %d", e.GetErrorClass(), e.GetStopReason(), o.GetAttempts(), class, stop, attempts)
	}
}

// wantCode holds an error against a status code.
func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s = %v (%v), want %s", what, got, err, want)
	}
}

// repeat returns n bytes of text.
func repeat(n int) string { return string(bytes.Repeat([]byte("x"), n)) }

// key names a script of the origin, one for each row of a table.
func key(i int) string { return "k" + strconv.Itoa(i) }
