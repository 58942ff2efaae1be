package server_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// TestEventLevels fetches over two redirects, a retry and a streamed body at each level.
func TestEventLevels(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const size = 100_000
	chunks := slices.Repeat([]string{"body_chunk"}, 4) // of 31 KiB, once the whole was held back
	attempts := slices.Concat([]string{"admitted", "attempt_started", "response_started", "attempt_finished", "attempt_started", "response_started"},
		chunks, []string{"attempt_finished", "outcome"})
	for _, row := range []struct {
		name    string
		level   pb.EventLevel
		want    []string
		headers bool // of every hop
	}{
		{"OUTCOME", pb.EventLevel_EVENT_LEVEL_OUTCOME, slices.Concat([]string{"response_started"}, chunks, []string{"outcome"}), false},
		{"ATTEMPTS", pb.EventLevel_EVENT_LEVEL_ATTEMPTS, attempts, false},
		{"unset", pb.EventLevel_EVENT_LEVEL_UNSPECIFIED, attempts, false},
		{"ALL", pb.EventLevel_EVENT_LEVEL_ALL, slices.Concat(
			[]string{"admitted", "attempt_started", "redirect_followed", "redirect_followed", "response_started", "attempt_finished",
				"attempt_started", "redirect_followed", "redirect_followed", "response_started"},
			chunks, []string{"attempt_finished", "outcome"}), true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/r/" + row.name + "/302/2/503/200:size=100000")
			in.EventLevel = row.level
			a := r.mustFetch(in)
			if diff := cmp.Diff(row.want, a.order); diff != "" {
				t.Errorf("events (-want +got)\n%s", diff)
			}
			if !bytes.Equal(a.body, r.Origin.Body(size)) {
				t.Errorf("got %d bytes, want the %d of the origin", len(a.body), size)
			}
			o := a.outcome
			if o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || o.GetAttemptCount() != 2 || o.GetExchangeCount() != 6 || len(o.GetHops()) != 3 ||
				o.GetResponseAttempt() != 2 || o.GetResponse().GetStatusCode() != 200 || o.GetBodySummary().GetSizeBytes() != size {
				t.Errorf("outcome %v; want SUCCESS in 2 attempts, 6 exchanges, 3 hops, %d bytes", o, size)
			}
			r.wantRequests(row.name, 6)
			for i, h := range o.GetHops() {
				if len(h.GetHeaders()) > 0 {
					t.Errorf("hop %d of the outcome has %d headers", i+1, len(h.GetHeaders()))
				}
			}
			for _, e := range a.events {
				if followed := e.GetRedirectFollowed(); followed != nil && (len(followed.GetHop().GetHeaders()) > 0) != row.headers {
					t.Errorf("a redirect has %d headers, wanted there: %v", len(followed.GetHop().GetHeaders()), row.headers)
				}
			}
		})
	}
}

