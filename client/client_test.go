package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
)

func TestDo(t *testing.T) {
	r := newRig(t)
	body := func(n int64) string { return string(r.origin.Body(n)) }
	tests := []struct {
		name     string
		path     string
		change   func(*pb.FetchRequest)
		status   int
		attempts int
		body     string
		finalAt  string // path of the final URL; empty: as path
		kind     pb.OutcomeKind
	}{
		{name: "a page", path: "/s/page/200:size=100", status: 200, attempts: 1, body: body(100), kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "more than the hold-back", path: "/s/large/200:size=3000000", status: 200, attempts: 1, body: body(3_000_000), kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "after two failures", path: "/s/third/503/503/200:size=10", status: 200, attempts: 3, body: body(10), kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "after redirects", path: "/r/hops/302/2/200:size=10", status: 200, attempts: 1, body: body(10), finalAt: "/s/hops/200:size=10", kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "no body", path: "/s/nobody/204", status: 204, attempts: 1, kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "HEAD", path: "/s/head/200:size=10", change: func(in *pb.FetchRequest) { in.Method = "HEAD" }, status: 200, attempts: 1, kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "inline", path: "/s/inline/503/200:size=10", change: policy(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_Inline{}}), status: 200, attempts: 2, body: body(10), kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "AUTO, a small body", path: "/s/small/503/200:size=10", change: policy(auto(nil)), status: 200, attempts: 2, body: body(10), kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "AUTO, a large body", path: "/s/auto/200:size=3000000", change: policy(auto(nil)), status: 200, attempts: 1, body: body(3_000_000), kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "a digest alone", path: "/s/digest/200:size=10", change: policy(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_Digest{}}), status: 200, attempts: 1, kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "not modified", path: "/s/cond/200:etag=%22a%22,cond", change: func(in *pb.FetchRequest) {
			in.Precondition = &pb.Precondition{Etags: []string{`"a"`}}
		}, status: 304, attempts: 1, kind: pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED},
		{name: "a redirect not to be followed", path: "/r/stay/302/1/200", change: func(in *pb.FetchRequest) {
			in.RedirectPolicy = &pb.RedirectPolicy{Follow: new(false)}
		}, status: 302, attempts: 1, kind: pb.OutcomeKind_OUTCOME_KIND_REDIRECT},
		{name: "only the outcome", path: "/s/quiet/503/200:size=10", change: func(in *pb.FetchRequest) {
			in.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME
		}, status: 200, attempts: 2, body: body(10), kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "only the outcome, after redirects", path: "/r/quiet2/302/2/200:size=10", change: func(in *pb.FetchRequest) {
			in.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME
		}, status: 200, attempts: 1, body: body(10), finalAt: "/s/quiet2/200:size=10", kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
		{name: "an interrupted body that is resumed", path: "/s/cut/200:size=1000,etag=%22a%22,range,cut=300/200:size=1000,etag=%22a%22,range",
			change: holdBack(pb.BodyRecovery_BODY_RECOVERY_RESUME), status: 200, attempts: 2, body: body(1000), kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request(tt.path)
			if tt.change != nil {
				tt.change(in)
			}
			before := proto.CloneOf(in)
			resp, err := r.client.Do(t.Context(), in)
			if err != nil {
				t.Fatalf("Do(%s) = %v, want no error", tt.path, err)
			}
			defer resp.Body.Close()
			early, attempts := resp.FinalURL, resp.AttemptCount
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != tt.body {
				t.Errorf("body of %s: %d bytes, %v; want %d bytes", tt.path, len(got), err, len(tt.body))
			}
			want := r.origin.URL("http", tt.finalAt)
			if tt.finalAt == "" {
				want = in.GetUrl()
			}
			if resp.FinalURL != want || early != want {
				t.Errorf("final URL of %s: %s, then %s; want %s", tt.path, early, resp.FinalURL, want)
			}
			if resp.StatusCode != tt.status || resp.AttemptCount != tt.attempts || resp.Outcome().GetKind() != tt.kind {
				t.Errorf("%s: status %d, %d attempts, %v; want %d, %d, %v", tt.path, resp.StatusCode, resp.AttemptCount, resp.Outcome().GetKind(), tt.status, tt.attempts, tt.kind)
			}
			if got := resp.Outcome().GetResponse().GetStatusCode(); int(got) != tt.status {
				t.Errorf("%s: status %d in the outcome, want %d", tt.path, got, tt.status)
			}
			if attempts < 1 || attempts > resp.AttemptCount {
				t.Errorf("%s: %d attempts before the body, %d after it; want 1 or more, and no fewer after it", tt.path, attempts, resp.AttemptCount)
			}
			if !proto.Equal(in, before) {
				t.Errorf("the request is now %v, want %v as before", in, before)
			}
		})
	}
}

