package server_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// patient sets every time limit to the server's maximum.
func patient() *pb.TimeoutPolicy {
	most := durationpb.New(15 * time.Minute)
	return &pb.TimeoutPolicy{TotalTimeout: most, AttemptTimeout: seconds(0), HeaderTimeout: most, IdleTimeout: most}
}

// TestDeadlineReserve calls an origin that never ends with deadlines. The outcome arrives before
// the deadline: by 5 %, by at least 250 ms or a quarter, and by at most 1 s (spec §9).
func TestDeadlineReserve(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, script   string
		deadline, ends time.Duration
		attempts       int32
	}{
		{"5 %", "silent", 10 * time.Second, 9500 * time.Millisecond, 1},
		{"5 % is 250 ms", "silent", 5 * time.Second, 4750 * time.Millisecond, 1},
		{"at least 250 ms", "silent", 1500 * time.Millisecond, 1250 * time.Millisecond, 1},
		{"250 ms is a quarter", "silent", time.Second, 750 * time.Millisecond, 1},
		{"a quarter", "silent", 500 * time.Millisecond, 375 * time.Millisecond, 1},
		{"5 % is the most", "silent", 20 * time.Second, 19 * time.Second, 1},
		{"at most 1 s", "silent", 40 * time.Second, 39 * time.Second, 1},
		{"longer than the server's maximum", "200:size=1000,drip=1@7s", 20 * time.Minute, 15 * time.Minute, 1},
		{"a quarter of the shortest", "silent", time.Millisecond, 750 * time.Microsecond, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				in := r.request("/s/k/" + row.script)
				in.TimeoutPolicy = patient()
				began := time.Now()
				ctx, cancel := context.WithTimeout(r.Context(), row.deadline)
				defer cancel()
				a := r.fetch(ctx, in)
				if a.err != nil {
					r.Fatalf("Fetch = %v after %s, want an outcome", a.err, time.Since(began))
				}
				r.wantDeadline(a.outcome, time.Since(began), row.ends, row.attempts)
				if got := a.admitted().GetExpireTime().AsTime(); !got.Equal(began.Add(row.ends)) && row.attempts > 0 {
					r.Errorf("expire_time %s after the begin, want %s", got.Sub(began), row.ends)
				}

				began = time.Now()
				ctx, cancel = context.WithTimeout(r.Context(), row.deadline)
				defer cancel()
				out, err := r.Client.FetchUnary(ctx, &pb.FetchUnaryRequest{Request: in})
				if err != nil {
					r.Fatalf("FetchUnary = %v after %s, want an outcome", err, time.Since(began))
				}
				r.wantDeadline(out.GetOutcome(), time.Since(began), row.ends, row.attempts)
				if got, want := r.Origin.Connections("http"), int(2*row.attempts); got != want {
					r.Errorf("the origin saw %d connections, want %d", got, want)
				}
			})
		})
	}
}

// wantDeadline checks that a fetch ended because its time was over, at that time.
func (r *rig) wantDeadline(o *pb.FetchOutcome, took, want time.Duration, attempts int32) {
	r.Helper()
	wantClass(r.T, o, pb.ErrorClass_ERROR_CLASS_DEADLINE, pb.RetryVerdict_RETRY_VERDICT_DEADLINE, attempts)
	if took != want || o.GetTotalDuration().AsDuration() != want {
		r.Errorf("ended after %s, total_duration %s, want %s", took, o.GetTotalDuration().AsDuration(), want)
	}
	if !o.GetError().GetRetryable() || o.GetError().GetRule() != "P3" {
		r.Errorf("error %v, want one that is retryable, by P3", o.GetError())
	}
}

