package show

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// finished is the end of an attempt, with a retry after a delay.
func finished(delay time.Duration, source pb.DelaySource) *pb.FetchEvent {
	return &pb.FetchEvent{Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: &pb.AttemptFinished{Attempt: 1, RetryDecision: &pb.RetryDecision{
		Next: &pb.RetryDecision_Retry{Retry: &pb.Retry{Attempt: 2, Delay: durationpb.New(delay), DelaySource: source}}}}}}
}

// TestWait checks what a person sees while nothing happens.
func TestWait(t *testing.T) {
	t.Parallel()
	started := &pb.FetchEvent{Event: &pb.FetchEvent_AttemptStarted{AttemptStarted: &pb.AttemptStarted{Attempt: 2}}}
	for _, row := range []struct {
		name  string
		event *pb.FetchEvent
		after time.Duration
		want  []string
	}{
		{"Retry-After", finished(20*time.Second, pb.DelaySource_DELAY_SOURCE_RETRY_AFTER), 2500 * time.Millisecond, []string{
			"attempt 2 in 20s: the origin asked for 20s (Retry-After)", "attempt 2 in 19s: the origin asked for 20s (Retry-After)", "attempt 2 in 18s: the origin asked for 20s (Retry-After)"}},
		{"backoff", finished(1500*time.Millisecond, pb.DelaySource_DELAY_SOURCE_BACKOFF), 2500 * time.Millisecond, []string{
			"attempt 2 in 2s: a wait of 1.5s (backoff)", "attempt 2 in 1s: a wait of 1.5s (backoff)", "attempt 2 in 0s: a wait of 1.5s (backoff)"}},
		{"a short wait", finished(900*time.Millisecond, pb.DelaySource_DELAY_SOURCE_BACKOFF), time.Minute, nil},
		{"a slow origin", started, 2500 * time.Millisecond, []string{"attempt 2: waiting for the origin, 1s", "attempt 2: waiting for the origin, 2s"}},
		{"a fast origin", started, 900 * time.Millisecond, nil},
		{"another event", &pb.FetchEvent{Event: &pb.FetchEvent_Admitted{}}, time.Minute, nil},
		{"the last attempt", &pb.FetchEvent{Event: &pb.FetchEvent_AttemptFinished{}}, time.Minute, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				p := &Progress{Waits: true, Out: &cli.Printer{W: &out}, Columns: 80}
				stop := p.Wait(row.event)
				<-time.After(row.after)
				stop()
				stop()
				want := ""
				for _, text := range row.want {
					want += "\r" + text + "\x1b[K"
				}
				if want != "" {
					want += "\r\x1b[K"
				}
				if got := out.String(); got != want {
					t.Errorf("drawn %q, want %q", got, want)
				}
			})
		})
	}
	var none *Progress
	none.Wait(started)()
	(&Progress{}).Wait(started)()
}

// TestEnded checks the summary of an attempt.
func TestEnded(t *testing.T) {
	t.Parallel()
	e := finished(20*time.Second, pb.DelaySource_DELAY_SOURCE_RETRY_AFTER).GetAttemptFinished()
	e.Response = &pb.HttpResponse{StatusCode: 429}
	e.Error = &pb.FetchError{ErrorClass: pb.ErrorClass_ERROR_CLASS_RATE_LIMITED, ClassRule: "H2"}
	e.RetryDecision.Rule = "W2"
	if got, want := Ended(e), "429 Too Many Requests, rate_limited (H2), retry in 20s (W2 retry_after)"; got != want {
		t.Errorf("Ended: %q, want %q", got, want)
	}
	if got := Ended(&pb.AttemptFinished{}); strings.Contains(got, "%!") {
		t.Errorf("Ended: %q", got)
	}
}
