package server_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/origin"
)

// TestCancel gives up calls in each phase: the call returns CANCELLED, the
// origin is left, and the fetch ends.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, script string
		until        string // the event after which the caller leaves
		end          origin.End
	}{
		{"before the head", "silent", "attempt_started", origin.EndClientGone},
		{"in the body", "200:size=100,stall=50", "response_started", origin.EndClientGone},
		{"in a wait", "503:size=10", "attempt_finished", origin.EndAnswered},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			in := r.request("/s/k/" + row.script)
			in.RetryPolicy = &pb.RetryPolicy{BaseDelay: seconds(300), MaxDelay: seconds(300)}
			in.TimeoutPolicy = patient()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := r.client.Fetch(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			for name := ""; name != row.until; {
				m, err := stream.Recv()
				if err != nil {
					t.Fatalf("Recv = %v before %s", err, row.until)
				}
				name = eventName(m)
			}
			seen, err := r.origin.Await(t.Context(), "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			_, err = stream.Recv()
			wantCode(t, "Recv", err, codes.Canceled)
			r.wantLeft(seen, row.end)
		})
	}
	t.Run("unary", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := r.client.FetchUnary(ctx, &pb.FetchUnaryRequest{Request: r.request("/s/k/silent")})
			ended <- err
		}()
		seen, err := r.origin.Await(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		wantCode(t, "FetchUnary", <-ended, codes.Canceled)
		r.wantLeft(seen, origin.EndClientGone)
	})
}

// wantLeft waits until the origin's exchange has ended, and the fetch too.
func (r *rig) wantLeft(seen origin.Request, want origin.End) {
	r.Helper()
	<-seen.Done
	got := r.origin.Requests("k")
	if len(got) != 1 || got[0].End != want {
		r.Errorf("the origin saw %d requests, the first ended %q; want 1 and %q", len(got), got[0].End, want)
	}
	line := r.logs.await(r.T, "fetch finished", 1)[0]
	if line["error_class"] != "cancelled" || line["stop_reason"] != "stopped" || line["retryable"] != false {
		r.Errorf("log %v, want cancelled, stopped, not retryable", line)
	}
}

// call is a Fetch under way.
type call struct {
	ended chan *answer
	at    time.Time // when it ended
}

// begin starts a Fetch and waits until all of the bubble waits.
func (r *rig) begin(in *pb.FetchRequest) *call {
	c := &call{ended: make(chan *answer, 1)}
	go func() {
		a := r.fetch(r.Context(), in)
		c.at = time.Now()
		c.ended <- a
	}()
	synctest.Wait()
	return c
}

// TestShutdown stops a server with fetches under way.
func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, script string
		class        pb.ErrorClass // none: success
		ends         time.Duration // after the shutdown
		status       int32
	}{
		{"in a wait", "503", pb.ErrorClass_ERROR_CLASS_SHUTDOWN, 0, 503},
		{"in an attempt that ends well", "200:size=100,delay=5s", 0, 5 * time.Second, 200},
		{"in an attempt that would be retried", "503:delay=5s", pb.ErrorClass_ERROR_CLASS_SHUTDOWN, 5 * time.Second, 503},
		{"in an attempt that would not be", "404:delay=5s", pb.ErrorClass_ERROR_CLASS_HTTP_CLIENT_ERROR, 5 * time.Second, 404},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				in := r.request("/s/k/" + row.script)
				in.RetryPolicy = &pb.RetryPolicy{BaseDelay: seconds(60), MaxDelay: seconds(60)}
				in.TimeoutPolicy = patient()
				c := r.begin(in)
				began := time.Now()
				if err := r.server.Shutdown(r.Context()); err != nil {
					r.Errorf("Shutdown = %v, want nil", err)
				}
				a := <-c.ended
				if a.err != nil {
					r.Fatalf("Fetch = %v, want an outcome", a.err)
				}
				if took, down := c.at.Sub(began), time.Since(began); took != row.ends || down != row.ends {
					r.Errorf("the fetch ended after %s and the server after %s, want %s", took, down, row.ends)
				}
				if got := a.outcome.GetResponse().GetStatusCode(); got != row.status {
					r.Errorf("last status %d, want %d", got, row.status)
				}
				r.wantShutdown(a.outcome, row.class)
				if n := len(r.origin.Requests("k")); n != 1 {
					r.Errorf("the origin saw %d requests, want 1", n)
				}
			})
		})
	}
}

