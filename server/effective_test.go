package server_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// full returns a request with every field that the effective request shows.
func (r *rig) full(path string) *pb.FetchRequest {
	in := r.request(path)
	in.Method, in.Body = "POST", []byte(marker)
	in.Headers = []*pb.Header{{Name: "x-b", Value: marker}, {Name: "X-A", RawValue: []byte(marker + "\xff")}, {Name: "X-B", Value: marker}}
	in.Precondition = &pb.Precondition{Etags: []string{`"a"`}, ModifiedSinceTime: &timestamppb.Timestamp{Seconds: 1}}
	in.Integrity = &pb.Integrity{SizeBytes: new(int64(10))}
	in.ContentPolicy = &pb.ContentPolicy{RequireBody: true}
	in.Labels = map[string]string{"job": "nightly"}
	in.RetryPolicy.IdempotencyKey = "a-key"
	return in
}

// TestEffectiveRequest checks that every policy field is set, and that header values and the body
// are left out.
func TestEffectiveRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.full("/s/k/200:size=10")
	want := &pb.FetchRequest{
		Url: in.GetUrl(), Method: "POST",
		Headers:        []*pb.Header{{Name: "If-Modified-Since"}, {Name: "If-None-Match"}, {Name: "X-A"}, {Name: "X-B"}, {Name: "X-B"}},
		RedirectPolicy: &pb.RedirectPolicy{Follow: new(true), MaxRedirects: new(int32(5)), Scope: pb.RedirectScope_REDIRECT_SCOPE_ANY},
		RetryPolicy: &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_STANDARD, MaxAttempts: new(int32(3)), BaseDelay: seconds(0), MaxDelay: seconds(2),
			Multiplier: new(2.0), MaxJitter: seconds(0), JitterSeed: new(uint64(0)), MaxRetryAfter: seconds(30), IdempotencyKey: "a-key", RetryTlsHandshake: new(true)},
		TimeoutPolicy: &pb.TimeoutPolicy{TotalTimeout: seconds(60), AttemptTimeout: seconds(30), ConnectTimeout: seconds(10), HeaderTimeout: seconds(15), IdleTimeout: seconds(15)},
		BodyPolicy: &pb.BodyPolicy{Delivery: pb.BodyDelivery_BODY_DELIVERY_STREAM, MaxSizeBytes: new(int64(16 << 20)), OversizeAction: pb.OversizeAction_OVERSIZE_ACTION_FAIL,
			Recovery: pb.BodyRecovery_BODY_RECOVERY_NONE, HoldBackBytes: new(int64(512 << 10)), ErrorBodyBytes: new(int32(16 << 10))},
		Precondition: in.GetPrecondition(), Integrity: in.GetIntegrity(), ContentPolicy: in.GetContentPolicy(), Labels: in.GetLabels(),
		EventLevel: pb.EventLevel_EVENT_LEVEL_ATTEMPTS, CookieMode: pb.CookieMode_COOKIE_MODE_NONE,
	}
	admitted := r.mustFetch(in).admitted()
	if diff := cmp.Diff(want, admitted.GetEffectiveRequest(), protocmp.Transform()); diff != "" {
		t.Errorf("effective_request (-want +got)\n%s", diff)
	}
	if got := admitted.GetExpireTime().AsTime().Sub(admitted.GetStartTime().AsTime()); got != time.Minute {
		t.Errorf("expire_time is %s after start_time, want 1m0s", got)
	}
	unary := r.mustUnary(in)
	want.BodyPolicy.Delivery, want.BodyPolicy.MaxSizeBytes = pb.BodyDelivery_BODY_DELIVERY_INLINE, new(int64(1<<20))
	if diff := cmp.Diff(want, unary.GetEffectiveRequest(), protocmp.Transform()); diff != "" {
		t.Errorf("effective_request of FetchUnary (-want +got)\n%s", diff)
	}
}

// TestEffectiveTimeoutOfUnary checks that the deadline of the call, which ends the fetch sooner,
// does not appear in the effective request.
func TestEffectiveTimeoutOfUnary(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := r.Client.FetchUnary(ctx, &pb.FetchUnaryRequest{Request: r.request("/s/k/200")})
	must(t, err)
	if got := out.GetEffectiveRequest().GetTimeoutPolicy().GetTotalTimeout().AsDuration(); got != time.Minute {
		t.Errorf("total_timeout = %s, want 1m0s", got)
	}
}

// TestEffectiveLevelOfUnary checks the effective levels of FetchUnary.
func TestEffectiveLevelOfUnary(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for asked, want := range map[pb.EventLevel]pb.EventLevel{
		pb.EventLevel_EVENT_LEVEL_UNSPECIFIED: pb.EventLevel_EVENT_LEVEL_ATTEMPTS,
		pb.EventLevel_EVENT_LEVEL_OUTCOME:     pb.EventLevel_EVENT_LEVEL_OUTCOME,
		pb.EventLevel_EVENT_LEVEL_ATTEMPTS:    pb.EventLevel_EVENT_LEVEL_ATTEMPTS,
		pb.EventLevel_EVENT_LEVEL_ALL:         pb.EventLevel_EVENT_LEVEL_ALL,
	} {
		in := r.request("/s/k/200")
		in.EventLevel = asked
		if got := r.mustUnary(in).GetEffectiveRequest().GetEventLevel(); got != want {
			t.Errorf("%s: effective level %s, want %s", asked, got, want)
		}
	}
}

