//go:build linux

package stores

import (
	"fmt"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/wait"
	"fetchd/test/rig"
)

// TestDown stops the server of one of three stores.
func TestDown(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 2*time.Minute)
	const failures, pause = 5, 5 * time.Second // of the breaker
	o, down, other := newSite(t), newServer(ctx, t), newServer(ctx, t)
	p := start(ctx, t, o.Origin, writeStores(t, map[string]entry{
		"down": down.entry("a"), "other": other.entry("a"), "folder": {URL: "file://" + t.TempDir()},
	}), options{})
	b, n := body{onePart, 8}, 0
	fetch := func(store string) (out *pb.FetchOutcome, took time.Duration, requests int) {
		n++
		key := fmt.Sprintf("body-%d", n)
		began := time.Now()
		out, err := p.fetch(ctx, request(o.URL("http", "/s/"+key+"/"+b.step()), store, key))
		if err != nil {
			t.Fatal(err)
		}
		return out, time.Since(began), len(o.Requests(key))
	}
	up := func(store string, want float64) {
		t.Helper()
		if got, ok := p.metrics(ctx)[fmt.Sprintf("fetchd_store_up{store=%q}", store)]; got != want || !ok {
			t.Errorf("fetchd_store_up of %s is %v, %t, want %v", store, got, ok, want)
		}
	}
	works := func(stores ...string) {
		t.Helper()
		for _, store := range stores {
			if out, _, _ := fetch(store); out.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
				t.Errorf("%s: %s, want SUCCESS", store, describe(out, nil))
			}
			up(store, 1)
		}
	}
	works("down", "other", "folder")

	down.stop()
	for i := range failures {
		up("down", 1)
		out, took, requests := fetch("down")
		e := out.GetError()
		if e.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_STORE_FAILURE || e.GetReason() != "store_error" || !e.GetRetryable() || out.GetAttempts() != 1 || requests != 1 {
			t.Errorf("fetch %d: %s, %d requests to the origin, want STORE_FAILURE, store_error, 1 attempt", i+1, describe(out, nil), requests)
		}
		if i == 0 {
			t.Logf("the first fetch failed after %s: %s", took.Round(time.Millisecond), describe(out, nil))
		}
	}
	var refused rig.Times
	for opened := time.Now(); len(refused) < 50 && time.Since(opened) < pause-time.Second; {
		out, took, requests := fetch("down")
		e := out.GetError()
		if e.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_STORE_FAILURE || e.GetReason() != "store_unavailable" || !e.GetRetryable() ||
			out.GetAttempts() != 0 || out.GetExchanges() != 0 || requests != 0 {
			t.Errorf("%s, %d requests to the origin, want STORE_FAILURE, store_unavailable, 0 attempts", describe(out, nil), requests)
		}
		refused = append(refused, took)
	}
	up("down", 0)
	t.Logf("refused: %s", refused)
	works("other", "folder")

	back := time.Now()
	down.start(ctx)
	var out *pb.FetchOutcome
	var tries int
	_ = wait.Until(ctx, 100*time.Millisecond, func() bool {
		tries++
		out, _, _ = fetch("down")
		return out.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS || time.Since(back) > 2*pause+10*time.Second
	})
	if out.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		t.Errorf("%s, %s after the store was started again, want SUCCESS", describe(out, nil), time.Since(back))
	}
	t.Logf("stored again %s after the start of the store, by fetch %d", time.Since(back).Round(100*time.Millisecond), tries)
	works("down", "other", "folder")
}
