package server_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// TestAcceptsLimits sends the largest value that each limit allows.
func TestAcceptsLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	padded := func(in *pb.FetchRequest, n int) { in.Url += "?" + repeat(n-len(in.Url)-1) }
	rows := []refused{
		{"URL of 8 KiB", func(in *pb.FetchRequest) { padded(in, 8<<10) }, nil},
		{"64 headers", func(in *pb.FetchRequest) { in.Headers = slices.Repeat([]*pb.Header{{Name: "X-A"}}, 64) }, nil},
		{"headers of 32 KiB", header(&pb.Header{Name: "X-A", Value: repeat(32<<10 - 3)}), nil},
		{"raw value", header(&pb.Header{Name: "X-A", RawValue: []byte("caf\xe9\t")}), nil},
		{"body of 1 MiB", func(in *pb.FetchRequest) { in.Method, in.Body = "PUT", make([]byte, 1<<20) }, nil},
		{"body with DELETE", func(in *pb.FetchRequest) { in.Method, in.Body = "DELETE", []byte("x") }, nil},
		{"1 attempt", retry(&pb.RetryPolicy{MaxAttempts: new(int32(1))}), nil},
		{"11 attempts", retry(&pb.RetryPolicy{MaxAttempts: new(int32(11))}), nil},
		{"multiplier 1", retry(&pb.RetryPolicy{Multiplier: new(1.0)}), nil},
		{"multiplier 10", retry(&pb.RetryPolicy{Multiplier: new(10.0)}), nil},
		{"base equal to max", retry(&pb.RetryPolicy{BaseDelay: seconds(300), MaxDelay: seconds(300)}), nil},
		{"no delays", retry(&pb.RetryPolicy{BaseDelay: seconds(0), MaxDelay: seconds(0), MaxJitter: seconds(0), MaxRetryAfter: seconds(0)}), nil},
		{"key of 256 bytes", retry(&pb.RetryPolicy{IdempotencyKey: repeat(256), AllowNonIdempotent: true}), nil},
		{"key of the first and the last character", retry(&pb.RetryPolicy{IdempotencyKey: "!~"}), nil},
		{"additional statuses", retry(&pb.RetryPolicy{AdditionalStatusCodes: []int32{402, 405, 408, 425, 429, 499}}), nil},
		{"excluded statuses", retry(&pb.RetryPolicy{ExcludedStatusCodes: []int32{408, 429, 500, 599}}), nil},
		{"0 redirects", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(0))} }, nil},
		{"20 redirects", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(20))} }, nil},
		{"16 labels of 256 bytes", func(in *pb.FetchRequest) { in.Labels = labels(16, 256, 256) }, nil},
		{"16 entity tags of 1 KiB", condition(&pb.Precondition{Etags: slices.Repeat([]string{`W/"` + repeat(1022) + `"`}, 16)}), nil},
		{"empty entity tag", condition(&pb.Precondition{Etags: []string{`""`}}), nil},
		{"first time", condition(&pb.Precondition{ModifiedSinceTime: &timestamppb.Timestamp{Seconds: -62135596800}}), nil},
		{"64 media types", func(in *pb.FetchRequest) {
			in.ContentPolicy = &pb.ContentPolicy{AcceptedMediaTypes: slices.Repeat([]string{"TEXT/*", "*/*"}, 32)}
		}, nil},
		{"sizes of 0", func(in *pb.FetchRequest) {
			in.BodyPolicy = &pb.BodyPolicy{MaxSizeBytes: new(int64(0)), HoldBackBytes: new(int64(0)), ErrorBodyBytes: new(int32(0))}
		}, nil},
		{"largest sizes", func(in *pb.FetchRequest) {
			in.BodyPolicy = &pb.BodyPolicy{MaxSizeBytes: new(int64(1 << 40)), HoldBackBytes: new(int64(16 << 20)), ErrorBodyBytes: new(int32(64 << 10))}
		}, nil},
		{"empty body known", func(in *pb.FetchRequest) {
			in.Integrity = &pb.Integrity{SizeBytes: new(int64(0)), Sha256: "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"}
		}, nil},
		{"empty policies", func(in *pb.FetchRequest) {
			in.RedirectPolicy, in.RetryPolicy, in.TimeoutPolicy, in.BodyPolicy = new(pb.RedirectPolicy), new(pb.RetryPolicy), new(pb.TimeoutPolicy), new(pb.BodyPolicy)
			in.Precondition, in.Integrity, in.ContentPolicy = new(pb.Precondition), new(pb.Integrity), new(pb.ContentPolicy)
		}, nil},
	}
	for _, f := range durationFields {
		most := f.most
		if most == 0 {
			most = 15 * time.Minute
		}
		rows = append(rows,
			refused{f.path + " of the longest", withDuration(f.path, durationpb.New(most)), nil},
			refused{f.path + " of the shortest", withDuration(f.path, durationpb.New(1)), nil})
	}
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/" + key(i) + "/204")
			row.change(in)
			stream := r.mustStream(t.Context(), in)
			first, err := stream.Recv()
			if err != nil {
				t.Fatalf("Fetch = %v, want OK", err)
			}
			if cut := first.GetAdmitted().GetClampedFields(); len(cut) != 0 {
				t.Errorf("clamped %q, want none", cut)
			}
			for !errors.Is(err, io.EOF) {
				if _, err = stream.Recv(); err != nil && !errors.Is(err, io.EOF) {
					t.Fatalf("Recv = %v", err)
				}
			}
			r.mustUnary(in)
		})
	}
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
		_, err := r.Client.FetchUnary(t.Context(), &pb.FetchUnaryRequest{Request: in})
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
