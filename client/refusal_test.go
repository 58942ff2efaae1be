package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
)

// refused returns the status of a call that a service refuses for a reason. It asks for no wait if wait is zero.
func refused(reason string, wait time.Duration) error {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: "fetchd.v1", Metadata: map[string]string{"policy": "p", "quota": "fetches-per-second"}}}
	if wait > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	st, err := status.New(codes.ResourceExhausted, "no").WithDetails(details...)
	if err != nil {
		return err
	}
	return st.Err()
}

// TestQuota checks that Do waits as long as a quota asks for, however often, and for no other refusal.
func TestQuota(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name             string
		refusals         int
		err              error
		deadline, cancel time.Duration
		code             codes.Code
		calls            int
		elapsed          time.Duration
		cause            error
		late             bool // after an answer
	}{
		{name: "a quota", refusals: 1, err: refused("QUOTA", 3*time.Second), calls: 2, elapsed: 3 * time.Second},
		{name: "a quota, many times", refusals: 20, err: refused("QUOTA", 90*time.Second), calls: 21, elapsed: 30 * time.Minute},
		{name: "within the deadline", refusals: 1, err: refused("QUOTA", 3*time.Second), deadline: 4 * time.Second, calls: 2, elapsed: 3 * time.Second},
		{name: "after the deadline", refusals: 9, err: refused("QUOTA", 3*time.Second), deadline: 5 * time.Second, code: codes.ResourceExhausted, calls: 2, elapsed: 3 * time.Second},
		{name: "cancelled meanwhile", refusals: 9, err: refused("QUOTA", time.Minute), cancel: time.Second, code: codes.Canceled, calls: 1, elapsed: time.Second, cause: context.Canceled},
		{name: "a quota without a wait", refusals: 9, err: refused("QUOTA", 0), code: codes.ResourceExhausted, calls: 1},
		{name: "another reason", refusals: 9, err: refused("MEMORY", 3*time.Second), code: codes.ResourceExhausted, calls: 1},
		{name: "another code", refusals: 9, err: status.Error(codes.PermissionDenied, "no"), code: codes.PermissionDenied, calls: 1},
		{name: "after an answer", refusals: 9, err: refused("QUOTA", 3*time.Second), code: codes.ResourceExhausted, calls: 1, late: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				c := (&fake{fetch: func(s grpc.ServerStreamingServer[pb.FetchResponse]) error {
					if calls++; calls > row.refusals {
						return events(success())(s)
					}
					if row.late {
						_ = events(head(0, 200), chunk(0, "x"))(s)
					}
					return row.err
				}}).client(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if row.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
					defer cancel()
				}
				if row.cancel > 0 {
					time.AfterFunc(row.cancel, cancel)
				}
				began := time.Now()
				var got error
				for _, got = range c.Events(ctx, new(pb.FetchRequest)) {
				}
				if status.Code(got) != row.code || row.cause != nil && !errors.Is(got, row.cause) || calls != row.calls || time.Since(began) != row.elapsed {
					t.Errorf("%v after %d calls and %v, want %v after %d and %v", got, calls, time.Since(began), row.code, row.calls, row.elapsed)
				}
			})
		})
	}
}

// TestStreamRefused checks that Many and a Pool wait as long as a service asks for that refuses their stream. No fetch is
// lost, although it was sent.
func TestStreamRefused(t *testing.T) {
	t.Parallel()
	const wait, times = 3 * time.Second, 4
	newFake := func(calls *int) *fake {
		return &fake{many: func(s manyServer) error {
			if *calls++; *calls <= times {
				if _, err := firstTag(s); err != nil {
					return err
				}
				return refused("TOO_MANY_STREAMS_OF_CALLER", wait)
			}
			return holding(1)(s)
		}}
	}
	requests := []*pb.FetchRequest{{Url: "http://a.example/"}, {Url: "http://b.example/"}}
	t.Run("Many", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			calls, began, results := 0, time.Now(), 0
			for result, err := range newFake(&calls).client(t).Many(t.Context(), slices.Values(requests), client.ManyOptions{}) {
				if results++; err != nil || result.Outcome == nil {
					t.Errorf("%v, %v, want an outcome", result, err)
				}
			}
			if results != 2 || calls != times+1 || time.Since(began) != times*wait {
				t.Errorf("%d results after %d streams and %v, want 2 after %d and %v", results, calls, time.Since(began), times+1, times*wait)
			}
		})
	})
	t.Run("Many, cancelled", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			calls, began := 0, time.Now()
			var last error
			for _, last = range newFake(&calls).client(t).Many(ctx, slices.Values(requests), client.ManyOptions{}) {
			}
			if !errors.Is(last, context.DeadlineExceeded) || calls != 1 || time.Since(began) != time.Second {
				t.Errorf("%v after %d streams and %v, want the end of the context", last, calls, time.Since(began))
			}
		})
	})
	t.Run("Pool", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			calls, began := 0, time.Now()
			p := client.NewPool()
			p.Open(t.Context(), newFake(&calls).client(t), 1, func(_ error, in time.Duration) {
				if in != wait {
					t.Errorf("the next stream is opened in %v, want %v", in, wait)
				}
			})
			if o, err := p.Do(t.Context(), client.Task{Request: requests[0]}); err != nil || o == nil || time.Since(began) != times*wait {
				t.Errorf("%v, %v after %v, want an outcome after %v", o, err, time.Since(began), times*wait)
			}
			p.Close()
		})
	})
}

