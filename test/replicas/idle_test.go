//go:build linux

package replicas

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	pb "fetchd/gen/fetchd/v1"
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
	if err != nil {
		i.Fatal(err)
	}
	return held{goroutines: i.goroutines(ctx), descriptors: open, live: i.Heap.Live.Load()}
}

// goroutines reads the number of goroutines from the metrics of the service.
func (i *idle) goroutines(ctx context.Context) int {
	i.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+i.HTTP+"/metrics", http.NoBody)
	if err != nil {
		i.Fatal(err)
	}
	request.Close = true // an open connection would be counted
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Do(request)
	if err != nil {
		i.Fatalf("read the metrics: %v", err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				i.Fatal(err)
			}
			return int(n)
		}
	}
	i.Fatalf("the metrics (%s) have no go_goroutines", resp.Status)
	return -1
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