func policy(p *pb.BodyPolicy) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) { in.BodyPolicy = p }
}

// auto is the delivery auto, and streamed the delivery stream.
func auto(d *pb.StreamDelivery) *pb.BodyPolicy {
	return &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Auto{Auto: d}}
}

func streamed(d *pb.StreamDelivery) *pb.BodyPolicy {
	return &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: d}}
}

// holdBack turns the hold-back buffer off.
func holdBack(recovery pb.BodyRecovery) func(*pb.FetchRequest) {
	return policy(auto(&pb.StreamDelivery{MaxHoldBackBytes: new(int64(0)), Recovery: recovery}))
}

func TestHead(t *testing.T) {
	r := newRig(t)
	resp, err := r.client.Get(t.Context(), r.origin.URL("http", "/s/head/200:size=7,header=x-a=1,header=X-A=2,header=X-Latin=caf%25E9"))
	must(t, err)
	defer resp.Body.Close()
	if diff := cmp.Diff([]string{"1", "2"}, resp.Header.Values("X-A")); diff != "" {
		t.Errorf("X-A (-want +got):\n%s", diff)
	}
	if resp.ContentLength != 7 {
		t.Errorf("ContentLength = %d, want 7", resp.ContentLength)
	}
	if resp.Outcome() != nil {
		t.Error("the outcome is there before the body was read")
	}
}

// TestEvents: OnEvent receives every event once and in order, except body chunks.
func TestEvents(t *testing.T) {
	r := newRig(t)
	var got []string
	in := r.request("/r/events/302/1/503/200:size=10")
	in.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
	resp := r.do(in, client.OnEvent(func(m *pb.FetchEvent) {
		msg := m.ProtoReflect()
		got = append(got, string(msg.WhichOneof(msg.Descriptor().Oneofs().ByName("event")).Name()))
	}))
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	attempt := []string{"attempt_started", "redirect_followed", "response_started", "attempt_finished"}
	want := slices.Concat([]string{"admitted"}, attempt, attempt, []string{"outcome"})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestLocationURL checks that an error names the target of a redirect that was not followed.
func TestLocationURL(t *testing.T) {
	r := newRig(t)
	const forbidden = "http://10.0.0.1:22/a"
	for _, row := range []struct {
		name, url, target string
		class             pb.ErrorClass
	}{
		{"forbidden", r.origin.URL("http", "/s/forbidden/302:to="+url.QueryEscape(forbidden)), forbidden, pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED},
		{"a loop", r.origin.URL("http", "/loop/l/302"), r.origin.URL("http", "/loop/l/302"), pb.ErrorClass_ERROR_CLASS_REDIRECT_LOOP},
		{"a status after a redirect", r.origin.URL("http", "/r/gone/302/1/404"), "", pb.ErrorClass_ERROR_CLASS_HTTP_CLIENT_ERROR},
		{"no redirect", forbidden, "", pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			_, err := r.client.Get(t.Context(), row.url)
			failed, ok := errors.AsType[*client.Error](err)
			if !ok || failed.Class() != row.class || failed.LocationURL() != row.target {
				t.Fatalf("%v; want %v and the target %q", err, row.class, row.target)
			}
			if named := strings.Contains(fmt.Sprint(err), ", redirected to "+row.target+": "); named != (row.target != "") {
				t.Errorf("%v; the target is named: %t", err, named)
			}
		})
	}
}

