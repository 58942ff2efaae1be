package classify_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
)

func retried(p classify.Policy, seen classify.Observation) bool {
	seen.TimeLeft = classify.Unbounded
	return classify.Decide(&p, &seen).Verdict == classify.Retry
}

func TestUnknownProfileIsStandard(t *testing.T) {
	t.Parallel()
	for _, p := range []classify.Profile{0, 3, 255} {
		if diff := cmp.Diff(classify.Standard.Policy(), p.Policy()); diff != "" {
			t.Errorf("Profile(%d).Policy() (-STANDARD +got):\n%s", p, diff)
		}
	}
}

// TestZeroPolicy checks that the zero policy retries nothing.
func TestZeroPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range classify.Classes() {
		if retried(classify.Policy{}, classify.Observation{Faults: classify.FaultsOf(c)}) {
			t.Errorf("the zero policy retries %s", c)
		}
	}
}

func TestIdempotent(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]bool{
		"": true, "GET": true, "HEAD": true, "PUT": true, "DELETE": true, "OPTIONS": true,
		"POST": false, "PATCH": false, "TRACE": false, "CONNECT": false, "get": false, "PROPFIND": false,
	} {
		if got := classify.Idempotent(method); got != want {
			t.Errorf("Idempotent(%q) = %t, want %t", method, got, want)
		}
		unsafe := classify.Policy{RepeatUnsafe: true}
		if !unsafe.Repeatable(method) {
			t.Errorf("Repeatable(%q) = false where the caller allows it", method)
		}
	}
}

// extremes are values that can overflow a computation.
var extremes = struct {
	durations   []time.Duration
	multipliers []float64
}{
	[]time.Duration{math.MinInt64, -1, 0, 1, 999, time.Millisecond, time.Second, math.MaxInt64 - 1, math.MaxInt64},
	[]float64{
		math.Inf(-1), -1e300, -2, -0.5, 0, math.SmallestNonzeroFloat64, 0.5, 1, 1.7, 2, 10, 1e300,
		math.MaxFloat64, math.Inf(1), math.NaN(),
	},
}

// TestBackoffBounds combines extreme fields with low and high attempt numbers.
func TestBackoffBounds(t *testing.T) {
	t.Parallel()
	attempts := []int{-1, 0, 1, 2, 3, 10, 63, 64, 1000, 1_000_000, math.MaxInt}
	for _, profile := range []classify.Profile{classify.Standard, classify.Download} {
		for _, base := range extremes.durations {
			for _, limit := range extremes.durations {
				for _, multiplier := range extremes.multipliers {
					p := classify.Policy{Profile: profile, BaseDelay: base, MaxDelay: limit, Multiplier: multiplier}
					holdBounds(t, p, attempts)
				}
			}
		}
	}
}

// holdBounds checks that every wait is from 0 to MaxDelay, and that waits do not
// get shorter unless the multiplier is below 1.
func holdBounds(t *testing.T, p classify.Policy, attempts []int) {
	t.Helper()
	last := time.Duration(0)
	for _, n := range attempts {
		got := p.Backoff(n)
		if got < 0 || got > max(p.MaxDelay, 0) {
			t.Errorf("Backoff(%d) = %v of %+v, want 0 to %v", n, got, p, p.MaxDelay)
		}
		if p.Multiplier >= 1 && got < last {
			t.Errorf("Backoff(%d) = %v of %+v, want no less than before, %v", n, got, p, last)
		}
		last = got
	}
}

// TestBackoffSaturates checks that an overflowing backoff is MaxDelay, not zero.
func TestBackoffSaturates(t *testing.T) {
	t.Parallel()
	for _, n := range []int{64, 1000, 1_000_000} {
		p := classify.Policy{Profile: classify.Standard, BaseDelay: time.Second, MaxDelay: math.MaxInt64, Multiplier: 2}
		if got := p.Backoff(n); got != math.MaxInt64 {
			t.Errorf("Backoff(%d) = %v, want %v", n, got, time.Duration(math.MaxInt64))
		}
	}
}