// TestTLSDetails checks at which levels an exchange describes its certificate, in the events and in the
// outcome.
func TestTLSDetails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		name, listener string
		level          pb.EventLevel
		suite, alpn    string
		certificate    bool
	}{
		{"OUTCOME", "https", pb.EventLevel_EVENT_LEVEL_OUTCOME, "", "", false},
		{"ATTEMPTS", "https", pb.EventLevel_EVENT_LEVEL_ATTEMPTS, "", "", false},
		{"ALL", "https", pb.EventLevel_EVENT_LEVEL_ALL, "TLS_AES_128_GCM_SHA256", "h2", true},
		{"ALL without TLS", "http", pb.EventLevel_EVENT_LEVEL_ALL, "", "", false},
		{"OUTCOME, expired", "tls-expired", pb.EventLevel_EVENT_LEVEL_OUTCOME, "", "", true},
		{"ALL, expired", "tls-expired", pb.EventLevel_EVENT_LEVEL_ALL, "", "", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/details/200")
			in.Url, in.EventLevel = r.Origin.URL(row.listener, "/s/details/200"), row.level
			a, unary := r.mustFetch(in), r.mustUnary(in)
			hops := slices.Concat(a.outcome.GetHops(), unary.GetOutcome().GetHops())
			finished := slices.Clone(unary.GetAttempts())
			for _, e := range a.events {
				if f := e.GetAttemptFinished(); f != nil {
					finished = append(finished, f)
				}
			}
			for _, f := range finished {
				hops = append(hops, f.GetHops()...)
			}
			if want := 2 + len(finished); len(hops) != want {
				t.Fatalf("%d hops, want %d", len(hops), want)
			}
			for _, h := range hops {
				x := h.GetExchange()
				c := x.GetCertificate()
				if x.GetTlsCipherSuite() != row.suite || x.GetAlpnProtocol() != row.alpn || (c != nil) != row.certificate {
					t.Errorf("%q, %q, %v; want %q, %q, a certificate: %t", x.GetTlsCipherSuite(), x.GetAlpnProtocol(), c, row.suite, row.alpn, row.certificate)
				}
				if expired := c.GetNotAfter().AsTime().Before(time.Now()); c != nil && (c.GetSubject() == "" || c.GetIssuer() == "" || len(c.GetSha256()) != 64 || expired != (row.listener == "tls-expired")) {
					t.Errorf("certificate %v", c)
				}
			}
		})
	}
}

// TestAutoDelivery checks that a small body is in the outcome, which is then the only message at level
// OUTCOME, and that a larger one is streamed, over gRPC and HTTP.
func TestAutoDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	attempts := []string{"admitted", "attempt_started", "response_started", "attempt_finished", "outcome"}
	streamed := []string{"response_started", "body_chunk", "outcome"}
	for _, row := range []struct {
		level  pb.EventLevel
		size   int64
		inline bool
		want   []string
	}{
		{pb.EventLevel_EVENT_LEVEL_OUTCOME, 1000, true, []string{"outcome"}},
		{pb.EventLevel_EVENT_LEVEL_OUTCOME, 40_000, false, streamed},
		{pb.EventLevel_EVENT_LEVEL_ATTEMPTS, 1000, true, attempts},
		{pb.EventLevel_EVENT_LEVEL_ALL, 1000, true, attempts},
	} {
		t.Run(fmt.Sprint(row.level, " ", row.size), func(t *testing.T) {
			r := r.in(t)
			in := r.request(fmt.Sprintf("/s/%d/200:size=%d", row.level, row.size))
			in.EventLevel = row.level
			in.BodyPolicy = auto(&pb.StreamDelivery{MaxHoldBackBytes: new(int64(35_000))})
			grpc, web := r.mustFetch(in), r.fetchWeb(t.Context(), in)
			for _, a := range []*answer{grpc, web} {
				if diff := cmp.Diff(row.want, slices.Compact(a.order)); diff != "" { // any number of chunks
					t.Errorf("events (-want +got)\n%s", diff)
				}
				body, rest := a.body, a.outcome.GetInlineBody()
				if row.inline {
					body, rest = rest, body
				}
				if !bytes.Equal(body, r.Origin.Body(row.size)) || len(rest) > 0 {
					t.Errorf("%d bytes in chunks, %d in the outcome", len(a.body), len(a.outcome.GetInlineBody()))
				}
			}
			if row.level == pb.EventLevel_EVENT_LEVEL_OUTCOME {
				return
			}
			p := grpc.admitted().GetEffectiveRequest().GetBodyPolicy()
			if p.GetMaxSizeBytes() != 16<<20 || p.GetAuto().GetRecovery() != pb.BodyRecovery_BODY_RECOVERY_RESUME {
				t.Errorf("effective policy %v, want AUTO, 16 MiB and RESUME", p)
			}
		})
	}
}