// TestLimits checks each time limit of a request against a silent origin.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path string
		limits     *pb.TimeoutPolicy
		class      pb.ErrorClass
		stop       pb.RetryVerdict
		ends       time.Duration
	}{
		{"total_timeout", "/s/k/silent", &pb.TimeoutPolicy{TotalTimeout: seconds(5)},
			pb.ErrorClass_ERROR_CLASS_DEADLINE, pb.RetryVerdict_RETRY_VERDICT_DEADLINE, 5 * time.Second},
		{"attempt_timeout", "/s/k/silent", &pb.TimeoutPolicy{AttemptTimeout: seconds(5)},
			pb.ErrorClass_ERROR_CLASS_ATTEMPT_TIMEOUT, pb.RetryVerdict_RETRY_VERDICT_ATTEMPTS_EXHAUSTED, 5 * time.Second},
		{"header_timeout", "/s/k/silent", &pb.TimeoutPolicy{HeaderTimeout: seconds(4)},
			pb.ErrorClass_ERROR_CLASS_RESPONSE_TIMEOUT, pb.RetryVerdict_RETRY_VERDICT_ATTEMPTS_EXHAUSTED, 4 * time.Second},
		{"idle_timeout", "/s/k/200:size=9,stall=3", &pb.TimeoutPolicy{IdleTimeout: seconds(3)},
			pb.ErrorClass_ERROR_CLASS_BODY_TIMEOUT, pb.RetryVerdict_RETRY_VERDICT_ATTEMPTS_EXHAUSTED, 3 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				in := r.request(row.path)
				in.TimeoutPolicy, in.RetryPolicy.MaxAttempts = row.limits, new(int32(1))
				began := time.Now()
				out := r.mustUnary(in).GetOutcome()
				wantClass(r.T, out, row.class, row.stop, 1)
				wantTook(r, "ended", began, row.ends)
			})
		})
	}
}

// TestWaits compares the waits between attempts with the decisions. A wait that does not fit is not
// started.
func TestWaits(t *testing.T) {
	t.Parallel()
	exhausted, noTime := pb.RetryVerdict_RETRY_VERDICT_ATTEMPTS_EXHAUSTED, pb.RetryVerdict_RETRY_VERDICT_NO_TIME
	tooLong := pb.RetryVerdict_RETRY_VERDICT_RETRY_AFTER_TOO_LONG
	for _, row := range []struct {
		name, script string
		policy       *pb.RetryPolicy
		total        time.Duration
		stop         pb.RetryVerdict // none: success
		at           []time.Duration // of each attempt
	}{
		{"backoff of ten seconds", "503/200", &pb.RetryPolicy{BaseDelay: seconds(5), MaxDelay: seconds(10)}, time.Minute, 0, []time.Duration{0, 10 * time.Second}},
		{"STANDARD", "503", &pb.RetryPolicy{MaxAttempts: new(int32(4))}, time.Minute, exhausted,
			[]time.Duration{0, 200 * time.Millisecond, 600 * time.Millisecond, 1400 * time.Millisecond}},
		{"DOWNLOAD without jitter", "503", &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD, MaxJitter: seconds(0)}, time.Minute, exhausted,
			[]time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second}},
		{"Retry-After", "503:retry-after=7/200", nil, time.Minute, 0, []time.Duration{0, 7 * time.Second}},
		{"Retry-After of a date", "429:retry-after-date=9/200", nil, time.Minute, 0, []time.Duration{0, 9 * time.Second}},
		{"Retry-After at its limit", "429:retry-after=30/200", nil, time.Minute, 0, []time.Duration{0, 30 * time.Second}},
		{"Retry-After over its limit", "429:retry-after=31/200", nil, time.Minute, tooLong, []time.Duration{0}},
		{"no time", "503:retry-after=20/200", nil, 10 * time.Second, noTime, []time.Duration{0}},
		{"no time, to the nanosecond", "503:retry-after=10/200", nil, 10 * time.Second, noTime, []time.Duration{0}},
		{"just time enough", "503:retry-after=10/200", nil, 10*time.Second + 1, 0, []time.Duration{0, 10 * time.Second}},
		{"no time for the second wait", "503", &pb.RetryPolicy{BaseDelay: seconds(1), MaxDelay: seconds(4)}, 5 * time.Second, noTime, []time.Duration{0, 2 * time.Second}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				in := r.request("/s/k/" + row.script)
				in.RetryPolicy, in.TimeoutPolicy = row.policy, &pb.TimeoutPolicy{TotalTimeout: durationpb.New(row.total)}
				began := time.Now()
				a := r.mustFetch(in)
				took := time.Since(began)
				var at []time.Duration
				for _, seen := range r.Origin.Requests("k") {
					at = append(at, seen.Time.Sub(began))
				}
				if diff := cmp.Diff(row.at, at); diff != "" {
					r.Errorf("attempts at (-want +got)\n%s", diff)
				}
				if last := row.at[len(row.at)-1]; took != last {
					r.Errorf("ended after %s, want %s: nothing is waited for after the last attempt", took, last)
				}
				for i, f := range a.finished[:len(a.finished)-1] {
					if got, want := f.GetRetryDecision().GetDelay().AsDuration(), row.at[i+1]-row.at[i]; got != want {
						r.Errorf("delay %d reported as %s, want %s", i+1, got, want)
					}
				}
				if got := a.outcome.GetError().GetStopReason(); got != row.stop {
					r.Errorf("stop reason %s, want %s", got, row.stop)
				}
				if row.stop != 0 && (!a.outcome.GetError().GetRetryable() || a.outcome.GetResponse() == nil) {
					r.Errorf("outcome %v, want it retryable, with the last response", a.outcome)
				}
			})
		})
	}
}