// TestFailures: a failure at the target is an *Error. It matches only its own failure type and
// is not a status.
func TestFailures(t *testing.T) {
	r := newRig(t)
	all := map[string]error{"transient": client.ErrTransient, "permanent": client.ErrPermanent,
		"rate limited": client.ErrRateLimited, "needs auth": client.ErrNeedsAuth, "not idempotent": client.ErrNotIdempotent}
	tests := []struct {
		name, path, kind string
		class            pb.ErrorClass
		rule, reason     string
		status           int
		retryable        bool
		after            time.Duration
	}{
		{"a server error", "/s/5xx/503", "transient", pb.ErrorClass_ERROR_CLASS_HTTP_SERVER_ERROR, "H1", "", 503, true, 0},
		{"a reset", "/s/reset/reset", "transient", pb.ErrorClass_ERROR_CLASS_CONNECTION_RESET, "N4", "", 0, true, 0},
		{"not found", "/s/404/404:size=20", "permanent", pb.ErrorClass_ERROR_CLASS_HTTP_CLIENT_ERROR, "H6", "", 404, false, 0},
		{"a loop", "/loop/l/302", "permanent", pb.ErrorClass_ERROR_CLASS_REDIRECT_LOOP, "R2", "redirect_loop", 302, false, 0},
		{"a rate limit", "/s/429/429:retry-after=86400", "rate limited", pb.ErrorClass_ERROR_CLASS_RATE_LIMITED, "H2", "", 429, true, 24 * time.Hour},
		{"credentials wanted", "/s/401/401", "needs auth", pb.ErrorClass_ERROR_CLASS_AUTH_REQUIRED, "H3", "", 401, false, 0},
		{"an interrupted body in the hold-back buffer", "/s/held/200:size=100,cut=50", "transient", pb.ErrorClass_ERROR_CLASS_BODY_INTERRUPTED, "N8", "", 200, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := r.in(t)
			resp, err := r.client.Do(t.Context(), r.request(tt.path))
			if resp != nil {
				t.Errorf("Do(%s) returned a response", tt.path)
			}
			failed, ok := errors.AsType[*client.Error](err)
			if !ok {
				t.Fatalf("Do(%s) = %v, want an *Error", tt.path, err)
			}
			for name, sentinel := range all {
				if got, want := errors.Is(err, sentinel), name == tt.kind; got != want {
					t.Errorf("errors.Is(%v, %s) = %v, want %v", err, name, got, want)
				}
			}
			if _, ok := status.FromError(err); ok {
				t.Errorf("%v is a gRPC status, want none", err)
			}
			after, asked := failed.RetryAfter()
			if failed.Class() != tt.class || failed.ClassRule() != tt.rule || failed.StatusCode() != tt.status || failed.Retryable() != tt.retryable ||
				after != tt.after || asked != (tt.after > 0) || tt.reason != "" && failed.Reason() != tt.reason {
				t.Errorf("%s: class %v, rule %s, reason %q, status %d, retryable %v, after %v; want %+v",
					tt.path, failed.Class(), failed.ClassRule(), failed.Reason(), failed.StatusCode(), failed.Retryable(), after, tt)
			}
			if !strings.Contains(failed.Error(), "rule "+tt.rule) { //nolint:forbidigo // its text is the thing
				t.Errorf("text %q does not tell rule %s", failed, tt.rule)
			}
			if detail := failed.Outcome.GetError().GetDetail(); detail == "" || !strings.HasSuffix(failed.Error(), "; "+detail) { //nolint:forbidigo // its text is the thing
				t.Errorf("text %q does not end with the detail %q", failed, detail)
			}
		})
	}
}

// TestRequeue: a program that puts a failed request back into its queue, if the error says that a later
// fetch may succeed, repeats every GET and no POST.
func TestRequeue(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct{ name, steps string }{
		{"a server error", "503/200"}, {"a rate limit", "429/200"}, {"a reset", "reset/200"}, {"a lost answer", "200:size=9,cut=0/200"}, {"a late answer", "silent/200"},
	} {
		for method, want := range map[string]int{"GET": 2, "POST": 1} {
			t.Run(method+" "+tt.name, func(t *testing.T) {
				r := r.in(t)
				key := strings.ReplaceAll(method+tt.name, " ", "")
				for range 2 {
					in := r.request("/s/" + key + "/" + tt.steps)
					in.Method, in.RetryPolicy.MaxAttempts = method, new(int32(1))
					in.TimeoutPolicy = &pb.TimeoutPolicy{HeaderTimeout: durationpb.New(200 * time.Millisecond)}
					_, err := r.client.Do(t.Context(), in)
					if !errors.Is(err, client.ErrTransient) && !errors.Is(err, client.ErrRateLimited) {
						if method == "POST" != errors.Is(err, client.ErrNotIdempotent) {
							t.Errorf("%v, want ErrNotIdempotent for the POST alone", err)
						}
						break
					}
				}
				if got := len(r.origin.Requests(key)); got != want {
					t.Errorf("the origin saw %d requests, want %d", got, want)
				}
			})
		}
	}
}

