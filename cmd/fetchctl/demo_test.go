package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/origin"
)

func TestDemoHolds(t *testing.T) {
	t.Parallel()
	got := cli(t, "demo")
	if got.code != exitOK || strings.Contains(got.out, "FAILED") {
		t.Errorf("demo: exit status %d, want 0\n%s%s", got.code, got.out, got.err)
	}
}

// Every rule that the demo shows can be broken, and every scenario about it
// then fails: its checks are not vacuous.
func TestDemoNoticesEveryBrokenRule(t *testing.T) {
	t.Parallel()
	for _, rule := range rulesOf(scenarios) {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			got := cli(t, "demo", "--break", rule)
			if got.code != exitNotHeld {
				t.Errorf("demo --break %s: exit status %d, want %d\n%s%s", rule, got.code, exitNotHeld, got.out, got.err)
			}
			if want := ": 0 ok"; !strings.Contains(got.out, want) {
				t.Errorf("demo --break %s: a scenario about the rule still holds\n%s", rule, got.out)
			}
			for _, want := range []string{"rule " + rule + " is broken", "expected", "got"} {
				if !strings.Contains(got.out, want) {
					t.Errorf("demo --break %s: output lacks %q\n%s", rule, want, got.out)
				}
			}
		})
	}
}

func TestDemoUnknownRule(t *testing.T) {
	t.Parallel()
	got := cli(t, "demo", "--break", "Z9")
	if got.code != exitUsage || !strings.Contains(got.err, "H1, H2") {
		t.Errorf("demo --break Z9: exit status %d, %q; want %d and the known rules", got.code, got.err, exitUsage)
	}
}

func TestDemoList(t *testing.T) {
	t.Parallel()
	got := cli(t, "demo", "--list")
	for i := range scenarios {
		if !strings.Contains(got.out, scenarios[i].story) {
			t.Errorf("demo --list lacks %q", scenarios[i].name)
		}
	}
	if got.code != exitOK {
		t.Errorf("demo --list: exit status %d, want 0", got.code)
	}
}

func TestScenariosAreSound(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for i := range scenarios {
		s := &scenarios[i]
		if names[s.key()] {
			t.Errorf("scenario %q: the origin would count its requests with another's", s.name)
		}
		names[s.key()] = true
		for _, rule := range s.rules() {
			if ruleSentences[rule] == "" {
				t.Errorf("scenario %q: rule %s has no sentence", s.name, rule)
			}
		}
		if len(s.breaks) == 0 {
			t.Errorf("scenario %q shows no rule", s.name)
		}
	}
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := runWith(ctx, "", nil, "demo"); got.code != exitInterrupted {
		t.Errorf("demo: exit status %d, want %d\n%s", got.code, exitInterrupted, got.err)
	}
}

// What the service tells is held against what the origin saw, whatever the
// scenario expects.
func TestJudgeNoticesLies(t *testing.T) {
	t.Parallel()
	s := &scenario{name: "lie", at: "http", path: "/s/KEY/503/200", want: expectation{kind: success, waits: []wait{backoff(firstWait)}, requests: 2}}
	begun := time.Now()
	honest := func() *record {
		return &record{
			outcome: &pb.FetchOutcome{Kind: success, Attempts: 2, Exchanges: 2, FinalUrl: "http://http.origin.test/s/lie/503/200"},
			finished: []*pb.AttemptFinished{
				{Attempt: 1, Hops: []*pb.Hop{{}}, RetryDecision: &pb.RetryDecision{Verdict: pb.RetryVerdict_RETRY_VERDICT_RETRY,
					Rule: "W1", DelaySource: pb.DelaySource_DELAY_SOURCE_BACKOFF, Delay: durationpb.New(firstWait)}},
				{Attempt: 2, Hops: []*pb.Hop{{}}},
			},
			requests: []origin.Request{{Time: begun}, {Time: begun.Add(firstWait)}},
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*record)
		want   []string
	}{
		{"nothing", func(*record) {}, nil},
		{"the call failed", func(r *record) { r.err = errContract }, []string{"the call"}},
		{"a request that was not told", func(r *record) { r.outcome.Exchanges = 1 }, []string{"exchanges told, and requests that the origin saw"}},
		{"a retry that came early", func(r *record) { r.requests[1].Time = begun.Add(firstWait - 1) }, []string{"wait before attempt 2"}},
		{"an attempt that was not told", func(r *record) { r.finished = r.finished[:1] }, []string{"attempts told as they ended"}},
		{"another delay", func(r *record) { r.finished[0].RetryDecision.Delay = durationpb.New(0) }, []string{"waits"}},
		{"a key that nobody gave", func(r *record) { r.requests[1].Header = http.Header{"Idempotency-Key": {"k"}} }, []string{"Idempotency-Key of request 2"}},
		{"bytes that nobody sent", func(r *record) { r.body = []byte("x") }, []string{"body"}},
		{"a wrong digest", func(r *record) { r.outcome.BodySummary = &pb.BodySummary{Sha256: "00"} }, []string{"digest told"}},
		{"another URL", func(r *record) { r.outcome.FinalUrl = "http://elsewhere.test/" }, []string{"final URL"}},
	} {
		rec := honest()
		tt.change(rec)
		var got []string
		for _, m := range s.judge(origin.New(origin.Config{}), rec) {
			got = append(got, m.what)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: what did not hold (-want +got):\n%s", tt.name, diff)
		}
	}
}
