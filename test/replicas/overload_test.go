//go:build linux

package replicas

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
)

const (
	// Capacity is 64 fetches of 200 ms, 320 a second, which any machine can serve. The
	// test measures how the service handles more.
	places    = 64
	slots     = 74 // of which a single caller gets as many as places
	takes     = 200 * time.Millisecond
	overTimes = 4
	peakFor   = 3 * time.Second
	overFor   = 5 * time.Second
	recoverBy = 5 * time.Second
	// If this process does not get enough CPU time, a round consists of bursts instead of
	// four times the capacity, and its rates and times are not judged. A call that is sent late
	// is answered late too, so this is half of what a refusal may take.
	mostLate = limitRefused / 2
	rounds   = 3

	goalRefused, limitRefused = 20 * time.Millisecond, 100 * time.Millisecond // the 99th percentile
)

// offered is the result of an offered load.
type offered struct {
	mu      sync.Mutex
	good    []time.Time // the ends of successful fetches
	refused rig.Times   // how long each refusal took
	other   error       // the last error that is not a refusal
}

// TestOverload offers the service four times its capacity.
func TestOverload(t *testing.T) {
	ctx := rig.Long(t, 3*time.Minute)
	o := rig.Origin(t)
	p := newService(t, o).start(ctx, "127.0.0.1:0", "--max-fetches", fmt.Sprint(slots))
	var clients []pb.FetchServiceClient
	for range 4 {
		clients = append(clients, pb.NewFetchServiceClient(rig.Dial(t, p.GRPC)))
	}
	new(offered).closed(ctx, clients, o, time.Second) // opens the connections
	const least = 0.8 * places / float64(takes/time.Millisecond) * 1000
	var peak, over *offered
	var began time.Time
	var capacity float64
	var clock *rig.Clock
	var sent int
	var used time.Duration
	busy := true // the machine, with something else
	for round := 1; busy && round <= rounds; round++ {
		peak, over, clock = new(offered), new(offered), rig.StartClock(t)
		began = time.Now()
		peak.closed(ctx, clients, o, peakFor)
		capacity = peak.rate(began, peakFor)
		before := p.cpu()
		began = time.Now()
		var late time.Duration
		sent, late = over.open(ctx, clients, o, overTimes*capacity, overFor)
		used = p.cpu() - before
		t.Logf("round %d: %.0f fetches/s at capacity, want at least %.0f; then the calls were sent at most %v late", round, capacity, least, late.Round(time.Millisecond))
		busy = late > mostLate || clock.Busy()
	}
	if capacity < least && !busy {
		t.Errorf("%.0f fetches/s at capacity, want at least %.0f", capacity, least)
	}
	good := over.rate(began, overFor)
	t.Logf("offered %.0f/s for %v: %.0f fetches/s succeeded (%.0f %% of the peak), %d of %d were refused, after %s; the service used %v of CPU time",
		float64(sent)/overFor.Seconds(), overFor, good, 100*good/capacity, len(over.refused), sent, over.refused, used)
	if want := 0.8 * capacity; good < want && !busy {
		t.Errorf("%.0f fetches/s under overload, want at least %.0f", good, want)
	}
	if len(over.refused) < sent/2 && !busy {
		t.Errorf("%d of %d calls were refused, want more than half, or it was no overload", len(over.refused), sent)
	}
	if !busy {
		clock.AtMost("99th percentile of the time to a refusal", over.refused.Percentile(99), goalRefused, limitRefused)
	}

	after := new(offered)
	ended := time.Now()
	after.closed(ctx, clients, o, recoverBy)
	full := -1
	for second := range int(recoverBy / time.Second) {
		if after.rate(ended.Add(time.Duration(second)*time.Second), time.Second) >= 0.9*capacity && full < 0 {
			full = second + 1
		}
	}
	if full < 0 && !busy && !clock.Busy() {
		t.Errorf("%.0f fetches/s in the %v after the overload, want %.0f in at least one second of them", after.rate(ended, recoverBy), recoverBy, 0.9*capacity)
	}
	t.Logf("after the overload: full speed within %d s; %.0f fetches/s over %v, %d refused", full, after.rate(ended, recoverBy), recoverBy, len(after.refused))
	for _, o := range []*offered{peak, over, after} {
		if o.other != nil {
			t.Errorf("a call is neither served nor refused: %v", o.other)
		}
	}
}

// closed runs as many callers as there are slots, each with one fetch at a time.
func (o *offered) closed(ctx context.Context, clients []pb.FetchServiceClient, at *origin.Origin, d time.Duration) {
	var group sync.WaitGroup
	end := time.Now().Add(d)
	for i := range places {
		group.Go(func() {
			for time.Now().Before(end) {
				o.one(ctx, clients[i%len(clients)], at, i)
			}
		})
	}
	group.Wait()
}

// open starts calls at a rate, without waiting for earlier ones. It returns how many it
// started, and how late the latest was.
func (o *offered) open(ctx context.Context, clients []pb.FetchServiceClient, at *origin.Origin, perSecond float64, d time.Duration) (sent int, late time.Duration) {
	var group sync.WaitGroup
	began := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for elapsed := time.Duration(0); elapsed < d && ctx.Err() == nil; elapsed = time.Since(began) {
		late = max(late, elapsed-time.Duration(float64(sent)/perSecond*float64(time.Second)))
		for ; sent < int(perSecond*elapsed.Seconds()); sent++ {
			client, n := clients[sent%len(clients)], sent
			group.Go(func() { o.one(ctx, client, at, n%1000) })
		}
		<-tick.C
	}
	group.Wait()
	return sent, late
}

// one makes a call without gRPC's own retries.
func (o *offered) one(ctx context.Context, client pb.FetchServiceClient, at *origin.Origin, key int) {
	began := time.Now()
	resp, err := client.FetchUnary(ctx, &pb.FetchRequest{
		Url: at.URL("http", fmt.Sprintf("/s/o%d/200:size=500,delay=%s", key, takes))}, grpc.WaitForReady(true))
	took := time.Since(began)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil && resp.GetOutcome().GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
		o.good = append(o.good, began.Add(took))
	case err == nil:
		o.other = fmt.Errorf("outcome %v", resp.GetOutcome())
	case isRefusal(err):
		o.refused = append(o.refused, took)
	default:
		o.other = err
	}
}

// isRefusal reports whether err is a refusal that says when to try again.
func isRefusal(err error) bool {
	st := status.Convert(err)
	for _, d := range st.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok && st.Code() == codes.ResourceExhausted {
			return retry.GetRetryDelay().AsDuration() > 0
		}
	}
	return false
}

// rate returns the successful fetches per second during d, starting at at.
func (o *offered) rate(at time.Time, d time.Duration) float64 {
	n := 0
	for _, end := range o.good {
		if !end.Before(at) && end.Before(at.Add(d)) {
			n++
		}
	}
	return float64(n) / d.Seconds()
}
