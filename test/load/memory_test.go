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

// TestWaiting makes 10,000 fetches wait for a Retry-After, and then cancels them all.
func TestWaiting(t *testing.T) {
	const (
		fetches, conns, atOnce = 10_000, 20, 100
		// A waiting fetch uses about 10 KiB of heap, and a goroutine with 8 KiB of stack.
		// The memory limit makes the collector keep within that; without it the heap
		// would grow to twice the live heap.
		memoryLimit         = "GOMEMLIMIT=224MiB"
		limitRSS            = 256
		goalGone, limitGone = 2 * time.Second, 6 * time.Second // of CPU: one and three seconds on two cores
	)
	ctx := rig.Long(t, 55*time.Second)
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

// TestGoAway fetches from an origin that ends every HTTP/2 connection at its first request.
func TestGoAway(t *testing.T) {
	const (
		fetches, perHop = 20, 3
		limitCPU        = 2 * time.Second
	)
	ctx := rig.Long(t, 55*time.Second)
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
