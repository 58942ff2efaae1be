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
	"fetchd/internal/wait"
)

// leeway is how many goroutines and descriptors may be left. heapFloor is what
// the live heap may grow by in any case, in MiB: the trace of the collector
// speaks in whole MiB, and caches that are bounded (TLS sessions, buffers) fill
// as the run goes on, on a heap of so few MiB that a tenth of it is less.
const (
	leeway    = 10
	heapFloor = 3
)

// held is what the process holds while nobody calls it.
type held struct {
	goroutines  int // -1: it does not tell
	threads     int
	descriptors int
	live        int64 // MiB of heap
	stacks      int64 // MiB that are used
}

func (h held) String() string {
	goroutines := fmt.Sprintf("%d goroutines", h.goroutines)
	if h.goroutines < 0 {
		goroutines = "goroutines not told"
	}
	return fmt.Sprintf("%s, %d threads, %d descriptors, %d MiB of live heap, %d MiB of stacks", goroutines, h.threads, h.descriptors, h.live, h.stacks)
}

// more tells what of h is more than before allows.
func (h held) more(before held) []string {
	var all []string
	tell := func(what string, got, want int64) {
		if got > want {
			all = append(all, fmt.Sprintf("%s: %d, want %d at most", what, got, want))
		}
	}
	if h.goroutines >= 0 {
		tell("goroutines", int64(h.goroutines), int64(before.goroutines)+leeway)
	} else { // what else tells of goroutines that are left
		tell("threads", int64(h.threads), int64(before.threads)+leeway)
		tell("MiB of stacks", h.stacks, before.stacks+1)
	}
	tell("descriptors", int64(h.descriptors), int64(before.descriptors)+leeway)
	tell("MiB of live heap", h.live, before.live+max(before.live/10, heapFloor))
	return all
}

// idle is an idle service, and how it is looked at.
type idle struct {
	*process
	metrics string // address that may tell them; empty where none does
	probe   pb.FetchServiceClient
}

// noGoroutines says what a soak is worth where the service has no metrics.
const noGoroutines = "this fetchd does not tell its goroutines: threads and stacks are looked at in their place"

// metricsAddress finds an address for the service's metrics, if it has any.
func (s *service) metricsAddress() string {
	s.Helper()
	if !s.http {
		s.Logf("no --http-addr: %s", noGoroutines)
		return ""
	}
	return freeAddress(s.T, "127.0.0.1")
}

// look waits for some collections, which calls that fetch nothing bring about,
// and says what is held then.
func (i *idle) look(ctx context.Context) held {
	i.Helper()
	for until := i.collections.Load() + 3; i.collections.Load() < until; {
		if _, err := i.probe.Explain(ctx, &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 503}}); err != nil {
			i.Fatalf("Explain: %v", err)
		}
	}
	return held{goroutines: i.goroutines(ctx), threads: i.threads(), descriptors: i.descriptors(), live: i.live.Load(), stacks: i.stacks.Load()}
}

// goroutines asks the service's metrics, -1 where there are none.
func (i *idle) goroutines(ctx context.Context) int {
	i.Helper()
	if i.metrics == "" {
		return -1
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+i.metrics+"/metrics", http.NoBody)
	if err != nil {
		i.Fatal(err)
	}
	request.Close = true // a connection that stays would be counted
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Do(request)
	if err != nil {
		i.Fatalf("ask for metrics: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		i.Logf("no /metrics: %s", noGoroutines)
		i.metrics = ""
		return -1
	}
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

// backTo looks until no more is held than before, or for a while, and returns
// the last look.
func (i *idle) backTo(ctx context.Context, before held) held {
	i.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var now held
	_ = wait.Until(ctx, 500*time.Millisecond, func() bool { // the caller judges what was seen last
		now = i.look(context.WithoutCancel(ctx))
		return len(now.more(before)) == 0
	})
	return now
}
