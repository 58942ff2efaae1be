package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	pb "fetchd/gen/fetchd/v1"
)

// wantDenied checks that the details of a status have the policy and the field of a denial.
func wantDenied(r *rig, details []*anypb.Any) {
	r.Helper()
	var policy, field string
	for _, d := range details {
		info, bad := new(errdetails.ErrorInfo), new(errdetails.BadRequest)
		if d.UnmarshalTo(info) == nil {
			policy = info.GetReason() + " " + info.GetMetadata()["policy"]
		}
		if d.UnmarshalTo(bad) == nil {
			field = bad.GetFieldViolations()[0].GetField()
		}
	}
	if policy != "POLICY p" || field != "method" {
		r.Errorf("details %q for %q, want POLICY p for method", policy, field)
	}
}

// TestPolicyOverHTTP checks how the HTTP API shows what a policy forbids, as the console receives it.
func TestPolicyOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Service.SetPolicies(policySet(t, r, `policies: {p: {egress: {allow-addresses: [127.0.0.0/8], deny-names: [localhost], PORTS}, request: {methods: [GET]}}}
default: p
`))
	blocked := strings.Replace(r.Origin.URL("http", "/s/k/200"), "127.0.0.1", "localhost", 1)
	t.Run("a field, /v1/fetch", func(t *testing.T) {
		r := r.in(t)
		in := r.request("/s/k/200")
		in.Method = "DELETE"
		wantDenied(r, r.wantStatus(r.post(t.Context(), "/v1/fetch", r.json(in)), 403, codes.PermissionDenied, `the policy "p" of this caller forbids the request`).GetDetails())
	})
	t.Run("a field, /v1/raw", func(t *testing.T) {
		r := r.in(t)
		wantDenied(r, r.wantStatus(r.rawCall(t.Context(), "POST", "/s/k/200", sets("Fetchd-Request", `{"method": "DELETE"}`)), 403, codes.PermissionDenied, `the policy "p" of this caller forbids the request`).GetDetails())
	})
	t.Run("a target, /v1/fetch", func(t *testing.T) {
		r := r.in(t)
		in := r.request("/s/k/200")
		in.Url = blocked
		a := r.lines(r.post(t.Context(), "/v1/fetch", r.json(in)))
		f := a.outcome.GetError()
		if f.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED || f.GetPolicy() != "p" || f.GetPolicyRule() != "localhost" || !strings.Contains(f.GetMessage(), "deny-names (localhost)") {
			t.Errorf("%v, want TARGET_BLOCKED by the policy p and its entry", a.outcome)
		}
	})
	t.Run("a target, /v1/raw", func(t *testing.T) {
		r := r.in(t)
		resp := r.rawCall(t.Context(), "GET", "/s/k/200", func(req *http.Request) {
			req.URL.RawQuery = strings.ReplaceAll(req.URL.RawQuery, "127.0.0.1", "localhost")
		})
		text, err := io.ReadAll(resp.Body)
		must(t, err)
		if h := resp.Header; resp.StatusCode != 424 || h.Get("Fetchd-Outcome") != "failed" || h.Get("Fetchd-Decision-Rule") != "P1" || h.Get("Content-Type") != "application/problem+json" ||
			!strings.Contains(string(text), `"policy":"p","policy_rule":"localhost"`) {
			t.Errorf("%d, %v, %s; want 424, and the policy and its entry", resp.StatusCode, h, text)
		}
	})
	if n := len(r.Origin.Requests("k")); n > 0 {
		t.Errorf("the origin saw %d requests", n)
	}
}