// TestEventsTravelTogether checks which events share a message, and that none arrives later than it
// happened: time is exact in a bubble.
func TestEventsTravelTogether(t *testing.T) {
	t.Parallel()
	const (
		start = "admitted attempt_started"
		end   = "attempt_finished outcome"
	)
	wait := retry(&pb.RetryPolicy{BaseDelay: seconds(1)})
	for _, row := range []struct {
		name, path string
		change     func(*pb.FetchRequest)
		want       []string
	}{
		{"a body with its head", "/s/k/200:size=1000", nil, []string{start, "response_started body_chunk " + end}},
		{"a body that is not delivered", "/s/k/200:size=1000", body(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_Digest{}}), []string{start, "response_started " + end}},
		{"no body", "/s/k/204", nil, []string{start, "response_started " + end}},
		{"a failed status", "/s/k/404:size=100", nil, []string{start, "response_started " + end}},
		{"no response", "/s/k/reset", retry(&pb.RetryPolicy{MaxAttempts: new(int32(1))}), []string{start, end}},
		{"only the body", "/s/k/200:size=1000", func(in *pb.FetchRequest) { in.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME }, []string{"response_started body_chunk outcome"}},
		{"a body of unknown length", "/s/k/200:size=1000,chunked", nil, []string{start, "response_started", "body_chunk " + end}},
		{"a coded body", "/s/k/200:size=1000,coding=gzip", nil, []string{start, "response_started", "body_chunk " + end}},
		{"a head before its body", "/s/k/200:size=1000,drip=500@3s", nil, []string{start, "response_started", "body_chunk " + end}},
		{"a slow failed status", "/s/k/404:size=1000,drip=500@1s", nil, []string{start, "response_started", end}},
		{"a slow origin", "/s/k/200:size=10,delay=5s", nil, []string{start, "response_started body_chunk " + end}},
		{"a silent origin", "/s/k/200:size=10,delay=14s", nil, []string{start, "heartbeat", "response_started body_chunk " + end}},
		{"a retry after a wait", "/s/k/503/200:size=10", wait, []string{start, "response_started attempt_finished", "attempt_started", "response_started body_chunk " + end}},
		{"a retry at once", "/s/k/503/200:size=10", nil, []string{start, "response_started attempt_finished attempt_started", "response_started body_chunk " + end}},
		{"a redirect", "/r/k/302/1/200:size=10", func(in *pb.FetchRequest) { in.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL }, []string{start, "redirect_followed", "response_started body_chunk " + end}},
		{"without a hold-back", "/s/k/200:size=1000", body(streamed(&pb.StreamDelivery{MaxHoldBackBytes: new(int64(0))})), []string{start, "response_started body_chunk", end}},
		{"a request with a body", "/s/k/200:size=1000", func(in *pb.FetchRequest) { in.Method, in.Body = "POST", []byte("x") }, []string{start, "response_started", "body_chunk", end}},
		{"more than a buffer", "/s/k/200:size=64000,chunked", nil, []string{start, "response_started", "body_chunk", "body_chunk", "body_chunk " + end}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				for name, call := range map[string]func(*pb.FetchRequest) *answer{
					"gRPC": r.mustFetch, "HTTP": func(in *pb.FetchRequest) *answer { return r.fetchWeb(r.Context(), in) },
				} {
					in := r.request(strings.Replace(row.path, "/k/", "/"+name+"/", 1))
					if row.change != nil {
						row.change(in)
					}
					a := call(in)
					if diff := cmp.Diff(row.want, a.messages); diff != "" {
						r.Errorf("%s: messages (-want +got)\n%s", name, diff)
					}
					if a.late != 0 {
						r.Errorf("%s: an event arrived %s late", name, a.late)
					}
				}
			})
		})
	}
}

