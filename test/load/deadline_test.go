//go:build linux

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

const (
	deadlineFetches = 200 // for each deadline
	deadlineCallers = 40  // at once, for each deadline
	busyLoops       = 2   // processes
)

// TestDeadlineOnABusyMachine checks that calls to a silent origin have their outcome before
// the deadline, even while other processes use every core (spec §9).
func TestDeadlineOnABusyMachine(t *testing.T) {
	ctx := long(t)
	p := start(ctx, t)
	for range busyLoops {
		loop := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		loop.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = loop.Process.Kill()
			_ = loop.Wait() // it was killed
		})
	}
	deadlines := []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second}
	clients := p.dial(len(deadlines))
	ends := make([]deadlineEnds, len(deadlines))
	clock := rig.StartClock(t)
	var group sync.WaitGroup
	for i, deadline := range deadlines {
		jobs := make(chan int)
		group.Go(func() {
			defer close(jobs)
			for n := range deadlineFetches {
				jobs <- n
			}
		})
		for worker := range deadlineCallers {
			group.Go(func() {
				wait.For(ctx, deadline*time.Duration(worker)/deadlineCallers) // so that they do not all end at once
				for n := range jobs {
					url := p.origin.URL("http", fmt.Sprintf("/s/d%d-%d/silent", i, n))
					ends[i].add(fetchWithDeadline(ctx, clients[i], url, deadline, n%2 == 0))
				}
			})
		}
	}
	group.Wait()
	fail := t.Errorf
	if clock.Busy() { // with more than the loops
		fail = t.Logf
	}
	for i, deadline := range deadlines {
		all := &ends[i]
		t.Logf("deadline %v: %d of %d outcomes; time left before the deadline: minimum %v, p1 %v, p50 %v",
			deadline, len(all.left), deadlineFetches, all.left.Percentile(0).Round(time.Millisecond),
			all.left.Percentile(1).Round(time.Millisecond), all.left.Percentile(50).Round(time.Millisecond))
		for _, err := range all.errs {
			fail("deadline %v: %v, want the outcome DEADLINE", deadline, err)
		}
	}
}

// deadlineEnds are the ends of calls with one deadline.
type deadlineEnds struct {
	mu   sync.Mutex
	left rig.Times // time until the deadline when the outcome arrived
	errs []error
}

func (e *deadlineEnds) add(left time.Duration, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.errs = append(e.errs, err)
		return
	}
	e.left = append(e.left, left)
}

// fetchWithDeadline makes a call and returns the time until its deadline when the outcome
// arrived.
func fetchWithDeadline(ctx context.Context, c pb.FetchServiceClient, url string, deadline time.Duration, unary bool) (time.Duration, error) {
	ends := time.Now().Add(deadline)
	ctx, cancel := context.WithDeadline(ctx, ends)
	defer cancel()
	in := &pb.FetchRequest{Url: url}
	var outcome *pb.FetchOutcome
	var left time.Duration
	var err error
	if unary {
		var out *pb.FetchUnaryResponse
		out, err = c.FetchUnary(ctx, in)
		outcome, left = out.GetOutcome(), time.Until(ends)
	} else {
		outcome, left, err = readWithDeadline(ctx, c, in, ends)
	}
	if class := outcome.GetError().GetErrorClass(); err == nil && class != pb.ErrorClass_ERROR_CLASS_DEADLINE {
		err = fmt.Errorf("outcome %s", class)
	}
	if err != nil {
		err = fmt.Errorf("%s after %v: %w", status.Code(err), deadline-time.Until(ends), err)
	}
	return left, err
}

func readWithDeadline(ctx context.Context, c pb.FetchServiceClient, in *pb.FetchRequest, ends time.Time) (outcome *pb.FetchOutcome, left time.Duration, err error) {
	stream, err := c.Fetch(ctx, in)
	for err == nil {
		var m *pb.FetchResponse
		m, err = stream.Recv()
		for _, e := range m.GetEvents() {
			if e.GetOutcome() != nil {
				outcome, left = e.GetOutcome(), time.Until(ends)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return outcome, left, err
}
