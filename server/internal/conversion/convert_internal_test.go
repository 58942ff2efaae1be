package conversion

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/stores"
	"fetchd/test/must"
)

// seeds returns requests close to each limit.
func seeds() []*pb.FetchRequest {
	return []*pb.FetchRequest{
		{},
		{Url: "http://origin.example/"},
		{Url: "HTTPS://Ünïcode.Example:443/a b?q=é#f", Method: "POST", Body: []byte("body"), Headers: []*pb.Header{{Name: "X-A", RawValue: []byte("\xff")}, {Name: "Host"}}},
		{Url: "http://[::1%25lo]/", Method: "get", Headers: slices.Repeat([]*pb.Header{{Name: "A"}}, 65), Precondition: &pb.Precondition{Etags: []string{`"a"`, "b"}, LastModifiedTime: &timestamppb.Timestamp{Seconds: 1 << 40}}},
		{Url: "http://u:p@0x7f.1/", RetryPolicy: &pb.RetryPolicy{Profile: 2, MaxAttempts: new(int32), BaseDelay: &durationpb.Duration{Seconds: 1, Nanos: -1}, MaxDelay: durationpb.New(math.MaxInt64), Multiplier: new(math.NaN()),
			MaxJitter: durationpb.New(time.Minute), AdditionalStatusCodes: []int32{425, 404}, ExcludedStatusCodes: []int32{425, 503}, AllowNonIdempotent: true, IdempotencyKey: "\x00"}},
		{Url: "http://origin.example/", RedirectPolicy: &pb.RedirectPolicy{MaxRedirects: new(int32(20)), Scope: 3}, TimeoutPolicy: &pb.TimeoutPolicy{TotalTimeout: &durationpb.Duration{Seconds: math.MaxInt64}, AttemptTimeout: durationpb.New(-1), IdleTimeout: durationpb.New(time.Hour)}},
		{Url: "http://origin.example/", BodyPolicy: &pb.BodyPolicy{MaxSizeBytes: new(int64(math.MaxInt64)), MaxErrorBodyBytes: new(int32(65536)),
			Delivery: &pb.BodyPolicy_Auto{Auto: &pb.StreamDelivery{MaxHoldBackBytes: new(int64(-1)), Recovery: 9, ResumePoint: new(pb.ResumePoint)}}}, Integrity: &pb.Integrity{Sha256: "xy"}, ContentPolicy: &pb.ContentPolicy{AcceptedMediaTypes: []string{"text/*", "text/html; q=1"}, RequireBody: true}},
		{Url: "http://origin.example/", Labels: map[string]string{"a": strings.Repeat("b", 257)}, AuthProvider: "nobody", EventLevel: 99, CookieMode: 2},
	}
}

// FuzzConvert converts arbitrary requests. Either the error is INVALID_ARGUMENT and names fields of
// the contract, or the fetch obeys every limit of spec §12.
func FuzzConvert(f *testing.F) {
	for _, in := range seeds() {
		raw, err := proto.Marshal(in)
		must.Succeed(f, err)
		f.Add(raw)
	}
	own := &Limits{MaxTotalTimeout: time.Minute, MaxBodyBytes: 1000}
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := new(pb.FetchRequest)
		if proto.Unmarshal(raw, in) != nil {
			return
		}
		for _, mode := range []Mode{FetchMode, UnaryMode, ManyMode} {
			out, err := Convert(in, "", mode, own, &Configured{Stores: new(stores.Set)})
			if err != nil {
				wantNamed(t, err, in.ProtoReflect().Descriptor())
				continue
			}
			obeys(t, own, out.Request)
			for _, path := range out.Clamped {
				wantPath(t, path, in.ProtoReflect().Descriptor())
			}
			if _, err := proto.Marshal(out.Effective()); err != nil {
				t.Errorf("effective request: %v", err)
			}
		}
	})
}

// FuzzExplain explains arbitrary observations.
func FuzzExplain(f *testing.F) {
	for _, in := range []*pb.ExplainRequest{
		{}, {Response: &pb.HttpResponse{StatusCode: 302, Headers: []*pb.Header{{Name: "Location", RawValue: []byte("//\xff")}}}},
		{ErrorClasses: []pb.ErrorClass{8, 99, -1}, RetryPolicy: seeds()[4].GetRetryPolicy(), Attempt: math.MaxInt32, RemainingDuration: durationpb.New(1)},
		{Response: &pb.HttpResponse{StatusCode: 429, Headers: []*pb.Header{{Name: "Retry-After", Value: "9223372037"}}}, Url: "http://a/", HopUrl: "https://b/", AuthResult: 4},
	} {
		raw, err := proto.Marshal(in)
		must.Succeed(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := new(pb.ExplainRequest)
		if proto.Unmarshal(raw, in) != nil {
			return
		}
		out, err := Explain(in)
		if err != nil {
			wantNamed(t, err, in.ProtoReflect().Descriptor())
			return
		}
		if (out.GetRetryDecision() == nil) == (out.GetRedirect() == nil) {
			t.Errorf("%v: want a decision or a redirect", out)
		}
		if _, err := proto.Marshal(out); err != nil {
			t.Errorf("response: %v", err)
		}
	})
}

