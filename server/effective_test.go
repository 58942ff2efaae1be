package server_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
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
	in.Precondition = &pb.Precondition{Etags: []string{`"a"`}, LastModifiedTime: &timestamppb.Timestamp{Seconds: 1}}
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
		BodyPolicy: &pb.BodyPolicy{MaxSizeBytes: new(int64(16 << 20)), OversizeAction: pb.OversizeAction_OVERSIZE_ACTION_FAIL,
			Delivery:          streamed(&pb.StreamDelivery{Recovery: pb.BodyRecovery_BODY_RECOVERY_NONE, MaxHoldBackBytes: new(int64(512 << 10))}).Delivery,
			MaxErrorBodyBytes: new(int32(16 << 10))},
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
	want.BodyPolicy.Delivery, want.BodyPolicy.MaxSizeBytes = &pb.BodyPolicy_Inline{Inline: new(pb.InlineDelivery)}, new(int64(1<<20))
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
	out, err := r.Client.FetchUnary(ctx, r.request("/s/k/200"))
	must(t, err)
	if got := out.GetEffectiveRequest().GetTimeoutPolicy().GetTotalTimeout().AsDuration(); got != time.Minute {
		t.Errorf("total_timeout = %s, want 1m0s", got)
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
			for _, policy := range []proto.Message{got.GetRedirectPolicy(), got.GetRetryPolicy(), got.GetTimeoutPolicy(), got.GetBodyPolicy(), got.GetBodyPolicy().GetStream()} {
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
		oneof := f.ContainingOneof()
		optional := f.HasPresence() && f.Name() != "resume_point" && (oneof == nil || oneof.IsSynthetic())
		if (optional || f.Kind() == protoreflect.EnumKind) && !m.Has(f) {
			t.Errorf("%s is not filled in", f.FullName())
		}
		if oneof != nil && m.WhichOneof(oneof) == nil {
			t.Errorf("no member of %s is filled in", oneof.FullName())
		}
	}
}

// asked are values of fields of policies that are neither switches nor always shown: see [TestEffectiveShowsWhatIsAsked].
var asked = map[protoreflect.Name]protoreflect.Value{
	"additional_status_codes": protoreflect.ValueOfInt32(418), "excluded_status_codes": protoreflect.ValueOfInt32(503),
	"accepted_media_types": protoreflect.ValueOfString("text/html"), "idempotency_key": protoreflect.ValueOfString("k"),
}

// TestEffectiveShowsWhatIsAsked sets the fields that [TestEffectivePoliciesAreComplete] does not cover, one at a time: each
// switch of a policy, and each list and text.
func TestEffectiveShowsWhatIsAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	requests := (*pb.FetchRequest)(nil).ProtoReflect().Descriptor().Fields()
	n := 0
	for _, policy := range []protoreflect.Name{"redirect_policy", "retry_policy", "timeout_policy", "body_policy", "content_policy"} {
		of := requests.ByName(policy)
		fields := of.Message().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			if f.Kind() == protoreflect.EnumKind || f.HasPresence() && f.Kind() != protoreflect.BoolKind {
				continue
			}
			n++
			t.Run(string(f.FullName()), func(t *testing.T) {
				r := r.in(t)
				in := r.request("/s/k/200:size=1,type=text%2Fhtml")
				in.RetryPolicy.IdempotencyKey = "k"
				m := in.ProtoReflect().Mutable(of).Message()
				value, given := asked[f.Name()]
				switch {
				case f.Kind() == protoreflect.BoolKind:
					m.Set(f, protoreflect.ValueOfBool(true))
				case !given:
					t.Fatalf("%s: give it a value in the map asked", f.Name())
				case f.IsList():
					m.Mutable(f).List().Append(value)
				default:
					m.Set(f, value)
				}
				got := r.mustFetch(in).admitted().GetEffectiveRequest().ProtoReflect().Get(of).Message()
				if !got.Has(f) || !got.Get(f).Equal(m.Get(f)) {
					t.Errorf("it was asked for %v, and the effective request has %v", m.Get(f), got.Get(f))
				}
			})
		}
	}
	if n < 12 {
		t.Errorf("%d fields, want 12 or more", n)
	}
}

