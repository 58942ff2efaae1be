package server_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// TestAdmission checks that fetches over the limit are refused before their first event, in the
// form that gRPC clients retry, or with an HTTP status, and that each end of a fetch frees a slot.
func TestAdmission(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		first := r.begin(r.request("/s/a/200:delay=5s"))
		second := r.begin(r.request("/s/b/200:delay=5s"))
		for _, key := range []string{"a", "b"} {
			r.awaitRequest(key)
		}
		stream := r.mustStream(r.Context(), r.request("/s/c/200"))
		m, err := stream.Recv()
		if m != nil {
			r.Errorf("events came before the refusal: %v", m)
		}
		wantRefused(r.T, "Fetch", err, stream.Trailer(), "TOO_MANY_FETCHES")
		var trailer metadata.MD
		_, err = r.Client.FetchUnary(r.Context(), r.request("/s/c/200"), grpc.Trailer(&trailer))
		wantRefused(r.T, "FetchUnary", err, trailer, "TOO_MANY_FETCHES")
		resp := r.post(r.Context(), "/v1/fetch", r.json(r.request("/s/c/200")))
		r.wantStatus(resp, 429, codes.ResourceExhausted, "as many fetches in flight as it may")
		if got := resp.Header.Get("Retry-After"); got != "1" {
			r.Errorf("Retry-After %q, want 1", got)
		}
		if _, err := r.Client.Explain(r.Context(), &pb.ExplainRequest{ErrorClasses: []pb.ErrorClass{pb.ErrorClass_ERROR_CLASS_DEADLINE}}); err != nil {
			r.Errorf("Explain: %v; it fetches nothing and is not refused", err)
		}
		<-first.ended
		<-second.ended
		if a := r.fetch(r.Context(), r.request("/s/c/200")); a.err != nil {
			r.Errorf("after the others ended: %v", a.err)
		}
		r.wantRequests("c", 1)
	}, func(c *server.Config) { c.MaxFetches = 2 })
}

func wantRefused(t *testing.T, call string, err error, trailer metadata.MD, reason string) {
	t.Helper()
	wantRefusedWithin(t, call, err, trailer, reason, 500*time.Millisecond)
}

// wantRefusedWithin checks a refusal that advises to wait for at most longest.
func wantRefusedWithin(t *testing.T, call string, err error, trailer metadata.MD, reason string, longest time.Duration) {
	t.Helper()
	wantCode(t, call, err, codes.ResourceExhausted)
	wantReason(t, err, reason)
	ms := trailer.Get("grpc-retry-pushback-ms")
	if len(ms) != 1 {
		t.Fatalf("%s: pushback %q, want one value", call, ms)
	}
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			wait := info.GetRetryDelay().AsDuration()
			if wait < 250*time.Millisecond || wait > longest || ms[0] != strconv.FormatInt(wait.Milliseconds(), 10) {
				t.Errorf("%s: RetryInfo of %s, pushback %s ms; want the same, from 250 ms to %s", call, wait, ms[0], longest)
			}
			return
		}
	}
	t.Errorf("%s: no RetryInfo", call)
}

// TestRequestThatDoesNotCome checks that a call without a request ends after ten seconds. Calls
// with a request have no such limit.
func TestRequestThatDoesNotCome(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		slow := r.begin(r.request("/s/slow/200:delay=14s"))
		for _, method := range []string{pb.FetchService_Fetch_FullMethodName, pb.FetchService_FetchUnary_FullMethodName} {
			begin := time.Now()
			stream, err := r.Conn.NewStream(r.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
			must(r, err)
			if err := stream.RecvMsg(new(pb.FetchEvent)); err == nil {
				r.Errorf("%s: answered without a request", method)
			}
			if took := time.Since(begin); took != 10*time.Second {
				r.Errorf("%s: ended after %v, want 10 s", method, took)
			}
		}
		if a := <-slow.ended; a.err != nil || a.outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
			r.Errorf("the fetch that took 14 s: %v, %v", a.err, a.outcome.GetKind())
		}
	})
}

// TestMetadataThatIsTooLong checks that such a call is refused and the next one is served.
func TestMetadataThatIsTooLong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-long", strings.Repeat("a", 20<<10))
	if _, err := r.Client.FetchUnary(ctx, r.request("/s/a/200")); err == nil {
		t.Error("20 KiB of metadata were accepted")
	}
	r.mustUnary(r.request("/s/a/200"))
	r.wantRequests("a", 1)
}

// TestMaxHops checks that the service sends origins the number of fetches that led to a request, and
// refuses a call that passed through too many.
func TestMaxHops(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		name      string
		sent      []string
		forwarded string
		code      codes.Code
	}{
		{"a caller of its own", nil, "1", codes.OK},
		{"a fetch of another service", []string{"1"}, "2", codes.OK},
		{"the last that is accepted", []string{"2"}, "3", codes.OK},
		{"two that differ: the greater", []string{"0", "2", "1"}, "3", codes.OK},
		{"one too many", []string{"3"}, "", codes.FailedPrecondition},
		{"one too many behind another", []string{"0", "3"}, "", codes.FailedPrecondition},
		{"no number", []string{"x"}, "", codes.FailedPrecondition},
		{"below zero", []string{"-1"}, "", codes.FailedPrecondition},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			r.Origin.Reset()
			ctx := t.Context()
			for _, sent := range row.sent {
				ctx = metadata.AppendToOutgoingContext(ctx, "fetchd-hops", sent)
			}
			_, err := r.Client.FetchUnary(ctx, r.request("/cross/k/302/http-other/200"))
			wantCode(t, "FetchUnary", err, row.code)
			stream, err := r.Client.Fetch(ctx, r.request("/s/k/200"))
			for err == nil {
				_, err = stream.Recv()
			}
			if row.code != codes.OK {
				wantCode(t, "Fetch", err, row.code)
			}
			for _, q := range r.Origin.Requests("k") {
				if got := q.Header.Get("Fetchd-Hops"); got != row.forwarded {
					t.Errorf("%s has %q, want %q", q.Path, got, row.forwarded)
				}
			}
			if n := len(r.Origin.Requests("k")); (n > 0) != (row.code == codes.OK) {
				t.Errorf("the origin saw %d requests", n)
			}
		})
	}
}
