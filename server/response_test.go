package server_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

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

// TestAddedHeaders checks the headers that the service adds to a request, and that it replaces none
// of the caller.
func TestAddedHeaders(t *testing.T) {
	t.Parallel()
	const agent, codings = "fetchd/test", "gzip, br, zstd"
	for _, row := range []struct {
		name string
		omit bool
		sent []*pb.Header
		want http.Header
	}{
		{"none of the caller's", false, nil, http.Header{"User-Agent": {agent}, "Accept": {"*/*"}, "Accept-Encoding": {codings}, "Fetchd-Hops": {"1"}}},
		{"without hops", true, nil, http.Header{"User-Agent": {agent}, "Accept": {"*/*"}, "Accept-Encoding": {codings}}},
		{"the caller's Accept", false, []*pb.Header{{Name: "accept", Value: "text/html"}},
			http.Header{"User-Agent": {agent}, "Accept": {"text/html"}, "Accept-Encoding": {codings}, "Fetchd-Hops": {"1"}}},
		{"the caller's own, without hops", true, []*pb.Header{{Name: "User-Agent", Value: "me"}, {Name: "Accept", Value: "a/b"}, {Name: "Accept", Value: "c/d"}, {Name: "Accept-Encoding", Value: "br"}},
			http.Header{"User-Agent": {"me"}, "Accept": {"a/b", "c/d"}, "Accept-Encoding": {"br"}}},
	} {
		r := newRig(t, func(c *server.Config) { c.Fetch.UserAgent, c.Fetch.OmitHops = agent, row.omit })
		in := r.request("/r/k/302/1/200")
		in.Headers = row.sent
		r.mustUnary(in)
		seen := r.Origin.Requests("k")
		if len(seen) != 2 {
			t.Fatalf("%s: the origin saw %d requests, want 2", row.name, len(seen))
		}
		for _, q := range seen {
			if diff := cmp.Diff(row.want, q.Header); diff != "" {
				t.Errorf("%s: header of %s (-want +got)\n%s", row.name, q.Path, diff)
			}
		}
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