// TestDefaults compares the tables of defaults in section 2 of the spec with what the service reports.
func TestDefaults(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	effective := func(profile pb.RetryProfile) *pb.FetchRequest {
		in := r.request("/s/k/200")
		in.RetryPolicy = &pb.RetryPolicy{Profile: profile}
		return r.mustFetch(in).admitted().GetEffectiveRequest()
	}
	standard, download := effective(pb.RetryProfile_RETRY_PROFILE_STANDARD), effective(pb.RetryProfile_RETRY_PROFILE_DOWNLOAD)
	length := func(d *durationpb.Duration) string {
		switch v := d.AsDuration(); {
		case v == 0:
			return "none"
		case v == 15*time.Minute:
			return "the server's maximum"
		case v < time.Second:
			return fmt.Sprint(v.Milliseconds(), " ms")
		default:
			return fmt.Sprint(v.Seconds(), " s")
		}
	}
	of := map[string]func(*pb.FetchRequest) string{
		"max_attempts":    func(in *pb.FetchRequest) string { return fmt.Sprint(in.GetRetryPolicy().GetMaxAttempts()) },
		"base_delay":      func(in *pb.FetchRequest) string { return length(in.GetRetryPolicy().GetBaseDelay()) },
		"max_delay":       func(in *pb.FetchRequest) string { return length(in.GetRetryPolicy().GetMaxDelay()) },
		"multiplier":      func(in *pb.FetchRequest) string { return fmt.Sprint(in.GetRetryPolicy().GetMultiplier()) },
		"max_jitter":      func(in *pb.FetchRequest) string { return length(in.GetRetryPolicy().GetMaxJitter()) },
		"max_retry_after": func(in *pb.FetchRequest) string { return length(in.GetRetryPolicy().GetMaxRetryAfter()) },
		"max_redirects":   func(in *pb.FetchRequest) string { return fmt.Sprint(in.GetRedirectPolicy().GetMaxRedirects()) },
		"retry_tls_handshake": func(in *pb.FetchRequest) string {
			return map[bool]string{true: "yes", false: "no"}[in.GetRetryPolicy().GetRetryTlsHandshake()]
		},
		"attempt_timeout": func(in *pb.FetchRequest) string {
			return length(in.GetTimeoutPolicy().GetAttemptTimeout()) + ", " + length(in.GetTimeoutPolicy().GetTotalTimeout())
		},
		"max_size_bytes": func(in *pb.FetchRequest) string {
			if n := in.GetBodyPolicy().GetMaxSizeBytes(); n < 1<<40 {
				return fmt.Sprintf("%d MiB", n>>20)
			}
			return "the server's maximum (1 TiB)"
		},
	}
	rows := specRows(t)
	for name, get := range of {
		row := rows[name]
		if row == nil {
			t.Errorf("the table has no row %s", name)
			continue
		}
		for i, in := range []*pb.FetchRequest{standard, download} {
			if got := get(in); got != strings.TrimSuffix(row[i+1], " (3 retries)") {
				t.Errorf("%s: the service has %q in %s, and the table %q", name, got, in.GetRetryPolicy().GetProfile(), row[i+1])
			}
		}
	}
	in := r.request("/s/k/200")
	in.EventLevel = pb.EventLevel_EVENT_LEVEL_UNSPECIFIED
	unary := r.mustUnary(in).GetEffectiveRequest()
	m := r.many(t.Context())
	m.start(&pb.Task{Tag: "t", Request: in})
	m.finish("t")
	for name, got := range map[string][3]string{
		"delivery": {delivery(standard), delivery(unary), map[bool]string{true: "inline"}[m.outcomes["t"][0].GetBody() != nil]},
		"event_level": {strings.TrimPrefix(standard.GetEventLevel().String(), "EVENT_LEVEL_"), strings.TrimPrefix(unary.GetEventLevel().String(), "EVENT_LEVEL_"),
			map[bool]string{true: "OUTCOME"}[len(m.events["t before"]) == 1]},
	} {
		if row := rows[name]; row == nil || !slices.Equal(row[1:4], got[:]) {
			t.Errorf("%s: the service has %q, and the table %q", name, got, row)
		}
	}
}

