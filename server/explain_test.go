package server_test

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/conformance"
	"fetchd/conformance/mapping"
	pb "fetchd/gen/fetchd/v1"
)

// TestExplainVectors calls Explain with every vector.
func TestExplainVectors(t *testing.T) {
	t.Parallel()
	vectors, err := conformance.Vectors()
	must(t, err)
	if len(vectors) < 250 {
		t.Fatalf("got %d vectors, want at least 250", len(vectors))
	}
	r := newRig(t)
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			r := r.in(t)
			in, want := mapping.ExplainRequest(&v.Observation), mapping.ExplainResponse(&v.Observation, &v.Verdict)
			got, err := r.Client.Explain(t.Context(), in)
			if err != nil {
				t.Fatalf("Explain(%s) = %v, want OK", in, err)
			}
			if got.GetEffectiveRetryPolicy() == nil {
				t.Error("effective_retry_policy is not set")
			}
			if want.GetError().GetReason() == "" && got.GetError() != nil {
				got.Error.Reason = ""
			}
			if diff := cmp.Diff(want, got, protocmp.Transform(),
				protocmp.IgnoreFields(new(pb.ExplainResponse), "effective_retry_policy"),
				protocmp.IgnoreFields(new(pb.FetchError), "message", "phase", "url")); diff != "" {
				t.Errorf("%s: %s\n%s\nrequest %s\n(-want +got)\n%s", v.File, v.Rule, v.Why, in, diff)
			}
		})
	}
}

// TestWebExplain calls Explain over HTTP.
func TestWebExplain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 503}, RetryPolicy: &pb.RetryPolicy{MaxAttempts: new(int32(2))}}
	want, err := r.Client.Explain(t.Context(), in)
	must(t, err)
	resp := r.post(t.Context(), "/v1/explain", r.json(in))
	text, err := io.ReadAll(resp.Body)
	got := new(pb.ExplainResponse)
	if err := errors.Join(err, protojson.Unmarshal(text, got)); err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s %q: %v", resp.Status, text, err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-gRPC +HTTP)\n%s", diff)
	}
	wantProtected(t, "Explain", resp)
	for _, row := range []struct {
		body, want string
	}{
		{`[]`, `{"response": {"status_code": 503}}`},
		{`{}`, "response"},
		{`{"error_classes":["ERROR_CLASS_DEADLINES"]}`, `did you mean "ERROR_CLASS_DEADLINE"?`},
	} {
		r.wantStatus(r.post(t.Context(), "/v1/explain", row.body), 400, codes.InvalidArgument, row.want)
	}
}

// TestExplainEffectivePolicy checks the effective policy, which vectors leave out.
func TestExplainEffectivePolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got, err := r.Client.Explain(t.Context(), &pb.ExplainRequest{
		RetryPolicy: &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD, MaxAttempts: new(int32(2))},
		Response:    &pb.HttpResponse{StatusCode: 503}})
	must(t, err)
	want := &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD, MaxAttempts: new(int32(2)),
		BaseDelay: seconds(1), MaxDelay: seconds(32), Multiplier: new(2.0), MaxJitter: seconds(0.5), JitterSeed: got.GetEffectiveRetryPolicy().JitterSeed,
		MaxRetryAfter: seconds(60), RetryTlsHandshake: new(false)}
	if want.GetJitterSeed() == 0 {
		t.Error("no seed is drawn")
	}
	if diff := cmp.Diff(want, got.GetEffectiveRetryPolicy(), protocmp.Transform()); diff != "" {
		t.Errorf("effective_retry_policy (-want +got)\n%s", diff)
	}
}