// TestEffectivePoliciesAreComplete checks the effective policies of both profiles: every optional
// field is set, and no enum is UNSPECIFIED.
func TestEffectivePoliciesAreComplete(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, profile := range []pb.RetryProfile{pb.RetryProfile_RETRY_PROFILE_UNSPECIFIED, pb.RetryProfile_RETRY_PROFILE_STANDARD, pb.RetryProfile_RETRY_PROFILE_DOWNLOAD} {
		t.Run(profile.String(), func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/k/200")
			in.RetryPolicy = &pb.RetryPolicy{Profile: profile}
			got := r.mustFetch(in).admitted().GetEffectiveRequest()
			for _, policy := range []proto.Message{got.GetRedirectPolicy(), got.GetRetryPolicy(), got.GetTimeoutPolicy(), got.GetBodyPolicy()} {
				wantComplete(t, policy.ProtoReflect())
			}
			if got.GetEventLevel() == 0 || got.GetCookieMode() == 0 || got.GetMethod() != "GET" {
				t.Errorf("event level %s, cookie mode %s, method %q", got.GetEventLevel(), got.GetCookieMode(), got.GetMethod())
			}
		})
	}
}

func wantComplete(t *testing.T, m protoreflect.Message) {
	t.Helper()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		optional := f.HasPresence() && f.Name() != "resume_point"
		if (optional || f.Kind() == protoreflect.EnumKind) && !m.Has(f) {
			t.Errorf("%s is not filled in", f.FullName())
		}
	}
}

// TestClampedFields requests one more than each of the server's limits, and exactly the limit.
func TestClampedFields(t *testing.T) {
	t.Parallel()
	const total, body, holdBack = time.Minute, int64(1000), int64(16 << 20)
	r := newRig(t, func(c *server.Config) { c.MaxTotalTimeout, c.MaxBodyBytes = total, body })
	timeout := func(set func(*pb.TimeoutPolicy, *durationpb.Duration)) func(*pb.FetchRequest, int64) {
		return func(in *pb.FetchRequest, over int64) {
			in.TimeoutPolicy = new(pb.TimeoutPolicy)
			set(in.TimeoutPolicy, durationpb.New(total+time.Duration(over)))
		}
	}
	for _, row := range []struct {
		field string
		set   func(in *pb.FetchRequest, over int64)
		got   func(*pb.FetchRequest) any
		want  any
	}{
		{"timeout_policy.total_timeout", timeout(func(p *pb.TimeoutPolicy, d *durationpb.Duration) { p.TotalTimeout = d }),
			func(r *pb.FetchRequest) any { return r.GetTimeoutPolicy().GetTotalTimeout().AsDuration() }, total},
		{"timeout_policy.attempt_timeout", timeout(func(p *pb.TimeoutPolicy, d *durationpb.Duration) { p.AttemptTimeout = d }),
			func(r *pb.FetchRequest) any { return r.GetTimeoutPolicy().GetAttemptTimeout().AsDuration() }, total},
		{"timeout_policy.connect_timeout", timeout(func(p *pb.TimeoutPolicy, d *durationpb.Duration) { p.ConnectTimeout = d }),
			func(r *pb.FetchRequest) any { return r.GetTimeoutPolicy().GetConnectTimeout().AsDuration() }, total},
		{"timeout_policy.header_timeout", timeout(func(p *pb.TimeoutPolicy, d *durationpb.Duration) { p.HeaderTimeout = d }),
			func(r *pb.FetchRequest) any { return r.GetTimeoutPolicy().GetHeaderTimeout().AsDuration() }, total},
		{"timeout_policy.idle_timeout", timeout(func(p *pb.TimeoutPolicy, d *durationpb.Duration) { p.IdleTimeout = d }),
			func(r *pb.FetchRequest) any { return r.GetTimeoutPolicy().GetIdleTimeout().AsDuration() }, total},
		{"body_policy.max_size_bytes", func(in *pb.FetchRequest, over int64) { in.BodyPolicy = &pb.BodyPolicy{MaxSizeBytes: new(body + over)} },
			func(r *pb.FetchRequest) any { return r.GetBodyPolicy().GetMaxSizeBytes() }, body},
		{"body_policy.hold_back_bytes", func(in *pb.FetchRequest, over int64) {
			in.BodyPolicy = &pb.BodyPolicy{HoldBackBytes: new(holdBack + over)}
		},
			func(r *pb.FetchRequest) any { return r.GetBodyPolicy().GetHoldBackBytes() }, holdBack},
	} {
		for over, want := range map[int64][]string{0: nil, 1: {row.field}, 1 << 55: {row.field}} {
			t.Run(fmt.Sprintf("%s %d over", row.field, over), func(t *testing.T) {
				r := r.in(t)
				in := r.request("/s/k/200")
				row.set(in, over)
				admitted := r.mustFetch(in).admitted()
				if diff := cmp.Diff(want, admitted.GetClampedFields()); diff != "" {
					t.Errorf("clamped_fields (-want +got)\n%s", diff)
				}
				if got := row.got(admitted.GetEffectiveRequest()); got != row.want {
					t.Errorf("effective %v, want %v", got, row.want)
				}
				unary := r.mustUnary(in)
				if diff := cmp.Diff(want, unary.GetClampedFields()); diff != "" {
					t.Errorf("FetchUnary: clamped_fields (-want +got)\n%s", diff)
				}
			})
		}
	}
}

