// Package caller puts a load on an origin, through a service or without one, and
// measures what its caller has of it. A load is a closed loop: so many fetches are
// open at once, and each that ends is followed by the next. Every answer is checked:
// one that is not a 200 with a body of the length that the URL asks for has failed.
package caller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/wait"
)

// Options say which load is put on what.
type Options struct {
	// Kind is one of [Kinds].
	Kind string
	// Target is the URL of every fetch. Its last path segment is the length of the
	// body in bytes.
	Target string
	// GRPC is HOST:PORT of the service, for the kinds that go through one.
	GRPC string
	// Open is how many fetches are open at once; 1 or more.
	Open int
	// Warmup passes before anything is measured, and Span is how long it is measured.
	Warmup, Span time.Duration
}

// Result is what a caller prints, as one line of JSON.
type Result struct {
	Kind string `json:"kind"`
	// Fetches that ended while it was measured, and those of them that failed.
	Fetches int64 `json:"fetches"`
	Failed  int64 `json:"failed"`
	// Whole is how many ended in all, before it was measured and after it too; 0
	// where that is not known.
	Whole int64 `json:"whole"`
	// Bytes of bodies that arrived while it was measured.
	Bytes int64 `json:"bytes"`
	// Seconds by the clock, and of this process's CPU.
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	// Times of a fetch, in microseconds.
	P50 float64 `json:"p50_us"`
	P90 float64 `json:"p90_us"`
	P99 float64 `json:"p99_us"`
	// MaxRSS is the most memory that the process held meanwhile.
	MaxRSS int64 `json:"max_rss_kib"`
	// Allocs and AllocBytes are what the process has allocated on its heap.
	Allocs     uint64 `json:"allocs"`
	AllocBytes uint64 `json:"alloc_bytes"`
}

// loop puts one part of a load on its target until the recorder is over.
type loop func(ctx context.Context, r *recorder)

// load is what a kind makes of its options: loops that run side by side, and what
// is closed after them.
type load struct {
	loops []loop
	close func()
}

// kinds make loads. size is the length of the body.
var kinds = map[string]func(o *Options, size int64) (*load, error){
	"net-http":           netHTTP,
	"retryablehttp":      retryable,
	"engine":             engine,
	"grpc-unary":         unary(pb.EventLevel_EVENT_LEVEL_UNSPECIFIED),
	"grpc-unary-outcome": unary(pb.EventLevel_EVENT_LEVEL_OUTCOME),
	"grpc-stream":        stream,
	"grpc-many":          many,
}

// Kinds are the loads that there are.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// Run puts the load on, and writes "measuring" and "measured" to told, each on a
// line, as the measured time begins and ends. The error says what kept it from
// beginning; fetches that fail are counted, and the first failure goes to told.
func Run(ctx context.Context, o Options, told io.Writer) (Result, error) {
	l, err := o.load()
	if err != nil {
		return Result{}, err
	}
	defer l.close()
	s := newSpan(len(l.loops))
	ramp := delayOf(o.Target)
	for i, run := range l.loops {
		r := s.recorders[i]
		s.running.Go(func() {
			// Fetches that all wait as long would come in waves.
			if wait.For(ctx, ramp*time.Duration(i)/time.Duration(len(l.loops))) {
				run(ctx, r)
			}
		})
	}
	result, err := s.measure(ctx, o, told)
	s.phase.Store(over)
	s.running.Wait() // no fetch is given up in the middle: its service would have work that nobody counts
	result.Whole = s.whole.Load()
	if why := s.why(); why != nil {
		_, _ = fmt.Fprintf(told, "a fetch failed: %v\n", why)
	}
	return result, err
}

func (o *Options) load() (*load, error) {
	make, found := kinds[o.Kind]
	if !found {
		return nil, fmt.Errorf("kind %q: give one of %s", o.Kind, strings.Join(Kinds(), ", "))
	}
	if o.Open < 1 {
		return nil, fmt.Errorf("open %d: give 1 or more", o.Open)
	}
	size, err := sizeOf(o.Target)
	if err != nil {
		return nil, err
	}
	return make(o, size)
}

// measure waits for the warm-up and takes the figures of what follows.
func (s *span) measure(ctx context.Context, o Options, told io.Writer) (Result, error) {
	result := Result{Kind: o.Kind}
	if !wait.For(ctx, o.Warmup) {
		return result, context.Cause(ctx)
	}
	_, _ = io.WriteString(told, "measuring\n")
	before, err := usageNow()
	if err != nil {
		return result, err
	}
	s.begin()
	if !wait.For(ctx, o.Span) {
		return result, context.Cause(ctx)
	}
	s.end()
	after, err := usageNow()
	_, _ = io.WriteString(told, "measured\n")
	after.since(before, &result)
	s.fill(&result)
	return result, err
}

// percentile is the least that a share p of sorted times do not exceed, in
// microseconds; 0 where there are none.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return float64(sorted[max(rank, 1)-1]) / float64(time.Microsecond)
}

// errAnswer says that an answer is not what the URL asks for.
var errAnswer = errors.New("not the answer asked for")

// check holds an answer against what was asked for.
func check(status int, got, want int64) error {
	if status != 200 || got != want {
		return fmt.Errorf("%w: status %d with %d bytes, want 200 with %d", errAnswer, status, got, want)
	}
	return nil
}
