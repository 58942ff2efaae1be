//go:build linux

package replicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

const (
	goalTurn, limitTurn = 100 * time.Millisecond, 500 * time.Millisecond // from SIGTERM to NOT_SERVING, and to the end of a wait
	exitAtOnce          = time.Second                                    // from the second SIGTERM
)

// stopping is a fetch that is in flight when the service receives SIGTERM.
type stopping struct {
	phase   string
	started chan struct{} // closed when the fetch has reached its phase
	endedAt time.Time
	outcome *pb.FetchOutcome
	err     error
}

// TestStop stops the service with fetches in each phase.
func TestStop(t *testing.T) {
	const each = 20
	ctx := rig.Long(t, 30*time.Second)
	o := rig.Origin(t)
	p := newService(t, o).start(ctx, "127.0.0.1:0", "--drain-time", "10s")
	conn := rig.Dial(t, p.addr)
	client := pb.NewFetchServiceClient(conn)
	turned := watchHealth(ctx, t, conn)
	var all []*stopping
	var group sync.WaitGroup
	for i := range each {
		wait := &stopping{phase: "retry wait", started: make(chan struct{})}
		attempt := &stopping{phase: "attempt", started: make(chan struct{})}
		all = append(all, wait, attempt)
		group.Go(func() { wait.fetch(ctx, client, o.URL("http", fmt.Sprintf("/s/w%d/503:retry-after=20", i))) })
		group.Go(func() { attempt.fetch(ctx, client, o.URL("http", fmt.Sprintf("/s/a%d/200:size=5000,delay=1s", i))) })
	}
	for _, s := range all {
		select {
		case <-s.started:
		case <-ctx.Done():
			t.Fatalf("a fetch does not reach its %s", s.phase)
		}
	}
	clock := rig.StartClock(t)
	signalled := p.Signal(syscall.SIGTERM)
	health := <-turned
	if health.IsZero() {
		t.Fatal("the watch ended without NOT_SERVING")
	}
	t.Logf("health was NOT_SERVING %v after SIGTERM", health.Sub(signalled).Round(100*time.Microsecond))
	clock.AtMost("time to NOT_SERVING", health.Sub(signalled), goalTurn, limitTurn)
	rig.Until(ctx, t, "a call is rejected", func() bool { // health changes first; a call that arrives before the GOAWAY succeeds
		_, err := client.FetchUnary(ctx, &pb.FetchUnaryRequest{Request: &pb.FetchRequest{Url: o.URL("http", "/s/early/200")}})
		return err != nil
	})
	clock.AtMost("time to the first rejected call", time.Since(signalled), goalTurn, limitTurn)
	for name, c := range map[string]*grpc.ClientConn{"the old connection": conn, "a new connection": rig.Dial(t, p.addr)} {
		_, err := pb.NewFetchServiceClient(c).FetchUnary(ctx, &pb.FetchUnaryRequest{Request: &pb.FetchRequest{Url: o.URL("http", "/s/new/200")}})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a new call on %s: %v, want UNAVAILABLE", name, err)
		}
	}
	group.Wait()
	code := p.exit(ctx)
	var waits rig.Times
	for _, s := range all {
		s.judge(t)
		if s.phase == "retry wait" {
			waits = append(waits, s.endedAt.Sub(signalled))
		}
	}
	t.Logf("%d fetches in a wait ended after SIGTERM by %s; the process ended after %v, exit code %d",
		each, waits, p.EndedAt.Sub(signalled).Round(time.Millisecond), code)
	clock.AtMost("the last fetch in a retry wait", waits.Percentile(100), goalTurn, limitTurn)
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if n := len(o.Requests("new")); n != 0 {
		t.Errorf("the origin saw %d requests of new calls, want none", n)
	}
}

// watchHealth reports when the service's health becomes NOT_SERVING.
func watchHealth(ctx context.Context, t *testing.T, conn *grpc.ClientConn) <-chan time.Time {
	t.Helper()
	watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{Service: pb.FetchService_ServiceDesc.ServiceName})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health %s, %v, want SERVING", m.GetStatus(), err)
	}
	turned := make(chan time.Time, 1)
	go func() { // ends with the service, or with ctx
		defer close(turned)
		if m, err := watch.Recv(); err == nil && m.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING {
			turned <- time.Now()
		}
	}()
	return turned
}

// fetch reads a fetch to its end.
func (s *stopping) fetch(ctx context.Context, client pb.FetchServiceClient, url string) {
	once := sync.OnceFunc(func() { close(s.started) })
	defer once()
	stream, err := client.Fetch(ctx, &pb.FetchRequest{Url: url})
	for err == nil {
		var m *pb.FetchResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		if s.phase == "attempt" && m.GetAttemptStarted() != nil || s.phase == "retry wait" && m.GetAttemptFinished() != nil {
			once()
		}
		if o := m.GetOutcome(); o != nil {
			s.endedAt, s.outcome = time.Now(), o
		}
	}
	if !errors.Is(err, io.EOF) {
		s.err = err
	}
}

// judge checks that the fetch has the outcome for its phase.
func (s *stopping) judge(t *testing.T) {
	t.Helper()
	switch e := s.outcome.GetError(); {
	case s.err != nil || s.outcome == nil:
		t.Errorf("a fetch in its %s ended with %v, outcome %v", s.phase, s.err, s.outcome)
	case s.phase == "attempt" && s.outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
		t.Errorf("a fetch in its attempt: %s, %v, want SUCCESS", s.outcome.GetKind(), e)
	case s.phase == "retry wait" && (e.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_SHUTDOWN || !e.GetRetryable()):
		t.Errorf("a fetch in its wait: %s, %v, want SHUTDOWN and retryable", s.outcome.GetKind(), e)
	}
}

// TestStopAtOnce sends SIGTERM twice during a fetch that does not end.
func TestStopAtOnce(t *testing.T) {
	ctx := rig.Long(t, 20*time.Second)
	o := rig.Origin(t)
	p := newService(t, o).start(ctx, "127.0.0.1:0", "--drain-time", "15s")
	client := pb.NewFetchServiceClient(rig.Dial(t, p.addr))
	stuck := make(chan error, 1)
	go func() {
		_, err := client.FetchUnary(ctx, &pb.FetchUnaryRequest{Request: &pb.FetchRequest{Url: o.URL("http", "/s/stuck/silent")}})
		stuck <- err
	}()
	if _, err := o.Await(ctx, "stuck", 1); err != nil {
		t.Fatal(err)
	}
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.drains:
	case <-ctx.Done():
		t.Fatal("the service does not drain")
	}
	wait.For(ctx, 100*time.Millisecond) // two signals at the same moment are unrealistic
	select {
	case <-p.Gone:
		t.Fatal("the service ended at the first SIGTERM, with a fetch in flight")
	default:
	}
	clock := rig.StartClock(t)
	again := p.Signal(syscall.SIGTERM)
	code := p.exit(ctx)
	took := p.EndedAt.Sub(again)
	t.Logf("the process ended %v after the second SIGTERM: %s, exit code %d", took.Round(time.Millisecond), p.State, code)
	clock.AtMost("time from the second SIGTERM to the end", took, exitAtOnce, exitAtOnce)
	if err := <-stuck; status.Code(err) != codes.Unavailable {
		t.Errorf("the fetch in flight ended %v, want UNAVAILABLE", err)
	}
}