// TestServerMaximumIsTheDefault checks that a default that the server lowers is not reported as
// clamped.
func TestServerMaximumIsTheDefault(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *server.Config) { c.MaxTotalTimeout, c.MaxBodyBytes = 5*time.Second, 1000 })
	for _, profile := range []pb.RetryProfile{pb.RetryProfile_RETRY_PROFILE_STANDARD, pb.RetryProfile_RETRY_PROFILE_DOWNLOAD} {
		in := r.request("/s/k/200")
		in.RetryPolicy = &pb.RetryPolicy{Profile: profile}
		admitted := r.mustFetch(in).admitted()
		got := admitted.GetEffectiveRequest()
		if len(admitted.GetClampedFields()) != 0 || got.GetTimeoutPolicy().GetTotalTimeout().AsDuration() != 5*time.Second ||
			got.GetTimeoutPolicy().GetHeaderTimeout().AsDuration() != 5*time.Second || got.GetBodyPolicy().GetMaxSizeBytes() != 1000 {
			t.Errorf("%s: clamped %q, timeouts %v, body %v; want none, 5s and 1000", profile, admitted.GetClampedFields(), got.GetTimeoutPolicy(), got.GetBodyPolicy())
		}
	}
}

// TestInlineIsClamped checks that the limit of INLINE is reported like other limits.
func TestInlineIsClamped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.request("/s/k/200:size=2000000")
	in.BodyPolicy = &pb.BodyPolicy{MaxSizeBytes: new(int64(2 << 20))}
	got := r.mustUnary(in)
	if !slices.Equal(got.GetClampedFields(), []string{"body_policy.max_size_bytes"}) || got.GetEffectiveRequest().GetBodyPolicy().GetMaxSizeBytes() != 1<<20 {
		t.Errorf("clamped %v to %d", got.GetClampedFields(), got.GetEffectiveRequest().GetBodyPolicy().GetMaxSizeBytes())
	}
	if c := got.GetOutcome().GetError().GetErrorClass(); c != pb.ErrorClass_ERROR_CLASS_BODY_TOO_LARGE {
		t.Errorf("class %v, want BODY_TOO_LARGE", c)
	}
}

// TestEffectiveRecovery checks the recovery that the first event reports.
func TestEffectiveRecovery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		name   string
		change func(*pb.FetchRequest)
		want   pb.BodyRecovery
	}{
		{"unset", func(*pb.FetchRequest) {}, pb.BodyRecovery_BODY_RECOVERY_RESUME},
		{"none", func(in *pb.FetchRequest) { in.BodyPolicy.Recovery = pb.BodyRecovery_BODY_RECOVERY_NONE }, pb.BodyRecovery_BODY_RECOVERY_NONE},
		{"restart", func(in *pb.FetchRequest) { in.BodyPolicy.Recovery = pb.BodyRecovery_BODY_RECOVERY_RESTART }, pb.BodyRecovery_BODY_RECOVERY_RESTART},
		{"of a PUT", func(in *pb.FetchRequest) { in.Method = "PUT" }, pb.BodyRecovery_BODY_RECOVERY_NONE},
		{"of a digest", func(in *pb.FetchRequest) { in.BodyPolicy.Delivery = pb.BodyDelivery_BODY_DELIVERY_DIGEST }, pb.BodyRecovery_BODY_RECOVERY_NONE},
		{"of a range", func(in *pb.FetchRequest) { in.Headers = []*pb.Header{{Name: "range", Value: "bytes=0-1"}} }, pb.BodyRecovery_BODY_RECOVERY_NONE},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/k/200")
			in.BodyPolicy = new(pb.BodyPolicy)
			row.change(in)
			admitted := r.mustFetch(in).events[0].GetAdmitted()
			if got := admitted.GetEffectiveRequest().GetBodyPolicy().GetRecovery(); got != row.want || len(admitted.GetClampedFields()) != 0 {
				t.Errorf("%s, clamped %q; want %s, none", got, admitted.GetClampedFields(), row.want)
			}
		})
	}
}
