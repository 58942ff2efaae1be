package server_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// marker is in every header value, URL and body of the refused requests, and must not come back.
const marker = "s3cr3t-m4rk3r"

func seconds(s float64) *durationpb.Duration {
	return durationpb.New(time.Duration(s * float64(time.Second)))
}

// wantViolations checks that an error is INVALID_ARGUMENT with exactly these field paths and
// without the marker.
func wantViolations(t *testing.T, err error, want []string) {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != codes.InvalidArgument {
		t.Fatalf("status %s (%v), want InvalidArgument for %q", st.Code(), err, want)
	}
	var got []string
	for _, d := range st.Details() {
		bad, ok := d.(*errdetails.BadRequest)
		if !ok {
			t.Errorf("detail %T, want only a BadRequest", d)
			continue
		}
		for _, v := range bad.GetFieldViolations() {
			got = append(got, v.GetField())
			if v.GetDescription() == "" {
				t.Errorf("field %s has no description", v.GetField())
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" {
		t.Errorf("fields of %v (-want +got)\n%s", err, diff)
	}
	raw := marshal(t, st.Proto())
	if bytes.Contains(raw, []byte(marker)) {
		t.Errorf("the status contains %q: %v", marker, st)
	}
}

func tenFaults(in *pb.FetchRequest) {
	in.Url, in.Method, in.EventLevel, in.CookieMode, in.AuthProvider = "/"+marker, "get", 99, 99, "nobody"
	in.Headers = append(in.Headers, &pb.Header{Name: "Host", Value: marker})
	in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(21))}
	in.RetryPolicy = &pb.RetryPolicy{MaxAttempts: new(int32(0)), Multiplier: new(math.NaN())}
	in.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: seconds(-1)}
}

// TestRefuses sends ten faults to both methods, and checks that each is named and that nothing is
// sent to the origin. Package conversion tests every fault.
func TestRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := &pb.FetchRequest{Headers: []*pb.Header{{Name: "Authorization", Value: marker}}}
	tenFaults(in)
	want := []string{"url", "method", "headers[1].name", "redirect_policy.max_redirects", "retry_policy.max_attempts",
		"retry_policy.multiplier", "timeout_policy.total_timeout", "event_level", "cookie_mode", "auth_provider"}
	wantViolations(t, fetchError(t, r, in), want)
	_, err := r.Client.FetchUnary(t.Context(), in)
	wantViolations(t, err, want)
	r.wantNoConnections()
	if log := r.logs.String(); strings.Contains(log, marker) || strings.Contains(log, "fetch finished") {
		t.Error("the log has a line about a refused request, or its secrets")
	}
}

// fetchError returns the error that a Fetch returns instead of its first event.
func fetchError(t *testing.T, r *rig, in *pb.FetchRequest) error {
	t.Helper()
	stream, err := r.Client.Fetch(t.Context(), in)
	if err != nil {
		return err
	}
	m, err := stream.Recv()
	if m != nil || errors.Is(err, io.EOF) {
		t.Errorf("Fetch sent %v, %v; want an error", m, err)
	}
	return err
}

// TestUnaryRefuses sends the faults that FetchUnary alone refuses.
func TestUnaryRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		name string
		in   *pb.FetchRequest
		want []string
	}{
		{"empty request", new(pb.FetchRequest), []string{"url"}},
		{"stream", &pb.FetchRequest{Url: r.Origin.URL("http", "/s/k/200"),
			BodyPolicy: streamed(nil)}, []string{"body_policy.stream"}},
		{"auto", &pb.FetchRequest{Url: r.Origin.URL("http", "/s/k/200"),
			BodyPolicy: auto(nil)}, []string{"body_policy.auto"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			_, err := r.Client.FetchUnary(t.Context(), row.in)
			wantViolations(t, err, row.want)
		})
	}
	r.wantNoConnections()
}

// TestRefusalFitsTrailers sends requests with very many faults. The error must fit into the 8 KiB of
// trailers that clients in other languages accept.
func TestRefusalFitsTrailers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		name   string
		change func(*pb.FetchRequest)
	}{
		{"statuses", retry(&pb.RetryPolicy{AdditionalStatusCodes: make([]int32, 100_000), ExcludedStatusCodes: make([]int32, 100_000)})},
		{"entity tags", func(in *pb.FetchRequest) { in.Precondition = &pb.Precondition{Etags: make([]string, 100_000)} }},
		{"headers", func(in *pb.FetchRequest) {
			in.Headers = slices.Repeat([]*pb.Header{{Name: "X-Forwarded-" + repeat(400), Value: marker}}, 64)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/k/200")
			row.change(in)
			var trailer metadata.MD
			_, err := r.Client.FetchUnary(t.Context(), in, grpc.Trailer(&trailer))
			wantCode(t, "FetchUnary", err, codes.InvalidArgument)
			raw := marshal(t, status.Convert(err).Proto())
			// The trailers hold the text twice: as text and in the details.
			if n := len(status.Convert(err).Message()) + len(raw)*4/3; n > 8<<10 {
				t.Errorf("the status has %d bytes of trailers, want at most 8 KiB", n)
			}
		})
	}
	r.wantNoConnections()
}

