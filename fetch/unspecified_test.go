package fetch_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"

	"fetchd/fetch"
)

// TestUnspecifiedTargets checks 0.0.0.0 and ::. The kernel connects them to loopback, where the
// service itself may listen, or which the operator may have denied.
func TestUnspecifiedTargets(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listen, host string
		own                bool
		deny               []netip.Prefix
		unrestricted       bool
		reason             string
	}{
		{"own", "127.0.0.1:0", "0.0.0.0", true, nil, false, "own_listener"},
		{"own, unrestricted", "127.0.0.1:0", "0.0.0.0", true, nil, true, "own_listener"},
		{"own IPv6", "[::1]:0", "::", true, nil, false, "own_listener"},
		{"own IPv6, unrestricted", "[::1]:0", "::", true, nil, true, "own_listener"},
		{"denied", "127.0.0.1:0", "0.0.0.0", false, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, false, "address_denied"},
		{"denied IPv6", "[::1]:0", "::", false, []netip.Prefix{netip.MustParsePrefix("::1/128")}, true, "address_denied"},
		{"open", "127.0.0.1:0", "0.0.0.0", false, nil, false, ""},
		{"open IPv6", "[::1]:0", "::", false, nil, false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			l := listenOn(t, row.listen, true)
			s := httptest.NewUnstartedServer(http.HandlerFunc(ok))
			_ = s.Listener.Close()
			s.Listener = l
			s.Start()
			t.Cleanup(s.Close)
			at := netip.MustParseAddrPort(l.Addr().String())
			e := fetch.Egress{DenyCIDRs: row.deny, AllowPorts: []uint16{at.Port()}, Unrestricted: row.unrestricted,
				AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
			if row.own {
				e.Own = []netip.AddrPort{at}
			}
			c := newClient(t, fetch.Config{Egress: e})
			r := get(t, "http://"+net.JoinHostPort(row.host, strconv.Itoa(int(at.Port())))+"/")
			var reason string
			if out := c.Fetch(t.Context(), r, nil); out.Failure != nil {
				reason = out.Failure.Reason
			}
			var accepted int64
			if row.reason == "" {
				accepted = 1
			}
			if reason != row.reason || l.accepted.Load() != accepted {
				t.Errorf("reason %q, %d connections accepted, want %q, %d", reason, l.accepted.Load(), row.reason, accepted)
			}
		})
	}
}
