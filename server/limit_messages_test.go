package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// TestMessagesNameLimits checks that the message of a failure names the limit with its value, and
// who set it.
func TestMessagesNameLimits(t *testing.T) {
	t.Parallel()
	digest := pb.BodyDelivery_BODY_DELIVERY_DIGEST
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
		{"inline, clamped", "/s/k/200:size=1100000", nil, body(&pb.BodyPolicy{MaxSizeBytes: new(int64(3_000_000)), Delivery: pb.BodyDelivery_BODY_DELIVERY_INLINE}), 0,
			"Content-Length is over the 1048576 bytes that the service delivers inline: call Fetch for more"},
		{"inline, not asked for", "/s/k/200:size=1100000,chunked", nil, body(&pb.BodyPolicy{Delivery: pb.BodyDelivery_BODY_DELIVERY_INLINE}), 0,
			"it is longer than the 1048576 bytes that the service delivers inline"},
		{"the request's", "/s/k/200:size=1001", nil, body(&pb.BodyPolicy{MaxSizeBytes: new(int64(1000))}), 0, "Content-Length is over max_size_bytes 1000, set by the request"},
		{"the request's, inline at most", "/s/k/200:size=1100000", nil, body(&pb.BodyPolicy{MaxSizeBytes: new(int64(1 << 20))}), 0, "max_size_bytes 1048576, set by the request"},
		{"the request's, over the server's", "/s/k/200:size=5001,chunked", maxBody, body(&pb.BodyPolicy{MaxSizeBytes: new(int64(6000))}), 0,
			"it is longer than max_size_bytes 5000, the server's maximum, set by its operator with --max-body-bytes"},
		{"the server's", "/s/k/200:size=5001", maxBody, nil, 0, "max_size_bytes 5000, the server's maximum"},
		{"the profile's", "/s/k/200:size=16777217", nil, body(&pb.BodyPolicy{Delivery: digest}), 0, "max_size_bytes 16777216, the default of profile standard"},
		{"decompression", "/s/k/200:bomb=4000000,coding=gzip", nil, body(&pb.BodyPolicy{Delivery: digest}), 0, "more than 200 times as long, which is a limit of the service"},
		{"a response head", "/s/k/200:head-size=100000", nil, nil, 0, "a response head has more than 65536 bytes, a limit of the service"},
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
				unary, err := r.Client.FetchUnary(ctx, &pb.FetchUnaryRequest{Request: request("unary")})
				if err != nil {
					r.Fatal(err)
				}
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