// TestTooLongMessage checks that a request that is too large is refused with a status that no
// client retries, whether it exceeds the limit of a body or of a message.
func TestTooLongMessage(t *testing.T) {
	t.Parallel()
	const longest = 4 << 20
	r := newRig(t)
	frame := proto.Size(r.put("k", longest)) - longest // the fields besides the body, for each method
	for _, row := range []struct {
		name string
		body int
		text string
	}{
		{"a byte over the body", 1<<20 + 1, "has 1048577 bytes: give at most 1048576"},
		{"2 MiB less the other fields", 2<<20 - frame - 8, "bytes: give at most 1048576"},
		{"2 MiB", 2 << 20, "is in a message of 2097"},
		{"the longest message", longest - frame - 8, "bytes: give at most 1048576"},
		{"8 MiB", 8 << 20, "bytes: give at most 1048576"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := r.in(t)
			_, unary := r.Client.FetchUnary(t.Context(), r.put("k", row.body))
			for _, err := range []error{r.fetch(t.Context(), r.put("k", row.body)).err, unary} {
				wantViolations(t, err, []string{"body"})
				if text := status.Convert(err).Message(); !strings.Contains(text, row.text) {
					t.Errorf("%q, want %q in it", text, row.text)
				}
			}
		})
	}
	t.Run("Explain", func(t *testing.T) {
		t.Parallel()
		r := r.in(t)
		_, err := r.Client.Explain(t.Context(), &pb.ExplainRequest{Response: &pb.HttpResponse{Headers: []*pb.Header{{Name: "A", Value: repeat(longest)}}}})
		wantViolations(t, err, []string{"message"})
	})
	t.Cleanup(func() {
		r.wantRequests("k", 0)
	})
}

// retry replaces the retry policy.
func retry(p *pb.RetryPolicy) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) { in.RetryPolicy = p }
}

// body replaces the body policy.
func body(p *pb.BodyPolicy) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) { in.BodyPolicy = p }
}

// TestNonIdempotentRetriesForbidden changes the setting while the service runs. A key without
// allow_non_idempotent is accepted, because nothing is repeated because of it.
func TestNonIdempotentRetriesForbidden(t *testing.T) {
	t.Parallel()
	const field = "retry_policy.allow_non_idempotent"
	r := newRig(t, func(c *server.Config) { c.NonIdempotentRetries = server.NonIdempotentForbidden })
	for _, row := range []struct {
		name, method string
		policy       *pb.RetryPolicy
		refused      bool
	}{
		{"POST", "POST", &pb.RetryPolicy{IdempotencyKey: "k", AllowNonIdempotent: true}, true},
		{"GET", "GET", &pb.RetryPolicy{IdempotencyKey: "k", AllowNonIdempotent: true}, true},
		{"the key alone", "POST", &pb.RetryPolicy{IdempotencyKey: "k"}, false},
		{"neither", "POST", &pb.RetryPolicy{}, false},
		{"no policy", "POST", nil, false},
	} {
		in := r.request("/s/" + strings.ReplaceAll(row.name, " ", "-") + "/200")
		in.Method, in.RetryPolicy = row.method, row.policy
		_, err := r.Client.FetchUnary(t.Context(), in)
		if !row.refused {
			if err != nil {
				t.Errorf("%s: %v, want it accepted", row.name, err)
			}
			continue
		}
		st := status.Convert(err)
		if st.Code() != codes.InvalidArgument || !strings.Contains(st.Message(), field+" is true") || !strings.Contains(st.Message(), "--non-idempotent-retries=forbid") {
			t.Errorf("%s: %v; want INVALID_ARGUMENT that names %s, its value and the setting", row.name, err, field)
		}
		many := r.many(t.Context())
		many.start(&pb.Task{Tag: "t", Request: in})
		many.finish("t")
		if e := many.outcomes["t"][0].GetError(); e.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST || !strings.Contains(e.GetMessage(), field) {
			t.Errorf("%s in FetchMany: %v, want INVALID_REQUEST that names %s", row.name, e, field)
		}
	}
	must(t, r.Service.SetLimits(server.Limits{}))
	in := r.request("/s/later/200")
	in.Method, in.RetryPolicy = "POST", &pb.RetryPolicy{IdempotencyKey: "k", AllowNonIdempotent: true}
	r.mustUnary(in)
}
