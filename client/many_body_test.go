package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
)

// TestManyBodies: the outcome of a success has the whole body, however it was delivered.
func TestManyBodies(t *testing.T) {
	const tag = ",etag=%22v1%22,range"
	r := newRig(t)
	class := func(c pb.ErrorClass) string { return c.String() }
	for _, row := range []struct {
		name, script string
		policy       *pb.BodyPolicy
		from, size   int64
		err          string
	}{
		{"AUTO, small", "200:size=1000", auto(nil), 0, 1000, ""},
		{"AUTO, large", "200:size=3000000", auto(nil), 0, 3_000_000, ""},
		{"AUTO, empty", "200:size=0", auto(nil), 0, 0, ""},
		{"STREAM, small", "200:size=1000", streamed(nil), 0, 1000, ""},
		{"STREAM, empty", "200:size=0", streamed(nil), 0, 0, ""},
		{"resumed", "200:size=3000000,cut=2000000" + tag + "/200:size=3000000" + tag, auto(nil), 0, 3_000_000, ""},
		{"restarted with a shorter body", "200:size=3000000,cut=2000000" + tag + "/200:size=500,etag=%22v2%22",
			auto(&pb.StreamDelivery{Recovery: pb.BodyRecovery_BODY_RECOVERY_RESTART}), 0, 500, ""},
		{"restarted with an empty body", "200:size=3000000,cut=2000000" + tag + "/200:size=0,etag=%22v2%22",
			auto(&pb.StreamDelivery{Recovery: pb.BodyRecovery_BODY_RECOVERY_RESTART}), 0, 0, ""},
		{"a resume point", "200:size=3000000" + tag, auto(&pb.StreamDelivery{ResumePoint: &pb.ResumePoint{OffsetBytes: 2_500_000, Validator: `"v1"`}}), 2_500_000, 3_000_000, ""},
		{"a resume point, restarted", "200:size=3000,etag=%22v2%22", auto(&pb.StreamDelivery{Recovery: pb.BodyRecovery_BODY_RECOVERY_RESTART,
			ResumePoint: &pb.ResumePoint{OffsetBytes: 2000, Validator: `"v1"`}}), 0, 3000, ""},
		{"interrupted for good", "200:size=3000000,cut=2000000", auto(nil), 0, 0, class(pb.ErrorClass_ERROR_CLASS_BODY_INTERRUPTED)},
		{"more than max_size_bytes", "200:size=3000000,chunked", &pb.BodyPolicy{Delivery: auto(nil).Delivery, MaxSizeBytes: new(int64(2_000_000))}, 0, 0, class(pb.ErrorClass_ERROR_CLASS_BODY_TOO_LARGE)},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/" + strings.NewReplacer(" ", "-", ",", "").Replace(row.name) + "/" + row.script)
			in.BodyPolicy = row.policy
			for result, err := range r.client.Many(t.Context(), slices.Values([]*pb.FetchRequest{in}), client.ManyOptions{}) {
				var got string
				if failed, ok := errors.AsType[*client.Error](err); ok {
					got, err = failed.Class().String(), nil
				}
				if err != nil || got != row.err {
					t.Errorf("error %q, %v; want %q", got, err, row.err)
				}
				want := r.origin.Body(row.size)
				if body := result.Outcome.GetInlineBody(); !bytes.Equal(body, want[row.from:]) {
					t.Errorf("%d bytes, want %d", len(body), row.size-row.from)
				}
			}
		})
	}
}

// TestManyLongBody: a body that is longer than Many keeps ends its fetch, and no other.
func TestManyLongBody(t *testing.T) {
	r := newRig(t)
	long, short := r.request("/s/long/200:size=1099511627776"), r.request("/s/short/200:size=1000")
	for _, in := range []*pb.FetchRequest{long, short} { // profile DOWNLOAD: fetchd would allow 1 TiB
		in.RetryPolicy = &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD}
		in.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Auto{Auto: new(pb.StreamDelivery)}}
	}
	results := 0
	for result, err := range r.client.Many(t.Context(), slices.Values([]*pb.FetchRequest{long, short}), client.ManyOptions{}) {
		results++
		if result.Request == short {
			if err != nil || len(result.Outcome.GetInlineBody()) != 1000 {
				t.Errorf("the short body: %d bytes, %v", len(result.Outcome.GetInlineBody()), err)
			}
			continue
		}
		if !errors.Is(err, client.ErrBodyTooLong) || len(result.Outcome.GetInlineBody()) > 0 {
			t.Errorf("the long body: %d bytes, %v; want ErrBodyTooLong", len(result.Outcome.GetInlineBody()), err)
		}
		if got := result.Outcome.GetError().GetErrorClass(); got != pb.ErrorClass_ERROR_CLASS_CANCELLED {
			t.Errorf("the long body: outcome %s, want CANCELLED", got)
		}
	}
	if results != 2 {
		t.Errorf("%d results, want 2", results)
	}
}

