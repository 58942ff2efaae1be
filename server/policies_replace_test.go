package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/policies"
	"fetchd/server"
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
// redirect, and the denial is counted.
func TestPolicyReplacedInFlight(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/" {
			close(arrived)
			<-release
			http.Redirect(w, q, "/next", http.StatusFound)
		}
	}))
	t.Cleanup(site.Close)
	port := netip.MustParseAddrPort(site.Listener.Addr().String()).Port()
	o := newObserved(t, func(c *server.Config) { c.Fetch.Egress.AllowPorts = append(c.Fetch.Egress.AllowPorts, port) })
	permit := func(address string) {
		set, faults := policies.Parse(fmt.Appendf(nil, "policies: {p: {egress: {allow-addresses: [%s], ports: [%d]}}}\ndefault: p\n", address, port))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		o.Service.SetPolicies(set)
	}
	permit("127.0.0.1")
	ended := make(chan *pb.FetchError, 1)
	go func() {
		resp, err := o.Client.FetchUnary(t.Context(), &pb.FetchRequest{Url: site.URL})
		if err != nil {
			t.Error(err)
		}
		ended <- resp.GetOutcome().GetError()
	}()
	<-arrived
	permit("127.0.0.2")
	close(release)
	wantBlocked(o.rig, <-ended, "address_not_allowed", "p")
	o.want(map[string]float64{`fetchd_policy_denials_total{mode="enforce",policy="p",reason="address_not_allowed"}`: 1})
}
