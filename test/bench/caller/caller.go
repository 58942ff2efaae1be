// Package caller puts a load on an origin, directly or through a service, and measures it on
// the side of the caller. A load is a closed loop: a fixed number of fetches are in flight, and
// each one that ends is followed by the next. A response that is not a 200 with a body of the
// length in the URL counts as a failure.
package caller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/wait"
)

// Options describes a load, and has the flags of its program.
type Options struct {
	Kind    string  `required:"" help:"Kind of load."`
	Target  string  `required:"" help:"URL of every fetch. Its last path segment is the length of the body in bytes."`
	GRPC    string  `name:"grpc" help:"HOST:PORT of the service, for the kinds that use one."`
	Open    int     `default:"64" help:"Fetches in flight."`
	Warmup  float64 `default:"1" help:"Seconds before the measurement."`
	Seconds float64 `default:"5" help:"Measured time."`
	Hold    bool    `help:"Measure nothing: start fetches that do not end, and hold them until SIGTERM."`

	record bool // the service records the fetches
}

// Result is what a caller prints as one line of JSON.
type Result struct {
	// Fetches is the number of fetches that ended in the measured time. Failed is how many
	// of them failed.
	Fetches int64 `json:"fetches"`
	Failed  int64 `json:"failed"`
	// Whole is the number of fetches that ended at any time. It is 0 if unknown.
	Whole int64 `json:"whole"`
	// Bytes is the size of the bodies that arrived in the measured time.
	Bytes int64 `json:"bytes"`
	// Seconds is the measured time, and CPUSeconds the CPU time of this process in it.
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	// P50, P90 and P99 are latencies of a fetch in microseconds.
	P50 float64 `json:"p50_us"`
	P90 float64 `json:"p90_us"`
	P99 float64 `json:"p99_us"`
	// MaxRSS is the peak memory of the process in the measured time.
	MaxRSS int64 `json:"max_rss_kib"`
	// Allocs and AllocBytes count the heap allocations of the process.
	Allocs     uint64 `json:"allocs"`
	AllocBytes uint64 `json:"alloc_bytes"`
}

// loop runs one part of a load until the recorder is over.
type loop func(ctx context.Context, r *recorder)

// load is a set of loops that run concurrently, and what is closed after them.
type load struct {
	loops []loop
	close func()
}

// call makes one fetch.
type call func(ctx context.Context, r *recorder) error

// repeat returns a load with a loop for each fetch in flight. make returns the call of a loop.
func repeat(o *Options, make func(i int) call, closed func()) *load {
	l := &load{close: closed}
	for i := range o.Open {
		one := make(i)
		l.loops = append(l.loops, func(ctx context.Context, r *recorder) {
			for !r.over() {
				began := time.Now()
				r.done(began, one(ctx, r))
			}
		})
	}
	return l
}

// same returns a load whose loops all make the same call.
func same(o *Options, one call, closed func()) *load {
	return repeat(o, func(int) call { return one }, closed)
}

// kinds maps each kind to a function that returns its load. size is the length of the body.
var kinds = map[string]func(o *Options, size int64) (*load, error){
	"net-http":           netHTTP,
	"retryablehttp":      retryable,
	"engine":             engine,
	"grpc-unary":         unary(pb.EventLevel_EVENT_LEVEL_UNSPECIFIED),
	"grpc-unary-outcome": unary(pb.EventLevel_EVENT_LEVEL_OUTCOME),
	"grpc-stream":        stream,
	"grpc-store":         store,
	"grpc-many":          many(nil),
	"grpc-unary-record":  recorded(unary(pb.EventLevel_EVENT_LEVEL_UNSPECIFIED)),
	"grpc-many-record":   recorded(many(nil)),
	"grpc-many-stream":   many(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: new(pb.StreamDelivery)}}),
}

// recorded returns a load whose fetches the service records.
func recorded(of func(*Options, int64) (*load, error)) func(*Options, int64) (*load, error) {
	return func(o *Options, size int64) (*load, error) {
		o.record = true
		return of(o, size)
	}
}

// Kinds returns the kinds of load.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// Held fetches start in small batches, because the memory of a burst is not measured.
const (
	batch      = 40
	batchEvery = 10 * time.Millisecond
)

// longest is the backoff of held fetches. It is longer than any measurement.
const longest = 5 * time.Minute

