package conversion

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
)

// TestConverterKeepsNothing checks that without AttemptFinished events the converter keeps no
// response during a wait.
func TestConverterKeepsNothing(t *testing.T) {
	t.Parallel()
	var told Events
	told.Event(new(pb.FetchEvent), fetch.ResponseStarted{Attempt: 1, Response: &fetch.Response{StatusCode: 200}})
	if told.message != nil {
		t.Errorf("%v is kept", told.message)
	}
}

// TestRateLimitsOfOutcome checks that what is unknown is unset, and that 0 is not unknown.
func TestRateLimitsOfOutcome(t *testing.T) {
	t.Parallel()
	out := Outcome(&fetch.Outcome{RateLimits: []fetch.RateLimit{
		{Name: "a", Source: fetch.RateLimitField, Remaining: 0, Quota: 5, Reset: 0, Window: time.Minute},
		{Source: fetch.XRateLimitWithEpoch, Remaining: 7, Quota: -1, Reset: -1, Window: -1},
	}}, new(fetch.Request), nil)
	want := []*pb.RateLimit{
		{Name: "a", Source: pb.RateLimitSource_RATE_LIMIT_SOURCE_RATELIMIT, Remaining: new(int64(0)), Quota: new(int64(5)),
			ResetDuration: durationpb.New(0), WindowDuration: durationpb.New(time.Minute)},
		{Source: pb.RateLimitSource_RATE_LIMIT_SOURCE_X_RATELIMIT_EPOCH, Remaining: new(int64(7))},
	}
	if diff := cmp.Diff(want, out.GetRateLimits(), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