// delivery returns the name of the delivery of a request.
func delivery(in *pb.FetchRequest) string {
	m := in.GetBodyPolicy().ProtoReflect()
	return string(m.WhichOneof(m.Descriptor().Oneofs().ByName("delivery")).Name())
}

// specRows returns the cells of the tables in section 2 of the spec, by the first word of their row.
func specRows(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/spec.md")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## 2. ")
	section, _, _ = strings.Cut(section, "\n## 3. ")
	rows := make(map[string][]string)
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		name, _, _ := strings.Cut(strings.NewReplacer(",", " ", ";", " ").Replace(cells[0]), " ")
		rows[name] = cells
	}
	return rows
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
		{"body_policy.stream.max_hold_back_bytes", func(in *pb.FetchRequest, over int64) {
			in.BodyPolicy = streamed(&pb.StreamDelivery{MaxHoldBackBytes: new(holdBack + over)})
		},
			func(r *pb.FetchRequest) any { return r.GetBodyPolicy().GetStream().GetMaxHoldBackBytes() }, holdBack},
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
				if in.GetBodyPolicy().GetStream() != nil { // FetchUnary has no stream
					return
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

// TestEffectiveRecovery checks the recovery that the first event reports, and that a body without a
// validator is delivered again after a break only if that is RESTART.
func TestEffectiveRecovery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	restart := func(in *pb.FetchRequest) {
		in.BodyPolicy.GetStream().Recovery = pb.BodyRecovery_BODY_RECOVERY_RESTART
	}
	for _, row := range []struct {
		name   string
		change func(*pb.FetchRequest)
		want   pb.BodyRecovery
	}{
		{"unset", func(*pb.FetchRequest) {}, pb.BodyRecovery_BODY_RECOVERY_RESUME},
		{"none", func(in *pb.FetchRequest) { in.BodyPolicy.GetStream().Recovery = pb.BodyRecovery_BODY_RECOVERY_NONE }, pb.BodyRecovery_BODY_RECOVERY_NONE},
		{"restart", restart, pb.BodyRecovery_BODY_RECOVERY_RESTART},
		{"restart of a PUT", func(in *pb.FetchRequest) { restart(in); in.Method = "PUT" }, pb.BodyRecovery_BODY_RECOVERY_RESTART},
		{"restart of a range", func(in *pb.FetchRequest) {
			restart(in)
			in.Headers = []*pb.Header{{Name: "range", Value: "bytes=0-1"}}
		}, pb.BodyRecovery_BODY_RECOVERY_RESTART},
		{"of a PUT", func(in *pb.FetchRequest) { in.Method = "PUT" }, pb.BodyRecovery_BODY_RECOVERY_NONE},
		{"of a range", func(in *pb.FetchRequest) { in.Headers = []*pb.Header{{Name: "range", Value: "bytes=0-1"}} }, pb.BodyRecovery_BODY_RECOVERY_NONE},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/" + strings.ReplaceAll(row.name, " ", "-") + "/200:size=3000,cut=2000/200:size=3000")
			in.BodyPolicy = streamed(&pb.StreamDelivery{MaxHoldBackBytes: new(int64)})
			row.change(in)
			a := r.mustFetch(in)
			admitted := a.events[0].GetAdmitted()
			if got := admitted.GetEffectiveRequest().GetBodyPolicy().GetStream().GetRecovery(); got != row.want || len(admitted.GetClampedFields()) != 0 {
				t.Errorf("%s, clamped %q; want %s, none", got, admitted.GetClampedFields(), row.want)
			}
			if again := a.outcome.GetError() == nil; again != (row.want == pb.BodyRecovery_BODY_RECOVERY_RESTART) {
				t.Errorf("the body was delivered again: %t, with recovery %s", again, row.want)
			}
		})
	}
}
