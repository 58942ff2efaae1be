//go:build linux

package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// TestMemory makes callers and origins stall in the ways that cost the service the most memory.
func TestMemory(t *testing.T) {
	long(t)
	t.Run("callers that read nothing", func(t *testing.T) { unread(t, "", 300) })
	t.Run("callers that read nothing of unknown length", func(t *testing.T) { unread(t, ",no-length", 300+256) })
	t.Run("fetches that wait", waiting)
	t.Run("GOAWAY for ever", goAway)
}

// unread makes 1,000 callers request 1 GiB each, half of them over HTTP/2, and read nothing.
// limit is the live heap in MiB: each call has gRPC's send queue, a chunk, and over HTTP/2 a
// window of 128 KiB. Bodies of this known length are not buffered. Bodies of unknown length
// are buffered as far as the budget of 256 MiB allows. The process may use twice the live
// heap, because the collector waits that long.
func unread(t *testing.T, form string, limit int64) {
	const (
		callers, conns, small = 1000, 25, 50
		// The service collects after 10 s without work, and allows a caller 30 s. A collection
		// before that also counts what was allocated while it ran.
		hold = 15 * time.Second
		most = 28 * time.Second
	)
	ctx := long(t)
	p := start(ctx, t)
	clients := p.dial(conns)
	idle := p.memory()
	size := int64(1) << 31
	calling, leave := context.WithCancel(ctx)
	defer leave()
	end := time.Now().Add(most) // before the service gives the first caller up
	for i := range callers {
		listener := []string{"http", "https"}[i%2]
		_, err := clients[i%conns].Fetch(calling, &pb.FetchRequest{ // the stream is not read
			Url:        p.origin.URL(listener, "/s/held/200:size=1073741824"+form),
			BodyPolicy: &pb.BodyPolicy{MaxSizeBytes: &size},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.arrived(ctx, "held", callers); err != nil {
		t.Fatalf("%d of %d requests have reached the origin: %v", len(p.origin.Requests("held")), callers, err)
	}
	served := time.Now()
	p.fetchSmall(ctx, p.dial(1)[0], small)
	took := time.Since(served)
	wait.For(ctx, min(hold, time.Until(end)))
	for p.Heap.Live.Load() > limit && time.Now().Before(end) { // a collection late in the burst puts the next one off
		wait.For(ctx, time.Second/4)
	}
	protocols := make(map[string]int)
	for _, r := range p.origin.Requests("held") {
		if r.End == "" {
			protocols[r.Protocol]++
		}
	}
	t.Logf("idle: %s", idle)
	t.Logf("%d callers read nothing of 1 GiB (%d over HTTP/1.1, %d over HTTP/2): %s", callers, protocols["HTTP/1.1"], protocols["HTTP/2.0"], p.memory())
	t.Logf("%d small fetches meanwhile in %v", small, took.Round(time.Millisecond))
	if n := protocols["HTTP/1.1"] + protocols["HTTP/2.0"]; n != callers {
		t.Errorf("%d fetches are still in flight, want %d", n, callers)
	}
	rig.AtMost(t, "live heap in MiB", p.Heap.Live.Load(), limit, limit)
	rig.AtMost(t, "resident in MiB", p.peak(), 2*limit, 2*limit)
	cancelledAt := time.Now()
	leave()
	p.ended(ctx, callers+small)
	t.Logf("cancelled: all had ended after %v", time.Since(cancelledAt).Round(time.Millisecond))
}

// waiting makes 10,000 fetches wait for a Retry-After, and then cancels them all.
func waiting(t *testing.T) {
	const (
		fetches, conns, atOnce = 10_000, 20, 100
		// A waiting fetch uses about 10 KiB of heap, and a goroutine with 8 KiB of stack.
		// The memory limit makes the collector keep within that; without it the heap
		// would grow to twice the live heap.
		memoryLimit         = "GOMEMLIMIT=224MiB"
		limitRSS            = 256
		goalGone, limitGone = 2 * time.Second, 6 * time.Second // of CPU: one and three seconds on two cores
	)
	ctx := long(t)
	p := start(ctx, t, memoryLimit)
	clients := p.dial(conns)
	calling, leave := context.WithCancel(ctx)
	defer leave()
	var waits atomic.Int64
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	began := time.Now()
	for i := range fetches {
		slots <- struct{}{}
		group.Go(func() {
			once := sync.OnceFunc(func() { <-slots })
			defer once()
			p.untilWait(calling, clients[i%conns], func() { waits.Add(1); once() })
		})
	}
	if err := wait.Poll(ctx, 10*time.Millisecond, func() (bool, error) { return waits.Load() >= fetches, nil }); err != nil {
		t.Fatalf("%d of %d fetches wait: %v", waits.Load(), fetches, err)
	}
	t.Logf("%d fetches wait, after %v: %s", waits.Load(), time.Since(began).Round(time.Millisecond), p.memory())
	rig.AtMost(t, "resident in MiB", p.peak(), limitRSS, limitRSS)
	probe := p.dial(1)[0]
	if err := p.small(ctx, probe); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more fetch = %v, want RESOURCE_EXHAUSTED", err)
	}
	before := p.finished.Load()
	cancelledAt, used := time.Now(), p.cpu()
	leave()
	var admitted time.Duration
	if err := wait.Poll(ctx, time.Millisecond, func() (bool, error) {
		err := p.small(ctx, probe)
		if status.Code(err) == codes.ResourceExhausted {
			return false, nil
		}
		admitted = time.Since(cancelledAt)
		return true, err
	}); err != nil {
		t.Errorf("a fetch after the cancel: %v", err)
	}
	p.ended(ctx, before+fetches+1)
	gone := time.Since(cancelledAt)
	used = p.cpu() - used
	group.Wait()
	t.Logf("cancelled: the next fetch was served after %v, all had ended after %v and %v of CPU, with a peak of %d MiB", admitted.Round(time.Millisecond), gone.Round(time.Millisecond), used, p.peak())
	// The time depends on what else the machine does; the CPU of the service does not.
	rig.AtMost(t, "CPU from the cancel to the last end", used, goalGone, limitGone)
}

// untilWait calls waiting when the fetch waits, and reads until the call ends.
func (p *process) untilWait(ctx context.Context, service pb.FetchServiceClient, waiting func()) {
	for m, err := range client.Wrap(service).Events(ctx, &pb.FetchRequest{Url: p.origin.URL("http", "/s/busy/503:retry-after=20")}) {
		if err != nil {
			if ctx.Err() == nil {
				p.Error(err)
			}
			return
		}
		if f := m.GetAttemptFinished(); f.GetAttempt() == 1 && f.GetRetryDecision().GetRetry() != nil {
			waiting()
		}
	}
}

// goAway fetches from an origin that ends every HTTP/2 connection at its first request.
func goAway(t *testing.T) {
	const (
		fetches, perHop = 20, 3
		limitCPU        = 2 * time.Second
	)
	ctx := long(t)
	p := start(ctx, t)
	client := p.dial(1)[0]
	if err := p.small(ctx, client); err != nil { // the setup of the first fetch is not measured
		t.Fatal(err)
	}
	before, hops := p.cpu(), 0
	for i := range fetches {
		conns := p.origin.Connections("h2fault")
		out, err := client.FetchUnary(ctx, &pb.FetchRequest{
			Url: p.origin.URL("h2fault", fmt.Sprintf("/s/away%d/h2-goaway-forever", i))})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, a := range out.GetAttempts() {
			n += len(a.GetHops())
		}
		if conns = p.origin.Connections("h2fault") - conns; conns > perHop*n || n == 0 {
			t.Errorf("fetch %d opened %d connections for %d hops, want at most %d for each", i+1, conns, n, perHop)
		}
		hops += n
	}
	cpu := p.cpu() - before
	t.Logf("GOAWAY for ever: %d fetches, %d hops, %d connections, %v of CPU; %s",
		fetches, hops, p.origin.Connections("h2fault"), cpu, p.memory())
	if cpu > limitCPU {
		t.Errorf("CPU %v, want at most %v", cpu, limitCPU)
	}
}

// arrived waits until n requests have reached the origin.
func (p *process) arrived(ctx context.Context, key string, n int) error {
	_, err := p.origin.Await(ctx, key, n)
	return err
}

// ended waits until n fetches have ended according to the service's log.
func (p *process) ended(ctx context.Context, n int64) {
	p.Helper()
	if err := wait.Poll(ctx, 5*time.Millisecond, func() (bool, error) { return p.finished.Load() >= n, nil }); err != nil {
		p.Errorf("%d fetches have ended, want %d: %v", p.finished.Load(), n, err)
	}
}

// small makes a short fetch.
func (p *process) small(ctx context.Context, client pb.FetchServiceClient) error {
	out, err := client.FetchUnary(ctx, &pb.FetchRequest{Url: p.origin.URL("http", "/s/small/200:size=1000")})
	if err == nil && out.GetOutcome().GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		err = fmt.Errorf("outcome %v", out.GetOutcome())
	}
	return err
}

// fetchSmall makes n short fetches at once.
func (p *process) fetchSmall(ctx context.Context, client pb.FetchServiceClient, n int) {
	p.Helper()
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			if err := p.small(ctx, client); err != nil {
				p.Errorf("small fetch: %v", err)
			}
		})
	}
	group.Wait()
}