// TestEventsThatDoNotWait checks that no event waits for a store, for records, or for a body over HTTP/2.
func TestEventsThatDoNotWait(t *testing.T) {
	t.Parallel()
	const start, page = "admitted attempt_started", "/s/k/200:size=1000"
	r := newRig(t, withArchives(t, t.TempDir()))
	for _, row := range []struct {
		name, listener, path string
		change               func(*pb.FetchRequest)
		want                 []string
	}{
		{"HTTP/2", "https", page, nil, []string{start, "response_started", "body_chunk attempt_finished outcome"}},
		{"HEAD", "http", page, func(in *pb.FetchRequest) { in.Method = "HEAD" }, []string{start, "response_started attempt_finished outcome"}},
		{"a store", "http", page, func(in *pb.FetchRequest) { toStore(in, "bodies", "k") }, []string{start, "response_started", "attempt_finished", "outcome"}},
		{"records", "http", page, func(in *pb.FetchRequest) { in.RecordPolicy = &pb.RecordPolicy{Store: "pages"} }, []string{start, "response_started", "body_chunk", "attempt_finished", "outcome"}},
		{"records of an empty body", "http", "/s/empty/200:size=0", func(in *pb.FetchRequest) {
			in.RecordPolicy, in.EventLevel = &pb.RecordPolicy{Store: "pages"}, pb.EventLevel_EVENT_LEVEL_OUTCOME
		}, []string{"response_started", "outcome"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/")
			in.Url = r.Origin.URL(row.listener, row.path)
			if row.change != nil {
				row.change(in)
			}
			if diff := cmp.Diff(row.want, r.mustFetch(in).messages); diff != "" {
				t.Errorf("messages (-want +got)\n%s", diff)
			}
		})
	}
}

// TestEventContents checks the events of a retry after a redirect.
func TestEventContents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.request("/r/k/302/1/503:body=sorry/200:size=10,type=text%2Fplain")
	in.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
	a := r.mustFetch(in)
	final := r.Origin.URL("http", "/s/k/503:body=sorry/200:size=10,type=text%2Fplain")
	wantHop := &pb.RedirectFollowed{Attempt: 1, Hop: &pb.Hop{Url: in.GetUrl(), StatusCode: 302, LocationUrl: final, Method: "GET"}}
	if diff := cmp.Diff(wantHop, a.events[2].GetRedirectFollowed(), protocmp.Transform(),
		protocmp.IgnoreFields(new(pb.Hop), "exchange", "start_offset", "headers")); diff != "" {
		t.Errorf("redirect_followed (-want +got)\n%s", diff)
	}
	wantFirst := &pb.AttemptFinished{Attempt: 1,
		Response: &pb.HttpResponse{StatusCode: 503, Protocol: "HTTP/1.1", ContentLength: new(int64(5))},
		Error: &pb.FetchError{ErrorClass: pb.ErrorClass_ERROR_CLASS_HTTP_SERVER_ERROR, FailureType: pb.FailureType_FAILURE_TYPE_TRANSIENT,
			ClassRule: "H1", Phase: pb.Phase_PHASE_PROCESSING.Enum(), Retryable: true, RequestState: pb.RequestState_REQUEST_STATE_UNKNOWN, Url: final,
			Detail: r.Origin.Addr("http") + ": status 503 Service Unavailable"},
		RetryDecision: &pb.RetryDecision{Rule: "W1", Next: &pb.RetryDecision_Retry{Retry: &pb.Retry{Attempt: 2, Delay: seconds(0),
			DelaySource: pb.DelaySource_DELAY_SOURCE_BACKOFF, Start: pb.RetryStart_RETRY_START_FIRST_URL}}}}
	wantSecond := &pb.AttemptFinished{Attempt: 2,
		Response:      &pb.HttpResponse{StatusCode: 200, Protocol: "HTTP/1.1", ContentLength: new(int64(10))},
		RetryDecision: &pb.RetryDecision{Rule: "H0", Next: &pb.RetryDecision_StopReason{StopReason: pb.StopReason_STOP_REASON_NO_FAILURE}}}
	if diff := cmp.Diff([]*pb.AttemptFinished{wantFirst, wantSecond}, a.finished, protocmp.Transform(),
		protocmp.IgnoreFields(new(pb.AttemptFinished), "exchange", "hops"),
		protocmp.IgnoreFields(new(pb.HttpResponse), "headers"), protocmp.IgnoreFields(new(pb.FetchError), "message")); diff != "" {
		t.Errorf("attempt_finished (-want +got)\n%s", diff)
	}
	for _, f := range a.finished {
		if hops := f.GetHops(); len(hops) != 2 || !proto.Equal(f.GetExchange(), hops[1].GetExchange()) || f.GetExchange().GetProtocol() != "HTTP/1.1" {
			t.Errorf("attempt %d: exchange %v of hops %v, want that of the second of two, over HTTP/1.1", f.GetAttempt(), f.GetExchange(), hops)
		}
	}
	a.wantStarted(t, final)
}