// TestExplainReasons checks that Explain gives the reason that a fetch gives for a failed redirect.
func TestExplainReasons(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	header := func(to string) []*pb.Header { return []*pb.Header{{Name: "Location", Value: to}} }
	for _, row := range []struct {
		name, path string
		explain    *pb.ExplainRequest
		want       string
	}{
		{"R1", "/s/one/302:to=%2Fs%2Ftwo%2F200", &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 302, Headers: header("/s/two/200")},
			RedirectPolicy: &pb.RedirectPolicy{MaxRedirects: new(int32)}}, "too_many_redirects"},
		{"R2", "/s/loop/302:to=%3F", &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 302, Headers: header("/")},
			ErrorClasses: []pb.ErrorClass{pb.ErrorClass_ERROR_CLASS_REDIRECT_LOOP}}, "redirect_loop"},
		{"R3, a scheme", "/s/scheme/302:to=ftp:%2F%2Forigin.example%2F", &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 302, Headers: header("ftp://origin.example/")}}, "location_scheme"},
		{"R3, userinfo", "/s/user/302:to=http:%2F%2Fa:b@origin.example%2F", &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 302, Headers: header("http://a:b@origin.example/")}}, "location_userinfo"},
		{"H6", "/s/gone/404", &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 404}}, ""},
	} {
		in := r.request(row.path)
		in.RedirectPolicy = row.explain.GetRedirectPolicy()
		fetched := r.mustFetch(in).outcome.GetError()
		explained, err := r.Client.Explain(t.Context(), row.explain)
		must(t, err)
		if e := explained.GetError(); fetched.GetReason() != row.want || e.GetReason() != row.want || e.GetErrorClass() != fetched.GetErrorClass() {
			t.Errorf("%s: fetch %s %q, Explain %s %q, want the reason %q", row.name, fetched.GetErrorClass(), fetched.GetReason(), e.GetErrorClass(), e.GetReason(), row.want)
		}
	}
}

// TestExplainRefuses calls Explain with invalid requests.
func TestExplainRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		name   string
		change func(*pb.ExplainRequest)
		want   []string
	}{
		{"nothing observed", func(in *pb.ExplainRequest) { in.Response = nil }, []string{"response"}},
		{"method in small letters", func(in *pb.ExplainRequest) { in.Method = "get" }, []string{"method"}},
		{"unknown method of the hop", func(in *pb.ExplainRequest) { in.HopMethod = "TRACE" }, []string{"hop_method"}},
		{"negative attempt", func(in *pb.ExplainRequest) { in.Attempt = -1 }, []string{"attempt"}},
		{"negative redirects", func(in *pb.ExplainRequest) { in.RedirectCount = -1 }, []string{"redirect_count"}},
		{"negative time left", func(in *pb.ExplainRequest) { in.RemainingDuration = seconds(-1) }, []string{"remaining_duration"}},
		{"time left that is no duration", func(in *pb.ExplainRequest) { in.RemainingDuration = &durationpb.Duration{Seconds: 1, Nanos: -1} }, []string{"remaining_duration"}},
		{"invalid time", func(in *pb.ExplainRequest) { in.ObserveTime = &timestamppb.Timestamp{Nanos: -1} }, []string{"observe_time"}},
		{"unknown auth result", func(in *pb.ExplainRequest) { in.AuthResult = 99 }, []string{"auth_result"}},
		{"fault without a class", func(in *pb.ExplainRequest) { in.ErrorClasses = []pb.ErrorClass{1, 0} }, []string{"error_classes[1]"}},
		{"unknown fault", func(in *pb.ExplainRequest) { in.ErrorClasses = []pb.ErrorClass{99} }, []string{"error_classes[0]"}},
		{"status of four digits", func(in *pb.ExplainRequest) { in.Response.StatusCode = 1000 }, []string{"response.status_code"}},
		{"no status", func(in *pb.ExplainRequest) { in.Response.StatusCode = 0 }, []string{"response.status_code"}},
		{"URL without a host", func(in *pb.ExplainRequest) { in.Url = "/" + marker }, []string{"url", "hop_url"}},
		{"URL of the hop with userinfo", func(in *pb.ExplainRequest) { in.HopUrl = "http://" + marker + "@origin.example/" }, []string{"hop_url"}},
		{"unknown scope", func(in *pb.ExplainRequest) { in.RedirectPolicy = &pb.RedirectPolicy{Scope: 99} }, []string{"redirect_policy.scope"}},
		{"too many redirects to follow", func(in *pb.ExplainRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(21))} }, []string{"redirect_policy.max_redirects"}},
		{"no attempts", func(in *pb.ExplainRequest) { in.RetryPolicy = &pb.RetryPolicy{MaxAttempts: new(int32(0))} }, []string{"retry_policy.max_attempts"}},
		{"unknown profile", func(in *pb.ExplainRequest) { in.RetryPolicy = &pb.RetryPolicy{Profile: 99} }, []string{"retry_policy.profile"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 302, Headers: []*pb.Header{{Name: "Location", Value: "/" + marker}}}}
			row.change(in)
			_, err := r.Client.Explain(t.Context(), in)
			wantViolations(t, err, row.want)
		})
	}
}
