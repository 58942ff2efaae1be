package caller

import (
	"fmt"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fetchd/bench/process"
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

// usage is the CPU time and memory that this process has used so far.
type usage struct {
	cpu    time.Duration
	memory runtime.MemStats
	peak   int64
}

// usageNow reads the usage. The peak of the memory counts from the last call.
func usageNow() (usage, error) {
	var u usage
	var err error
	if u.cpu, err = process.CPU(os.Getpid()); err != nil {
		return u, err
	}
	if _, u.peak, err = process.Resident(os.Getpid()); err != nil {
		return u, err
	}
	runtime.ReadMemStats(&u.memory)
	return u, process.ForgetPeak(os.Getpid())
}

func (u *usage) since(before usage, result *Result) {
	result.CPUSeconds = (u.cpu - before.cpu).Seconds()
	result.MaxRSS = u.peak >> 10
	result.Allocs = u.memory.Mallocs - before.memory.Mallocs
	result.AllocBytes = u.memory.TotalAlloc - before.memory.TotalAlloc
}

// sizeOf returns the length of the body in a target.
func sizeOf(target string) (int64, error) {
	segments, err := segmentsOf(target)
	if err != nil {
		return 0, err
	}
	size, err := strconv.ParseInt(segments[len(segments)-1], 10, 64)
	if err != nil || size < 0 {
		return 0, fmt.Errorf("target %q: its last path segment is not a number of bytes", target)
	}
	return size, nil
}

// delayOf returns the delay of the origin in a target /w/DELAY/SIZE, and 0 for others.
func delayOf(target string) time.Duration {
	segments, err := segmentsOf(target)
	if err != nil || len(segments) != 3 || segments[0] != "w" {
		return 0
	}
	delay, _ := time.ParseDuration(segments[1]) // the origin rejects an invalid one
	return delay
}

func segmentsOf(target string) ([]string, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	return strings.Split(strings.Trim(u.Path, "/"), "/"), nil
}
