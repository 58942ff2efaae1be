package server_test

import (
	"context"
	"fmt"
	"sort"
	"strings"
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
				out, err := r.Client.FetchUnary(ctx, in)
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
	wantClass(r.T, o, pb.ErrorClass_ERROR_CLASS_DEADLINE, pb.StopReason_STOP_REASON_DEADLINE, attempts)
	if took != want || o.GetTotalDuration().AsDuration() != want {
		r.Errorf("ended after %s, total_duration %s, want %s", took, o.GetTotalDuration().AsDuration(), want)
	}
	if !o.GetError().GetRetryable() || o.GetError().GetClassRule() != "P3" {
		r.Errorf("error %v, want one that is retryable, by P3", o.GetError())
	}
}

// TestHeartbeat checks that a silent stream has a heartbeat every 10 s.
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
		{"OUTCOME", "200:delay=25s", pb.EventLevel_EVENT_LEVEL_OUTCOME, nil, 0, []time.Duration{10 * time.Second, 20 * time.Second}},
		{"a body that is held back", "200:size=24,drip=1@1s", pb.EventLevel_EVENT_LEVEL_OUTCOME, nil, 0, []time.Duration{10 * time.Second, 20 * time.Second}},
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

// TestHeartbeatWithoutMemory checks that a fetch goes on if there is no memory for a heartbeat, or only just.
func TestHeartbeatWithoutMemory(t *testing.T) {
	t.Parallel()
	fetch := func(memory int) (answer string) {
		bubble(t, func(r *rig) {
			in := r.request("/s/k/200:delay=15s")
			in.TimeoutPolicy, in.EventLevel = patient(), pb.EventLevel_EVENT_LEVEL_OUTCOME
			resp := r.post(r.Context(), "/v1/fetch", r.json(in))
			answer = fmt.Sprint(resp.StatusCode, " ", r.text(resp))
		}, withMemory(int64(memory)))
		return answer
	}
	enough := sort.Search(1<<20, func(n int) bool { return strings.Contains(fetch(n), "heartbeat") })
	for n := enough - 160; n < enough; n += 20 {
		if got := fetch(n); strings.Contains(got, "heartbeat") || !strings.Contains(got, "OUTCOME_KIND_SUCCESS") {
			t.Errorf("with %d bytes less: %s, want an outcome without a heartbeat", enough-n, got)
		}
	}
}

// TestHeartbeatOfMany checks that a stream of FetchMany on which nothing was sent for 10 s has a message without
// events, whether or not a task is in flight.
func TestHeartbeatOfMany(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		stream, err := r.Client.FetchMany(r.Context())
		must(r, err)
		began := time.Now()
		var got []string
		in := r.request("/s/k/200:delay=25s")
		in.TimeoutPolicy = patient()
		must(r, stream.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{{Tag: "a", Request: in}}}))
		for range 4 {
			m, err := stream.Recv()
			must(r, err)
			got = append(got, fmt.Sprintf("%v %d", time.Since(began), len(m.GetEvents())))
		}
		if diff := cmp.Diff([]string{"10s 0", "20s 0", "25s 1", "35s 0"}, got); diff != "" {
			r.Errorf("messages (-want +got)\n%s", diff)
		}
		must(r, stream.CloseSend())
	})
}

