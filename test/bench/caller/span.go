package caller

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fetchd/test/bench/process"
)

// The phases of a load.
const (
	warming int32 = iota
	measuring
	over
)

// span is the measured part of a load.
type span struct {
	phase     atomic.Int32
	whole     atomic.Int64 // fetches that ended at any time
	running   sync.WaitGroup
	recorders []*recorder
	start     time.Time
	took      time.Duration
}

// recorder records the fetches of one loop. It is used by one goroutine. Its figures are read
// after the span; see [recorder.done].
type recorder struct {
	span *span

	mu              sync.Mutex
	times           []time.Duration
	fetches, failed int64
	bytes           int64
	why             error // error of the first failure
}

func newSpan(loops int) *span {
	s := &span{recorders: make([]*recorder, loops)}
	for i := range s.recorders {
		s.recorders[i] = &recorder{span: s}
	}
	return s
}

func (s *span) begin() {
	s.start = time.Now()
	s.phase.Store(measuring)
}

func (s *span) end() {
	s.phase.Store(over)
	s.took = time.Since(s.start)
}

// over reports whether no further fetch may start.
func (r *recorder) over() bool { return r.span.phase.Load() == over }

// arrived counts bytes of a body.
func (r *recorder) arrived(n int64) {
	if r.span.phase.Load() != measuring {
		return
	}
	r.mu.Lock()
	r.bytes += n
	r.mu.Unlock()
}

// done records the end of a fetch. A fetch that ended outside the measured time does not count,
// except that failures during the warm-up count too.
func (r *recorder) done(began time.Time, err error) {
	r.span.whole.Add(1)
	phase := r.span.phase.Load()
	if phase == over || phase == warming && err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if phase == measuring {
		r.fetches++
	}
	if err != nil {
		r.failed++
		if r.why == nil {
			r.why = err
		}
		return
	}
	r.times = append(r.times, time.Since(began))
}

// fill adds up the figures of all loops.
func (s *span) fill(result *Result) {
	var times []time.Duration
	for _, r := range s.recorders {
		r.mu.Lock()
		times = append(times, r.times...)
		result.Fetches += r.fetches
		result.Failed += r.failed
		result.Bytes += r.bytes
		r.mu.Unlock()
	}
	slices.Sort(times)
	result.Seconds = s.took.Seconds()
	result.P50, result.P90, result.P99 = percentile(times, 0.5), percentile(times, 0.9), percentile(times, 0.99)
}

// why returns the first failure of any loop, or nil.
func (s *span) why() error {
	for _, r := range s.recorders {
		r.mu.Lock()
		err := r.why
		r.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// usage returns the CPU time, memory and allocations of this process so far. The peak of the
// memory counts from the last call.
func usage() (Result, error) {
	cpu, err := process.CPU(os.Getpid())
	if err != nil {
		return Result{}, err
	}
	_, peak, err := process.Resident(os.Getpid())
	if err != nil {
		return Result{}, err
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return Result{CPUSeconds: cpu.Seconds(), MaxRSS: peak >> 10, Allocs: memory.Mallocs, AllocBytes: memory.TotalAlloc}, process.ForgetPeak(os.Getpid())
}

// parse returns the length of the body in the target, and the delay of the origin if the target
// is /w/DELAY/SIZE.
func (o *Options) parse() (size int64, delay time.Duration, err error) {
	u, err := url.Parse(o.Target)
	if err != nil {
		return 0, 0, fmt.Errorf("target: %w", err)
	}
	folder, last := path.Split(u.Path)
	size, err = strconv.ParseInt(last, 10, 64)
	if err != nil || size < 0 {
		return 0, 0, fmt.Errorf("target %q: its last path segment is not a number of bytes", o.Target)
	}
	if text, found := strings.CutPrefix(folder, "/w/"); found {
		delay, _ = time.ParseDuration(strings.TrimSuffix(text, "/")) // the origin rejects an invalid one
	}
	return size, delay, nil
}