// wantStarted checks the head in the events of TestEventContents, and the outcome.
func (a *answer) wantStarted(t *testing.T, final string) {
	t.Helper()
	started := a.events[slices.Index(a.order, "body_chunk")-1].GetResponseStarted()
	want := &pb.ResponseStarted{Attempt: 2, Response: &pb.HttpResponse{StatusCode: 200, Protocol: "HTTP/1.1", ContentLength: new(int64(10))}, HoldBackBytes: 10, Url: final}
	if diff := cmp.Diff(want, started, protocmp.Transform(), protocmp.IgnoreFields(new(pb.HttpResponse), "headers")); diff != "" {
		t.Errorf("response_started (-want +got)\n%s", diff)
	}
	if got := valueOf(started.GetResponse(), "Content-Type").GetValue(); got != "text/plain" {
		t.Errorf("Content-Type %q, want text/plain", got)
	}
	if o := a.outcome; o.GetFinalUrl() != final || len(o.GetErrorBody()) != 0 || o.GetTotalDuration() == nil {
		t.Errorf("outcome %v, want the final URL %s and no error body", o, final)
	}
}

// valueOf returns the first header line with that name.
func valueOf(r *pb.HttpResponse, name string) *pb.Header {
	for _, h := range r.GetHeaders() {
		if http.CanonicalHeaderKey(h.GetName()) == name {
			return h
		}
	}
	return nil
}

// TestUnary checks that the answer has the outcome with the body inline, and every attempt.
func TestUnary(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		name     string
		change   func(*pb.FetchRequest)
		attempts int
		inline   int64
		digest   bool
	}{
		{"ATTEMPTS", nil, 2, 1000, true},
		{"ALL", func(in *pb.FetchRequest) { in.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL }, 2, 1000, true},
		{"OUTCOME", func(in *pb.FetchRequest) { in.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME }, 0, 1000, true},
		{"DIGEST", body(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_Digest{}}), 2, 0, true},
		{"NONE", body(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_None{}}), 2, 0, false},
		{"INLINE", body(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_Inline{}}), 2, 1000, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/" + row.name + "/503/200:size=1000")
			if row.change != nil {
				row.change(in)
			}
			got := r.mustUnary(in)
			o := got.GetOutcome()
			if o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || o.GetAttemptCount() != 2 || len(got.GetAttempts()) != row.attempts {
				t.Errorf("%s, %d attempts, %d in the answer; want SUCCESS, 2, %d", o.GetKind(), o.GetAttemptCount(), len(got.GetAttempts()), row.attempts)
			}
			if !bytes.Equal(o.GetInlineBody(), r.Origin.Body(row.inline)) {
				t.Errorf("inline body of %d bytes, want the first %d of the origin", len(o.GetInlineBody()), row.inline)
			}
			if (o.GetBodySummary().GetSha256() != "") != row.digest {
				t.Errorf("digest %q, wanted: %v", o.GetBodySummary().GetSha256(), row.digest)
			}
			for i, a := range got.GetAttempts() {
				if a.GetAttempt() != int32(i+1) || a.GetRetryDecision().GetNext() == nil {
					t.Errorf("attempt %d: %v", i+1, a)
				}
			}
			if o.GetFetchId() == "" {
				t.Error("the outcome has no fetch_id")
			}
		})
	}
}

