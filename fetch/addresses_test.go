package fetch_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/test/need"
)

// TestAddressesOfADial checks that eight addresses of a name are tried. Only the one at a given
// place answers, and the others refuse.
func TestAddressesOfADial(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		place int
		kind  classify.Kind
	}{{1, classify.Success}, {8, classify.Success}, {9, classify.Failed}, {20, classify.Failed}} {
		t.Run(fmt.Sprint(row.place), func(t *testing.T) {
			t.Parallel()
			address := func(n int) string { return fmt.Sprintf("127.0.%d.%d", row.place, n) }
			l, err := net.Listen("tcp", address(row.place)+":0")
			if err != nil {
				need.Missing(t, "run it on Linux, where all of 127.0.0.0/8 is loopback", "this system has no such loopback address: %v", err)
			}
			server := &http.Server{Handler: http.HandlerFunc(ok)}
			go func() { _ = server.Serve(l) }() // ends with Close
			defer func() { _ = server.Close() }()
			var all []string
			for n := range 24 {
				all = append(all, address(n+1))
			}
			port := netip.MustParseAddrPort(l.Addr().String()).Port()
			c := newClient(t, fetch.Config{
				Resolver: newNames(map[string][][]string{"many.test": {all}}).resolver(t),
				Egress:   fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{port}},
			})
			r := get(t, fmt.Sprintf("http://many.test:%d/", port))
			r.Policy.MaxAttempts = 1
			if out := c.Fetch(t.Context(), r, nil); out.Kind != row.kind {
				t.Errorf("%s: %+v, want %s", out.Kind, out.Failure, row.kind)
			}
		})
	}
}