// TestInternal: a defect of the service is permanent, but to be out of files is not.
func TestInternal(t *testing.T) {
	for reason, want := range map[string]error{"": client.ErrPermanent, "wrong_connection": client.ErrPermanent, "too_many_open_files": client.ErrNotIdempotent} {
		err := &client.Error{Outcome: &pb.FetchOutcome{Error: &pb.FetchError{ErrorClass: pb.ErrorClass_ERROR_CLASS_INTERNAL,
			FailureType: pb.FailureType_FAILURE_TYPE_TRANSIENT, Reason: reason}}}
		if !errors.Is(err, want) {
			t.Errorf("the reason %q is not %v", reason, want)
		}
	}
}

// TestWhatNext: what a program does follows retryable first.
func TestWhatNext(t *testing.T) {
	const (
		transient, limited, auth = pb.FailureType_FAILURE_TYPE_TRANSIENT, pb.FailureType_FAILURE_TYPE_RATE_LIMITED, pb.FailureType_FAILURE_TYPE_NEEDS_AUTH
		notRetryable, once       = pb.StopReason_STOP_REASON_NOT_RETRIED, pb.StopReason_STOP_REASON_NOT_IDEMPOTENT
		unknown                  = pb.RequestState_REQUEST_STATE_UNKNOWN
	)
	for _, tt := range []struct {
		name      string
		failure   pb.FailureType
		stop      pb.StopReason
		retryable bool
		want      error
		state     pb.RequestState
	}{
		{"a POST that an origin has refused unprocessed", transient, once, true, client.ErrTransient, pb.RequestState_REQUEST_STATE_NOT_PROCESSED},
		{"a POST that was not sent, from a service that calls it not retryable", transient, once, false, client.ErrPermanent, pb.RequestState_REQUEST_STATE_NOT_SENT},
		{"attempts exhausted", transient, pb.StopReason_STOP_REASON_ATTEMPTS_EXHAUSTED, true, client.ErrTransient, unknown},
		{"a POST with a 503", transient, once, false, client.ErrNotIdempotent, unknown},
		{"a POST with a 429", limited, once, false, client.ErrNotIdempotent, unknown},
		{"a POST out of time", transient, pb.StopReason_STOP_REASON_DEADLINE, false, client.ErrNotIdempotent, unknown},
		{"a POST in a shutdown", transient, pb.StopReason_STOP_REASON_STOPPED, false, client.ErrNotIdempotent, unknown},
		{"a POST, redirected, with a body that broke", transient, pb.StopReason_STOP_REASON_BODY_COMMITTED, false, client.ErrNotIdempotent, unknown},
		{"a 408", transient, notRetryable, true, client.ErrTransient, unknown},
		{"a 503 that the policy excludes", transient, notRetryable, true, client.ErrTransient, unknown},
		{"a 429 that the policy excludes", limited, notRetryable, true, client.ErrRateLimited, unknown},
		{"a POST with a 503 that the policy excludes", transient, notRetryable, false, client.ErrNotIdempotent, unknown},
		{"a 401 on the last attempt", auth, pb.StopReason_STOP_REASON_ATTEMPTS_EXHAUSTED, true, client.ErrNeedsAuth, unknown},
		{"a 401", auth, notRetryable, false, client.ErrNeedsAuth, unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := &client.Error{Outcome: &pb.FetchOutcome{Error: &pb.FetchError{FailureType: tt.failure, StopReason: tt.stop.Enum(), Retryable: tt.retryable, RequestState: tt.state}}}
			for _, other := range []error{client.ErrTransient, client.ErrPermanent, client.ErrRateLimited, client.ErrNeedsAuth, client.ErrNotIdempotent} {
				if got := errors.Is(err, other); got != errors.Is(tt.want, other) {
					t.Errorf("errors.Is(%v) = %v, want only %v", other, got, tt.want)
				}
			}
		})
	}
}

