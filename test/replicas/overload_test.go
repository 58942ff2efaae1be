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
	// Capacity is 64 fetches of 200 ms, 320 a second, which any machine carries:
	// what is measured is the service's way with more.
	places    = 64
	takes     = 200 * time.Millisecond
	overTimes = 4
	peakFor   = 3 * time.Second
	overFor   = 5 * time.Second
	recoverBy = 5 * time.Second
	// A round in which this process did not get to run is one of bursts, not of
	// four times the capacity, and does not count.
	mostLate = 100 * time.Millisecond
	rounds   = 3

	goalRefused, limitRefused = 20 * time.Millisecond, 100 * time.Millisecond // the 99th percentile
)

// offered is what came of an offered load.
type offered struct {
	mu      sync.Mutex
	good    []time.Time // the ends of fetches that went well
	refused rig.Times   // how long each refusal took
	other   error       // the last end that is neither
}

// TestOverload offers the service four times what it takes.
func TestOverload(t *testing.T) {
	ctx := rig.Long(t, 40*time.Second)
	o := rig.Origin(t)
	p := newService(t, o).start(ctx, "127.0.0.1:0", "--max-fetches", fmt.Sprint(places))
	var clients []pb.FetchServiceClient
	for range 4 {
		clients = append(clients, pb.NewFetchServiceClient(dialOne(t, p.addr)))
	}
	peak := new(offered)
	peak.closed(ctx, clients, o, time.Second) // connections come up
	peak = new(offered)
	began := time.Now()
	peak.closed(ctx, clients, o, peakFor)
	capacity := peak.rate(began, peakFor)
	t.Logf("at capacity: %.0f fetches/s", capacity)
	rig.AtLeast(t, "fetches/s at capacity", capacity, 0.8*places/takes.Seconds()) // or the machine sets it

	var over *offered
	var sent int
	var used time.Duration
	for round, late := 1, mostLate+1; late > mostLate; round++ {
		if round > rounds {
			rig.Cannot(t, "the calls did not go out at their times in any of %d rounds: the machine is too busy with something else", rounds)
		}
		over = new(offered)
		before := p.cpu()
		began = time.Now()
		sent, late = over.open(ctx, clients, o, overTimes*capacity, overFor)
		used = p.cpu() - before
		t.Logf("round %d: the calls went out %v late at most", round, late.Round(time.Millisecond))
	}
	good := over.rate(began, overFor)
	t.Logf("offered %.0f/s for %v: %.0f fetches/s went well (%.0f %% of the peak), %d of %d were refused, by %s; the service computed %v",
		float64(sent)/overFor.Seconds(), overFor, good, 100*good/capacity, len(over.refused), sent, over.refused, used)
	rig.AtLeast(t, "fetches/s under overload", good, 0.8*capacity)
	if len(over.refused) < sent/2 {
		t.Errorf("%d of %d calls were refused, want more than half: there was no overload", len(over.refused), sent)
	}
	rig.AtMost(t, "99th percentile of the time to a refusal", over.refused.Percentile(99), goalRefused, limitRefused)

	after := new(offered)
	ended := time.Now()
	after.closed(ctx, clients, o, recoverBy)
	full := -1
	for second := range int(recoverBy / time.Second) {
		if after.rate(ended.Add(time.Duration(second)*time.Second), time.Second) >= 0.9*capacity && full < 0 {
			full = second + 1
		}
	}
	if full < 0 {
		t.Errorf("%.0f fetches/s in the %v after the overload, want %.0f again in one second of them", after.rate(ended, recoverBy), recoverBy, 0.9*capacity)
	}
	t.Logf("after the overload: full speed within %d s; %.0f fetches/s over %v, %d refused", full, after.rate(ended, recoverBy), recoverBy, len(after.refused))
	for _, o := range []*offered{peak, over, after} {
		if o.other != nil {
			t.Errorf("a call is neither served nor refused: %v", o.other)
		}
	}
}

// closed has as many callers as there are places, each with one fetch at a time.
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

// open begins calls at a rate, whatever becomes of those before. It says how many
// there were, and how late the latest was.
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

// one makes a call, with gRPC's own retry out of the way.
func (o *offered) one(ctx context.Context, client pb.FetchServiceClient, at *origin.Origin, key int) {
	began := time.Now()
	resp, err := client.FetchUnary(ctx, &pb.FetchUnaryRequest{Request: &pb.FetchRequest{
		Url: at.URL("http", fmt.Sprintf("/s/o%d/200:size=500,delay=%s", key, takes))}}, grpc.WaitForReady(true))
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

// isRefusal: with the code goes when to come again.
func isRefusal(err error) bool {
	st := status.Convert(err)
	for _, d := range st.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok && st.Code() == codes.ResourceExhausted {
			return retry.GetRetryDelay().AsDuration() > 0
		}
	}
	return false
}

// rate is how many fetches a second went well in d from at on.
func (o *offered) rate(at time.Time, d time.Duration) float64 {
	n := 0
	for _, end := range o.good {
		if !end.Before(at) && end.Before(at.Add(d)) {
			n++
		}
	}
	return float64(n) / d.Seconds()
}
