package observe_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/server/observe"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
	parent  = "00-" + traceID + "-" + spanID + "-01"
	unasked = "00-" + traceID + "-" + spanID + "-00" // the caller does not sample
)

// all returns the spans so far, in the order in which they started.
func (r *rig) all() tracetest.SpanStubs {
	r.Helper()
	must(r, r.observer.Flush(r.context))
	spans := r.spans.GetSpans()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return spans
}

// children returns the children of a span.
func children(all tracetest.SpanStubs, of trace.SpanID) tracetest.SpanStubs {
	return slices.DeleteFunc(slices.Clone(all), func(s tracetest.SpanStub) bool { return s.Parent.SpanID() != of })
}

// attributes returns the attributes of a span as text, except those named.
func attributes(s *tracetest.SpanStub, without ...string) map[string]string {
	m := map[string]string{}
	for _, a := range s.Attributes {
		if !slices.ContainsFunc(without, func(name string) bool { return strings.HasPrefix(string(a.Key), name) }) {
			m[string(a.Key)] = a.Value.String()
		}
	}
	return m
}

// wantAttributes compares the attributes except times.
func wantAttributes(t *testing.T, s *tracetest.SpanStub, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, attributes(s, "fetchd.phase.", "fetchd.backpressure")); diff != "" {
		t.Errorf("attributes of %s (-want +got):\n%s", s.Name, diff)
	}
}

// wantInside reports spans that are not within their parents.
func wantInside(t *testing.T, all tracetest.SpanStubs) {
	t.Helper()
	for _, outer := range all {
		for _, s := range children(all, outer.SpanContext.SpanID()) {
			if s.StartTime.Before(outer.StartTime) || s.EndTime.After(outer.EndTime) || s.EndTime.Before(s.StartTime) {
				t.Errorf("%s from %s to %s is not within %s from %s to %s", s.Name, s.StartTime, s.EndTime, outer.Name, outer.StartTime, outer.EndTime)
			}
		}
	}
}

// TestTrace checks the trace of a fetch that is redirected, fails, and succeeds.
func TestTrace(t *testing.T) {
	t.Parallel()
	r := traced(t, func(cfg *observe.Config) { cfg.TraceRatio = 0 }) // the caller's sampling decision applies
	r.context = metadata.NewIncomingContext(r.context, metadata.Pairs("traceparent", parent))
	before := time.Now()
	out := r.fetch("http", "/r/k/302/1/503/200:size=3,delay=20ms?token="+secret, func(req *fetch.Request) { req.Policy.BaseDelay = 30 * time.Millisecond })
	if out.Kind != classify.Success || out.Attempts != 2 {
		t.Fatalf("%s after %d attempts, want success after 2", out.Kind, out.Attempts)
	}
	all := r.all()
	base := r.origin.URL("http", "")
	tops := children(all, trace.SpanID{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31})
	if len(all) != 7 || len(tops) != 1 {
		t.Fatalf("%d spans, %d of them the caller's children; want 7 and 1", len(all), len(tops))
	}
	top := &tops[0]
	if got := top.SpanContext.TraceID().String(); got != traceID || top.Name != "fetch" || top.SpanKind != trace.SpanKindServer {
		t.Errorf("%s %s of trace %s, want a server's fetch of %s", top.SpanKind, top.Name, got, traceID)
	}
	wantAttributes(t, top, map[string]string{"fetchd.fetch_id": "id-of-TestTrace", "http.request.method": "GET",
		"url.full": base + "/r/k/302/1/503/200:size=3,delay=20ms", "http.response.status_code": "200", "fetchd.outcome": "success",
		"fetchd.decision_rule": "H0", "fetchd.attempt_count": "2", "fetchd.exchange_count": "4", "fetchd.body.size": "3", "http.response.body.size": "3"})
	if top.StartTime.Before(before) || top.Status.Code != codes.Unset {
		t.Errorf("fetch from %s with status %v, want it after %s and unset", top.StartTime, top.Status, before)
	}

	attempts := children(all, top.SpanContext.SpanID())
	if len(attempts) != 2 {
		t.Fatalf("%d attempts, want 2", len(attempts))
	}
	wantAttributes(t, &attempts[0], map[string]string{"fetchd.attempt": "1", "fetchd.decision": "retry", "fetchd.decision_rule": "W1",
		"error.type": "http_server_error", "fetchd.reason": "", "fetchd.retry.delay": "0.06", "fetchd.retry.source": "backoff"})
	wantAttributes(t, &attempts[1], map[string]string{"fetchd.attempt": "2", "fetchd.decision": "no_failure", "fetchd.decision_rule": "H0"})
	for i, status := range []string{"503", "200"} {
		r.wantHops(children(all, attempts[i].SpanContext.SpanID()), i, status)
	}
	wantInside(t, all)
	if wait := attempts[1].StartTime.Sub(attempts[0].EndTime); wait < 60*time.Millisecond || wait > 10*time.Second {
		t.Errorf("%s between the attempts, want the 60 ms that were waited and little more", wait)
	}
	last := children(all, attempts[1].SpanContext.SpanID())[1]
	if took := last.EndTime.Sub(last.StartTime); took < 20*time.Millisecond {
		t.Errorf("the last hop took %s, and the origin alone 20 ms", took)
	}
}

