package server_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/policies"
)

// TestPoliciesReplaced replaces the policies all the time. Each call must have all its limits from one set.
func TestPoliciesReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var sets []*policies.Set
	for i := 1; i <= 2; i++ {
		sets = append(sets, policySet(t, r, fmt.Sprintf("policies: {p%[1]d: {egress: {allow-addresses: [127.0.0.1], PORTS}, request: {max-attempts: %[1]d, max-redirects: %[1]d, max-size-bytes: %[1]d000, max-total-timeout: %[1]d0s}}}\ndefault: p%[1]d\n", i)))
	}
	r.Service.SetPolicies(sets[0])
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			r.Service.SetPolicies(sets[i%2])
			runtime.Gosched()
		}
	})
	counts := make(map[int32]int)
	for range 100 {
		resp, err := r.Client.FetchUnary(t.Context(), r.request("/s/k/200"))
		if err != nil || resp.GetOutcome().GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
			t.Errorf("%v, %v, want a success", resp.GetOutcome(), err)
		}
		in := resp.GetEffectiveRequest()
		n := in.GetRetryPolicy().GetMaxAttempts()
		if in.GetRedirectPolicy().GetMaxRedirects() != n || in.GetBodyPolicy().GetMaxSizeBytes() != 1000*int64(n) || in.GetTimeoutPolicy().GetTotalTimeout().GetSeconds() != 10*int64(n) {
			t.Errorf("effective %v, want the limits of one policy", in)
		}
		counts[n]++
	}
	close(stop)
	running.Wait()
	t.Logf("calls by policy: %v", counts)
}

// TestPolicyReplacedInFlight replaces the policy of a fetch that waits for its first response. The new one judges the
// redirect.
func TestPolicyReplacedInFlight(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.Service.SetPolicies(policySet(r.T, r, "policies: {p: {}}\ndefault: p\n"))
		c := r.begin(r.request("/s/k/302:delay=5s,to=%2Fs%2Fnext%2F200"))
		r.Service.SetPolicies(policySet(r.T, r, "policies: {p: {egress: {schemes: [https]}}}\ndefault: p\n"))
		wantBlocked(r, (<-c.ended).outcome.GetError(), "scheme_not_allowed", "p")
	})
}