func (r *rig) wantShutdown(o *pb.FetchOutcome, class pb.ErrorClass) {
	r.Helper()
	switch e := o.GetError(); class {
	case 0:
		if o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
			r.Errorf("outcome %v, want SUCCESS", o)
		}
	case pb.ErrorClass_ERROR_CLASS_SHUTDOWN:
		wantClass(r.T, o, class, pb.RetryVerdict_RETRY_VERDICT_STOPPED, 1)
		if !e.GetRetryable() || e.GetRule() != "P5" || e.GetFailureType() != pb.FailureType_FAILURE_TYPE_TRANSIENT {
			r.Errorf("error %v, want it retryable, transient, by P5", e)
		}
	default:
		wantClass(r.T, o, class, pb.RetryVerdict_RETRY_VERDICT_NOT_RETRYABLE, 1)
	}
}

// TestShutdownOfPost ends a wait that repeating could not follow: there is
// none, for such a request is let out once.
func TestShutdownOfPost(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		in := r.request("/s/k/503:delay=5s")
		in.Method = "POST"
		c := r.begin(in)
		if err := r.server.Shutdown(r.Context()); err != nil {
			r.Errorf("Shutdown = %v, want nil", err)
		}
		o := (<-c.ended).outcome
		wantClass(r.T, o, pb.ErrorClass_ERROR_CLASS_HTTP_SERVER_ERROR, pb.RetryVerdict_RETRY_VERDICT_NOT_IDEMPOTENT, 1)
		if o.GetError().GetRetryable() {
			r.Error("retryable, though repeating could repeat an effect")
		}
	})
}

// TestShutdownRefusesNewCalls looks at what callers see while one fetch still
// runs: health turns, and a new call finds nobody.
func TestShutdownRefusesNewCalls(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		watchCtx, stopWatching := context.WithCancel(r.Context())
		defer stopWatching()
		health := healthpb.NewHealthClient(r.conn)
		var watches []healthpb.Health_WatchClient
		for _, service := range []string{"", pb.FetchService_ServiceDesc.ServiceName} {
			watch, err := health.Watch(watchCtx, &healthpb.HealthCheckRequest{Service: service})
			if err != nil {
				r.Fatal(err)
			}
			watches = append(watches, watch)
			r.wantHealth(watch, healthpb.HealthCheckResponse_SERVING)
		}
		c := r.begin(r.request("/s/k/200:delay=5s"))
		down := make(chan error, 1)
		go func() { down <- r.server.Shutdown(r.Context()) }()
		synctest.Wait()
		for _, watch := range watches {
			r.wantHealth(watch, healthpb.HealthCheckResponse_NOT_SERVING)
		}
		wantCode(r.T, "Fetch", r.fetch(r.Context(), r.request("/s/new/200")).err, codes.Unavailable)
		_, err := r.client.FetchUnary(r.Context(), &pb.FetchUnaryRequest{Request: r.request("/s/new/200")})
		wantCode(r.T, "FetchUnary", err, codes.Unavailable)
		if a := <-c.ended; a.outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
			r.Errorf("the running fetch: %v, %v; want SUCCESS", a.err, a.outcome)
		}
		if err := <-down; err != nil {
			r.Errorf("Shutdown = %v, want nil", err)
		}
		if n := len(r.origin.Requests("new")); n != 0 {
			r.Errorf("the origin saw %d requests of new calls, want none", n)
		}
	})
}

func (r *rig) wantHealth(watch healthpb.Health_WatchClient, want healthpb.HealthCheckResponse_ServingStatus) {
	r.Helper()
	got, err := watch.Recv()
	if err != nil || got.GetStatus() != want {
		r.Errorf("health %s, %v; want %s", got.GetStatus(), err, want)
	}
}

// TestShutdownCutsOff gives Shutdown less time than the fetch takes.
func TestShutdownCutsOff(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		wait time.Duration
		want error
	}{
		{"after a while", 2 * time.Second, context.DeadlineExceeded},
		{"at once", 0, context.DeadlineExceeded},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				in := r.request("/s/k/silent")
				in.TimeoutPolicy = patient()
				c := r.begin(in)
				began := time.Now()
				ctx, cancel := context.WithTimeout(r.Context(), row.wait)
				defer cancel()
				if err := r.server.Shutdown(ctx); !errors.Is(err, row.want) {
					r.Errorf("Shutdown = %v, want %v", err, row.want)
				}
				a := <-c.ended
				wantCode(r.T, "Fetch", a.err, codes.Unavailable)
				if slices.Contains(a.order, "outcome") {
					r.Errorf("events %q, want no outcome in a call that is not OK", a.order)
				}
				seen := r.origin.Requests("k")[0]
				<-seen.Done
				if took := time.Since(began); took != row.wait {
					r.Errorf("cut off after %s, want %s", took, row.wait)
				}
				if got := r.origin.Requests("k")[0].End; got != origin.EndClientGone {
					r.Errorf("the origin's exchange ended %q, want %q", got, origin.EndClientGone)
				}
			})
		})
	}
}
