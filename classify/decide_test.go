package classify_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
)

// TestNothingObserved checks that a zero observation is classified as an internal
// failure, not as one of the origin.
func TestNothingObserved(t *testing.T) {
	t.Parallel()
	p := classify.Standard.Policy()
	want := classify.Decision{
		Kind: classify.Failed, Class: classify.Internal, FailureType: classify.Transient, ClassRule: "P6",
		Verdict: classify.NotRetried, Rule: "P6",
	}
	if diff := cmp.Diff(want, classify.Decide(&p, &classify.Observation{})); diff != "" {
		t.Errorf("Decide of nothing (-want +got):\n%s", diff)
	}
}

// TestDecideInvariants checks what must be true of every decision, for random and
// extreme policies and observations.
func TestDecideInvariants(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 100_000 {
		p, seen := arbitrary(random)
		holdInvariants(t, &p, &seen)
		if t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
}

// FuzzDecide checks the same invariants with fuzzed values.
func FuzzDecide(f *testing.F) {
	f.Add(uint64(1), 503, "", "", uint64(0))
	f.Add(uint64(2), 429, "20", "", uint64(0))
	f.Add(uint64(3), 429, "Mon, 02 Mar 2026 07:00:20 GMT", "Mon, 02 Mar 2026 07:00:00 GMT", uint64(0))
	f.Add(uint64(4), 0, "", "", uint64(classify.FaultsOf(classify.ConnectionReset)))
	f.Add(uint64(5), 302, "", "", uint64(0))
	f.Fuzz(func(t *testing.T, seed uint64, status int, retryAfter, date string, faults uint64) {
		p, seen := arbitrary(rand.New(rand.NewPCG(seed, 0)))
		seen.Status, seen.RetryAfter, seen.Date, seen.Faults = status, retryAfter, date, classify.Faults(faults)
		holdInvariants(t, &p, &seen)
	})
}

func pickOne[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

// arbitrary returns a random policy and observation, which may be nonsensical.
func arbitrary(random *rand.Rand) (classify.Policy, classify.Observation) {
	p := pickOne(random, classify.Standard, classify.Download).Policy()
	if random.IntN(2) == 0 {
		p.BaseDelay, p.MaxDelay = pickOne(random, extremes.durations...), pickOne(random, extremes.durations...)
		p.Multiplier = pickOne(random, extremes.multipliers...)
		p.MaxJitter, p.MaxRetryAfter = pickOne(random, extremes.durations...), pickOne(random, extremes.durations...)
	}
	statuses := []int{-1, 0, 1, 99, 100, 101, 199, 200, 204, 299, 300, 301, 302, 303, 304, 305, 307, 308, 399, 400, 401,
		403, 404, 408, 410, 421, 425, 429, 451, 499, 500, 503, 599, 600, 999, math.MaxInt}
	p.JitterSeed, p.RepeatUnsafe = random.Uint64(), random.IntN(4) == 0
	p.MaxAttempts = pickOne(random, math.MinInt, 0, 1, 2, 3, 11, math.MaxInt)
	p.Follow, p.MaxRedirects = random.IntN(2) == 0, pickOne(random, -1, 0, 5, 20)
	p.RetryTLSHandshake = random.IntN(2) == 0
	if random.IntN(4) == 0 {
		p.Additional, p.Excluded = []int{pickOne(random, statuses...)}, []int{pickOne(random, statuses...)}
	}
	methods := []string{"", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"}
	seen := classify.Observation{
		Method: pickOne(random, methods...), HopMethod: pickOne(random, methods...),
		Attempt: pickOne(random, math.MinInt, 0, 1, 2, 3, 10, math.MaxInt), Redirects: pickOne(random, -1, 0, 4, 5, 20),
		Status: pickOne(random, statuses...),
		RetryAfter: pickOne(random, "", "0", "5", "99999999999999999999", "-1", "Mon, 02 Mar 2026 07:00:20 GMT",
			"Fri, 31 Dec 9999 23:59:59 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"),
		Date:      pickOne(random, "", "Mon, 02 Mar 2026 07:00:00 GMT", "Sat Jan  1 00:00:00 0000", "soon"),
		Exhausted: pickOne(random, extremes.durations...),
		Location:  pickOne(random, classify.NoLocation, classify.OutOfScope, classify.InScope, 200),
		Auth: pickOne(random, classify.NoProvider, classify.Refreshed, classify.RefreshFailed, classify.RefusedAgain,
			classify.NotAsked, classify.Challenged, 200),
		Request:     pickOne(random, 0, classify.NotSent, classify.NotProcessed, classify.Unknown, 200),
		Reused:      random.IntN(2) == 0,
		Conditional: random.IntN(2) == 0, BodyCommitted: random.IntN(8) == 0,
		Observed: pickOne(random, time.Time{}, time.Unix(0, 0), time.Date(2026, 3, 2, 7, 0, 0, 5, time.UTC),
			time.Date(math.MaxInt32, 1, 1, 0, 0, 0, 0, time.UTC)),
		TimeLeft: pickOne(random, append(extremes.durations, time.Minute)...),
	}
	for range random.IntN(3) {
		seen.Faults = seen.Faults.With(pickOne(random, classify.Classes()...))
	}
	if random.IntN(20) == 0 {
		seen.Faults = classify.Faults(random.Uint64())
	}
	return p, seen
}

// never lists the classes that no profile retries (spec §3).
var never = classify.FaultsOf(classify.TLSCertificate, classify.Protocol, classify.Forbidden,
	classify.UnexpectedNotModified, classify.TooManyRedirects, classify.RedirectLoop, classify.RedirectRejected,
	classify.ContentType, classify.EmptyBody, classify.Undecodable, classify.BodyTooLarge, classify.Integrity,
	classify.TargetBlocked, classify.InvalidRequest, classify.Deadline, classify.Cancelled, classify.Shutdown,
	classify.Internal, classify.OutOfMemory, classify.StoreFailure)

// invariant is a condition that every decision must meet.
type invariant struct {
	what  string
	holds bool
}

func holdInvariants(t *testing.T, p *classify.Policy, seen *classify.Observation) {
	t.Helper()
	d := classify.Decide(p, seen)
	if again := classify.Decide(p, seen); again != d {
		t.Errorf("decided %+v, then %+v", d, again)
	}
	for _, of := range [][]invariant{ofEnd(&d), ofClass(p, seen, &d), ofRetry(p, seen, &d), ofWait(p, seen, &d)} {
		for _, rule := range of {
			if !rule.holds {
				t.Errorf("%s: got %+v\npolicy %+v\nobservation %+v", rule.what, d, *p, *seen)
			}
		}
	}
}

// implies reads better than !a || b.
func implies(a, b bool) bool { return !a || b }

func ofEnd(d *classify.Decision) []invariant {
	failed := d.Class != classify.NoClass
	return []invariant{
		{"followed: nothing else is set", implies(d.Follow, *d == classify.Decision{Follow: true})},
		{"an end has a kind, a verdict and a rule",
			implies(!d.Follow, d.Kind != classify.NoKind && d.Verdict != classify.NoVerdict && d.Rule != "")},
		{"no_failure means no failure", (d.Verdict == classify.NoFailure) == (d.Kind != classify.Failed && !d.Follow)},
		{"failed means a class", (d.Kind == classify.Failed) == failed},
		{"a class has a rule and a type", failed == (d.ClassRule != "" && d.FailureType != classify.NoFailureType)},
		{"retryable means a failure", implies(d.Retryable, failed)},
	}
}

func ofClass(p *classify.Policy, seen *classify.Observation, d *classify.Decision) []invariant {
	// A policy with random statuses may list some that spec §3 does not allow.
	retried := d.Verdict == classify.Retry && len(p.Additional)+len(p.Excluded) == 0
	refresh := d.DelaySource == classify.FromAuthRefresh
	repeatable := p.Repeatable(seen.Method)
	return []invariant{
		{"what is never retried is not", implies(retried, !never.Has(d.Class) || d.Class == classify.Forbidden && refresh)},
		{"a 403 is sent again only if it may be", implies(refresh && d.Class == classify.Forbidden, repeatable || seen.HopMethod == "GET")},
		{"a 401 is retried through a provider only", implies(retried && d.Class == classify.AuthRequired, refresh)},
		{"what has an effect is repeated from its start by a refresh only",
			implies(d.Start == classify.FirstURL, repeatable || refresh)},
		{"only a hop that is a GET is tried by itself",
			implies(d.Start == classify.FailedHop, !repeatable && seen.HopMethod == "GET")},
		{"what may have had an effect is not retryable", implies(d.Retryable && !repeatable, seen.Request == classify.NotSent || seen.Request == classify.NotProcessed)},
	}
}

func ofRetry(p *classify.Policy, seen *classify.Observation, d *classify.Decision) []invariant {
	retry := d.Verdict == classify.Retry
	return []invariant{
		{"a retry begins before the time is over", implies(retry, d.Delay >= 0 && d.Delay < seen.TimeLeft)},
		{"a retry is the next attempt", implies(retry, d.NextAttempt == max(seen.Attempt, 1)+1)},
		{"a retry is within the limit", implies(retry, d.NextAttempt <= p.MaxAttempts)},
		{"a retry has a source and a start", retry == (d.DelaySource != classify.NoDelay && d.Start != classify.NoStart)},
		{"no retry: no delay, no next attempt", implies(!retry, d.Delay == 0 && d.NextAttempt == 0)},
		{"nothing is repeated that was delivered", implies(retry, !seen.BodyCommitted)},
	}
}

func ofWait(p *classify.Policy, seen *classify.Observation, d *classify.Decision) []invariant {
	longest := saturated(max(p.MaxDelay, 0), max(p.MaxJitter, 0))
	return []invariant{
		{"a backoff is within its caps", implies(d.DelaySource == classify.FromBackoff, d.Delay <= longest)},
		{"a Retry-After is obeyed to the letter",
			implies(d.DelaySource == classify.FromRetryAfter, d.HasRetryAfter && d.Delay == d.RetryAfter)},
		{"a Retry-After is waited for within its cap",
			implies(d.DelaySource == classify.FromRetryAfter, d.Delay <= p.MaxRetryAfter)},
		{"a Retry-After is not negative", d.RetryAfter >= 0},
		{"no Retry-After has no value", implies(!d.HasRetryAfter, d.RetryAfter == 0)},
		{"a Retry-After is waited for on 429 and 503", implies(d.DelaySource == classify.FromRetryAfter, seen.Status == 429 || seen.Status == 503)},
		{"a new connection is not waited for",
			implies(d.DelaySource == classify.FromNewConnection, d.Delay == 0 && d.ClassRule == "H11" && seen.Status == 421 && seen.Reused)},
		{"a refresh waits for nothing",
			implies(d.DelaySource == classify.FromAuthRefresh, d.Delay == 0 && (d.Class == classify.AuthRequired || d.Class == classify.Forbidden))},
	}
}

func saturated(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}