// wantNamed checks that an error is INVALID_ARGUMENT with the paths of existing fields.
func wantNamed(t *testing.T, err error, in protoreflect.MessageDescriptor) {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != codes.InvalidArgument || len(st.Details()) != 1 {
		t.Fatalf("error %v with %d details, want InvalidArgument with 1", err, len(st.Details()))
	}
	bad, ok := st.Details()[0].(*errdetails.BadRequest)
	if !ok || len(bad.GetFieldViolations()) == 0 {
		t.Fatalf("detail %v, want a BadRequest with a violation", st.Details()[0])
	}
	for _, v := range bad.GetFieldViolations() {
		wantPath(t, v.GetField(), in)
	}
}

var element = regexp.MustCompile(`^([a-z0-9_]+)(?:\[[0-9]+\])?$`)

// wantPath checks that a path leads to a field of the message.
func wantPath(t *testing.T, path string, in protoreflect.MessageDescriptor) {
	t.Helper()
	for _, part := range strings.Split(path, ".") {
		match := element.FindStringSubmatch(part)
		if in == nil || match == nil {
			t.Fatalf("path %q leads nowhere", path)
		}
		field := in.Fields().ByName(protoreflect.Name(match[1]))
		if field == nil || strings.Contains(part, "[") != (field.IsList() && part != match[1]) {
			t.Fatalf("path %q: %s has no field %s", path, in.Name(), part)
		}
		in = field.Message()
	}
}

// limit is one limit of spec §12, and whether a fetch obeys it.
type limit struct {
	what string
	ok   bool
}

// obeys checks a fetch against the limits of spec §12 and of the server.
func obeys(t *testing.T, own *Limits, r *fetch.Request) {
	t.Helper()
	for _, l := range slices.Concat(fieldLimits(t, r), policyLimits(&r.Policy), ownLimits(own, r)) {
		if !l.ok {
			t.Errorf("%s: outside its limits in %+v", l.what, r)
		}
	}
}

func fieldLimits(t *testing.T, r *fetch.Request) []limit {
	t.Helper()
	size, fields := 0, 0
	for name, values := range r.Header {
		for _, value := range values {
			if strings.HasPrefix(name, "If-") { // the service's own, from precondition
				continue
			}
			size, fields = size+len(name)+len(value), fields+1
			if wrong := fetch.CheckHeader(name, value); wrong != "" {
				t.Errorf("header %q %s", name, wrong)
			}
		}
	}
	_, known := methods[r.Method]
	return []limit{
		{"id", r.ID != ""},
		{"url", r.URL != nil && len(r.URL.String()) <= urls.MaxBytes && r.URL.Host != "" && r.URL.User == nil},
		{"scheme", r.URL != nil && (r.URL.Scheme == "http" || r.URL.Scheme == "https")},
		{"method", known},
		{"headers", fields <= fetch.MaxHeaderFields && size <= fetch.MaxHeaderBytes},
		{"body", len(r.Body) == 0 || methods[r.Method] && len(r.Body) <= fetch.MaxRequestBodyBytes},
		{"idempotency_key", len(r.IdempotencyKey) <= 256 && strconv.QuoteToASCII(r.IdempotencyKey) == strconv.Quote(r.IdempotencyKey)},
		{"allow_non_idempotent", !r.Policy.RepeatUnsafe || r.IdempotencyKey != ""},
		{"delivery", r.Delivery <= fetch.Auto},
		{"integrity", r.Integrity.Size >= -1 && (r.Integrity.SHA256 == "" || len(r.Integrity.SHA256) == 64)},
		{"media types", len(r.Content.MediaTypes) <= 64},
		{"labels", len(r.Labels) <= 16},
	}
}

func policyLimits(p *classify.Policy) []limit {
	return []limit{
		{"max_attempts", within(p.MaxAttempts, 1, 11)},
		{"max_redirects", within(p.MaxRedirects, 0, 20)},
		{"base_delay", within(p.BaseDelay, 0, p.MaxDelay)},
		{"max_delay", within(p.MaxDelay, 0, 5*time.Minute)},
		{"multiplier", within(p.Multiplier, 1, 10)},
		{"max_jitter", within(p.MaxJitter, 0, time.Minute)},
		{"max_retry_after", within(p.MaxRetryAfter, 0, 15*time.Minute)},
		{"status codes", !slices.ContainsFunc(p.Additional, func(s int) bool { return !within(s, 402, 499) || slices.Contains(p.Excluded, s) })},
	}
}

func ownLimits(own *Limits, r *fetch.Request) []limit {
	return []limit{
		{"total_timeout", within(r.TotalTimeout, 1, own.MaxTotalTimeout)},
		{"attempt_timeout", within(r.AttemptTimeout, 0, own.MaxTotalTimeout)},
		{"connect_timeout", within(r.ConnectTimeout, 1, own.MaxTotalTimeout)},
		{"header_timeout", within(r.HeaderTimeout, 1, own.MaxTotalTimeout)},
		{"idle_timeout", within(r.IdleTimeout, 1, own.MaxTotalTimeout)},
		{"max_size_bytes", within(r.MaxBodyBytes, 0, own.MaxBodyBytes)},
		{"max_hold_back_bytes", within(r.HoldBackBytes, 0, 16<<20)},
		{"max_error_body_bytes", within(r.ErrorBodyBytes, 0, 64<<10)},
	}
}

func within[T cmp.Ordered](v, low, high T) bool { return v >= low && v <= high }
