package frontier

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

const (
	success     = pb.OutcomeKind_OUTCOME_KIND_SUCCESS
	notModified = pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED
	redirected  = pb.OutcomeKind_OUTCOME_KIND_REDIRECT
	failure     = pb.OutcomeKind_OUTCOME_KIND_FAILED
)

// noStore returns no store, for tests that do not use one.
func noStore() store.Store { return nil }

// errorText returns the text of an error.
func errorText(err error) string { return fmt.Sprintf("%v", err) }

// response returns an outcome with a status, validators and one hop.
func response(kind pb.OutcomeKind, status int32, location string) *pb.FetchOutcome {
	return &pb.FetchOutcome{Kind: kind, FinalUrl: "http://a.test/end", AttemptCount: 1, TotalDuration: durationpb.New(time.Second),
		BodySummary: &pb.BodySummary{SizeBytes: 7},
		Hops:        []*pb.Hop{{Url: "http://a.test/end", StatusCode: status, LocationUrl: location}},
		Response: &pb.HttpResponse{StatusCode: status, Headers: []*pb.Header{
			{Name: "Etag", Value: `"1"`}, {Name: "Last-Modified", Value: "yesterday"}, {Name: "X-Etag", Value: "no"}}}}
}

// failed returns a failed outcome.
func failed(status int32, class pb.ErrorClass, retryable bool, asked time.Duration) *pb.FetchOutcome {
	o := response(failure, status, "")
	o.Error = &pb.FetchError{ErrorClass: class, Retryable: retryable, Message: "as it is"}
	if asked != 0 {
		o.Error.RetryAfter = durationpb.New(asked)
	}
	return o
}

// limits adds two rate limits to an outcome.
func limits(o *pb.FetchOutcome, remaining int64, reset time.Duration) *pb.FetchOutcome {
	o.RateLimits = []*pb.RateLimit{{ResetDuration: durationpb.New(2 * reset)}, {Remaining: &remaining, ResetDuration: durationpb.New(reset)}}
	return o
}

// TestBlocksOfGood checks that a page closes its host if nothing is left.
func TestBlocksOfGood(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		outcome *pb.FetchOutcome
		asked   time.Duration
	}{
		{response(success, 200, ""), 0},
		{limits(response(success, 200, ""), 0, 30*time.Second), 30 * time.Second},
		{limits(response(success, 200, ""), 1, 30*time.Second), 0},
		{limits(response(notModified, 304, ""), 0, 100*time.Hour), 24 * time.Hour},
		{limits(response(redirected, 301, "http://b.test/"), 0, 30*time.Second), 30 * time.Second},
	} {
		p := DefaultPolicy()
		e := p.judge(store.Claim{}, row.outcome, totals{})
		if e.blockFor != row.asked || (e.block == "a.test") != (row.asked > 0) || e.fetch.Status != store.Fetched {
			t.Errorf("%v: block %q for %v, status %s, want %v", row.outcome, e.block, e.blockFor, e.fetch.Status, row.asked)
		}
	}
}