// wantHops checks the hops of an attempt of TestTrace: a redirect, and the status it
// leads to. retries is the number of earlier attempts.
func (r *rig) wantHops(hops tracetest.SpanStubs, retries int, status string) {
	r.Helper()
	if len(hops) != 2 {
		r.Fatalf("%d hops before %s, want 2", len(hops), status)
	}
	host, port, _ := strings.Cut(r.origin.Addr("http"), ":")
	for n, path := range []string{"/r/k/302/1/503/200:size=3,delay=20ms", "/s/k/503/200:size=3,delay=20ms"} {
		want := map[string]string{"http.request.method": "GET", "server.address": host, "server.port": port,
			"network.protocol.version": "1.1", "network.peer.address": host, "network.peer.port": port,
			"fetchd.connection.reused": strconv.FormatBool(retries+n > 0), "url.full": r.origin.URL("http", path),
			"http.response.status_code": []string{"302", status}[n]}
		if status == "503" && n == 1 {
			want["error.type"] = "http_server_error"
		}
		if before := 2*retries + n; before > 0 {
			want["http.request.resend_count"] = strconv.Itoa(before)
		}
		wantAttributes(r.T, &hops[n], want)
		if hops[n].Name != "GET" || hops[n].SpanKind != trace.SpanKindClient || hops[n].Status.Code != codes.Unset {
			r.Errorf("hop %s %s with status %v", hops[n].SpanKind, hops[n].Name, hops[n].Status)
		}
	}
	if hops[0].EndTime.After(hops[1].StartTime) {
		r.Errorf("the second hop begins at %s, the first ends at %s", hops[1].StartTime, hops[0].EndTime)
	}
}

// TestTraceOfFailures checks that only the span of a failed fetch has the status Error.
func TestTraceOfFailures(t *testing.T) {
	t.Parallel()
	r := traced(t)
	for _, row := range []struct {
		listener, path, class string
		spans                 int
	}{
		{"http", "/s/a/404", "http_client_error", 3},
		{"http", "/s/b/503/200", "", 5},
		{"http", "/s/c/302", "", 3},
		{"refused", "/", "connect_refused", 5},
	} {
		r.spans.Reset()
		r.fetch(row.listener, row.path, func(req *fetch.Request) { req.Policy.MaxAttempts = 2 })
		all := r.all()
		if len(all) != row.spans {
			t.Errorf("%s: %d spans, want %d", row.path, len(all), row.spans)
		}
		for _, s := range all {
			want := codes.Unset
			if s.Name == "fetch" && row.class != "" {
				want = codes.Error
			}
			if s.Status.Code != want || want == codes.Error && s.Status.Description != row.class {
				t.Errorf("%s: %s has status %v, want %s %q", row.path, s.Name, s.Status, want, row.class)
			}
			if got := attributes(&s)["error.type"]; s.Name == "fetch" && got != row.class {
				t.Errorf("%s: error.type %q, want %q", row.path, got, row.class)
			}
		}
		wantInside(t, all)
	}
}

