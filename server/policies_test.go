package server_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/fetch/auth"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/policies"
	"fetchd/server"
)

// policySet returns a set of policies in which PORTS are those of the origin.
func policySet(t *testing.T, r *rig, text string) *policies.Set {
	t.Helper()
	set, faults := policies.Parse([]byte(policyText(t, r, text)))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return set
}

// policyText returns the text of a file of policies, with the ports of the origin for PORTS.
func policyText(t *testing.T, r *rig, text string) string {
	t.Helper()
	var ports []string
	for _, listener := range []string{"http", "http-other", "https"} {
		u, err := url.Parse(r.Origin.URL(listener, "/"))
		must(t, err)
		ports = append(ports, u.Port())
	}
	return strings.ReplaceAll(text, "PORTS", "ports: ["+strings.Join(ports, ", ")+"]")
}

// TestPolicyTargets checks that each caller reaches what its policy permits, and nothing else: also over a
// connection that another caller has opened, and by a redirect.
func TestPolicyTargets(t *testing.T) {
	t.Parallel()
	const text = `
policies:
  inside: {egress: {allow-addresses: [127.0.0.1], PORTS}}
  beside: {egress: {allow-addresses: [127.0.0.2], PORTS}}
  named: {egress: {allow-names: [localhost], allow-addresses: [127.0.0.0/8], PORTS}}
  trial: {mode: report, report-to-caller: true, request: {methods: [HEAD]}}
  public: {}
callers:
- {caller: alice, policy: inside}
- {caller: bob, policy: beside}
- {caller: carol, policy: named}
- {caller: dora, policy: trial}
default: public
`
	for _, row := range []struct {
		name, token, host, path string
		listener                string
		reason, policy          string // empty: a success
	}{
		{"what the policy opens", "a", "127.0.0.1", "/s/k/200", "http", "", ""},
		{"what the settings open and the policy does not", "e", "127.0.0.1", "/s/k/200", "http", "port_not_allowed", "public"},
		{"another address", "b", "127.0.0.1", "/s/k/200", "http", "address_not_allowed", "beside"},
		{"a name with another address", "b", "localhost", "/s/k/200", "http", hidden, "beside"},
		{"a name with another address over HTTP/2", "b", "localhost", "/s/k/200", "https", hidden, "beside"},
		{"a name that is in the list", "c", "localhost", "/s/k/200", "http", "", ""},
		{"a name that is in the list over HTTP/2", "c", "localhost", "/s/k/200", "https", "", ""},
		{"a redirect to what is not in the list", "c", "localhost", "/cross/k/302/http-other@other.localhost/200", "http", "name_not_allowed", "named"},
		{"mode report", "d", "127.0.0.1", "/s/k/200", "http", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			callers := &roster{names: map[string]string{"a": "alice", "b": "bob", "c": "carol", "d": "dora", "e": "eve"}}
			r := newRig(t, callers.change)
			r.Service.SetPolicies(policySet(t, r, text))
			in, warm := r.request(row.path), r.request("/s/warm/200")
			for _, one := range []*pb.FetchRequest{in, warm} {
				u, err := url.Parse(one.GetUrl())
				must(t, err)
				one.Url = strings.Replace(r.Origin.URL(row.listener, u.RequestURI()), "127.0.0.1", row.host, 1)
			}
			if o, err := r.Client.FetchUnary(as(t.Context(), "a"), warm); err != nil || o.GetOutcome().GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
				t.Fatalf("alice: %v, %v", o.GetOutcome(), err)
			}
			resp, err := r.Client.FetchUnary(as(t.Context(), row.token), in)
			must(t, err)
			wantBlocked(r, resp.GetOutcome().GetError(), row.reason, row.policy)
			if sent := len(r.Origin.Requests("k")); (sent == 0) == (row.reason == "") && !strings.Contains(row.path, "/302/") {
				t.Errorf("the origin saw %d requests", sent)
			}
			finished := r.logs.lines(t, "fetch finished")
			if last := finished[len(finished)-1]; row.policy != "" && last["policy"] != row.policy || last["policy"] == nil {
				t.Errorf("the line %v has not the policy %q", last, row.policy)
			}
			if row.token == "d" {
				wantReport(r, resp.GetOutcome())
			}
		})
	}
}