func TestJudgeGood(t *testing.T) {
	t.Parallel()
	const elsewhere = "http://b.test/"
	for _, row := range []struct {
		name     string
		follow   bool
		outcome  *pb.FetchOutcome
		finalURL string
		etag     string
		queue    string
	}{
		{"200", true, response(success, 200, ""), "http://a.test/end", `"1"`, ""},
		{"another 2xx", true, response(success, 206, ""), "http://a.test/end", `"1"`, ""},
		{"304", true, response(notModified, 304, ""), "http://a.test/end", `"1"`, ""},
		{"a redirect whose turn did not come", true, response(redirected, 302, elsewhere), "", "", elsewhere},
		{"a redirect that is not wanted", false, response(redirected, 302, elsewhere), "", "", ""},
		{"a redirect to nowhere", true, response(redirected, 302, ""), "", "", ""},
		{"a 3xx that is none", true, response(redirected, 300, elsewhere), "", "", ""},
		{"a 305", true, response(redirected, 305, elsewhere), "", "", ""},
		{"without hops", true, &pb.FetchOutcome{Kind: redirected, Response: &pb.HttpResponse{StatusCode: 302}}, "", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := Policy{FollowRedirects: row.follow}
			claim := store.Claim{Lease: store.Lease{ID: 3, Token: 9}, FailureCount: 2}
			e := p.judge(claim, row.outcome, totals{attempts: 2, duration: 5 * time.Second, wait: time.Second})
			f := e.fetch
			if e.how != record || f.Status != store.Fetched || f.ID != 3 || f.Token != 9 || f.LastError != "" || f.ErrorClass != "" {
				t.Errorf("%+v, want it recorded as fetched", e)
			}
			if f.HTTPStatus != int(row.outcome.GetResponse().GetStatusCode()) || f.Attempts != 2 || f.Duration != 5*time.Second || f.Wait != time.Second {
				t.Errorf("%+v, want the figures of the whole chain", f)
			}
			if f.FinalURL != row.finalURL || f.ETag != row.etag || (f.LastModified != "") != (row.etag != "") || e.queue != row.queue {
				t.Errorf("final %q, etag %q, modified %q, queue %q; want %q, %q, %q", f.FinalURL, f.ETag, f.LastModified, e.queue, row.finalURL, row.etag, row.queue)
			}
			if e.block != "" || e.action != "" {
				t.Errorf("%+v, want nothing done to the host", e)
			}
		})
	}
}

// TestJudgeEveryClass checks every class, retryable and not.
func TestJudgeEveryClass(t *testing.T) {
	t.Parallel()
	back := []pb.ErrorClass{pb.ErrorClass_ERROR_CLASS_CANCELLED, pb.ErrorClass_ERROR_CLASS_SHUTDOWN}
	bare := map[string]bool{"too_many_redirects": true, "redirect_loop": true}
	p := Policy{MaxURLRetries: 2, RetryDelay: time.Minute, MaxRetryDelay: time.Hour}
	for n := range pb.ErrorClass_name {
		class := pb.ErrorClass(n)
		for _, retryable := range []bool{false, true} {
			for failures := range 4 {
				e := p.judge(store.Claim{FailureCount: failures}, failed(0, class, retryable, 0), totals{attempts: 3})
				if slices.Contains(back, class) {
					if e.how != giveBackDelayed {
						t.Errorf("%v: %+v, want the URL back", class, e)
					}
					continue
				}
				name := strings.ToLower(strings.TrimPrefix(class.String(), "ERROR_CLASS_"))
				want := store.Fetch{FetchedParams: store.FetchedParams{Attempts: 3, Bytes: 7}, Status: store.Dead,
					ErrorClass: name, LastError: name + ": as it is"}
				if bare[name] {
					want.LastError = name
				}
				if (retryable || bare[name]) && failures < 2 {
					want.Status, want.RetryIn = store.Failed, time.Minute<<failures
				}
				if e.how != record || e.fetch != want || e.block != "" || e.queue != "" {
					t.Errorf("%v, retryable %v, failed %d times before: %+v, want %+v", class, retryable, failures, e, want)
				}
			}
		}
	}
}