// TestJitterIsRepeatable runs a fetch again with the seed that it reported.
func TestJitterIsRepeatable(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		delays := func(p *pb.RetryPolicy) ([]time.Duration, uint64) {
			in := r.request("/s/k/503")
			in.RetryPolicy = p
			a := r.mustFetch(in)
			var waits []time.Duration
			for _, f := range a.finished {
				waits = append(waits, f.GetRetryDecision().GetDelay().AsDuration())
			}
			return waits, a.admitted().GetEffectiveRequest().GetRetryPolicy().GetJitterSeed()
		}
		download := pb.RetryProfile_RETRY_PROFILE_DOWNLOAD
		first, seed := delays(&pb.RetryPolicy{Profile: download})
		again, told := delays(&pb.RetryPolicy{Profile: download, JitterSeed: &seed})
		if !slices.Equal(first, again) || told != seed {
			r.Errorf("waits %v with seed %d, then %v with seed %d; want the same", first, seed, again, told)
		}
		if _, other := delays(&pb.RetryPolicy{Profile: download}); other == seed {
			r.Errorf("seed %d a second time, want one of its own for each fetch", seed)
		}
	})
}

// TestHeartbeat checks that a silent stream has a heartbeat every 10 s, unless only the outcome is
// requested.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	wait := func(in *pb.FetchRequest) {
		in.RetryPolicy = &pb.RetryPolicy{BaseDelay: seconds(58), MaxDelay: seconds(58), MaxAttempts: new(int32(2)), Multiplier: new(1.0)}
	}
	for _, row := range []struct {
		name, script string
		level        pb.EventLevel
		change       func(*pb.FetchRequest)
		heartbeat    time.Duration
		beats        []time.Duration
	}{
		{"silent origin", "200:delay=25s", pb.EventLevel_EVENT_LEVEL_ATTEMPTS, nil, 0, []time.Duration{10 * time.Second, 20 * time.Second}},
		{"ALL", "200:delay=25s", pb.EventLevel_EVENT_LEVEL_ALL, nil, 0, []time.Duration{10 * time.Second, 20 * time.Second}},
		{"OUTCOME", "200:delay=25s", pb.EventLevel_EVENT_LEVEL_OUTCOME, nil, 0, nil},
		{"answer before the first", "200:delay=9999ms", pb.EventLevel_EVENT_LEVEL_ATTEMPTS, nil, 0, nil},
		{"wait between attempts", "503:delay=5s/200", pb.EventLevel_EVENT_LEVEL_ATTEMPTS, wait, 0,
			[]time.Duration{15 * time.Second, 25 * time.Second, 35 * time.Second, 45 * time.Second, 55 * time.Second}},
		{"of another length", "200:delay=25s", pb.EventLevel_EVENT_LEVEL_ATTEMPTS, nil, 20 * time.Second, []time.Duration{20 * time.Second}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				in := r.request("/s/k/" + row.script)
				in.TimeoutPolicy, in.EventLevel = patient(), row.level
				if row.change != nil {
					row.change(in)
				}
				a := r.mustFetch(in)
				var beats []time.Duration
				for _, m := range a.events {
					if m.GetHeartbeat() != nil {
						beats = append(beats, m.GetElapsedOffset().AsDuration())
					}
				}
				if diff := cmp.Diff(row.beats, beats); diff != "" {
					r.Errorf("heartbeats at (-want +got)\n%s", diff)
				}
			}, func(c *server.Config) { c.Heartbeat = row.heartbeat })
		})
	}
}