// TestBytesThatAreNotUTF8 sends header bytes that are not UTF-8 (traps 24), in all places where a
// header or a URL is reported.
func TestBytesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct{ name, path string }{
		{"success", "/s/a/200:header=X-Name=caf%E9,body=x"},
		{"failure", "/s/b/404:header=X-Name=caf%E9,body=x"},
		{"redirect not followed", "/s/c/300:header=X-Name=caf%E9,to=%2Fcaf%E9"},
		{"redirect followed", "/s/d/302:header=X-Name=caf%E9,to=%2Fs%2Fe%2F200%3Fcaf%E9"},
		{"failure, then success", "/s/f/503:header=X-Name=caf%E9/200:header=X-Name=caf%E9"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request(row.path)
			in.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
			a := r.mustFetch(in)
			found := 0
			for _, e := range a.events {
				lines := slices.Concat(e.GetRedirectFollowed().GetHop().GetHeaders(), e.GetResponseStarted().GetResponse().GetHeaders())
				for _, line := range lines {
					if line.GetName() == "X-Name" {
						found++
						wantLossy(t, line)
					}
				}
			}
			if found == 0 {
				t.Error("no response has X-Name")
			}
			if line := valueOf(a.outcome.GetResponse(), "X-Name"); line != nil {
				wantLossy(t, line)
			}
			r.mustUnary(in)
		})
	}
}

func wantLossy(t *testing.T, line *pb.Header) {
	t.Helper()
	if line.GetValue() != "caf\uFFFD" || string(line.GetRawValue()) != "caf\xe9" {
		t.Errorf("value %q, raw_value %q; want the first lossy and the second as sent", line.GetValue(), line.GetRawValue())
	}
}

// TestRequestAsSent checks that the origin receives the caller's header, including bytes, but
// neither labels nor policies.
func TestRequestAsSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *server.Config) { c.Fetch.UserAgent = "fetchd/test" })
	in := r.full("/s/k/200:size=10")
	out := r.mustUnary(in).GetOutcome()
	if out.GetIdempotencyKey() != "a-key" {
		t.Errorf("idempotency_key %q, want a-key", out.GetIdempotencyKey())
	}
	seen := r.Origin.Requests("k")
	if len(seen) != 1 {
		t.Fatalf("the origin saw %d requests, want 1", len(seen))
	}
	want := http.Header{"X-A": {marker + "\xff"}, "X-B": {marker, marker}, "If-None-Match": {`"a"`},
		"If-Modified-Since": {"Thu, 01 Jan 1970 00:00:01 GMT"}, "Idempotency-Key": {"a-key"}, "User-Agent": {"fetchd/test"},
		"Accept": {"*/*"}, "Accept-Encoding": {"gzip, br, zstd"}, "Fetchd-Hops": {"1"}, "Content-Length": {"13"}, "Connection": {"close"}} // a request that must not be repeated has its own connection
	if diff := cmp.Diff(want, seen[0].Header); diff != "" || seen[0].Method != "POST" || seen[0].BodyBytes != 13 {
		t.Errorf("%s with %d bytes, want POST with 13; header (-want +got)\n%s", seen[0].Method, seen[0].BodyBytes, diff)
	}
}

// TestFetchIDs checks that a fetch has the same id everywhere, and that each fetch has its own.
func TestFetchIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seen := make(map[string]bool)
	for range 3 {
		in := r.request("/s/k/503")
		in.Labels = map[string]string{"job": "nightly"}
		id := r.mustFetch(in).outcome.GetFetchId()
		if seen[id] {
			t.Errorf("fetch_id %q a second time", id)
		}
		seen[id] = true
		for msg, want := range map[string]int{"retrying fetch": 2, "waiting before retry": 2, "not retrying": 1, "fetch finished": 1} {
			found := 0
			for _, line := range r.logs.lines(t, msg) {
				if line["fetch_id"] == id {
					found++
				}
			}
			if found != want {
				t.Errorf("%d lines %q with fetch_id %q, want %d", found, msg, id, want)
			}
		}
	}
	for _, line := range r.logs.lines(t, "fetch finished") {
		if diff := cmp.Diff(map[string]any{"job": "nightly"}, line["labels"]); diff != "" {
			t.Errorf("labels (-want +got)\n%s", diff)
		}
	}
	for _, seen := range r.Origin.Requests("k") {
		for name, values := range seen.Header {
			if slices.Contains(values, "nightly") {
				t.Errorf("label sent as %s", name)
			}
		}
	}
}