// TestStreamRefusedLate checks that a fetch whose context has ended is not sent again when the service refuses its
// stream later, and that the pool then closes.
func TestStreamRefusedLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		c := (&fake{many: func(s manyServer) error {
			tag, err := firstTag(s)
			if err != nil {
				return err
			}
			sent = append(sent, tag)
			time.Sleep(2 * time.Second) //nolint:forbidigo // in a bubble; the context has ended by then
			return refused("TOO_MANY_STREAMS_OF_CALLER", 3*time.Second)
		}}).client(t)
		p := client.NewPool()
		p.Open(t.Context(), c, 1, func(error, time.Duration) {})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if o, err := p.Do(ctx, client.Task{Request: &pb.FetchRequest{Url: "http://a.example/"}}); o != nil || !errors.Is(err, client.ErrNotSent) || time.Since(began) != 2*time.Second {
			t.Errorf("%v, %v after %v, want ErrNotSent after 2s", o, err, time.Since(began))
		}
		p.Close()
		if len(sent) != 1 || time.Since(began) > 10*time.Second {
			t.Errorf("sent %d times, closed after %v; want once, and soon", len(sent), time.Since(began))
		}
	})
}

// TestPolicyErrors checks that a denial by a policy is not retried, and that its error has the policy and the field.
func TestPolicyErrors(t *testing.T) {
	t.Parallel()
	calls := 0
	denied, err := status.New(codes.PermissionDenied, `the policy "p" of this caller forbids the request: method is "PUT": the policy permits GET`).WithDetails(
		&errdetails.ErrorInfo{Reason: "POLICY", Domain: "fetchd.v1", Metadata: map[string]string{"policy": "p", "reason": "method"}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "method", Description: "the policy permits GET"}}})
	must(t, err)
	c := (&fake{fetch: func(s grpc.ServerStreamingServer[pb.FetchResponse]) error {
		if calls++; calls == 1 {
			return denied.Err()
		}
		return events(&pb.FetchEvent{Event: &pb.FetchEvent_Outcome{Outcome: &pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_FAILED,
			Error: &pb.FetchError{ErrorClass: pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED, FailureType: pb.FailureType_FAILURE_TYPE_PERMANENT, Policy: "p", PolicyRule: "*.ads.example"}}}})(s)
	}}).client(t)
	_, err = c.Get(t.Context(), "http://a.example/")
	got := status.Convert(err)
	var policy, field string
	for _, d := range got.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			policy = d.GetMetadata()["policy"]
		case *errdetails.BadRequest:
			field = d.GetFieldViolations()[0].GetField()
		}
	}
	if got.Code() != codes.PermissionDenied || policy != "p" || field != "method" || calls != 1 {
		t.Errorf("%v with %q and %q after %d calls, want PERMISSION_DENIED of the policy p for method, after one", err, policy, field, calls)
	}
	_, err = c.Get(t.Context(), "http://a.example/")
	blocked, ok := errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrPermanent) || calls != 2 {
		t.Fatalf("%v after %d calls, want a permanent failure", err, calls)
	}
	if name, rule := blocked.Policy(); name != "p" || rule != "*.ads.example" {
		t.Errorf("policy %q, rule %q", name, rule)
	}
}