// TestManyChecksBodies: a body whose chunks do not fit together is an error of the service, and its
// fetch is cancelled.
func TestManyChecksBodies(t *testing.T) {
	for _, row := range []struct {
		name   string
		events []*pb.FetchEvent
		want   string // the body, unless there is an error
		wrong  bool
	}{
		{"chunks that fit", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), chunk(2, "cd")}, "abcd", false},
		{"a new body", []*pb.FetchEvent{head(0, 200), chunk(0, "abcd"), head(2, 200), chunk(2, "x")}, "abx", false},
		{"a failed response between", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), head(0, 503), head(2, 200), chunk(2, "c")}, "abc", false},
		{"a hole", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), chunk(3, "c"), chunk(4, "d")}, "", true},
		{"a step back", []*pb.FetchEvent{head(0, 200), chunk(0, "ab"), chunk(1, "c")}, "", true},
		{"no head", []*pb.FetchEvent{chunk(0, "ab")}, "", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := &fake{many: afterTask(func(s manyServer, tag string) error {
				for _, m := range row.events {
					if err := s.Send(&pb.FetchManyResponse{Events: []*pb.TaskEvent{{Tag: tag, Event: m}}}); err != nil {
						return err
					}
				}
				if row.wrong {
					if m, err := s.Recv(); err != nil || !slices.Equal(m.GetCancelTags(), []string{tag}) {
						return fmt.Errorf("%v, %w; want the tag to be cancelled", m, err)
					}
				}
				end := success()
				end.GetOutcome().BodySummary = &pb.BodySummary{SizeBytes: int64(len(row.want))}
				err := s.Send(&pb.FetchManyResponse{Events: []*pb.TaskEvent{{Tag: tag, Event: end}}})
				_, _ = s.Recv() // returns when the client half-closes the stream
				return err
			})}
			p := client.NewPool()
			defer p.Close()
			p.Open(t.Context(), f.client(t), 1, nil)
			heads := 0
			out, err := p.Do(t.Context(), client.Task{Request: new(pb.FetchRequest), OnEvent: func(m *pb.FetchEvent) {
				if m.GetResponseStarted() == nil {
					t.Errorf("event %v, want only heads", m)
				}
				heads++
			}})
			if errors.Is(err, client.ErrContract) != row.wrong || !row.wrong && err != nil || string(out.GetInlineBody()) != row.want {
				t.Errorf("%q, %v; want %q", out.GetInlineBody(), err, row.want)
			}
			if row.events[0].GetResponseStarted() != nil && heads == 0 {
				t.Error("OnEvent did not get the head")
			}
		})
	}
}

// TestManyMalformed checks that a request that cannot be sent gets the class INVALID_REQUEST, and that
// the other fetches of the stream go on.
func TestManyMalformed(t *testing.T) {
	r := newRig(t)
	put := func(n int) *pb.FetchRequest {
		in := r.request("/s/put/200")
		in.Method, in.Body = "PUT", make([]byte, n)
		return in
	}
	for _, row := range []struct {
		name string
		in   *pb.FetchRequest
		bad  bool
	}{
		{"a URL that is not UTF-8", &pb.FetchRequest{Url: "http://origin.example/\xff"}, true},
		{"no URL", new(pb.FetchRequest), true},
		{"nil", nil, true},
		{"a body over 1 MiB", put(3 << 19), true},
		{"more than a message holds", put(5 << 20), true},
		{"a body of 1 MiB", put(1 << 20), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			good := func() *pb.FetchRequest { return r.request("/s/good/200:size=10,delay=50ms") }
			results := 0
			for result, err := range r.client.Many(t.Context(), slices.Values([]*pb.FetchRequest{good(), row.in, good()}), client.ManyOptions{}) {
				results++
				failed, _ := errors.AsType[*client.Error](err)
				bad := failed != nil && failed.Class() == pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST
				if want := row.bad && result.Request == row.in; bad != want || !bad && err != nil {
					t.Errorf("error %v, want INVALID_REQUEST: %t", err, want)
				}
			}
			if results != 3 {
				t.Errorf("%d results, want 3", results)
			}
		})
	}
}