// TestFailureInBody: reads return the delivered bytes and then the same error each time.
func TestFailureInBody(t *testing.T) {
	r := newRig(t)
	in := r.request("/s/cut/200:size=1000,cut=300")
	holdBack(pb.BodyRecovery_BODY_RECOVERY_RESUME)(in)
	resp := r.do(in)
	got, err := io.ReadAll(resp.Body)
	if !bytes.Equal(got, r.origin.Body(300)) {
		t.Errorf("%d bytes, want the first 300", len(got))
	}
	failed, ok := errors.AsType[*client.Error](err)
	if !ok || failed.Class() != pb.ErrorClass_ERROR_CLASS_BODY_INTERRUPTED || !failed.Retryable() || !errors.Is(err, client.ErrTransient) {
		t.Fatalf("error %v, want BODY_INTERRUPTED, transient and retryable", err)
	}
	if resp.Outcome() != failed.Outcome {
		t.Error("the response's outcome is not the error's")
	}
	if _, again := resp.Body.Read(make([]byte, 1)); !errors.Is(again, err) {
		t.Errorf("second read: %v, want %v again", again, err)
	}
}

// TestRestart: bytes of two bodies are never joined, and reading can continue.
func TestRestart(t *testing.T) {
	r := newRig(t)
	in := r.request("/s/restart/200:size=1000,cut=300/200:size=1000,offset=500")
	holdBack(pb.BodyRecovery_BODY_RECOVERY_RESTART)(in)
	got, restarts, err := readAll(r.do(in).Body)
	if want := r.origin.Body(1500)[500:]; err != nil || restarts != 1 || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %d restarts, %v; want the second body alone after 1 restart", len(got), restarts, err)
	}

	in.Url = r.origin.URL("http", "/s/unaware/200:size=1000,cut=300/200:size=1000,offset=500")
	got, err = io.ReadAll(r.do(in).Body)
	if _, ok := errors.AsType[*client.RestartError](err); !ok || !bytes.Equal(got, r.origin.Body(300)) {
		t.Errorf("a caller that does not look: %d bytes, %v; want 300 and a RestartError", len(got), err)
	}
}

// TestOffsets: the chunks of a body must fit together.
func TestOffsets(t *testing.T) {
	tests := []struct {
		name     string
		events   []*pb.FetchEvent
		body     string
		restarts int
		err      error // nil: none
	}{
		{"in order", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), chunk(2, "c"), success()}, "abc", 0, nil},
		{"continued", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), head(2, 200), chunk(2, "c"), success()}, "abc", 0, nil},
		{"from a resume point", []*pb.FetchEvent{head(5, 206), chunk(5, "ab"), success()}, "ab", 0, nil},
		{"from a resume point, and all of it is there", []*pb.FetchEvent{head(5, 206), success()}, "", 0, nil},
		{"from byte 5, without a resume point", []*pb.FetchEvent{head(5, 206), chunk(5, "ab"), success()}, "", 0, client.ErrContract},
		{"from before the first byte", []*pb.FetchEvent{head(-2, 200), chunk(-2, "ab"), success()}, "", 0, client.ErrContract},
		{"started over before the first byte", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), head(-1, 200), chunk(-1, "x"), success()}, "ab", 0, client.ErrContract},
		{"a response without a status", []*pb.FetchEvent{head(0, 0), chunk(0, "ab"), success()}, "", 0, client.ErrContract},
		{"an outcome without a kind", []*pb.FetchEvent{head(0, 200), ended(&pb.FetchOutcome{Response: &pb.HttpResponse{StatusCode: 200}})}, "", 0, client.ErrContract},
		{"an outcome of an unknown kind", []*pb.FetchEvent{head(0, 200), ended(&pb.FetchOutcome{Kind: 99, Response: &pb.HttpResponse{StatusCode: 200}})}, "", 0, client.ErrContract},
		{"a success without a response", []*pb.FetchEvent{ended(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS})}, "", 0, client.ErrContract},
		{"a failure without an error", []*pb.FetchEvent{ended(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_FAILED})}, "", 0, client.ErrContract},
		{"a success with an error", []*pb.FetchEvent{ended(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, Error: new(pb.FetchError), Response: &pb.HttpResponse{StatusCode: 200}})}, "", 0, client.ErrContract},
		{"a redirect without a response", []*pb.FetchEvent{ended(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_REDIRECT})}, "", 0, client.ErrContract},
		{"a failed attempt before the body", []*pb.FetchEvent{head(0, 503), head(0, 200), chunk(0, "ab"), success()}, "ab", 0, nil},
		{"started over", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), head(0, 200), chunk(0, "xyz"), success()}, "xyz", 1, nil},
		{"started over in the middle", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), head(1, 200), chunk(1, "xyz"), success()}, "axyz", 1, nil},
		{"started over, failed and continued", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), head(0, 200), head(2, 206), chunk(2, "c"), success()}, "abc", 0, nil},
		{"started over without a body", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), head(0, 200), success()}, "", 1, nil},
		{"an event not known", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), {}, chunk(2, "c"), success()}, "abc", 0, nil},
		{"a gap", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), chunk(3, "d"), success()}, "ab", 0, client.ErrContract},
		{"an overlap", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), chunk(1, "bc"), success()}, "ab", 0, client.ErrContract},
		{"a gap before a head", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), head(4, 206), chunk(4, "d"), success()}, "ab", 0, client.ErrContract},
		{"nothing at all", nil, "", 0, client.ErrContract},
		{"a body without a head", []*pb.FetchEvent{chunk(0, "ab"), success()}, "", 0, client.ErrContract},
		{"a body from the middle", []*pb.FetchEvent{head(0, 200), chunk(1, "ab"), success()}, "", 0, client.ErrContract},
		{"two outcomes and no body", []*pb.FetchEvent{success(), success()}, "", 0, client.ErrContract},
		{"no outcome", []*pb.FetchEvent{head(0, 200), chunk(0, "ab")}, "ab", 0, client.ErrContract},
		{"two outcomes", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), success(), success()}, "ab", 0, client.ErrContract},
		{"a chunk after the outcome", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), success(), chunk(2, "c")}, "ab", 0, client.ErrContract},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{fetch: events(tt.events...)}
			request := &pb.FetchRequest{Url: "http://origin.example/"}
			if strings.HasPrefix(tt.name, "from a resume point") {
				request.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: &pb.StreamDelivery{ResumePoint: &pb.ResumePoint{OffsetBytes: 5}}}}
			}
			resp, err := f.client(t).Do(t.Context(), request)
			var body []byte
			var restarts int
			if err == nil {
				defer resp.Body.Close()
				body, restarts, err = readFrom(resp.Body, tt.events[0].GetResponseStarted().GetBodyOffsetBytes())
			}
			if string(body) != tt.body || restarts != tt.restarts || !errors.Is(err, tt.err) {
				t.Errorf("body %q, %d restarts, %v; want %q, %d, %v", body, restarts, err, tt.body, tt.restarts, tt.err)
			}
		})
	}
}