// TestMessagesNameLimits checks that the message of a failure names the limit with its value, and
// who set it.
func TestMessagesNameLimits(t *testing.T) {
	t.Parallel()
	digest := &pb.BodyPolicy_Digest{}
	maxBody := func(c *server.Config) { c.Limits.MaxBodyBytes = 5000 }
	maxTime := func(c *server.Config) { c.Limits.MaxTotalTimeout = 150 * time.Millisecond }
	total := func(s float64) func(*pb.FetchRequest) {
		return func(in *pb.FetchRequest) { in.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: seconds(s)} }
	}
	for _, row := range []struct {
		name, path string
		config     func(*server.Config)
		change     func(*pb.FetchRequest)
		deadline   time.Duration // of the call; 0: none
		want       string        // in the message
	}{
		{"inline, clamped", "/s/k/200:size=1100000", nil, body(&pb.BodyPolicy{MaxSizeBytes: new(int64(3_000_000)), Delivery: &pb.BodyPolicy_Inline{}}), 0,
			"Content-Length is over the 1048576 bytes that the service delivers inline: call Fetch for more"},
		{"inline, not asked for", "/s/k/200:size=1100000,chunked", nil, body(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_Inline{}}), 0,
			"it is longer than the 1048576 bytes that the service delivers inline"},
		{"the request's", "/s/k/200:size=1001", nil, body(&pb.BodyPolicy{MaxSizeBytes: new(int64(1000))}), 0, "Content-Length is over max_size_bytes 1000, set by the request"},
		{"the request's, inline at most", "/s/k/200:size=1100000", nil, body(&pb.BodyPolicy{MaxSizeBytes: new(int64(1 << 20))}), 0, "max_size_bytes 1048576, set by the request"},
		{"the request's, over the server's", "/s/k/200:size=5001,chunked", maxBody, body(&pb.BodyPolicy{MaxSizeBytes: new(int64(6000))}), 0,
			"it is longer than max_size_bytes 5000, the server's maximum, set by its operator with --max-body-bytes"},
		{"the server's", "/s/k/200:size=5001", maxBody, nil, 0, "max_size_bytes 5000, the server's maximum"},
		{"the profile's", "/s/k/200:size=16777217", nil, body(&pb.BodyPolicy{Delivery: digest}), 0, "max_size_bytes 16777216, the default of profile standard"},
		{"decompression", "/s/k/200:bomb=4000000,coding=gzip", nil, body(&pb.BodyPolicy{Delivery: digest}), 0, "more than 200 times as long, which is a limit of the service"},
		{"a response head", "/s/k/200:head-size=100000", nil, nil, 0, "a response head or trailer has more than 65536 bytes, a limit of the service"},
		{"redirects of the profile", "/r/k/302/6/200", nil, nil, 0, "there were more redirects than max_redirects 5, the default of profile standard"},
		{"redirects of the request", "/r/k/302/6/200", nil, func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(2))} }, 0,
			"max_redirects 2, set by the request"},
		{"attempts", "/s/k/503", nil, retry(&pb.RetryPolicy{MaxAttempts: new(int32(1))}), 0, "server error; no attempt is left of max_attempts 1, set by the request"},
		{"attempts of DOWNLOAD", "/s/k/503", nil, retry(&pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD, MaxDelay: seconds(0.001), MaxJitter: seconds(0)}), 0,
			"max_attempts 4, the default of profile download"},
		{"Retry-After", "/s/k/503:retry-after=100", nil, nil, 0, "Retry-After of 1m40s is over max_retry_after 30s, the default of profile standard"},
		{"Retry-After of the request", "/s/k/503:retry-after=100", nil, retry(&pb.RetryPolicy{MaxRetryAfter: seconds(5)}), 0, "max_retry_after 5s, set by the request"},
		{"a wait", "/s/k/503", nil, func(in *pb.FetchRequest) {
			total(0.15)(in)
			in.RetryPolicy = &pb.RetryPolicy{BaseDelay: seconds(1), MaxDelay: seconds(1)}
		}, 0, "server error; the wait before the next attempt is too long for total_timeout 150ms, set by the request"},
		{"the request's time", "/s/k/silent", nil, total(0.1), 0, "the time limit of the fetch passed: total_timeout 100ms, set by the request"},
		{"the server's time", "/s/k/silent", maxTime, nil, 0, "total_timeout 150ms, the server's maximum, set by its operator with --max-total-timeout"},
		{"the request's time, over the server's", "/s/k/silent", maxTime, total(100), 0, "total_timeout 150ms, the server's maximum"},
		{"the call's time", "/s/k/silent", nil, nil, time.Second, "the deadline of the call, set by the caller, left "},
		{"an attempt's time", "/s/k/silent", nil, func(in *pb.FetchRequest) {
			in.TimeoutPolicy = &pb.TimeoutPolicy{AttemptTimeout: seconds(0.1)}
			in.RetryPolicy = &pb.RetryPolicy{MaxAttempts: new(int32(1))}
		}, 0, "attempt passed: attempt_timeout 100ms, set by the request; no attempt is left of max_attempts 1"},
		{"a client error", "/s/k/404", nil, nil, 0, "the origin refused the request"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var change []func(*server.Config)
			if row.config != nil {
				change = append(change, row.config)
			}
			bubble(t, func(r *rig) {
				ctx := r.Context()
				if row.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
					defer cancel()
				}
				request := func(key string) *pb.FetchRequest {
					in := r.request(strings.Replace(row.path, "/k/", "/"+key+"/", 1))
					if row.change != nil {
						row.change(in)
					}
					return in
				}
				unary, err := r.Client.FetchUnary(ctx, request("unary"))
				must(r, err)
				for _, field := range unary.GetClampedFields() {
					if !strings.Contains(row.name, "clamped") && !strings.Contains(row.name, "over the server's") {
						r.Errorf("%s is clamped", field)
					}
				}
				outcomes := map[string]*pb.FetchOutcome{"FetchUnary": unary.GetOutcome()}
				for i, method := range []string{"Fetch", "FetchMany"} {
					if row.deadline == 0 {
						outcomes[method] = methods[method](r, request(key(i)))
					}
				}
				for method, o := range outcomes {
					if got := o.GetError().GetMessage(); !strings.Contains(got, row.want) {
						r.Errorf("%s: %q, want %q in it", method, got, row.want)
					}
				}
			}, change...)
		})
	}
}