// TestJudgeUnknown checks that an unknown kind or class of a newer service ends the URL.
func TestJudgeUnknown(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	for name, o := range map[string]*pb.FetchOutcome{
		"no kind":       {},
		"another kind":  {Kind: 99, Error: &pb.FetchError{ErrorClass: 999, Message: "new"}},
		"another class": {Kind: failure, Error: &pb.FetchError{ErrorClass: 999, Message: "new"}},
		"no error":      {Kind: failure},
	} {
		if e := p.judge(store.Claim{}, o, totals{}); e.how != record || e.fetch.Status != store.Dead || e.fetch.LastError == "" {
			t.Errorf("%s: %+v, want it dead and why", name, e)
		}
	}
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	const server, limited, client = pb.ErrorClass_ERROR_CLASS_HTTP_SERVER_ERROR, pb.ErrorClass_ERROR_CLASS_RATE_LIMITED, pb.ErrorClass_ERROR_CLASS_HTTP_CLIENT_ERROR
	elsewhere := func(o *pb.FetchOutcome) *pb.FetchOutcome {
		o.Hops = append([]*pb.Hop{{Url: "http://first.test/", StatusCode: 302}}, &pb.Hop{Url: "http://B.test:8080/x", StatusCode: o.GetResponse().GetStatusCode()})
		return o
	}
	noHops := failed(503, server, true, 0)
	noHops.Hops = nil
	strange := failed(503, server, true, 0)
	strange.Hops[0].Url = "::no URL::"
	for _, row := range []struct {
		name    string
		outcome *pb.FetchOutcome
		block   string
		asked   time.Duration
		retryIn time.Duration
	}{
		{"503", failed(503, server, true, 0), "a.test", 0, time.Minute},
		{"503 that asks", failed(503, server, true, 90*time.Second), "a.test", 90 * time.Second, 90 * time.Second},
		{"429", failed(429, limited, true, 0), "a.test", 0, time.Minute},
		{"429 of the last hop's host", elsewhere(failed(429, limited, true, time.Second)), "b.test:8080", time.Second, time.Minute},
		{"503 without hops", noHops, "a.test", 0, time.Minute},
		{"503 of no URL", strange, "", 0, time.Minute},
		{"asked for centuries", failed(503, server, true, math.MaxInt64), "a.test", 24 * time.Hour, 24 * time.Hour},
		{"asked for less than nothing", failed(503, server, true, -time.Hour), "a.test", 0, time.Minute},
		{"500 that asks", failed(500, server, true, time.Hour), "a.test", time.Hour, time.Hour},
		{"404 that asks", failed(404, client, false, time.Hour), "a.test", time.Hour, 0},
		{"500 with nothing left", limits(failed(500, server, true, 0), 0, 90*time.Second), "a.test", 90 * time.Second, 90 * time.Second},
		{"503 that asks, with nothing left", limits(failed(503, server, true, 5*time.Second), 0, 90*time.Second), "a.test", 5 * time.Second, time.Minute},
		{"404 with something left", limits(failed(404, client, false, 0), 1, 90*time.Second), "", 0, 0},
		{"no response", failed(0, pb.ErrorClass_ERROR_CLASS_CONNECT_REFUSED, true, 0), "", 0, time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := DefaultPolicy()
			e := p.judge(store.Claim{}, row.outcome, totals{})
			if e.block != row.block || e.blockFor != row.asked || e.fetch.RetryIn != row.retryIn {
				t.Errorf("block %q for %v, retry in %v; want %q, %v, %v", e.block, e.blockFor, e.fetch.RetryIn, row.block, row.asked, row.retryIn)
			}
			if e.fetch.ETag != "" || e.fetch.LastModified != "" {
				t.Errorf("validators of an error: %+v", e.fetch)
			}
		})
	}
}

// TestTotals checks that a chain of several parts counts as one attempt, and retries in any part
// count as retries.
func TestTotals(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		parts    []int32 // attempts of each
		attempts int
	}{
		{nil, 0},
		{[]int32{0}, 0},
		{[]int32{1}, 1},
		{[]int32{3}, 3},
		{[]int32{1, 1, 1}, 1},
		{[]int32{2, 1, 3}, 4},
		{[]int32{0, 2}, 2},
		{[]int32{2, 0}, 2},
	} {
		var m totals
		for _, n := range row.parts {
			m.add(&pb.FetchOutcome{AttemptCount: n, TotalDuration: durationpb.New(time.Second)}, 2*time.Second)
		}
		parts := time.Duration(len(row.parts))
		if want := (totals{row.attempts, parts * time.Second, parts * 2 * time.Second}); m != want {
			t.Errorf("parts of %v attempts: %+v, want %+v", row.parts, m, want)
		}
	}
}
