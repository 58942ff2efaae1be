package timeline_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/cmd/fetchctl/timeline"
	pb "fetchd/gen/fetchd/v1"
)

// record takes messages with nothing since the last.
func record(t *testing.T, r *timeline.Recorder, messages []*pb.FetchEvent, err error) *timeline.Fetch {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		r.Take(m)
	}
	return r.Fetch(0)
}

// lines writes what matters of a timeline, a line each.
func lines(f *timeline.Fetch) []string {
	var out []string
	for _, a := range f.Attempts {
		out = append(out, fmt.Sprintf("%d %v-%v %s", a.Number, a.Start, a.End, a.Next()))
		for _, h := range a.Hops {
			var phases []string
			for _, p := range h.Phases {
				phases = append(phases, fmt.Sprintf("%v %v", p.Kind, p.Duration))
			}
			out = append(out, fmt.Sprintf("%d.%d %s %d %v-%v %s", a.Number, h.Number, h.Method, h.Status, h.Start, h.End, strings.Join(phases, ", ")))
		}
	}
	return out
}

func TestFlaky(t *testing.T) {
	messages, err := flakyFetch()
	f := record(t, new(timeline.Recorder), messages, err)
	want := []string{
		"1 0s-100ms retry in 200ms (W1 backoff)",
		"1.1 GET 302 0s-50ms resolve 5ms, connect 10ms, tls 15ms, wait 18ms, receive 2ms",
		"1.2 GET 503 50ms-100ms wait 30ms, receive 20ms",
		"2 300ms-320ms retry in 400ms (W2 retry_after)",
		"2.1 GET 0 300ms-320ms resolve 4ms, connect 16ms",
		"3 720ms-1s no retry: no_failure (H0)",
		"3.1 GET 302 720ms-800ms blocked 20ms, wait 50ms, receive 10ms",
		"3.2 GET 200 800ms-1s wait 100ms, receive 100ms",
	}
	if diff := cmp.Diff(want, lines(f)); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
	if f.End != time.Second || f.Outcome == nil {
		t.Errorf("end %v, outcome %v", f.End, f.Outcome)
	}
	if e := f.Attempts[0].Hops[0].Error; e != nil {
		t.Errorf("the redirect has the error of the hop after it: %v", e)
	}
}

// TestUnfinished checks that what had not ended is in flight when the record ends.
func TestUnfinished(t *testing.T) {
	started := func(attempt int32, url string) *pb.FetchEvent {
		return &pb.FetchEvent{Event: &pb.FetchEvent_AttemptStarted{AttemptStarted: &pb.AttemptStarted{Attempt: attempt, Url: url}}}
	}
	redirect := func(method string, status int32) *pb.FetchEvent {
		return &pb.FetchEvent{ElapsedOffset: durationpb.New(time.Second), Event: &pb.FetchEvent_RedirectFollowed{RedirectFollowed: &pb.RedirectFollowed{
			Attempt: 1, Hop: &pb.Hop{Url: "http://h/1", Method: method, StatusCode: status, LocationUrl: "http://h/2"}}}}
	}
	head := &pb.FetchEvent{ElapsedOffset: durationpb.New(2 * time.Second), Event: &pb.FetchEvent_ResponseStarted{
		ResponseStarted: &pb.ResponseStarted{Attempt: 1, Response: &pb.HttpResponse{StatusCode: 200, Protocol: "HTTP/1.1"}}}}
	for _, row := range []struct {
		name     string
		messages []*pb.FetchEvent
		want     string // the last hop
	}{
		{"the first request", []*pb.FetchEvent{started(1, "http://h/1")}, "1.1 GET 0 0s-3s blocked 3s"},
		{"after a redirect", []*pb.FetchEvent{started(1, "http://h/1"), redirect("GET", 302)}, "1.2 GET 0 1s-4s blocked 3s"},
		{"a POST after 302", []*pb.FetchEvent{started(1, "http://h/1"), redirect("POST", 302)}, "1.2 GET 0 1s-4s blocked 3s"},
		{"a POST after 307", []*pb.FetchEvent{started(1, "http://h/1"), redirect("POST", 307)}, "1.2 POST 0 1s-4s blocked 3s"},
		{"a PUT after 302", []*pb.FetchEvent{started(1, "http://h/1"), redirect("PUT", 302)}, "1.2 PUT 0 1s-4s blocked 3s"},
		{"a PUT after 303", []*pb.FetchEvent{started(1, "http://h/1"), redirect("PUT", 303)}, "1.2 GET 0 1s-4s blocked 3s"},
		{"a HEAD after 303", []*pb.FetchEvent{started(1, "http://h/1"), redirect("HEAD", 303)}, "1.2 HEAD 0 1s-4s blocked 3s"},
		{"in the body", []*pb.FetchEvent{started(1, "http://h/1"), head}, "1.1 GET 200 0s-5s receive 5s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := new(timeline.Recorder)
			for _, m := range row.messages {
				r.Take(m)
			}
			f := r.Fetch(3 * time.Second)
			got := lines(f)
			if last := got[len(got)-1]; last != row.want {
				t.Errorf("last hop:\n got %s\nwant %s", last, row.want)
			}
			if a := f.Attempts[0]; a.Next() != "in flight when the record ended" || !a.Hops[len(a.Hops)-1].Unfinished {
				t.Errorf("decision %q of %+v, want in flight", a.Next(), a)
			}
		})
	}
}