// TestLongestWait checks that the sum of backoff and jitter does not overflow.
func TestLongestWait(t *testing.T) {
	t.Parallel()
	p := classify.Policy{
		Profile: classify.Standard, MaxAttempts: 2, BaseDelay: math.MaxInt64, MaxDelay: math.MaxInt64, Multiplier: 2,
		MaxJitter: math.MaxInt64, JitterSeed: 1,
	}
	d := classify.Decide(&p, &classify.Observation{Status: 503, TimeLeft: classify.Unbounded})
	if d.Verdict != classify.NoTime || d.Delay != 0 {
		t.Errorf("verdict %s, delay %v; want %s and none", d.Verdict, d.Delay, classify.NoTime)
	}
	p.MaxDelay, p.MaxJitter = math.MaxInt64-1, 0 // one nanosecond less fits
	d = classify.Decide(&p, &classify.Observation{Status: 503, TimeLeft: classify.Unbounded})
	if d.Verdict != classify.Retry || d.Delay != p.MaxDelay {
		t.Errorf("verdict %s, delay %v; want %s after %v", d.Verdict, d.Delay, classify.Retry, p.MaxDelay)
	}
}

// TestJitter samples the retries of one fetch, and the first retries of many.
func TestJitter(t *testing.T) {
	t.Parallel()
	policy := func(seed uint64) *classify.Policy {
		return &classify.Policy{Profile: classify.Download, MaxJitter: 500 * time.Millisecond, JitterSeed: seed}
	}
	for _, tt := range []struct {
		name   string
		sample func(i int) time.Duration
	}{
		{"retries 1 to 100 of seed 0", func(i int) time.Duration { return policy(0).Jitter(i + 1) }},
		{"retries 1 to 100 of the largest seed", func(i int) time.Duration { return policy(math.MaxUint64).Jitter(i + 1) }},
		{"retry 1 of a hundred seeds", func(i int) time.Duration { return policy(uint64(i)).Jitter(1) }},
		{"retry 1 of a hundred far seeds", func(i int) time.Duration { return policy(uint64(i) << 40).Jitter(1) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			distinct := make(map[time.Duration]bool)
			sum := time.Duration(0)
			for i := range 100 {
				got := tt.sample(i)
				if got < 0 || got > 500*time.Millisecond || got%time.Millisecond != 0 {
					t.Errorf("sample %d: %v, want whole milliseconds from 0 to 500 ms", i, got)
				}
				if again := tt.sample(i); again != got {
					t.Errorf("sample %d: %v, then %v from the same seed", i, got, again)
				}
				distinct[got] = true
				sum += got
			}
			if mean := sum / 100; mean < 200*time.Millisecond || mean > 300*time.Millisecond {
				t.Errorf("mean %v, want 200 to 300 ms", mean)
			}
			if len(distinct) < 50 {
				t.Errorf("%d distinct values among 100, want at least 50", len(distinct))
			}
		})
	}
}

// TestJitterBounds checks that every limit is obeyed and that both bounds occur.
func TestJitterBounds(t *testing.T) {
	t.Parallel()
	for _, limit := range extremes.durations {
		for seed := range uint64(50) {
			p := classify.Policy{MaxJitter: limit, JitterSeed: seed << 57}
			if got := p.Jitter(1); got < 0 || got > max(limit, 0) {
				t.Errorf("Jitter of at most %v, seed %d: %v", limit, p.JitterSeed, got)
			}
		}
	}
	seen := make(map[time.Duration]bool)
	for seed := range uint64(100) {
		p := classify.Policy{MaxJitter: 3 * time.Millisecond, JitterSeed: seed}
		seen[p.Jitter(1)] = true
	}
	for _, want := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond} {
		if !seen[want] {
			t.Errorf("a jitter of at most 3 ms is never %v", want)
		}
	}
}
