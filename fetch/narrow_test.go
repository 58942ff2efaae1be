package fetch_test

import (
	"net/netip"
	"net/url"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/fault"
)

// only is a narrower that permits all URLs, and one address.
type only netip.Addr

func (only) CheckURL(*url.URL, bool) error { return nil }

func (o only) CheckAddr(target netip.AddrPort) error {
	if o.Permits(target) {
		return nil
	}
	return fault.New(classify.TargetBlocked, classify.PhasePolicy, "address_not_allowed")
}

func (o only) Permits(target netip.AddrPort) bool { return target.Addr() == netip.Addr(o) }

// TestDetailOfNarrowed checks that a failure does not name the address that was tried last if the policy of the fetch
// forbids it, although that of the client permits it.
func TestDetailOfNarrowed(t *testing.T) {
	t.Parallel()
	c := newClient(t, fetch.Config{
		Resolver: newNames(map[string][][]string{"all.test": {{"127.0.0.3", "127.0.0.2", "127.0.0.4"}}}).resolver(t),
		Egress:   fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{9}},
	})
	r := get(t, "http://all.test:9/")
	r.Policy.MaxAttempts, r.Egress = 1, only(netip.MustParseAddr("127.0.0.2"))
	out := c.Fetch(t.Context(), r, nil)
	if f := out.Failure; f == nil || f.Class != classify.ConnectFailure || f.Detail != "all.test:9" {
		t.Errorf("%+v, want CONNECT_FAILURE of all.test:9", f)
	}
}