// request returns the request of every fetch.
func (o *Options) request() *pb.FetchRequest {
	r := &pb.FetchRequest{Url: o.Target}
	if o.record {
		r.RecordPolicy = &pb.RecordPolicy{Store: archiveName}
	}
	if o.Hold {
		r.RetryPolicy = &pb.RetryPolicy{BaseDelay: durationpb.New(longest), MaxDelay: durationpb.New(longest)}
		r.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: durationpb.New(2 * longest), AttemptTimeout: durationpb.New(longest), HeaderTimeout: durationpb.New(longest)}
	}
	return r
}

// Run runs the load. It writes the lines "measuring" and "measured" to log when the measured
// time starts and ends. It returns an error if the load cannot start. Failed fetches are
// counted, and the first failure is written to log.
//
// With Hold, it writes "measuring" when all fetches are started, and then waits for the end of
// ctx. It returns an error if a fetch ends earlier.
func Run(ctx context.Context, o Options, log io.Writer) (Result, error) {
	l, ramp, err := o.load()
	if err != nil {
		return Result{}, err
	}
	defer l.close()
	s := newSpan(len(l.loops))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, run := range l.loops {
		if o.Hold && i%batch == 0 && !wait.For(ctx, batchEvery) {
			break
		}
		r := s.recorders[i]
		s.running.Go(func() {
			// Without this, fetches with the same delay would arrive in waves.
			if o.Hold || wait.For(ctx, ramp*time.Duration(i)/time.Duration(len(l.loops))) {
				run(ctx, r)
			}
		})
	}
	var result Result
	if o.Hold {
		err = s.hold(ctx, log)
	} else {
		result, err = s.measure(ctx, o, log)
	}
	s.phase.Store(over)
	if o.Hold { // a measured fetch is not canceled: the service's work for it would not be counted
		cancel()
	}
	s.running.Wait()
	result.Whole = s.whole.Load()
	if why := s.why(); why != nil && !o.Hold {
		_, _ = fmt.Fprintf(log, "a fetch failed: %v\n", why)
	}
	return result, err
}

// load returns the load, and how long its loops take to start.
func (o *Options) load() (*load, time.Duration, error) {
	make, found := kinds[o.Kind]
	if !found {
		return nil, 0, fmt.Errorf("kind %q: give one of %s", o.Kind, strings.Join(Kinds(), ", "))
	}
	if o.Open < 1 {
		return nil, 0, fmt.Errorf("open %d: give 1 or more", o.Open)
	}
	size, delay, err := o.parse()
	if err != nil {
		return nil, 0, err
	}
	l, err := make(o, size)
	return l, delay, err
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// firstFetch is how much longer than asked a measurement waits for its first fetch.
const firstFetch = 30 * time.Second

// measure waits for the warm-up and then measures.
func (s *span) measure(ctx context.Context, o Options, log io.Writer) (Result, error) {
	if !wait.For(ctx, seconds(o.Warmup)) {
		return Result{}, context.Cause(ctx)
	}
	_, _ = io.WriteString(log, "measuring\n")
	before, err := usage()
	if err != nil {
		return Result{}, err
	}
	s.begin()
	ended := s.whole.Load()
	if !wait.For(ctx, seconds(o.Seconds)) {
		return Result{}, context.Cause(ctx)
	}
	// On a busy machine none may have ended yet. Without one there is nothing to divide by.
	more, cancel := context.WithTimeout(ctx, firstFetch)
	_ = wait.Until(more, time.Millisecond, func() bool { return s.whole.Load() > ended }) // otherwise the result has none
	cancel()
	s.end()
	result, err := usage()
	_, _ = io.WriteString(log, "measured\n")
	result.CPUSeconds -= before.CPUSeconds
	result.Allocs -= before.Allocs
	result.AllocBytes -= before.AllocBytes
	s.fill(&result)
	return result, err
}

// hold waits until ctx ends or a fetch ends.
func (s *span) hold(ctx context.Context, log io.Writer) error {
	_, _ = io.WriteString(log, "measuring\n")
	err := wait.Until(ctx, 50*time.Millisecond, func() bool { return s.whole.Load() > 0 })
	if err == nil && ctx.Err() == nil {
		return fmt.Errorf("a fetch that is held ended: %w", cmp.Or(s.why(), errResponse))
	}
	return nil
}

// percentile returns the p-quantile of sorted times in microseconds, or 0 if there are none.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return float64(sorted[max(rank, 1)-1]) / float64(time.Microsecond)
}

// errResponse means that a response is not what the URL asks for.
var errResponse = errors.New("wrong response")

// check returns an error unless the response is a 200 of the wanted size.
func check(status int, got, want int64) error {
	if status != 200 || got != want {
		return fmt.Errorf("%w: status %d with %d bytes, want 200 with %d", errResponse, status, got, want)
	}
	return nil
}