// hidden is the reason, in a table, of a target that is forbidden without saying so.
const hidden = "(hidden)"

// wantBlocked checks for which reason a policy forbids a target. An empty one means that it does not.
func wantBlocked(r *rig, failed *pb.FetchError, reason, policy string) {
	r.Helper()
	class := pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED
	switch reason {
	case "":
		class = pb.ErrorClass_ERROR_CLASS_UNSPECIFIED
	case hidden:
		class, reason, policy = pb.ErrorClass_ERROR_CLASS_DNS_NOT_FOUND, "", ""
	}
	if failed.GetErrorClass() != class || failed.GetReason() != reason || failed.GetPolicy() != policy {
		r.Errorf("%v, want %s with reason %q of policy %q", failed, class, reason, policy)
	}
	if policy != "" && !strings.Contains(failed.GetMessage(), `"`+policy+`"`) {
		r.Errorf("the message %q does not name the policy", failed.GetMessage())
	}
}

// wantReport checks what the mode report said about a fetch.
func wantReport(r *rig, o *pb.FetchOutcome) {
	r.Helper()
	var told []string
	for _, p := range o.GetPolicyReports() {
		told = append(told, p.GetPolicy()+" "+p.GetReason()+" "+p.GetHost())
	}
	if diff := cmp.Diff([]string{"trial method 127.0.0.1", "trial port_not_allowed 127.0.0.1", "trial address_not_allowed 127.0.0.1"}, told); diff != "" {
		r.Errorf("policy_reports (-want +got)\n%s", diff)
	}
	r.shutDown()
	if lines := r.logs.lines(r.T, "policy would deny"); len(lines) == 0 || lines[0]["policy"] != "trial" || lines[0]["caller"] != "dora" || lines[0]["host"] != "127.0.0.1" {
		r.Errorf("lines %v, want what the policy trial would deny to dora", lines)
	}
}

