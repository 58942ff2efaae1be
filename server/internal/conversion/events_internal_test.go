package conversion

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/classify"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/policies"
	"fetchd/stores"
	"fetchd/test/must"
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

// TestShortenedAttempt checks that it does not keep the headers.
func TestShortenedAttempt(t *testing.T) {
	t.Parallel()
	short, headers, source := func() (*pb.AttemptFinished, weak.Pointer[pb.Header], weak.Pointer[fetch.Response]) {
		response := &fetch.Response{Header: http.Header{"A": {"b"}}}
		a := Attempt(&fetch.AttemptFinished{Attempt: 1, Response: response, Decision: classify.Decision{Rule: "H0"}})
		return Shorten(a), weak.Make(a.GetResponse().GetHeaders()[0]), weak.Make(response)
	}()
	for range 10 {
		runtime.GC()
	}
	if headers.Value() != nil || source.Value() != nil {
		t.Errorf("the headers are still in use: %v, %v", headers.Value(), source.Value())
	}
	if got := short.GetRetryDecision().GetRule(); got != "H0" || short.GetResponse().ContentLength == nil {
		t.Errorf("the rule is %q", got)
	}
}

// TestEncoded checks that the receiver gets the bytes of the effective request, for each mode, limit and URL.
func TestEncoded(t *testing.T) {
	t.Parallel()
	var e Encoded
	r := rand.New(rand.NewPCG(1, 2))
	all := []*Limits{{time.Hour, 1 << 20, false}, {time.Second, 1 << 10, true}, {time.Minute, 1 << 40, false}}
	for range 1000 {
		in := &pb.FetchRequest{Url: "https://a.example/" + strings.Repeat("x", r.IntN(300))}
		plain := r.IntN(4) > 0
		if !plain {
			in.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
		}
		p, err := Convert(in, "", []Mode{FetchMode, UnaryMode, ManyMode}[r.IntN(3)], all[r.IntN(len(all))], &Configured{Stores: new(stores.Set)})
		must.Succeed(t, err)
		want, err := proto.Marshal(&pb.FetchUnaryResponse{EffectiveRequest: p.Effective()})
		must.Succeed(t, err)
		resp := new(pb.FetchUnaryResponse)
		if e.Add(resp, &p) != plain {
			t.Fatalf("%v: added: %t", in, !plain)
		}
		if got, err := proto.Marshal(resp); plain && (err != nil || !bytes.Equal(got, want)) {
			t.Fatalf("%v: %x, %v, want %x", in, got, err, want)
		}
		if p.Lower(&policies.Request{MaxAttempts: 1}); e.Add(resp, &p) {
			t.Fatal("the effective request of a policy is that of another one")
		}
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
