package server_test

import (
	"bytes"
	"context"
	"slices"
	"testing"

	pb "fetchd/gen/fetchd/v1"
)

// TestEffectiveRecovery checks the recovery that the first event reports.
func TestEffectiveRecovery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		name   string
		change func(*pb.FetchRequest)
		want   pb.BodyRecovery
	}{
		{"unset", func(*pb.FetchRequest) {}, pb.BodyRecovery_BODY_RECOVERY_RESUME},
		{"none", func(in *pb.FetchRequest) { in.BodyPolicy.Recovery = pb.BodyRecovery_BODY_RECOVERY_NONE }, pb.BodyRecovery_BODY_RECOVERY_NONE},
		{"restart", func(in *pb.FetchRequest) { in.BodyPolicy.Recovery = pb.BodyRecovery_BODY_RECOVERY_RESTART }, pb.BodyRecovery_BODY_RECOVERY_RESTART},
		{"of a PUT", func(in *pb.FetchRequest) { in.Method = "PUT" }, pb.BodyRecovery_BODY_RECOVERY_NONE},
		{"of a digest", func(in *pb.FetchRequest) { in.BodyPolicy.Delivery = pb.BodyDelivery_BODY_DELIVERY_DIGEST }, pb.BodyRecovery_BODY_RECOVERY_NONE},
		{"of a range", func(in *pb.FetchRequest) { in.Headers = []*pb.Header{{Name: "range", Value: "bytes=0-1"}} }, pb.BodyRecovery_BODY_RECOVERY_NONE},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/k/200")
			in.BodyPolicy = new(pb.BodyPolicy)
			row.change(in)
			admitted := r.mustFetch(in).events[0].GetAdmitted()
			if got := admitted.GetEffectiveRequest().GetBodyPolicy().GetRecovery(); got != row.want || len(admitted.GetClampedFields()) != 0 {
				t.Errorf("%s, clamped %q; want %s, none", got, admitted.GetClampedFields(), row.want)
			}
		})
	}
}

// TestResume checks what a caller receives of a body that is resumed, and of a fetch that resumes
// an earlier one.
func TestResume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := r.Origin.Body(2_000_000)
	const step = "200:size=2000000,etag=%22v%22,range"
	in := r.request("/s/a/" + step + ",cut=900000/" + step)
	a := r.mustFetch(in)
	var begins []int64
	for _, e := range a.events {
		if s := e.GetResponseStarted(); s != nil {
			begins = append(begins, s.GetBodyOffsetBytes())
		}
	}
	if !bytes.Equal(a.body, want) || !slices.Equal(begins, []int64{0, 900_000}) || a.outcome.GetAttempts() != 2 {
		t.Errorf("%d bytes, beginning at %d, after %d attempts; want 2000000, at 0 and 900000, after 2", len(a.body), begins, a.outcome.GetAttempts())
	}
	in = r.request("/s/b/" + step)
	in.BodyPolicy = &pb.BodyPolicy{ResumePoint: &pb.ResumePoint{OffsetBytes: 1_500_000, Validator: `"v"`}}
	stream := r.mustStream(t.Context(), in)
	got := want[:1_500_000:1_500_000]
	for {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if c := m.GetBodyChunk(); c != nil {
			if c.GetOffsetBytes() != int64(len(got)) {
				t.Fatalf("chunk at %d, want %d", c.GetOffsetBytes(), len(got))
			}
			got = append(got, c.GetData()...)
		}
		if o := m.GetOutcome(); o != nil {
			if s := o.GetBodySummary(); o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || s.GetSizeBytes() != 2_000_000 || s.GetSha256() != "" {
				t.Errorf("%s, %v; want SUCCESS of 2000000 bytes, and no digest of bytes that were not seen", o.GetKind(), s)
			}
			break
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("the joined body is not the origin's")
	}
}

// TestResumeShowsOneResponse checks, over gRPC and HTTP and at each event level, that a resumed
// body has the response of the whole body, and that each attempt has its own response.
func TestResumeShowsOneResponse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const step = "200:size=2000000,etag=%22v%22,range"
	for _, row := range []struct {
		name     string
		level    pb.EventLevel
		started  []int32 // statuses that ResponseStarted shows
		finished []int32 // statuses that AttemptFinished shows
	}{
		{"outcome", pb.EventLevel_EVENT_LEVEL_OUTCOME, []int32{200, 200}, nil},
		{"attempts", pb.EventLevel_EVENT_LEVEL_ATTEMPTS, []int32{200, 200}, []int32{200, 206}},
	} {
		for endpoint, fetch := range map[string]func(*rig, context.Context, *pb.FetchRequest) *answer{"gRPC": (*rig).fetch, "HTTP": (*rig).fetchWeb} {
			t.Run(row.name+" over "+endpoint, func(t *testing.T) {
				r := r.in(t)
				in := r.request("/s/" + row.name + endpoint + "/" + step + ",cut=900000/" + step)
				in.EventLevel = row.level
				a := fetch(r, t.Context(), in)
				var started, finished []int32
				for _, e := range a.events {
					if s := e.GetResponseStarted(); s != nil {
						started = append(started, s.GetResponse().GetStatusCode())
					} else if s := e.GetAttemptFinished(); s != nil {
						finished = append(finished, s.GetResponse().GetStatusCode())
					}
				}
				if !slices.Equal(started, row.started) || !slices.Equal(finished, row.finished) {
					t.Errorf("responses %d, attempts %d; want %d and %d", started, finished, row.started, row.finished)
				}
				o := a.outcome
				if got := o.GetResponse(); got.GetStatusCode() != 200 || got.GetContentLength() != 2_000_000 || o.GetResponseAttempt() != 1 || o.GetAttempts() != 2 {
					t.Errorf("response %v of attempt %d of %d; want 200 with 2000000 bytes, of attempt 1 of 2", got, o.GetResponseAttempt(), o.GetAttempts())
				}
				for _, h := range o.GetResponse().GetHeaders() {
					if h.GetName() == "Content-Range" {
						t.Errorf("the whole body has the header %s: %s", h.GetName(), h.GetValue())
					}
				}
			})
		}
	}
}
