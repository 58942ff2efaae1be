//go:build linux

package replicas

import (
	"context"
	"fmt"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/must"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// leeway is how many more goroutines and descriptors may remain. heapFloor is by how much
// the live heap may always grow, in MiB: gctrace reports whole MiB, and bounded caches (TLS
// sessions, buffers) fill during the run, while a tenth of the small heap is less.
const (
	leeway    = 10
	heapFloor = 3
)

// held is what the process uses while nothing calls it.
type held struct {
	goroutines  int
	descriptors int
	live        int64 // MiB of heap
}

func (h held) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d MiB of live heap", h.goroutines, h.descriptors, h.live)
}

// excess describes what in h exceeds before by more than the allowed difference.
func (h held) excess(before held) []string {
	var all []string
	check := func(what string, got, limit int64) {
		if got > limit {
			all = append(all, fmt.Sprintf("%s: %d, want at most %d", what, got, limit))
		}
	}
	check("goroutines", int64(h.goroutines), int64(before.goroutines)+leeway)
	check("descriptors", int64(h.descriptors), int64(before.descriptors)+leeway)
	check("MiB of live heap", h.live, before.live+max(before.live/10, heapFloor))
	return all
}

// idle measures an idle service.
type idle struct {
	*process
	probe pb.FetchServiceClient
}

// look waits for some garbage collections and returns what is in use then. It causes them
// with calls that fetch nothing.
func (i *idle) look(ctx context.Context) held {
	i.Helper()
	for until := i.Heap.Collections.Load() + 3; i.Heap.Collections.Load() < until; {
		if _, err := i.probe.Explain(ctx, &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 503}}); err != nil {
			i.Fatalf("Explain: %v", err)
		}
	}
	open, err := i.Descriptors()
	must.Succeed(i, err)
	metrics, err := rig.FreshMetrics(ctx, i.HTTP) // over a connection that stays open
	must.Succeed(i, err)
	return held{goroutines: int(metrics["go_goroutines"]), descriptors: open, live: i.Heap.Live.Load()}
}

// backTo looks until the service uses no more than before, but for at most 30 s. It
// returns the last look.
func (i *idle) backTo(ctx context.Context, before held) held {
	i.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var now held
	_ = wait.Until(ctx, 500*time.Millisecond, func() bool { // the caller judges the last look
		now = i.look(context.WithoutCancel(ctx))
		return len(now.excess(before)) == 0
	})
	return now
}