// TestContinued: the hops of a body that is continued have the responses that were
// received, not that of the whole body.
func TestContinued(t *testing.T) {
	whole := &pb.HttpResponse{StatusCode: 200, Protocol: "HTTP/1.1"}
	rest := &pb.HttpResponse{StatusCode: 206, Protocol: "HTTP/1.1"}
	failed := &pb.HttpResponse{StatusCode: 503, Protocol: "HTTP/1.1"}
	started := func(attempt int32, offset int64, r *pb.HttpResponse) *pb.FetchEvent {
		return &pb.FetchEvent{Event: &pb.FetchEvent_ResponseStarted{ResponseStarted: &pb.ResponseStarted{Attempt: attempt, BodyOffsetBytes: offset, Response: r}}}
	}
	chunk := func(attempt int32, offset int64, data string) *pb.FetchEvent {
		return &pb.FetchEvent{Event: &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{Attempt: attempt, OffsetBytes: offset, Data: []byte(data)}}}
	}
	finished := func(attempt int32, r *pb.HttpResponse) *pb.FetchEvent {
		return &pb.FetchEvent{Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: &pb.AttemptFinished{Attempt: attempt, Response: r,
			Hops: []*pb.Hop{{Url: "http://h/", StatusCode: r.GetStatusCode()}}}}}
	}
	begun := []*pb.FetchEvent{started(1, 0, whole), chunk(1, 0, "abc"), finished(1, whole)}
	for _, row := range []struct {
		name     string
		messages []*pb.FetchEvent
		want     string // status of each attempt's last hop
	}{
		{"continued", append(begun[:3:3], started(2, 3, whole), chunk(2, 3, "de"), finished(2, rest)), "200, 206"},
		{"in flight", append(begun[:3:3], started(2, 3, whole), chunk(2, 3, "d")), "200, 206"},
		{"a 503", append(begun[:3:3], started(2, 3, failed), finished(2, failed)), "200, 503"},
		{"started over", append(begun[:3:3], started(2, 0, whole), chunk(2, 0, "abcde"), finished(2, whole)), "200, 200"},
		{"a resume point", []*pb.FetchEvent{started(1, 3, rest), chunk(1, 3, "de")}, "206"},
	} {
		r := new(timeline.Recorder)
		for _, m := range row.messages {
			r.Take(m)
		}
		var got []string
		for _, a := range r.Fetch(0).Attempts {
			got = append(got, strconv.Itoa(a.Hops[len(a.Hops)-1].Status))
		}
		if text := strings.Join(got, ", "); text != row.want {
			t.Errorf("%s: %s, want %s", row.name, text, row.want)
		}
	}
}

// Where a hop failed without a response, the time that was not measured is in
// the phase that failed.
func TestFailedPhase(t *testing.T) {
	for phase, want := range map[pb.Phase]timeline.Kind{
		pb.Phase_PHASE_POLICY: timeline.Blocked, pb.Phase_PHASE_RESOLVE: timeline.Resolve, pb.Phase_PHASE_CONNECT: timeline.Connect,
		pb.Phase_PHASE_TLS: timeline.TLS, pb.Phase_PHASE_REQUEST: timeline.Send, pb.Phase_PHASE_PROCESSING: timeline.Wait,
		pb.Phase_PHASE_TRANSFER: timeline.Receive, pb.Phase_PHASE_UNSPECIFIED: timeline.Blocked, 99: timeline.Blocked,
	} {
		r := new(timeline.Recorder)
		r.Take(&pb.FetchEvent{ElapsedOffset: durationpb.New(time.Second), Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: &pb.AttemptFinished{
			Attempt: 1, Error: &pb.FetchError{Phase: phase.Enum()}, Hops: []*pb.Hop{{Url: "http://h/"}}}}})
		h := r.Fetch(time.Hour).Attempts[0].Hops[0]
		if diff := cmp.Diff([]timeline.Phase{{Kind: want, Duration: time.Second}}, h.Phases); diff != "" {
			t.Errorf("%v (-want +got):\n%s", phase, diff)
		}
	}
}

// A measured phase that goes beyond the next message is kept.
func TestMeasuredWins(t *testing.T) {
	r := new(timeline.Recorder)
	r.Take(&pb.FetchEvent{ElapsedOffset: durationpb.New(time.Second), Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: &pb.AttemptFinished{
		Attempt: 1, Hops: []*pb.Hop{{StatusCode: 200, Exchange: &pb.Exchange{ProcessingDuration: durationpb.New(2 * time.Second)}}}}}})
	f := r.Fetch(0)
	if got := f.Attempts[0].Hops[0].End; got != 2*time.Second || f.End != got || f.Attempts[0].End != got {
		t.Errorf("hop ends at %v, attempt at %v, fetch at %v: want 2s", got, f.Attempts[0].End, f.End)
	}
}

// A name for each phase, and none twice.
func TestKinds(t *testing.T) {
	seen := map[string]bool{}
	for k := range timeline.Kinds {
		name := timeline.Kind(k).String()
		if name == "unknown" || seen[name] {
			t.Errorf("phase %d is called %q", k, name)
		}
		seen[name] = true
	}
	if got := timeline.Kind(timeline.Kinds).String(); got != "unknown" {
		t.Errorf("a phase that is none is called %q", got)
	}
}