// TestPolicyRequests checks what a policy forbids a request to ask for.
func TestPolicyRequests(t *testing.T) {
	t.Parallel()
	const text = `
policies:
  small:
    egress: {allow-addresses: [127.0.0.0/8], PORTS}
    request:
      methods: [GET, HEAD]
      max-total-timeout: 5s
      max-size-bytes: 1000
      max-attempts: 2
      max-redirects: 1
      non-idempotent-retries: forbid
      required-labels: [team]
      auth-providers: [api]
      stores: []
      record-stores: []
default: small
`
	for _, row := range []struct {
		name   string
		change func(*pb.FetchRequest)
		field  string // empty: permitted
	}{
		{"what is permitted", func(*pb.FetchRequest) {}, ""},
		{"a method", func(in *pb.FetchRequest) { in.Method = "DELETE" }, "method"},
		{"no label", func(in *pb.FetchRequest) { in.Labels = nil }, "labels"},
		{"the longest time", func(in *pb.FetchRequest) {
			in.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: durationpb.New(5 * time.Second)}
		}, ""},
		{"a longer time", func(in *pb.FetchRequest) {
			in.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: durationpb.New(5*time.Second + 1)}
		}, "timeout_policy.total_timeout"},
		{"the greatest size", func(in *pb.FetchRequest) { in.BodyPolicy = &pb.BodyPolicy{MaxSizeBytes: new(int64(1000))} }, ""},
		{"a greater size", func(in *pb.FetchRequest) { in.BodyPolicy = &pb.BodyPolicy{MaxSizeBytes: new(int64(1001))} }, "body_policy.max_size_bytes"},
		{"any size", func(in *pb.FetchRequest) { in.BodyPolicy = &pb.BodyPolicy{MaxSizeBytes: new(int64(1<<53 - 1))} }, ""},
		{"any time", func(in *pb.FetchRequest) {
			in.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: durationpb.New(366 * 24 * time.Hour)}
		}, ""},
		{"more attempts", func(in *pb.FetchRequest) { in.RetryPolicy = &pb.RetryPolicy{MaxAttempts: new(int32(3))} }, "retry_policy.max_attempts"},
		{"more redirects", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(2))} }, "redirect_policy.max_redirects"},
		{"all redirects", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(20))} }, ""},
		{"a retry of POST", func(in *pb.FetchRequest) {
			in.RetryPolicy = &pb.RetryPolicy{AllowNonIdempotent: true, IdempotencyKey: "k"}
		}, "retry_policy.allow_non_idempotent"},
		{"a store", func(in *pb.FetchRequest) {
			in.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: "bodies", Key: "k"}}}
		}, "body_policy.store.store"},
		{"a record store", func(in *pb.FetchRequest) { recorded(in, "pages") }, "record_policy.store"},
		{"a provider in the list", func(in *pb.FetchRequest) { in.AuthProvider = "api" }, ""},
		{"another provider", func(in *pb.FetchRequest) { in.AuthProvider = "other" }, "auth_provider"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withArchives(t, t.TempDir()))
			provider, err := auth.New(auth.Config{Static: "token", Origins: []string{strings.TrimSuffix(r.Origin.URL("http", "/"), "/")}})
			must(t, err)
			must(t, r.Service.SetOrigins(nil, map[string]server.AuthProvider{"api": {Provider: provider}, "other": {Provider: provider}}))
			r.Service.SetPolicies(policySet(t, r, text))
			in := r.request("/s/k/200")
			in.Labels = map[string]string{"team": "a"}
			row.change(in)
			resp, err := r.Client.FetchUnary(t.Context(), in)
			if row.field == "" {
				must(t, err)
				got := resp.GetEffectiveRequest()
				if got.GetTimeoutPolicy().GetTotalTimeout().AsDuration() != 5*time.Second || got.GetBodyPolicy().GetMaxSizeBytes() != 1000 ||
					got.GetRetryPolicy().GetMaxAttempts() != 2 || got.GetRedirectPolicy().GetMaxRedirects() != 1 || (len(resp.GetClampedFields()) > 0) != strings.HasPrefix(row.name, "any ") {
					t.Errorf("effective %v, clamped %q, want the maxima of the policy as defaults", got, resp.GetClampedFields())
				}
				return
			}
			var field, policy string
			for _, detail := range status.Convert(err).Details() {
				switch d := detail.(type) {
				case *errdetails.BadRequest:
					field = d.GetFieldViolations()[0].GetField()
				case *errdetails.ErrorInfo:
					policy = d.GetReason() + " " + d.GetMetadata()["policy"]
				}
			}
			if status.Code(err) != codes.PermissionDenied || field != row.field || policy != "POLICY small" {
				t.Errorf("%v with field %q and %q, want PERMISSION_DENIED for %s", err, field, policy, row.field)
			}
			if n := len(r.Origin.Requests("k")); n > 0 {
				t.Errorf("the origin saw %d requests", n)
			}
		})
	}
}

// TestDeniedCallerIsCounted checks that the metrics say which caller a policy denied a request, once for each request.
func TestDeniedCallerIsCounted(t *testing.T) {
	t.Parallel()
	o := newObserved(t, newRoster().change)
	o.observer.SetCallers([]string{"alice"})
	o.Service.SetPolicies(policySet(t, o.rig, "policies: {a: {request: {methods: [PUT], required-labels: [team]}}}\ndefault: a\n"))
	_, err := o.Client.FetchUnary(as(t.Context(), "a"), o.request("/s/k/200"))
	wantCode(t, "two forbidden fields", err, codes.PermissionDenied)
	o.want(map[string]float64{`fetchd_caller_refused_total{caller="alice",reason="policy"}`: 1, `fetchd_refused_total{reason="policy"}`: 1})
}

// TestPolicyMessages checks that a failure at a limit of a policy says so.
func TestPolicyMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Service.SetPolicies(policySet(t, r, `policies: {p: {egress: {allow-addresses: [127.0.0.0/8], PORTS}, request: {max-attempts: 1, max-redirects: 0, max-size-bytes: 10, max-total-timeout: 2s}}}
default: p
`))
	for _, row := range []struct{ name, path, want string }{
		{"the size", "/s/size/200:size=11", "max_size_bytes 10"},
		{"the attempts", "/s/attempts/503", "max_attempts 1"},
		{"the redirects", "/s/redirects/302:to=%2Fs%2Fredirects%2F200/200", "max_redirects 0"},
		{"the time", "/s/time/200:size=10,drip=1@500ms", "total_timeout 2s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := r.in(t)
			resp, err := r.Client.FetchUnary(t.Context(), r.request(row.path))
			must(t, err)
			if got := resp.GetOutcome().GetError().GetMessage(); !strings.Contains(got, row.want+", the maximum of the policy of this caller") {
				t.Errorf("message %q, want %s of the policy", got, row.want)
			}
		})
	}
}