// TestFailureAfterOutcome: Do accepts an outcome although the call then fails. Events reports the
// failure instead.
func TestFailureAfterOutcome(t *testing.T) {
	c := (&fake{fetch: func(s grpc.ServerStreamingServer[pb.FetchResponse]) error {
		return errors.Join(events(head(0, 200), chunk(0, "ab"), success())(s), status.Error(codes.Unavailable, ""))
	}}).client(t)
	resp, err := c.Get(t.Context(), "http://origin.example/")
	must(t, err)
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); string(body) != "ab" || err != nil || resp.Outcome() == nil {
		t.Errorf("Do: body %q, outcome %v, %v; want the body and an outcome", body, resp.Outcome(), err)
	}
	var last error
	for m, err := range c.Events(t.Context(), new(pb.FetchRequest)) {
		if last = err; m.GetOutcome() != nil {
			t.Errorf("Events yields %v", m)
		}
	}
	if status.Code(last) != codes.Unavailable {
		t.Errorf("Events ends with %v, want Unavailable", last)
	}
}

// readFrom is readAll for a body that starts at offset.
func readFrom(body io.Reader, offset int64) ([]byte, int, error) {
	if offset > 0 {
		data, err := io.ReadAll(body)
		return data, 0, err
	}
	return readAll(body)
}

// TestContractEndsCall: the client cancels a call that breaks the contract.
func TestContractEndsCall(t *testing.T) {
	ended := make(chan struct{})
	f := &fake{fetch: func(s grpc.ServerStreamingServer[pb.FetchResponse]) error {
		defer close(ended)
		err := events(head(0, 200), chunk(0, "ab"), chunk(5, "f"))(s)
		<-s.Context().Done()
		return err
	}}
	resp, err := f.client(t).Get(t.Context(), "http://origin.example/")
	must(t, err)
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, client.ErrContract) {
		t.Errorf("read = %v, want ErrContract", err)
	}
	<-ended
}

