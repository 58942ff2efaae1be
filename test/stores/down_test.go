//go:build linux

package stores

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
)

// outage is a service with three stores, of which the server of one goes down.
type outage struct {
	*testing.T
	*service
	site    *site
	fetches int
}

// fetch stores a new body. It returns the time and the number of requests that the origin got.
func (o *outage) fetch(ctx context.Context, store string) (out *pb.FetchOutcome, took time.Duration, requests int) {
	o.T.Helper()
	o.fetches++
	key := fmt.Sprintf("body-%d", o.fetches)
	began := time.Now()
	out, err := o.service.fetch(ctx, request(o.site.URL("http", "/s/"+key+"/"+body{onePart, 8}.step()), store, key))
	if err != nil {
		o.T.Fatal(err)
	}
	return out, time.Since(began), len(o.site.Requests(key))
}

// wantFailure checks an outcome with a failure of the store, and the number of attempts and of
// requests to the origin.
func (o *outage) wantFailure(out *pb.FetchOutcome, requests int, reason string, attempts int) {
	o.T.Helper()
	e := out.GetError()
	if e.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_STORE_FAILURE || e.GetReason() != reason || !e.GetRetryable() ||
		int(out.GetAttemptCount()) != attempts || int(out.GetExchangeCount()) != attempts || requests != attempts {
		o.T.Errorf("%s, %d requests to the origin, want STORE_FAILURE, %s, retryable, %d attempts", describe(out, nil), requests, reason, attempts)
	}
}

// wantUp checks the metric of a store.
func (o *outage) wantUp(ctx context.Context, store string, want float64) {
	o.T.Helper()
	if got, ok := o.metrics(ctx)[fmt.Sprintf("fetchd_store_up{store=%q}", store)]; got != want || !ok {
		o.T.Errorf("fetchd_store_up of %s is %v, %t, want %v", store, got, ok, want)
	}
}

// wantWorking checks that the stores take bodies.
func (o *outage) wantWorking(ctx context.Context, stores ...string) {
	o.T.Helper()
	for _, store := range stores {
		if out, _, _ := o.fetch(ctx, store); out.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
			o.T.Errorf("%s: %s, want SUCCESS", store, describe(out, nil))
		}
		o.wantUp(ctx, store, 1)
	}
}

// TestDown stops the server of one of three stores, and starts it again.
func TestDown(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 2*time.Minute)
	const failures, pause = 5, 5 * time.Second // of the breaker
	down, other := newServer(ctx, t), newServer(ctx, t)
	o := &outage{T: t, site: newSite(t)}
	o.service = start(ctx, t, o.site.Origin, rig.StoresFile(t, map[string]entry{
		"down": down.entry("a"), "other": other.entry("a"), "folder": {URL: "file://" + t.TempDir()},
	}), rig.FetchdOptions{})
	o.wantWorking(ctx, "down", "other", "folder")

	down.Stop()
	for i := range failures {
		o.wantUp(ctx, "down", 1)
		out, took, requests := o.fetch(ctx, "down")
		o.wantFailure(out, requests, "store_error", 1)
		if i == 0 {
			t.Logf("the first fetch failed after %s: %s", took.Round(time.Millisecond), describe(out, nil))
		}
	}
	var refused rig.Times
	for opened := time.Now(); len(refused) < 50 && time.Since(opened) < pause-time.Second; {
		out, took, requests := o.fetch(ctx, "down")
		o.wantFailure(out, requests, "store_unavailable", 0)
		refused = append(refused, took)
	}
	o.wantUp(ctx, "down", 0)
	t.Logf("%d refused: %s", len(refused), refused)
	o.wantWorking(ctx, "other", "folder")

	back := time.Now()
	down.Start(ctx)
	waiting, cancel := context.WithTimeout(ctx, 2*pause+10*time.Second)
	defer cancel()
	before := o.fetches
	rig.Until(waiting, t, "the store takes bodies again", func() bool {
		out, _, _ := o.fetch(ctx, "down")
		return out.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS
	})
	t.Logf("stored again %s after the start of the store, by fetch %d", time.Since(back).Round(100*time.Millisecond), o.fetches-before)
	o.wantWorking(ctx, "down", "other", "folder")
}