// TestPolicyReportsLimits checks, in each method, that the mode report lowers no limit, and reports the fetches that a
// lower one would end.
func TestPolicyReportsLimits(t *testing.T) {
	t.Parallel()
	const text = `policies: {p: {mode: report, report-to-caller: true, egress: {allow-addresses: [127.0.0.0/8], PORTS}, request: {max-attempts: 1, max-redirects: 1, max-size-bytes: 10}}}
default: p
`
	for name, call := range methods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Service.SetPolicies(policySet(t, r, text))
			for _, row := range []struct {
				path string
				want []string
			}{
				{"/s/within/302:to=%2Fs%2Fwithin%2F200/200:size=10", nil},
				{"/s/size/200:size=11", []string{"max_size_bytes"}},
				{"/s/attempts/503/200", []string{"max_attempts"}},
				{"/s/a/302:to=%2Fs%2Fb%2F302:to=%252Fs%252Fc%252F200", []string{"max_redirects"}},
			} {
				o := call(r, r.request(row.path))
				var reasons []string
				for _, p := range o.GetPolicyReports() {
					reasons = append(reasons, p.GetReason())
				}
				if diff := cmp.Diff(row.want, reasons); diff != "" || o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
					t.Errorf("%s: %v, policy_reports (-want +got)\n%s", row.path, o, diff)
				}
			}
			r.shutDown()
			if lines := r.logs.lines(t, "policy would deny"); len(lines) != 3 {
				t.Errorf("lines %v, want one for each reason", lines)
			}
		})
	}
}

// TestPolicyReportLines checks that a caller cannot fill the log with what a policy would deny, and that no denial is lost.
func TestPolicyReportLines(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		set, faults := policies.Parse([]byte("policies: {p: {mode: report, egress: {allow-names: [a.example]}}}\ndefault: p\n"))
		if len(faults) > 0 {
			r.Fatal(faults)
		}
		r.Service.SetPolicies(set)
		const fetches = 300
		for i := range fetches {
			in := r.request("/s/k/200")
			in.Url = strings.Replace(in.GetUrl(), "127.0.0.1", fmt.Sprintf("h%d.example", i), 1)
			_, err := r.Client.FetchUnary(r.Context(), in)
			must(r, err)
		}
		r.shutDown()
		lines, count := r.logs.lines(r.T, "policy would deny"), 0.0
		for _, line := range lines {
			if n, ok := line["count"].(float64); ok && line["reason"] == "name_not_allowed" {
				count += n
			}
		}
		if len(lines) >= fetches || count != fetches {
			r.Errorf("%d lines with %g denials, want all %d in fewer lines", len(lines), count, fetches)
		}
	})
}

// TestPolicyOfTask checks that a task that its policy forbids fails alone.
func TestPolicyOfTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Service.SetPolicies(policySet(t, r, "policies: {p: {egress: {allow-addresses: [127.0.0.0/8], PORTS}, request: {methods: [GET]}}}\ndefault: p\n"))
	post := r.request("/s/k/200")
	post.Method = "POST"
	if failed := methods["FetchMany"](r, post).GetError(); failed.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST || !strings.Contains(failed.GetMessage(), `policy "p"`) ||
		failed.GetPolicy() != "p" || failed.GetReason() != "method" {
		t.Errorf("%v, want INVALID_REQUEST that names the policy and the reason method", failed)
	}
	if lines := r.logs.lines(t, "fetch finished"); len(lines) != 1 || lines[0]["policy"] != "p" {
		t.Errorf("%v, want a line with the policy", lines)
	}
	wrong := r.request("/s/k/200")
	wrong.Method = "GE T"
	if failed := methods["FetchMany"](r, wrong).GetError(); failed.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST || failed.GetPolicy() != "" || failed.GetReason() != "" {
		t.Errorf("%v, want INVALID_REQUEST without a policy", failed)
	}
}