// TestTraceOfNoFetch checks that a fetch rejected before it starts has an empty span.
func TestTraceOfNoFetch(t *testing.T) {
	t.Parallel()
	r := traced(t)
	req := fetch.NewRequest(classify.Standard)
	r.client.Refuse(metadata.NewIncomingContext(r.context, metadata.Pairs("traceparent", parent)), req, classify.InvalidRequest, secret)
	all := r.all()
	if len(all) != 1 || all[0].SpanContext.TraceID().String() != traceID || all[0].Status.Description != "invalid_request" {
		t.Errorf("spans %+v, want one of invalid_request, of the caller's trace", all)
	}
}

// TestParent checks which trace a fetch belongs to, and whether it is sampled.
func TestParent(t *testing.T) {
	t.Parallel()
	md := func(pairs ...string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context {
			return metadata.NewIncomingContext(ctx, metadata.Pairs(pairs...))
		}
	}
	header := func(h http.Header) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return observe.FromHeader(ctx, h) }
	}
	for _, row := range []struct {
		name   string
		ratio  float64
		caller func(context.Context) context.Context
		spans  int
		child  bool
	}{
		{"no parent, all", 1, md(), 3, false},
		{"no parent, none", 0, md(), 0, false},
		{"metadata", 0, md("traceparent", parent), 3, true},
		{"metadata of one who does not trace", 1, md("traceparent", unasked), 0, false},
		{"metadata twice", 1, md("traceparent", parent, "traceparent", parent), 3, false},
		{"metadata that is none", 1, md("traceparent", secret), 3, false},
		{"header", 0, header(http.Header{"Traceparent": {parent}, "Tracestate": {"a=b", "c=d"}}), 3, true},
		{"header of one who does not trace", 1, header(http.Header{"Traceparent": {unasked}}), 0, false},
		{"no header", 1, header(http.Header{}), 3, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := traced(t, func(cfg *observe.Config) { cfg.TraceRatio = row.ratio })
			r.context = row.caller(r.context)
			r.fetch("http", "/s/k/200")
			all := r.all()
			if len(all) != row.spans {
				t.Fatalf("%d spans, want %d", len(all), row.spans)
			}
			for _, s := range all {
				if child := s.SpanContext.TraceID().String() == traceID; child != row.child {
					t.Errorf("%s is of trace %s, want the caller's: %v", s.Name, s.SpanContext.TraceID(), row.child)
				}
			}
		})
	}
}

// TestNoSecretInSpans checks spans of fetches with hostile callers and origins.
func TestNoSecretInSpans(t *testing.T) {
	t.Parallel()
	r := traced(t)
	r.hostile()
	r.fetch("https", "/s/long/200?"+strings.Repeat(secret, 10), func(req *fetch.Request) {
		req.URL.Path = "/s/" + strings.Repeat("long", 1000) + "/200"
	})
	r.checkLabels()
	all := r.all()
	if len(all) < 3*len(answers) {
		t.Fatalf("only %d spans", len(all))
	}
	for _, s := range all {
		if s.Name == "fetch" { // its ID is the caller's, and may contain anything
			s.Attributes = slices.DeleteFunc(s.Attributes, func(a attribute.KeyValue) bool { return a.Key == "fetchd.fetch_id" })
		}
		url := attributes(&s)["url.full"]
		if text := fmt.Sprintf("%+v", s); strings.Contains(text, secret) || strings.ContainsAny(url, "?#@") {
			t.Errorf("%s tells the secret, or the query of %s:\n%s", s.Name, url, text)
		}
		if len(url) > 1024 {
			t.Errorf("url.full has %d bytes, want 1024 at most", len(url))
		}
	}
}