// TestServicePlane: errors of the service and of the context are statuses, never an *Error.
func TestServicePlane(t *testing.T) {
	r := newRig(t)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	tests := []struct {
		name  string
		ctx   context.Context
		in    *pb.FetchRequest
		code  codes.Code
		cause error
	}{
		{"no URL", t.Context(), &pb.FetchRequest{}, codes.InvalidArgument, nil},
		{"nil", t.Context(), nil, codes.InvalidArgument, nil},
		{"cancelled", canceled, r.request("/s/none/200"), codes.Canceled, context.Canceled},
		{"too late", late, r.request("/s/none/200"), codes.DeadlineExceeded, context.DeadlineExceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := r.in(t)
			resp, err := r.client.Do(tt.ctx, tt.in)
			if resp != nil || status.Code(err) != tt.code || tt.cause != nil && !errors.Is(err, tt.cause) {
				t.Errorf("Do = %v, %v; want %v that matches %v", resp, err, tt.code, tt.cause)
			}
			if _, ok := errors.AsType[*client.Error](err); ok {
				t.Errorf("%v is an *Error, want none", err)
			}
		})
	}
	if seen := r.origin.Requests("none"); len(seen) > 0 {
		t.Errorf("the origin saw %d requests, want none", len(seen))
	}
}

// TestClose: Close cancels the request to the origin, even during a read.
func TestClose(t *testing.T) {
	r := newRig(t)
	resp := r.do(stalled(r))
	if _, err := io.ReadFull(resp.Body, make([]byte, 300)); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := resp.Body.Read(make([]byte, 1))
		read <- err
	}()
	if err := resp.Body.Close(); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	if err := <-read; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read of a closed body: %v, want fs.ErrClosed", err)
	}
	seen, err := r.origin.Await(t.Context(), "stalled", 1)
	must(t, err)
	<-seen.Done
	if end := r.origin.Requests("stalled")[0].End; end != "client-gone" {
		t.Errorf("the exchange ended %q at the origin, want client-gone", end)
	}
}

// TestCancelInBody: the end of the context ends reads of the body.
func TestCancelInBody(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := r.client.Do(ctx, stalled(r))
	must(t, err)
	defer resp.Body.Close()
	time.AfterFunc(0, cancel)
	_, err = io.ReadAll(resp.Body)
	if status.Code(err) != codes.Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("read = %v, want Canceled that matches the context's", err)
	}
}

// TestServiceConfig: the embedded files equal the published ones.
func TestServiceConfig(t *testing.T) {
	for _, name := range []string{"service-config.json", "service-config-idempotent.json"} {
		published, err := os.ReadFile("../deploy/grpc/" + name)
		must(t, err)
		embedded, err := os.ReadFile(name)
		must(t, err)
		if diff := cmp.Diff(string(published), string(embedded)); diff != "" {
			t.Errorf("%s is not the one of deploy/grpc: copy it (-published +here):\n%s", name, diff)
		}
	}
}

// TestServiceConfigRetries counts how often a call arrives if each try ends with a code: UNAVAILABLE is what
// gRPC reports of a replica that died. A fetch may have taken effect there, so only the config for idempotent methods
// repeats it.
func TestServiceConfigRetries(t *testing.T) {
	t.Parallel()
	const serving, notServing = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
	const service = "fetchd.v1.FetchService"
	methods := []string{"Fetch", "FetchUnary", "FetchMany", "Explain"}
	for _, row := range []struct {
		name    string
		options []grpc.DialOption
		code    codes.Code
		health  healthpb.HealthCheckResponse_ServingStatus
		calls   [4]int // of each method
	}{
		{"any method, dies", client.DialOptions(), codes.Unavailable, serving, [4]int{1, 1, 1, 4}},
		{"any method, refuses", client.DialOptions(), codes.ResourceExhausted, serving, [4]int{4, 4, 1, 4}},
		{"any method, fails", client.DialOptions(), codes.Internal, serving, [4]int{1, 1, 1, 1}},
		{"any method, not serving", client.DialOptions(), codes.Unavailable, notServing, [4]int{}},
		{"idempotent, dies", client.IdempotentDialOptions(), codes.Unavailable, serving, [4]int{4, 4, 1, 4}},
		{"idempotent, refuses", client.IdempotentDialOptions(), codes.ResourceExhausted, serving, [4]int{4, 4, 1, 4}},
		{"idempotent, fails", client.IdempotentDialOptions(), codes.Internal, serving, [4]int{1, 1, 1, 1}},
		{"idempotent, not serving", client.IdempotentDialOptions(), codes.Unavailable, notServing, [4]int{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan struct{}, len(methods)*4)
			s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
				arrived <- struct{}{}
				if _, limited := stream.Context().Deadline(); limited {
					t.Error("the config has a timeout, but the caller sets the deadline")
				}
				return status.Error(row.code, "")
			}))
			states := health.NewServer()
			states.SetServingStatus(service, row.health)
			healthpb.RegisterHealthServer(s, states)
			l := listen(t)
			go func() { _ = s.Serve(l) }() // ends with Stop
			t.Cleanup(s.Stop)
			conn := dial(t, l.Addr().String(), row.options...)
			var calls [4]int
			for i, method := range methods {
				before := len(arrived)
				stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/"+service+"/"+method)
				if err == nil {
					_, _ = stream.SendMsg(new(pb.FetchRequest)), stream.CloseSend() // RecvMsg returns the status
					err = stream.RecvMsg(new(pb.FetchResponse))
				}
				if status.Code(err) != row.code {
					t.Errorf("%s = %v, want %s", method, err, row.code)
				}
				calls[i] = len(arrived) - before
			}
			if calls != row.calls {
				t.Errorf("calls of %q arrived %d times, want %d", methods, calls, row.calls)
			}
		})
	}
}

// stalled returns a request whose body starts and never ends.
func stalled(r *rig) *pb.FetchRequest {
	in := r.request("/s/stalled/200:size=1000,stall=300")
	holdBack(pb.BodyRecovery_BODY_RECOVERY_NONE)(in)
	return in
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLost checks the error of a request whose outcome is lost between the service and the client.
func TestLost(t *testing.T) {
	for _, tt := range []struct {
		name    string
		request *pb.FetchRequest
		events  []*pb.FetchEvent
		err     error
		lost    bool
		code    codes.Code
	}{
		{"a POST at once", &pb.FetchRequest{Method: "POST"}, nil, status.Error(codes.Unavailable, "reset"), true, codes.Unknown},
		{"a POST after an event", &pb.FetchRequest{Method: "POST"}, []*pb.FetchEvent{head(0, 200)}, status.Error(codes.ResourceExhausted, "large"), true, codes.Unknown},
		{"a POST without an outcome", &pb.FetchRequest{Method: "POST"}, nil, nil, true, codes.Unknown},
		{"a PATCH", &pb.FetchRequest{Method: "PATCH"}, nil, status.Error(codes.Aborted, "lost"), true, codes.Aborted},
		{"a POST that was refused", &pb.FetchRequest{Method: "POST"}, nil, status.Error(codes.ResourceExhausted, "full"), false, codes.ResourceExhausted},
		{"a POST that may be repeated", &pb.FetchRequest{Method: "POST", RetryPolicy: &pb.RetryPolicy{AllowNonIdempotent: true, IdempotencyKey: "k"}}, nil, status.Error(codes.Unavailable, "reset"), false, codes.Unavailable},
		{"a POST with a key alone", &pb.FetchRequest{Method: "POST", RetryPolicy: &pb.RetryPolicy{IdempotencyKey: "k"}}, nil, status.Error(codes.Unavailable, "reset"), true, codes.Unknown},
		{"a PUT", &pb.FetchRequest{Method: "PUT"}, nil, status.Error(codes.Unavailable, "reset"), false, codes.Unavailable},
		{"a GET", new(pb.FetchRequest), nil, status.Error(codes.Unavailable, "reset"), false, codes.Unavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := (&fake{fetch: func(s grpc.ServerStreamingServer[pb.FetchResponse]) error {
				if err := events(tt.events...)(s); err != nil {
					return err
				}
				return tt.err
			}}).client(t)
			for _, err := range c.Events(t.Context(), tt.request) {
				if err == nil {
					continue
				}
				if errors.Is(err, client.ErrNotIdempotent) != tt.lost || status.Code(err) != tt.code {
					t.Errorf("%v: not idempotent %t, code %s; want %t, %s", err, !tt.lost, status.Code(err), tt.lost, tt.code)
				}
			}
		})
	}
}

// TestErrorNamesTheContext checks that an error does not say of a deadline of the context that the caller has set what was left
// of it.
func TestErrorNamesTheContext(t *testing.T) {
	t.Parallel()
	failed := &client.Error{Outcome: &pb.FetchOutcome{Error: &pb.FetchError{Message: "the time limit of the fetch passed: the deadline of the call, set by the caller, left 1.9s"}}}
	if text, want := failed.Error(), "passed: the deadline of the context left 1.9s"; !strings.HasSuffix(text, want) { //nolint:forbidigo // its text is the thing
		t.Errorf("%q, want %q at its end", text, want)
	}
}
